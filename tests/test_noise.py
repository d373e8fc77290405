from __future__ import annotations

import numpy as np
import pytest
import torch

from evodrop.definitions import expected_kept, sampling_probabilities
from evodrop.noise import draws_for_kept, draws_for_noise, keep_for_noise, most_draws

RNG = np.random.default_rng(3)
MOMENTS = np.exp(RNG.normal(size=200))
PROBS = sampling_probabilities(MOMENTS)


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
@pytest.mark.parametrize("kept", [1, 20, 100, 180])
def test_draws_for_kept_is_the_closest_integer(kind, kept):
    k = int(draws_for_kept(kind(PROBS), kept, most_draws(200, 0.5)))
    error = [abs(expected_kept(PROBS, near) - kept) for near in (k - 1, k, k + 1)]
    assert error[1] == min(error)


def test_draws_for_kept_stops_at_the_ceiling_where_no_number_of_draws_would_do():
    probs = np.array([0.5, 0.5, 0.0, 0.0])
    assert draws_for_kept(probs, 3, most_draws(4, 0.25)) == most_draws(4, 0.25)


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
@pytest.mark.parametrize("rate", [0.05, 0.5, 0.9])
def test_draws_for_noise_give_the_noise_of_standard_dropout(kind, rate):
    k = float(draws_for_noise(kind(MOMENTS), kind(PROBS), rate, most_draws(200, rate)))
    s = np.sqrt(MOMENTS)
    by_formula = (s.sum() ** 2 - (s**2).sum()) * (1 - rate) / (rate * (s**2).sum())
    assert k == np.floor(by_formula + 0.5)
    growth = ((MOMENTS / PROBS).sum() - MOMENTS.sum()) / k  # Proposition 2
    assert growth == pytest.approx(MOMENTS.sum() * rate / (1 - rate), rel=0.5 / k + 1e-9)  # k is rounded by 1/2 at most


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
@pytest.mark.parametrize("rate", [0.05, 0.5, 0.9])
def test_keep_for_noise_gives_the_noise_of_standard_dropout(kind, rate):
    keep = np.asarray(keep_for_noise(kind(MOMENTS), kind(PROBS), rate))
    assert (MOMENTS / keep).sum() == pytest.approx(MOMENTS.sum() / (1 - rate))
    assert keep.max() <= 1
