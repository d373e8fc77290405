"""What the logistic regressions with the noise integrated out share: examples in, a search for each class, a model out.

What is minimised stands in :mod:`evodrop.linear.objectives`; a subclass says which noise it is.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable
from threading import Lock
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import OptimizeResult
from scipy.special import expit
from sklearn.base import _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import compute_class_weight
from sklearn.utils.parallel import Parallel, delayed
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from evodrop.linear.callbacks import Watch
from evodrop.linear.classifier import LinearClassifier, probabilities
from evodrop.linear.objectives import Floats, Loss, Noise, Problem, minimum, squared
from evodrop.linear.validation import checked_examples

__all__ = ["MarginalClassifier", "Solver"]

Codes: TypeAlias = npt.NDArray[np.intp]
Solver: TypeAlias = Callable[..., OptimizeResult]  # takes what `minimum` takes
LARGEST = 1e150  # its square, summed over 10^8 examples, is a finite number


class MarginalClassifier(LinearClassifier):
    """Several classes one against the rest, each by a search of its own."""

    alpha: float
    fit_intercept: bool
    max_iter: int
    tol: float
    class_weight: Any
    warm_start: bool
    n_jobs: int | None
    verbose: int

    @abstractmethod
    def _law(self, moments: Floats) -> tuple[Noise, Loss]:
        """The noise, for features of second moments ``moments``, and the expected loss under it."""

    def _check_options(self) -> None:
        """Raise a ValueError if the parameters do not go together."""

    def _solver(self, total: float) -> Solver:  # noqa: ARG002
        """What searches for the minimum of a problem; ``total`` is the weight of all examples."""
        return minimum

    def _keep(self, results: list[OptimizeResult]) -> None:
        """Remember what the searches have found."""
        self.n_iter_ = np.array([result.nit for result in results], dtype=np.int32)
        self.objective_ = np.array([result.fun for result in results])

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Find the minimum. An example of weight 0 is as good as absent.

        Args:
            X: (n, d) array or sparse matrix.
            y: (n,) classes.
            sample_weight: (n,) weights, not negative.
        """
        self._check_options()
        metadata = None if sample_weight is None else {"sample_weight": sample_weight}
        watched = {"X": X, "y": y, "metadata": metadata}
        X, y, weight = checked_examples(self, X, y, sample_weight)
        if not weight.all():
            X, y, weight = X[weight > 0], y[weight > 0], weight[weight > 0]
        classes, codes = np.unique(y, return_inverse=True)
        params = self._start(classes, X.shape[1])
        self.classes_ = classes
        weight = weight * self._class_weights(codes, weight)[codes]
        total = weight.sum()
        problems = self._problems(X.astype(np.float64, copy=False), codes, weight / total)
        watch = Watch(self, len(problems) * self.max_iter, **watched)
        search = _Search(self._solver(total), params, self.tol, self.max_iter, watch)
        results = self._minimize(problems, search)
        self._keep(results)
        self._report(results)
        watch.close()
        return self

    def predict_proba(self, X: Any) -> Floats:
        """(n, C) probabilities; of several classes, each against the rest and then over their sum.

        Args:
            X: (n, d) array or sparse matrix.
        """
        return probabilities(expit(self.decision_function(X)))

    def predict_log_proba(self, X: Any) -> Floats:
        """The logarithm of :meth:`predict_proba`, -inf where that is 0.

        Args:
            X: (n, d) array or sparse matrix.
        """
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))

    def _start(self, classes: npt.NDArray[Any], d: int) -> Floats:
        """A row of weights and intercept for each problem: zeros, or those of the last fit."""
        if len(classes) < 2:
            raise ValueError(
                f"y has one class only among the examples of positive weight, {classes.tolist()[0]!r}, "
                "but a classifier tells apart two or more; give examples of another class"
            )
        if not (self.warm_start and hasattr(self, "coef_")):
            return np.zeros((1 if len(classes) == 2 else len(classes), d + 1))
        if not np.array_equal(self.classes_, classes) or self.coef_.shape[1] != d:
            raise ValueError(
                f"warm_start has a model of classes {self.classes_} and {self.coef_.shape[1]} features, but the data "
                f"have classes {classes} and {d} features; set warm_start=False"
            )
        return np.column_stack([self.coef_, self.intercept_ * self.fit_intercept])

    def _class_weights(self, codes: Codes, weight: Floats) -> Floats:
        if self.class_weight == "balanced":  # by weight: an example of weight 2 counts as two
            mass = np.bincount(codes, weights=weight)
            return np.asarray(mass.sum() / (len(mass) * mass))
        given = compute_class_weight(self.class_weight, classes=self.classes_, y=self.classes_[codes])
        if not (np.isfinite(given) & (given > 0)).all():
            raise ValueError(f"class_weight is {self.class_weight}, but weights are positive; leave out other examples")
        return np.asarray(given)

    def _problems(self, X: sparse.csr_array, codes: Codes, weights: Floats) -> list[Problem]:
        peak = abs(X.data).max(initial=0.0)
        if peak > LARGEST:
            raise ValueError(f"X has a value of size {peak:.3g}, but {LARGEST:.0e} is the largest; scale the features")
        squares = squared(X)
        law = *self._law(squares.T @ weights), self.alpha, self.fit_intercept
        positives = [1] if len(self.classes_) == 2 else range(len(self.classes_))
        return [Problem(X, squares, np.where(codes == code, 1.0, -1.0), weights, *law) for code in positives]

    def _minimize(self, problems: list[Problem], search: _Search) -> list[OptimizeResult]:
        with threadpool_limits(1, "blas"):  # for a dot product, more threads cost more than they bring
            results: list[OptimizeResult] = Parallel(n_jobs=self.n_jobs, require="sharedmem")(
                delayed(search)(row, problem) for row, problem in enumerate(problems)
            )
        self.coef_, self.intercept_ = search.fitted().values()
        return results

    def _report(self, results: list[OptimizeResult]) -> None:
        for label, result in zip(self.classes_[-len(results) :].tolist(), results, strict=True):
            if self.verbose:
                print(f"class {label!r}: {result.nit} iterations, objective {result.fun:.6g}")
            if not result.success:
                warnings.warn(
                    f"class {label!r}: L-BFGS did not converge in {result.nit} iterations ({result.message}); "
                    "raise max_iter or tol, scale the features or set a penalty alpha",
                    ConvergenceWarning,
                    stacklevel=4,
                )


class _Search:
    """Solves problems, each in its row of params, and lets callbacks watch, one thread at a time."""

    def __init__(self, solver: Solver, params: Floats, tol: float, max_iter: int, watch: Watch) -> None:
        self.solver, self.params, self.tol, self.max_iter = solver, params, tol, max_iter
        self.watch, self.lock = watch, Lock()

    def __call__(self, row: int, problem: Problem) -> OptimizeResult:
        stopped = False

        def step(x: Floats) -> None:
            nonlocal stopped
            self.params[row] = x
            with self.lock:
                stopped = self.watch.step("iteration", self.fitted)
            if stopped:
                raise StopIteration

        result = self.solver(problem, self.params[row], self.tol, self.max_iter, step)
        self.params[row] = result.x
        result.success |= stopped
        return result

    def fitted(self) -> dict[str, Floats]:
        """What a fit that ended here would have."""
        return {"coef_": self.params[:, :-1].copy(), "intercept_": self.params[:, -1].copy()}
