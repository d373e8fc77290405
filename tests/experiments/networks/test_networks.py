"""Every output size and every number of parameters, against tables computed by hand from the paper's."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from evodrop.experiments.figures.panels import find_panel
from evodrop.experiments.networks.catalogue import NETWORKS, Layer, build_network, describe, initialize
from evodrop.nn import EvolutionalDropout, LocallyConnected2d

CONVOLUTIONS = {  # what SVHN and CIFAR-10 share
    "conv1": ((64, 24, 24), 5 * 5 * 3 * 64 + 64),
    "pool1": ((64, 12, 12), 0),
    "rnorm1": ((64, 12, 12), 0),
    "conv2": ((64, 12, 12), 5 * 5 * 64 * 64 + 64),
    "rnorm2": ((64, 12, 12), 0),
    "pool2": ((64, 6, 6), 0),
    "local3": ((64, 6, 6), 36 * (3 * 3 * 64 * 64 + 64)),
    "local4": ((32, 6, 6), 36 * (3 * 3 * 64 * 32 + 32)),
    "dropout": ((1152,), 0),
}
TABLES = {  # layer: output size for one example, with channels first, and parameters
    "digits": {
        "fc1": ((150,), 64 * 150 + 150),
        "dropout1": ((150,), 0),
        "fc2": ((150,), 150 * 150 + 150),
        "dropout2": ((150,), 0),
        "fc3": ((10,), 150 * 10 + 10),
    },
    "mnist": {
        "conv1": ((32, 21, 21), 4 * 4 * 1 * 32 + 32),
        "pool1": ((32, 11, 11), 0),
        "conv2": ((64, 7, 7), 5 * 5 * 32 * 64 + 64),
        "pool2": ((64, 3, 3), 0),
        "fc1": ((150,), 576 * 150 + 150),
        "dropout": ((150,), 0),
        "fc2": ((10,), 150 * 10 + 10),
    },
    "svhn": {**CONVOLUTIONS, "fc1": ((512,), 1152 * 512 + 512), "fc10": ((10,), 512 * 10 + 10)},
    "cifar10": {**CONVOLUTIONS, "fc1": ((128,), 1152 * 128 + 128), "fc10": ((10,), 128 * 10 + 10)},
    "cifar100": {
        "conv1": ((64, 32, 32), 5 * 5 * 3 * 64 + 64),
        "pool1": ((64, 16, 16), 0),
        "rnorm1": ((64, 16, 16), 0),
        "conv2": ((64, 16, 16), 5 * 5 * 64 * 64 + 64),
        "rnorm2": ((64, 16, 16), 0),
        "pool2": ((64, 8, 8), 0),
        "local3": ((64, 8, 8), 64 * (3 * 3 * 64 * 64 + 64)),
        "local4": ((32, 8, 8), 64 * (3 * 3 * 64 * 32 + 32)),
        "fc1": ((128,), 2048 * 128 + 128),
        "dropout": ((128,), 0),
        "fc2": ((128,), 128 * 128 + 128),
        "fc100": ((100,), 128 * 100 + 100),
    },
    "cifar10-nobn": {
        "conv1": ((32, 32, 32), 5 * 5 * 3 * 32 + 32),
        "pool1": ((32, 16, 16), 0),
        "conv2": ((32, 16, 16), 5 * 5 * 32 * 32 + 32),
        "pool2": ((32, 8, 8), 0),
        "conv3": ((64, 8, 8), 5 * 5 * 32 * 64 + 64),
        "dropout": ((64, 8, 8), 0),
        "pool3": ((64, 4, 4), 0),
        "fc1": ((10,), 1024 * 10 + 10),
    },
    "cifar10-bn": {
        "conv1": ((32, 32, 32), 5 * 5 * 3 * 32 + 32),
        "pool1": ((32, 16, 16), 0),
        "bn1": ((32, 16, 16), 2 * 32),
        "conv2": ((32, 16, 16), 5 * 5 * 32 * 32 + 32),
        "bn2": ((32, 16, 16), 2 * 32),
        "pool2": ((32, 8, 8), 0),
        "conv3": ((64, 8, 8), 5 * 5 * 32 * 64 + 64),
        "bn3": ((64, 8, 8), 2 * 64),
        "dropout": ((64, 8, 8), 0),
        "pool3": ((64, 4, 4), 0),
        "fc1": ((10,), 1024 * 10 + 10),
    },
}
TOTALS = {  # the sums, computed apart
    "digits": 33_910,
    "mnist": 139_868,
    "svhn": 2_696_906,
    "cifar10": 2_250_314,
    "cifar100": 3_944_100,
    "cifar10-nobn": 89_578,
    "cifar10-bn": 89_834,
}
TABLES["cifar10-bn-sigmoid"], TOTALS["cifar10-bn-sigmoid"] = TABLES["cifar10-bn"], TOTALS["cifar10-bn"]
each = pytest.mark.parametrize("name", NETWORKS)


def make_evolutional():
    return EvolutionalDropout(0.5)


@each
def test_the_table_is_the_papers(name):
    rows = describe(build_network(name, make_evolutional), NETWORKS[name].input_shape)
    assert {
        row.name: (row.shape, row.parameters) for row in rows if row.kind not in ("ReLU", "Sigmoid", "Flatten")
    } == TABLES[name]
    assert [row.name for row in rows if row.name in TABLES[name]] == list(TABLES[name])
    assert sum(row.parameters for row in rows) == TOTALS[name]
    assert rows[-1].shape == (NETWORKS[name].classes,)


def test_every_network_has_a_table():
    assert set(TABLES) == set(TOTALS) == set(NETWORKS)


@each
def test_a_unit_follows_every_layer_with_weights_but_the_last(name):
    """At once, or after the max pooling or batch normalisation that comes next: a ReLU, or a sigmoid if so named."""
    unit = nn.Sigmoid if name.endswith("sigmoid") else nn.ReLU
    kinds = [type(layer) for layer in build_network(name, nn.Dropout)]
    weighted = [place for place, kind in enumerate(kinds) if kind in (nn.Conv2d, nn.Linear, LocallyConnected2d)]
    assert weighted[-1] == len(kinds) - 1
    for place in weighted[:-1]:
        after = [kind for kind in kinds[place + 1 :] if kind not in (nn.MaxPool2d, nn.BatchNorm2d)]
        assert after[0] is unit
    for place in (place for place, kind in enumerate(kinds) if kind is nn.Dropout):
        assert unit in kinds[place - 2 : place]  # flattened in between, perhaps


@each
def test_dropout_has_its_place_or_none(name):
    made = []
    network = build_network(name, lambda: made.append(nn.Dropout(0.25)) or made[-1])
    places = [layer for key, layer in network.named_children() if key.startswith("dropout")]
    assert places == made
    assert len(made) == (2 if name == "digits" else 1)
    kinds = [type(layer) for layer in build_network(name, None)]
    assert kinds == [type(layer) for layer in network if layer not in made]


def test_unknown_networks_are_named():
    with pytest.raises(ValueError, match="network is 'resnet', but it is one of 'digits', 'mnist'"):
        build_network("resnet")


def test_the_panel_on_batch_normalisation_has_networks_with_and_without_it():
    contenders = find_panel("fig1-bn").contenders
    assert {item.label: "bn1" in TABLES[item.network] for item in contenders if not item.added} == {
        "no BN, no dropout": False,
        "BN": True,
        "BN + standard": True,
        "BN, sigmoid units": True,
        "evolutional": False,
    }


def test_averages_are_over_what_is_inside():
    """The last window of 3 sticks out of 16 pixels by one, and a mean over zeros outside would be smaller."""
    pool = build_network("cifar10-nobn").pool2
    torch.testing.assert_close(pool(torch.ones(1, 1, 16, 16)), torch.ones(1, 1, 8, 8))


def test_relu_after_max_pooling_is_relu_before_it():
    x = torch.randn(4, 3, 9, 9, generator=torch.Generator().manual_seed(0), requires_grad=True)
    pool, relu = build_network("cifar10").pool1, nn.ReLU()
    before, after = pool(relu(x)), relu(pool(x))
    assert torch.equal(before, after)
    gradients = [torch.autograd.grad(y.square().sum(), x)[0] for y in (before, after)]
    assert torch.equal(*gradients)


@pytest.mark.parametrize("training", [True, False])
def test_describe_changes_nothing_but_the_size_of_lazy_layers(training):
    network = build_network("cifar10-bn", nn.LazyBatchNorm2d).train(training)
    before, generator = copy.deepcopy(network.bn1.state_dict()), torch.get_rng_state()
    assert Layer("dropout", "BatchNorm2d", (64, 8, 8), 128) in describe(network, (3, 32, 32))
    assert {layer.training for layer in network.modules()} == {training}
    torch.testing.assert_close(network.bn1.state_dict(), before, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), generator)


@each
def test_one_step_of_training_moves_every_weight(name):
    """From pixels of the size that it is fed with; channels last, as in training."""
    torch.manual_seed(0)
    network = initialize(build_network(name, make_evolutional), seed=0).to(memory_format=torch.channels_last)
    before = copy.deepcopy(network.state_dict())
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    x = (torch.randn(8, *NETWORKS[name].input_shape) * 60).contiguous(memory_format=torch.channels_last)
    loss = cross_entropy(network(x), torch.arange(8) % NETWORKS[name].classes)
    assert abs(loss.item() - math.log(NETWORKS[name].classes)) < 0.5
    loss.backward()
    optimizer.step()
    assert all((value != before[key]).any() for key, value in network.state_dict().items() if "weight" in key)


@each
def test_the_memory_format_changes_no_answer(name):
    network = initialize(build_network(name), seed=0).eval()
    x = torch.randn(4, *NETWORKS[name].input_shape, generator=torch.Generator().manual_seed(1)) * 60
    expected = network(x)
    network, x = (thing.to(memory_format=torch.channels_last) for thing in (network, x))
    torch.testing.assert_close(network(x), expected, rtol=1e-4, atol=1e-5)
