"""What counting can do: predictors of masked words that know only frequencies and the words to the left.

A masked language model that has learned something beats them, since it sees both sides and more than counts. They
answer the same questions as the model: the masked positions of the same records. As the only help they see the true
left neighbours, also where these are masked for the model.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from tf_bert.data.pretraining.corpus import LineEncoder, read_corpus
from tf_bert.data.tfrecord.files import decode_example, read_records
from tf_bert.tokenization.full import FullTokenizer

MOST_NEIGHBOURS = 3


class Questions(NamedTuple):
    """Masked words and what stands left of them.

    Attributes:
        left: the nearest `MOST_NEIGHBOURS` ids to the left, the nearest last, -1 beyond the start; [N, n].
        answers: the masked ids, [N].
    """

    left: np.ndarray
    answers: np.ndarray


class LeftNeighbourCounts:
    """For each sequence of up to n left neighbours, the id that followed it most often.

    Args:
        documents: ids of each document of the training text.
        neighbours: n; 0 knows frequencies only.

    Example:
        >>> text = [[5, 6, 7, 5, 6, 8, 5, 6, 7]]
        >>> counts = LeftNeighbourCounts(text, 2)
        >>> counts.predict(np.array([[5, 6], [9, 7], [9, 9]])).tolist()
        [7, 5, 5]
    """

    def __init__(self, documents: Iterable[Sequence[int]], neighbours: int):
        self.neighbours = neighbours
        pad = np.full(max(neighbours, 1), -1, np.int64)
        ids = np.concatenate([np.concatenate([pad, np.asarray(document, np.int64)]) for document in documents])
        self._base = int(ids.max()) + 2
        self._tables = [self._count(ids, n) for n in range(neighbours + 1)]

    def _count(self, ids: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """The contexts of n neighbours, sorted, and the best id after each; of equally frequent ones the smallest."""
        columns = [ids[i : len(ids) - n + i] for i in range(n + 1)]
        real = np.all([column >= 0 for column in columns], axis=0)
        contexts, answers = self._key([column[real] for column in columns[:-1]]), columns[-1][real]
        pairs, counts = np.unique(contexts * self._base + answers, return_counts=True)
        contexts, answers = pairs // self._base, pairs % self._base
        order = np.lexsort((answers, -counts, contexts))
        first = np.unique(contexts[order], return_index=True)
        return first[0], answers[order][first[1]]

    def _key(self, columns: Sequence[np.ndarray]) -> np.ndarray:
        key = np.zeros(1, np.int64)
        for column in columns:
            key = key * self._base + column
        return key

    def predict(self, left: np.ndarray) -> np.ndarray:
        """The likeliest id after the longest known context of each row of ``left`` [N, at least n]: [N]."""
        result = np.full(len(left), self._tables[0][1][0])
        for n in range(1, self.neighbours + 1):
            columns = list(left[:, left.shape[1] - n :].T)
            known = np.all([(column >= 0) & (column < self._base - 1) for column in columns], axis=0)
            keys = self._key(columns)
            contexts, answers = self._tables[n]
            place = np.minimum(np.searchsorted(contexts, keys), len(contexts) - 1)
            known &= contexts[place] == keys
            result = np.where(known, answers[place], result)
        return result


def read_questions(files: Iterable[str]) -> Questions:
    """Reads the masked words of records, with the true words to their left."""
    left, answers = [], []
    for file in files:
        for record in read_records(file):
            example = decode_example(record)
            ids = np.array(example["input_ids"])
            real = np.array(example["masked_lm_weights"]) > 0
            positions, labels = np.array(example["masked_lm_positions"])[real], np.array(example["masked_lm_ids"])[real]
            ids[positions] = labels
            padded = np.concatenate([np.full(MOST_NEIGHBOURS, -1), ids])
            left.extend(padded[position : position + MOST_NEIGHBOURS] for position in positions)
            answers.extend(labels)
    return Questions(np.array(left).reshape(-1, MOST_NEIGHBOURS), np.array(answers))


def baselines(documents: Sequence[Sequence[int]], questions: Questions) -> dict[str, float]:
    """Shares of masked words that counting gets right.

    Args:
        documents: ids of each document of the training text.
        questions: from `read_questions`.

    Returns:
        Name -> accuracy: ``most frequent token``, ``1 left neighbour``, ``2 left neighbours`` ...
    """
    accuracies = {}
    largest = max(max(document) for document in documents)
    for n in range(MOST_NEIGHBOURS + 1):
        if (largest + 2) ** (n + 1) > np.iinfo(np.int64).max:
            break  # contexts of a large vocabulary no longer fit in 64 bits
        right = LeftNeighbourCounts(documents, n).predict(questions.left) == questions.answers
        name = f"{n} left neighbour{'s' * (n > 1)}" if n else "most frequent token"
        accuracies[name] = float(np.mean(right))
    return accuracies


def count_in_text(text: str, tokenizer: FullTokenizer, records: str) -> dict[str, float]:
    """Returns how many masked words of records counting in a text gets right; see `baselines`."""
    corpus = read_corpus([text], LineEncoder(tokenizer))
    documents = [[number for sentence in document for number in sentence] for document in corpus]
    return baselines(documents, read_questions([records]))
