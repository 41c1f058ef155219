"""BERT that fills blanks: masked words alone (Devlin et al. 2018, section 3.1, task 1)."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from tf_bert.configs import BertConfig
from tf_bert.layers.heads import MaskedLMHead, correct, cross_entropy, gather_indexes
from tf_bert.models.bert import Bert
from tf_bert.models.bert_tasks import BertTask
from tf_bert.models.fill_mask import MASK, Filling, fillings_of

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

    def fit(self, x=None, y=None, batch_size: int | None = None, *args, **kwargs):
        """Trains as `keras.Model.fit`; texts are masked afresh in each epoch."""
        if x is None or isinstance(x, dict) or (found := self.as_texts(x)) is None:
            return super().fit(x, y, batch_size, *args, **kwargs)
        if y is not None:
            raise ValueError("BertForMaskedLM learns from texts alone; y has no place here")
        unsupported = [name for name in ("validation_split", "sample_weight", "class_weight") if kwargs.get(name)]
        if unsupported:
            raise ValueError(f"with texts BertForMaskedLM takes no {unsupported[0]}")
        held_out = kwargs.get("validation_data")
        if held_out is not None and (texts := self.as_texts(held_out)) is not None:
            kwargs["validation_data"] = self.masked_batches(*texts, batch_size or 32, seed=0, shuffle=False)
        batches = self.masked_batches(*found, batch_size or 32, shuffle=kwargs.pop("shuffle", True))
        return super().fit(batches, None, None, *args, **{"shuffle": False} | kwargs)

    def evaluate(self, x=None, y=None, batch_size: int | None = None, *args, **kwargs):
        """Evaluates as `keras.Model.evaluate`; texts are masked, always alike."""
        if x is None or isinstance(x, dict) or (found := self.as_texts(x)) is None:
            return super().evaluate(x, y, batch_size, *args, **kwargs)
        batches = self.masked_batches(*found, batch_size or 32, seed=0, shuffle=False)
        return super().evaluate(batches, None, None, *args, **kwargs)

    def masked_batches(self, texts, text_pairs=None, batch_size: int = 32, seed: int | None = None, shuffle=True):
        """Texts as a data set of masked batches, masked anew in each pass where they are shuffled."""
        from tf_bert.data.pretraining.dynamic_masking import DynamicMasking
        from tf_bert.data.pretraining.masked_texts import masked_batches

        inputs = self.preprocess(texts, text_pairs)
        vocab = {piece: number for number, piece in enumerate(self.get_preprocessor().pieces)}
        most = max(1, round(inputs["input_ids"].shape[1] * MASKED_LM_PROB))
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
