"""Logistic regression with the dropout noise integrated out: no random number, one minimum to find by L-BFGS.

Under dropout the score of an example is random, with mean z = w.x + b and a variance V that is quadratic in w. Its
expected logistic loss (Proposition 1) has no closed form. Two approximations need z and V only: a normal score, and the
Taylor expansion of Eq. (4); see :func:`evodrop._kernels.expected_loss.expected_loss`.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy import sparse
from sklearn.base import _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_array

from evodrop._checks import Array, Floats
from evodrop._kernels.expected_loss import BOUND, GAUSSIAN, QUADRATIC, add_losses
from evodrop.linear._base import (
    DTYPES,
    LinearClassifier,
    checked_examples,
    checked_rows,
    class_weights,
    count_problems,
    followed,
)
from evodrop.linear._lbfgs import Minima, minima, products
from evodrop.noise import MATCHES, MOST_DRAWS, make_noise

__all__ = ["DropoutLogisticRegression"]

LARGEST = 1e150  # its square, summed over 10^8 examples, is a finite number
NO_FACTORS = np.zeros(0)
LARGEST_SHARE, LABELS = 0.5, 500  # of unlabelled examples; and see DropoutLogisticRegression


class Problem(NamedTuple):
    """Each of C classes against the rest, under noise that gives the score of a row the variance
    sum_i spread_i q_i w_i^2 - shared (w.x)^2."""

    X: sparse.csr_array
    codes: Array  # (n,) the class of each row; -1 if it has no label
    noisy: Floats  # (n,): how much the expected loss of each row counts,
    clean: Floats  # (n,): and how much its loss without noise
    positives: Array  # (C,): the code on the positive side of each problem
    alpha: float
    fit_intercept: bool
    spread: Floats  # (d, 1), or (d, C) if every problem has noise of its own
    row_factors: Floats = NO_FACTORS  # q_i is x_i^2; if there are factors, |x_i| times that of its row
    shared: float = 0.0
    loss: int = BOUND

    def of(self, columns: Array) -> Problem:
        """Some of the problems."""
        spread = self.spread if self.spread.shape[1] == 1 else self.spread[:, columns]
        return self._replace(positives=self.positives[columns], spread=spread)

    def sums(self, params: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Of each problem: the loss (C,), and the sums of its derivatives by the scores times x (d, C), by the
        variances times q (d, C), and by the scores alone (C,)."""
        w, C = params[:-1], len(self.positives)
        weights, sums = np.empty((len(w), 2 * C)), np.zeros((len(w), 2 * C))
        with np.errstate(over="ignore", invalid="ignore"):  # the search goes back from a step that is too far
            weights[:, :C], weights[:, C:] = w, self.spread * w * w
        values, slopes, X = np.zeros(C), np.zeros(C), self.X
        rows = X.indptr, X.indices, X.data, self.row_factors, self.codes, self.noisy, self.clean
        add_losses(*rows, self.positives, self.loss, self.shared, weights, params[-1].copy(), values, sums, slopes)
        return values, sums[:, :C], sums[:, C:], slopes

    def objective(self, params: Floats) -> tuple[Floats, Floats]:
        """The sum of the losses plus alpha / 2 ||w||^2 of each problem, (C,), and the gradients, (d + 1, C).

        Args:
            params: (d + 1, C) the weights and, last, the intercept. It gets no noise and no penalty, and a gradient of
                0 where it is not to be fitted.
        """
        w, gradient = params[:-1], np.empty_like(params)
        values, pulls, pushes, slopes = self.sums(params)
        with np.errstate(over="ignore", invalid="ignore"):
            gradient[:-1] = pulls + w * (2.0 * self.spread * pushes + self.alpha)
            values += 0.5 * self.alpha * products(w, w)
        gradient[-1] = slopes if self.fit_intercept else 0.0
        return values, gradient

    def scale(self) -> Floats:
        """(d + 1, 1): one over the second derivatives where all weights are 0, a measure for the first steps."""
        shares = column_sums(self.X, self.noisy * self.row_factors, 1) if len(self.row_factors) else self.moments()
        curvature = column_sums(self.X, self.noisy + self.clean, 2) + self.spread.mean(axis=1) * shares
        curvature = np.append(0.25 * curvature + self.alpha, 0.25)
        return (1.0 / np.where(curvature > 0, curvature, 1.0))[:, None]

    def moments(self) -> Floats:
        """(d,): E[x_i^2] over the rows whose noise counts."""
        return column_sums(self.X, self.noisy, 2)

    def search(
        self, start: Floats, tol: Any, max_iter: int, callback: Callable[[Floats, int], bool] = lambda *_: False
    ) -> Minima:
        """The minimum of each problem that L-BFGS reaches."""
        return minima(lambda x, live: self.of(live).objective(x), start, self.scale(), tol, max_iter, callback)


def column_sums(X: sparse.csr_array, weights: Floats, power: int) -> Floats:
    """(d,): the sums of weight |x_i|^power over the rows."""
    terms = abs(X.data.astype(np.float64)) ** power * np.repeat(weights, np.diff(X.indptr))
    return np.asarray(np.bincount(X.indices, terms, minlength=X.shape[1]), np.float64)


class MarginalClassifier(LinearClassifier):
    """Examples in, a search for the minimum of each class against the rest, a model out. A subclass says which noise it
    is."""

    alpha: float
    fit_intercept: bool
    max_iter: int
    tol: float
    class_weight: Any
    warm_start: bool
    verbose: int

    @abstractmethod
    def _search(self, problem: Problem, start: Floats, total: float, callback: Callable[[Floats, int], bool]) -> Minima:
        """The minimum, with the noise of the estimator; ``total`` is the weight of all examples."""

    def _fit(self, X: Any, y: Any, sample_weight: Any, unlabeled: Any = None, share: Any = 0.0) -> Self:
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
        noisy, clean = weight / total, np.zeros(len(weight))
        if unlabeled is not None:  # what noise adds to the loss of a row does not depend on its label
            if share == "auto":
                rarest = np.bincount(codes, minlength=len(classes)).min()
                share = min(LARGEST_SHARE, (rarest / LABELS) ** 2)
            rows = unlabeled.shape[0]
            X, codes = sparse.vstack([X, unlabeled], format="csr"), np.append(codes, np.full(rows, -1))
            clean = share * np.append(noisy, np.full(rows, -1.0 / rows))
            noisy = np.append((1.0 - share) * noisy, np.full(rows, share / rows))
        peak = float(abs(X.data).max(initial=0.0))
        if peak > LARGEST:
            raise ValueError(f"X has a value of size {peak:.3g}, but {LARGEST:.0e} is the largest; scale the features")
        positives, ends = np.arange(params.shape[1]) + (params.shape[1] == 1), (float(self.alpha), self.fit_intercept)
        problem = Problem(X, codes, noisy, clean, positives, *ends, np.zeros((X.shape[1], 1)))
        done, stopped = 0, False

        def fitted() -> dict[str, Floats]:
            return {"coef_": params[:-1].T.astype(X.dtype), "intercept_": params[-1].copy()}

        most = self.max_iter * len(positives)  # if the problems are solved one by one
        with followed(self, "iteration", most, self.max_iter if self.verbose else 0, fitted, **details) as tell:

            def step(points: Floats, live: int) -> bool:
                nonlocal done, stopped, params
                done, params = done + 1, points
                stopped = tell(done, f"{live} of {len(positives)} problems left")
                return stopped

            found = self._search(problem, params, total, step)
            params = found.points
            self.n_iter_, self.objective_ = found.n_iter, found.values
            for name, value in fitted().items():
                setattr(self, name, value)
        if not (stopped or found.converged.all()):
            missed = classes[-len(positives) :][~found.converged].tolist()
            warnings.warn(
                f"L-BFGS did not converge in {found.n_iter.max()} iterations for the classes {missed}; raise max_iter "
                "or tol, scale the features or set a penalty alpha",
                ConvergenceWarning,
                stacklevel=3,
            )
        return self

    def _start(self, classes: Array, d: int) -> Floats:
        """A column of weights and intercept for each problem: zeros, or those of the last fit."""
        problems = count_problems(classes)
        if not (self.warm_start and hasattr(self, "coef_")):
            return np.zeros((d + 1, problems))
        if not np.array_equal(self.classes_, classes) or self.coef_.shape[1] != d:
            raise ValueError(
                f"warm_start has a model of classes {self.classes_} and {self.coef_.shape[1]} features, but the data "
                f"have classes {classes} and {d} features; set warm_start=False"
            )
        return np.vstack([self.coef_.T, self.intercept_ * self.fit_intercept]).astype(np.float64)


class DropoutLogisticRegression(MarginalClassifier):
    """Logistic regression on the expected loss of dropout noise; several classes one against the rest.

    A fit draws nothing and repeats exactly: the expectation of Proposition 1 is approximated in closed form. For labels
    y = -1 or 1, scores z = w.x + b with the variance V that the noise gives them, and weights c that sum to 1, it
    minimises ::

        sum_j c_j E log(1 + exp(-y_j Z_j)) + alpha / 2 ||w||^2,   Z_j ~ N(z_j, V_j)

    by L-BFGS from zero. Unlabelled examples can sharpen it: what the noise adds to the loss depends on no label
    (Wager, Wang and Liang, 2013).

    Args:
        dropout: the noise, which decides V. ``"per-entry"``: V = sum_i v_i x_i^2 w_i^2 with v_i = 1 / (kappa p_i), and
            every example has probabilities of its own, p_i ~ sqrt(E x_i^2) abs(x_i); kappa is such that the noise has
            the variance of standard dropout. ``"data-dependent"``: multinomial with probabilities p_i that follow
            sqrt(E x_i^2), V = (sum_i x_i^2 w_i^2 / p_i - (w.x)^2) / k (Eq. (5)). ``"uniform"``: the same with equal
            p_i. ``"standard"``: V = sum_i x_i^2 w_i^2 rate / (1 - rate) (Wager et al., 2013). ``"water-filling"``:
            independent, V = sum_i x_i^2 w_i^2 (1 - pi_i) / pi_i, with keep probabilities pi_i = min(1, t sqrt(E x_i^2))
            that sum to k.
        approximation: ``"gaussian"``: the above, exact to ten digits (Wang and Manning, 2013). It is convex with
            independent noise, and with standard dropout and a rate above 0 its minimum is finite. ``"quadratic"``: the
            loss at z plus V s(z) (1 - s(z)) / 2, with the logistic function s (Eq. (4)). It is not convex, and falls
            to 0 as scores grow: where the classes can be separated, ``alpha`` has to be positive.
        rate: the fraction dropped, in [0, 1). 0 is no noise.
        k: number of draws, or of kept features, or kappa, instead of what ``rate`` and ``match`` give.
        match: what k is matched to: ``"draws"``, ``"distinct"`` or ``"noise"``, see :mod:`evodrop.noise`.
        alpha: strength of the L2 penalty.
        unlabeled_share: how much unlabelled examples count, in [0, 1): in the second moments, and in what the noise
            adds to the loss. ``"auto"``: (n / 500)^2, but 0.5 at most, with n labelled examples of the rarest class.
            Noise adds least to the loss of a model that is sure of everything. So where few labels object, a large
            share favours the model that puts all unlabelled examples into one class.
        fit_intercept: whether to fit b, which gets no noise and no penalty.
        max_iter: most iterations.
        tol: the search ends where no entry of the gradient is larger.
        class_weight: a dict of weights, or ``"balanced"``; they multiply ``sample_weight``.
        warm_start: start from the last fit, if it had the same classes and number of features.
        verbose: 1 draws a progress bar.

    Attributes:
        classes_: the labels, sorted.
        coef_, intercept_: w and b, a row for each class, or a single one for two classes; ``coef_`` has the type of X.
        n_iter_, objective_: iterations and least value, one for each row.
        probs_: sampling probabilities of multinomial noise (all 0 if X is), else keep probabilities; None per entry.
        k_: number of draws; kappa per entry; None for independent noise, and without noise.
        n_features_in_: number of features.

    Examples:
        >>> X = np.array([[3.0, 0.0], [2.0, 1.0], [0.0, 2.0], [1.0, 1.0]])
        >>> model = DropoutLogisticRegression(dropout="data-dependent", alpha=0.01).fit(X, ["a", "a", "b", "b"])
        >>> model.k_, model.probs_.round(2)
        (1, array([0.6, 0.4]))
        >>> model.predict([[3.0, 0.5]])
        array(['a'], dtype='<U1')
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **LinearClassifier._parameter_constraints,
        "dropout": [StrOptions({"standard", "uniform", "data-dependent", "water-filling", "per-entry"})],
        "approximation": [StrOptions({"quadratic", "gaussian"})],
        "k": [Interval(Integral, 1, MOST_DRAWS, closed="both"), None],
        "match": [StrOptions(set(MATCHES))],
        "unlabeled_share": [Interval(Real, 0, 1, closed="left"), StrOptions({"auto"})],
    }

    def __init__(
        self,
        *,
        dropout: str = "data-dependent",
        approximation: str = "gaussian",
        rate: float = 0.5,
        k: int | None = None,
        match: str = "draws",
        alpha: float = 1e-6,
        unlabeled_share: float | str = "auto",
        fit_intercept: bool = True,
        max_iter: int = 1000,
        tol: float = 1e-5,
        class_weight: dict[Any, float] | str | None = None,
        warm_start: bool = False,
        verbose: int = 0,
    ) -> None:
        self.dropout, self.approximation, self.rate, self.k, self.match = dropout, approximation, rate, k, match
        self.alpha, self.unlabeled_share, self.fit_intercept = alpha, unlabeled_share, fit_intercept
        self.max_iter, self.tol, self.class_weight = max_iter, tol, class_weight
        self.warm_start, self.verbose = warm_start, verbose

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, X_unlabeled: Any = None) -> Self:
        """Find the minimum. An example of weight 0 counts for nothing.

        Args:
            X: (n, d) array or sparse matrix.
            y: (n,) classes.
            sample_weight: (n,) weights, not negative.
            X_unlabeled: (m, d) further examples, whose labels are not known.
        """
        if X_unlabeled is not None:
            X_unlabeled = checked_unlabeled(X_unlabeled, np.shape(X)[-1])
        return self._fit(X, y, sample_weight, X_unlabeled, self.unlabeled_share)

    def _search(self, problem: Problem, start: Floats, total: float, callback: Callable[[Floats, int], bool]) -> Minima:
        del total
        problem = problem._replace(loss=GAUSSIAN if self.approximation == "gaussian" else QUADRATIC)
        noise = self._per_entry(problem) if self.dropout == "per-entry" else self._per_feature(problem)
        return noise.search(start, self.tol, self.max_iter, callback)

    def _per_feature(self, problem: Problem) -> Problem:
        moments = problem.moments()
        weights = np.sqrt(moments) if self.dropout in ("data-dependent", "water-filling") else None
        independent = self.dropout in ("standard", "water-filling")
        noise = make_noise(weights, moments, self.rate, k=self.k, match=self.match, independent=independent)
        self.probs_, self.k_ = noise
        spread = noise.spread
        if self.dropout == "standard":  # 1 - (1 - rate) would not be the rate to the last bit
            spread = np.full(len(moments), self.rate / (1.0 - self.rate))
        return problem._replace(spread=spread[:, None], shared=noise.shared)

    def _per_entry(self, problem: Problem) -> Problem:
        """With p_i = m_i |x_i| / S, where S is the sum of the m_i |x_i| of the example: x_i^2 v_i = |x_i| S / (kappa
        m_i)."""
        X, moments = problem.X, problem.moments()
        self.probs_ = self.k_ = None
        if not moments.any() or (self.rate == 0.0 and self.k is None):
            return problem
        roots = np.sqrt(moments / moments.max())
        inverse = np.divide(1.0, roots, out=np.zeros_like(roots), where=roots > 0)
        factors = sparse.csr_array((abs(X.data), X.indices, X.indptr), shape=X.shape) @ roots
        noise = column_sums(X, problem.noisy * factors, 1) @ inverse  # of all rows, times kappa
        self.k_ = self.k or float(noise / moments.sum() * (1.0 - self.rate) / self.rate)
        return problem._replace(spread=(inverse / self.k_)[:, None], row_factors=factors)


def checked_unlabeled(X: Any, d: int) -> sparse.csr_array:
    """Examples without labels, or a ValueError that says what is wrong with them."""
    try:
        X = checked_rows(check_array(X, accept_sparse="csr", dtype=DTYPES, input_name="X_unlabeled"))
    except ValueError as error:
        raise ValueError(f"X_unlabeled: {error}") from error
    if X.shape[1] != d:
        raise ValueError(f"X_unlabeled has {X.shape[1]} features, but X has {d}; make both with the same vectorizer")
    return X
