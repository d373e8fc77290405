"""What a linear model minimises when the noise is integrated out: pure functions of arrays.

Under dropout the score of an example is random, with mean z = w.x + b and a variance V that is quadratic in w. Its
expected logistic loss (Proposition 1) has no closed form. Two approximations need z and V only: the Taylor expansion of
Eq. (4), :func:`quadratic_loss`, and a normal score, :func:`gaussian_loss`. So does a bound, :func:`bound_loss`. The
rest is sparse products.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import pi, sqrt
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import OptimizeResult, minimize
from scipy.special import expit, log_expit, ndtr

from evodrop.definitions import n_draws
from evodrop.noise import draws_for_kept, draws_for_noise, most_draws

__all__ = [
    "Noise",
    "Problem",
    "bernoulli_variance",
    "bound_loss",
    "gaussian_loss",
    "matched_draws",
    "minimum",
    "multinomial_variance",
    "objective",
    "quadratic_loss",
    "spread_costs",
    "squared",
]

Floats: TypeAlias = npt.NDArray[np.float64]
Loss: TypeAlias = Callable[[Floats, Floats], tuple[Floats, Floats, Floats]]
MOST_CALLS = 2**31 - 1  # of the objective: the number of iterations is the limit


class Noise(NamedTuple):
    """The variance of a noisy score: V = sum_i spread_i x_i^2 w_i^2 - shared (w.x)^2."""

    spread: Floats  # (d,)
    shared: float


class Problem(NamedTuple):
    """One class against the rest."""

    X: sparse.csr_array
    squares: sparse.csr_array  # X squared, entry by entry
    labels: Floats  # (n,): 1 for the class, -1 for the rest
    weights: Floats  # (n,): they sum to 1
    noise: Noise
    loss: Loss
    alpha: float
    fit_intercept: bool


def objective(params: Floats, problem: Problem) -> tuple[float, Floats]:
    """sum_j c_j loss(y_j z_j, V_j) + alpha / 2 ||w||^2 and its gradient.

    Args:
        params: (d + 1,) the weights w and, last, the intercept b. It gets no noise and no penalty, and a gradient of 0
            where it is not to be fitted.
        problem: the examples and what is asked of them. Each call costs four products with a sparse matrix.

    Examples:
        >>> X = sparse.csr_array(np.array([[1.0, 0.0], [0.0, 2.0]]))
        >>> half = np.full(2, 0.5)
        >>> noise = bernoulli_variance(2, 0.5)
        >>> problem = Problem(X, squared(X), np.array([1.0, -1.0]), half, noise, quadratic_loss, 0.0, True)
        >>> value, gradient = objective(np.zeros(3), problem)
        >>> round(value, 4), gradient  # log 2 where every weight is zero
        (0.6931, array([-0.25,  0.5 ,  0.  ]))
    """
    X, squares, labels, weights, (spread, shared), loss, alpha, fit_intercept = problem
    w, b = params[:-1], params[-1]
    score = X @ w
    variance = squares @ (spread * w * w) - shared * score * score
    value, slope, bend = loss(labels * (score + b), variance)
    pull, push = weights * labels * slope, weights * bend  # by the mean and by the variance of each score
    gradient = np.empty_like(params)
    gradient[:-1] = X.T @ (pull - 2.0 * shared * push * score) + w * (2.0 * spread * (squares.T @ push) + alpha)
    gradient[-1] = pull.sum() if fit_intercept else 0.0
    return float(weights @ value + 0.5 * alpha * (w @ w)), gradient


def minimum(
    problem: Problem, start: Floats, tol: float, max_iter: int, callback: Callable[[Floats], None] | None = None
) -> OptimizeResult:
    """The minimum that L-BFGS reaches from ``start``; a callback may raise StopIteration to end the search.

    Examples:
        >>> X = sparse.csr_array(np.array([[1.0], [-1.0], [-1.0]]))
        >>> third = np.full(3, 1 / 3)
        >>> noise = bernoulli_variance(1, 0.5)
        >>> problem = Problem(X, squared(X), np.array([1.0, -1.0, 1.0]), third, noise, gaussian_loss, 0.0, False)
        >>> minimum(problem, np.zeros(2), 1e-9, 100).x.round(4)
        array([0.3497, 0.    ])
    """
    # The gradient decides where to end; ftol only stops a search that rounding keeps from any progress.
    options = {
        "gtol": tol,
        "ftol": 64 * np.finfo(np.float64).eps,
        "maxiter": max_iter,
        "maxfun": MOST_CALLS,
        "maxls": 50,
    }
    return minimize(objective, start, (problem,), "L-BFGS-B", jac=True, callback=callback, options=options)


def multinomial_variance(probs: Floats, k: float) -> Noise:
    """Eq. (5): the covariance of x * noise is diag(x_i^2 / p_i) / k - x x' / k. Units with p_i = 0 add nothing.

    Examples:
        >>> multinomial_variance(np.array([0.75, 0.25, 0.0]), 4)
        Noise(spread=array([0.33333333, 1.        , 0.        ]), shared=0.25)
    """
    drawn = probs > 0
    return Noise(np.where(drawn, 1.0 / (k * np.where(drawn, probs, 1.0)), 0.0), 1.0 / k)


def bernoulli_variance(d: int, rate: float) -> Noise:
    """Standard dropout: the covariance of x * noise is diag(x_i^2) rate / (1 - rate) (Wager et al., 2013).

    Examples:
        >>> bernoulli_variance(2, 0.75)
        Noise(spread=array([3., 3.]), shared=0.0)
    """
    return Noise(np.full(d, rate / (1.0 - rate)), 0.0)


def matched_draws(match: str, probs: Floats, moments: Floats, rate: float) -> int | None:
    """The number of draws that a match of :mod:`evodrop.noise` gives the rate; None where it is infinite.

    Examples:
        >>> even = np.full(100, 0.01)
        >>> [matched_draws(match, even, even, 0.5) for match in ("draws", "distinct", "noise")]
        [50, 69, 99]
    """
    if match == "draws":
        return n_draws(len(probs), rate)
    if rate == 0:
        return None
    most = most_draws(len(probs), rate)
    if match == "distinct":
        return int(draws_for_kept(probs, (probs > 0).sum() * (1.0 - rate), most))
    return int(draws_for_noise(moments, probs, rate, most))


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


def bound_loss(margin: Floats, variance: Floats) -> tuple[Floats, Floats, Floats]:
    """log 2 cosh(x / 2) - m / 2 with x = sqrt(m^2 + V), and its derivatives by m and by V (Jaakkola and Jordan, 2000).

    The logistic loss of a random margin of mean m and variance V is never more on average, whatever the law. It is
    convex in m and sqrt(V), so in the weights, and concave in V.

    Examples:
        >>> bound_loss(np.zeros(2), np.array([0.0, 100.0]))
        (array([0.69314718, 5.0000454 ]), array([-0.5, -0.5]), array([0.125     , 0.02499773]))
    """
    size = np.sqrt(margin * margin + variance)
    excess = np.where(margin > 0, variance / np.where(margin > 0, size + margin, 1.0), size - margin)  # size - margin
    ratio = np.where(size > 0, np.tanh(0.5 * size) / np.where(size > 0, 2.0 * size, 1.0), 0.25)
    return 0.5 * excess + np.log1p(np.exp(-size)), margin * ratio - 0.5, 0.5 * ratio


def spread_costs(params: Floats, problem: Problem) -> Floats:
    """(d,): the derivative of the objective by the spread of each feature, sum_j c_j x_ji^2 w_i^2 dloss/dV_j."""
    X, squares, labels, weights, (spread, shared), loss, *_ = problem
    w = params[:-1]
    score = X @ w
    variance = squares @ (spread * w * w) - shared * score * score
    bend = loss(labels * (score + params[-1]), variance)[2]
    return np.asarray(w * w * (squares.T @ (weights * bend)))


def squared(X: sparse.csr_array) -> sparse.csr_array:
    """X squared, entry by entry; it shares the indices of X."""
    return sparse.csr_array((X.data * X.data, X.indices, X.indptr), shape=X.shape)


@cache
def _scales() -> tuple[Floats, Floats]:
    """Scales t and their weights: t / 2 has Kolmogorov's distribution, 8 x sum_k (-1)^(k-1) k^2 exp(-2 k^2 x^2).

    The trapezoidal rule in log x converges geometrically: the density vanishes faster than any power at both ends.
    """
    x = np.geomspace(0.2, 3.5, 18)
    k = np.arange(1, 60)[:, None]
    mass = x * x * ((-1.0) ** (k - 1) * k**2 * np.exp(-2.0 * k**2 * x**2)).sum(axis=0)
    return 2.0 * x, mass / mass.sum()
