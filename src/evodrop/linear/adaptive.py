"""Logistic regression that infers its dropout rates from the data: no rate to tune, and one for each feature.

**What data say of a rate.** The noise of a rate r has the variance v = r / (1 - r). Where each unit of v costs s nats
over all examples, Bayes' rule makes of a prior Beta(a, b) the posterior ::

    q(r) ~ r^(a - 1) (1 - r)^(b - 1) exp(-s r / (1 - r))

All its means are ratios of confluent hypergeometric functions, which no library has for every a, b and s. In log v the
density is log-concave and has its peak at the root of a quadratic equation, so a few hundred nodes around it suffice.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy.special import betaln
from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval, StrOptions

from evodrop._checks import Array, Floats
from evodrop.linear._base import LinearClassifier
from evodrop.linear._lbfgs import ROUNDING, Minima
from evodrop.linear.logistic import MarginalClassifier, Problem

__all__ = ["AdaptiveRateLogisticRegression"]

STEP = 0.05
NODES = np.arange(-8.0, 8.0 + STEP / 2, STEP)[:, None]  # log v is the peak plus its width times the sinh of these
BLOCK = 512  # rates at a time, so that all nodes of them stay in the cache
LARGEST_LOG = 700.0  # exp of more overflows
EASING = 0.1  # what a turn leaves of the slope that it finds


class Posterior(NamedTuple):
    """What is known of each rate."""

    rate: Floats  # the mean of r
    variance: Floats  # the mean of r / (1 - r): the variance of the noise, with the rate integrated out
    divergence: Floats  # from the prior, in nats


def posterior(prior: tuple[float, float], cost: Floats) -> Posterior:
    """The posterior of rates whose noise costs ``cost`` nats for each unit of variance; the prior is Beta(a, b), b > 1.

    Its means are right to 1e-5 for a concentration a + b - 1 of at least 1, rates a / (a + b - 1) from 0.01 to 0.99 and
    costs of 0 or at least 1e-8, and to 1e-9 at the rate 0.5. At the rate 0.99 smaller costs leave a tail of the density
    beyond the nodes: the variance is off by 1e-4 at a cost of 1e-12.

    Examples:
        >>> free, dear = (posterior((1.0, 2.0), np.array([cost])) for cost in (0.0, 100.0))
        >>> free.variance.round(6), dear.variance.round(6)
        (array([1.]), array([0.009714]))
    """
    parts = [_posterior(prior, cost[start : start + BLOCK]) for start in range(0, len(cost), BLOCK)]
    return Posterior(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def _posterior(prior: tuple[float, float], cost: Floats) -> Posterior:
    a, b = prior
    # The density of log v is flat where a - (a + b) v / (1 + v) - s v = 0: there s v^2 + slope v - a = 0.
    slope = b + cost
    peak = 2.0 * a / (slope + np.sqrt(slope * slope + 4.0 * cost * a))
    width = 1.0 / np.sqrt((a + b) * peak / (1.0 + peak) ** 2 + cost * peak)
    highest = _log_density(prior, cost, np.log(peak))
    log_v = np.minimum(np.log(peak) + width * np.sinh(NODES), LARGEST_LOG)
    mass = np.cosh(NODES) * np.exp(_log_density(prior, cost, log_v) - highest)
    v, total = np.exp(log_v), mass.sum(axis=0)
    # Without any cost the tail is a power, which the nodes would cut off, and the mean is known.
    variance = np.where(cost > 0, (mass * v).sum(axis=0) / total, a / (b - 1.0))
    log_ratio = np.log(total * STEP * width) + highest - betaln(a, b)
    divergence = np.where(cost > 0, np.maximum(-cost * variance - log_ratio, 0.0), 0.0)
    return Posterior((mass * (v / (1.0 + v))).sum(axis=0) / total, variance, divergence)


def _log_density(prior: tuple[float, float], cost: Floats, log_v: Floats) -> Floats:
    """Of log v, up to a constant."""
    with np.errstate(over="ignore"):
        return prior[0] * log_v - sum(prior) * np.logaddexp(0.0, log_v) - cost * np.exp(log_v)


def infer_rates(
    problem: Problem,
    start: Floats,
    tol: float,
    max_iter: int,
    callback: Callable[[Floats, int], bool],
    prior: tuple[float, float],
    groups: Array,
    total: float,
) -> tuple[Minima, Floats, Floats]:
    """Weights and laws of the rates by turns, for one problem; gives also the posterior mean of each feature's rate and
    of the variance of its noise.

    The loss has to be concave in the variance for no turn to make the objective larger. The spread of the problem is
    not read, and its weights, which sum to 1, stand for ``total`` examples; ``groups`` says which rate is whose.
    """
    params, iterations = start, 0
    costs = _group_costs(problem, params, groups, total)
    while True:
        law = posterior(prior, costs)
        noisy = problem._replace(spread=law.variance[groups][:, None])
        value, slopes = noisy.objective(params)
        # Before the rates have settled, an exact minimum would be of no use.
        enough = max(tol, EASING * abs(slopes).max())
        found = noisy.search(params, enough, max_iter - iterations, callback)
        turn, params = int(found.n_iter[0]), found.points
        iterations += turn
        idle = turn == 0 or value - found.values <= ROUNDING * abs(value)
        if idle or not found.converged[0] or iterations >= max_iter:
            break
        costs = _group_costs(noisy, params, groups, total)
    found.n_iter[:], found.converged[:] = iterations, found.converged & (iterations < max_iter)
    values = found.values + law.divergence.sum() / total
    return found._replace(values=values), law.rate[groups], law.variance[groups]


def _group_costs(problem: Problem, params: Floats, groups: Array, total: float) -> Floats:
    """What a unit of variance costs each rate, in nats over all examples: sum_j c_j x_ji^2 w_i^2 dloss/dV_j."""
    costs = params[:-1] ** 2 * problem.sums(params)[2]
    return np.asarray(total * np.bincount(groups, weights=costs[:, 0]), np.float64)


def checked_groups(groups: Any, d: int) -> Array:
    """(d,) the number of the rate of each feature."""
    if groups is None:
        return np.arange(d)
    if isinstance(groups, str):
        return np.zeros(d, np.intp)
    given = np.asarray(groups)
    whole = given.shape == (d,) and np.issubdtype(given.dtype, np.integer)
    if not whole or given.min() < 0 or given.max() >= d:
        found = f" from {given.min()} to {given.max()}" if whole else ""
        raise ValueError(
            f"groups has shape {given.shape} and {given.dtype}{found}, but it takes one integer from 0 to {d - 1} for "
            f"each of the {d} features: the number of its group; None gives each its own rate, 'all' gives one to all"
        )
    return given.astype(np.intp)


class AdaptiveRateLogisticRegression(MarginalClassifier):
    r"""Logistic regression under dropout whose rates are inferred (Zhuo, Zhu and Zhang, 2015).

    Each feature i has a rate r_i with a Beta prior. A mask drops it with that chance, what is kept is divided by
    1 - r_i, and the label follows the score of what is left. Masks and rates are integrated out: for labels y = -1 or
    1, margins m = y (w.x + b) and n examples it minimises

    .. math:: \sum_j \log 2\cosh\tfrac12\sqrt{m_j^2 + V_j} - \tfrac12 m_j + \sum_i \mathrm{KL}(q(r_i) \| p(r_i)),
              \qquad V_j = \sum_i x_{ji}^2 w_i^2 \, \mathrm{E}_q \frac{r_i}{1 - r_i}

    over w, b and all laws q, plus n alpha / 2 ||w||^2. For alpha = 0 this is never less than the negative logarithm of
    the likelihood of the labels, whatever the noise (the bound of Jaakkola and Jordan, 2000).

    It goes by turns, and no turn makes the sum larger. Given the weights, the best law of a rate is its prior times
    exp(-s_i r / (1 - r)), where s_i is what the noise of feature i costs: a feature that the model relies on gets a low
    rate, one that it does not need stays at the prior. Given the laws, the weights are the minimum of a convex
    function, which L-BFGS finds. Several classes are learned one against the rest, each with rates of its own.

    Args:
        rate: what is believed before the data, in (0, 1): the noise has the variance of dropout at this rate.
        concentration: how firmly, at least 1; the prior is Beta(c rate, 1 + c (1 - rate)). A large one keeps the rate.
        groups: None: a rate for each feature. ``"all"``: one for all. (d,) integers from 0 on: one for each group.
        alpha: strength of the L2 penalty, beside the mean loss.
        fit_intercept: whether to fit b, which gets no noise and no penalty.
        max_iter: most iterations of L-BFGS, over all turns, for each class.
        tol: the search ends where new rates leave no entry of the gradient larger.
        class_weight: a dict of weights, or ``"balanced"``; they multiply ``sample_weight``. A weight counts examples.
        warm_start: start from the weights of the last fit, if it had the same classes and number of features.
        verbose: 1 draws a progress bar.

    Attributes:
        classes_: the labels, sorted.
        coef_, intercept_: w and b, a row for each class, or a single one for two classes.
        rate_: posterior mean of the rate of each feature, in the shape of ``coef_``.
        variance_: posterior mean of r / (1 - r), the variance of the noise, in the same shape.
        n_iter_, objective_: iterations, and the least value over the total weight of the examples, for each row.
        n_features_in_: number of features.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(500, 3))
        >>> model = AdaptiveRateLogisticRegression().fit(X, X[:, 0] + rng.normal(size=500) > 0)
        >>> model.rate_.round(2)  # at first 0.45, the mean of Beta(5, 6); one feature is needed
        array([[0.04, 0.45, 0.44]])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **LinearClassifier._parameter_constraints,
        "rate": [Interval(Real, 0, 1, closed="neither")],
        "concentration": [Interval(Real, 1, None, closed="left")],
        "groups": ["array-like", StrOptions({"all"}), None],
    }

    def __init__(
        self,
        *,
        rate: float = 0.5,
        concentration: float = 10.0,
        groups: Any = None,
        alpha: float = 0.0,
        fit_intercept: bool = True,
        max_iter: int = 1000,
        tol: float = 1e-6,
        class_weight: dict[Any, float] | str | None = None,
        warm_start: bool = False,
        verbose: int = 0,
    ) -> None:
        self.rate, self.concentration, self.groups = rate, concentration, groups
        self.alpha, self.fit_intercept, self.class_weight = alpha, fit_intercept, class_weight
        self.max_iter, self.tol, self.warm_start = max_iter, tol, warm_start
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Find the minimum. An example of weight 0 counts for nothing.

        Args:
            X: (n, d) array or sparse matrix.
            y: (n,) classes.
            sample_weight: (n,) weights, not negative.
        """
        return self._fit(X, y, sample_weight)

    def _search(self, problem: Problem, start: Floats, total: float, callback: Callable[[Floats, int], bool]) -> Minima:
        # Before any data, the variance of the noise, a / (b - 1) on average, is that of dropout at ``rate``.
        prior = self.concentration * self.rate, 1.0 + self.concentration * (1.0 - self.rate)
        groups = checked_groups(self.groups, self.n_features_in_)
        points, results = start.copy(), list[tuple[Minima, Floats, Floats]]()
        for column in range(start.shape[1]):  # each has rates of its own

            def step(point: Floats, _: int, column: int = column) -> bool:
                points[:, column] = point[:, 0]
                return callback(points, start.shape[1] - column)

            alone = problem.of(np.array([column])), start[:, [column]]
            results.append(infer_rates(*alone, self.tol, self.max_iter, step, prior, groups, total))
        found, rates, variances = zip(*results, strict=True)
        self.rate_, self.variance_ = np.stack(rates), np.stack(variances)
        return Minima(*(np.concatenate(parts, axis=-1) for parts in zip(*found, strict=True)))
