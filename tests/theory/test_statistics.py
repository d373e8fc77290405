"""Proposition 2 and Eq. 5 by enumeration and by Monte Carlo; Proposition 3 by trying to beat it."""

from __future__ import annotations

import numpy as np
import pytest
from enumeration import mean_over, random_cases
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import softmax

from evodrop.definitions import sampling_probabilities, second_moments
from evodrop.sampling import sample_counts
from evodrop.theory import (
    BernoulliNoise,
    MultinomialNoise,
    expected_squared_norm,
    expected_squared_norm_bernoulli,
    noise_covariance,
    noise_covariance_bernoulli,
)
from evodrop.theory.statistics import score_variances, squared_norm

CASES = random_cases(16)
MULTINOMIAL = MultinomialNoise([0.5, 0.3, 0.15, 0.05], 3)
BERNOULLI = BernoulliNoise([1.0, 0.7, 0.4, 0.1])
ROWS = np.array([[1.0, -2.0, 0.5, 0.1], [0.0, 1.0, 3.0, -0.2], [2.0, 0.0, -1.0, 0.0]])
SIZE = 200_000
SAMPLED = {
    "multinomial": (MULTINOMIAL, lambda: MULTINOMIAL.sample(SIZE, np.random.default_rng(1))),
    "fast sampler": (MULTINOMIAL, lambda: sample_counts(MULTINOMIAL.probs, 3, SIZE, seed=1) / (3 * MULTINOMIAL.probs)),
    "bernoulli": (BERNOULLI, lambda: BERNOULLI.sample(SIZE, np.random.default_rng(1))),
}


def norm_under(noise, moments):
    """The public function for the noise."""
    if isinstance(noise, MultinomialNoise):
        return expected_squared_norm(moments, noise.probs, noise.k)
    return expected_squared_norm_bernoulli(moments, noise.keep)


def covariance_under(noise, x):
    if isinstance(noise, MultinomialNoise):
        return noise_covariance(x, noise.probs, noise.k)
    return noise_covariance_bernoulli(x, noise.keep)


@pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case.noise))
def test_proposition_2_by_enumeration(case):
    moments = second_moments(case.X)
    slow = mean_over(case.noise, lambda value: ((case.X * value) ** 2).sum(axis=1).mean())
    assert norm_under(case.noise, moments) == pytest.approx(slow, rel=1e-10)
    assert squared_norm(moments, case.noise) == norm_under(case.noise, moments)


@pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case.noise))
def test_equation_5_by_enumeration(case):
    for x in case.X:
        slow = [
            [mean_over(case.noise, lambda e, i=i, j=j: x[i] * (e[i] - 1) * x[j] * (e[j] - 1)) for j in range(len(x))]  # noqa: B023
            for i in range(len(x))
        ]
        np.testing.assert_allclose(covariance_under(case.noise, x), slow, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("noise", "sampled"), SAMPLED.values(), ids=SAMPLED)
def test_proposition_2_by_monte_carlo(noise, sampled):
    rows = ROWS[np.random.default_rng(0).integers(len(ROWS), size=SIZE)]
    norms = ((rows * sampled()) ** 2).sum(axis=1)
    error = norms.std(ddof=1) / np.sqrt(SIZE)
    assert abs(norms.mean() - norm_under(noise, second_moments(ROWS))) < 4 * error
    assert error < 0.01 * norms.mean()  # so that a wrong formula would be seen


@pytest.mark.parametrize("x", ROWS, ids=str)
@pytest.mark.parametrize(("noise", "sampled"), SAMPLED.values(), ids=SAMPLED)
def test_equation_5_by_monte_carlo(noise, sampled, x):
    deviations = x * sampled() - x
    products = deviations[:, :, None] * deviations[:, None, :]
    errors = products.std(axis=0, ddof=1) / np.sqrt(SIZE)
    assert (abs(products.mean(axis=0) - covariance_under(noise, x)) <= 4 * errors).all()
    assert errors.max() < 0.02 * abs(products.mean(axis=0)).max()


@pytest.mark.parametrize("noise", [MULTINOMIAL, BERNOULLI], ids=repr)
@pytest.mark.parametrize(
    "kind",
    [
        sparse.coo_array,
        lambda x: sparse.csr_array(x[None]),
        lambda x: sparse.csc_array(x[None]),
        lambda x: sparse.csr_matrix(x[None]),
        lambda x: sparse.csr_array(x[:, None]),
    ],
    ids=["coo 1-d", "csr", "csc", "spmatrix", "column"],
)
def test_sparse_covariances_are_the_dense_ones(noise, kind):
    covariance = covariance_under(noise, kind(ROWS[1]))
    assert sparse.issparse(covariance)
    assert covariance.shape == (4, 4)
    np.testing.assert_allclose(covariance.toarray(), covariance_under(noise, ROWS[1]), rtol=1e-14)


def test_a_million_units_have_a_covariance():
    d, at = 10**6, np.array([3, 500_000, 999_999])
    x = sparse.coo_array((np.array([1.0, -2.0, 3.0]), (at,)), shape=(d,))
    covariance = noise_covariance(x, np.full(d, 1 / d), 7)
    assert covariance.shape == (d, d)
    small = np.diag(x.data**2 * d) / 7 - np.outer(x.data, x.data) / 7
    np.testing.assert_allclose(covariance[at][:, at].toarray(), small, rtol=1e-9)
    assert covariance.nnz < d + 10


@pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case.noise))
def test_the_variance_of_a_score_is_that_of_the_covariance(case):
    slow = [case.w @ covariance_under(case.noise, x) @ case.w for x in case.X]
    for X in (case.X, sparse.csr_array(case.X)):
        np.testing.assert_allclose(score_variances(case.w, X, case.noise), slow, rtol=1e-10, atol=1e-12)


UNEVEN = np.array([9.0, 4.0, 1.0, 0.25, 0.01, 1e-4])


def tries(optimum, number):
    """Probabilities from nearly one unit to nearly even, and small changes of the optimum."""
    rng, quarter = np.random.default_rng(3), number // 4
    yield from rng.dirichlet(np.full(len(optimum), 0.3), quarter) + 1e-9
    yield from rng.dirichlet(np.full(len(optimum), 1.0), quarter)
    yield from rng.dirichlet(1000.0 * optimum + 0.01, quarter) + 1e-12
    yield from optimum * np.exp(rng.normal(size=(quarter, len(optimum))) * 10.0 ** -rng.integers(1, 5, (quarter, 1)))


@pytest.mark.parametrize("k", [1, 4])
def test_proposition_3_no_probabilities_do_better(k):
    optimum = sampling_probabilities(UNEVEN)
    least = expected_squared_norm(UNEVEN, optimum, k)
    others = [expected_squared_norm(UNEVEN, probs / probs.sum(), k) for probs in tries(optimum, 10_000)]
    assert len(others) == 10_000
    assert min(others) > least
    assert min(others) < least * (1 + 1e-6)  # some came close


@pytest.mark.parametrize("k", [1, 4, 100])
def test_proposition_3_a_solver_finds_the_same(k):
    found = minimize(
        lambda z: np.log(expected_squared_norm(UNEVEN, softmax(z), k)), np.zeros(6), options={"gtol": 1e-9}
    )
    np.testing.assert_allclose(softmax(found.x), sampling_probabilities(UNEVEN), rtol=1e-3)
    assert np.exp(found.fun) == pytest.approx(expected_squared_norm(UNEVEN, sampling_probabilities(UNEVEN), k))


def test_what_is_too_large_for_a_float_is_infinite():
    assert expected_squared_norm([1e300, 1e300], [1 - 1e-10, 1e-10], 1) == np.inf
    assert expected_squared_norm_bernoulli([1e300], [1e-10]) == np.inf
