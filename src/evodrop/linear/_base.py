"""What the estimators share: data in, labels to one-against-the-rest problems, progress, predictions out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import compute_class_weight
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if
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


def has_probabilities(estimator: Any) -> bool:
    """Whether the scores of a classifier can become probabilities; an AttributeError says why not."""
    if estimator.loss in ("log_loss", "modified_huber"):
        return True
    raise AttributeError(
        f"loss={estimator.loss!r} gives no probabilities; use loss='log_loss' or 'modified_huber', "
        "or CalibratedClassifierCV around this classifier"
    )


class LinearClassifier(CallbackSupportMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Predictions from ``classes_``, ``coef_`` of shape (1 or C, d) and ``intercept_``."""

    classes_: Array
    coef_: Floats
    intercept_: Floats
    loss: Any = "log_loss"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "rate": [Interval(Real, 0, 1, closed="left")],
        "alpha": [NOT_NEGATIVE],
        "fit_intercept": ["boolean"],
        "max_iter": [POSITIVE_INTEGER],
        "tol": [NOT_NEGATIVE],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "warm_start": ["boolean"],
        "verbose": ["verbose"],
    }

    def _validate_params(self) -> None:
        super()._validate_params()
        k, match, dropout = (getattr(self, name, None) for name in ("k", "match", "dropout"))
        if k is not None and match != "draws":
            raise ValueError(f"k is {k} and match is {match!r}, but a match chooses k; give one of them")
        if k is not None and dropout in ("none", "standard"):
            raise ValueError(f"k is {k}, but dropout={dropout!r} draws nothing; set rate instead")

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
        """The class of each row: the one with the largest score."""
        labels = labels_of(self.decision_function(X))
        return np.asarray(self.classes_[labels])

    @available_if(has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Floats:
        """(n, C) probabilities; of several classes each against the rest, over their sum, and even where all are 0."""
        scores = self.decision_function(X)
        chances = expit(scores) if self.loss == "log_loss" else (scores.clip(-1.0, 1.0) + 1.0) / 2.0
        if chances.ndim == 1:
            return np.column_stack([1.0 - chances, chances])
        sums = chances.sum(axis=1, keepdims=True)
        return np.asarray(np.where(sums > 0, chances, 1.0) / np.where(sums > 0, sums, chances.shape[1]))

    @available_if(has_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Floats:
        """The logarithm of :meth:`predict_proba`, -inf where that is 0."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


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
        if X.format == "coo":
            sparse.coo_array((X.data, X.coords), shape=X.shape)  # which looks at them
        elif X.format in ("csr", "csc", "bsr", "lil"):
            (X.tocsr() if X.format == "lil" else X).check_format(full_check=True)
    except ValueError as error:
        raise ValueError(
            f"X is not a valid {X.format.upper()} matrix of shape {X.shape}: {error}. "
            "Its indices were changed or built wrongly; build it anew with scipy.sparse"
        ) from error


def count_problems(classes: Array) -> int:
    """How many problems classes make: each against the rest, or a single one for two; a ValueError for fewer."""
    if len(classes) < 2:
        found = f"one class, {classes.tolist()[0]!r}" if len(classes) else "no class"
        raise ValueError(f"there is {found}, but a classifier needs at least 2 classes; give examples of others")
    return 1 if len(classes) == 2 else len(classes)


def number_labels(y: Array, classes: Array) -> Array:
    """The place of each label among the sorted classes."""
    labels = np.searchsorted(classes, y).clip(max=len(classes) - 1)
    unknown = classes[labels] != y
    if unknown.any():
        raise ValueError(f"y holds the class {y[unknown].tolist()[0]!r}, which is not among classes {classes.tolist()}")
    return np.asarray(labels)


def labels_of(scores: Floats) -> Array:
    """The number of each row's class, from scores (n, C), or (n,) or (n, 1) of the second of two classes."""
    return np.asarray((scores.ravel() > 0).astype(int) if scores.size == len(scores) else scores.argmax(axis=1))


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


def multiplied(weight: Floats, labels: Array, by_class: Floats) -> tuple[Floats, Floats]:
    """The weights of examples times those of their classes, (C,): in the second moments, and in all steps.

    Against one of several classes the rest weighs 1, as in SGDClassifier: there :func:`side_weights` has the classes'.
    """
    both = weight * by_class[labels]
    return both, both if len(by_class) == 2 else weight


def side_weights(by_class: Floats) -> Floats:
    """(problems, 2): what an example counts for beside its weight in the steps, on the negative and positive side."""
    return np.ones((1, 2)) if len(by_class) == 2 else np.column_stack([np.ones(len(by_class)), by_class])


def split_rows(labels: Array, weight: Floats, fraction: float | None, seed: int) -> tuple[Array, Array]:
    """The rows to learn from, of those that have weight, and the fraction of each class set aside for validation.

    Where a class has one example, or the fraction is fewer examples than classes, the split does not heed the classes.
    """
    rows = np.flatnonzero(weight > 0)
    if fraction is None:
        return rows, rows[:0]
    counts = np.bincount(labels[rows])
    counts = counts[counts > 0]
    even = counts.min() > 1 and min(fraction, 1 - fraction) * len(rows) >= len(counts)
    classes = labels[rows] if even else None
    training, validation = train_test_split(rows, test_size=fraction, random_state=seed, stratify=classes)
    return training, validation


@contextmanager
def followed(
    estimator: Any, task: str, most: int, bar: int, fitted: Callable[[], dict[str, Any]], **details: Any
) -> Iterator[Callable[[int, str], bool]]:
    """A fit as the callbacks of scikit-learn and a bar show it: one task, and in it one per epoch or iteration.

    Gives a function to call after each with how many are done and a note; True asks to stop.

    Args:
        estimator, details: the one that is fitted, and what every callback gets: X, y, metadata.
        task, most: the name of the inner tasks, and how many there are at most.
        bar: the length of the bar; 0 draws none.
        fitted: gives the attributes of a fit that ended now.
    """
    details = {"estimator": estimator, **details}
    start = getattr(estimator, "_init_callback_context", None)
    fit = None if start is None else start(max_subtasks=most).call_on_fit_task_begin(**details)
    with progress_bar(f"{task}s", bar) as move:

        def step(done: int, note: str) -> bool:
            move(done, note)
            if fit is None:
                return False
            inner = fit.subcontext(task_name=task).call_on_fit_task_begin(**details)
            return bool(inner.call_on_fit_task_end(**details, reconstruction_attributes=fitted))

        yield step
    if fit is not None:
        fit.call_on_fit_task_end(**details, reconstruction_attributes={})


@contextmanager
def progress_bar(title: str, total: int) -> Iterator[Callable[[int, str], None]]:
    """A function that moves a bar on the terminal to ``done`` of ``total`` and writes a note beside it."""
    if not total:
        yield lambda *_: None
        return
    from rich import progress

    numbers = progress.MofNCompleteColumn(), progress.TimeElapsedColumn()
    with progress.Progress("{task.description}", progress.BarColumn(), *numbers, "{task.fields[note]}") as bar:
        line = bar.add_task(title, total=total, note="")
        yield lambda done, note: bar.update(line, completed=done, note=note)
        bar.update(line, total=bar.tasks[line].completed)  # what ends early has come to its end
