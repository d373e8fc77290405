"""Proposition 2 and Eq. 5 by enumeration and Monte Carlo, Proposition 3 by trials, Theorem 1 by simulation."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from helpers.enumeration import mean_over, random_cases
from helpers.simulation import MOMENTS, SLOPE, descend, least_risk, noisy_risk
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import softmax

from evodrop.definitions import keep_probabilities, sampling_probabilities, second_moments
from evodrop.noise import Noise
from evodrop.sampling import sample_counts
from evodrop.theory import bound_step_size, noise_covariance, noise_gap, noises_for, risk_bound, squared_norm
from evodrop.theory.regularizers import sample_noise, score_variances

CASES = random_cases(16)
MULTINOMIAL = Noise(np.array([0.5, 0.3, 0.15, 0.05]), 3)
BERNOULLI = Noise(np.array([1.0, 0.7, 0.4, 0.1]))
ROWS = np.array([[1.0, -2.0, 0.5, 0.1], [0.0, 1.0, 3.0, -0.2], [2.0, 0.0, -1.0, 0.0]])
SIZE = 200_000
SAMPLED = {
    "multinomial": (MULTINOMIAL, lambda: sample_noise(MULTINOMIAL, SIZE, np.random.default_rng(1))),
    "fast sampler": (
        MULTINOMIAL,
        lambda: sample_counts(MULTINOMIAL.chances, 3, SIZE, seed=1) / (3 * MULTINOMIAL.chances),
    ),
    "bernoulli": (BERNOULLI, lambda: sample_noise(BERNOULLI, SIZE, np.random.default_rng(1))),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case.noise))
def test_proposition_2_by_enumeration(case):
    moments = second_moments(case.X)
    slow = mean_over(case.noise, lambda value: ((case.X * value) ** 2).sum(axis=1).mean())
    assert squared_norm(moments, case.noise) == pytest.approx(slow, rel=1e-10)


@pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case.noise))
def test_equation_5_by_enumeration(case):
    for x in case.X:
        slow = [
            [mean_over(case.noise, lambda e, i=i, j=j: x[i] * (e[i] - 1) * x[j] * (e[j] - 1)) for j in range(len(x))]  # noqa: B023
            for i in range(len(x))
        ]
        np.testing.assert_allclose(noise_covariance(x, case.noise), slow, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("noise", "sampled"), SAMPLED.values(), ids=SAMPLED)
def test_proposition_2_by_monte_carlo(noise, sampled):
    rows = ROWS[np.random.default_rng(0).integers(len(ROWS), size=SIZE)]
    norms = ((rows * sampled()) ** 2).sum(axis=1)
    error = norms.std(ddof=1) / np.sqrt(SIZE)
    assert abs(norms.mean() - squared_norm(second_moments(ROWS), noise)) < 4 * error
    assert error < 0.01 * norms.mean()  # so that a wrong formula would be seen


@pytest.mark.parametrize("x", ROWS, ids=str)
@pytest.mark.parametrize(("noise", "sampled"), SAMPLED.values(), ids=SAMPLED)
def test_equation_5_by_monte_carlo(noise, sampled, x):
    deviations = x * sampled() - x
    products = deviations[:, :, None] * deviations[:, None, :]
    errors = products.std(axis=0, ddof=1) / np.sqrt(SIZE)
    assert (abs(products.mean(axis=0) - noise_covariance(x, noise)) <= 4 * errors).all()
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
    covariance = noise_covariance(kind(ROWS[1]), noise)
    assert sparse.issparse(covariance)
    assert covariance.shape == (4, 4)
    np.testing.assert_allclose(covariance.toarray(), noise_covariance(ROWS[1], noise), rtol=1e-14)


def test_a_million_units_have_a_covariance():
    d, at = 10**6, np.array([3, 500_000, 999_999])
    x = sparse.coo_array((np.array([1.0, -2.0, 3.0]), (at,)), shape=(d,))
    covariance = noise_covariance(x, Noise(np.full(d, 1 / d), 7))
    assert covariance.shape == (d, d)
    small = np.diag(x.data**2 * d) / 7 - np.outer(x.data, x.data) / 7
    np.testing.assert_allclose(covariance[at][:, at].toarray(), small, rtol=1e-9)
    assert covariance.nnz < d + 10


@pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case.noise))
def test_the_variance_of_a_score_is_that_of_the_covariance(case):
    slow = [case.w @ noise_covariance(x, case.noise) @ case.w for x in case.X]
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
    least = squared_norm(UNEVEN, Noise(optimum, k))
    others = [squared_norm(UNEVEN, Noise(probs / probs.sum(), k)) for probs in tries(optimum, 10_000)]
    assert len(others) == 10_000
    assert min(others) > least
    assert min(others) < least * (1 + 1e-6)  # some came close


@pytest.mark.parametrize("k", [1, 4, 100])
def test_proposition_3_a_solver_finds_the_same(k):
    found = minimize(lambda z: np.log(squared_norm(UNEVEN, Noise(softmax(z), k))), np.zeros(6), options={"gtol": 1e-9})
    np.testing.assert_allclose(softmax(found.x), sampling_probabilities(UNEVEN), rtol=1e-3)
    assert np.exp(found.fun) == pytest.approx(squared_norm(UNEVEN, Noise(sampling_probabilities(UNEVEN), k)))


def test_what_is_too_large_for_a_float_is_infinite():
    assert squared_norm([1e300, 1e300], Noise([1 - 1e-10, 1e-10], 1)) == np.inf
    assert squared_norm([1e300], Noise([1e-10])) == np.inf


BY_NORM = ("none", "water-filling", "data-dependent", "standard", "uniform")  # from the least B^2 to the largest
HERE = noises_for(MOMENTS, 0.5)
B = {name: squared_norm(MOMENTS, noise) ** 0.5 for name, noise in HERE.items()}
SHORT, LONG = (0.1, 25), (4.0, 200)  # r, n
every_noise = pytest.mark.parametrize("name", HERE)


@cache
def simulated(name, r, n, seed):
    return descend(HERE[name], bound_step_size(1.0, B[name], r, n), n, seed)


@cache
def best_weights(name, r):
    best, gap = least_risk(HERE[name], r)
    assert gap < 1e-6 * r
    return best


@cache
def excesses(name, r, n, seed):
    """L + R of the averaged iterate of each run, less the least within ||w|| <= r."""
    least = noisy_risk(best_weights(name, r), HERE[name])
    return noisy_risk(simulated(name, r, n, seed).average, HERE[name]) - least


def mean_and_error(values):
    return values.mean(), values.std(ddof=1) / np.sqrt(len(values))


@every_noise
def test_lemma_1_on_every_run(name):
    """sum_t g_t.(w_t - w*) <= r^2 / (2 eta) + eta / 2 sum_t ||g_t||^2, whatever was drawn and for any ||w*|| <= r."""
    r, n = LONG
    runs, step = simulated(name, r, n, 0), bound_step_size(1.0, B[name], r, n)
    directions = np.random.default_rng(5).normal(size=(50, 8))
    lengths = np.random.default_rng(6).choice([0.0, 0.5, 1.0], size=(50, 1))
    for best in [best_weights(name, r), *directions / np.linalg.norm(directions, axis=1)[:, None] * r * lengths]:
        left = runs.products - runs.gradients @ best
        assert (left <= r**2 / (2 * step) + step / 2 * runs.squares + 1e-9).all()
        # What the lemma leaves out: how far the last iterate is from w*, and how far within the ball w* is.
        lost = ((runs.last - best) ** 2).sum(axis=1) + r**2 - best @ best
        np.testing.assert_allclose(left, (r**2 - lost) / (2 * step) + step / 2 * runs.squares, atol=1e-8)


@every_noise
@pytest.mark.parametrize(("r", "n"), [SHORT, LONG, (1.0, 100)])
def test_theorem_1_bounds_the_mean_excess(name, r, n):
    mean, error = mean_and_error(excesses(name, r, n, 0))
    assert mean + 4 * error < risk_bound(1.0, B[name], r, n)


@pytest.mark.parametrize("seed", range(4))
def test_short_weights_the_excess_has_the_order_of_b(seed):
    """While ||w|| <= r is short, R is next to nothing: all noises seek the same weights, and B alone decides.

    The next in the order of B^2 is worse by more than 4 standard errors, on the same examples, whatever the seed.
    """
    assert sorted(HERE, key=B.get) == list(BY_NORM)
    for less, more in pairwise(BY_NORM):
        mean, error = mean_and_error(excesses(more, *SHORT, seed) - excesses(less, *SHORT, seed))
        assert mean > 4 * error


@every_noise
def test_short_weights_the_excess_is_predicted(name):
    """To first order in r the loss is a line of slope g. The least is -r ||g||; the iterates walk along g at a step of
    r / (B sqrt(n)), and their average has taken (n - 1) / 2 steps: r ||g|| (1 - (n - 1) ||g|| / (2 B sqrt(n))) is left.
    """
    r, n, slope = 1e-4, 25, np.linalg.norm(SLOPE)
    mean, error = mean_and_error(excesses(name, r, n, 0))
    assert abs(mean - r * slope * (1 - (n - 1) * slope / (2 * B[name] * np.sqrt(n)))) < 4 * error
    assert error < 0.05 * mean


def test_long_weights_the_excess_has_not_the_order_of_b():
    """Theorem 1 compares each noise with its own L + R. That of much noise is flat, and its least is near the start.

    Here the order is even the reverse: the bound is no forecast.
    """
    for less, more in pairwise(BY_NORM):
        mean, error = mean_and_error(excesses(more, *LONG, 0) - excesses(less, *LONG, 0))
        assert mean < -4 * error
    lengths = [np.linalg.norm(best_weights(name, LONG[0])) for name in BY_NORM]
    assert lengths[0] == pytest.approx(LONG[0])
    assert lengths[-1] < 1.5


@pytest.mark.parametrize(("G", "b", "r", "n"), [(1.0, 2.0, 3.0, 100), (0.5, 10.0, 0.1, 7), (3.0, 1e-3, 1e3, 1)])
def test_the_step_is_the_one_of_least_bound(G, b, r, n):
    step = bound_step_size(G, b, r, n)
    steps = step * np.geomspace(0.01, 100, 100_001)  # the middle one is the step itself
    bounds = r**2 / (2 * steps * n) + steps * G**2 * b**2 / 2
    assert np.argmin(bounds) == 50_000
    assert bounds.min() == pytest.approx(risk_bound(G, b, r, n), rel=1e-12, abs=0)


RNG = np.random.default_rng(8)
MANY_MOMENTS = [np.exp(RNG.normal(size=d) * spread) for d in (1, 2, 5, 30) for spread in (0.0, 1.0, 4.0)]
MANY_MOMENTS.append(np.array([4.0, 0.0, 1.0, 0.0]))
all_moments = pytest.mark.parametrize("moments", MANY_MOMENTS, ids=lambda moments: f"d={len(moments)}")


@all_moments
def test_water_filling_is_never_worse_than_multinomial_noise(moments):
    rng, total = np.random.default_rng(9), moments.sum()
    probs, drawn = sampling_probabilities(moments), (moments > 0).sum()
    for k in range(1, 2 * len(moments) + 1):
        keep = keep_probabilities(moments, k)
        quiet = squared_norm(moments, Noise(keep))
        gain = squared_norm(moments, Noise(probs, k)) - quiet
        assert -1e-12 * quiet <= gain <= (k - 1) / k * total + 1e-12 * quiet
        if k == 1 or drawn == 1:  # the same noise in the mean square
            assert gain == pytest.approx(0, abs=1e-12 * quiet)
        if k > 1 and (keep < 1).all():  # no unit is kept for certain: all of it is gained
            assert gain == pytest.approx((k - 1) / k * total, rel=1e-9)
        for other in rng.dirichlet(np.ones(len(moments)), 5) * (moments > 0):
            assert quiet <= squared_norm(moments, Noise(other / other.sum(), k)) * (1 + 1e-12)


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.5, 0.9])
@all_moments
def test_the_gap_by_its_closed_form(moments, rate):
    """B^2 / E||x||^2 is 1 + (d evenness - 1) / k, 1 + (d - 1) / k and 1 / (1 - rate)."""
    d, gap = len(moments), noise_gap(moments, rate)
    k = max(1, int(d * (1 - rate) + 0.5))
    evenness = np.sqrt(moments).sum() ** 2 / (d * moments.sum())
    assert gap.evenness == pytest.approx(evenness, rel=1e-12)
    data_dependent = 1 + (d * evenness - 1) / k
    quiet = squared_norm(moments, Noise(keep_probabilities(moments, k))) / moments.sum()
    uniform, standard = 1 + (d - 1) / k, 1 / (1 - rate)
    expected = (uniform / data_dependent, standard / data_dependent, uniform / quiet, standard / quiet)
    np.testing.assert_allclose(gap[:4], expected, rtol=1e-12)
    assert min(gap.data_dependent_over_uniform, gap.water_filling_over_uniform) >= 1 - 1e-12
    if k >= d * (1 - rate):  # else k was rounded down, and standard dropout keeps more units
        assert gap.water_filling_over_standard >= 1 - 1e-12


def test_the_gap_needs_no_scale():
    moments = np.array([9.0, 4.0, 1.0, 0.0])
    for scale in (1e-290, 1e290):
        np.testing.assert_allclose(noise_gap(moments * scale), noise_gap(moments), rtol=1e-12)


def test_z_normalised_data_have_uniform_probabilities():
    X = np.random.default_rng(0).gamma(2.0, size=(200, 30)) * np.arange(1, 31)
    moments = second_moments((X - X.mean(axis=0)) / X.std(axis=0))
    np.testing.assert_allclose(sampling_probabilities(moments), 1 / 30, rtol=1e-12)
    gap = noise_gap(moments)
    assert gap.data_dependent_over_uniform == pytest.approx(1.0, rel=1e-12)
    assert gap.evenness == pytest.approx(1.0, rel=1e-12)
    assert noise_gap(second_moments(X)).data_dependent_over_uniform > 1.1


def test_a_norm_that_no_float_can_hold_is_infinite():
    """Without a warning, which would be an error here."""
    assert squared_norm([1e308, 1e308], Noise([0.5, 0.5], 2)) == np.inf
