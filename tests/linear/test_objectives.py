"""What the logistic regressions minimise: values, gradients and approximations against sums over all noise."""

from __future__ import annotations

from itertools import product
from math import factorial

import numpy as np
import pytest
from scipy import integrate, sparse
from scipy.special import erfcx, expit

from evodrop._kernels.expected_loss import (
    BOUND,
    GAUSSIAN,
    MIDDLE,
    QUADRATIC,
    SCALE_WEIGHTS,
    SCALES,
    TAIL,
    expected_loss,
)
from evodrop.definitions import bernoulli_noise, multinomial_noise, sampling_probabilities, second_moments
from evodrop.linear._lbfgs import minima
from evodrop.linear.logistic import Problem
from evodrop.noise import Noise

RNG = np.random.default_rng(5)
N, D = 30, 7
X = RNG.normal(size=(N, D)) * (RNG.random((N, D)) < 0.6)
Y = RNG.choice([-1.0, 1.0], size=N)
WEIGHTS = RNG.random(N) / N
PROBS = sampling_probabilities(second_moments(X))
NOISES = {
    "multinomial": (Noise(PROBS, 3), QUADRATIC),
    "bernoulli": (Noise(np.full(D, 0.6)), QUADRATIC),
    "gaussian": (Noise(np.full(D, 0.6)), GAUSSIAN),
}


def problem_of(noise, loss, alpha=0.0, fit_intercept=True, X=X, labels=Y, weights=WEIGHTS):
    rows = sparse.csr_array(X), (labels > 0).astype(int), weights, np.zeros(len(weights)), np.array([1])
    return Problem(*rows, alpha, fit_intercept, noise.spread[:, None], shared=noise.shared, loss=loss)


def objective(params, problem):
    """Of a problem that is alone."""
    values, gradients = problem.objective(params[:, None])
    return values[0], gradients[:, 0]


def logistic(margin):
    return np.logaddexp(0.0, -margin)


FACTORS = abs(X) @ RNG.random(D)
VARIANTS = {
    "multinomial": {},
    "bernoulli": {},
    "gaussian": {},
    "per entry": {"row_factors": FACTORS},
    "half unlabelled": {"clean": RNG.choice([-0.02, 0.03, 0.0], size=N)},
    "the bound": {"loss": BOUND},
}


@pytest.mark.parametrize("alpha", [0.0, 0.3])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("name", VARIANTS)
def test_the_gradient_is_that_of_the_value(name, fit_intercept, alpha):
    problem = problem_of(*NOISES.get(name, NOISES["gaussian"]), alpha, fit_intercept)._replace(**VARIANTS[name])
    params = RNG.normal(size=D + 1)
    gradient = objective(params, problem)[1]
    step = 1e-3 * np.eye(D + 1)
    slopes = np.zeros(D + 1)
    for factor, weight in [(1, 3 / 4), (2, -3 / 20), (3, 1 / 60)]:  # central differences of the sixth order
        for i in range(D + 1):
            ahead, behind = (objective(params + sign * factor * step[i], problem)[0] for sign in (1, -1))
            slopes[i] += weight * (ahead - behind) / 1e-3
    if not fit_intercept:
        assert gradient[-1] == 0
        gradient, slopes = gradient[:-1], slopes[:-1]
    np.testing.assert_allclose(gradient, slopes, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["multinomial", "bernoulli"])
def test_the_quadratic_value_is_eq_4_with_the_covariance_of_eq_5(name):
    w, b, k = RNG.normal(size=D), 0.7, 3
    value = 0.0
    for x, y, c in zip(X, Y, WEIGHTS, strict=True):
        covariance = np.diag(x**2 / PROBS) / k - np.outer(x, x) / k
        if name == "bernoulli":
            covariance = np.diag(x**2 * 0.4 / 0.6)
        s = expit(w @ x + b)
        value += c * (logistic(y * (w @ x + b)) + 0.5 * s * (1 - s) * w @ covariance @ w)
    value += 0.5 * 0.2 * w @ w
    assert objective(np.append(w, b), problem_of(*NOISES[name], alpha=0.2))[0] == pytest.approx(value, rel=1e-13)


@pytest.mark.parametrize("name", ["multinomial", "bernoulli"])
def test_the_variance_is_that_of_the_noise(name):
    """Monte Carlo; the standard error of a variance comes from the fourth moment."""
    x, w, size = X[0] + 0.1, RNG.normal(size=D), 200_000
    draw = {"multinomial": lambda: multinomial_noise(PROBS, 3, size, np.random.default_rng(1))}
    draw["bernoulli"] = lambda: bernoulli_noise(np.full(D, 0.6), size, np.random.default_rng(1))
    deviations = (draw[name]() - 1.0) @ (w * x)
    spread, shared = NOISES[name][0].spread, NOISES[name][0].shared
    expected = spread @ (x * w) ** 2 - shared * (x @ w) ** 2
    error = (deviations**2).std() / np.sqrt(size)
    assert abs((deviations**2).mean() - expected) < 4 * error
    assert error < 0.01 * expected


def exact_loss(x, w, probs, k):
    """E log(1 + exp(-w.(x * noise))) by the sum over all counts."""
    total = 0.0
    for counts in product(range(k + 1), repeat=len(x) - 1):
        if sum(counts) <= k:
            m = np.array([*counts, k - sum(counts)])
            chance = factorial(k) / np.prod([float(factorial(i)) for i in m]) * np.prod(probs**m)
            total += chance * logistic(w @ (x * m / (k * probs)))
    return total


@pytest.mark.parametrize("loss", [QUADRATIC, GAUSSIAN])
def test_the_error_of_the_approximation_is_of_the_order_of_1_over_k_squared(loss):
    """The third and the fourth central moment of the score are both O(1 / k^2)."""
    x, w, probs = np.array([1.0, -0.5, 2.0]), np.array([0.8, 1.0, -0.3]), np.array([0.3, 0.2, 0.5])
    errors = {}
    for k in (20, 40, 80):
        noise = Noise(probs, k)
        problem = problem_of(noise, loss, X=x[None], labels=np.ones(1), weights=np.ones(1))
        exact = exact_loss(x, w, probs, k)
        errors[k] = objective(np.append(w, 0.0), problem)[0] - exact
    assert abs(errors[80]) < 0.05 * (exact - logistic(w @ x))  # against what the noise adds to the loss
    assert errors[20] / errors[40] == pytest.approx(4, rel=0.1)
    assert errors[40] / errors[80] == pytest.approx(4, rel=0.05)


@pytest.mark.parametrize("name", ["bernoulli", "gaussian"])
def test_the_value_is_the_mean_loss_under_bernoulli_noise(name):
    """Monte Carlo, at weights so small that the approximation is far better than the standard error."""
    w, size = RNG.normal(size=D) * 0.1, 200_000
    rng = np.random.default_rng(2)
    loss = sum(
        c * logistic(y * (bernoulli_noise(np.full(D, 0.6), size, rng) @ (x * w)))
        for x, y, c in zip(X, Y, WEIGHTS, strict=True)
    )
    value = objective(np.append(w, 0.0), problem_of(*NOISES[name]))[0]
    assert abs(loss.mean() - value) < 4 * loss.std() / np.sqrt(size)
    plain = objective(np.append(w, 0.0), problem_of(Noise(np.ones(D)), QUADRATIC))[0]
    assert value - plain > 20 * loss.std() / np.sqrt(size)  # so that the noise is seen at all


def test_the_scales_are_nodes_of_kolmogorovs_distribution():
    """Its density is 8 x sum_k (-1)^(k-1) k^2 exp(-2 k^2 x^2); in log x it is x times that."""
    x, k = np.geomspace(0.19, 3.6, 20), np.arange(1, 60)[:, None]
    mass = x * x * ((-1.0) ** (k - 1) * k**2 * np.exp(-2.0 * k**2 * x**2)).sum(axis=0)
    np.testing.assert_allclose(SCALES, 2.0 * x, rtol=1e-14)
    np.testing.assert_allclose(SCALE_WEIGHTS, mass / mass.sum(), rtol=1e-12, atol=1e-16)


def test_the_tail_is_a_polynomial_through_mills_ratio():
    t = np.cos(np.pi * (np.arange(64) + 0.5) / 64)
    ratio = MIDDLE * (1.0 + t) / (1.0 - t)
    values = (1.0 + ratio) * np.sqrt(0.5 * np.pi) * erfcx(ratio / np.sqrt(2.0))
    fitted = np.polynomial.chebyshev.chebfit(t, values, len(TAIL) - 1)
    np.testing.assert_allclose(np.polynomial.chebyshev.cheb2poly(fitted), TAIL, atol=1e-11)
    np.testing.assert_allclose(np.polynomial.polynomial.polyval(t, TAIL), values, rtol=1e-10)


@pytest.mark.parametrize("variance", [0.0, 1e-8, 0.01, 1.0, 10.0, 100.0, 1e4])
def test_the_gaussian_loss_is_the_integral(variance):
    margins = np.array([-50.0, -7.0, -1.0, 0.0, 0.3, 2.0, 9.0, 60.0])
    found = [expected_loss(GAUSSIAN, margin, variance, np.empty((3, len(SCALES)))) for margin in margins]
    value, slope, bend = np.transpose(found)
    if variance == 0:
        np.testing.assert_allclose(value, logistic(margins), atol=2e-11)
        np.testing.assert_allclose(slope, -expit(-margins), atol=2e-11)
        np.testing.assert_allclose(bend, expit(margins) * expit(-margins) / 2, atol=2e-11)
        return
    sigma = np.sqrt(variance)
    for i, m in enumerate(margins):

        def mean(f, m=m):
            kink = [-m / sigma] if abs(m / sigma) < 12 else None
            density = lambda t: f(m + sigma * t) * np.exp(-t * t / 2) / np.sqrt(2 * np.pi)  # noqa: E731
            return integrate.quad(density, -12, 12, points=kink, epsabs=1e-12, epsrel=1e-12, limit=500)[0]

        assert value[i] == pytest.approx(mean(logistic), rel=1e-11, abs=2e-11)
        assert slope[i] == pytest.approx(mean(lambda z: -expit(-z)), rel=1e-11, abs=2e-11)
        assert bend[i] == pytest.approx(mean(lambda z: expit(z) * expit(-z) / 2), rel=1e-11, abs=2e-11)


def test_the_gaussian_objective_is_convex():
    problem = problem_of(*NOISES["gaussian"])
    for _ in range(200):
        a, b = RNG.normal(size=(2, D + 1)) * 3
        (low, _), (high, _), (middle, _) = (objective(w, problem) for w in (a, b, (a + b) / 2))
        assert middle <= (low + high) / 2


def test_the_minimum_has_no_slope_and_can_be_stopped():
    problem = problem_of(*NOISES["gaussian"])
    found = problem.search(np.zeros((D + 1, 1)), 1e-7, 1000)
    assert found.converged.all()
    assert abs(objective(found.points[:, 0], problem)[1]).max() < 1e-7
    assert problem.search(np.zeros((D + 1, 1)), 1e-7, 1000, lambda *_: True).n_iter[0] == 1


def test_searches_share_their_evaluations_and_nothing_else():
    """Rosenbrock's valleys of several widths: not convex, and each takes a number of steps of its own."""
    widths, calls = np.array([1.0, 10.0, 100.0]), []

    def valleys(x, which):
        calls.append(which)
        a, b, width = *x, widths[which]
        bend = b - a * a
        return (1 - a) ** 2 + width * bend**2, np.stack([2 * (a - 1) - 4 * width * a * bend, 2 * width * bend])

    start = np.array([[-1.2] * 3, [1.0] * 3])
    found = minima(valleys, start, np.ones((2, 1)), 1e-9, 1000)
    np.testing.assert_allclose(found.points, 1.0, atol=1e-8)
    assert len(set(found.n_iter)) == 3
    assert len(calls) < 0.7 * sum(map(len, calls))
    for which in range(3):
        alone = minima(lambda x, _, which=which: valleys(x, [which]), start[:, :1], np.ones((2, 1)), 1e-9, 1000)
        np.testing.assert_array_equal(alone.points[:, 0], found.points[:, which])
        assert alone.n_iter[0] == found.n_iter[which]
