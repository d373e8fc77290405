from __future__ import annotations

import pytest
import torch
from torch import nn

from evodrop.nn import (
    BernoulliDropout,
    EvolutionalDropout,
    EvolutionalDropout1d,
    EvolutionalDropout2d,
    MultinomialDropout,
    convert_dropout,
)


def nested():
    return nn.ModuleDict(
        {
            "features": nn.Sequential(nn.Conv2d(1, 4, 3), nn.Dropout2d(0.1), nn.Sequential(nn.Dropout1d(0.2))),
            "head": nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.3, inplace=True), nn.Dropout3d(0.4)),
        }
    )


def test_swaps_nested_layers_and_keeps_rates():
    model = nested()
    assert convert_dropout(model) is model
    swapped = {name: layer for name, layer in model.named_modules() if "Dropout" in type(layer).__name__}
    assert {name: (type(layer), layer.p) for name, layer in swapped.items()} == {
        "features.1": (EvolutionalDropout2d, 0.1),
        "features.2.0": (EvolutionalDropout1d, 0.2),
        "head.1": (EvolutionalDropout, 0.3),
        "head.2": (nn.Dropout3d, 0.4),
    }


def test_keeps_train_and_eval_mode_layer_by_layer():
    model = nested()
    model["head"].eval()
    convert_dropout(model)
    assert model["features"][1].training
    assert not model["head"][1].training


def test_only_what_the_predicate_names():
    model = convert_dropout(nested(), only=lambda name, layer: name.startswith("head") and layer.p == 0.3)
    assert type(model["head"][1]) is EvolutionalDropout
    assert type(model["features"][1]) is nn.Dropout2d


@pytest.mark.parametrize("to", [BernoulliDropout, MultinomialDropout, lambda p: EvolutionalDropout(p, unit_dims=-1)])
def test_to_any_layer_that_takes_a_rate(to):
    model = convert_dropout(nested(), to=to)
    assert type(model["head"][1]) is type(to(0.5))
    assert type(model["features"][1]) is type(to(0.5))


def test_a_layer_in_two_places_stays_one_layer():
    layer = nn.Dropout(0.5)
    model = nn.Sequential(layer, nn.Linear(2, 2), layer)
    model.register_module("again", layer)
    convert_dropout(model)
    assert type(model[0]) is EvolutionalDropout
    assert model[0] is model[2] is model.again


def test_a_dropout_layer_itself_is_replaced():
    assert isinstance(convert_dropout(nn.Dropout(0.5)), EvolutionalDropout)


def test_a_layer_that_is_switched_off_stays_off():
    model = convert_dropout(nn.Sequential(nn.Dropout(0.0)))
    assert type(model[0]) is nn.Dropout


def test_a_rate_that_cannot_be_kept_is_named_and_nothing_is_changed():
    model = nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.Dropout(1.0)))
    with pytest.raises(ValueError, match=r"layer '1.0', Dropout\(p=1.0.*dropout rate is 1.0"):
        convert_dropout(model)
    assert type(model[0]) is nn.Dropout


def test_a_transformer_trains_after_the_swap():
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.2, batch_first=True)
    convert_dropout(layer, to=lambda p: EvolutionalDropout(p, unit_dims=-1))
    assert type(layer.dropout1) is EvolutionalDropout
    layer(torch.randn(2, 5, 16)).sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in layer.parameters())
    assert layer.eval()(torch.randn(2, 5, 16)).shape == (2, 5, 16)
