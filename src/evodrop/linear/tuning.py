"""The two numbers that a user has to choose, tried out: the step size, as the paper did, and the dropout rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.model_selection import StratifiedShuffleSplit, check_cv
from sklearn.utils import _safe_indexing

from evodrop.linear.callbacks import progress_bar
from evodrop.linear.connection import joblib_on
from evodrop.linear.descent import DivergedError
from evodrop.linear.validation import row_indexable

__all__ = ["PAPER_GRID", "Tuning", "tune_rate", "tune_step_size"]

PAPER_GRID = (0.1, 0.05, 0.01, 0.005, 0.001, 0.0005, 0.0001)
RATES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


class Tuning(NamedTuple):
    """What was tried. Printed, it is a table.

    Attributes:
        name: of the parameter.
        best: its best value.
        errors: for each value the error that was compared; infinite where the weights overflowed.
        estimator: fitted on all data with the best value.
    """

    name: str
    best: float
    errors: dict[float, float]
    estimator: Any

    def __str__(self) -> str:
        at_end = len(self.errors) > 1 and self.best in (min(self.errors), max(self.errors))
        remark = "  best, at the end of the grid: try beyond" if at_end else "  best"
        rows = [f"{value:>12g}  {error:.4%}{remark * (value == self.best)}" for value, error in self.errors.items()]
        return "\n".join([f"{self.name:>12}  error", *rows])


def tune_step_size(
    estimator: Any,
    X: Any,
    y: Any,
    grid: Iterable[float] = PAPER_GRID,
    *,
    epochs: int = 10,
    sample_weight: Any = None,
    n_jobs: int | None = None,
    cluster: Any = None,
    verbose: int = 1,
) -> Tuning:
    """The fixed step size of fastest convergence on the training data, the paper's protocol (Section 5.1).

    Every step size gets the same number of epochs; the best has the smallest training error on clean examples, averaged
    over the epochs, which rewards a fast descent. Examples with rows of norm 1 need larger steps than the paper's: give
    a grid that reaches 10. All fits, and the estimator in the result, have learning_rate="constant", max_iter=epochs,
    tol=None and early_stopping=False.

    Args:
        estimator: a :class:`DropoutSGDClassifier`; it is cloned, not changed. With a ``random_state``, every step size
            meets the same noise in the same order of examples.
        X, y, sample_weight: as for its ``fit``.
        grid: step sizes to try.
        epochs: of each.
        n_jobs: processes, as in joblib; a ``joblib.parallel_config`` around the call may choose another backend.
        cluster: the address of a Dask scheduler, or a ``distributed.Client``: the fits run on its workers.
        verbose: 0 draws no progress bar.

    Examples:
        >>> from evodrop.linear import DropoutSGDClassifier
        >>> X, y = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.2], [0.1, 1.0]]), [1, 0, 1, 0]
        >>> tuning = tune_step_size(DropoutSGDClassifier(random_state=0), X, y, [1.0, 0.001], verbose=0)
        >>> list(tuning.errors), tuning.estimator.predict(X)
        ([1.0, 0.001], array([1, 0, 1, 0]))
    """
    protocol = {"learning_rate": "constant", "max_iter": epochs, "tol": None, "early_stopping": False}
    fixed = clone(estimator).set_params(**protocol)
    results = _try_out("step sizes", _descend, grid, (fixed, X, y, sample_weight), n_jobs, cluster, verbose)
    errors = {step: error for step, (error, _) in results.items()}
    best = _best("eta0", errors)
    return Tuning("eta0", best, errors, results[best][1])


def tune_rate(
    estimator: Any,
    X: Any,
    y: Any,
    grid: Iterable[float] = RATES,
    *,
    cv: Any = None,
    n_jobs: int | None = None,
    cluster: Any = None,
    verbose: int = 1,
) -> Tuning:
    """The dropout rate of least validation error.

    Args:
        estimator: any estimator with a parameter ``rate``; it is cloned, not changed.
        X, y: as for its ``fit``.
        grid: rates to try.
        cv: None sets a fifth of each class aside, once, the same for every rate. Else a number of folds or a splitter
            of scikit-learn's; the error is the mean over the splits.
        n_jobs, cluster: as for :func:`tune_step_size`.
        verbose: 0 draws no progress bar.

    Examples:
        >>> from evodrop.linear import DropoutSGDClassifier
        >>> X, y = np.repeat([[1.0, 0.0], [0.0, 1.0]], 20, axis=0), np.repeat([0, 1], 20)
        >>> tune_rate(DropoutSGDClassifier(random_state=0), X, y, [0.5, 0.2], verbose=0).errors
        {0.5: 0.0, 0.2: 0.0}
    """
    if getattr(estimator, "k", None) is not None or getattr(estimator, "dropout", None) == "none":
        raise ValueError(f"the rate has no effect on {estimator}, which has its own k or no dropout; leave those out")
    X = row_indexable(X)
    once = StratifiedShuffleSplit(1, test_size=0.2, random_state=0)
    splitter = once if cv is None else check_cv(cv, y, classifier=True)
    splits = list(splitter.split(X, y))
    errors = _try_out("dropout rates", _mean_error, grid, (estimator, X, y, splits), n_jobs, cluster, verbose)
    best = _best("rate", errors)
    return Tuning("rate", best, errors, clone(estimator).set_params(rate=best).fit(X, y))


def _descend(step: float, estimator: Any, X: Any, y: Any, sample_weight: Any) -> tuple[float, Any]:
    model = clone(estimator).set_params(eta0=step)
    try:
        model.fit(X, y, sample_weight=sample_weight)
    except DivergedError:
        return math.inf, None
    return float(np.mean(model.history_["train_error"])), model


def _mean_error(rate: float, estimator: Any, X: Any, y: Any, splits: Any) -> float:
    return float(np.mean([1.0 - _score(clone(estimator).set_params(rate=rate), X, y, *split) for split in splits]))


def _score(model: Any, X: Any, y: Any, training: Any, validation: Any) -> float:
    try:
        model.fit(_safe_indexing(X, training), _safe_indexing(y, training))
    except DivergedError:
        return -math.inf
    return float(model.score(_safe_indexing(X, validation), _safe_indexing(y, validation)))


def _try_out(
    title: str,
    run: Callable[..., Any],
    grid: Iterable[float],
    given: tuple[Any, ...],
    n_jobs: int | None,
    cluster: Any,
    verbose: int,
) -> dict[float, Any]:
    """run(value, *given) for each value; data among ``given`` go to a cluster once, not with every value."""
    values = list(dict.fromkeys(float(value) for value in grid))
    if not values:
        raise ValueError(f"grid is empty, but tuning needs {title} to try")
    results: dict[float, Any] = {}
    with progress_bar(title, len(values), bool(verbose)) as bar, joblib_on(cluster):
        outcomes = Parallel(n_jobs=n_jobs, return_as="generator")(delayed(run)(value, *given) for value in values)
        for value, outcome in zip(values, outcomes, strict=True):
            results[value] = outcome
            bar(len(results), f"tried {value:g}")
    return results


def _best(name: str, errors: dict[float, float]) -> float:
    best = min(errors, key=errors.__getitem__)
    if math.isinf(errors[best]):
        raise ValueError(
            f"the weights overflowed for every {name} of {list(errors)}; try smaller step sizes, or scale X"
        )
    return best
