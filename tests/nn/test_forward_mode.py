"""Forward-mode derivatives of every layer, by dual numbers and by ``torch.func.jvp``."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad, gradcheck

from evodrop.nn import (
    BernoulliDropout,
    EvolutionalDropout,
    EvolutionalDropout1d,
    EvolutionalDropout2d,
    LocallyConnected2d,
    MultinomialDropout,
    WaterFillingDropout,
    convert_dropout,
    zoo,
)


def converted(name):
    layers = nn.Linear(6, 7), nn.ReLU(), nn.Dropout(0.5), nn.Linear(7, 5), nn.Tanh(), nn.Dropout(0.4), nn.Linear(5, 3)
    return convert_dropout(nn.Sequential(*layers), name)


FIXED = [  # the noise does not depend on the values, so a difference quotient has the same noise
    (lambda: BernoulliDropout(0.5), (4, 6)),
    (lambda: MultinomialDropout(0.5), (4, 6)),
    (lambda: zoo.GaussianDropout(0.5), (4, 6)),
    (lambda: zoo.BatchwiseDropout(0.5), (4, 6)),
    (lambda: zoo.VariationalDropout(0.2, units=6, per="unit"), (4, 6)),
    (lambda: zoo.AdaptiveRateDropout(0.5, units=6), (4, 6)),
    (lambda: zoo.FastDropoutLinear(6, 4), (4, 6)),
    (lambda: zoo.DropConnectLinear(6, 4), (4, 6)),
    (lambda: zoo.DropConnectLinear(6, 4, masks="batch"), (4, 6)),
    (lambda: zoo.DropConnectConv2d(2, 3, 2), (2, 2, 3, 3)),
    (lambda: zoo.VariationalLinear(6, 4, p=0.2, per="weight"), (4, 6)),
    (lambda: zoo.VariationalConv2d(2, 3, 2, p=0.2), (2, 2, 3, 3)),
    (lambda: LocallyConnected2d(2, 3, 2, 3, padding=1), (2, 2, 3, 3)),
]
FOLLOWING = [  # the derivative takes the noise as a constant, which a difference quotient does not
    (lambda: EvolutionalDropout(0.5), (4, 6)),
    (lambda: EvolutionalDropout(0.5, momentum=0.1, follow="running"), (4, 6)),
    (lambda: WaterFillingDropout(0.5), (4, 6)),
    (lambda: EvolutionalDropout1d(0.5), (2, 3, 4)),
    (lambda: EvolutionalDropout2d(0.5), (2, 3, 4, 4)),
    (lambda: zoo.Standout(0.5, rescale=True, activation=torch.tanh), (4, 6)),
    (lambda: zoo.WeightAwareLinear(6, 4), (4, 6)),
    (lambda: zoo.WeightAwareConv2d(2, 3, 2), (2, 2, 3, 3)),
]
CONVERTED = [(lambda name=name: converted(name), (4, 6)) for name in zoo.ZOO if name != "data-dependent"]


def name_of(value):
    return type(value()).__name__ if callable(value) else None


def seeded(layer, x, parameters=None):
    torch.manual_seed(1)
    return torch.func.functional_call(layer, parameters or {}, (x,))


@pytest.mark.parametrize(("make", "shape"), [*FIXED, *FOLLOWING, *CONVERTED], ids=name_of)
def test_forward_mode_agrees_with_backward(make, shape):
    layer = make().double()
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    names, values = zip(("input", x), *layer.named_parameters(), strict=True)
    tangents = [torch.randn_like(value) for value in values]
    output = seeded(layer, x)
    weights = torch.randn_like(output)
    grads = torch.autograd.grad(output, values, weights, allow_unused=True)
    products = [(grad * tangent).sum() for grad, tangent in zip(grads, tangents, strict=True) if grad is not None]
    expected = sum(products)

    with forward_ad.dual_level():
        duals = {n: forward_ad.make_dual(v.detach(), t) for n, v, t in zip(names, values, tangents, strict=True)}
        tangent = forward_ad.unpack_dual(seeded(layer, duals.pop("input"), duals)).tangent
    torch.testing.assert_close((tangent * weights).sum(), expected)

    along_input = (tangents[0],)
    _, tangent = torch.func.jvp(lambda x: seeded(layer, x), (x.detach(),), along_input)
    torch.testing.assert_close((tangent * weights).sum(), products[0])


@pytest.mark.parametrize(("make", "shape"), FIXED, ids=name_of)
def test_gradcheck_in_forward_mode(make, shape):
    layer = make().double()
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    names, values = zip(*layer.named_parameters(), strict=True) if list(layer.parameters()) else ((), ())

    def call(x, *values):
        return seeded(layer, x, dict(zip(names, values, strict=True)))

    assert gradcheck(call, (x, *values), check_forward_ad=True)
