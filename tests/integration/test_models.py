"""The models of timm and transformers: what acts is swapped or named, and the swap keeps the noise level."""

from __future__ import annotations

import warnings

import pytest
import torch
from models import FUNCTIONAL, MODELS
from torch.utils._python_dispatch import TorchDispatchMode

from evodrop.nn import convert_dropout, describe_dropout
from evodrop.nn._trace import split_inputs
from evodrop.nn.functional import find_dims
from evodrop.nn.layers import Evolving

RANDOM = ("bernoulli", "native_dropout", "rand_like", "normal", "uniform", "_fused_dropout")
each = pytest.mark.parametrize("name", MODELS)


class Masks(TorchDispatchMode):
    """Counts the masks that torch draws, of whatever code: what evodrop does not look at."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func._schema.name.removeprefix("aten::").startswith(RANDOM)
        return func(*args, **(kwargs or {}))


def masks_of(model, args, kwargs):
    with torch.no_grad(), Masks() as masks:
        model.train()(*args, **kwargs)
    return masks.count


def acting(model, args, kwargs):
    return [record for record in describe_dropout(model, *args, **kwargs) if record.calls and record.p != 0]


def output_of(model, args, kwargs):
    with torch.no_grad():
        output = model.eval()(*args, **kwargs)
    return output if isinstance(output, torch.Tensor) else output[0]


def converted(model, inputs, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        convert_dropout(model, inputs=inputs, **options)
    return model, "\n".join(str(warning.message) for warning in caught)


@each
def test_every_mask_that_a_model_draws_is_described(name):
    model, inputs = MODELS[name](0.1)
    args, kwargs = split_inputs(inputs)
    masks = masks_of(model, args, kwargs)
    assert masks > 0
    assert sum(record.calls for record in acting(model, args, kwargs)) == masks


@each
def test_what_acts_is_swapped_or_named(name):
    model, inputs = MODELS[name](0.1)
    args, kwargs = split_inputs(inputs)
    state, output = model.state_dict(), output_of(model, args, kwargs)
    others = {record.kind for record in acting(model, args, kwargs)} - {"Dropout"}
    model, said = converted(model, inputs)
    assert all(kind in said for kind in others)
    assert model.state_dict().keys() == state.keys()
    assert torch.equal(output_of(model, args, kwargs), output)
    left = [record for record in acting(model, args, kwargs) if not record.kind.startswith("Evolutional")]
    assert masks_of(model, args, kwargs) == sum(record.calls for record in left)
    assert {record.kind for record in left} == others
    assert any(isinstance(layer, Evolving) for layer in model.modules()) == (name not in FUNCTIONAL)


@each
def test_functional_dropout_is_reached(name):
    model, inputs = MODELS[name](0.1)
    args, kwargs = split_inputs(inputs)
    functions = [record for record in acting(model, args, kwargs) if record.kind == "dropout"]
    model, _ = converted(model, inputs, functional=True, unit_dims=-1)
    after = acting(model, args, kwargs)
    assert not [record for record in after if record.kind in ("dropout", "Dropout")]
    assert sum(record.calls for record in after if record.kind == "routed_dropout") == sum(
        record.calls for record in functions
    )
    model.train()(*args, **kwargs)


@pytest.mark.parametrize("name", [name for name in MODELS if name not in FUNCTIONAL])
@pytest.mark.parametrize("p", [0.1, 0.5])
def test_a_swapped_layer_is_as_noisy_as_the_one_before(name, p):
    """E||y - x||^2 / ||x||^2, computed on the batch that enters the layer, is p / (1 - p) within 5 %."""
    model, inputs = MODELS[name](p)
    args, kwargs = split_inputs(inputs)
    model, _ = converted(model, inputs)
    ratios = {}

    def measure(layer, given):
        (x,) = given
        units, _ = find_dims(x, layer.unit_dims, layer.shared_dims)
        examples = [dim for dim in range(x.ndim) if dim not in units]
        moments = x.detach().double().square().mean(examples).flatten()
        variance = layer.noise_for(moments).mean_square - 1.0
        ratios[layer] = float((moments * variance).nansum() / moments.sum()) / (p / (1 - p))

    for layer in (layer for layer in model.modules() if isinstance(layer, Evolving)):
        layer.register_forward_pre_hook(measure)
    model.train()(*args, **kwargs)
    assert ratios
    assert all(abs(ratio - 1) < 0.05 for ratio in ratios.values()), sorted(ratios.values())
    print(f"\n{name}, p = {p}: {len(ratios)} layers, {min(ratios.values()):.4f} to {max(ratios.values()):.4f}")
