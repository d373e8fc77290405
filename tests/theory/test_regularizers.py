"""The outcomes of a noise, Proposition 1 by enumeration, Eq. 4 as its limit, and both bounds on random problems."""

from __future__ import annotations

from itertools import product
from math import comb, cosh, exp, log, log1p

import numpy as np
import pytest
from helpers.chi_square import bernoulli_p_value, multinomial_p_value, none_rejected
from helpers.enumeration import mean_over, random_cases
from helpers.enumeration import outcomes as slow_outcomes
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import expit, softmax

from evodrop.definitions import second_moments
from evodrop.noise import Noise
from evodrop.theory import (
    outcomes,
    regularizer,
    regularizer_bound,
    regularizer_taylor,
    regularizer_tight_bound,
    tight_probabilities,
)
from evodrop.theory import regularizers as module
from evodrop.theory.regularizers import n_outcomes, sample_noise, score_variances

CASES = random_cases(16)
MANY = random_cases(300)
all_cases = pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case.noise))


NOISES = [
    *[case.noise for case in CASES],
    Noise(np.array([1.0]), 3),
    Noise(np.array([0.0, 1.0, 0.0]), 2),
    Noise(np.array([0.25, 0.75]), 1),
    Noise(np.array([1.0])),
    Noise(np.array([0.0, 0.3])),
    Noise(np.array([1.0, 1.0, 1.0])),
]


def table(values, chances):
    """Rows of value and chance in a fixed order."""
    rows = np.column_stack([values, chances])
    return rows[np.lexsort(rows.T[::-1].round(9))]


@pytest.mark.parametrize("noise", NOISES, ids=repr)
def test_outcomes_are_those_of_a_slow_loop(noise):
    values, chances = outcomes(noise)
    assert values.shape == (n_outcomes(noise), len(noise.spread))
    np.testing.assert_allclose(table(values, chances), table(*zip(*slow_outcomes(noise), strict=True)), rtol=1e-12)
    assert chances.sum() == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("noise", NOISES, ids=repr)
def test_the_mean_is_1_and_the_covariance_follows_from_spread_and_shared(noise):
    values, chances = map(np.array, zip(*slow_outcomes(noise), strict=True))
    mean = chances @ values
    np.testing.assert_allclose(mean, noise.drawn, atol=1e-12)
    covariance = (values - mean).T @ ((values - mean) * chances[:, None])
    expected = np.diag(noise.spread) - noise.shared * np.outer(noise.drawn, noise.drawn)
    np.testing.assert_allclose(covariance, expected, rtol=1e-10, atol=1e-10)


def test_samples_follow_the_law():
    size, p_values = 100_000, []
    for seed, noise in enumerate(NOISES):
        sampled = sample_noise(noise, size, np.random.default_rng(seed))
        assert sampled.shape == (size, len(noise.spread))
        if noise.k is not None:
            counts = sampled * noise.k * noise.chances
            np.testing.assert_allclose(counts, counts.round(), atol=1e-9)
            p_values.append(multinomial_p_value(counts.round(), noise.chances, noise.k))
        else:
            np.testing.assert_allclose((sampled * noise.chances)[sampled > 0], 1.0, rtol=1e-12)
            p_values.append(bernoulli_p_value(sampled > 0, noise.chances))
    assert none_rejected(p_values)


@pytest.mark.parametrize("k", [1, 20, 400])
def test_probabilities_that_were_rounded_are_still_probabilities(k):
    """In float32 they sum to 1 only nearly; the chances of the outcomes and the mean do so fully."""
    rounded = np.array([0.1, 0.2, 0.7], np.float32)
    values, chances = outcomes(Noise(rounded / np.float32(1.0000004), k))
    assert chances.sum() == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose(chances @ values, 1.0, atol=1e-12)


def test_so_many_outcomes_that_nobody_counts_them_are_infinite():
    assert n_outcomes(Noise(np.full(10**5, 1e-5), 10**5)) == np.inf
    assert n_outcomes(Noise(np.full(10**5, 0.5))) == np.inf
    assert n_outcomes(Noise(np.full(20, 0.05), 20)) == comb(39, 19)
    assert n_outcomes(Noise(np.full(62, 0.5))) == 2**62


@pytest.mark.parametrize("noise", NOISES, ids=repr)
def test_the_units_that_survive_by_enumeration(noise):
    assert noise.survival.sum() == pytest.approx(mean_over(noise, np.count_nonzero), rel=1e-12)


def mean_loss(w, X, y):
    return np.mean([log1p(exp(-label * (w @ x))) for x, label in zip(X, y, strict=True)])


def mean_log_ratio(w, X, factor):
    """The right side of Proposition 1 for one value of the noise."""
    return np.mean([log(cosh(w @ (x * factor) / 2) / cosh(w @ x / 2)) for x in X])


@all_cases
def test_proposition_1_by_enumeration(case):
    w, X, noise = case
    right = mean_over(noise, lambda factor: mean_log_ratio(w, X, factor))
    for seed in range(3):  # whatever the labels
        y = np.random.default_rng(seed).choice([-1, 1], size=len(X))
        left = mean_over(noise, lambda factor: mean_loss(w, X * factor, y)) - mean_loss(w, X, y)  # noqa: B023
        assert left == pytest.approx(right, abs=1e-10)
    assert right >= -1e-15


@all_cases
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array, sparse.csc_matrix, sparse.coo_array])
def test_the_exact_regularizer_is_that_of_the_slow_loop(case, kind):
    w, X, noise = case
    slow = mean_over(noise, lambda factor: mean_log_ratio(w, X, factor))
    for method in ("exact", "auto"):
        value, error = regularizer(w, kind(X), noise, method=method)
        assert value == pytest.approx(slow, abs=1e-10)
        assert value >= 0
        assert error == 0


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("case", CASES[:4], ids=lambda case: repr(case.noise))
def test_the_sampled_regularizer_is_near_the_exact_one(case, kind):
    exact = regularizer(case.w, case.X, case.noise).value
    value, error = regularizer(case.w, kind(case.X), case.noise, method="sample", n_samples=20_000, random_state=1)
    assert abs(value - exact) < 4 * error
    assert 0 < error < 0.05 * exact
    assert regularizer(case.w, kind(case.X), case.noise, method="sample", n_samples=20_000, random_state=1)[0] == value


@pytest.mark.parametrize("case", CASES[:2], ids=lambda case: repr(case.noise))
def test_the_standard_error_is_right(case):
    """Over 200 seeds (value - exact) / error has mean 0 and variance 1, each within 4 standard errors of its own."""
    exact, rng = regularizer(case.w, case.X, case.noise).value, np.random.default_rng(0)
    estimates = np.array(
        [regularizer(case.w, case.X, case.noise, method="sample", random_state=rng) for _ in range(200)]
    )
    z = (estimates[:, 0] - exact) / estimates[:, 1]
    assert abs(z.mean()) < 4 * np.sqrt(1 / 200)
    assert abs((z**2).mean() - 1) < 4 * np.sqrt(2 / 200)  # a normal z has var(z^2) = 2


def test_little_noise_is_sampled_as_well_as_much():
    """The linear term is left out, so the standard error falls with the value, not with its root."""
    w, X, _ = CASES[2]
    for k in (10**2, 10**4, 10**6):
        noise = Noise(np.full(len(w), 1 / len(w)), k)
        value, error = regularizer(w, X, noise, method="sample", random_state=0)
        assert 0 < error < 0.1 * value


@pytest.mark.parametrize("method", ["exact", "sample"])
def test_portions_make_no_difference(monkeypatch, method):
    w, X, noise = CASES[2]
    whole = regularizer(w, X, noise, method=method, n_samples=100, random_state=0)
    monkeypatch.setattr(module, "CELLS", 7)
    np.testing.assert_allclose(
        regularizer(w, X, noise, method=method, n_samples=100, random_state=0), whole, rtol=1e-12
    )


def test_auto_samples_what_cannot_be_enumerated():
    d = 40
    X, noise = np.random.default_rng(0).normal(size=(5, d)), Noise(np.full(d, 1 / d), 20)
    auto = regularizer(np.ones(d), X, noise, random_state=0)
    assert auto == regularizer(np.ones(d), X, noise, method="sample", random_state=0)
    assert auto.standard_error > 0


def test_no_noise_adds_nothing_and_no_weights_feel_it():
    X = np.random.default_rng(0).normal(size=(7, 5))
    assert regularizer(np.ones(5), X, Noise(np.ones(5))).value == pytest.approx(0, abs=1e-15)
    assert regularizer(np.zeros(5), X, Noise(np.full(5, 0.3))).value == 0


def test_one_unit_that_is_always_drawn_has_no_noise():
    assert regularizer([3.0], [[2.0]], Noise([1.0], 4)) == (0.0, 0.0)


@pytest.mark.parametrize("size", [1e4, 1e8, 1e150])
def test_long_weights_do_not_overflow(size):
    """Far out log cosh(z / 2) is |z| / 2 - log 2."""
    X, noise, w = np.array([[3.0, -1.0]]), Noise([0.6, 0.4], 3), np.array([1.0, 2.0])
    far = mean_over(noise, lambda factor: abs(w @ (X[0] * factor))) - abs(w @ X[0])
    assert regularizer(w * size, X, noise).value == pytest.approx(size * far / 2, rel=1e-3)


def test_the_regularizer_is_never_negative_not_even_by_rounding():
    for (w, X, noise), size in product(MANY, (1e-9, 1e-6, 1e-3)):
        assert regularizer(w * size, X, noise).value >= 0


def printed_taylor(w, X, noise):
    """Eq. 4 with q = s(w.x / 2), as printed."""
    q = expit(X @ w / 2)
    return (q * (1 - q) * score_variances(w, X, noise)).mean() / 2


def test_equation_4_is_the_limit_of_the_regularizer_and_the_printed_q_is_not():
    """As k grows the noise shrinks. The third and fourth moments of a score are O(1 / k^2), its variance O(1 / k)."""
    X = np.array([[1.0, -0.5, 2.0], [0.3, 2.0, 0.0], [1.0, 1.0, 1.0]])
    w, draws = np.array([0.8, 1.0, 1.3]), [25, 50, 100, 200]
    noises = [Noise(np.array([0.3, 0.2, 0.5]), k) for k in draws]
    exact = np.array([regularizer(w, X, noise, method="exact").value for noise in noises])
    off = exact / [regularizer_taylor(w, X, noise) for noise in noises] - 1
    np.testing.assert_allclose(off[:-1] / off[1:], 2, rtol=0.1)  # O(1 / k)
    assert abs(off[-1]) < 0.02
    printed = exact / [printed_taylor(w, X, noise) for noise in noises]
    limit = regularizer_taylor(w, X, noises[-1]) / printed_taylor(w, X, noises[-1])
    assert limit < 0.8
    np.testing.assert_allclose(printed[-1], limit, rtol=0.02)


@all_cases
@pytest.mark.parametrize("size", [1.0, 0.1, 0.01])
def test_equation_4_misses_by_no_more_than_the_third_moment(case, size):
    """The remainder of Taylor: (log cosh(z / 2))''' is at most 1 / (6 sqrt 3)."""
    w, X, noise = case.w * size, case.X, case.noise
    third = mean_over(noise, lambda factor: (abs(X * (factor - 1) @ w) ** 3).mean())
    miss = regularizer(w, X, noise).value - regularizer_taylor(w, X, noise)
    assert abs(miss) <= third / (36 * np.sqrt(3)) + 1e-15


def test_the_bounds_hold():
    """Taylor <= tight <= loose, and, since (log cosh(z / 2))'' <= 1/4 everywhere, R itself <= tight."""
    above_taylor = 0
    for w, X, noise in MANY:
        tight = regularizer_tight_bound(w, X, noise)
        value, taylor = regularizer(w, X, noise).value, regularizer_taylor(w, X, noise)
        assert max(value, taylor) <= tight * (1 + 1e-12) + 1e-15
        assert tight <= regularizer_bound(w, second_moments(X), noise) * (1 + 1e-12) + 1e-15
        above_taylor += value > taylor
    assert 30 < above_taylor < 270  # Eq. 4 is no bound, neither way


@pytest.mark.parametrize("k", [4, None])
def test_the_tight_bound_is_tight_where_scores_are_0(k):
    w, probs = np.array([1.0, -1.0, 0.5]), np.array([0.5, 0.3, 0.2])
    X = np.array([[2.0, 2.0, 0.0], [1.0, 2.0, 2.0]])
    noise = Noise(probs, k)
    assert regularizer_taylor(w, X, noise) == pytest.approx(regularizer_tight_bound(w, X, noise), rel=1e-14)
    assert regularizer_tight_bound(w, X, noise) > 0.1


@pytest.mark.parametrize("noise", [Noise([0.5, 0.3, 0.2], 4), Noise([0.5, 0.3, 0.2])], ids=repr)
def test_the_loose_bound_is_tight_for_one_unit_and_weights_along_it(noise):
    X = np.array([[0.0, 3.0, 0.0], [0.0, -1.0, 0.0]])
    tight, loose = (regularizer_tight_bound([0, 2, 0], X, noise), regularizer_bound([0, 2, 0], [0, 5, 0], noise))
    assert tight == pytest.approx(loose, rel=1e-14)
    assert regularizer_tight_bound([1, 2, 0], X, noise) < regularizer_bound([1, 2, 0], [0, 5, 0], noise)


def test_the_loose_bound_is_tight_for_two_units_that_compete_for_every_draw():
    """What one has the other lacks, so the noise has one direction, and weights may lie along it."""
    noise, X = Noise([0.75, 0.25], 3), np.array([[2.0, 1.0]])
    w = [2.0 / 0.75, -1.0 / 0.25]
    assert regularizer_bound(w, X[0] ** 2, noise) == pytest.approx(regularizer_tight_bound(w, X, noise), rel=1e-14)


@pytest.mark.parametrize("k", [1, 7, 10**12])
def test_bounds_of_little_noise_keep_their_digits(k):
    noise = Noise([0.5, 0.5], k)
    assert regularizer_bound([1.0, 1.0], [1.0, 1.0], noise) == pytest.approx(2 * (4 - 2) / (8 * k), rel=1e-12, abs=0)


def test_tight_probabilities_minimise_the_tight_bound():
    rng = np.random.default_rng(4)
    w, X = np.array([1.0, -0.2, 3.0, 0.5]), rng.normal(size=(20, 4)) * [3.0, 1.0, 0.3, 1.0]
    optimum = tight_probabilities(w, second_moments(X))
    least = regularizer_tight_bound(w, X, Noise(optimum, 3))
    changes = rng.normal(size=(2000, 4)) * 10.0 ** -rng.integers(0, 5, (2000, 1))
    others = [regularizer_tight_bound(w, X, Noise(softmax(np.log(optimum) + z), 3)) for z in changes]
    assert least < min(others) < least * (1 + 1e-6)
    found = minimize(lambda z: regularizer_tight_bound(w, X, Noise(softmax(z), 3)), np.zeros(4))
    np.testing.assert_allclose(softmax(found.x), optimum, rtol=1e-3)


@pytest.mark.parametrize(
    ("size", "scale"),
    [(1.0, 1.0), (1e-200, 1.0), (1e200, 1e300), (1.0, 1e-300), (1e-200, 1e-300)],
)
def test_tight_probabilities_take_ratios_only(size, scale):
    w, moments = size * np.array([1.0, -3.0, 0.0]), scale * np.array([9.0, 1.0, 5.0])
    np.testing.assert_allclose(tight_probabilities(w, moments), [0.5, 0.5, 0.0])


def test_a_unit_without_weight_needs_no_probability():
    """Its noise is never felt: the tight bound takes the probabilities that minimise it."""
    w, X = np.array([1.0, 0.0, -1.0]), np.array([[1.0, 2.0, 3.0]])
    noise = Noise(tight_probabilities(w, X[0] ** 2), 2)
    assert regularizer_tight_bound(w, X, noise) == pytest.approx((1 / 0.25 + 9 / 0.75 - 4) / 16)
    slow = mean_over(noise, lambda factor: mean_log_ratio(w, X, factor))
    assert regularizer(w, X, noise).value == pytest.approx(slow, abs=1e-12)
