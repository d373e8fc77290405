"""The split "a fifth": which examples test where the publisher did not say."""

from __future__ import annotations

import numpy as np

from evodrop.lab.datasets.arrays import Labels

__all__ = ["SPLIT", "VALIDATION", "held_out"]

VALIDATION = "validation:"  # before the name of a data set: its training data alone, split in two
SPLIT = "a fifth: the n // 5 rows with the smallest of n words from PCG64 with seed 0 test, the others train"


def held_out(n: int) -> tuple[Labels, Labels]:
    """The rows to train on and the rows to test on, both ascending: the split "a fifth".

    Each row gets a random word, and the fifth of the rows with the smallest words tests. NumPy promises the stream of
    words of a bit generator for good, other than its shuffles: the split is the same in every version.

    Examples:
        >>> train, test = held_out(10)
        >>> train, test
        (array([0, 1, 4, 5, 6, 7, 8, 9]), array([2, 3]))
    """
    order = np.argsort(np.random.PCG64(0).random_raw(n), kind="stable")
    return np.sort(order[n // 5 :]), np.sort(order[: n // 5])
