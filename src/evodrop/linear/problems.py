"""From labels to one-against-the-rest problems: numbers for the classes, weights for the sides, rows set aside."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import ShuffleSplit, StratifiedShuffleSplit
from sklearn.utils import compute_class_weight

__all__ = ["Rows", "check_classes", "guesses_of", "number_labels", "side_weights", "split_rows"]

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


class Rows(NamedTuple):
    """Which examples are learned from, and which only tell when to stop."""

    training: Array
    validation: Array


def check_classes(classes: Array) -> None:
    """Raise a ValueError if there are fewer than two."""
    if len(classes) < 2:
        found = f"one class, {classes.tolist()[0]!r}" if len(classes) else "no class"
        raise ValueError(f"there is {found}, but a classifier needs at least 2 classes; give examples of others")


def number_labels(y: Array, classes: Array) -> Array:
    """The place of each label among the sorted classes."""
    labels = np.searchsorted(classes, y).clip(max=len(classes) - 1)
    unknown = classes[labels] != y
    if unknown.any():
        raise ValueError(f"y holds the class {y[unknown].tolist()[0]!r}, which is not among classes {classes.tolist()}")
    return np.asarray(labels)


def guesses_of(scores: Floats) -> Array:
    """The place of each row's class, from (n, 1) scores of the second of two classes or (n, C) scores of several."""
    return np.asarray(scores[:, 0] > 0 if scores.shape[1] == 1 else scores.argmax(axis=1))


def side_weights(class_weight: Any, classes: Array, y: Array) -> Floats:
    """(C, 2): the weights of the negative and the positive side of each problem. Against one of several classes, the
    rest weighs 1, as in SGDClassifier."""
    weights = np.asarray(compute_class_weight(class_weight, classes=classes, y=y), np.float64)
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise ValueError(f"class_weight is {class_weight}, but the weights of classes are finite and not negative")
    return weights.reshape(1, 2) if len(weights) == 2 else np.column_stack([np.ones(len(weights)), weights])


def split_rows(labels: Array, weight: Floats, fraction: float | None, seed: int) -> Rows:
    """The rows that have weight; a fraction of each class is set aside for validation, or none.

    Where a class has one example, or the fraction is fewer examples than classes, the split does not heed the classes.
    """
    rows = np.flatnonzero(weight > 0)
    if fraction is None:
        return Rows(rows, rows[:0])
    counts = np.bincount(labels[rows])
    counts = counts[counts > 0]
    even = counts.min() > 1 and min(fraction, 1 - fraction) * len(rows) >= len(counts)
    splitter = (StratifiedShuffleSplit if even else ShuffleSplit)(1, test_size=fraction, random_state=seed)
    training, validation = next(splitter.split(rows, labels[rows]))
    return Rows(rows[training], rows[validation])
