"""The two numbers that a user has to choose, by scikit-learn's grid search: the step size, as the paper did, and the
dropout rate. Within ``joblib.parallel_config(backend="dask")`` the fits run on a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, StratifiedShuffleSplit
from sklearn.utils.validation import _num_samples

__all__ = ["PAPER_GRID", "tune_rate", "tune_step_size"]

PAPER_GRID = (0.1, 0.05, 0.01, 0.005, 0.001, 0.0005, 0.0001)
RATES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def tune_step_size(
    estimator: Any,
    X: Any,
    y: Any,
    grid: Iterable[float] = PAPER_GRID,
    *,
    epochs: int = 10,
    sample_weight: Any = None,
    n_jobs: int | None = None,
) -> GridSearchCV:
    """The fixed step size of fastest convergence on the training data, the paper's protocol (Section 5.1).

    Every step size gets the same number of epochs. A score is minus the training error on clean examples, averaged over
    the epochs, which rewards a fast descent; a step whose weights overflow has nan, and a warning. Examples with rows
    of norm 1 need larger steps than the paper's: give a grid that reaches 10. All fits have learning_rate="constant",
    max_iter=epochs, tol=None and early_stopping=False.

    Args:
        estimator: a :class:`DropoutSGDClassifier`; it is cloned, not changed. With a ``random_state``, every step size
            gets the same noise in the same order of examples.
        X, y, sample_weight: as for its ``fit``.
        grid: step sizes to try.
        epochs: of each.
        n_jobs: processes, as in joblib.

    Returns:
        The fitted search: ``best_params_["eta0"]``, and ``best_estimator_``, fitted with it.

    Examples:
        >>> from evodrop.linear import DropoutSGDClassifier
        >>> X, y = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.2], [0.1, 1.0]]), [1, 0, 1, 0]
        >>> tune_step_size(DropoutSGDClassifier(random_state=0), X, y, [1.0, 0.001]).predict(X)
        array([1, 0, 1, 0])
    """
    protocol = {"learning_rate": "constant", "max_iter": epochs, "tol": None, "early_stopping": False}
    protocol |= {"record_train_error": True}
    fixed, rows = clone(estimator).set_params(**protocol), np.arange(_num_samples(X))
    steps = {"eta0": list(dict.fromkeys(map(float, grid)))}
    search = GridSearchCV(fixed, steps, scoring=_speed_of_descent, cv=[(rows, rows)], n_jobs=n_jobs)
    return search.fit(X, y, **({} if sample_weight is None else {"sample_weight": sample_weight}))


def _speed_of_descent(model: Any, X: Any, y: Any, sample_weight: Any = None) -> float:  # noqa: ARG001
    return -float(np.mean(model.history_["train_error"]))


def tune_rate(
    estimator: Any, X: Any, y: Any, grid: Iterable[float] = RATES, *, cv: Any = None, n_jobs: int | None = None
) -> GridSearchCV:
    """The dropout rate of least validation error.

    Args:
        estimator: any estimator with a parameter ``rate``; it is cloned, not changed.
        X, y: as for its ``fit``.
        grid: rates to try.
        cv: None sets a fifth of each class aside, once, the same for every rate. Else a number of folds or a splitter
            of scikit-learn's; the score is the mean over the splits.
        n_jobs: processes, as in joblib.

    Returns:
        The fitted search: ``best_params_["rate"]``, and ``best_estimator_``, fitted with it on all data.

    Examples:
        >>> from evodrop.linear import DropoutSGDClassifier
        >>> X, y = np.repeat([[1.0, 0.0], [0.0, 1.0]], 20, axis=0), np.repeat([0, 1], 20)
        >>> float(tune_rate(DropoutSGDClassifier(random_state=0), X, y, [0.5, 0.2]).best_score_)
        1.0
    """
    if getattr(estimator, "k", None) is not None or getattr(estimator, "dropout", None) == "none":
        raise ValueError(f"the rate has no effect on {estimator}, which has its own k or no dropout; leave those out")
    once = StratifiedShuffleSplit(1, test_size=0.2, random_state=0)
    rates = {"rate": list(dict.fromkeys(map(float, grid)))}
    return GridSearchCV(estimator, rates, cv=once if cv is None else cv, n_jobs=n_jobs).fit(X, y)
