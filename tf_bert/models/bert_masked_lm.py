"""BERT for masked words alone, without next-sentence prediction (Devlin et al. 2018, section 3.1, task 1)."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from tf_bert.configs import BertConfig
from tf_bert.layers.heads import MaskedLMHead, correct, cross_entropy, gather_indexes
from tf_bert.models.bert import Bert, expected_ids
from tf_bert.models.bert_tasks import BertTask
from tf_bert.models.fill_mask import MASK, Filling, fillings_of
from tf_bert.trainer.checks import Expected
from tf_bert.trainer.doors import is_batches
from tf_bert.trainer.trainer import Scores

MASKED_LM_PROB = 0.15


@keras.saving.register_keras_serializable("tf_bert")
class BertForMaskedLM(BertTask):
    """BERT that scores the words at (masked) positions, without the next-sentence task.

    ``fit(texts)`` masks 15 % of the pieces afresh in each epoch, with the original's 80/10/10 split, and learns to find
    them; ``predict(texts)`` scores each [MASK] of the texts, and `fill_mask` says the likeliest words.

    Args:
        config: sizes and rates.
        add_pooler: see `BertTask`.

    Call arguments:
        inputs: those of `Bert`, and ``masked_lm_positions`` [B, P]: all positions if left out. For training
            ``masked_lm_ids`` [B, P], the words that stood there, and ``masked_lm_weights`` [B, P], 1 for a prediction
            and 0 for padding.

    Returns:
        The outputs of `Bert` and ``masked_lm_logits`` [B, P, V].

    Example:
        >>> config = BertConfig(vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
        >>> BertForMaskedLM(config)({"input_ids": keras.ops.array([[2, 7, 3]])})["masked_lm_logits"].shape
        TensorShape([1, 3, 30])
    """

    loss_names = ("masked_lm_loss",)
    metric_names = ("masked_lm_accuracy",)
    weight_epsilon = {"masked_lm_loss": 1e-5}
    input_names = (*Bert.input_names, "masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
    label_names = ("masked_lm_ids", "masked_lm_weights")
    special_tokens_in_text = True
    text_outputs = {"masked_lm_logits": 0.0}

    def __init__(self, config: BertConfig, add_pooler: bool = False, **kwargs):
        super().__init__(config, add_pooler, **kwargs)
        sizes = (config.vocab_size, config.hidden_size, config.hidden_act, config.initializer_range)
        self.masked_lm = MaskedLMHead(*sizes, dtype=self.dtype_policy, name="predictions")
        self.build()

    def build(self, input_shape=None):
        """Makes the variables of the head."""
        with keras.name_scope("cls"):
            self.masked_lm.build((None, None, self.config.hidden_size))

    def call(self, inputs: dict[str, Any], training: bool | None = None):
        """Encodes a batch and scores words."""
        outputs = self.bert(self.bert.read_from(inputs), training=training)
        x = outputs["sequence_output"]  # [B, S, H]
        if "masked_lm_positions" in inputs:
            x = gather_indexes(x, inputs["masked_lm_positions"])  # [B, P, H]
        return outputs | {"masked_lm_logits": self.masked_lm(x, table=self.bert.get_embedding_table())}  # [B, P, V]

    @property
    def expected(self) -> Expected:
        """Ids and labels inside their tables."""
        return expected_ids(self.config)

    @property
    def scored_outputs(self) -> dict[str, Scores]:
        """The scores of words."""
        return {"masked_lm_logits": Scores("masked_lm_loss", "softmax", self.config.vocab_size)}

    def targets(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """The masked words [B, P]."""
        return {"masked_lm_logits": inputs.get("masked_lm_ids")}

    def loss_weights(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """1 for each real prediction [B, P]."""
        return {"masked_lm_loss": inputs["masked_lm_weights"]}

    def per_example_losses(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """Cross-entropy of each prediction [B, P]."""
        loss = cross_entropy("masked_lm_ids", inputs["masked_lm_ids"], outputs["masked_lm_logits"])
        return {"masked_lm_loss": loss}

    def per_example_metrics(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """Whether each prediction is right [B, P]."""
        right = correct(inputs["masked_lm_ids"], outputs["masked_lm_logits"])
        return {"masked_lm_accuracy": (right, inputs["masked_lm_weights"])}

    def fit(self, x=None, y=None, batch_size: int | None = None, *args, validation_split: float = 0.0, **kwargs):
        """Trains as `keras.Model.fit`; texts are masked afresh in each epoch."""
        found = None if x is None or is_batches(x) else self.as_texts(x)
        if found is None:
            return super().fit(x, y, batch_size, *args, validation_split=validation_split, **kwargs)
        weights = kwargs.pop("sample_weight", None)
        inputs = self._inputs_and_weights(*found, y, weights)
        if validation_split and kwargs.get("validation_data") is None:
            kept = int(len(found[0]) * (1 - validation_split))
            held_out = {name: value[kept:] for name, value in inputs.items()}
            inputs = {name: value[:kept] for name, value in inputs.items()}
            kwargs["validation_data"] = self.masked_batches(held_out, batch_size or 32, seed=0, shuffle=False)
        batches = self.masked_batches(inputs, batch_size or 32, shuffle=kwargs.pop("shuffle", True))
        return super().fit(batches, None, None, *args, **{"shuffle": False} | kwargs)

    def evaluate(self, x=None, y=None, batch_size: int | None = None, verbose="auto", sample_weight=None, **kwargs):
        """Evaluates as `keras.Model.evaluate`; texts are masked, always alike."""
        found = None if x is None or is_batches(x) else self.as_texts(x)
        if found is None:
            return super().evaluate(x, y, batch_size, verbose, sample_weight, **kwargs)
        inputs = self._inputs_and_weights(*found, y, sample_weight)
        batches = self.masked_batches(inputs, batch_size or 32, seed=0, shuffle=False)
        return super().evaluate(batches, None, None, verbose, **kwargs)

    def text_inputs(self, texts: list, text_pairs: list | None, y) -> tuple[dict[str, Any], Any]:
        """Inputs of texts, masked, for one batch or for validation: always alike."""
        inputs = self._inputs_and_weights(texts, text_pairs, y, None)
        batches = self.masked_batches(inputs, len(texts), seed=0, shuffle=False)
        return {name: ops.convert_to_numpy(value) for name, value in next(iter(batches)).items()}, None

    def _of_full_width(self, inputs: dict[str, np.ndarray], *rest: Any) -> tuple:
        """A batch as wide as any can be, with as many predictions."""
        inputs, *rest = super()._of_full_width(inputs, *rest)
        most = _most_predictions(inputs["input_ids"].shape[1])
        for name in ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"):
            if name in inputs:
                inputs[name] = np.pad(inputs[name], [(0, 0), (0, most - inputs[name].shape[1])])
        return inputs, *rest

    def _inputs_and_weights(self, texts, text_pairs, y, sample_weight) -> dict[str, np.ndarray]:
        if y is not None:
            raise ValueError("BertForMaskedLM learns from texts alone; y has no place here")
        inputs = self.preprocess(texts, text_pairs)
        if sample_weight is None:
            return inputs
        _, _, weights = self.prepared(inputs, None, sample_weight)
        return inputs | {"sample_weight": np.asarray(weights)}

    def masked_batches(self, inputs: dict[str, np.ndarray], batch_size: int, seed: int | None = None, shuffle=True):
        """Inputs as a data set of masked batches, masked anew in each pass where they are shuffled."""
        from tf_bert.data.pretraining.dynamic_masking import DynamicMasking
        from tf_bert.data.pretraining.masked_texts import masked_batches

        vocab = {piece: number for number, piece in enumerate(self.get_preprocessor().pieces)}
        most = _most_predictions(inputs["input_ids"].shape[1])
        seed = int(keras.random.randint((), 0, 2**31 - 1)) if seed is None else seed
        special = (vocab["[MASK]"], vocab["[CLS]"], vocab["[SEP]"])
        masking = DynamicMasking(self.config.vocab_size, *special, most, MASKED_LM_PROB, seed=seed)
        return masked_batches(masking, inputs, batch_size, shuffle)

    def predict(self, x, batch_size: int | None = None, *args, **kwargs):
        """Predicts as `keras.Model.predict`; for texts, the scores of each [MASK].

        Returns:
            For N texts with at most P masks: ``masked_lm_positions`` int32 [N, P], -1 where a text has fewer, and
            ``masked_lm_logits`` [N, P, V], 0 there.

        Raises:
            ValueError: a text without a [MASK].
        """
        found = None if isinstance(x, dict) else self.as_texts(x)
        if found is None:
            return super().predict(x, batch_size, *args, **kwargs)
        inputs = self.preprocess(*found)
        is_mask = inputs["input_ids"] == self.get_preprocessor().pieces.index(MASK)
        for text, masks in zip(found[0], is_mask.sum(axis=1), strict=True):
            if not masks:
                raise ValueError(
                    f"there is no {MASK} in {text!r}, or beyond what the model reads: write {MASK} (in capitals) where "
                    "a word is to be found"
                )
        places = np.full((len(is_mask), is_mask.sum(axis=1).max()), -1, np.int32)  # [N, P]
        for row, masks in enumerate(is_mask):
            places[row, : masks.sum()] = masks.nonzero()[0]
        real = places >= 0
        found = self.predict_inputs(inputs | {"masked_lm_positions": np.where(real, places, 0)}, batch_size or 32)
        return {"masked_lm_positions": places, "masked_lm_logits": found["masked_lm_logits"] * real[..., None]}

    def fill_mask(self, texts: str | Sequence[str], top_k: int = 5) -> list[list[list[Filling]]]:
        """The likeliest pieces for each [MASK] of some texts.

        Args:
            texts: each with at least one [MASK].
            top_k: how many pieces for each.

        Returns:
            For each text, for each of its masks in order: the ``top_k`` likeliest pieces, best first.
        """
        found = self.predict(texts)
        pieces = dict(enumerate(self.get_preprocessor().pieces))
        return [
            fillings_of(ops.convert_to_tensor(logits[places >= 0]), pieces, top_k)
            for places, logits in zip(found["masked_lm_positions"], found["masked_lm_logits"], strict=True)
        ]


def _most_predictions(length: int) -> int:
    return max(1, round(length * MASKED_LM_PROB))
