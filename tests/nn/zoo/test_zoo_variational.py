from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers.five_errors import assert_moments
from scipy.integrate import quad
from scipy.special import dawsn
from torch import nn

from evodrop.nn.zoo import VariationalConv2d, VariationalDropout, VariationalLinear, penalties
from evodrop.nn.zoo._base import Site
from evodrop.nn.zoo.variational import clipped, kl_divergence

ALPHAS = np.geomspace(1e-3, 1.0, 61)
ROW = torch.tensor([-2.0, 0.0, 0.5, 3.0], dtype=torch.float64)
FIVE = torch.tensor([-2.0, 0.0, 0.5, 3.0, 1.0], dtype=torch.float64)
PER = ["layer", "unit", "weight"]


def expected_log(alpha):
    """E log|xi| for xi ~ N(1, alpha), integrated on both sides of the singularity."""
    deviation = math.sqrt(alpha)

    def integrand(z):
        return math.log(abs(1 + deviation * z)) * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)

    pole = max(-1 / deviation, -12.0)
    return quad(integrand, -12.0, pole, limit=200)[0] + quad(integrand, pole, 12.0, limit=200)[0]


@pytest.fixture(scope="module")
def exact():
    constant = (np.euler_gamma + math.log(2)) / 2  # minus E log|N(0, 1)|: the divergence vanishes at infinite alpha
    return np.array([-0.5 * math.log(alpha) + expected_log(alpha) + constant for alpha in ALPHAS])


def test_the_divergence_is_within_a_hundredth_of_the_integral(exact):
    error = kl_divergence(torch.from_numpy(ALPHAS).log()).numpy() - exact
    assert np.abs(error).max() < 0.0095
    assert np.ptp(error) / 2 < 0.007  # with the best constant, for only differences matter


def test_the_published_cubic_is_not(exact):
    """Why the divergence is not computed by the polynomial of the paper."""
    cubic = -0.5 * np.log(ALPHAS) - (1.16145124 * ALPHAS - 1.50204118 * ALPHAS**2 + 0.58629921 * ALPHAS**3)
    assert 0.019 < np.ptp(cubic - exact) / 2 < 0.021


def test_its_slope_is_near_the_closed_form():
    """d KL / d log(alpha) = -s D(s) with s = 1 / sqrt(2 alpha) and Dawson's integral D."""
    log_alpha = torch.from_numpy(ALPHAS).log().requires_grad_()
    kl_divergence(log_alpha).sum().backward()
    s = 1 / np.sqrt(2 * ALPHAS)
    np.testing.assert_allclose(log_alpha.grad.numpy(), -s * dawsn(s), rtol=0.025)


def test_the_divergence_is_finite_and_falls():
    values = kl_divergence(torch.linspace(-200, 20, 500))
    assert values.isfinite().all()
    assert (values.diff() < 0).all()
    assert kl_divergence(torch.tensor(1e3)) == 0


@pytest.mark.parametrize(("p", "alpha"), [(0.2, 0.25), (0.5, 1.0), (0.9, 1.0), (0.0, 1e-8)])
def test_alpha_starts_at_the_noise_of_dropout_within_its_bounds(p, alpha):
    assert VariationalDropout(p).alpha.item() == pytest.approx(alpha)


def descend(loss, start, steps=100, lr=0.1):
    log_alpha = torch.tensor([start], requires_grad=True)
    for _ in range(steps):
        (slope,) = torch.autograd.grad(loss(log_alpha), log_alpha)
        log_alpha = (log_alpha - lr * slope).detach().requires_grad_()
    return log_alpha.item()


def test_an_alpha_beyond_the_bound_comes_back_when_its_noise_hurts():
    assert descend(lambda log_alpha: clipped(log_alpha).exp().sum(), 0.5) < 0


def test_the_divergence_pulls_alpha_up_to_the_bound_and_no_further():
    layer = VariationalDropout(0.5, units=5)
    layer.log_alpha.data.fill_(-3.0)
    for _ in range(100):
        (slope,) = torch.autograd.grad(layer.penalty(), layer.log_alpha)
        layer.log_alpha.data -= 0.1 * slope
    assert 0 <= layer.log_alpha.item() < 0.3


def test_clipping_and_half_precision():
    values = torch.tensor([-1.0, 2.0])
    assert clipped(values).tolist() == [-1.0, 0.0]
    assert clipped(values.half()).dtype == torch.float32
    assert VariationalDropout(0.5, units=6).half().penalty().dtype == torch.float32


def with_alphas(*alphas):
    layer = VariationalDropout(0.5, per="unit", units=len(alphas)).double()
    layer.log_alpha.data = torch.tensor(alphas, dtype=torch.float64).log()
    return layer


@pytest.mark.parametrize("p", [0.1, 0.4, 0.5])
def test_mean_and_variance_per_layer(p):
    draws = VariationalDropout(p).double()(ROW.expand(100_000, 4)).detach()
    assert_moments(draws, ROW, p / (1 - p) * ROW.square())


def test_mean_and_variance_per_unit():
    alphas = torch.tensor([0.01, 0.5, 1.0, 0.2], dtype=torch.float64)
    draws = with_alphas(*alphas)(ROW.expand(100_000, 4)).detach()
    assert_moments(draws, ROW, alphas * ROW.square())


def test_alpha_is_at_most_one():
    assert VariationalDropout(0.9).alpha == 1
    assert with_alphas(7.0, 0.5).alpha.tolist() == pytest.approx([1.0, 0.5])


def test_units_follow_unit_dims():
    x = torch.ones(1000, 3, 4, 5)
    whole, channels = VariationalDropout(per="unit", units=60), VariationalDropout(per="unit", units=3, unit_dims=1)
    channels.log_alpha.data = torch.tensor([-100.0, 0.0, 0.0])  # no noise in the first channel, and much in the others
    assert whole(x).shape == x.shape
    y = channels(x)
    assert (y[:, 0] == 1).all()
    assert (y[:, 1:] != 1).all()
    with pytest.raises(ValueError, match=r"each of 3 units, but an input of shape \(1000, 3, 4, 5\) has 60"):
        VariationalDropout(per="unit", units=3)(x)


def test_the_penalty_is_one_divergence_per_unit():
    layer = with_alphas(0.1, 0.9, 5.0)
    expected = kl_divergence(torch.tensor([0.1, 0.9, 1.0], dtype=torch.float64).log()).sum()
    torch.testing.assert_close(layer.penalty(), expected)
    one = VariationalDropout(0.2, units=7)
    torch.testing.assert_close(one.penalty(), 7 * kl_divergence(torch.tensor(0.25).log()))


def test_the_penalty_asks_for_the_number_of_units():
    layer = VariationalDropout(0.2)
    layer(torch.ones(2, 8))
    with pytest.raises(RuntimeError, match=r"VariationalDropout\(p=0.2.*their number is not given; give units"):
        layer.penalty()


def test_alpha_is_learned_from_both_sides():
    layer = with_alphas(0.3, 0.3)
    layer(torch.tensor([[1.0, 100.0]], dtype=torch.float64).expand(1000, 2)).square().mean().backward()
    assert (layer.log_alpha.grad > 0).all()  # the loss falls with less noise
    layer.zero_grad()
    layer.penalty().backward()
    assert (layer.log_alpha.grad < 0).all()  # the penalty with more


def test_noise_that_helps_is_kept_and_noise_that_hurts_is_shed():
    """A unit that tells the target sheds its noise, one that only disturbs takes all it can."""
    layer, weight = VariationalDropout(0.5, per="unit", units=2), torch.tensor([1.0, 0.0])
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.1)
    x = torch.randn(500, 2)
    for _ in range(100):
        optimizer.zero_grad()
        loss = 50 * (layer(x) @ weight - x @ weight).square().mean() + penalties(layer) / len(x)
        loss.backward()
        optimizer.step()
    assert layer.alpha[0] < 0.05
    assert layer.alpha[1] > 0.95


@pytest.mark.parametrize(
    ("before", "between", "after", "units", "unit_dims"),
    [
        (nn.Linear(3, 8), (), nn.Linear(8, 2), 8, -1),
        (nn.Conv2d(3, 4, 3), (nn.MaxPool2d(2),), nn.Conv2d(4, 2, 3), 4, 1),
        (nn.Conv2d(3, 4, 3), (nn.Flatten(),), nn.Linear(36, 2), 36, None),
        (nn.Conv2d(3, 4, 3), (nn.MaxPool2d(2), nn.Flatten()), nn.Linear(36, 2), 4, 1),
        (nn.Linear(3, 8), (), None, 8, -1),
        (nn.Conv2d(3, 4, 3), (), None, 4, 1),
    ],
)
def test_the_neighbours_give_the_units(before, between, after, units, unit_dims):
    site = VariationalDropout.place(Site(before, nn.Dropout(0.2), after, between), per="unit")
    assert (site.before, site.after) == (before, after)
    assert (site.dropout.p, site.dropout.units, site.dropout.unit_dims) == (0.2, units, unit_dims)
    shared = VariationalDropout.place(Site(before, nn.Dropout(0.2), after, between)).dropout
    assert (shared.units, shared.unit_dims) == (units, None)


def test_options_are_checked():
    with pytest.raises(ValueError, match="per is 'weight', but it is one of 'layer', 'unit'"):
        VariationalDropout(per="weight")
    for units in (None, 0, 2.5, True):
        with pytest.raises(ValueError, match=f"units is {units}, but"):
            VariationalDropout(per="unit", units=units)
    with pytest.raises(ValueError, match="units is None"):
        VariationalDropout.place(Site(None, nn.Dropout(0.2), None), per="unit")
    with pytest.raises(TypeError, match="a list"):
        VariationalDropout()([1.0])


def test_print_shows_what_is_learned():
    assert str(VariationalDropout(0.2)) == "VariationalDropout(p=0.2, per='layer')"
    assert str(VariationalDropout(0.2, per="unit", units=3, unit_dims=1)) == (
        "VariationalDropout(p=0.2, per='unit', units=3, unit_dims=1)"
    )


def uneven(layer):
    """The layer with alphas of every size."""
    layer = layer.double()
    layer.log_alpha.data = torch.linspace(-4.0, -0.1, layer.log_alpha.numel()).double().view_as(layer.log_alpha)
    return layer


@pytest.mark.parametrize("per", PER)
def test_mean_and_variance_of_noisy_weights(per):
    layer = uneven(VariationalLinear(5, 3, per=per))
    with torch.no_grad():
        draws = layer(FIVE.expand(100_000, 5))
        variance = (layer.alpha * layer.weight.square() * FIVE.square()).sum(1)
        assert_moments(draws, layer.weight @ FIVE + layer.bias, variance)


def test_the_law_is_that_of_drawn_weights():
    """A draw per pre-activation has the moments of the layer with a draw per weight."""
    layer = uneven(VariationalLinear(5, 3, per="weight"))
    with torch.no_grad():
        deviation = layer.alpha.sqrt() * layer.weight.abs()
        weights = layer.weight + deviation * torch.randn(100_000, 3, 5, dtype=torch.float64)
        mean, variance = layer.weight @ FIVE + layer.bias, deviation.square() @ FIVE.square()
        assert_moments(weights @ FIVE + layer.bias, mean, variance)
        draws = layer(FIVE.expand(100_000, 5))
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
    layer = VariationalLinear.from_layer(plain, 0.3, per="weight").eval()
    x = torch.randn(7, 5)
    assert (layer(x) == plain(x)).all()
    picture, convolution = torch.randn(2, 3, 6, 6), nn.Conv2d(3, 4, 3, dilation=2, padding="same", bias=False)
    assert (VariationalConv2d.from_layer(convolution).eval()(picture) == convolution(picture)).all()


@pytest.mark.parametrize("plain", [nn.Linear(5, 3), nn.Conv2d(5, 3, 2)])
def test_place_takes_over_the_very_parameters(plain):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    site = VariationalLinear.place(Site(None, nn.Dropout(0.2), plain.eval()), per="unit")
    assert (torch.get_rng_state() == before).all()
    assert isinstance(site.dropout, nn.Identity)
    assert isinstance(site.after, type(plain))
    assert site.after.weight is plain.weight
    assert site.after.bias is plain.bias
    assert not site.after.training
    assert not site.after.log_alpha.is_meta
    assert site.after.alpha.unique().tolist() == pytest.approx([0.25])


def test_place_needs_a_layer_with_weights():
    with pytest.raises(ValueError, match=r"after Dropout\(p=0.5, inplace=False\), but there stands None"):
        VariationalLinear.place(Site(nn.Linear(2, 2), nn.Dropout(0.5), None))


def test_the_state_of_a_plain_layer_lacks_the_alpha():
    plain, layer = nn.Linear(5, 3), VariationalLinear(5, 3, p=0.2)
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "log_alpha"'):
        layer.load_state_dict(plain.state_dict())
    assert layer.load_state_dict(plain.state_dict(), strict=False).missing_keys == ["log_alpha"]
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


def test_bad_input_of_noisy_weights_is_named():
    with pytest.raises(ValueError, match=r"takes inputs of shape \(..., 5\) but got one of shape \(2, 4\)"):
        VariationalLinear(5, 3)(torch.ones(2, 4))
    with pytest.raises(ValueError, match=r"the input has shape \(1, 2, 5, 5\), but this layer takes pictures with 3"):
        VariationalConv2d(3, 4, 2)(torch.ones(1, 2, 5, 5))
    with pytest.raises(TypeError, match=r"torch\.int64"):
        VariationalLinear(5, 3)(torch.ones(2, 5, dtype=torch.int64))
    with pytest.raises(ValueError, match="per is 'input', but"):
        VariationalLinear(5, 3, per="input")
    with pytest.raises(ValueError, match=r"dropout rate is 1\.5"):
        VariationalConv2d(3, 4, 2, p=1.5)


def test_print_shows_what_weights_learn():
    assert str(VariationalLinear(5, 3, p=0.2)) == (
        "VariationalLinear(in_features=5, out_features=3, bias=True, p=0.2, per='layer')"
    )
