"""The noises as values: what they can be, how likely, and what they are on average."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from math import comb

import numpy as np
import pytest
from enumeration import outcomes, random_cases
from helpers.chi_square import bernoulli_p_value, multinomial_p_value, none_rejected

from evodrop.theory import BernoulliNoise, MultinomialNoise

NOISES = [
    *[case.noise for case in random_cases(16)],
    MultinomialNoise([1.0], 3),
    MultinomialNoise([0.0, 1.0, 0.0], 2),
    MultinomialNoise([0.25, 0.75], 1),
    BernoulliNoise([1.0]),
    BernoulliNoise([0.0, 0.3]),
    BernoulliNoise([1.0, 1.0, 1.0]),
]


def table(values, chances):
    """Rows of value and chance in a fixed order."""
    rows = np.column_stack([values, chances])
    return rows[np.lexsort(rows.T[::-1].round(9))]


@pytest.mark.parametrize("noise", NOISES, ids=repr)
def test_outcomes_are_those_of_a_slow_loop(noise):
    values, chances = noise.outcomes()
    assert values.shape == (noise.n_outcomes, len(noise.spread))
    np.testing.assert_allclose(table(values, chances), table(*zip(*outcomes(noise), strict=True)), rtol=1e-12)
    assert chances.sum() == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("noise", NOISES, ids=repr)
def test_the_mean_is_1_and_the_covariance_follows_from_spread_and_shared(noise):
    values, chances = map(np.array, zip(*outcomes(noise), strict=True))
    mean = chances @ values
    np.testing.assert_allclose(mean, noise.drawn, atol=1e-12)
    covariance = (values - mean).T @ ((values - mean) * chances[:, None])
    expected = np.diag(noise.spread) - noise.shared * np.outer(noise.drawn, noise.drawn)
    np.testing.assert_allclose(covariance, expected, rtol=1e-10, atol=1e-10)


def test_samples_follow_the_law():
    size, p_values = 100_000, []
    for seed, noise in enumerate(NOISES):
        sampled = noise.sample(size, np.random.default_rng(seed))
        assert sampled.shape == (size, len(noise.spread))
        if isinstance(noise, MultinomialNoise):
            counts = sampled * noise.k * noise.probs
            np.testing.assert_allclose(counts, counts.round(), atol=1e-9)
            p_values.append(multinomial_p_value(counts.round(), noise.probs, noise.k))
        else:
            np.testing.assert_allclose((sampled * noise.keep)[sampled > 0], 1.0, rtol=1e-12)
            p_values.append(bernoulli_p_value(sampled > 0, noise.keep))
    assert none_rejected(p_values)


@pytest.mark.parametrize("k", [1, 20, 400])
def test_probabilities_that_were_rounded_are_still_probabilities(k):
    """In float32 they sum to 1 only nearly; the chances of the outcomes and the mean do so fully."""
    rounded = np.array([0.1, 0.2, 0.7], np.float32)
    values, chances = MultinomialNoise(rounded / np.float32(1.0000004), k).outcomes()
    assert chances.sum() == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose(chances @ values, 1.0, atol=1e-12)


def test_so_many_outcomes_that_nobody_counts_them_are_infinite():
    assert MultinomialNoise(np.full(10**5, 1e-5), 10**5).n_outcomes == np.inf
    assert BernoulliNoise(np.full(10**5, 0.5)).n_outcomes == np.inf
    assert MultinomialNoise(np.full(20, 0.05), 20).n_outcomes == comb(39, 19)
    assert BernoulliNoise(np.full(62, 0.5)).n_outcomes == 2**62


def test_a_noise_is_a_value():
    noise = MultinomialNoise([0.5, 0.5], 2)
    with pytest.raises(FrozenInstanceError):
        noise.k = 3
    with pytest.raises(ValueError, match="read-only"):
        noise.probs[0] = 0.9
    assert repr(noise) == "MultinomialNoise(probs=array([0.5, 0.5]), k=2)"
    assert repr(BernoulliNoise([0.5, 1])) == "BernoulliNoise(keep=array([0.5, 1. ]))"


def test_a_noise_does_not_change_with_the_array_it_was_made_of():
    probs, keep = np.array([0.5, 0.5]), np.array([0.5, 0.5])
    multinomial, bernoulli = MultinomialNoise(probs, 2), BernoulliNoise(keep)
    probs[:], keep[:] = [0.9, 0.1], 0.9
    np.testing.assert_array_equal(multinomial.probs, 0.5)
    np.testing.assert_array_equal(bernoulli.keep, 0.5)
