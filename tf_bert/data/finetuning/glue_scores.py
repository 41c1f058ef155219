"""The official figures of GLUE beside accuracy (Wang et al. 2018, table 1)."""

import numpy as np


def matthews(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Matthews's correlation of two classes; 0 where one side holds one class only.

    Example:
        >>> round(matthews(np.array([1, 1, 0, 0]), np.array([1, 0, 0, 0])), 4)
        0.5774
    """
    return pearson(labels == 1, predictions == 1)


def f1(labels: np.ndarray, predictions: np.ndarray) -> float:
    """F1 of class 1; with labels of several kinds [N, labels], over all of them together.

    Example:
        >>> f1(np.array([1, 1, 0, 0]), np.array([1, 0, 0, 0])), f1(np.array([0]), np.array([0]))
        (0.6666666666666666, 0.0)
    """
    both = np.sum((labels == 1) & (predictions == 1))
    either = np.sum(labels == 1) + np.sum(predictions == 1)
    return float(2 * both / either) if either else 0.0


def pearson(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Correlation; 0 where one side is constant."""
    labels, predictions = (np.asarray(x, np.float64) - np.mean(x) for x in (labels, predictions))
    scale = np.sqrt(np.sum(labels**2) * np.sum(predictions**2))
    return float(np.sum(labels * predictions) / scale) if scale else 0.0


def spearman(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Correlation of the ranks; equal values share the mean of theirs.

    Example:
        >>> spearman(np.array([1.0, 2.0, 3.0]), np.array([10.0, 100.0, 1000.0]))
        1.0
    """
    return pearson(_ranks(labels), _ranks(predictions))


def _ranks(values: np.ndarray) -> np.ndarray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2.0)[inverse]


METRICS = {"matthews": matthews, "f1": f1, "f1_micro": f1, "pearson": pearson, "spearman": spearman}
