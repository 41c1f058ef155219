"""BERT that chooses one of several continuations or answers (Devlin et al. 2018, section 4.4, as for SWAG)."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from tf_bert.configs import BertConfig
from tf_bert.data.finetuning.multiple_choice import by_example
from tf_bert.layers.heads import correct, cross_entropy
from tf_bert.models.bert import expected_ids
from tf_bert.models.bert_tasks import BertTask
from tf_bert.trainer.checks import Expected, Integers
from tf_bert.trainer.texts import decoded, strings, to_list
from tf_bert.trainer.trainer import Scores

NO_CHOICE = -1e9  # the score of what only fills up an example with fewer choices


@keras.saving.register_keras_serializable("tf_bert")
class BertMultipleChoice(BertTask):
    """BERT that scores each of C choices by the pooled output of the text together with it.

    ``fit`` and ``predict`` also take texts: ``(texts, choices)``, the second a list of lists.

    Args:
        config: sizes and rates.
        dropout: of the pooled output.

    Call arguments:
        inputs: ``input_ids``, and maybe ``input_mask`` and ``segment_ids``, int32 [B, C, S]: one row for each choice.
            A choice whose mask is all 0 fills up an example that has fewer, and is never chosen. For training
            ``label_ids`` [B] too, the number of the right choice.

    Returns:
        ``logits`` [B, C] and ``pooled_output`` [B, C, H].

    Example:
        >>> config = BertConfig(vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
        >>> ids = keras.ops.array([[[2, 7, 3, 9, 3], [2, 7, 3, 8, 3]]])
        >>> BertMultipleChoice(config)({"input_ids": ids})["logits"].shape
        TensorShape([1, 2])
    """

    loss_names = ("loss",)
    metric_names = ("accuracy",)
    label_name = "label_ids"
    label_names = ("label_ids",)
    input_names = ("input_ids", "input_mask", "segment_ids", "label_ids")
    text_outputs = {"logits": 0.0}

    def __init__(self, config: BertConfig, dropout: float = 0.1, **kwargs):
        super().__init__(config, **kwargs)
        self.dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self.build()

    def build(self, input_shape=None):
        """Makes the variables of the head, which has one output."""
        self.add_head(1)

    def call(self, inputs: dict[str, Any], training: bool | None = None):
        """Encodes each text with each of its choices and scores them."""
        names = [name for name in ("input_ids", "input_mask", "segment_ids") if name in inputs]
        batch_size, choices, length = ops.shape(inputs["input_ids"])  # [B, C, S]
        rows = {name: ops.reshape(inputs[name], (-1, length)) for name in names}  # [B * C, S]
        pooled = self.bert(rows, training=training)["pooled_output"]  # [B * C, H]
        x = self.dropout(pooled, training=training)
        logits = ops.reshape(self.head(x), (batch_size, choices))  # [B, C]
        if "input_mask" in inputs:
            logits = ops.where(ops.any(ops.not_equal(inputs["input_mask"], 0), axis=-1), logits, NO_CHOICE)
        return {"logits": logits, "pooled_output": ops.reshape(pooled, (batch_size, choices, self.config.hidden_size))}

    @property
    def expected(self) -> Expected:
        """Ids inside their tables; labels are below the number of choices."""
        return expected_ids(self.config) | {"label_ids": Integers("input_ids", "choices", axes=1, bound_axis=1)}

    @property
    def scored_outputs(self) -> dict[str, Scores]:
        """The scores of choices."""
        return {"logits": Scores("loss", "softmax")}

    def targets(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """The number of the right choice [B]."""
        return {"logits": ops.reshape(inputs["label_ids"], (-1,))} if "label_ids" in inputs else {}

    def loss_weights(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """1 for each example [B]."""
        return {"loss": ops.ones_like(inputs["input_ids"][:, 0, 0])}

    def per_example_losses(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """Cross-entropy of each example [B]."""
        return {"loss": cross_entropy("label_ids", ops.reshape(inputs["label_ids"], (-1,)), outputs["logits"])}

    def per_example_metrics(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """Whether each example is right [B]."""
        right = correct(ops.reshape(inputs["label_ids"], (-1,)), outputs["logits"])
        return {"accuracy": (right, self.loss_weights(inputs)["loss"])}

    def as_texts(self, x) -> tuple[list, list] | None:
        """The texts and for each its choices, where ``x`` is ``(texts, choices)``; None where it is something else."""
        x = (x["text"], x["text_pair"]) if isinstance(x, Mapping) and {"text", "text_pair"} <= set(x) else x
        if not (isinstance(x, tuple) and len(x) == 2):
            return None
        texts = strings(x[0])
        choices = list(x[1]) if isinstance(x[1], list | tuple) else to_list(x[1])
        if texts is None or choices is None:
            return None
        texts = decoded(texts)
        choices = [decoded(c.tolist() if isinstance(c, np.ndarray) else c) for c in choices]
        if len(texts) != len(choices):
            raise ValueError(f"{len(texts)} texts and {len(choices)} lists of choices: each text has one")
        for number, of_text in enumerate(choices):
            if isinstance(of_text, str) or not len(of_text):
                raise ValueError(f"number {number} of the choices is {of_text!r}; expected a list of texts")
        return texts, choices

    def preprocess(self, texts: Sequence[str], text_pairs: Sequence[Sequence[str]]) -> dict[str, np.ndarray]:
        """The inputs for texts and the choices of each, int32 [N, C, S]."""
        flat = super().preprocess(
            [text for text, of_text in zip(texts, text_pairs, strict=True) for _ in of_text],
            [choice for of_text in text_pairs for choice in of_text],
        )
        return {name: by_example(values, list(map(len, text_pairs))) for name, values in flat.items()}

    @classmethod
    def arguments_for(cls, shapes):
        """Nothing: the head has one output, whatever the number of choices."""
        return {}

    def get_config(self):
        """What `from_config` needs."""
        return super().get_config() | {"dropout": self.dropout.rate}
