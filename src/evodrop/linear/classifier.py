"""What every linear classifier of this package does with its coefficients."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from evodrop.linear.callbacks import CallbackSupportMixin
from evodrop.linear.validation import checked_rows

__all__ = ["LinearClassifier", "has_probabilities", "probabilities"]

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


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
        X = checked_rows(self, X)
        scores = np.asarray(X @ self.coef_.T) + self.intercept_
        return scores.ravel() if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> Array:
        """The class of each row: the one with the largest score.

        Args:
            X: (n, d) array or sparse matrix.
        """
        scores = self.decision_function(X)
        labels = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[labels])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def has_probabilities(estimator: Any) -> bool:
    """Whether its scores can become probabilities; an AttributeError says why not."""
    if estimator.loss in ("log_loss", "modified_huber"):
        return True
    raise AttributeError(
        f"loss={estimator.loss!r} gives no probabilities; use loss='log_loss' or 'modified_huber', "
        "or CalibratedClassifierCV around this classifier"
    )


def probabilities(chances: Floats) -> Floats:
    """(n, C) probabilities from the chance of the positive class, (n,), or of each class against the rest, (n, C): over
    their sum, and even where all are 0."""
    if chances.ndim == 1:
        return np.column_stack([1.0 - chances, chances])
    sums = chances.sum(axis=1, keepdims=True)
    return np.asarray(np.where(sums > 0, chances, 1.0) / np.where(sums > 0, sums, chances.shape[1]))
