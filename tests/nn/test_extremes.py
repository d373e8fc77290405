"""Values at the ends of float64, the smallest rates, and calls that are traced."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import sparse
from torch._subclasses.fake_tensor import FakeTensorMode

from evodrop.nn import (
    BernoulliDropout,
    DataDependentDropout,
    EvolutionalDropout,
    EvolutionalDropout2d,
    MultinomialDropout,
    WaterFillingDropout,
)

LAYERS = [BernoulliDropout, MultinomialDropout, EvolutionalDropout, WaterFillingDropout]


def seeded(layer, x):
    torch.manual_seed(3)
    return layer(x)


@pytest.mark.parametrize("make", [*LAYERS, EvolutionalDropout2d])
@pytest.mark.parametrize("exponent", [-900, -560, 540, 900])
def test_the_law_is_that_of_the_values_divided_by_their_largest(make, exponent, backend):
    x = torch.randn(16, 6, 3, 3, dtype=torch.float64) * torch.arange(1.0, 4.0)
    scaled = x * 2.0**exponent
    torch.testing.assert_close(seeded(make(0.5), scaled) * 2.0**-exponent, seeded(make(0.5), x), rtol=1e-13, atol=0)


def test_one_huge_unit_takes_the_draws(backend):
    x = torch.ones(100, 4, dtype=torch.float64)
    x[:, 1] = 1e160
    y = EvolutionalDropout(k=2)(x)
    torch.testing.assert_close(y[:, 1], x[:, 1])
    assert not y[:, [0, 2, 3]].any()


@pytest.mark.parametrize("size", [1e160, 1e-170])
@pytest.mark.parametrize("options", [{"momentum": 0.1}, {"momentum": 0.1, "follow": "running"}, {"sync": True}])
def test_squares_that_no_sum_can_hold_are_an_error(size, options, backend):
    layer, x = EvolutionalDropout(**options), torch.full((4, 3), size, dtype=torch.float64)
    with pytest.raises(ValueError, match="squares of the input over- or underflow in float64"):
        layer(x)
    x[0, 0] = torch.nan  # an amp scaler skips such a step, so values that are not finite raise nothing of their own
    layer(x / size)


@pytest.mark.parametrize(("size", "words"), [(1e160, "or whose squares are not"), (1e-170, "or their squares are")])
def test_data_whose_squares_are_lost_are_an_error(size, words):
    data = torch.full((4, 3), size, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"over- or underflow in float64.*; scale the data"):
        DataDependentDropout.from_data(data)
    with np.errstate(over="ignore", under="ignore"), pytest.raises(ValueError, match=words):
        DataDependentDropout.from_data(sparse.csr_array(data.numpy()))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_are_refused(layout):
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)], layout=layout)
    with pytest.raises(TypeError, match="dropout of a nested tensor, but it takes a dense one"):
        EvolutionalDropout()(nested)


@pytest.mark.parametrize("make", LAYERS)
def test_float64_compiled_is_eager_to_the_last_bit(make):
    layer = make(0.5)
    compiled = torch.compile(layer, backend="aot_eager")
    for size in (30, 150):
        x = torch.randn(16, size, dtype=torch.float64)
        assert torch.equal(seeded(compiled, x), seeded(layer, x))


@pytest.mark.parametrize("rate", [5e-324, 1e-320])
@pytest.mark.parametrize("match", ["draws", "distinct", "noise"])
@pytest.mark.parametrize("make", [MultinomialDropout, EvolutionalDropout, WaterFillingDropout])
def test_the_smallest_rates_work(rate, match, make, backend):
    for d in (1, 5):
        x = torch.rand(3, d) + 1.0
        assert make(rate, match=match)(x).isfinite().all()


def traced_export(layer, x):
    torch.export.export(layer, (x,), strict=False)


def traced_export_strictly(layer, x):
    torch.export.export(layer, (x,), strict=True)


def traced_fake(layer, x):
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        layer(mode.from_tensor(x))


def traced_vmap(layer, x):
    torch.func.vmap(layer, randomness="different")(torch.stack([x, x]))


@pytest.mark.parametrize("trace", [traced_export, traced_export_strictly, traced_fake, traced_vmap])
@pytest.mark.parametrize("follow", ["batch", "running"])
@pytest.mark.parametrize("used", [False, True])
def test_a_traced_call_leaves_the_layer_as_it_was(trace, follow, used):
    layer, x = EvolutionalDropout(momentum=0.1, follow=follow), torch.randn(8, 5)
    if used:
        layer(x)
    before = layer.running_sums
    trace(layer, x)
    assert layer.running_sums is before
    layer(x)
    assert type(layer.running_sums) is torch.Tensor
