"""Draws and the distinct units that survive them."""

from __future__ import annotations

import numpy as np
import pytest
from enumeration import mean_over, random_cases

from evodrop.theory import MultinomialNoise, expected_kept, matched_draws

NOISES = [case.noise for case in random_cases(8, kinds=(MultinomialNoise,))] + [MultinomialNoise([0.0, 1.0], 3)]
PROBS = {
    "even": np.full(40, 1 / 40),
    "uneven": np.arange(1, 13) ** -2.0 / (np.arange(1, 13) ** -2.0).sum(),
    "with zeros": np.array([0.5, 0.0, 0.3, 0.2, 0.0]),
    "two": np.array([0.99, 0.01]),
}


@pytest.mark.parametrize("noise", NOISES, ids=repr)
def test_expected_kept_by_enumeration(noise):
    slow = mean_over(noise, np.count_nonzero)
    assert expected_kept(noise.probs, noise.k) == pytest.approx(slow, rel=1e-12)


def test_expected_kept_of_few_and_of_very_many_draws():
    assert expected_kept([0.2, 0.8], 1) == pytest.approx(1.0, rel=1e-15)
    assert expected_kept([0.5, 0.5, 0.0], 10**15) == 2.0
    assert expected_kept(np.full(10**6, 1e-6), 500_000) == pytest.approx((1 - np.exp(-0.5)) * 10**6, rel=1e-6)


@pytest.mark.parametrize("probs", PROBS.values(), ids=PROBS)
def test_matched_draws_are_the_closest_of_all(probs):
    draws = np.arange(1, 20_001)
    kept = (1 - (1 - probs[:, None]) ** draws).sum(axis=0)
    most = (probs > 0).sum()
    for target in np.random.default_rng(0).uniform(0.01, most - 0.001, 50):
        assert matched_draws(probs, target) == draws[np.argmin(abs(kept - target))]


@pytest.mark.parametrize("probs", PROBS.values(), ids=PROBS)
def test_matched_draws_undo_expected_kept(probs):
    for k in (1, 2, 5, 17, 60):
        if (probs > 0).sum() - expected_kept(probs, k) > 1e-6:  # else one more draw is not seen in the digits
            assert matched_draws(probs, expected_kept(probs, k)) == k


def test_one_unit_is_kept_by_one_draw():
    assert matched_draws([1.0], 1) == matched_draws([1.0], 0.5) == matched_draws([0.0, 1.0], 1.0) == 1
