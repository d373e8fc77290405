"""What holds for every dropout of the zoo, on units or on weights."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn.modules.dropout import _DropoutNd
from torch.utils.checkpoint import checkpoint

from evodrop.nn.zoo import (
    AdaptiveRateDropout,
    BatchwiseDropout,
    DropConnectConv2d,
    DropConnectLinear,
    FastDropoutLinear,
    GaussianDropout,
    Standout,
    VariationalConv2d,
    VariationalDropout,
    VariationalLinear,
    WeightAwareConv2d,
    WeightAwareLinear,
    penalties,
)
from evodrop.nn.zoo._base import Site


def batchwise_between(p):
    """Both linear layers skip what is dropped, and the function between them does not map 0 to 0."""
    before, dropout, after, *_ = BatchwiseDropout.place(Site(nn.Linear(4, 6), nn.Dropout(p), nn.Linear(6, 3)))
    return nn.Sequential(before, nn.Sigmoid(), dropout, after)


KIN = {
    "gaussian": GaussianDropout,
    "variational per layer": lambda p: VariationalDropout(p, units=48),
    "variational per unit": lambda p: VariationalDropout(p, per="unit", units=48),
    "adaptive rate": AdaptiveRateDropout,
    "adaptive rate per unit": lambda p: AdaptiveRateDropout(p, units=3, unit_dims=1),
    "weights per layer": lambda p: VariationalLinear(4, 3, p=p),
    "weights per unit": lambda p: VariationalLinear(4, 3, p=p, per="unit"),
    "weights per weight": lambda p: VariationalLinear(4, 3, p=p, per="weight"),
    "convolution per weight": lambda p: VariationalConv2d(3, 2, 3, p=p, per="weight"),
    "fast": lambda p: FastDropoutLinear(4, 3, p=p),
    "dropconnect per example": lambda p: DropConnectLinear(4, 3, p=p),
    "dropconnect per batch": lambda p: DropConnectLinear(4, 3, bias=False, p=p, masks="batch"),
    "dropped filters per example": lambda p: DropConnectConv2d(3, 2, 3, p=p),
    "aware of weights": lambda p: WeightAwareLinear(4, 3, p=p),
    "aware of filters": lambda p: WeightAwareConv2d(3, 2, 3, p=p),
    "batchwise": BatchwiseDropout,
    "batchwise between layers": batchwise_between,
    "standout": Standout,
    "standout rescaled": lambda p: Standout(p, rescale=True),
    "standout with activation": lambda p: Standout(p, activation=nn.Tanh()),
}
LEARNED = [name for name in KIN if name.startswith(("var", "wei", "con"))]
each = pytest.mark.parametrize("make", KIN.values(), ids=KIN.keys())


def batch(n=5, dtype=torch.float32):
    return torch.rand(n, 3, 4, 4, dtype=dtype)


def seeded(layer, x):
    torch.manual_seed(9)
    return layer(x)


@each
def test_eval_is_deterministic(make):
    layer, x = make(0.3).eval(), batch()
    assert (layer(x) == layer(x)).all()
    if isinstance(layer, _DropoutNd) and not (isinstance(layer, Standout) and not layer.rescale):
        assert layer(x) is x


@each
def test_without_rate_there_is_no_noise(make):
    layer, x = make(0.0), batch()
    assert (layer(x) == layer.eval()(x)).all()
    assert penalties(layer) == 0


@each
@pytest.mark.parametrize("n", [0, 1])
def test_small_batches(make, n):
    layer = make(0.3)
    x = batch(n).requires_grad_()
    y = layer(x)
    assert y.shape == layer.eval()(x).shape
    y.sum().backward()
    assert x.grad.shape == x.shape


# No seed freezes the noise of rescaled standout, which follows the input, nor that of what follows its weights.
@pytest.mark.parametrize("name", [name for name in KIN if not name.startswith(("standout rescaled", "aware"))])
def test_gradcheck_with_frozen_noise(name):
    layer = KIN[name](0.3).double()
    inputs = (batch(2, torch.float64).requires_grad_(), *layer.parameters())
    assert torch.autograd.gradcheck(lambda x, *_: seeded(layer, x), inputs, fast_mode=True)


@each
def test_state_and_copies_behave_alike(make):
    layer, x = make(0.3), batch()
    for parameter in layer.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    fresh = make(0.3)
    fresh.load_state_dict(layer.state_dict())
    for twin in (fresh, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert (seeded(twin, x) == seeded(layer, x)).all()


@each
def test_checkpointing_makes_the_noise_again(make):
    layer, x = make(0.3), batch().requires_grad_()
    (plain,) = torch.autograd.grad(seeded(layer, x).square().sum(), x)
    torch.manual_seed(9)
    (again,) = torch.autograd.grad(checkpoint(layer, x, use_reentrant=False).square().sum(), x)
    assert (plain == again).all()


@each
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_near_full(make, dtype):
    layer, x = make(0.3), batch().to(dtype)
    with torch.no_grad():
        full = seeded(layer, x.float())
        low = seeded(layer.to(dtype), x)
    assert low.dtype == dtype
    torch.testing.assert_close(low.float(), full, rtol=0.05, atol=0.05)


@each
def test_autocast(make):
    layer, x = make(0.3), batch()
    full = seeded(layer, x)
    with torch.autocast("cpu", torch.bfloat16):
        low = seeded(layer, x)
    assert low.dtype == (x.dtype if isinstance(layer, _DropoutNd) else torch.bfloat16)
    torch.testing.assert_close(low.float(), full, rtol=0.05, atol=0.05)


@each
def test_compiled_is_eager(make):
    layer, x = make(0.3), batch().requires_grad_()
    torch.compiler.reset()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    eager = torch.autograd.grad(seeded(layer, x).square().sum(), (x, *layer.parameters()))
    graph = torch.autograd.grad(seeded(compiled, x).square().sum(), (x, *layer.parameters()))
    for one, other in zip(graph, eager, strict=True):
        torch.testing.assert_close(one, other)


@each
def test_vmap_draws_for_each_or_for_all_as_it_is_asked(make):
    layer, x = make(0.5), torch.full((8, 2, 3, 4, 4), 0.7)
    different, same = (torch.vmap(layer, randomness=randomness)(x) for randomness in ("different", "same"))
    assert different.shape == (8, *layer(x[0]).shape)
    assert (different != different[0]).any()
    assert (same == same[0]).all()
    with pytest.raises(RuntimeError, match="randomness"):
        torch.vmap(layer)(x)


@pytest.mark.parametrize("name", LEARNED)
def test_the_loss_and_the_penalty_reach_what_is_learned(name):
    layer = KIN[name](0.3)
    layer(batch()).square().sum().backward()
    assert (layer.log_alpha.grad != 0).all()
    layer.zero_grad()
    penalties(nn.Sequential(layer)).backward()
    assert (layer.log_alpha.grad < 0).all()


@each
def test_shapes_without_values(make):
    layer, x = make(0.3).to("meta"), batch().to("meta")
    assert layer(x).shape == layer.eval()(x).shape


def test_penalties_of_layers_that_are_off_and_of_other_attributes_of_that_name():
    model = nn.Sequential(AdaptiveRateDropout(0.0), VariationalLinear(3, 2), nn.Identity())
    model[2].penalty = 0.1  # somebody's own coefficient
    torch.testing.assert_close(penalties(model), model[1].penalty())
    assert penalties(model.to("meta")).is_meta  # a layer without parameters is on no device


def test_the_penalty_of_a_layer_that_is_wrapped_counts_once():
    layer = VariationalLinear(3, 2)
    torch.testing.assert_close(penalties(torch.compile(layer, backend="eager")), layer.penalty())


@pytest.mark.parametrize("make", [DropConnectLinear, FastDropoutLinear, VariationalLinear, WeightAwareLinear])
def test_a_rate_in_the_place_of_a_size_is_refused(make):
    """As its third argument ``nn.Linear`` takes a bias, so the rate would be lost."""
    with pytest.raises(TypeError, match=r"was given \(4, 3, 0.2\), but its sizes are integers; give the rate as p="):
        make(4, 3, 0.2)
    assert make(4, 3, False, p=0.2).bias is None


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize("make", [DropConnectLinear, FastDropoutLinear, VariationalLinear, WeightAwareLinear])
@pytest.mark.parametrize(("inputs", "outputs"), [(0, 2), (3, 0)])
def test_layers_without_weights(make, inputs, outputs):
    layer = make(inputs, outputs)
    for shape in ((4,), (4, 5)):
        assert layer(torch.ones(*shape, inputs)).shape == (*shape, outputs)
    assert penalties(layer) == 0
