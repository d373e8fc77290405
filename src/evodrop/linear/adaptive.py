"""Logistic regression that infers its dropout rates from the data: no rate to tune, and one for each feature."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import OptimizeResult

from evodrop.linear.logistic import MarginalClassifier, Solver
from evodrop.linear.objectives import Floats, Loss, Noise, Problem, bound_loss, minimum, objective, spread_costs
from evodrop.linear.parameters import ADAPTIVE_PARAMETERS
from evodrop.linear.posterior import Prior, posterior, prior_of

__all__ = ["AdaptiveRateLogisticRegression", "infer_rates"]

Groups = npt.NDArray[np.intp]
EASING = 0.1  # what a turn leaves of the slope that it finds
ROUNDING = 64 * np.finfo(np.float64).eps


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
        n_jobs: number of threads, each with a class of its own.
        verbose: 1 prints a line for each class.

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

    _parameter_constraints = ADAPTIVE_PARAMETERS

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
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.rate, self.concentration, self.groups = rate, concentration, groups
        self.alpha, self.fit_intercept, self.class_weight = alpha, fit_intercept, class_weight
        self.max_iter, self.tol, self.warm_start = max_iter, tol, warm_start
        self.n_jobs, self.verbose = n_jobs, verbose

    def _law(self, moments: Floats) -> tuple[Noise, Loss]:
        return Noise(np.zeros_like(moments), 0.0), bound_loss  # each turn of the search has a noise of its own

    def _solver(self, total: float) -> Solver:
        groups = checked_groups(self.groups, self.n_features_in_)
        return partial(infer_rates, prior=prior_of(self.rate, self.concentration), groups=groups, total=total)

    def _keep(self, results: list[OptimizeResult]) -> None:
        super()._keep(results)
        self.rate_ = np.stack([result.rate for result in results])
        self.variance_ = np.stack([result.variance for result in results])


def infer_rates(
    problem: Problem,
    start: Floats,
    tol: float,
    max_iter: int,
    callback: Callable[[Floats], None] | None = None,
    *,
    prior: Prior,
    groups: Groups,
    total: float,
) -> OptimizeResult:
    """Weights and laws of the rates by turns; a result of SciPy with ``rate`` and ``variance`` of each feature.

    Args:
        problem: its loss has to be concave in the variance for no turn to make the objective larger; its noise is not
            read.
        start, tol, max_iter, callback: as in :func:`evodrop.linear.objectives.minimum`.
        prior: of every rate.
        groups: (d,) which rate is whose.
        total: the number of examples that the weights of the problem, which sum to 1, stand for.
    """
    params, iterations = start, 0
    costs = _group_costs(problem, params, np.zeros(len(start) - 1), groups, total)
    while True:
        found = posterior(prior, costs)
        variance = found.variance[groups]
        noisy = problem._replace(noise=Noise(variance, 0.0))
        value, slopes = objective(params, noisy)
        # Before the rates have settled, an exact minimum would be of no use.
        enough = max(tol, EASING * abs(slopes).max())
        result = minimum(noisy, params, enough, max_iter - iterations, callback)
        params, iterations = result.x, iterations + result.nit
        if result.nit == 0 or not result.success or iterations >= max_iter:
            break
        costs = _group_costs(problem, params, variance, groups, total)
    # A line search that fails since rounding hides all gain is at its end.
    result.success |= iterations < max_iter and value - result.fun <= ROUNDING * abs(value)
    result.nit, result.fun = iterations, result.fun + found.divergence.sum() / total
    result.rate, result.variance = found.rate[groups], variance
    return result


def _group_costs(problem: Problem, params: Floats, variance: Floats, groups: Groups, total: float) -> Floats:
    """What a unit of variance costs each rate, in nats over all examples."""
    costs = spread_costs(params, problem._replace(noise=Noise(variance, 0.0)))
    return np.asarray(total * np.bincount(groups, weights=costs), np.float64)


def checked_groups(groups: Any, d: int) -> Groups:
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
