"""Initial weights: by the seed and the name of the layer alone."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn

from evodrop.lab.networks import NETWORKS, build_network, initialize
from evodrop.nn import EvolutionalDropout, LocallyConnected2d

each = pytest.mark.parametrize("name", NETWORKS)


def weights_of(network):
    return {name: value for name, value in network.state_dict().items() if ".running" not in name and "bn" not in name}


@each
def test_a_seed_gives_the_same_weights_whatever_stands_for_dropout(name):
    reference = weights_of(initialize(build_network(name), seed=5))
    for make in (lambda: EvolutionalDropout(0.5), nn.Dropout, lambda: nn.Linear(7, 7), nn.LazyBatchNorm1d):
        network = initialize(build_network(name, make), seed=5)
        found = {key: value for key, value in weights_of(network).items() if "dropout" not in key}
        assert list(found) == list(reference)
        assert all(torch.equal(found[key], reference[key]) for key in reference)
    other = weights_of(initialize(build_network(name), seed=6))
    assert not any(torch.equal(other[key], reference[key]) for key in reference if key.endswith("weight"))


def test_batch_normalisation_changes_no_other_weight():
    plain, normalised = (initialize(build_network(name), seed=1) for name in ("cifar10-nobn", "cifar10-bn"))
    assert all(torch.equal(weights_of(plain)[key], value) for key, value in weights_of(normalised).items())
    assert torch.equal(normalised.bn1.weight, torch.ones(32))


@each
def test_weights_are_normal_and_biases_zero(name):
    for layer in initialize(build_network(name), seed=3, std=0.02).children():
        if isinstance(layer, nn.Conv2d | nn.Linear | LocallyConnected2d):
            weight, n = layer.weight.double(), layer.weight.numel()
            assert not layer.bias.any()
            assert abs(weight.mean()) < 4 * 0.02 / math.sqrt(n)
            assert abs(weight.std() - 0.02) < 4 * 0.02 / math.sqrt(2 * n)


def test_weights_depend_on_neither_format_nor_dtype_nor_the_global_generator():
    state = torch.get_rng_state()
    network = build_network("cifar10-nobn")
    torch.set_rng_state(state)
    reference = initialize(copy.deepcopy(network), seed=2**40)
    assert torch.equal(torch.get_rng_state(), state)
    last = initialize(copy.deepcopy(network).to(memory_format=torch.channels_last), seed=2**40)
    double = initialize(copy.deepcopy(network).double(), seed=2**40)
    assert torch.equal(last.conv2.weight, reference.conv2.weight)
    assert torch.equal(double.conv2.weight.float(), reference.conv2.weight)
    assert not torch.equal(initialize(network, seed=0).conv2.weight, reference.conv2.weight)


@pytest.mark.parametrize("std", [-0.1, math.nan, math.inf])
def test_bad_deviations_are_named(std):
    with pytest.raises(ValueError, match=f"std is {std}, but a standard deviation is finite and not negative"):
        initialize(build_network("mnist"), seed=0, std=std)
