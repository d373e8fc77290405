"""What the estimators share: data in, labels to one-against-the-rest problems, progress, predictions out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import ShuffleSplit, StratifiedShuffleSplit
from sklearn.utils import compute_class_weight
from sklearn.utils._param_validation import Interval
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_array, check_is_fitted, validate_data

from evodrop._checks import Array, Floats

try:  # from scikit-learn 1.9 on
    from sklearn.callback import CallbackSupportMixin as CallbackSupportMixin
except ImportError:

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """An older scikit-learn has no callbacks."""


DTYPES = (np.float64, np.float32)
POSITIVE_INTEGER = Interval(Integral, 1, None, closed="left")
NOT_NEGATIVE = Interval(Real, 0, None, closed="left")
POSITIVE = Interval(Real, 0, None, closed="neither")


class LinearClassifier(CallbackSupportMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Predictions from ``classes_``, ``coef_`` of shape (1 or C, d) and ``intercept_``."""

    classes_: Array
    coef_: Floats
    intercept_: Floats

    def decision_function(self, X: Any) -> Floats:
        """The score of each row: (n,) for two classes, positive for ``classes_[1]``; else (n, C), one against the rest.

        Args:
            X: (n, d) array or sparse matrix.
        """
        check_is_fitted(self)
        check_structure(X)
        X = validate_data(self, X, accept_sparse="csr", dtype=DTYPES, reset=False)
        scores = np.asarray(X @ self.coef_.T) + self.intercept_
        return scores.ravel() if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> Array:
        """The class of each row: the one with the largest score.

        Args:
            X: (n, d) array or sparse matrix.
        """
        scores = self.decision_function(X)
        return np.asarray(self.classes_[labels_of(scores.reshape(len(scores), -1)).astype(int)])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def probabilities(chances: Floats) -> Floats:
    """(n, C) probabilities from the chance of the positive class, (n,), or of each class against the rest, (n, C): over
    their sum, and even where all are 0."""
    if chances.ndim == 1:
        return np.column_stack([1.0 - chances, chances])
    sums = chances.sum(axis=1, keepdims=True)
    return np.asarray(np.where(sums > 0, chances, 1.0) / np.where(sums > 0, sums, chances.shape[1]))


def checked_examples(
    estimator: Any, X: Any, y: Any, sample_weight: Any, *, reset: bool = True
) -> tuple[sparse.csr_array, Array, Floats]:
    """What an estimator learns from: the matrix, the labels, and a weight per example.

    The matrix is a CSR array that a kernel may trust: float32 or float64, finite, indices sorted, unique and in bounds,
    no zero stored. So a dense array and any sparse form of it give the same array, hence the same model. Nothing is
    copied if X is like that already, and X itself is never changed.
    """
    check_structure(X)
    X, y = validate_data(estimator, X, y, accept_sparse="csr", dtype=DTYPES, reset=reset)
    check_classification_targets(y)
    weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if not weight.any():
        raise ValueError("sample_weight is zero for every example, so there is nothing to learn from")
    return checked_rows(X), y, weight


def checked_rows(X: Any) -> sparse.csr_array:
    """A matrix that scikit-learn has checked, as a kernel may trust it; see :func:`checked_examples`."""
    # A new array around the same memory looks for itself whether the indices are sorted.
    X = sparse.csr_array((X.data, X.indices, X.indptr), shape=X.shape) if sparse.issparse(X) else sparse.csr_array(X)
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
        check_array(X.data.reshape(1, -1))  # finite values may have an infinite sum
    if (X.data == 0).any():
        X = X.copy()
        X.eliminate_zeros()
    return X


def check_structure(X: Any) -> None:
    """A kernel reads where indices point, and SciPy does not look at them when it converts: read them all once."""
    if not sparse.issparse(X):
        return
    try:
        if hasattr(X, "check_format"):
            X.check_format(full_check=True)
        # SciPy has no check for these two.
        axes = enumerate(X.coords) if X.format == "coo" else ((1, row) for row in X.rows) if X.format == "lil" else ()
        for axis, places in axes:
            if len(places) and not 0 <= np.min(places) <= np.max(places) < X.shape[axis]:
                raise ValueError(f"coordinates of axis {axis} reach from {np.min(places)} to {np.max(places)}")
    except ValueError as error:
        raise ValueError(
            f"X is not a valid {X.format.upper()} matrix of shape {X.shape}: {error}. "
            "Its indices were changed or built wrongly; build it anew with scipy.sparse"
        ) from error


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


def labels_of(scores: Floats) -> Array:
    """The number of each row's class, from (n, 1) scores of the second of two classes or (n, C) scores of several."""
    return np.asarray(scores[:, 0] > 0 if scores.shape[1] == 1 else scores.argmax(axis=1))


def class_weights(class_weight: Any, classes: Array, masses: Array) -> Floats:
    """(C,): the weight of each class. "balanced" is n / (C n_c), where ``masses`` are the n_c, counted or weighted."""
    if class_weight is None:
        return np.ones(len(classes))
    if class_weight == "balanced":
        if not masses.all():
            rare = classes[masses == 0].tolist()[0]
            raise ValueError(f"class {rare!r} has no example with weight, so class_weight='balanced' has none for it")
        return np.asarray(masses.sum() / (len(masses) * masses), np.float64)
    weights = np.asarray(compute_class_weight(class_weight, classes=classes, y=classes), np.float64)
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise ValueError(f"class_weight is {class_weight}, but the weights of classes are finite and not negative")
    return weights


class Weights(NamedTuple):
    """What an example counts for, once its own weight and that of its class have met."""

    moments: Floats  # (n,): in the second moments, which the noise follows: the product of both
    steps: Floats  # (n,): in the steps of all problems
    sides: Floats  # (C, 2): in the steps of each problem, if it is on the negative or the positive side


def multiplied(weight: Floats, labels: Array, by_class: Floats) -> Weights:
    """The weights of examples times those of their classes; by_class is (C,).

    Against one of several classes the rest weighs 1, as in SGDClassifier, so only the positive side has the weight of
    its class there.
    """
    both = weight * by_class[labels]
    if len(by_class) == 2:
        return Weights(both, both, np.ones((1, 2)))
    return Weights(both, weight, np.column_stack([np.ones(len(by_class)), by_class]))


def side_weights(class_weight: Any, classes: Array, y: Array) -> Floats:
    """(C, 2): the weights of the two sides of each problem, for examples that have no weights of their own."""
    labels = number_labels(y, classes)
    counts = np.bincount(labels, minlength=len(classes))
    weights = class_weights(class_weight, classes, counts)
    return weights.reshape(1, 2) if len(weights) == 2 else multiplied(np.ones(len(y)), labels, weights).sides


class Rows(NamedTuple):
    """Which examples are learned from, and which only decide when to stop."""

    training: Array
    validation: Array


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


class Watch:
    """A fit as scikit-learn's callbacks see it: one task, and in it one for each epoch or iteration.

    Args:
        estimator: the one that is fitted.
        most: how many inner tasks there are at most.
        details: what every call passes on: X, y, metadata.
    """

    def __init__(self, estimator: Any, most: int, **details: Any) -> None:
        self.details = {"estimator": estimator, **details}
        start = getattr(estimator, "_init_callback_context", None)
        self.fit = None if start is None else start(max_subtasks=most).call_on_fit_task_begin(**self.details)

    def step(self, name: str, fitted: Callable[[], dict[str, Any]]) -> bool:
        """An epoch or iteration is done; ``fitted`` gives what a fit that ended here would have. True asks to stop."""
        if self.fit is None:
            return False
        task = self.fit.subcontext(task_name=name).call_on_fit_task_begin(**self.details)
        return bool(task.call_on_fit_task_end(**self.details, reconstruction_attributes=fitted))

    def close(self) -> None:
        """The fit is done."""
        if self.fit is not None:
            self.fit.call_on_fit_task_end(**self.details, reconstruction_attributes={})


@contextmanager
def progress_bar(title: str, total: int, shown: bool) -> Iterator[Callable[[int, str], None]]:
    """A function that moves a bar on the terminal to ``done`` of ``total`` and writes a note beside it, if shown."""
    if not shown:
        yield lambda *_: None
        return
    from rich import progress

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TextColumn("{task.fields[note]}"),
    )
    with progress.Progress(*columns) as bar:
        task = bar.add_task(title, total=total, note="")
        yield lambda done, note: bar.update(task, completed=done, note=note)
        bar.update(task, total=bar.tasks[task].completed)  # what ends early has come to its end
