"""Monte Carlo dropout: which modules it switches on, that it is reproducible, and that test data move nothing."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from evodrop.nn import EvolutionalDropout, convert_dropout, mc_dropout, mc_predict


def network(dropout):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 40), nn.BatchNorm1d(40), nn.ReLU(), dropout, nn.Linear(40, 1)).eval()


def test_dropout_alone_is_switched_on_and_off_again_after_an_error():
    model = network(nn.Dropout(0.5))
    with mc_dropout(model):
        assert [module.training for module in model] == [False, False, False, True, False]
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), mc_dropout(model):
        model(torch.zeros(2, 4))
    assert not any(module.training for module in model.modules())


def test_the_seed_fixes_the_samples_and_the_global_generator_stays():
    model, inputs, state = network(nn.Dropout(0.5)), torch.randn(7, 5), None
    state = torch.get_rng_state()
    first, again, other = (mc_predict(model, inputs, samples=6, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first.samples, again.samples)
    assert not torch.equal(first.samples, other.samples)
    assert first.samples.shape == (6, 7, 1)
    torch.testing.assert_close(first.mean, first.samples.mean(0))
    torch.testing.assert_close(first.std, first.samples.std(0))


def test_mean_and_deviation_are_those_of_dropout():
    """One linear unit on ones: the mean is d, the variance d p / (1 - p); within 5 standard errors."""
    d, samples = 100, 4000
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(d, 1, bias=False)).eval()
    nn.init.ones_(model[1].weight)
    found = mc_predict(model, torch.ones(1, d), samples=samples)
    assert abs(float(found.mean) - d) < 5 * (d / samples) ** 0.5
    assert abs(float(found.std) ** 2 / d - 1) < 5 * (2 / samples) ** 0.5


def test_with_running_moments_an_example_has_the_same_deviation_alone_and_among_others():
    model = network(nn.Dropout(0.5))
    convert_dropout(model, "evolutional", momentum=0.1)
    model.train()
    for _ in range(30):
        model(torch.randn(64, 5))
    model.eval()
    kept = model[3].running_sums.clone()
    inputs, samples = 2.0 * torch.randn(240, 5), 2000
    alone = mc_predict(model, inputs[:1], samples=samples, seed=0).std
    among = mc_predict(model, inputs, samples=samples, seed=1).std[:1]
    assert torch.equal(model[3].running_sums, kept)
    assert not model[3].frozen
    # The standard error of a ratio of two independent deviations; 1.5 for tails heavier than the normal's.
    assert abs(float(among / alone) - 1.0) < 5 * 1.5 * (1 / samples) ** 0.5


def test_a_layer_without_running_moments_remembers_no_test_data():
    model = network(EvolutionalDropout(0.5, momentum=0.1))
    mc_predict(model, torch.randn(8, 5), samples=2)
    assert model[3].running_sums is None


def test_consistent_samples_are_functions():
    """Equal rows get equal values in every sample, whatever their batch; otherwise they do not."""
    model, row = network(nn.Dropout(0.5)), torch.randn(1, 5)
    found = mc_predict(model, row.expand(9, 5), samples=5, consistent=True, batch_size=4).samples
    assert torch.equal(found, found[:, :1].expand_as(found))
    assert float(found.std(0).min()) > 0
    mixed = mc_predict(model, row.expand(9, 5), samples=5).samples
    assert float(mixed.std(1).min()) > 0


@pytest.mark.parametrize(
    ("model", "options", "error"),
    [
        (nn.Sequential(nn.Linear(5, 1)), {}, "no dropout layer"),
        (nn.Sequential(nn.Dropout(0.5)), {"samples": 0}, "samples"),
        (nn.Sequential(EvolutionalDropout(0.5)), {"consistent": True}, "follows the batch"),
    ],
)
def test_what_is_wrong_is_a_sentence(model, options, error):
    with pytest.raises(ValueError, match=error):
        mc_predict(model, torch.ones(2, 5), **options)
