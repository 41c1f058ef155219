"""Models of single tasks that take raw strings: in ``fit``, ``evaluate``, ``predict`` and in a call."""

import functools
import os
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from tf_bert.trainer.doors import python_batches
from tf_bert.trainer.texts import as_texts, has_strings, is_string, is_symbolic

CHUNK = 1024  # texts that are tokenized at once
PADDED = -10000.0  # score of a position that is padding, in what `predict` returns


class Attached:
    """Holds the preprocessor where Keras does not look for it: it has no weights, and stands in the model's config."""

    def __init__(self, preprocessor=None):
        self.layer = None if isinstance(preprocessor, dict) else preprocessor
        self.config = preprocessor if isinstance(preprocessor, dict) else None


class TakesTexts:
    """What lets a task's model take raw strings (a mix-in; stands before `Trainer` among the base classes).

    Where a dict of inputs may stand, a list of texts may stand too, and for pairs a tuple of two lists or a list of
    pairs. An attached preprocessor turns them into ids: a model from a checkpoint with a vocabulary beside it has one,
    and a model saved by ``save`` brings it along.

    Attributes:
        text_outputs: the outputs that ``predict`` returns for texts, [N, ...] -> what stands there beyond the end of a
            text.
        sequence_inputs: the inputs that have a value for each position.
    """

    text_outputs: dict[str, float] = {}
    ignored_label = 0  # that of a position that is padding, where positions have labels
    sequence_inputs: tuple[str, ...] = ("input_ids", "input_mask", "segment_ids")
    special_tokens_in_text = False  # of the preprocessor that a model makes by itself, as is the truncation
    truncation = "longest_first"
    _attached = Attached()

    def attach_preprocessor(self, preprocessor, **options: Any) -> None:
        """Says how texts become inputs.

        Args:
            preprocessor: an `tf_bert.tokenization.in_graph.InGraphTokenizer`, or a layer like it; or the path of a
                vocabulary, from which one is made.
            **options: of the `InGraphTokenizer`, with a path: ``do_lower_case``, ``max_seq_length`` (by default what
                the model reads) and others.

        Raises:
            ValueError: the vocabulary or ``max_seq_length`` goes beyond the model's tables.
        """
        if isinstance(preprocessor, str | os.PathLike):
            preprocessor = self._tokenizer(preprocessor, **options)
        rows, positions = self.config.vocab_size, self.config.max_position_embeddings
        if getattr(preprocessor, "vocab_size", 0) > rows:
            raise ValueError(
                f"the preprocessor has {preprocessor.vocab_size} pieces, and the model's table {rows} rows"
            )
        if (getattr(preprocessor, "max_seq_length", None) or 0) > positions:
            raise ValueError(
                f"the preprocessor makes up to {preprocessor.max_seq_length} pieces, and the model reads {positions}"
            )
        object.__setattr__(self, "_attached", Attached(preprocessor))

    def get_preprocessor(self):
        """The attached preprocessor; that of the checkpoint's vocabulary where none was attached.

        Raises:
            ValueError: there is neither.
        """
        attached = self._attached
        if attached.layer is None:
            config = attached.config or self._config_from_vocabulary()
            if config is None:
                raise ValueError(
                    f"this {type(self).__name__} was given texts and has no preprocessor: give a dict of input_ids, "
                    "input_mask and segment_ids, or say attach_preprocessor('vocab.txt', do_lower_case=...) first; a "
                    "model from_checkpoint has one where vocab.txt lies beside the checkpoint"
                )
            from tf_bert.tokenization import in_graph  # registers the class

            assert in_graph.InGraphTokenizer
            self.attach_preprocessor(keras.saving.deserialize_keras_object(config))
        return self._attached.layer

    def _tokenizer(self, vocabulary, **options: Any):
        from tf_bert.tokenization.in_graph import InGraphTokenizer

        return InGraphTokenizer(vocabulary, **self._usual_options() | options)

    def _usual_options(self) -> dict[str, Any]:
        return {
            "max_seq_length": self.config.max_position_embeddings,
            "special_tokens_in_text": self.special_tokens_in_text,
            "truncation": self.truncation,
        }

    def _config_from_vocabulary(self) -> dict[str, Any] | None:
        """What a saved `InGraphTokenizer` of the checkpoint's vocabulary would be; none is made for it."""
        if not getattr(self, "vocab_file", None) or not os.path.exists(self.vocab_file):
            return None
        from tf_bert.checkpoints.tokenizer_settings import TokenizerSettings
        from tf_bert.tokenization.vocabulary import casing_problem, read_vocab_lines

        pieces = read_vocab_lines(self.vocab_file)
        settings = TokenizerSettings.from_dict(self.config.extra)
        if settings is None:
            possible = [lower for lower in (True, False) if casing_problem(pieces, lower) is None]
            if len(possible) != 1:
                return None
            settings = TokenizerSettings(do_lower_case=possible[0])
        config = {"vocabulary": pieces} | settings.to_dict() | self._usual_options()
        name = "InGraphTokenizer"
        place = {"module": "tf_bert.tokenization.in_graph", "registered_name": f"tf_bert>{name}"}
        return {"class_name": name, "config": config, **place}

    def preprocessor_config(self) -> dict[str, Any] | None:
        """The preprocessor as it is saved; None where there is none."""
        if self._attached.layer is not None:
            return keras.saving.serialize_keras_object(self._attached.layer)
        return self._attached.config or self._config_from_vocabulary()

    def preprocess(self, texts, text_pairs=None) -> dict[str, np.ndarray]:
        """The inputs for texts.

        Args:
            texts: N texts.
            text_pairs: N second texts, or None.

        Returns:
            ``input_ids``, ``input_mask`` and ``segment_ids``, int32 [N, S], as wide as the longest example.
        """
        tokenizer = self.get_preprocessor()
        return self._in_chunks(lambda a, b: tokenizer(a, b), texts, text_pairs)

    def preprocess_with_offsets(self, texts, text_pairs=None) -> dict[str, np.ndarray]:
        """As `preprocess`, and ``starts`` and ``ends`` int32 [N, S]: a piece's place in its text, or -1."""
        tokenizer = self.get_preprocessor()
        return self._in_chunks(tokenizer.encode_with_offsets, texts, text_pairs)

    def _in_chunks(self, encode, texts, text_pairs) -> dict[str, np.ndarray]:
        parts = []
        for first in range(0, len(texts), CHUNK):
            rows = slice(first, first + CHUNK)
            found = encode(list(texts[rows]), None if text_pairs is None else list(text_pairs[rows]))
            found = {name: ops.convert_to_numpy(value) for name, value in found.items()}
            width = int(found["input_mask"].sum(axis=1).max())
            parts.append({name: value[:, :width] for name, value in found.items()})
        width = max(part["input_ids"].shape[1] for part in parts)

        def padded(value: np.ndarray, filler: int) -> np.ndarray:
            return np.pad(value, [(0, 0), (0, width - value.shape[1])], constant_values=filler)

        # What is padded with: the padding of the preprocessor itself, which stands behind every shorter example.
        pad = getattr(self.get_preprocessor(), "_pad", 0)
        fillers = {"input_ids": pad, "starts": -1, "ends": -1}
        return {name: np.concatenate([padded(part[name], fillers.get(name, 0)) for part in parts]) for name in parts[0]}

    def inputs_of(self, x, y=None) -> tuple[Any, Any]:
        """``x`` and ``y`` as the model takes them, texts turned into inputs; anything else as it is."""
        found = self.as_texts(x)
        if found is None:
            return x, y
        rest = (
            {name: value for name, value in x.items() if name not in ("text", "text_pair")}
            if isinstance(x, Mapping)
            else {}
        )
        names = [name for name in (self.label_name, "labels") if name in rest]
        y = rest.pop(names[0]) if y is None and names else y
        texts, text_pairs = found
        if y is not None and not isinstance(y, Mapping) and len(y) != len(texts):
            raise ValueError(f"{len(texts)} texts and {len(y)} labels: each text has one")
        inputs, y = self.text_inputs(texts, text_pairs, y)
        return inputs | rest, y

    def text_inputs(self, texts: list, text_pairs: list | None, y) -> tuple[dict[str, Any], Any]:
        """Inputs and labels of texts; models whose labels belong to words, or are made of texts, override it."""
        return self.preprocess(texts, text_pairs), y

    def as_texts(self, x) -> tuple[list, list | None] | None:
        """The texts and second texts that ``x`` holds; None where it is something else."""
        return as_texts(x)

    def prepared_batches(self, batches, for_labels: bool = False):
        """Batches with texts as batches of inputs."""
        if not has_strings(getattr(batches, "element_spec", None)):
            return super().prepared_batches(batches, for_labels)
        if type(self).text_inputs is TakesTexts.text_inputs and type(self).preprocess is TakesTexts.preprocess:
            return self._batches_in_graph(batches)
        return python_batches(batches, functools.partial(self._prepared_batch, for_labels=for_labels))

    def _batches_in_graph(self, dataset):
        """A data set of texts as one of inputs."""
        tokenizer = self.get_preprocessor()

        def encode(x):
            if not isinstance(x, Mapping):
                return tokenizer(*x) if isinstance(x, tuple) else tokenizer(x)
            rest = {name: value for name, value in x.items() if name not in ("text", "text_pair")}
            return tokenizer(x["text"], x.get("text_pair")) | rest

        if not isinstance(dataset.element_spec, tuple):
            return dataset.map(encode)
        return dataset.map(lambda x, *rest: (encode(x), *rest))

    def _prepared_batch(self, batch, for_labels: bool):
        found = super()._prepared_batch(batch, for_labels)
        x = batch[0] if isinstance(batch, tuple | list) else batch
        is_ids = isinstance(x, Mapping) and "input_ids" in x
        return found if is_ids else self._of_full_width(*found)

    def _of_full_width(self, inputs: dict[str, np.ndarray], *rest: Any) -> tuple:
        """A batch as wide as any can be: batches of a data set differ in their number of examples only."""
        width = getattr(self.get_preprocessor(), "max_seq_length", None) or self.config.max_position_embeddings
        pad = getattr(self.get_preprocessor(), "_pad", 0)

        def padded(name: str, value):
            name = name.removeprefix("pair_")
            if name not in self.sequence_inputs or value.ndim < 2:
                return value
            fillers = {"input_ids": pad, "label_ids": self.ignored_label}
            missing = [(0, 0)] * (value.ndim - 1) + [(0, width - value.shape[-1])]
            return np.pad(value, missing, constant_values=fillers.get(name, 0))

        inputs = {name: padded(name, value) for name, value in inputs.items()}
        if rest and rest[0] is not None and not isinstance(rest[0], Mapping):
            rest = (padded(self.label_name or "", np.asarray(rest[0])), *rest[1:])
        return inputs, *rest

    def __call__(self, inputs, *args, **kwargs):
        """Takes texts too."""
        if not isinstance(inputs, dict) or "text" in inputs:
            inputs = self._inputs_of_call(inputs)
        return super().__call__(inputs, *args, **kwargs)

    def _inputs_of_call(self, x):
        given = (x["text"], x["text_pair"]) if isinstance(x, Mapping) and "text_pair" in x else x
        given = given["text"] if isinstance(given, Mapping) else given
        parts = given if isinstance(given, tuple) else (given,)
        if any(is_symbolic(part) and is_string(part) for part in parts):
            return self.get_preprocessor()(*parts)  # while a graph is traced, or a functional model made
        found = self.as_texts(x)
        return x if found is None else self.preprocess(*found)

    def predict(self, x, batch_size: int | None = None, *args, **kwargs):
        """Predicts as `keras.Model.predict`; ``x`` may be texts.

        Texts are grouped by length, and what comes back, in their order, is only what the task is about
        (``text_outputs``), not the encoder's layers.
        """
        found = None if isinstance(x, dict) and "text" not in x else self.as_texts(x)
        if found is None:
            return super().predict(x, batch_size, *args, **kwargs)
        return self.predict_inputs(self.preprocess(*found), batch_size or 32)

    def predict_on_batch(self, x):
        """Predicts one batch as `keras.Model.predict_on_batch`; of texts the outputs are those of `predict`."""
        found = None if isinstance(x, dict) and "text" not in x else self.as_texts(x)
        return super().predict_on_batch(x) if found is None else self.predict(x, batch_size=max(1, len(found[0])))

    def predict_inputs(self, inputs: dict[str, np.ndarray], batch_size: int = 32) -> dict[str, np.ndarray]:
        """The outputs of the task for inputs [N, S], in batches of about one length, in the order of the inputs."""
        from tf_bert.trainer.prediction import predict_in_order

        return predict_in_order(self, inputs, batch_size, list(self.text_outputs), filling=self.text_outputs)

    def trimmed(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """A batch without the positions that are padding in all of its examples. XLA and TPUs keep one shape, as do
        metrics of a user's own that see positions."""
        mask = inputs.get("input_mask")
        if self.label_name in self.sequence_inputs and any(each.is_custom for each in self._objective.metrics):
            return inputs
        if mask is None or len(mask.shape) != 2 or self.jit_compile:
            return inputs
        if "TPU" in type(self.distribute_strategy).__name__:
            return inputs
        places = ops.where(ops.not_equal(mask, 0), ops.arange(1, ops.shape(mask)[1] + 1, dtype="int32"), 0)
        width = ops.maximum(ops.max(places), 1)
        of_positions = {*self.sequence_inputs, *(("sample_weight",) if self.label_name in self.sequence_inputs else ())}
        return {
            name: value[:, :width] if len(value.shape) == 2 and name in of_positions else value
            for name, value in inputs.items()
        }
