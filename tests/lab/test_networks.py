"""The networks: sizes and parameters against tables computed by hand from the paper's, methods and weights."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from evodrop.lab.methods import METHODS, USUAL
from evodrop.lab.networks import NETWORKS, PICTURES, BatchNorm, ResponseNorm, build_network, initialize
from evodrop.lab.panels import find_panel
from evodrop.nn import EvolutionalDropout, LocallyConnected2d, MultinomialDropout
from evodrop.nn.zoo import ZOO

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


def describe(network, shape):
    """For each layer its name, its kind, the shape of its output for one example, and its number of parameters."""
    rows, x = [], torch.zeros(1, *shape)
    for name, layer in network.eval().named_children():
        x = layer(x)
        rows.append((name, type(layer), tuple(x.shape[1:]), sum(p.numel() for p in layer.parameters())))
    return rows


@each
def test_the_table_is_the_papers(name):
    rows = describe(build_network(name, "evolutional"), NETWORKS[name].input_shape)
    table = {row: (shape, n) for row, kind, shape, n in rows if kind not in (nn.ReLU, nn.Sigmoid, nn.Flatten)}
    assert table == TABLES[name]
    assert list(table) == list(TABLES[name])
    assert sum(n for *_, n in rows) == TOTALS[name]
    assert rows[-1][2] == (NETWORKS[name].classes,)


def test_every_network_has_a_table():
    assert set(TABLES) == set(TOTALS) == set(NETWORKS)


@each
def test_a_unit_follows_every_layer_with_weights_but_the_last(name):
    """At once, or after the max pooling or batch normalisation that comes next: a ReLU, or a sigmoid if so named."""
    unit = nn.Sigmoid if name.endswith("sigmoid") else nn.ReLU
    kinds = [type(layer) for layer in build_network(name, "standard")]
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
    network = NETWORKS[name].build(lambda: made.append(nn.Dropout(0.25)) or made[-1])
    places = [layer for key, layer in network.named_children() if key.startswith("dropout")]
    assert places == made
    assert len(made) == (2 if name == "digits" else 1)
    kinds = [type(layer) for layer in build_network(name)]
    assert kinds == [type(layer) for layer in network if layer not in made]


def test_unknown_networks_are_named():
    with pytest.raises(ValueError, match="network is 'resnet', but it is one of 'digits', 'mnist'"):
        build_network("resnet")


def test_the_panel_on_batch_normalisation_has_networks_with_and_without_it():
    variants = find_panel("fig1-bn").variants
    assert {item.label: "bn1" in TABLES[item.network] for item in variants if not item.added} == {
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


@each
def test_one_step_of_training_moves_every_weight(name):
    """From pixels of the size that it is fed with; channels last, as in training."""
    torch.manual_seed(0)
    network = initialize(build_network(name, "evolutional"), seed=0).to(memory_format=torch.channels_last)
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


def test_each_usual_name_makes_its_layer():
    assert {method: type(build_network("mnist", method).dropout) for method in USUAL if method != "none"} == {
        "standard": nn.Dropout,
        "uniform": MultinomialDropout,
        "evolutional": EvolutionalDropout,
        "water-filling": ZOO["water-filling"],
        "batchnorm": BatchNorm,
    }


@pytest.mark.parametrize("method", [method for method in METHODS if method in ZOO])
def test_a_network_is_converted_to_a_method(method):
    network = build_network("digits", method, 0.3, "noise")
    found = [layer for layer in network.modules() if type(layer) is ZOO[method]]
    assert [layer.p for layer in found] == [0.3, 0.3]
    assert not METHODS[method].uses_match or [layer.match for layer in found] == ["noise", "noise"]
    assert all(getattr(layer, name) == value for layer in found for name, value in METHODS[method].options.items())
    assert method == "standard" or not any(type(layer) is nn.Dropout for layer in network)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["digits", "cifar10-nobn"])
def test_methods_differ_in_their_noise_alone(name, method):
    """The same weights for a seed, and no random number drawn for a layer."""
    torch.manual_seed(0)
    plain, after_plain = build_network(name), torch.get_rng_state()
    torch.manual_seed(0)
    other = build_network(name, method)
    assert torch.equal(torch.get_rng_state(), after_plain)
    assert other.training
    expected, found = (initialize(network, seed=4).state_dict() for network in (plain, other))
    assert all(torch.equal(found[key], value) for key, value in expected.items())


def test_a_layer_that_takes_over_the_noise_takes_the_rate():
    words = "FastDropoutLinear(in_features=150, out_features=10, bias=True, p=0.2, deterministic=False)"
    assert repr(build_network("digits", "fast", 0.2).fc3) == words


def test_a_method_that_does_not_fit_a_network_is_refused():
    """In SVHN's a locally connected layer comes before the dropout, and dropconnect has no weights to drop."""
    with pytest.raises(ValueError, match=r"DropConnectLinear works on the nn.Linear or nn.Conv2d before"):
        build_network("svhn", "dropconnect")


def test_batch_normalisation_has_its_sizes_and_has_seen_no_data():
    network = build_network("cifar10-nobn", "batchnorm")
    assert all(layer.training for layer in network.modules())
    expected = nn.BatchNorm2d(64).state_dict()
    torch.testing.assert_close(dict(network.dropout.state_dict()), dict(expected), rtol=0, atol=0)
    digits = build_network("digits", "batchnorm")
    assert digits.dropout1.num_features == digits.dropout2.num_features == 150


@pytest.mark.parametrize("shape", [(5,), (5, 3, 3)])
def test_batch_normalisation_of_any_place(shape):
    layer, reference = BatchNorm(), (nn.BatchNorm1d if len(shape) == 1 else nn.BatchNorm2d)(5)
    x = torch.randn(8, *shape, generator=torch.Generator().manual_seed(0))
    assert torch.equal(layer(x), reference(x))
    assert type(layer) is BatchNorm
    assert layer.state_dict().keys() == reference.state_dict().keys()
    assert all(torch.equal(value, reference.state_dict()[key]) for key, value in layer.state_dict().items())
    assert torch.equal(layer.eval()(x), reference.eval()(x))
    copied = copy.deepcopy(layer)
    copied.load_state_dict(reference.state_dict())
    assert torch.equal(copied(x), reference(x))


def test_batch_normalisation_says_which_shapes_it_takes():
    with pytest.raises(ValueError, match=r"takes \(N, C\) or \(N, C, H, W\), but the input has shape \(2, 5, 3\)"):
        BatchNorm()(torch.zeros(2, 5, 3))


def weights_of(network):
    return {name: value for name, value in network.state_dict().items() if ".running" not in name and "bn" not in name}


@each
def test_a_seed_gives_the_same_weights_whatever_stands_for_dropout(name):
    reference = weights_of(initialize(build_network(name), seed=5))
    for make in (lambda: EvolutionalDropout(0.5), nn.Dropout, lambda: nn.Linear(7, 7), nn.LazyBatchNorm1d):
        network = initialize(NETWORKS[name].build(make), seed=5)
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


@pytest.mark.parametrize("size", [1, 2, 4, 9, 30])
@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("n", [0, 3, PICTURES + 1])
def test_response_norm_has_torchs_values_and_gradients(size, format, n):
    ours, torchs = ResponseNorm(12, size, 0.3, 2.0).double(), nn.LocalResponseNorm(size, 0.3, 0.75, 2.0)
    x = torch.randn(n, 12, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 5
    x = x.contiguous(memory_format=format).requires_grad_()
    results = [(y, *torch.autograd.grad(y.sin().sum(), x)) for y in (ours(x), torchs(x))]
    torch.testing.assert_close(*results)
    assert results[0][0].is_contiguous(memory_format=format)


def test_response_norm_is_a_local_response_norm_without_a_state():
    layer = ResponseNorm(64, 9, alpha=0.001)
    assert isinstance(layer, nn.LocalResponseNorm)
    assert str(layer) == "ResponseNorm(9, alpha=0.001, beta=0.75, k=1.0)"
    assert layer.state_dict() == {}


def test_response_norm_in_single_precision_is_within_1e_6_of_torchs():
    x = torch.randn(40, 64, 6, 6, generator=torch.Generator().manual_seed(1)) * 30
    ours, torchs = ResponseNorm(64, 9, alpha=0.001)(x), nn.LocalResponseNorm(9, alpha=0.001)(x)
    torch.testing.assert_close(ours, torchs, rtol=1e-6, atol=0.0)


def test_gradcheck_of_response_norm():
    x = torch.randn(2, 5, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2), requires_grad=True)
    assert torch.autograd.gradcheck(ResponseNorm(5, 4, 0.5).double(), (x,))


@pytest.mark.parametrize("method", ["uniform", "evolutional", "water-filling"])
def test_the_papers_noise_is_not_left_to_the_defaults_of_convert_dropout(method):
    """Whatever stands beside a dropout: the match that is asked for, and all units of a picture."""
    found = [layer for layer in build_network("mnist", method, 0.5, "draws").modules() if hasattr(layer, "match")]
    assert found
    assert all((layer.p, layer.match, layer.unit_dims) == (0.5, "draws", None) for layer in found)


@pytest.mark.parametrize("method", ["evolutional", "dropconnect"])
def test_at_rate_0_the_places_stay_switched_off(method):
    assert not any(hasattr(layer, "match") for layer in build_network("digits", method, 0.0).modules())
