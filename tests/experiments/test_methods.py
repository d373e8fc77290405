from __future__ import annotations

import subprocess
import sys

import pytest
import tiny
import torch
from torch import nn

from evodrop.experiments.methods import METHODS, USUAL, build_with, make_dropout
from evodrop.experiments.networks.batchnorm import BatchNorm, LazyBatchNorm, find_sizes
from evodrop.experiments.networks.catalogue import NETWORKS
from evodrop.nn import EvolutionalDropout, MultinomialDropout, WaterFillingDropout
from evodrop.nn.zoo import ZOO


def test_each_name_makes_its_layer():
    made = {method: make_dropout(method, 0.3, "noise")() for method in USUAL if method != "none"}
    assert {method: type(layer) for method, layer in made.items()} == {
        "standard": nn.Dropout,
        "uniform": MultinomialDropout,
        "evolutional": EvolutionalDropout,
        "water-filling": WaterFillingDropout,
        "batchnorm": LazyBatchNorm,
    }
    assert {layer.p for method, layer in made.items() if METHODS[method].uses_rate} == {0.3}
    assert {layer.match for method, layer in made.items() if METHODS[method].uses_match} == {"noise"}
    assert made["uniform"].probs is None
    assert make_dropout("none") is None


def test_networks_take_every_name_of_the_zoo_but_the_one_that_follows_fixed_data():
    assert set(METHODS) - set(ZOO) == {"none", "batchnorm"}
    assert set(ZOO) - set(METHODS) == {"data-dependent"}
    assert {name for name, method in METHODS.items() if method.in_zoo} == set(METHODS) - set(USUAL)
    assert len(USUAL) == 6


@pytest.mark.parametrize("method", [method for method in METHODS if METHODS[method].in_zoo])
def test_a_network_is_converted_to_a_method_of_the_zoo(method):
    match = "noise" if METHODS[method].uses_match else "draws"
    network = build_with(NETWORKS["digits"].build, method, 0.3, match)
    found = [layer for layer in network.modules() if isinstance(layer, ZOO[method])]
    assert [layer.p for layer in found] == [0.3, 0.3]
    assert not METHODS[method].uses_match or [layer.match for layer in found] == ["noise", "noise"]
    assert not METHODS[method].rescaled or [layer.rescale for layer in found] == [True, True]
    assert not any(isinstance(layer, nn.Dropout) for layer in network)


def test_every_call_makes_a_fresh_layer():
    make = make_dropout("evolutional")
    assert make() is not make()


def test_words_are_one_line_for_a_table():
    for method in METHODS.values():
        assert 10 < len(method.words) < 80
        assert "\n" not in method.words


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("dropout",), "method is 'dropout', but it is one of 'none', 'standard', 'uniform'"),
        (("standard", 1.0), "rate is 1.0"),
        (("fast",), r"method is 'fast', which takes a whole network, not a layer; build_with\(\) makes one"),
        (("none", -0.1), "rate is -0.1"),
        (("evolutional", 0.5, "k"), "match is 'k', but it is one of 'draws'"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_dropout(*arguments)


@pytest.mark.parametrize("method", METHODS)
def test_networks_differ_in_their_dropout_alone(method):
    """The same weights for a seed, and no random number drawn for a layer."""
    plain, other, head, tail = tiny.network("none"), tiny.network(method), nn.Linear(7, 7), nn.Linear(7, 2)

    def weights(model):
        return [p for layer in model if isinstance(layer, nn.Conv2d | nn.Linear) for p in (layer.weight, layer.bias)]

    assert all(torch.equal(a, b) for a, b in zip(weights(plain), weights(other), strict=True))
    before = torch.get_rng_state()
    model = build_with(lambda make: nn.Sequential(head, *([] if make is None else [make()]), tail), method)
    find_sizes(model, (7,))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("shape", [(5,), (5, 3, 3)])
def test_batch_normalisation_of_any_place(shape):
    layer = find_sizes(nn.Sequential(LazyBatchNorm()), shape)[0]
    reference = (nn.BatchNorm1d if len(shape) == 1 else nn.BatchNorm2d)(5)
    x = torch.randn(8, *shape, generator=torch.Generator().manual_seed(0))
    assert type(layer) is BatchNorm
    assert torch.equal(layer(x), reference(x))
    assert layer.state_dict().keys() == reference.state_dict().keys()
    assert all(
        torch.equal(a, b) for a, b in zip(layer.state_dict().values(), reference.state_dict().values(), strict=True)
    )


def test_batch_normalisation_says_which_shapes_it_takes():
    with pytest.raises(ValueError, match=r"input of shape \(2, 5, 3\), but it takes \(N, C\) or"):
        LazyBatchNorm()(torch.zeros(2, 5, 3))


def test_finding_sizes_leaves_modes_and_statistics_alone():
    model = nn.Sequential(nn.Linear(4, 3), LazyBatchNorm(), nn.Sequential(nn.Dropout(0.5)))
    model[2].eval()
    assert find_sizes(model, (4,)) is model
    assert model.training
    assert model[1].training
    assert not model[2][0].training
    assert int(model[1].num_batches_tracked) == 0


def test_a_list_of_methods_costs_no_torch():
    code = "import sys, evodrop.experiments.methods, evodrop.experiments.records.runs; print('torch' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert answer.strip() == "False"
