from __future__ import annotations

import pytest
import torch
from helpers.five_errors import assert_moments
from torch import nn

from evodrop.nn.zoo import Place, VariationalConv2d, VariationalLinear
from evodrop.nn.zoo.alpha import kl_divergence

ROW = torch.tensor([-2.0, 0.0, 0.5, 3.0, 1.0], dtype=torch.float64)
PER = ["layer", "unit", "weight"]


def uneven(layer):
    """The layer with alphas of every size."""
    layer = layer.double()
    layer.log_alpha.data = torch.linspace(-4.0, -0.1, layer.log_alpha.numel()).double().view_as(layer.log_alpha)
    return layer


@pytest.mark.parametrize("per", PER)
def test_mean_and_variance(per):
    layer = uneven(VariationalLinear(5, 3, per=per))
    with torch.no_grad():
        draws = layer(ROW.expand(100_000, 5))
        variance = (layer.alpha * layer.weight.square() * ROW.square()).sum(1)
        assert_moments(draws, layer.weight @ ROW + layer.bias, variance)


def test_the_law_is_that_of_drawn_weights():
    """A draw per pre-activation has the moments of the layer with a draw per weight."""
    layer = uneven(VariationalLinear(5, 3, per="weight"))
    with torch.no_grad():
        deviation = layer.alpha.sqrt() * layer.weight.abs()
        weights = layer.weight + deviation * torch.randn(100_000, 3, 5, dtype=torch.float64)
        mean, variance = layer.weight @ ROW + layer.bias, deviation.square() @ ROW.square()
        assert_moments(weights @ ROW + layer.bias, mean, variance)
        draws = layer(ROW.expand(100_000, 5))
        assert (torch.corrcoef(draws.T)[0, 1:].abs() < 5 / 100_000**0.5).all()


@pytest.mark.parametrize("per", PER)
@pytest.mark.parametrize("options", [{}, {"padding": 1, "padding_mode": "reflect"}, {"stride": 2, "groups": 2}])
def test_mean_and_variance_of_a_convolution(per, options):
    layer = uneven(VariationalConv2d(2, 4, 3, per=per, **options))
    plain = nn.Conv2d(2, 4, 3, bias=False, **options).double()
    x = torch.randn(2, 5, 6, dtype=torch.float64)
    with torch.no_grad():
        plain.weight.copy_(layer.alpha * layer.weight.square())
        assert_moments(layer(x.expand(10_000, 2, 5, 6)), layer.eval()(x), plain(x.square()))


@pytest.mark.parametrize("per", PER)
@pytest.mark.parametrize("layer", [VariationalLinear, VariationalConv2d])
def test_the_penalty_is_one_divergence_per_weight(layer, per):
    layer = uneven(layer(3, 4, **({"kernel_size": 2} if layer is VariationalConv2d else {}), per=per))
    expected = kl_divergence(layer.log_alpha).expand_as(layer.weight).sum()
    torch.testing.assert_close(layer.penalty(), expected)


def test_eval_is_the_plain_layer():
    plain = nn.Linear(5, 3)
    layer = VariationalLinear.from_linear(plain, 0.3, per="weight").eval()
    x = torch.randn(7, 5)
    assert (layer(x) == plain(x)).all()
    picture, convolution = torch.randn(2, 3, 6, 6), nn.Conv2d(3, 4, 3, dilation=2, padding="same", bias=False)
    assert (VariationalConv2d.from_conv2d(convolution).eval()(picture) == convolution(picture)).all()


@pytest.mark.parametrize("plain", [nn.Linear(5, 3), nn.Conv2d(5, 3, 2)])
def test_fit_in_takes_over_the_very_parameters(plain):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    place = VariationalLinear.fit_in(Place(None, nn.Dropout(0.2), plain.eval()), per="unit")
    assert (torch.get_rng_state() == before).all()
    assert isinstance(place.dropout, nn.Identity)
    assert isinstance(place.after, type(plain))
    assert place.after.weight is plain.weight
    assert place.after.bias is plain.bias
    assert not place.after.training
    assert not place.after.log_alpha.is_meta
    assert place.after.alpha.unique().tolist() == pytest.approx([0.25])


def test_fit_in_needs_a_layer_with_weights():
    with pytest.raises(ValueError, match=r"after Dropout\(p=0.5, inplace=False\), but there comes None"):
        VariationalLinear.fit_in(Place(nn.Linear(2, 2), nn.Dropout(0.5), None))


def test_the_state_of_a_plain_layer_loads():
    plain, layer = nn.Linear(5, 3), VariationalLinear(5, 3, p=0.2)
    layer.load_state_dict(plain.state_dict())
    assert (layer.weight == plain.weight).all()
    assert layer.alpha.item() == pytest.approx(0.25)


def test_silent_inputs_leave_the_gradient_finite():
    layer = VariationalLinear(5, 3, per="weight")
    x = torch.zeros(4, 5, requires_grad=True)
    y = layer(x)
    assert (y == layer.bias).all()
    y.sum().backward()
    for gradient in (x.grad, layer.weight.grad, layer.log_alpha.grad):
        assert gradient.isfinite().all()


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"takes inputs of shape \(..., 5\) but got one of shape \(2, 4\)"):
        VariationalLinear(5, 3)(torch.ones(2, 4))
    with pytest.raises(RuntimeError, match="to have 3 channels, but got 2 channels"):
        VariationalConv2d(3, 4, 2)(torch.ones(1, 2, 5, 5))
    with pytest.raises(TypeError, match=r"torch\.int64"):
        VariationalLinear(5, 3)(torch.ones(2, 5, dtype=torch.int64))
    with pytest.raises(ValueError, match="per is 'input', but"):
        VariationalLinear(5, 3, per="input")
    with pytest.raises(ValueError, match=r"dropout rate is 1\.5"):
        VariationalConv2d(3, 4, 2, p=1.5)


def test_print_shows_what_is_learned():
    assert str(VariationalLinear(5, 3, p=0.2)) == (
        "VariationalLinear(in_features=5, out_features=3, bias=True, p=0.2, per='layer')"
    )
