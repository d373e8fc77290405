"""Logistic regression with the dropout noise integrated out: no random number, one minimum to find by L-BFGS.

Under dropout the score of an example is random, with mean z = w.x + b and a variance V that is quadratic in w. Its
expected logistic loss (Proposition 1) has no closed form. Two approximations need z and V only: the Taylor expansion of
Eq. (4), :func:`quadratic_loss`, and a normal score, :func:`gaussian_loss`. The rest is sparse products.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable
from functools import cache
from math import pi, sqrt
from numbers import Integral, Real
from threading import Lock
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

import numpy as np
from scipy import sparse
from scipy.optimize import OptimizeResult, minimize
from scipy.special import expit, log_expit, ndtr
from sklearn.base import _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.parallel import Parallel, delayed
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from evodrop._checks import Array, Floats
from evodrop.linear._base import (
    NOT_NEGATIVE,
    POSITIVE_INTEGER,
    LinearClassifier,
    Watch,
    check_classes,
    checked_examples,
    class_weights,
    probabilities,
)
from evodrop.noise import MATCHES, MOST_DRAWS, make_noise

__all__ = ["DropoutLogisticRegression"]

Loss: TypeAlias = Callable[[Floats, Floats], tuple[Floats, Floats, Floats]]
Solver: TypeAlias = Callable[..., OptimizeResult]  # takes what `minimum` takes
MOST_CALLS = 2**31 - 1  # of the objective: the number of iterations is the limit
LARGEST = 1e150  # its square, summed over 10^8 examples, is a finite number


class Problem(NamedTuple):
    """One class against the rest, under noise that gives a score the variance sum_i spread_i x_i^2 w_i^2 - shared
    (w.x)^2."""

    X: sparse.csr_array
    squares: sparse.csr_array  # X squared, entry by entry
    labels: Floats  # (n,): 1 for the class, -1 for the rest
    weights: Floats  # (n,): they sum to 1
    spread: Floats  # (d,)
    shared: float
    loss: Loss
    alpha: float
    fit_intercept: bool

    def losses(self, params: Floats) -> tuple[Floats, tuple[Floats, Floats, Floats]]:
        """The scores without intercept; the expected loss of each example, with its derivatives by the mean and by the
        variance of the margin."""
        w, b = params[:-1], params[-1]
        score = self.X @ w
        variance = self.squares @ (self.spread * w * w) - self.shared * score * score
        return score, self.loss(self.labels * (score + b), variance)


def objective(params: Floats, problem: Problem) -> tuple[float, Floats]:
    """sum_j c_j loss(y_j z_j, V_j) + alpha / 2 ||w||^2 and its gradient.

    Args:
        params: (d + 1,) the weights w and, last, the intercept b. It gets no noise and no penalty, and a gradient of 0
            where it is not to be fitted.
        problem: the examples and what is asked of them. Each call costs four products with a sparse matrix.

    Examples:
        >>> X = sparse.csr_array(np.array([[1.0, 0.0], [0.0, 2.0]]))
        >>> examples = X, squared(X), np.array([1.0, -1.0]), np.full(2, 0.5)
        >>> problem = Problem(*examples, np.ones(2), 0.0, quadratic_loss, 0.0, True)
        >>> value, gradient = objective(np.zeros(3), problem)
        >>> round(value, 4), gradient  # log 2 where every weight is zero
        (0.6931, array([-0.25,  0.5 ,  0.  ]))
    """
    w, (score, (value, slope, bend)) = params[:-1], problem.losses(params)
    pull, push = problem.weights * problem.labels * slope, problem.weights * bend  # by the means, by the variances
    gradient = np.empty_like(params)
    gradient[:-1] = problem.X.T @ (pull - 2.0 * problem.shared * push * score) + w * (
        2.0 * problem.spread * (problem.squares.T @ push) + problem.alpha
    )
    gradient[-1] = pull.sum() if problem.fit_intercept else 0.0
    return float(problem.weights @ value + 0.5 * problem.alpha * (w @ w)), gradient


def minimum(
    problem: Problem, start: Floats, tol: float, max_iter: int, callback: Callable[[Floats], None] | None = None
) -> OptimizeResult:
    """The minimum that L-BFGS reaches from ``start``; a callback may raise StopIteration to end the search.

    Examples:
        >>> X = sparse.csr_array(np.array([[1.0], [-1.0], [-1.0]]))
        >>> examples = X, squared(X), np.array([1.0, -1.0, 1.0]), np.full(3, 1 / 3)
        >>> problem = Problem(*examples, np.ones(1), 0.0, gaussian_loss, 0.0, False)
        >>> minimum(problem, np.zeros(2), 1e-9, 100).x.round(4)
        array([0.3497, 0.    ])
    """
    # The gradient decides where to end; ftol only stops a search that rounding keeps from any progress.
    ends = {"gtol": tol, "ftol": 64 * np.finfo(np.float64).eps, "maxiter": max_iter, "maxfun": MOST_CALLS, "maxls": 50}
    return minimize(objective, start, (problem,), "L-BFGS-B", jac=True, callback=callback, options=ends)


def squared(X: sparse.csr_array) -> sparse.csr_array:
    """X squared, entry by entry; it shares the indices of X."""
    return sparse.csr_array((X.data * X.data, X.indices, X.indptr), shape=X.shape)


def quadratic_loss(margin: Floats, variance: Floats) -> tuple[Floats, Floats, Floats]:
    """log(1 + exp(-m)) + V s(m) (1 - s(m)) / 2, and its derivatives by the margin m and by the variance V.

    Eq. (4) with the second derivative of the logistic loss itself: s is the logistic function, without the paper's
    half. Not convex, and a large margin silences the noise: s (1 - s) V falls to 0 as the weights grow, so that
    separable data without a penalty ``alpha`` have their least value at infinity.

    Examples:
        >>> quadratic_loss(np.zeros(1), np.array([8.0]))
        (array([1.69314718]), array([-0.5]), array([0.125]))
    """
    likely, unlikely = expit(margin), expit(-margin)
    half = 0.5 * likely * unlikely
    return half * variance - log_expit(margin), half * variance * (unlikely - likely) - unlikely, half


def gaussian_loss(margin: Floats, variance: Floats) -> tuple[Floats, Floats, Floats]:
    """E log(1 + exp(-M)) for M ~ N(m, V), and its derivatives by m and by V (Wang and Manning, 2013).

    A logistic variable is a normal one of random scale t, so log(1 + exp(-m)) is the mean over t of E max(0, -M) for
    M ~ N(m, t^2), which has a closed form, and noise of variance V makes it N(m, t^2 + V). The sum over 18 scales is
    within 2e-11 for every m and V, and convex in m and sqrt(V) as the integral is. Gauss-Hermite quadrature needs 100
    nodes for 1e-9 at V = 10, and with 200 is off by 3e-5 at V = 100.

    Examples:
        >>> value, slope, bend = gaussian_loss(np.zeros(2), np.array([0.0, 100.0]))
        >>> value.round(6), slope, bend.round(6)
        (array([0.693147, 4.054313]), array([-0.5, -0.5]), array([0.125  , 0.01963]))
    """
    value, slope, bend = np.zeros_like(margin), np.zeros_like(margin), np.zeros_like(margin)
    for scale, weight in zip(*_scales(), strict=True):
        deviation = np.sqrt(scale * scale + variance)
        ratio = margin / deviation
        below = weight * ndtr(-ratio)
        density = weight * np.exp(-0.5 * ratio * ratio) / sqrt(2.0 * pi)
        value += deviation * density - margin * below
        slope -= below
        bend += 0.5 * density / deviation
    return value, slope, bend


@cache
def _scales() -> tuple[Floats, Floats]:
    """Scales t and their weights: t / 2 has Kolmogorov's distribution, 8 x sum_k (-1)^(k-1) k^2 exp(-2 k^2 x^2).

    The trapezoidal rule in log x converges geometrically: the density vanishes faster than any power at both ends.
    """
    x = np.geomspace(0.2, 3.5, 18)
    k = np.arange(1, 60)[:, None]
    mass = x * x * ((-1.0) ** (k - 1) * k**2 * np.exp(-2.0 * k**2 * x**2)).sum(axis=0)
    return 2.0 * x, mass / mass.sum()


class MarginalClassifier(LinearClassifier):
    """Examples in, a search for the minimum of each class against the rest, a model out. A subclass says which noise it
    is."""

    alpha: float
    fit_intercept: bool
    max_iter: int
    tol: float
    class_weight: Any
    warm_start: bool
    n_jobs: int | None
    verbose: int

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "rate": [Interval(Real, 0, 1, closed="left")],
        "alpha": [NOT_NEGATIVE],
        "fit_intercept": ["boolean"],
        "max_iter": [POSITIVE_INTEGER],
        "tol": [NOT_NEGATIVE],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "warm_start": ["boolean"],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
    }

    @abstractmethod
    def _law(self, moments: Floats) -> tuple[Floats, float, Loss]:
        """spread, shared and loss of the problems, for features of second moments ``moments``."""

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
        """Find the minimum. An example of weight 0 counts for nothing.

        Args:
            X: (n, d) array or sparse matrix.
            y: (n,) classes.
            sample_weight: (n,) weights, not negative.
        """
        self._check_options()
        details = {"X": X, "y": y, "metadata": None if sample_weight is None else {"sample_weight": sample_weight}}
        X, y, weight = checked_examples(self, X, y, sample_weight)
        classes, codes = np.unique(y, return_inverse=True)
        params = self._start(classes, X.shape[1])
        masses = np.bincount(codes, weights=weight)  # "balanced" by weight: an example of weight 2 counts as two
        weight = weight * class_weights(self.class_weight, classes, masses)[codes]
        if not weight.any():
            raise ValueError(f"class_weight={self.class_weight} leaves no example any weight; give one a positive one")
        if not weight.all():
            X, codes, weight = X[weight > 0], codes[weight > 0], weight[weight > 0]
        self.classes_, total = classes, weight.sum()
        problems = self._problems(X.astype(np.float64, copy=False), codes, weight / total)
        watch = Watch(self, len(problems) * self.max_iter, **details)
        solver, lock = self._solver(total), Lock()  # callbacks are called by one thread at a time

        def fitted() -> dict[str, Floats]:
            return {"coef_": params[:, :-1].copy(), "intercept_": params[:, -1].copy()}

        def search(row: int, problem: Problem) -> OptimizeResult:
            stopped = False

            def step(x: Floats) -> None:
                nonlocal stopped
                params[row] = x
                with lock:
                    stopped = watch.step("iteration", fitted)
                if stopped:
                    raise StopIteration

            result = solver(problem, params[row], self.tol, self.max_iter, step)
            params[row] = result.x
            result.success |= stopped
            return result

        with threadpool_limits(1, "blas"):  # for a dot product, more threads cost more than they bring
            tasks = [delayed(search)(row, problem) for row, problem in enumerate(problems)]
            results: list[OptimizeResult] = Parallel(n_jobs=self.n_jobs, require="sharedmem")(tasks)
        self.coef_, self.intercept_ = fitted().values()
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

    def _start(self, classes: Array, d: int) -> Floats:
        """A row of weights and intercept for each problem: zeros, or those of the last fit."""
        check_classes(classes)
        if not (self.warm_start and hasattr(self, "coef_")):
            return np.zeros((1 if len(classes) == 2 else len(classes), d + 1))
        if not np.array_equal(self.classes_, classes) or self.coef_.shape[1] != d:
            raise ValueError(
                f"warm_start has a model of classes {self.classes_} and {self.coef_.shape[1]} features, but the data "
                f"have classes {classes} and {d} features; set warm_start=False"
            )
        return np.column_stack([self.coef_, self.intercept_ * self.fit_intercept])

    def _problems(self, X: sparse.csr_array, codes: Array, weights: Floats) -> list[Problem]:
        peak = abs(X.data).max(initial=0.0)
        if peak > LARGEST:
            raise ValueError(f"X has a value of size {peak:.3g}, but {LARGEST:.0e} is the largest; scale the features")
        squares = squared(X)
        spread, shared, loss = self._law(squares.T @ weights)
        positives = [1] if len(self.classes_) == 2 else range(len(self.classes_))
        sides = (np.where(codes == code, 1.0, -1.0) for code in positives)
        ends = self.alpha, self.fit_intercept
        return [Problem(X, squares, side, weights, spread, shared, loss, *ends) for side in sides]

    def _report(self, results: list[OptimizeResult]) -> None:
        for label, result in zip(self.classes_[-len(results) :].tolist(), results, strict=True):
            if self.verbose:
                print(f"class {label!r}: {result.nit} iterations, objective {result.fun:.6g}")
            if not result.success:
                warnings.warn(
                    f"class {label!r}: L-BFGS did not converge in {result.nit} iterations ({result.message}); "
                    "raise max_iter or tol, scale the features or set a penalty alpha",
                    ConvergenceWarning,
                    stacklevel=2,
                )


class DropoutLogisticRegression(MarginalClassifier):
    """Logistic regression on the expected loss of dropout noise; several classes one against the rest.

    The expectation of Proposition 1 is approximated in closed form, so a fit draws nothing and repeats exactly. For
    labels y = -1 or 1, scores z = w.x + b, the logistic function s and weights c that sum to 1 it minimises ::

        sum_j c_j (log(1 + exp(-y_j z_j)) + V_j s(z_j) (1 - s(z_j)) / 2) + alpha / 2 ||w||^2

    by L-BFGS from zero, where V_j is the variance that the noise gives z_j (Eq. (4), with s for the paper's q). This is
    not convex, and V s (1 - s) falls to 0 as scores grow: where the classes can be separated and ``alpha`` is 0, the
    weights grow until the gradient is below ``tol``. Set ``alpha``, or take ``approximation="gaussian"``.

    Args:
        dropout: the noise, which decides V. ``"data-dependent"``: multinomial with probabilities p_i that follow
            sqrt(E x_i^2), V = (sum_i x_i^2 w_i^2 / p_i - (w.x)^2) / k (Eq. (5)). ``"uniform"``: the same with equal
            p_i. ``"standard"``: V = sum_i x_i^2 w_i^2 rate / (1 - rate) (Wager et al., 2013). ``"water-filling"``:
            independent, V = sum_i x_i^2 w_i^2 (1 - pi_i) / pi_i, with keep probabilities pi_i = min(1, t sqrt(E x_i^2))
            that sum to k.
        approximation: ``"quadratic"``: the above. ``"gaussian"``: the score is taken as normal, with its expected loss
            exact to ten digits (Wang and Manning, 2013); it is convex, and with standard dropout and a rate above 0 its
            minimum is finite.
        rate: the fraction dropped, in [0, 1). 0 is no noise.
        k: number of draws, or of kept features, instead of the number that ``rate`` and ``match`` give.
        match: what k is matched to: ``"draws"``, ``"distinct"`` or ``"noise"``, see :mod:`evodrop.noise`.
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
        k_: number of draws; None for independent noise, and without noise.
        n_features_in_: number of features.

    Examples:
        >>> X = np.array([[3.0, 0.0], [2.0, 1.0], [0.0, 2.0], [1.0, 1.0]])
        >>> model = DropoutLogisticRegression(alpha=0.01).fit(X, ["a", "a", "b", "b"])
        >>> model.k_, model.probs_.round(2)
        (1, array([0.6, 0.4]))
        >>> model.predict([[3.0, 0.5]])
        array(['a'], dtype='<U1')
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **MarginalClassifier._parameter_constraints,
        "dropout": [StrOptions({"standard", "uniform", "data-dependent", "water-filling"})],
        "approximation": [StrOptions({"quadratic", "gaussian"})],
        "k": [Interval(Integral, 1, MOST_DRAWS, closed="both"), None],
        "match": [StrOptions(set(MATCHES))],
    }

    def __init__(
        self,
        *,
        dropout: str = "data-dependent",
        approximation: str = "quadratic",
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
        self.dropout, self.approximation, self.rate, self.k, self.match = dropout, approximation, rate, k, match
        self.alpha, self.fit_intercept, self.class_weight = alpha, fit_intercept, class_weight
        self.max_iter, self.tol, self.warm_start = max_iter, tol, warm_start
        self.n_jobs, self.verbose = n_jobs, verbose

    def _check_options(self) -> None:
        if self.k is not None and (self.dropout == "standard" or self.match != "draws"):
            raise ValueError(
                f"k is {self.k!r} with dropout={self.dropout!r} and match={self.match!r}, but the rate decides in "
                "standard dropout, and a match chooses k; leave k out, or choose another dropout and match='draws'"
            )

    def _law(self, moments: Floats) -> tuple[Floats, float, Loss]:
        weights = np.sqrt(moments) if self.dropout in ("data-dependent", "water-filling") else None
        independent = self.dropout in ("standard", "water-filling")
        noise = make_noise(weights, moments, self.rate, k=self.k, match=self.match, independent=independent)
        self.probs_, self.k_ = noise
        spread = noise.spread
        if self.dropout == "standard":  # 1 - (1 - rate) would not be the rate to the last bit
            spread = np.full(len(moments), self.rate / (1.0 - self.rate))
        return spread, noise.shared, gaussian_loss if self.approximation == "gaussian" else quadratic_loss
