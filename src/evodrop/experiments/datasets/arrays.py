"""What a data set is once it is read, and the one error of everything that reads or fetches it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Bytes", "DataError", "Documents", "Images", "Labels"]

Bytes = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]


class DataError(ValueError):
    """Data that are missing, damaged, hostile or not to be had: which file, what is wrong, and what helps."""


class Images(NamedTuple):
    """Labelled images.

    Attributes:
        name: of the data set.
        train_x, test_x: pixels, of uint8 and shape (n, channels, height, width).
        train_y, test_y: labels from 0 to classes - 1, of shape (n,).
        classes: how many there are.
        origin: what the data are in a few words, if they are not those that were published.
    """

    name: str
    train_x: Bytes
    train_y: Labels
    test_x: Bytes
    test_y: Labels
    classes: int
    origin: str = ""


class Documents(NamedTuple):
    """Labelled sparse text.

    Attributes:
        name: of the data set.
        train_x, test_x: ``scipy.sparse.csr_array`` of float64 and shape (n, d), with the same d.
        train_y, test_y: labels as the files have them, mostly -1 and +1, of shape (n,).
    """

    name: str
    train_x: Any
    train_y: npt.NDArray[np.float64]
    test_x: Any
    test_y: npt.NDArray[np.float64]
