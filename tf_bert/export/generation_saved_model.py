"""A GPT for serving: a SavedModel that takes texts and returns their continuations."""

import dataclasses
import os
from typing import Any

import tensorflow as tf

from tf_bert.decoding import language_model
from tf_bert.decoding.constraints import Constraints
from tf_bert.decoding.sampling import Greedy
from tf_bert.files import atomic_folder
from tf_bert.tokenization.byte_pair import BytePairTokenizer, GPT2Tokenizer
from tf_bert.tokenization.in_graph_gpt1 import in_graph_layer


class TextGenerator(tf.Module):
    """Goes on with texts, all inside one graph: tokenizer, model, search and the way back to text.

    Args:
        model: a `GPT`.
        vocabulary: a `GPT2Tokenizer` or `GPT1Tokenizer`, or what the former is made from.
        search: `Greedy` (the default) or `BeamSearch`.
        max_length: most new tokens.
        prompt_length: of a longer text only so many last tokens are seen; by default all that have room beside the new
            ones.
        constraints: what may be generated, and the stop texts.

    Raises:
        ValueError: no room for the new tokens, a vocabulary larger than the model's, or a search that draws.
    """

    def __init__(
        self,
        model,
        vocabulary: BytePairTokenizer | str | os.PathLike,
        search: Any = None,
        max_length: int = 64,
        prompt_length: int | None = None,
        constraints: Constraints | None = None,
    ):
        super().__init__(name="text_generator")
        search, context = search or Greedy(), model.config.max_position_embeddings
        if hasattr(search, "temperature"):
            raise ValueError("a model that draws needs random numbers with each text: export Greedy or BeamSearch")
        prompt_length = context - max_length if prompt_length is None else prompt_length
        if prompt_length < 1 or max_length < 1 or prompt_length + max_length > context:
            raise ValueError(
                f"prompt_length {prompt_length} and max_length {max_length} must be at least 1 and together at most "
                f"the context, {context}"
            )
        options = {"max_seq_length": prompt_length, "padding": "left", "truncation": "left"}
        tokenizer = vocabulary if isinstance(vocabulary, BytePairTokenizer) else GPT2Tokenizer(vocabulary)
        self.tokenizer, vocabulary = in_graph_layer(tokenizer, **options), tokenizer.vocab_file
        if self.tokenizer.vocab_size > model.config.vocab_size:
            raise ValueError(
                f"{vocabulary} has {self.tokenizer.vocab_size} entries, the model's table {model.config.vocab_size} "
                "rows; they do not belong together"
            )
        # The model may have more rows than the vocabulary has entries; these have no text.
        beyond = tuple(range(self.tokenizer.vocab_size, model.config.vocab_size))
        constraints = (constraints or Constraints()).with_tokenizer(tokenizer)
        constraints = dataclasses.replace(constraints, banned_ids=(*constraints.banned_ids, *beyond))
        self.weights = [variable.value for variable in model.variables]
        self._model, self._key, self._max_length = model, (search, constraints, max_length, False, True), max_length
        self._stops = constraints.stops

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="texts")])
    def __call__(self, texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """What follows texts [B]: ``texts`` [B, N], best first, and their ``log_probs`` [B, N].

        A text without any token is followed by an empty one, as in `generate_text`.
        """
        inputs = self.tokenizer(texts)
        some = tf.reduce_any(inputs["input_mask"] != 0, axis=1)  # [B]
        limits = tf.where(some, self._max_length, 0)
        results = language_model.run(
            self._model, self._key, inputs["input_ids"], inputs["input_mask"], limits, uniform=None
        )
        tokens = tf.reshape(results["tokens"], [-1, self._max_length])  # [B * N, T]
        written = self._texts(tokens, tf.reshape(results["lengths"], [-1]))
        log_probs = tf.where(some[:, None], results["log_probs"], 0)
        return {"texts": tf.reshape(written, tf.shape(results["lengths"])), "log_probs": log_probs}

    def _texts(self, tokens: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        """The texts of outputs [R, T], without the end token, up to the end of a stop text."""
        inside = tf.sequence_mask(lengths, self._max_length)
        if self._model.config.end_id is not None:
            inside &= tokens != self._model.config.end_id
        texts = self.tokenizer.detokenize(tf.ragged.boolean_mask(tokens, inside))
        if self._stops is None:
            return texts
        beyond = self._stops.beyond_last(tokens, lengths)
        pieces = tf.gather(tf.constant([*self._stops.pieces, b""]), tokens)
        whole = tf.strings.reduce_join(tf.where(inside, pieces, ""), axis=1)
        if not self._stops.starts_with_blanks:
            whole = tf.strings.regex_replace(whole, r"^\s+", "")
        cut = tf.strings.substr(whole, tf.zeros_like(lengths), tf.strings.length(whole) - tf.maximum(beyond, 0))
        return tf.where(beyond >= 0, cut, texts)


def export(model, vocabulary: BytePairTokenizer | str | os.PathLike, path: str | os.PathLike, **options: Any) -> str:
    """Writes a SavedModel; ``tf.saved_model.load(path)(texts)["texts"]`` is what follows texts [B].

    Args:
        model, vocabulary, **options: see `TextGenerator`.
        path: a folder that is not there yet.

    Returns:
        The path.
    """
    path = os.fspath(path)
    if os.path.exists(path):
        raise ValueError(f"{path} is there already; choose another folder")
    generator = TextGenerator(model, vocabulary, **options)
    with atomic_folder(path) as folder:
        tf.saved_model.save(generator, folder, signatures=generator.__call__.get_concrete_function())
    return path
