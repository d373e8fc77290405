from __future__ import annotations

import copy

import pytest
import torch
from scipy import integrate
from scipy.stats import beta
from torch import nn
from torch.utils.checkpoint import checkpoint

from evodrop.nn.zoo import AdaptiveRateDropout, penalties

LAYERS = [AdaptiveRateDropout(0.3), AdaptiveRateDropout(0.3, units=5, concentration=7.0)]
each = pytest.mark.parametrize("layer", LAYERS, ids=["one rate", "a rate each"])


def seeded(layer, x):
    torch.manual_seed(3)
    return layer(x)


def moved(layer):
    """A copy away from its prior, with different rates."""
    layer = copy.deepcopy(layer)
    with torch.no_grad():
        layer.log_alpha += torch.linspace(-1.0, 0.5, layer.log_alpha.numel()).view_as(layer.log_alpha)
    return layer


@each
def test_mean_and_variance_are_those_of_the_docstring(layer):
    layer, size = moved(layer), 40_000
    x = torch.tensor([2.0, -1.0, 0.5, 0.0, 3.0], dtype=torch.float64)
    with torch.no_grad():
        y = seeded(layer, x.expand(size, 5))
        variance = (layer.variance().double() * x**2).expand(5)
    error = (variance / size).sqrt()
    assert ((y.mean(0) - x).abs() <= 5 * error).all()
    # The variance of a squared normal deviation is twice its squared variance.
    assert ((((y - x) ** 2).mean(0) - variance).abs() <= 5 * variance * (2 / size) ** 0.5).all()


def test_the_moments_are_those_of_masks_with_the_rate_integrated_out():
    layer, size = AdaptiveRateDropout(0.4, concentration=8.0), 400_000
    rates = torch.distributions.Beta(0.4 * 8.0, 1 + 0.6 * 8.0).sample((size,)).double()
    noise = (torch.rand(size, dtype=torch.float64) >= rates) / (1 - rates)
    squares = (noise - 1) ** 2
    assert abs(noise.mean() - 1) < 5 * noise.std() / size**0.5
    assert abs(squares.mean() - layer.variance().item()) < 5 * squares.std() / size**0.5
    assert layer.variance().item() == pytest.approx(0.4 / 0.6, rel=1e-5)
    assert layer.rate().item() == pytest.approx(3.2 / (3.2 + 5.8), rel=1e-5)


def test_the_penalty_is_the_divergence_of_two_beta_laws():
    layer = AdaptiveRateDropout(0.3, concentration=6.0, units=2)
    assert abs(layer.penalty().item()) < 1e-6
    with torch.no_grad():
        layer.log_alpha.copy_(torch.tensor([1.0, -0.5]))
        layer.log_beta.copy_(torch.tensor([2.0, 0.3]))
    prior, total = beta(1.8, 5.2), 0.0
    for a, b in zip(layer.log_alpha.exp().tolist(), (1 + layer.log_beta.exp()).tolist(), strict=True):
        q = beta(a, b)
        total += integrate.quad(lambda r, q=q: q.pdf(r) * (q.logpdf(r) - prior.logpdf(r)), 0, 1, epsabs=1e-10)[0]
    assert layer.penalty().item() == pytest.approx(total, rel=1e-5)
    assert penalties(nn.Sequential(nn.Linear(2, 2), layer)).item() == pytest.approx(total, rel=1e-5)


@each
def test_gradcheck_with_the_noise_frozen(layer):
    layer = moved(layer).double()
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)

    def run(x, *_):
        return seeded(layer, x)

    assert torch.autograd.gradcheck(run, (x, layer.log_alpha, layer.log_beta))
    assert torch.autograd.gradcheck(lambda *_: layer.penalty(), (layer.log_alpha, layer.log_beta))


def test_the_gradient_of_the_rate_is_that_of_the_expected_loss():
    """E (x noise)^2 = x^2 (1 + v), so d/dlog alpha = x^2 v; by the path of 10^5 samples."""
    layer, size = AdaptiveRateDropout(0.5), 100_000
    seeded(layer, torch.full((size, 1), 2.0)).square().mean().backward()
    # Each sample gives 4 (1 + e) e with e ~ N(0, 1), of variance 16 (1 + 2).
    assert abs(layer.log_alpha.grad.item() - 4.0) < 5 * (48 / size) ** 0.5


def test_needed_units_get_lower_rates_than_those_that_do_nothing():
    torch.manual_seed(0)
    x = torch.randn(256, 4)
    layer = AdaptiveRateDropout(0.5, concentration=20.0, units=4)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    weight = torch.tensor([1.0, 1.0, 0.0, 0.0])
    for _ in range(200):
        optimizer.zero_grad()
        loss = ((layer(x) - x) @ weight).square().mean() + penalties(layer) / 256
        loss.backward()
        optimizer.step()
    rates = layer.rate()
    assert (rates[:2] < 0.2).all()
    assert (rates[2:] > 0.45).all()


@each
def test_eval_is_the_same_tensor_and_state_comes_back(layer):
    x = torch.randn(4, 5)
    trained = moved(layer)
    assert copy.deepcopy(trained).eval()(x) is x
    fresh = copy.deepcopy(layer)
    fresh.load_state_dict(trained.state_dict())
    torch.testing.assert_close(seeded(fresh, x), seeded(trained, x), rtol=0, atol=0)
    fresh.reset_parameters()
    torch.testing.assert_close(fresh.rate(), layer.rate())


@each
def test_checkpointing_makes_the_noise_again(layer):
    x = torch.randn(4, 5, requires_grad=True)
    plain = torch.autograd.grad(seeded(layer, x).square().sum(), x)[0]
    again = torch.autograd.grad(seeded(lambda x: checkpoint(layer, x, use_reentrant=False), x).square().sum(), x)[0]
    torch.testing.assert_close(again, plain)


@each
def test_it_compiles(layer):
    x = torch.randn(4, 5)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(seeded(compiled, x), seeded(layer, x))


@each
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(layer, dtype):
    half = copy.deepcopy(layer).to(dtype)
    y = half(torch.ones(2000, 5, dtype=dtype))
    assert y.dtype == dtype
    assert abs(y.float().var() - 3 / 7) < 0.03
    assert half.penalty().dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(nn.Linear(3, 5)(torch.ones(2, 3))).dtype == torch.bfloat16


@each
@pytest.mark.parametrize("size", [0, 1])
def test_small_batches(layer, size):
    assert layer(torch.ones(size, 5)).shape == (size, 5)


def test_a_rate_of_zero_is_the_identity():
    layer, x = AdaptiveRateDropout(0.0, units=3), torch.ones(2, 3)
    assert layer(x) is x
    assert list(layer.parameters()) == []
    assert layer.penalty() == layer.variance() == layer.rate() == 0


def test_channels_and_sequences():
    AdaptiveRateDropout(units=3, unit_dims=1)(torch.ones(2, 3, 4, 4))
    AdaptiveRateDropout(units=48)(torch.ones(2, 3, 4, 4))
    AdaptiveRateDropout(units=4, unit_dims=-1)(torch.ones(2, 3, 4))
    with pytest.raises(
        ValueError, match=r"each of 3 units, but an input of shape \(2, 4\) has 4 in its dimensions \(1,"
    ):
        AdaptiveRateDropout(units=3)(torch.ones(2, 4))
    with pytest.raises(ValueError, match="give units=60, or other unit_dims"):
        AdaptiveRateDropout(units=3)(torch.ones(2, 3, 4, 5))


def test_bad_options_are_named():
    for p in (-0.1, 1.0, float("nan"), "0.5"):
        with pytest.raises(ValueError, match="dropout rate is"):
            AdaptiveRateDropout(p)
    for concentration in (0.0, -1.0, 1e-13, 1e13, float("nan"), "many"):
        with pytest.raises(ValueError, match=r"concentration is .*, but it takes a number from 1e-12 to 1e\+12"):
            AdaptiveRateDropout(concentration=concentration)
    for units in (0, 2.5, True):
        with pytest.raises(ValueError, match=r"units is .*, but the number of units is an integer of at least 1"):
            AdaptiveRateDropout(units=units)
    with pytest.raises(TypeError, match=r"unit_dims is 'C', but it takes an integer"):
        AdaptiveRateDropout(units=3, unit_dims="C")(torch.ones(2, 3))
    with pytest.raises(TypeError, match=r"dropout of a tensor of torch.int64"):
        AdaptiveRateDropout()(torch.ones(2, 2, dtype=torch.long))
    with pytest.raises(TypeError, match=r"dropout of a list"):
        AdaptiveRateDropout()([1.0])
    with pytest.raises(TypeError, match=r"layout torch.sparse_coo"):
        AdaptiveRateDropout()(torch.ones(2, 2).to_sparse())


def test_print_shows_what_it_is():
    assert str(LAYERS[1]) == "AdaptiveRateDropout(p=0.3, concentration=7, units=5)"


@pytest.mark.parametrize("p", [5e-324, 0.5, 1 - 1e-16])
@pytest.mark.parametrize("concentration", [1e-12, 1000.0, 1e12])
def test_the_smallest_rates_and_the_ends_of_the_concentration_are_finite(p, concentration):
    layer = AdaptiveRateDropout(p, concentration=concentration)
    assert layer(torch.randn(8, 5)).isfinite().all()
    layer.penalty().backward()
    assert all(parameter.grad.isfinite() for parameter in layer.parameters())
    assert abs(layer.penalty()) < 1e-6 * max(1.0, concentration)
