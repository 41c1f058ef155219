"""The data sets that ``run_classifier`` knows: GLUE (Wang et al. 2018), XNLI (Conneau et al. 2018), and one's own.

Files, columns, labels and names of examples of CoLA, MNLI, MRPC and XNLI are the original's.
"""

import collections
import importlib
import os
import random
import warnings
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tf_bert.data.finetuning.classification import InputExample
from tf_bert.data.finetuning.label_checks import warn_of_one_class
from tf_bert.data.text.tables import MissingColumnError, Row, read_tsv, warn_of, warn_of_skipped
from tf_bert.progress import say

SPLITS = ("train", "dev", "test")


class DataProcessor:
    """Reads a data set. A subclass says how; that is all a new task needs.

    Attributes:
        kind: ``"single"`` label, ``"multi"`` label or ``"regression"``.
        metrics: what is computed beside accuracy, see `tf_bert.data.finetuning.glue_scores.METRICS`.

    Example:
        >>> class Weather(DataProcessor):
        ...     def get_train_examples(self, data_dir):
        ...         rows = self._read_tsv(os.path.join(data_dir, "weather.tsv"))
        ...         return [InputExample(f"train-{i}", row[1], label=row[0]) for i, row in enumerate(rows)]
        ...     def get_labels(self):
        ...         return ["fair", "foul"]
    """

    kind = "single"
    metrics: tuple[str, ...] = ()

    def get_train_examples(self, data_dir: str) -> list[InputExample]:
        """The examples to train on."""
        raise NotImplementedError(f"{type(self).__name__} has no training examples")

    def get_dev_examples(self, data_dir: str) -> list[InputExample]:
        """The examples to evaluate on."""
        raise NotImplementedError(f"{type(self).__name__} has no examples to evaluate on")

    def get_test_examples(self, data_dir: str) -> list[InputExample]:
        """The examples to predict; their labels, if any, are stand-ins."""
        raise NotImplementedError(f"{type(self).__name__} has no examples to predict")

    def get_labels(self) -> list[str]:
        """The labels, in the order of their ids; none for regression."""
        raise NotImplementedError(f"{type(self).__name__} does not say its labels")

    @classmethod
    def _read_tsv(cls, input_file: str, quotechar: str | None = None) -> list[Row]:
        """Reads a tab-separated file, see `tf_bert.data.text.tables.read_tsv`."""
        return read_tsv(input_file, quotechar)


class Columns(NamedTuple):
    """Where a file has what: columns from 0, negative ones from the end; None for what it has not."""

    text_a: int
    text_b: int | None = None
    label: int | None = None
    guid: int | None = None
    header: bool = True


class TsvProcessor(DataProcessor):
    """A data set in tab-separated files.

    Args:
        skip_bad_rows: leave out rows with too few columns, and list them in a warning, instead of stopping.
    """

    files = {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"}
    columns: dict[str, Columns] = {}
    guids = {"train": "train", "dev": "dev", "test": "test"}
    labels: Sequence[str] = ("0", "1")

    def __init__(self, skip_bad_rows: bool = False):
        self.skip_bad_rows = skip_bad_rows

    def get_train_examples(self, data_dir: str) -> list[InputExample]:
        """The rows of ``train.tsv``."""
        examples = self._examples(data_dir, "train")
        counts = collections.Counter(example.label for example in examples)
        warn_of_one_class(counts, len(examples), os.path.join(data_dir, self.files["train"]))
        return examples

    def get_dev_examples(self, data_dir: str) -> list[InputExample]:
        """The rows of ``dev.tsv``."""
        return self._examples(data_dir, "dev")

    def get_test_examples(self, data_dir: str) -> list[InputExample]:
        """The rows of ``test.tsv``; the first label stands in for theirs."""
        return self._examples(data_dir, "test")

    def get_labels(self) -> list[str]:
        """The labels, in the order of their ids."""
        return list(self.labels)

    def _examples(self, data_dir: str, split: str) -> list[InputExample]:
        path = os.path.join(data_dir, self.files[split])
        columns = self.columns[split]
        rows = self._read_tsv(path)
        if columns.header and rows:
            self._check_header(rows[0], columns)
        examples, bad, longer = [], [], []
        for number, row in enumerate(rows):
            if number == 0 and columns.header or not self._wanted(row, split):
                continue
            if len(row) > len(rows[0]):
                longer.append(row.where.removeprefix(f"{path}: "))
            try:
                examples.append(self._example(row, number, split, columns))
            except MissingColumnError:
                if not self.skip_bad_rows:
                    raise
                bad.append(int(row.where.rpartition(" ")[2]))
        warn_of_skipped(path, "rows with too few columns", bad)
        if longer:
            warn_of(path, f"{len(longer)} rows have more columns than the {len(rows[0])} of the first", longer)
        return examples

    def _check_header(self, row: Row, columns: Columns) -> None:
        """Warns where the first row, which is skipped as names of columns, holds a label."""
        label = columns.label
        if label is not None and -len(row) <= label < len(row) and row[label] in self.labels:
            warnings.warn(f"{row.where}: taken for the names of the columns, but it holds {row[label]!r}", stacklevel=4)

    def _wanted(self, row: Row, split: str) -> bool:
        return True

    def _example(self, row: Row, number: int, split: str, columns: Columns) -> InputExample:
        name = number if columns.guid is None else row[columns.guid]
        text_a = row[columns.text_a]
        text_b = None if columns.text_b is None else row[columns.text_b]
        label = (self.labels or (0.0,))[0] if columns.label is None else row[columns.label]
        return InputExample(f"{self.guids[split]}-{name}", text_a, text_b, label, row.where)


class ColaProcessor(TsvProcessor):
    """The Corpus of Linguistic Acceptability (Warstadt et al. 2018)."""

    columns = {
        "train": Columns(3, label=1, header=False),
        "dev": Columns(3, label=1, header=False),
        "test": Columns(1),
    }
    metrics = ("matthews",)


class MnliProcessor(TsvProcessor):
    """MultiNLI (Williams et al. 2018), evaluated on the genres of the training data."""

    files = {"train": "train.tsv", "dev": "dev_matched.tsv", "test": "test_matched.tsv"}
    columns = {
        "train": Columns(8, 9, label=-1, guid=0),
        "dev": Columns(8, 9, label=-1, guid=0),
        "test": Columns(8, 9, guid=0),
    }
    guids = {"train": "train", "dev": "dev_matched", "test": "test"}
    labels = ("contradiction", "entailment", "neutral")


class MnliMismatchedProcessor(MnliProcessor):
    """MultiNLI, evaluated on other genres."""

    files = {"train": "train.tsv", "dev": "dev_mismatched.tsv", "test": "test_mismatched.tsv"}
    guids = {"train": "train", "dev": "dev_mismatched", "test": "test"}


class MrpcProcessor(TsvProcessor):
    """The Microsoft Research Paraphrase Corpus (Dolan and Brockett 2005)."""

    columns = {"train": Columns(3, 4, label=0), "dev": Columns(3, 4, label=0), "test": Columns(3, 4)}
    metrics = ("f1",)


class XnliProcessor(TsvProcessor):
    """Cross-lingual NLI: trained on a translation of MultiNLI, evaluated on one language.

    Args:
        language: Chinese as in the original, by default.
    """

    labels = ("contradiction", "entailment", "neutral")
    columns = {"train": Columns(0, 1, label=2), "dev": Columns(6, 7, label=1)}

    def __init__(self, skip_bad_rows: bool = False, language: str = "zh"):
        super().__init__(skip_bad_rows)
        self.language = language
        self.files = {"train": os.path.join("multinli", f"multinli.train.{language}.tsv"), "dev": "xnli.dev.tsv"}

    def get_test_examples(self, data_dir: str) -> list[InputExample]:
        """Raises NotImplementedError: the original has none."""
        raise NotImplementedError("XNLI has no test examples")

    def _wanted(self, row: Row, split: str) -> bool:
        return split == "train" or row[0] == self.language

    def _example(self, row: Row, number: int, split: str, columns: Columns) -> InputExample:
        example = super()._example(row, number, split, columns)
        if example.label == "contradictory":
            example.label = "contradiction"
        return example


class Sst2Processor(TsvProcessor):
    """The Stanford Sentiment Treebank, two classes (Socher et al. 2013)."""

    columns = {"train": Columns(0, label=1), "dev": Columns(0, label=1), "test": Columns(1)}


class StsbProcessor(TsvProcessor):
    """The Semantic Textual Similarity Benchmark (Cer et al. 2017): a number from 0 to 5."""

    kind = "regression"
    labels = ()
    columns = {"train": Columns(7, 8, label=9), "dev": Columns(7, 8, label=9), "test": Columns(7, 8)}
    metrics = ("pearson", "spearman")


class QqpProcessor(TsvProcessor):
    """Quora Question Pairs. A few rows of the published file lack columns: see ``skip_bad_rows``."""

    columns = {"train": Columns(3, 4, label=5), "dev": Columns(3, 4, label=5), "test": Columns(1, 2)}
    metrics = ("f1",)


class QnliProcessor(TsvProcessor):
    """Question NLI, from SQuAD (Rajpurkar et al. 2016)."""

    columns = {"train": Columns(1, 2, label=3), "dev": Columns(1, 2, label=3), "test": Columns(1, 2)}
    labels = ("entailment", "not_entailment")


class RteProcessor(QnliProcessor):
    """Recognizing Textual Entailment, its first five challenges."""


class WnliProcessor(TsvProcessor):
    """Winograd NLI (Levesque et al. 2012)."""

    columns = {"train": Columns(1, 2, label=3), "dev": Columns(1, 2, label=3), "test": Columns(1, 2)}


PROCESSORS = {
    "cola": ColaProcessor,
    "mnli": MnliProcessor,
    "mnli-mm": MnliMismatchedProcessor,
    "mrpc": MrpcProcessor,
    "qnli": QnliProcessor,
    "qqp": QqpProcessor,
    "rte": RteProcessor,
    "sst-2": Sst2Processor,
    "sts-b": StsbProcessor,
    "wnli": WnliProcessor,
    "xnli": XnliProcessor,
}


def read_splits(
    processor: DataProcessor, data_dir: str | None, wanted: Mapping[str, bool], dev_share: float = 0.0, seed: int = 0
) -> tuple[list | None, list | None, list | None]:
    """Reads the examples to train on, to evaluate on and to predict; None for what is not wanted.

    Args:
        processor: reads the files.
        data_dir: their folder.
        wanted: ``"train"``, ``"dev"`` and ``"test"`` -> whether it is.
        dev_share: if not 0, the share of the training file to evaluate on; the rest is trained on.
        seed: which examples are held out; the same ones for the same file.

    Raises:
        ValueError: the data set has no such part, or so few examples that none is held out.
    """
    try:
        read = {"train": processor.get_train_examples, "test": processor.get_test_examples}
        if not dev_share:
            read["dev"] = processor.get_dev_examples
        both = dev_share and (wanted["train"] or wanted["dev"])
        found = {split: get(data_dir) for split, get in read.items() if wanted[split] or (both and split == "train")}
    except NotImplementedError as error:
        raise ValueError(str(error)) from None
    if both:
        held = round(dev_share * len(found["train"]))
        if not 0 < held < len(found["train"]):
            raise ValueError(f"dev_share {dev_share:g} of {len(found['train'])} examples is {held}: give another share")
        random.Random(seed).shuffle(found["train"])
        found["dev"], found["train"] = found["train"][:held], found["train"][held:]
    return tuple(found.get(split) if wanted[split] else None for split in ("train", "dev", "test"))


def find_processor(task_name: str, skip_bad_rows: bool = False) -> DataProcessor:
    """The processor of a task.

    Args:
        task_name: a key of `PROCESSORS` in any case, with or without the hyphen, or ``module:Class`` of one's own.
        skip_bad_rows: see `TsvProcessor`.

    Raises:
        ValueError: there is no such task; names those that there are.

    Example:
        >>> find_processor("SST2").get_labels()
        ['0', '1']
    """
    if ":" in task_name:
        return _imported(task_name)()
    known = {name.replace("-", ""): cls for name, cls in PROCESSORS.items()}
    cls = known.get(task_name.lower().replace("-", "").replace("_", ""))
    if cls is None:
        raise ValueError(
            f"task {task_name!r} is not known; known tasks: {', '.join(PROCESSORS)}, csv and jsonl for files of your "
            "own, and module:Class for a DataProcessor of your own"
        )
    return cls(skip_bad_rows=skip_bad_rows)


def _imported(path: str) -> type:
    module, _, name = path.partition(":")
    say(f"task {path}: importing {module}, which runs its code")
    try:
        cls = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as error:
        raise ValueError(f"{path}: {error}; is its folder in PYTHONPATH?") from None
    except Exception as error:  # of a user's module
        raise ValueError(f"{path}: importing {module} fails: {type(error).__name__}: {error}") from error
    if not (isinstance(cls, type) and issubclass(cls, DataProcessor)):
        raise ValueError(f"{path}: the module has no DataProcessor of the name {name!r}")
    return cls
