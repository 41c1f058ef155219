"""Base of Seq2Seq and the Transformer: inputs, loss, `generate` and `translate`."""

from collections.abc import Sequence
from typing import Any

from keras import ops

from tf_bert.backend import at_least_float32
from tf_bert.layers.id_range import check_range, in_range
from tf_bert.layers.scheduled_sampling import teacher_forcing_probability
from tf_bert.trainer.checks import Expected, Integers
from tf_bert.trainer.trainer import Scores


class TranslationModel:
    """A model that reads a source and writes a target; stands before `Configured` and `Trainer` (a mix-in).

    Inputs are a dict: ``source_ids`` [B, S] and ``target_ids`` [B, T], filled up behind their end with ``pad_id``, and
    optionally ``source_mask`` and ``target_mask``, 1 for real positions. Targets are the words to write, the end symbol
    last; the start symbol is put before them here.
    """

    loss_names = ("loss",)
    metric_names = ("cross_entropy", "accuracy")
    input_names = ("source_ids", "target_ids", "source_mask", "target_mask")

    def masks(self, inputs: dict[str, Any], side: str):
        """Booleans [B, S] or [B, T], true for real positions: as given, or where ids are not ``pad_id``."""
        if f"{side}_mask" in inputs:
            return ops.cast(inputs[f"{side}_mask"], "bool")
        return ops.not_equal(inputs[f"{side}_ids"], self.config.pad_id)

    def words_before(self, target_ids):
        """What the decoder is given for words [B, T]: the start symbol and all words but the last."""
        target_ids = ops.convert_to_tensor(target_ids)
        start = ops.full_like(target_ids[:, :1], self.config.start_id)
        return ops.concatenate([start, target_ids[:, :-1]], axis=1)

    @property
    def expected(self) -> Expected:
        """Ids inside their vocabularies."""
        size = self.config.vocab_size
        source = getattr(self.config, "source_vocab_size", None) or size
        return {"source_ids": Integers(source, "words"), "target_ids": Integers(size, "words")}

    @property
    def scored_outputs(self) -> dict[str, Scores]:
        """The scores of words."""
        return {"logits": Scores("loss", "softmax", self.config.vocab_size)}

    def targets(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """The words to write [B, T]."""
        return {"logits": inputs["target_ids"]}

    def loss_weights(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """1 for each word to write."""
        return {"loss": ops.cast(self.masks(inputs, "target"), self.variable_dtype)}

    def per_example_losses(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """Cross-entropy of each word [B, T], against smoothed labels."""
        logits = outputs["logits"]
        return {"loss": smoothed_cross_entropy(inputs["target_ids"], logits, self.config.label_smoothing)}

    def per_example_metrics(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """Cross-entropy without smoothing (its exponential is the perplexity), and whether each word is right."""
        logits, words, smoothing = outputs["logits"], inputs["target_ids"], self.config.label_smoothing
        weights = ops.cast(self.masks(inputs, "target"), self.variable_dtype)
        right = ops.equal(ops.cast(ops.argmax(logits, axis=-1), words.dtype), words)
        # From the loss, which the graph has already: a second cross-entropy would cost as much as the first.
        cross_entropy = smoothed_cross_entropy(words, logits, smoothing)
        if smoothing:
            scores = at_least_float32(logits)
            score = ops.take_along_axis(scores, ops.cast(words, "int32")[..., None], axis=-1)[..., 0]
            cross_entropy -= smoothing * (score - ops.mean(scores, axis=-1))
        return {
            "cross_entropy": (cross_entropy, weights),
            "accuracy": (ops.cast(right, weights.dtype), weights),
        }

    def log_probs(self, inputs: dict[str, Any]):
        """Log-probability [B] of each target given its source."""
        values = -smoothed_cross_entropy(inputs["target_ids"], self(inputs, training=False)["logits"], 0.0)
        return ops.sum(values * ops.cast(self.masks(inputs, "target"), values.dtype), axis=-1)

    def right_word_probability(self):
        """How probably the decoder is given the right word now, by the number of updates done."""
        config, optimizer = self.config, getattr(self, "optimizer", None)
        step = 0 if optimizer is None else ops.convert_to_tensor(optimizer.iterations)
        return teacher_forcing_probability(
            config.scheduled_sampling,
            step,
            config.scheduled_sampling_k,
            config.scheduled_sampling_slope,
            config.scheduled_sampling_minimum,
        )

    def generate(self, source_ids, source_mask=None, search=None, **options) -> dict[str, Any]:
        """Writes a target for each source.

        Args:
            source_ids: [B, S] integers filled up with ``pad_id``, or a list of lists of different lengths.
            source_mask: [B, S], 1 for real positions; by default where ids are not ``pad_id``.
            search: `Greedy` (the default), `Sampling` or `BeamSearch`.
            **options: see `tf_bert.decoding.translation.generate`.

        Returns:
            A dict of numpy arrays: ``tokens`` [B, N, T], those of a beam best first, ``pad_id`` behind the end symbol;
            ``lengths`` [B, N] with the end symbol counted; ``log_probs`` [B, N], what the model gives the tokens;
            ``scores`` [B, N], what the search ranks by; ``alignments`` [B, N, T], the source position with the most
            attention for each token.
        """
        from tf_bert.decoding.translation import generate

        return generate([self], source_ids, source_mask, search, **options)

    def translate(self, texts: Sequence[str], source_tokenizer, target_tokenizer=None, **options) -> list[str]:
        """Translates texts.

        Args:
            texts: any number of them. An empty text becomes an empty text.
            source_tokenizer: with ``tokenize_to_ids``.
            target_tokenizer: with ``decode``; the source's where not given.
            **options: see `tf_bert.decoding.translation.translate`.

        Returns:
            As many texts.
        """
        from tf_bert.decoding.translation import translate

        return translate([self], texts, source_tokenizer, target_tokenizer, **options)


def smoothed_cross_entropy(labels, logits, smoothing: float):
    """Cross-entropy of words with label smoothing (Szegedy et al. 2016, section 7).

    The target is 1 - e for the right word plus e / V for each word, so that the loss is
    ``-log p(y) + e (z_y - mean(z))`` with logits z.

    Args:
        labels: [B, T] integers.
        logits: [B, T, V].
        smoothing: e.

    Returns:
        [B, T], float32 or wider.

    Example:
        >>> loss = smoothed_cross_entropy(ops.array([[1]]), ops.array([[[0.0, 1.0]]]), 0.1)
        >>> round(float(loss[0, 0]), 6)
        0.363262
    """
    words = logits.shape[-1]
    check_range("target_ids", labels, words, f"there are {words} words")
    logits = at_least_float32(logits)
    targets = ops.one_hot(labels, words, dtype=logits.dtype) * (1.0 - smoothing) + smoothing / words
    # Labels out of range have no 1 in their row, and compiled code cannot raise for them: NaN.
    loss = ops.categorical_crossentropy(targets, logits, from_logits=True)
    return ops.where(in_range(labels, words), loss, float("nan"))
