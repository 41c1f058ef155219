"""Models of single tasks that take raw strings: in ``fit``, ``evaluate``, ``predict`` and in a call."""

import os
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

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

    def inputs_of(self, x, y=None):
        """``x`` and ``y`` as the model takes them, texts turned into inputs; anything else as it is."""
        found = self.as_texts(x)
        if found is None:
            return self._dataset_of_inputs(x) if _has_strings(getattr(x, "element_spec", None)) else x, y
        texts, text_pairs = found
        if y is not None and len(y) != len(texts):
            raise ValueError(f"{len(texts)} texts and {len(y)} labels: each text has one")
        return self.text_inputs(texts, text_pairs, y)

    def text_inputs(self, texts: list, text_pairs: list | None, y):
        """Inputs and labels of texts, for ``fit`` and ``evaluate``; models whose labels are not numbers override it."""
        if y is not None and np.asarray(y).dtype.kind not in "biuf":
            raise ValueError(f"labels have to be numbers, not {y[0]!r}: give their places in the list of labels")
        return self.preprocess(texts, text_pairs), None if y is None else np.asarray(y)

    def as_texts(self, x) -> tuple[list, list | None] | None:
        """The texts and second texts that ``x`` holds; None where it is something else."""
        return as_texts(x)

    def _dataset_of_inputs(self, dataset):
        """A data set of texts as one of inputs."""
        tokenizer = self.get_preprocessor()

        def encode(x):
            return tokenizer(*x) if isinstance(x, tuple) else tokenizer(x)

        if not isinstance(dataset.element_spec, tuple):
            return dataset.map(encode)
        return dataset.map(lambda x, *rest: (encode(x), *rest))

    def __call__(self, inputs, *args, **kwargs):
        """Takes texts too."""
        if not isinstance(inputs, dict):
            inputs = self._inputs_of_call(inputs)
        return super().__call__(inputs, *args, **kwargs)

    def _inputs_of_call(self, x):
        if ops.is_tensor(x) and _is_string(x):
            return self.get_preprocessor()(x)  # also while a graph is traced
        found = self.as_texts(x)
        return x if found is None else self.preprocess(*found)

    def fit(self, x=None, y=None, *args, **kwargs):
        """Trains as `keras.Model.fit`; ``x`` and the first of ``validation_data`` may be texts."""
        x, y = self.inputs_of(x, y)
        if isinstance(kwargs.get("validation_data"), tuple | list):
            x_val, *rest = kwargs["validation_data"]
            x_val, y_val = self.inputs_of(x_val, rest[0] if rest else None)
            kwargs["validation_data"] = (x_val, y_val, *rest[1:])
        return super().fit(x, y, *args, **kwargs)

    def evaluate(self, x=None, y=None, *args, **kwargs):
        """Evaluates as `keras.Model.evaluate`; ``x`` may be texts."""
        if isinstance(x, dict) or "_use_cached_eval_dataset" in kwargs:
            return super().evaluate(x, y, *args, **kwargs)
        x, y = self.inputs_of(x, y)
        return super().evaluate(x, y, *args, **kwargs)

    def predict(self, x, batch_size: int | None = None, verbose="auto", steps=None, callbacks=None):
        """Predicts as `keras.Model.predict`; ``x`` may be texts.

        Texts are grouped by length, and what comes back, in their order, is only what the task is about
        (``text_outputs``), not the encoder's layers.
        """
        found = None if isinstance(x, dict) else self.as_texts(x)
        if found is None:
            return super().predict(self.inputs_of(x)[0], batch_size, verbose, steps, callbacks)
        return self.predict_inputs(self.preprocess(*found), batch_size or 32)

    def predict_inputs(self, inputs: dict[str, np.ndarray], batch_size: int = 32) -> dict[str, np.ndarray]:
        """The outputs of the task for inputs [N, S], in batches of about one length, in the order of the inputs."""
        from tf_bert.trainer.prediction import predict_in_order

        return predict_in_order(self, inputs, batch_size, list(self.text_outputs), filling=self.text_outputs)

    def trimmed(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """A batch without the positions that are padding in all of its examples. XLA and TPUs keep one shape."""
        mask = inputs.get("input_mask")
        if mask is None or len(mask.shape) != 2 or self.jit_compile:
            return inputs
        if "TPU" in type(self.distribute_strategy).__name__:
            return inputs
        places = ops.where(ops.not_equal(mask, 0), ops.arange(1, ops.shape(mask)[1] + 1, dtype="int32"), 0)
        width = ops.maximum(ops.max(places), 1)
        return {
            name: value[:, :width] if name in self.sequence_inputs and len(value.shape) == 2 else value
            for name, value in inputs.items()
        }


def as_texts(x) -> tuple[list, list | None] | None:
    """The texts that ``x`` holds, and the second texts of pairs; None where ``x`` is something else.

    Args:
        x: a text; a list, an array or a tensor of texts; a tuple of two of these; a list of pairs.

    Raises:
        ValueError: there is no text, one of many is none, or the two of a tuple differ in number.

    Example:
        >>> as_texts("one"), as_texts(["one", "two"]), as_texts((["a", "b"], ["c", "d"]))
        ((['one'], None), (['one', 'two'], None), (['a', 'b'], ['c', 'd']))
        >>> as_texts([("a", "c"), ("b", "d")]), as_texts({"input_ids": [[2]]})
        ((['a', 'b'], ['c', 'd']), None)
    """
    if isinstance(x, str | bytes):
        return [x], None
    if isinstance(x, tuple) and len(x) == 2 and not isinstance(x[0], str | bytes):
        first, second = _strings(x[0]), _strings(x[1])
        if first is None or second is None:
            return None
        if len(first) != len(second):
            raise ValueError(f"{len(first)} first texts and {len(second)} second ones: pairs have one of each")
        return first, second
    if isinstance(x, list) and x and isinstance(x[0], tuple | list) and x[0] and isinstance(x[0][0], str):
        wrong = [i for i, pair in enumerate(x) if len(pair) != 2 or not all(isinstance(text, str) for text in pair)]
        if wrong:
            raise ValueError(f"number {wrong[0]} of the pairs is {x[wrong[0]]!r}; expected two texts")
        return [pair[0] for pair in x], [pair[1] for pair in x]
    found = _strings(x)
    return None if found is None else (found, None)


def _strings(x) -> list | None:
    """Texts as a list; None where there are none."""
    if isinstance(x, list | tuple):
        if x == [] or x == ():
            raise ValueError("there is no text")
        if not any(isinstance(value, str | bytes) for value in x):
            return None
        values = list(x)
    elif isinstance(x, np.ndarray) and x.dtype.kind in "USO":
        values = x.tolist()
    elif hasattr(x, "dtype") and _is_string(x) and hasattr(x, "numpy"):
        values = x.numpy().tolist()
    elif type(x).__module__.startswith("pandas") and hasattr(x, "tolist"):
        return _strings(x.tolist())
    else:
        return None
    for number, value in enumerate(values):
        if not isinstance(value, str | bytes):
            raise ValueError(f"number {number} of the texts is {value!r}, not a text")
    return values


def _is_string(x) -> bool:
    return str(getattr(x.dtype, "name", x.dtype)).startswith(("string", "str", "bytes"))


def _has_strings(spec: Sequence | Any) -> bool:
    """Whether a data set's first component is texts, or a pair of texts."""
    while isinstance(spec, tuple) and spec:
        spec = spec[0]
    return hasattr(spec, "dtype") and _is_string(spec)
