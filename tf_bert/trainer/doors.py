"""`fit`, `evaluate`, `predict` and the three for one batch, with data in every form that users have it in."""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_bert.trainer.arrays import as_array, count
from tf_bert.trainer.texts import decoded


class Doors:
    """Takes lists, arrays of any kind, pandas columns, tensors, data sets and generators (a mix-in).

    All of them go through `prepared`, so what a model accepts does not depend on the door. It stands before
    `keras.Model` among the base classes.
    """

    def fit(
        self,
        x=None,
        y=None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: Any = "auto",
        callbacks=None,
        validation_split: float = 0.0,
        validation_data=None,
        shuffle: bool = True,
        class_weight=None,
        sample_weight=None,
        **kwargs: Any,
    ) -> keras.callbacks.History:
        """Trains, as `keras.Model.fit`.

        Args:
            x: a dict of inputs, what stands for one (such as texts), or batches of them: a `tf.data.Dataset`, a
                `keras.utils.PyDataset` or a generator. Values are arrays, tensors, lists or pandas columns.
            y: the labels, likewise; or they are in the dict.
            class_weight: a weight for each label, as a dict or a list. It multiplies the sample weight of an example,
                or of a token that has a label of its own, in training only. Labels that a dict leaves out have 1.
            sample_weight: a weight for each example [B], or for each label [B, S]. The model's own losses are
                ``sum(weight * loss) / sum(weight)`` over the batch, so that weights count relative to each other;
                those of ``compile(loss=...)`` are divided by the number of labels, as in Keras.
            **kwargs: and the others, as in Keras.
        """
        self.weigh_classes(class_weight)
        x, y, sample_weight = self.prepared(x, y, sample_weight, for_labels=True)
        if validation_data is not None:
            validation_data = self._validation(validation_data)
        arguments = (batch_size, epochs, verbose, callbacks, validation_split, validation_data, shuffle)
        with self._plain_data_errors():
            return super().fit(x, y, *arguments, sample_weight=sample_weight, **kwargs)

    def evaluate(self, x=None, y=None, batch_size=None, verbose="auto", sample_weight=None, *args, **kwargs):
        """Evaluates, as `keras.Model.evaluate`; ``x`` and ``y`` as for `fit`."""
        if not kwargs.get("_use_cached_eval_dataset"):  # which `fit` has prepared
            x, y, sample_weight = self.prepared(x, y, sample_weight, for_labels=True)
        with self._plain_data_errors():
            return super().evaluate(x, y, batch_size, verbose, sample_weight, *args, **kwargs)

    def predict(self, x, *args, **kwargs):
        """Predicts, as `keras.Model.predict`; ``x`` as for `fit`."""
        x, _, _ = self.prepared(x)
        with self._plain_data_errors():
            return super().predict(x, *args, **kwargs)

    def train_on_batch(self, x, y=None, sample_weight=None, class_weight=None, return_dict: bool = False):
        """Makes one update, as `keras.Model.train_on_batch`; ``x`` and ``y`` as for `fit`."""
        self.weigh_classes(class_weight)
        x, y, sample_weight = self.prepared(x, y, sample_weight, for_labels=True)
        return super().train_on_batch(x, y, sample_weight, return_dict=return_dict)

    def test_on_batch(self, x, y=None, sample_weight=None, return_dict: bool = False):
        """Evaluates one batch, as `keras.Model.test_on_batch`; ``x`` and ``y`` as for `fit`."""
        x, y, sample_weight = self.prepared(x, y, sample_weight, for_labels=True)
        return super().test_on_batch(x, y, sample_weight, return_dict=return_dict)

    def predict_on_batch(self, x):
        """Predicts one batch, as `keras.Model.predict_on_batch`; ``x`` as for `fit`."""
        return super().predict_on_batch(self.prepared(x)[0])

    def prepared(self, x, y=None, sample_weight=None, for_labels: bool = False) -> tuple[Any, Any, Any]:
        """Inputs, labels and weights in the form that Keras takes, checked.

        Args:
            x, y, sample_weight: as for `fit`.
            for_labels: whether labels are needed.

        Raises:
            ValueError: names the first value that is wrong, its place and what was expected.
        """
        if x is None or is_batches(x):
            return self.prepared_batches(x, for_labels), y, sample_weight
        x, y = self.inputs_of(x, y)
        if isinstance(x, Mapping):
            x = {name: as_array(name, value) for name, value in x.items() if value is not None}
        if isinstance(y, Mapping):
            y = {name: as_array(name, value) for name, value in y.items()}
        elif y is not None:
            y = as_array(self.label_name or "y", y)
        if sample_weight is not None:
            sample_weight = _weights("sample_weight", sample_weight)
            if isinstance(x, Mapping) and (y is None or isinstance(y, Mapping)):
                # Keras drops weights without labels, and of labels by name it wants as many.
                x, sample_weight = {**x, "sample_weight": sample_weight}, None
        _check_counts(x, y, sample_weight)
        self.check(x, y, for_labels)
        return x, y, sample_weight

    def inputs_of(self, x, y=None) -> tuple[Any, Any]:
        """Inputs and labels of data in a form of the model's own, such as texts; anything else as it is."""
        return x, y

    def prepared_batches(self, batches, for_labels: bool = False):
        """Batches that are made in Python, each `prepared`; a data set of TensorFlow as it is."""
        if isinstance(batches, keras.utils.PyDataset):
            return PreparedDataset(batches, functools.partial(self._prepared_batch, for_labels=for_labels))
        return map_batches(batches, self._prepared_batch, for_labels) if hasattr(batches, "__next__") else batches

    def _prepared_batch(self, batch, for_labels: bool):
        try:
            found = self.prepared(*_parts(batch), for_labels=for_labels)
        except ValueError as error:
            self._data_error = error  # it comes back from tf.data with a traceback in its message
            raise
        while found[-1] is None:
            found = found[:-1]
        return found

    def _plain_data_errors(self):
        return _DataErrors(self)

    def _validation(self, data):
        if is_batches(data):
            return self.prepared_batches(data, for_labels=True)
        found = self.prepared(*_parts(data), for_labels=True)
        return found if isinstance(found[0], Mapping) else found[0]


class _DataErrors:
    """Raises the error of a batch that was made in Python as it was, not as tf.data tells of it."""

    def __init__(self, model: keras.Model):
        self.model = model

    def __enter__(self) -> None:
        self.model._data_error = None

    def __exit__(self, kind, error, traceback) -> None:
        found, self.model._data_error = self.model._data_error, None
        if found is not None and isinstance(error, tf.errors.OpError):
            raise found from None


class PreparedDataset(keras.utils.PyDataset):
    """A `keras.utils.PyDataset` whose batches go through a function."""

    def __init__(self, dataset: keras.utils.PyDataset, prepare: Callable):
        super().__init__(dataset.workers, dataset.use_multiprocessing, dataset.max_queue_size)
        self.dataset, self.prepare = dataset, prepare

    @property
    def num_batches(self) -> int | None:
        """The number of batches; None without end."""
        return self.dataset.num_batches

    def __getitem__(self, index: int):
        return self.prepare(self.dataset[index])

    def on_epoch_begin(self) -> None:
        """Called by Keras."""
        self.dataset.on_epoch_begin()

    def on_epoch_end(self) -> None:
        """Called by Keras."""
        self.dataset.on_epoch_end()


def map_batches(batches: Iterator, function: Callable, *arguments: Any) -> Iterator:
    """A generator of what a function makes of each batch."""
    for batch in batches:
        yield function(batch, *arguments)


def python_batches(dataset: tf.data.Dataset, prepare: Callable) -> tf.data.Dataset:
    """A data set whose batches go through a function of Python, which takes and returns tuples of arrays and texts.

    Args:
        dataset: batches, of strings too.
        prepare: its batches have to be alike but for the number of examples.
    """

    def plain(x):
        if isinstance(x, tf.RaggedTensor):
            return decoded(x.to_list())
        return decoded(x.numpy().tolist()) if x.dtype == tf.string else x.numpy()

    def batches() -> Iterator:
        for batch in dataset:
            yield prepare(tf.nest.map_structure(plain, batch))

    first = next(batches())
    signature = tf.nest.map_structure(lambda x: tf.TensorSpec([None, *x.shape[1:]], x.dtype), first)
    found = tf.data.Dataset.from_generator(batches, output_signature=signature)
    return found.apply(tf.data.experimental.assert_cardinality(dataset.cardinality()))


def is_batches(x: Any) -> bool:
    """Whether ``x`` is batches of data rather than data.

    Example:
        >>> is_batches({"input_ids": [[2]]}), is_batches(tf.data.Dataset.range(3)), is_batches(["a text"])
        (False, True, False)
    """
    is_data = isinstance(x, Mapping | list | tuple | np.ndarray | np.generic | str | bytes | int | float)
    return not (is_data or tf.is_tensor(x) or hasattr(x, "to_numpy") or isinstance(x, tf.RaggedTensor))


def _parts(data: Any) -> tuple[Any, Any, Any]:
    """Inputs, labels and weights of a batch; a list of texts is the first alone."""
    is_texts = isinstance(data, list) and all(isinstance(value, str | bytes) for value in data)
    return keras.utils.unpack_x_y_sample_weight((data,) if is_texts else data)


def _weights(name: str, value: Any):
    weights = as_array(name, value)
    values = np.asarray(weights)
    if values.dtype.kind not in "biuf" or values.ndim not in (1, 2):
        raise ValueError(
            f"{name} has the shape {list(values.shape)}; expected a number for each example, or each label"
        )
    wrong = ~np.isfinite(values.astype(np.float64)) | (values < 0)
    if wrong.any():
        place = np.argwhere(wrong)[0]
        raise ValueError(f"{name}{place.tolist()} is {values[tuple(place)]}; expected a finite number of at least 0")
    return values.astype(np.float32) if values.dtype.kind in "biu" else weights


def _check_counts(x, y, sample_weight) -> None:
    """Raises ValueError where inputs, labels and weights are of different numbers of examples."""
    named = dict(x) if isinstance(x, Mapping) else {"x": x}
    named |= dict(y) if isinstance(y, Mapping) else {"y": y}
    named["sample_weight"] = named.get("sample_weight", sample_weight) if sample_weight is None else sample_weight
    counts = {name: count(value) for name, value in named.items() if value is not None}
    counts = {name: number for name, number in counts.items() if number is not None}
    first = next(iter(counts), None)
    for name, number in counts.items():
        if number != counts[first]:
            raise ValueError(f"{first} has {counts[first]} examples and {name} has {number}: expected as many of both")
