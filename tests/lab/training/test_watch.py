from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import tiny
from torch import nn

from evodrop.definitions import n_draws, sampling_probabilities, second_moments
from evodrop.lab.methods import METHODS, USUAL
from evodrop.lab.training.network import layer_statistics, watch_dropout
from evodrop.nn import BernoulliDropout, EvolutionalDropout, EvolutionalDropout2d, MultinomialDropout

NOISY = [method for method in USUAL if method not in ("none", "batchnorm")]


def make_dropout(method, rate=0.5, match="draws"):
    """The layer of a method, as the small network has it."""
    return tiny.network(method, rate=rate, match=match)[2]


def activations(n=64, d=40, seed=0):
    """Of uneven units, the first four of which are dead."""
    x = (torch.randn(n, d, generator=torch.Generator().manual_seed(seed)).abs() + 0.1) * torch.linspace(0.1, 3, d)
    x[:, :4] = 0
    return x


def within_five_errors(draws, expected):
    return abs(draws.mean() - expected) < 5 * draws.std() / len(draws) ** 0.5 + 1e-5 * expected  # six digits are kept


@pytest.mark.parametrize("match", ["draws", "distinct", "noise"])
@pytest.mark.parametrize("method", NOISY)
def test_noise_and_kept_units_are_those_of_many_draws(method, match):
    torch.manual_seed(0)
    layer, x = make_dropout(method, 0.3, match), activations()
    seen = layer_statistics("layer", layer, x)
    draws = torch.stack([layer(x) for _ in range(400)]).double()
    standard = x.double().square().sum() / (1 - 0.3)
    assert within_five_errors(draws.square().sum((1, 2)) / standard, seen["noise"])
    assert within_five_errors((draws[:, :, 4:] != 0).sum(2).double().mean(1), seen["kept"])


def test_the_numbers_by_their_definition():
    x = activations()
    probs = sampling_probabilities(second_moments(x)).numpy()
    seen = layer_statistics("fc1", EvolutionalDropout(0.5), x)
    assert (seen["name"], seen["units"], seen["dead"]) == ("fc1", 40, 4)
    assert seen["effective"] == pytest.approx(1 / (probs**2).sum(), rel=1e-5)
    assert seen["probs"] == pytest.approx(np.quantile(probs, np.linspace(0, 1, 16)), rel=1e-5)
    k = n_draws(40, 0.5)
    assert seen["noise"] == pytest.approx((seen["effective"] / k + (k - 1) / k) / 2, rel=1e-5)  # Propositions 2 and 3


def test_probabilities_are_those_of_the_activations_whatever_the_layer_does_with_them():
    x = activations()
    lists = [layer_statistics("", make_dropout(method), x)["probs"] for method in NOISY]
    assert all(probs == lists[0] for probs in lists)


def test_at_equal_noise_the_ratio_is_one():
    for method in NOISY:
        assert layer_statistics("", make_dropout(method, 0.5, "noise"), activations())["noise"] == pytest.approx(
            1, abs=0.02
        )


@pytest.mark.parametrize(
    "layer", [EvolutionalDropout(0.0), MultinomialDropout(0.0, match="distinct"), BernoulliDropout(0.0)]
)
def test_a_rate_of_zero_is_no_noise(layer):
    seen = layer_statistics("", layer, activations())
    assert (seen["noise"], seen["kept"]) == (1.0, 36.0)


def test_images_have_a_unit_for_every_channel_and_place():
    seen = layer_statistics("", nn.Dropout(0.5), torch.ones(2, 3, 4, 4))
    assert (seen["units"], seen["effective"]) == (48, 48.0)


@pytest.mark.parametrize("value", [0.0, torch.nan, torch.inf])
@pytest.mark.parametrize("method", NOISY)
def test_a_batch_of_nothing(method, value):
    seen = layer_statistics("", make_dropout(method), torch.full((3, 5), value))
    assert (seen["dead"], seen["effective"], seen["noise"]) == (5, 0.0, None)
    assert seen["probs"] == [0.0] * 16


@pytest.mark.parametrize(
    "layer",
    [
        nn.Dropout2d(0.5),
        EvolutionalDropout2d(0.5),
        EvolutionalDropout(0.5, unit_dims=1),
        nn.Identity(),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_where_the_noise_is_not_known_the_activations_are_recorded(layer):
    x = activations(d=48).view(-1, 3, 4, 4)
    seen, known = (layer_statistics("", each, x) for each in (layer, nn.Dropout(0.5)))
    assert (seen["noise"], seen["kept"]) == (None, None)
    assert {**seen, "noise": 0, "kept": 0} == {**known, "noise": 0, "kept": 0}


@pytest.mark.parametrize("method", [method for method in METHODS if method not in USUAL])
def test_every_place_of_a_method_of_the_zoo_is_watched(method):
    with watch_dropout(tiny.network(method)) as seen:
        tiny.network(method)  # not this one
    assert seen == []
    network = tiny.network(method)
    with watch_dropout(network) as seen:
        network(torch.ones(4, 1, 6, 6))
    assert [(layer["name"], layer["units"], layer["noise"], layer["kept"]) for layer in seen] == [
        ("2", 144, None, None),
        ("6", 12, None, None),
    ]


@pytest.mark.parametrize("method", NOISY)
def test_watching_changes_nothing(method):
    network, x = tiny.network(method), torch.randn(4, 1, 6, 6, generator=torch.Generator().manual_seed(1))

    def outcome():
        torch.manual_seed(0)
        network.zero_grad()
        y = network(x)
        y.sum().backward()
        return [y, *(p.grad.clone() for p in network.parameters()), torch.get_rng_state()]

    alone = outcome()
    with watch_dropout(network) as seen:
        watched = outcome()
    assert all(map(torch.equal, alone, watched))
    assert [layer["units"] for layer in seen] == [144, 12]
    assert all(map(torch.equal, alone, outcome()))
    assert len(seen) == 2


def test_only_training_is_watched():
    network = tiny.network("standard").eval()
    with watch_dropout(network) as seen:
        network(torch.ones(2, 1, 6, 6))
    assert seen == []
