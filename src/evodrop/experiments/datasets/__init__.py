"""Data sets: files become arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Documents", "Images"]


class Images(NamedTuple):
    """Labelled images; pixels from 0 to 255, shape (n, channels, height, width)."""

    name: str
    train_x: npt.NDArray[np.uint8]
    train_y: npt.NDArray[np.int64]
    test_x: npt.NDArray[np.uint8]
    test_y: npt.NDArray[np.int64]
    classes: int


class Documents(NamedTuple):
    """Labelled sparse text, shape (n, d)."""

    name: str
    train_x: Any
    train_y: npt.NDArray[np.float64]
    test_x: Any
    test_y: npt.NDArray[np.float64]
