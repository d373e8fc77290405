"""Calls of F.dropout in code that nobody edits, sent to a dropout of the zoo."""

from __future__ import annotations

import copy
import inspect
import pickle

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers.chi_square import multinomial_p_value, none_rejected
from torch import nn
from torch.utils.checkpoint import checkpoint

from evodrop.nn import convert_dropout, describe_dropout, functional_dropout


class Block(nn.Module):
    def forward(self, x):
        return F.dropout(x, p=0.5, training=self.training)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.block = nn.Linear(6, 8), Block()

    def forward(self, x, scale=1.0):
        return self.block(F.dropout(self.fc(x), 0.5, self.training)) * scale


def has_draws(y, k=4):
    """What is true of every draw from 8 units of ones: noise * k / 8 are counts that sum to k."""
    counts = y * k / 8
    return torch.equal(counts, counts.round()) and bool((counts.sum(-1) == k).all())


ONES = torch.ones(50, 8)
CALLS = {
    "F.dropout": lambda x: F.dropout(x, 0.5),
    "by keywords": lambda x: F.dropout(input=x, p=0.5, training=True),
    "torch.dropout": lambda x: torch.dropout(x, 0.5, True),
    "nn.Dropout": nn.Dropout(0.5),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_calls_in_training_go_to_the_method(call):
    with functional_dropout("evolutional", match="draws"):
        assert has_draws(call(ONES))
    assert not has_draws(call(ONES))


def test_calls_in_eval_and_at_rate_0_do_not():
    with functional_dropout("evolutional"):
        assert F.dropout(ONES, 0.5, False) is ONES
        assert torch.equal(F.dropout(ONES, 0.0), ONES)
        assert not nn.Dropout(1.0)(ONES).any()


def test_work_in_place_goes_on():
    for call in (lambda x: F.dropout(x, 0.5, True, True), lambda x: torch.dropout_(x, 0.5, True)):
        x = ONES.clone()
        with functional_dropout("evolutional", match="draws"):
            assert call(x) is x
        assert has_draws(x)


def test_the_law_is_that_of_the_method():
    probs = torch.tensor([0.5, 0.3, 0.2])
    with functional_dropout("evolutional", k=3):  # rows x = p have second moments p^2
        noise = F.dropout(probs.expand(20_000, -1), 0.5) / probs
    counts = (noise * 3 * probs).double().numpy()
    np.testing.assert_allclose(counts, counts.round(), atol=1e-4)
    assert none_rejected([multinomial_p_value(counts.round().astype(int), np.array([0.5, 0.3, 0.2]), 3)])


@pytest.mark.parametrize("inputs", [None, torch.ones(4, 6)])
def test_a_model_is_wrapped_and_can_be_copied_pickled_and_described(inputs):
    model = convert_dropout(Model(), functional=True, inputs=inputs, match="draws")
    assert list(inspect.signature(model.forward).parameters) == ["x", "scale"]
    nn.init.zeros_(model.fc.weight), nn.init.ones_(model.fc.bias)
    for twin in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert twin.block.forward.forward.__self__ is twin.block
        assert has_draws(twin.block.train()(ONES)) == (inputs is not None)  # else the whole model alone is wrapped
        zeros = (twin(torch.ones(2000, 6)) == 0).float().mean()
        assert zeros > 0.78  # two masks leave 1/4, and two times k = d / 2 draws less
        x = torch.randn(5, 6)
        assert torch.equal(twin.eval()(x), F.linear(x, twin.fc.weight, twin.fc.bias))
    assert list(model.state_dict()) == ["fc.weight", "fc.bias"]
    records = describe_dropout(model, torch.ones(40, 6))
    assert [(record.name, record.kind, record.p) for record in records] == [
        ("", "routed_dropout", 0.5),
        ("block", "routed_dropout", 0.5),
    ]
    assert "test_routed.py" in records[0].remark


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # the recorded pass needs no gradients
@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing_makes_the_same_noise_again(reentrant):
    class Saving(Model):
        def forward(self, x):
            return checkpoint(self.block, self.fc(x), use_reentrant=reentrant)

    gradients, x = [], torch.randn(16, 6)
    for inputs in (None, x):
        torch.manual_seed(0)
        model = convert_dropout(Saving(), functional=True, inputs=inputs)
        torch.manual_seed(1)
        y = model(x)
        noise = (y / model.fc(x)).detach()
        y.sum().backward()
        gradients.append(model.fc.bias.grad)
        torch.testing.assert_close(model.fc.bias.grad, noise.sum(0))
    assert torch.equal(*gradients)


def test_compilers_trace_it():
    model, x = convert_dropout(Model(), functional=True), torch.randn(20, 6)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.manual_seed(2)
    y = compiled(x)
    torch.manual_seed(2)
    torch.testing.assert_close(y, model(x))
    assert (y == 0).any()


def test_what_no_call_can_have_is_named():
    for name in ("dropconnect", "variational", "adaptive-rate"):
        with pytest.raises(ValueError, match=f"'{name}' learns its noise or works on the layers beside it"):
            functional_dropout(name)
    with pytest.raises(ValueError, match="dropout 'gauss' is not in the zoo"):
        functional_dropout("gauss")
    with pytest.raises(TypeError, match="functional_dropout: to is 3, but it takes a name of the zoo"):
        functional_dropout(3)
