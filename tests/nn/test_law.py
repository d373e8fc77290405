"""The law of every draw, through the layers, on both backends."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.chi_square import DRAWS, bernoulli_p_value, multinomial_p_value, none_rejected, random_cases

from evodrop.definitions import expected_kept, keep_probabilities, sampling_probabilities, second_moments
from evodrop.nn import (
    BernoulliDropout,
    EvolutionalDropout,
    EvolutionalDropout3d,
    MultinomialDropout,
    WaterFillingDropout,
)
from evodrop.noise import draws_for_kept, draws_for_noise, most_draws


def counts_of(output, probs, k):
    """Every draw's own law: noise * k * probs are integers that sum to k."""
    counts = output.double().numpy() * k * probs
    np.testing.assert_allclose(counts, counts.round(), atol=1e-4)
    return counts.round().astype(int)


@pytest.mark.parametrize("source", ["given probabilities", "second moments of the batch"])
def test_the_joint_distribution_is_multinomial(backend, source):
    p_values = []
    for case in random_cases():
        torch.manual_seed(case.seed)
        ones = torch.ones(DRAWS, len(case.probs))
        probs = torch.from_numpy(case.probs)
        if source == "given probabilities":
            noise = MultinomialDropout(probs=probs, k=case.k)(ones)
        else:  # rows x = p have second moments p^2, so their probabilities are p
            noise = EvolutionalDropout(k=case.k)(ones * probs.float())
            noise = torch.where(probs > 0, noise / probs.clamp(min=1e-30), 0.0)
        p_values.append(multinomial_p_value(counts_of(noise, case.probs, case.k), case.probs, case.k))
    assert none_rejected(p_values)


def test_shared_masks_have_the_joint_distribution_too(backend):
    """Channels of volumes: all positions of one have its counts, and those of a row are multinomial."""
    p_values = []
    for case in random_cases(6):
        torch.manual_seed(case.seed)
        probs = torch.from_numpy(case.probs).float()
        x = probs[:, None, None, None].expand(DRAWS, -1, 2, 1, 2)  # moments p^2, so probabilities p
        noise = EvolutionalDropout3d(k=case.k)(x)
        assert torch.equal(noise, noise[..., :1, :1, :1].expand_as(noise))
        noise = torch.where(probs > 0, noise[..., 0, 0, 0] / probs.clamp(min=1e-30), 0.0)
        p_values.append(multinomial_p_value(counts_of(noise, case.probs, case.k), case.probs, case.k))
        keep = 1.0 - 0.9 * case.probs
        kept = BernoulliDropout(keep=keep, shared_dims=1)(torch.ones(DRAWS, 3, len(keep))) > 0
        assert torch.equal(kept, kept[:, :1].expand_as(kept))
        p_values.append(bernoulli_p_value(kept[:, 0].numpy(), keep))
    assert none_rejected(p_values)


def test_water_filling_is_independent_with_its_keep_probabilities(backend):
    p_values = []
    for case in random_cases(20):
        torch.manual_seed(case.seed)
        keep = keep_probabilities(case.probs**2, case.k)
        ones = torch.ones(DRAWS, len(keep))
        probs = torch.from_numpy(case.probs)  # rows x = p have second moments p^2
        noise = WaterFillingDropout(k=case.k)(ones.double() * probs) / probs.where(probs > 0, 1.0)
        mask = noise.numpy() * keep
        np.testing.assert_allclose(mask, mask.round(), atol=1e-5)
        p_values.append(bernoulli_p_value(mask.round(), keep))
        p_values.append(bernoulli_p_value((BernoulliDropout(keep=keep)(ones) > 0).numpy(), keep))
    assert none_rejected(p_values)


def noise_at_1152(layer_for):
    """20 000 rows of noise from unequal units, with the probabilities that they should have."""
    scale = torch.from_numpy(np.random.default_rng(5).uniform(0.5, 2.0, size=1152))
    noise = layer_for(scale)(scale.repeat(20_000, 1)) / scale
    return noise.numpy(), sampling_probabilities(scale.numpy() ** 2)


def in_standard_errors(samples, expected):
    return (samples.mean(axis=0) - expected) / (samples.std(axis=0) / len(samples) ** 0.5)


def test_mean_is_1_and_covariance_is_that_of_equation_5(backend):
    noise, probs = noise_at_1152(lambda _: EvolutionalDropout(0.5))
    k = 576
    assert abs(in_standard_errors(noise, 1.0)).max() < 5
    centred = noise - 1.0
    assert abs(in_standard_errors(centred**2, (1 / probs - 1) / k)).max() < 5
    first, second = np.random.default_rng(6).integers(1152, size=(2, 2000))
    first, second = first[first != second], second[first != second]
    assert abs(in_standard_errors(centred[:, first] * centred[:, second], -1 / k)).max() < 5


def test_bernoulli_noise_has_mean_1_and_its_variance(backend):
    noise, _ = noise_at_1152(lambda _: BernoulliDropout(0.3))
    assert abs(in_standard_errors(noise, 1.0)).max() < 5
    assert abs(in_standard_errors((noise - 1.0) ** 2, 0.3 / 0.7)).max() < 5


def unequal_rows():
    x = torch.randn(4000, 100, dtype=torch.float64) * torch.linspace(0.1, 2, 100)
    moments = second_moments(x).numpy()
    return x, moments, sampling_probabilities(moments)


def within_5_standard_errors(samples, expected):
    return abs(samples.mean() - expected) < 5 * samples.std() / len(samples) ** 0.5


@pytest.mark.parametrize("make", [EvolutionalDropout, WaterFillingDropout])
@pytest.mark.parametrize("p", [0.2, 0.5, 0.8])
def test_matched_noise_is_that_of_standard_dropout(backend, make, p):
    x, moments, probs = unequal_rows()
    growth = (make(p, match="noise")(x).square() - x.square()).sum(1).numpy()
    if make is WaterFillingDropout:
        expected = moments.sum() * p / (1 - p)
    else:  # Proposition 2, with k rounded to an integer
        k = float(draws_for_noise(moments, probs, p, most_draws(100, p)))
        expected = ((moments / probs).sum() - moments.sum()) / k
    assert within_5_standard_errors(growth, expected)


@pytest.mark.parametrize("make", [EvolutionalDropout, WaterFillingDropout])
def test_matched_distinct_units_are_as_many_as_standard_dropout_keeps(backend, make):
    x, _, probs = unequal_rows()
    kept = (make(0.3, match="distinct")(x) != 0).sum(1).double().numpy()
    k = int(draws_for_kept(probs, 70, most_draws(100, 0.3)))
    assert within_5_standard_errors(kept, 70 if make is WaterFillingDropout else float(expected_kept(probs, k)))
