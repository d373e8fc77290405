"""Logistic regression with the dropout noise integrated out: no random number, one minimum to find by L-BFGS.

The estimator knows scikit-learn; what it minimises stands in :mod:`evodrop.linear.objectives`.
"""

from __future__ import annotations

import warnings
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

from evodrop.definitions import sampling_probabilities
from evodrop.linear.callbacks import Watch
from evodrop.linear.classifier import LinearClassifier, probabilities
from evodrop.linear.objectives import (
    Floats,
    Noise,
    Problem,
    bernoulli_variance,
    gaussian_loss,
    matched_draws,
    minimum,
    multinomial_variance,
    quadratic_loss,
    squared,
)
from evodrop.linear.parameters import LOGISTIC_PARAMETERS
from evodrop.linear.validation import checked_examples

__all__ = ["DropoutLogisticRegression"]

Codes: TypeAlias = npt.NDArray[np.intp]
LOSSES = {"multinomial": quadratic_loss, "bernoulli": quadratic_loss, "gaussian": gaussian_loss}
LARGEST = 1e150  # its square, summed over 10^8 examples, is a finite number


class DropoutLogisticRegression(LinearClassifier):
    """Logistic regression on the expected loss of dropout noise; several classes one against the rest.

    The expectation of Proposition 1 is approximated in closed form, so a fit draws nothing and repeats exactly. For
    labels y = -1 or 1, scores z = w.x + b, the logistic function s and weights c that sum to 1 it minimises ::

        sum_j c_j (log(1 + exp(-y_j z_j)) + V_j s(z_j) (1 - s(z_j)) / 2) + alpha / 2 ||w||^2

    by L-BFGS from zero, where V_j is the variance that the noise gives z_j (Eq. (4), with s for the paper's q). This is
    not convex, and V s (1 - s) falls to 0 as scores grow: where the classes can be separated and ``alpha`` is 0, the
    weights grow until the gradient is below ``tol``. Set ``alpha``, or take ``noise="gaussian"``.

    Args:
        noise: ``"multinomial"``: data-dependent dropout, V = (sum_i x_i^2 w_i^2 / p_i - (w.x)^2) / k (Eq. (5)), with
            probabilities p_i that follow sqrt(E x_i^2). ``"bernoulli"``: standard dropout,
            V = sum_i x_i^2 w_i^2 rate / (1 - rate) (Wager et al., 2013). ``"gaussian"``: the same V for a score that is
            taken as normal, with its expected loss exact to ten digits (Wang and Manning, 2013); it is convex, and with
            a rate above 0 its minimum is finite.
        rate: the fraction dropped, in [0, 1).
        k: number of draws of multinomial noise, instead of the number that ``rate`` and ``match`` give.
        match: what k is matched to: ``"draws"``, ``"distinct"`` or ``"noise"``, see :mod:`evodrop.matching`.
        alpha: strength of the L2 penalty.
        fit_intercept: whether to fit b, which gets no noise and no penalty.
        max_iter: most iterations, for each class.
        tol: the search ends where no entry of the gradient is larger.
        class_weight: a dict of weights, or ``"balanced"``; they multiply ``sample_weight``.
        warm_start: start from the last fit, if it had the same classes and number of features.
        n_jobs: number of threads, each with a class of its own.
        verbose: 1 prints a line for each class.

    Attributes:
        classes_: the labels, sorted.
        coef_, intercept_: w and b, a row for each class, or a single one for two classes.
        n_iter_, objective_: iterations and least value, one for each row.
        probs_: sampling probabilities of multinomial noise (all 0 if X is), else keep probabilities.
        k_: number of draws, or None where there is none.
        n_features_in_: number of features.

    Examples:
        >>> X = np.array([[3.0, 0.0], [2.0, 1.0], [0.0, 2.0], [1.0, 1.0]])
        >>> model = DropoutLogisticRegression(alpha=0.01).fit(X, ["a", "a", "b", "b"])
        >>> model.k_, model.probs_.round(2)
        (1, array([0.6, 0.4]))
        >>> model.predict([[3.0, 0.5]])
        array(['a'], dtype='<U1')
    """

    _parameter_constraints = LOGISTIC_PARAMETERS

    def __init__(
        self,
        *,
        noise: str = "multinomial",
        rate: float = 0.5,
        k: int | None = None,
        match: str = "draws",
        alpha: float = 1e-6,
        fit_intercept: bool = True,
        max_iter: int = 1000,
        tol: float = 1e-6,
        class_weight: dict[Any, float] | str | None = None,
        warm_start: bool = False,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.noise, self.rate, self.k, self.match = noise, rate, k, match
        self.alpha, self.fit_intercept, self.class_weight = alpha, fit_intercept, class_weight
        self.max_iter, self.tol, self.warm_start = max_iter, tol, warm_start
        self.n_jobs, self.verbose = n_jobs, verbose

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Find the minimum. An example of weight 0 is as good as absent.

        Args:
            X: (n, d) array or sparse matrix.
            y: (n,) classes.
            sample_weight: (n,) weights, not negative.
        """
        if self.k is not None and (self.noise, self.match) != ("multinomial", "draws"):
            raise ValueError(
                f"k is {self.k!r} with noise {self.noise!r} and match {self.match!r}, but it is for multinomial noise "
                "whose draws nothing else chooses; leave k out, or set noise='multinomial' and match='draws'"
            )
        metadata = None if sample_weight is None else {"sample_weight": sample_weight}
        watched = {"X": X, "y": y, "metadata": metadata}
        X, y, weight = checked_examples(self, X, y, sample_weight)
        if not weight.all():
            X, y, weight = X[weight > 0], y[weight > 0], weight[weight > 0]
        classes, codes = np.unique(y, return_inverse=True)
        params = self._start(classes, X.shape[1])
        self.classes_ = classes
        weight = weight * self._class_weights(codes, weight)[codes]
        problems = self._problems(X.astype(np.float64, copy=False), codes, weight / weight.sum())
        watch = Watch(self, len(problems) * self.max_iter, **watched)
        self._report(self._minimize(problems, params, watch))
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
        law = self._noise(squares.T @ weights), LOSSES[self.noise], self.alpha, self.fit_intercept
        positives = [1] if len(self.classes_) == 2 else range(len(self.classes_))
        return [Problem(X, squares, np.where(codes == code, 1.0, -1.0), weights, *law) for code in positives]

    def _noise(self, moments: Floats) -> Noise:
        self.k_: int | None = None
        if self.noise != "multinomial":
            self.probs_ = np.full(len(moments), 1.0 - self.rate)
            return bernoulli_variance(len(moments), self.rate)
        self.probs_ = sampling_probabilities(moments) if moments.any() else moments
        self.k_ = matched_draws(self.match, self.probs_, moments, self.rate) if self.k is None else int(self.k)
        return multinomial_variance(self.probs_, np.inf if self.k_ is None else self.k_)

    def _minimize(self, problems: list[Problem], params: Floats, watch: Watch) -> list[OptimizeResult]:
        search = _Search(params, self.tol, self.max_iter, watch)
        with threadpool_limits(1, "blas"):  # for a dot product, more threads cost more than they bring
            results: list[OptimizeResult] = Parallel(n_jobs=self.n_jobs, require="sharedmem")(
                delayed(search)(row, problem) for row, problem in enumerate(problems)
            )
        self.coef_, self.intercept_ = search.fitted().values()
        self.n_iter_ = np.array([result.nit for result in results], dtype=np.int32)
        self.objective_ = np.array([result.fun for result in results])
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

    def __init__(self, params: Floats, tol: float, max_iter: int, watch: Watch) -> None:
        self.params, self.tol, self.max_iter, self.watch, self.lock = params, tol, max_iter, watch, Lock()

    def __call__(self, row: int, problem: Problem) -> OptimizeResult:
        stopped = False

        def step(x: Floats) -> None:
            nonlocal stopped
            self.params[row] = x
            with self.lock:
                stopped = self.watch.step("iteration", self.fitted)
            if stopped:
                raise StopIteration

        result = minimum(problem, self.params[row], self.tol, self.max_iter, step)
        self.params[row] = result.x
        result.success |= stopped
        return result

    def fitted(self) -> dict[str, Floats]:
        """What a fit that ended here would have."""
        return {"coef_": self.params[:, :-1].copy(), "intercept_": self.params[:, -1].copy()}
