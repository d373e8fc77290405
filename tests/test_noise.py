from __future__ import annotations

import numpy as np
import pytest
import torch

from evodrop.definitions import (
    bernoulli_noise,
    expected_kept,
    keep_probabilities,
    multinomial_noise,
    n_draws,
    sampling_probabilities,
)
from evodrop.noise import (
    MATCHES,
    Noise,
    draws_for_kept,
    draws_for_noise,
    fill_to_level,
    keep_for_noise,
    make_noise,
    most_draws,
    normalised,
)

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


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
@pytest.mark.parametrize("k", [0.5, 3, 77.5, 199, 200, 1000])
def test_one_sort_fills_to_the_level_of_the_definition(kind, k):
    np.testing.assert_allclose(fill_to_level(kind(np.sqrt(MOMENTS)), k), keep_probabilities(MOMENTS, k), rtol=1e-12)


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_the_rows_of_the_table_are_the_dropouts_of_the_paper(kind):
    moments, d, k = kind(MOMENTS), 200, n_draws(200, 0.3)
    roots = moments**0.5
    cases = {
        "standard": (make_noise(None, moments, 0.3, independent=True), np.full(d, 0.7), None),
        "uniform": (make_noise(None, moments, 0.3), np.full(d, 1 / d), k),
        "data-dependent": (make_noise(roots, moments, 0.3), PROBS, k),
        "given k": (make_noise(roots, moments, 0.3, k=7), PROBS, 7),
        "water-filling": (make_noise(roots, moments, 0.3, independent=True), keep_probabilities(MOMENTS, k), None),
    }
    for name, (noise, chances, draws) in cases.items():
        assert isinstance(noise.chances, type(moments)), name
        np.testing.assert_allclose(noise.chances, chances, rtol=1e-12, err_msg=name)
        assert noise.k == draws, name


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
@pytest.mark.parametrize("independent", [False, True])
def test_a_match_gives_the_number_that_it_promises(kind, independent):
    moments = kind(MOMENTS)
    for given in (moments, moments * 1e300, None):  # in any unit; None: the squares of the weights
        noise = make_noise(moments**0.5, given, 0.3, match="noise", independent=independent)
        error = 0 if independent else 0.5 / int(noise.k)  # k is rounded
        growth = float((moments * noise.mean_square).sum() / moments.sum())
        assert growth - 1 == pytest.approx(0.3 / 0.7, rel=error + 1e-9)
    kept = make_noise(moments**0.5, moments, 0.3, match="distinct", independent=independent).survival.sum()
    assert float(kept) == pytest.approx(140, abs=1e-9 if independent else 0.5)


@pytest.mark.parametrize("match", MATCHES)
@pytest.mark.parametrize("independent", [False, True])
def test_rate_0_is_no_noise_and_rate_1_is_no_signal(match, independent):
    for rate, value in ((0, 1.0), (1, 0.0)):
        noise = make_noise(np.sqrt(MOMENTS), MOMENTS, rate, match=match, independent=independent)
        assert (noise.chances == value).all()
        assert noise.k is None
    assert make_noise(np.sqrt(MOMENTS), MOMENTS, 0.0, k=200).k == 200  # who wants the paper's k = d says so


@pytest.mark.parametrize("noise", [Noise(np.array([0.5, 0.3, 0.2, 0.0]), 3), Noise(np.array([0.5, 1.0, 0.2, 0.0]))])
def test_the_moments_of_a_noise_are_those_of_many_draws(noise):
    rng, size = np.random.default_rng(0), 400_000
    draws = (
        bernoulli_noise(noise.chances, size, rng)
        if noise.k is None
        else multinomial_noise(noise.chances, noise.k, size, rng)
    )
    for samples, expected in (
        (draws**2, noise.mean_square),
        (draws > 0, noise.survival),
        (draws[:, :1] * draws[:, 1:3], 1.0 - noise.shared),
    ):
        assert (abs(samples.mean(0) - expected) <= 5 * samples.std(0) / size**0.5 + 1e-12).all()
    assert noise.drawn.tolist() == [True, True, True, False]
    assert noise.scale[3] == noise.spread[3] == 0.0
    np.testing.assert_allclose(np.unique(draws[:, 2])[1], noise.scale[2])


def test_uniform_mix_bounds_probabilities_from_below_and_leaves_zeros():
    noise = make_noise(np.array([0.0, 1e-9, 1.0]), None, 0.5, uniform_mix=0.2)
    np.testing.assert_allclose(noise.chances, [0.0, 0.1, 0.9], rtol=1e-8)


@pytest.mark.parametrize("size", [1e308, 1e-308, 2.0**-1070])
@pytest.mark.parametrize("match", ["draws", "distinct", "noise"])
def test_weights_whose_sum_over_or_underflows_have_the_law_of_the_same_weights_scaled(size, match):
    usual = np.array([1.5, 0.5, 1.0, 0.0])
    found, expected = (make_noise(weights, None, 0.5, match=match) for weights in (usual * size, usual))
    np.testing.assert_allclose(found.chances, expected.chances, rtol=1e-15)
    assert found.k == expected.k


def test_nothing_to_draw_is_no_error():
    assert (make_noise(np.zeros(3), np.zeros(3), 0.5, match="noise").chances == 0).all()
    assert (normalised(np.zeros(3)) == 0).all()


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((MOMENTS, None, 1.5), {}, r"dropout rate is 1.5, but it takes a number in \[0, 1\]"),
        ((MOMENTS, None, 0.5), {"match": "units"}, "match is 'units', but it is one of 'draws', 'distinct', 'noise'"),
        ((MOMENTS, None, 0.5), {"k": 3, "match": "noise"}, "k is 3 and match is 'noise'"),
        ((MOMENTS, None, 0.5), {"k": 0}, "k is 0, but the number of draws is an integer from 1"),
        ((None, None, 0.5), {}, "weights and moments are both None"),
    ],
)
def test_bad_arguments_are_named(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        make_noise(*arguments, **options)


@pytest.mark.parametrize("independent", [False, True])
@pytest.mark.parametrize("match", MATCHES)
@pytest.mark.parametrize("weights", [np.ones(5), np.array([3.0, 1.0, 0.5, 0.0, 0.0]), np.array([1.0, 0.0])], ids=len)
def test_the_smallest_rates_have_a_noise(weights, match, independent):
    """1 / rate is infinite there, and 0 times infinity is nan."""
    for rate in (5e-324, 1e-320, 1e-300):
        noise = make_noise(weights, weights**2, rate, match=match, independent=independent)
        assert np.isfinite(noise.spread).all()
        assert noise.k is None or 1 <= noise.k <= most_draws(len(weights), rate)
        if match == "noise" and not independent and len(weights) == 5:
            assert noise.k == most_draws(5, rate)
