from __future__ import annotations

import pytest
import torch
from helpers.five_errors import assert_moments
from torch import nn

from evodrop.nn import convert_dropout
from evodrop.nn.zoo import Standout
from evodrop.nn.zoo.standout import keep_probabilities, standout

ROW = torch.tensor([-2.0, 0.0, 0.5, 3.0], dtype=torch.float64)
MANY = 100_000


def keep_of(z, p, alpha):
    return 1 / (1 + p / (1 - p) * torch.exp(-alpha * z))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("alpha", [1.0, 0.0, -0.5])
def test_mean_and_variance(p, alpha):
    x, keep = ROW.relu(), keep_of(ROW.relu(), p, alpha)
    assert_moments(standout(x.expand(MANY, 4), p, alpha=alpha), keep * x, keep * (1 - keep) * x.square())
    rescaled = standout(x.expand(MANY, 4), p, alpha=alpha, rescale=True)
    assert_moments(rescaled, x, (1 - keep) / keep * x.square())


def test_mean_and_variance_with_an_activation():
    y, keep = torch.tanh(ROW), keep_of(ROW, 0.3, 2.0)
    draws = standout(ROW.expand(MANY, 4), 0.3, alpha=2.0, activation=torch.tanh)
    assert_moments(draws, keep * y, keep * (1 - keep) * y.square())


def test_after_relu_the_input_tells_what_the_preactivation_would():
    """A unit that ReLU has silenced is silent whether it is kept or not."""
    z = torch.randn(50, 20)
    torch.manual_seed(3)
    after = standout(z.relu(), 0.3, alpha=2.0)
    torch.manual_seed(3)
    assert (after == standout(z, 0.3, alpha=2.0, activation=torch.relu)).all()


def test_the_rate_sets_beta():
    torch.testing.assert_close(keep_probabilities(torch.zeros(1), 0.3), torch.tensor([0.7]))
    torch.testing.assert_close(keep_probabilities(ROW, 0.3, 2.0), keep_of(ROW, 0.3, 2.0))
    assert (keep_probabilities(ROW, 0.0) == 1).all()


def test_eval_multiplies_by_the_keep_probabilities_and_has_their_gradient():
    layer, x = Standout(0.3, alpha=2.0).eval(), ROW.clone().requires_grad_()
    torch.testing.assert_close(layer(x), keep_of(x, 0.3, 2.0) * x)
    assert torch.autograd.gradcheck(layer, x)
    activated = Standout(0.3, rescale=True, activation=torch.tanh).eval()
    assert (activated(x) == torch.tanh(x)).all()


def test_the_gradient_takes_the_mask_as_constant():
    for rescale in (False, True):
        x = torch.rand(100, requires_grad=True)
        y = standout(x, 0.5, rescale=rescale)
        y.sum().backward()
        torch.testing.assert_close(x.grad, (y / x).detach())


def test_tiny_keep_probabilities_never_make_nan():
    for rescale in (False, True):
        y = standout(torch.tensor([-200.0, 1e30]).expand(100, 2), rescale=rescale, alpha=1.0)
        assert y.isfinite().all()
        assert (y[:, 0] == 0).all()


def test_the_module_is_the_function():
    x = torch.rand(6, 4)
    torch.manual_seed(1)
    y = Standout(0.3, alpha=2.0, rescale=True)(x)
    torch.manual_seed(1)
    assert (y == standout(x, 0.3, alpha=2.0, rescale=True)).all()
    assert str(Standout(0.3)) == "Standout(p=0.3, alpha=1.0)"
    assert str(Standout(0.3, rescale=True)) == "Standout(p=0.3, alpha=1.0, rescale=True)"


def test_it_takes_the_place_of_dropout():
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.2), nn.Linear(4, 4))
    before, after = model[0], model[2]
    convert_dropout(model, "standout", alpha=3.0)
    assert (type(model[1]), model[1].p, model[1].alpha) == (Standout, 0.2, 3.0)
    assert (model[0], model[2]) == (before, after)


def test_an_activation_with_parameters_is_learned_and_saved():
    layer = Standout(0.3, activation=nn.PReLU())
    assert list(layer.state_dict()) == ["activation.weight"]
    layer(-torch.ones(100)).sum().backward()
    assert layer.activation.weight.grad != 0


@pytest.mark.parametrize("alpha", [float("nan"), float("inf"), "1"])
def test_a_bad_alpha_is_named(alpha):
    with pytest.raises(ValueError, match="but it takes a finite number"):
        Standout(alpha=alpha)
    with pytest.raises(ValueError, match="but it takes a finite number"):
        standout(ROW, alpha=alpha)


def test_a_bad_rate_or_tensor_is_named():
    with pytest.raises(ValueError, match="dropout rate is 1"):
        Standout(1.0)
    with pytest.raises(TypeError, match="takes float64"):
        standout(torch.ones(3, dtype=torch.int64))


def test_in_a_transformer_it_has_to_be_rescaled():
    """Without gradients torch leaves it out in eval mode."""
    x, same = torch.randn(2, 5, 8), {}
    for rescale in (True, False):
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        layer = convert_dropout(layer, "standout", rescale=rescale).eval()
        with torch.no_grad():
            at_one_go = layer(x)
        same[rescale] = torch.allclose(at_one_go, layer(x), atol=1e-5)
    assert same == {True: True, False: False}


def test_an_activation_is_a_function_of_single_units():
    with pytest.raises(TypeError, match="activation is 'tanh', but it takes a function"):
        Standout(activation="tanh")
    for activation in (lambda _: None, lambda z: z.sum(0)):
        with pytest.raises(ValueError, match="but it takes a function of single units"):
            Standout(activation=activation)(torch.ones(4, 3))
