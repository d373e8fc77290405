from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.sparse import csr_array, csr_matrix

from evodrop.definitions import (
    bernoulli_noise,
    expected_kept,
    keep_probabilities,
    multinomial_noise,
    n_draws,
    sampling_probabilities,
    second_moments,
)

X = np.random.default_rng(0).normal(size=(50, 8)) * np.arange(8.0)


@pytest.mark.parametrize("kind", [np.asarray, csr_array, csr_matrix, torch.tensor])
def test_second_moments_are_the_same_for_every_kind_of_array(kind):
    moments = second_moments(kind(X))
    assert isinstance(moments, torch.Tensor if kind is torch.tensor else np.ndarray)
    np.testing.assert_allclose(moments, (X**2).sum(axis=0) / 50, rtol=1e-12)


def test_second_moments_of_float32_neither_overflow_nor_vanish():
    np.testing.assert_allclose(second_moments(np.array([[1e30, 1e-30]], np.float32)), [1e60, 1e-60], rtol=1e-6)


def test_second_moments_need_a_row():
    with pytest.raises(ValueError, match=r"shape \(0, 3\) has no rows"):
        second_moments(np.empty((0, 3)))


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_sampling_probabilities(kind):
    np.testing.assert_allclose(sampling_probabilities(kind(np.array([9.0, 1.0, 0.0]))), [0.75, 0.25, 0.0])


@pytest.mark.parametrize(
    ("moments", "message"),
    [
        ([-1.0, 1.0], r"moments\[0\] is -1.0"),
        ([1.0, np.nan], r"moments\[1\] is nan"),
        ([1.0, np.inf], r"moments\[1\] is inf"),
        ([0.0, 0.0], "all zero"),
        ([], r"shape \(0,\)"),
        ([[1.0]], r"shape \(1, 1\)"),
    ],
)
def test_bad_moments_are_named(moments, message):
    for kind in (np.array, torch.tensor):
        with pytest.raises(ValueError, match=message):
            sampling_probabilities(kind(moments))


@pytest.mark.parametrize(
    ("d", "rate", "k"), [(1152, 0.5, 576), (150, 0.5, 75), (3, 0.5, 2), (1, 0.99, 1), (10, 0.0, 10), (7, 0.25, 5)]
)
def test_n_draws_rounds_half_up_and_is_never_zero(d, rate, k):
    assert n_draws(d, rate) == k


@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5, float("nan"), "0.5", None])
def test_bad_rates_are_named(rate):
    with pytest.raises(ValueError, match=r"dropout rate is .* \[0, 1\)"):
        n_draws(10, rate)


@pytest.mark.parametrize("d", [0, -3, 2.5])
def test_bad_numbers_of_units_are_named(d):
    with pytest.raises(ValueError, match="number of units is an integer"):
        n_draws(d, 0.5)


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
@pytest.mark.parametrize("k", [0.5, 1, 3, 7.5, 19])
def test_keep_probabilities_sum_to_k_and_follow_the_moments(kind, k):
    scale = np.exp(np.random.default_rng(1).normal(size=20) * 3)
    keep = np.asarray(keep_probabilities(kind(scale**2), k))
    assert keep.sum() == pytest.approx(k)
    below = keep < 1
    ratios = (keep / scale)[below]
    np.testing.assert_allclose(ratios, ratios[0])  # min(1, t s_i) with one t for all
    assert (scale[~below] * ratios[0] >= 1).all()


def test_keep_probabilities_are_the_best_that_a_solver_finds():
    moments = np.array([9.0, 4.0, 1.0, 0.25, 0.01])
    found = minimize(
        lambda keep: (moments / keep).sum(),
        x0=np.full(5, 0.4),
        bounds=[(1e-6, 1)] * 5,
        constraints={"type": "eq", "fun": lambda keep: keep.sum() - 2},
        options={"ftol": 1e-12, "maxiter": 1000},
    )
    np.testing.assert_allclose(keep_probabilities(moments, 2), found.x, atol=1e-4)


def test_keep_probabilities_keep_all_that_is_ever_seen_when_k_is_large():
    np.testing.assert_array_equal(keep_probabilities(np.array([4.0, 0.0, 1e-200]), 3), [1, 0, 1])
    with pytest.raises(ValueError, match="k is 0"):
        keep_probabilities(np.ones(3), 0)


def test_expected_kept_by_counting():
    probs = np.array([0.6, 0.3, 0.1, 0.0])
    kept = (np.random.default_rng(0).multinomial(3, probs, size=200_000) > 0).sum(axis=1)
    assert abs(kept.mean() - expected_kept(probs, 3)) < 5 * kept.std() / len(kept) ** 0.5
    assert float(expected_kept(torch.tensor([1.0, 0.0]), 3)) == 1.0
    half_of_uniform = expected_kept(np.full(10**6, 1e-6), 500_000) / 10**6
    assert half_of_uniform == pytest.approx(1 - np.exp(-0.5), rel=1e-5)


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_noise_is_a_function_of_counts_that_sum_to_k(kind):
    probs = np.array([0.5, 0.2, 0.3, 0.0])
    noise = np.asarray(multinomial_noise(kind(probs), 7, 100, np.random.default_rng(0)))
    counts = noise * 7 * probs
    np.testing.assert_allclose(counts, counts.round(), atol=1e-12)
    np.testing.assert_allclose(counts.sum(axis=1), 7)
    kept = np.asarray(bernoulli_noise(kind(np.array([0.5, 1.0, 0.0])), 100, np.random.default_rng(0)))
    assert set(kept[:, 0]) == {0.0, 2.0}
    assert (kept[:, 1] == 1).all()
    assert (kept[:, 2] == 0).all()
