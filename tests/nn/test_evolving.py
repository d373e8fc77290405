"""Evolutional layers with a memory: a running second moment, and calls that backward makes again."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from five_errors import assert_moments
from torch import nn
from torch.utils.checkpoint import checkpoint

from evodrop.nn import EvolutionalDropout, EvolutionalDropout1d, EvolutionalDropout2d, recall
from evodrop.nn.functional import evolutional_dropout

BATCHES = [torch.randn(size, 12) * torch.arange(1.0, 13.0) for size in (3, 1, 8)]


def followed(layer, batches=BATCHES):
    for batch in batches:
        layer(batch)
    return layer.running_moments


@pytest.mark.parametrize("momentum", [0.1, 0.5, 1.0])
def test_the_running_moment_weighs_examples_by_their_age(backend, momentum):
    weights = [(1 - momentum) ** age for age in (2, 1, 0)]
    squares = sum(weight * batch.double().square().sum(0) for weight, batch in zip(weights, BATCHES, strict=True))
    examples = sum(weight * len(batch) for weight, batch in zip(weights, BATCHES, strict=True))
    moments = followed(EvolutionalDropout(0.5, momentum=momentum))
    torch.testing.assert_close(moments, squares / examples, rtol=1e-12, atol=0)


def test_the_noise_follows_the_running_moment(backend):
    layer = EvolutionalDropout(0.5, momentum=0.5)
    followed(layer, BATCHES[:2])
    torch.manual_seed(3)
    y = layer(BATCHES[2])
    torch.manual_seed(3)
    expected = evolutional_dropout(BATCHES[2], moments=layer.running_moments)
    torch.testing.assert_close(y, expected, rtol=0, atol=0)
    torch.manual_seed(3)
    assert not torch.equal(evolutional_dropout(BATCHES[2]), y)


@pytest.mark.parametrize(
    ("layer", "shape", "dims"),
    [(EvolutionalDropout1d(momentum=1.0), (3, 6, 4), (0, 2)), (EvolutionalDropout2d(momentum=1.0), (6, 4, 2), (1, 2))],
)
def test_channels_have_running_moments_too(backend, layer, shape, dims):
    x = torch.randn(shape)
    layer(x)
    torch.testing.assert_close(layer.running_moments, x.double().square().mean(dims))


def test_layers_without_momentum_have_no_state_and_reset_forgets_it():
    layer = EvolutionalDropout(0.5)
    layer(BATCHES[0])
    assert (layer.running_sums, layer.running_moments, layer.state_dict()) == (None, None, {})
    remembering = EvolutionalDropout(0.5, momentum=0.3)
    first = followed(remembering)
    remembering.reset_running_stats()
    assert remembering.running_sums is None
    torch.testing.assert_close(followed(remembering), first, rtol=0, atol=0)


def test_evaluation_moves_nothing():
    layer = EvolutionalDropout(0.5, momentum=0.3)
    before = followed(layer).clone()
    assert layer.eval()(BATCHES[0]) is BATCHES[0]
    torch.testing.assert_close(layer.running_moments, before, rtol=0, atol=0)


def test_the_update_is_out_of_place():
    layer = EvolutionalDropout(0.5, momentum=0.3)
    layer(BATCHES[0])
    held, before = layer.running_sums, layer.running_sums.clone()
    layer(BATCHES[1])
    assert torch.equal(held, before)
    assert not torch.equal(layer.running_sums, before)


def test_a_state_dict_carries_the_sums_into_a_new_layer_and_not_into_one_without_momentum():
    saved = nn.Sequential(EvolutionalDropout(0.5, momentum=0.3))
    followed(saved[0])
    new = nn.Sequential(EvolutionalDropout(0.5, momentum=0.3))
    new.load_state_dict(saved.state_dict())
    torch.testing.assert_close(new[0].running_sums, saved[0].running_sums, rtol=0, atol=0)
    with pytest.raises(RuntimeError, match=r"Unexpected key\(s\) in state_dict: \"0.running_sums\""):
        nn.Sequential(EvolutionalDropout(0.5)).load_state_dict(saved.state_dict())


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_sums_that_no_batch_has_are_not_loaded(bad):
    """They would stay for ever: every unit would pass, and nobody would know."""
    layer = EvolutionalDropout(0.5, momentum=0.3)
    with pytest.raises(RuntimeError, match=r"0.running_sums holds sums of squares that are negative or not finite"):
        nn.Sequential(layer).load_state_dict({"0.running_sums": torch.tensor([1.0, bad, 4.0])})
    assert layer.running_sums is None


def test_sums_stay_wide_in_half_precision():
    layer = EvolutionalDropout(0.5, momentum=0.3)
    moments = followed(layer)
    torch.testing.assert_close(layer.half().running_moments, moments, rtol=0, atol=0)
    assert layer(BATCHES[0].half()).dtype == torch.float16


def test_a_batch_that_is_not_finite_passes_where_it_is_not_and_is_not_remembered(backend):
    layer = EvolutionalDropout(0.5, momentum=0.3)
    before = followed(layer).clone()
    bad = BATCHES[2].clone()
    bad[0, 4] = float("nan")
    y = layer(bad)
    torch.testing.assert_close(y[:, 4], bad[:, 4], equal_nan=True)
    assert (y == 0).any()
    torch.testing.assert_close(layer.running_moments, before, rtol=0, atol=0)


def test_another_number_of_units_is_named():
    layer = EvolutionalDropout(0.5, momentum=0.3)
    layer(BATCHES[0])
    with pytest.raises(ValueError, match=r"has 7 units, but the running sums are of 12; call reset_running_stats"):
        layer(torch.ones(2, 7))


@pytest.mark.parametrize("momentum", [0, 0.0, -0.1, 1.5, float("nan"), True, "0.1"])
def test_bad_momentum_is_named(momentum):
    with pytest.raises(ValueError, match=r"momentum is .*, but it takes a number in \(0, 1\]"):
        EvolutionalDropout(0.5, momentum=momentum)


def test_print_shows_what_is_not_usual():
    layer = EvolutionalDropout2d(0.2, sync=True, momentum=0.1)
    assert str(layer) == "EvolutionalDropout2d(p=0.2, scheme='multinomial', sync=True, momentum=0.1)"


def network():
    return nn.Sequential(nn.Linear(12, 16), nn.ReLU(), EvolutionalDropout(0.5, momentum=0.2), nn.Linear(16, 3))


def gradients_and_sums(model, forward):
    """All batches go forward before the first goes backward, the last two through the same layer."""
    model = copy.deepcopy(model)
    torch.manual_seed(4)
    outputs = [forward(model, batch.clone().requires_grad_()) for batch in BATCHES]
    for output in outputs:
        output.square().sum().backward()
    return [*(weights.grad for weights in model.parameters()), model[2].running_sums]


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoints_follow_the_same_moments_and_count_once(backend, use_reentrant):
    model = network()
    plain = gradients_and_sums(model, lambda model, x: model(x))
    saved = gradients_and_sums(model, lambda model, x: checkpoint(model, x, use_reentrant=use_reentrant))
    torch.testing.assert_close(saved, plain, rtol=0, atol=0)


def test_too_many_calls_before_their_backward_are_an_error(monkeypatch):
    monkeypatch.setattr(recall, "MOST", 2)
    with pytest.raises(RuntimeError, match="that is not among its last 2 under checkpointing"):
        gradients_and_sums(network(), lambda model, x: checkpoint(model, x, use_reentrant=False))


def test_only_calls_that_may_be_made_again_are_kept_and_copies_keep_none():
    model = network()
    model(BATCHES[0]).sum().backward()
    assert not model[2]._recall.calls
    checkpoint(model, BATCHES[0], use_reentrant=False)
    assert len(model[2]._recall.calls) == 1
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert not twin[2]._recall.calls
        torch.testing.assert_close(twin[2].running_sums, model[2].running_sums, rtol=0, atol=0)


def checkpointed(model, x):
    return checkpoint(model, x, use_reentrant=False)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # torch's own, at a break
@pytest.mark.parametrize(
    "forward",
    [
        lambda model, x: torch.compile(model, backend="aot_eager", fullgraph=True)(x),
        lambda model, x: checkpointed(torch.compile(model, backend="aot_eager", fullgraph=True), x),
        torch.compile(checkpointed, backend="aot_eager"),
    ],
    ids=["compiled", "compiled in a checkpoint", "a checkpoint compiled"],
)
def test_compiled_layers_count_once_too(forward):
    torch.compiler.reset()
    model = network()
    plain = gradients_and_sums(model, lambda model, x: model(x))
    torch.testing.assert_close(gradients_and_sums(model, forward), plain)


def test_given_moments_give_the_law(backend):
    """Whatever the input: k = 6 draws with p_i ~ sqrt(moments_i), so mean 1 and variance (1 - p_i) / (k p_i)."""
    moments = torch.rand(12, dtype=torch.float64)
    probs = moments.sqrt() / moments.sqrt().sum()
    noise = evolutional_dropout(torch.ones(20_000, 12, dtype=torch.float64), moments=moments)
    assert_moments(noise, 1.0, (1 - probs) / (6 * probs))
