from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate
from scipy.stats import beta

from evodrop.linear.posterior import Prior, posterior, prior_of

COSTS = np.array([1e-3, 0.1, 1.0, 30.0, 1e3])


def means(prior, cost):
    """The normaliser over the prior, the mean of r and of r / (1 - r), by adaptive quadrature in log v."""
    a, b = prior
    density = lambda t: np.exp(a * t - (a + b) * np.logaddexp(0, t) - cost * np.exp(t))  # noqa: E731
    ends = (-60 / min(a, 1.0), np.log(800 / cost))
    integral = lambda f: integrate.quad(f, *ends, epsabs=0, epsrel=1e-12, limit=2000, points=[-20, -5, 0])[0]  # noqa: E731
    total, start = integral(density), integrate.quad(lambda r: beta.pdf(r, a, b), 0, 1)[0]
    assert start == pytest.approx(1)
    rate = integral(lambda t: density(t) / (1 + np.exp(-t))) / total
    return total, rate, integral(lambda t: density(t) * np.exp(t)) / total


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("concentration", [1.0, 2.0, 10.0])
def test_means_and_divergence_are_integrals(rate, concentration):
    prior = prior_of(rate, concentration)
    found = posterior(prior, COSTS)
    for i, cost in enumerate(COSTS):
        total, mean_rate, variance = means(prior, cost)
        assert found.rate[i] == pytest.approx(mean_rate, rel=1e-6)
        assert found.variance[i] == pytest.approx(variance, rel=1e-6)
        evidence = total * beta(*prior).pdf(0.5) / 0.5 ** (sum(prior) - 2)  # the constant of the Beta law
        assert found.divergence[i] == pytest.approx(-cost * variance - np.log(evidence), rel=1e-6, abs=1e-9)


def test_what_costs_nothing_stays_at_the_prior():
    found = posterior(Prior(3.0, 5.0), np.zeros(2))
    np.testing.assert_array_equal(found.variance, [0.75, 0.75])
    np.testing.assert_allclose(found.rate, [0.375, 0.375], rtol=1e-9)
    np.testing.assert_array_equal(found.divergence, [0.0, 0.0])


@pytest.mark.parametrize("rate", [0.01, 0.3, 0.99])
def test_the_prior_has_the_noise_of_dropout_at_its_rate(rate):
    a, b = prior_of(rate, 7.0)
    assert a / (b - 1) == pytest.approx(rate / (1 - rate))


def test_what_costs_much_is_a_gamma_law():
    """For a large cost s only small v matter, where the density is v^(a - 1) exp(-(s + a + b) v)."""
    found = posterior(Prior(2.0, 3.0), np.array([1e6]))
    assert found.variance[0] == pytest.approx(2.0 / 1e6, rel=1e-4)


def test_the_slope_of_the_divergence_is_the_cost():
    """d KL / d E[v] = -s: so the turn of the rates solves its problem."""
    costs = np.array([4.999, 5.0, 5.001])
    found = posterior(prior_of(0.5, 4.0), costs)
    slope = np.diff(found.divergence[::2]) / np.diff(found.variance[::2])
    assert slope[0] == pytest.approx(-5.0, rel=1e-6)


def test_a_firm_prior_keeps_its_rate():
    found = posterior(prior_of(0.3, 1e9), np.array([0.0, 100.0]))
    np.testing.assert_allclose(found.variance, 3 / 7, rtol=1e-6)
    np.testing.assert_allclose(found.rate, 0.3, rtol=1e-6)
