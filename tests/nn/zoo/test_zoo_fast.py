from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from helpers.five_errors import assert_moments
from scipy.integrate import quad
from torch import nn
from torch.utils.checkpoint import checkpoint

from evodrop.nn.zoo import FastDropoutLinear, FastDropoutReLU
from evodrop.nn.zoo._base import Moments, Site
from evodrop.nn.zoo.fast import fast_dropout_linear, moments_of_relu

D, OUTPUTS, P = 10, 200, 0.3
MEANS = torch.tensor([-3.0, -0.5, 0.0, 0.7, 4.0, 20.0], dtype=torch.float64)
VARIANCES = torch.tensor([1.0, 4.0, 0.25, 0.09, 9.0, 5.0], dtype=torch.float64)


@pytest.fixture
def case():
    """Inputs, weights, biases; every mask there is with its chance, and the pre-activations under each."""
    x, weight, bias = (torch.randn(shape, dtype=torch.float64) for shape in [(D,), (OUTPUTS, D), (OUTPUTS,)])
    masks = torch.tensor(list(product((0.0, 1.0), repeat=D)), dtype=torch.float64)
    chances = (masks * (1 - P) + (1 - masks) * P).prod(1)
    return x, weight, bias, chances, (x * masks / (1 - P)) @ weight.T + bias


def weighted_moments(values, chances):
    mean = chances @ values
    return mean, chances @ (values - mean).square()


def test_the_moments_are_those_of_all_masks(case):
    x, weight, bias, chances, under_masks = case
    found = fast_dropout_linear(x, weight, bias, P)
    for one, exact in zip(found, weighted_moments(under_masks, chances), strict=True):
        torch.testing.assert_close(one, exact, rtol=1e-12, atol=1e-12)


def test_a_million_masks_agree():
    x, weight = torch.randn(30, dtype=torch.float64), torch.randn(2, 30, dtype=torch.float64)
    found = fast_dropout_linear(x, weight, None, P)
    draws = torch.cat([(x * (torch.rand(100_000, 30) >= P) / (1 - P)) @ weight.T for _ in range(10)])
    assert_moments(draws, *found)


def test_a_draw_has_the_moments(case):
    x, weight, bias, chances, under_masks = case
    layer = FastDropoutLinear(D, OUTPUTS, p=P).double()
    layer.load_state_dict({"weight": weight, "bias": bias})
    with torch.no_grad():
        assert_moments(layer(x.expand(10_000, D)), *weighted_moments(under_masks, chances))


def test_moments_that_come_in_are_passed_on_exactly():
    """Two independent inputs of two values each, dropped and not: all sixteen cases."""
    values = torch.tensor([[1.0, 3.0], [-2.0, 0.0]], dtype=torch.float64)  # each with chance 1/2
    weight = torch.tensor([[0.5, -1.5]], dtype=torch.float64)
    cases = [
        (weight @ torch.stack([values[0, a] * m, values[1, b] * n]) / (1 - P), 0.25 * _chance(m) * _chance(n))
        for a, b, m, n in product((0, 1), repeat=4)
    ]
    outcomes, chances = torch.stack([z for z, _ in cases]), torch.tensor([c for _, c in cases], dtype=torch.float64)
    found = fast_dropout_linear(Moments(values.mean(1), values.var(1, correction=0)), weight, None, P)
    for one, exact in zip(found, weighted_moments(outcomes, chances), strict=True):
        torch.testing.assert_close(one, exact)


def _chance(kept):
    return 1 - P if kept else P


def test_relu_of_the_gaussian_is_near_relu_under_all_masks(case):
    """The approximation itself, at only ten inputs: within two hundredths of a deviation, on average."""
    x, weight, bias, chances, under_masks = case
    found = FastDropoutReLU()(fast_dropout_linear(x, weight, bias, P))
    mean, variance = weighted_moments(under_masks.relu(), chances)
    scale = weighted_moments(under_masks, chances)[1].sqrt()
    assert ((found.mean - mean).abs() / scale).mean() < 0.02
    assert ((found.variance.sqrt() - variance.sqrt()).abs() / scale).mean() < 0.03


def test_a_deterministic_net_draws_nothing_until_its_last_layer():
    first, last = FastDropoutLinear(6, 50, p=0.2, deterministic=True), FastDropoutLinear(50, 4, deterministic=True)
    model = nn.Sequential(first, FastDropoutReLU(), last)
    x = torch.randn(8, 6)
    before = torch.get_rng_state()
    output = model(x)
    assert (torch.get_rng_state() == before).all()
    assert isinstance(output, Moments)
    assert (output.variance > 0).all()
    last.deterministic = False
    assert model(x).shape == (8, 4)
    (output.mean.sum() + output.variance.sum()).backward()
    assert all((parameter.grad != 0).any() for parameter in model.parameters())


def test_moments_pass_through_checkpointing_autocast_and_compilation():
    first, last = FastDropoutLinear(6, 50, deterministic=True), FastDropoutLinear(50, 4, deterministic=True)
    model, x = nn.Sequential(first, FastDropoutReLU(), last), torch.randn(8, 6)
    exact = model(x)
    torch.compiler.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    for again in (compiled(x), checkpoint(model, x, use_reentrant=False)):
        torch.testing.assert_close(tuple(again), tuple(exact))
    with torch.autocast("cpu", torch.bfloat16):
        low = model(x)
    assert (low.mean.dtype, low.variance.dtype) == (torch.bfloat16, torch.float32)
    torch.testing.assert_close(low.variance, exact.variance, rtol=0.02, atol=0)


def test_eval_is_the_plain_net():
    plain = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4))
    fast = nn.Sequential(
        FastDropoutLinear.from_layer(plain[0], deterministic=True),
        FastDropoutReLU(),
        FastDropoutLinear.from_layer(plain[2]),
    ).eval()
    x = torch.randn(8, 6)
    assert (fast(x) == plain(x)).all()


def test_eval_passes_on_moments_without_noise_of_its_own():
    layer = FastDropoutLinear(6, 5, deterministic=True).eval()
    mean, variance = torch.randn(2, 6), torch.rand(2, 6)
    found = layer(Moments(mean, variance))
    torch.testing.assert_close(found.variance, variance @ layer.weight.square().T)
    torch.testing.assert_close(found.mean, mean @ layer.weight.T + layer.bias)


def test_place_takes_over_the_very_parameters():
    plain = nn.Linear(6, 5)
    site = FastDropoutLinear.place(Site(None, nn.Dropout(0.2), plain), deterministic=True)
    assert isinstance(site.dropout, nn.Identity)
    assert site.after.weight is plain.weight
    assert site.after.bias is plain.bias
    assert (site.after.p, site.after.deterministic) == (0.2, True)
    with pytest.raises(ValueError, match=r"there stands Conv2d.*GaussianDropout has the same moments"):
        FastDropoutLinear.place(Site(None, nn.Dropout(0.2), nn.Conv2d(1, 1, 1)))


def test_silent_inputs_leave_the_gradient_finite():
    layer = FastDropoutLinear(6, 5)
    layer(torch.zeros(4, 6)).sum().backward()
    assert layer.weight.grad.isfinite().all()


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"takes inputs of shape \(..., 6\) but got one of shape \(2, 4\)"):
        FastDropoutLinear(6, 5)(torch.ones(2, 4))
    with pytest.raises(TypeError, match=r"torch\.int64"):
        FastDropoutLinear(6, 5)(torch.ones(2, 6, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"dropout rate is 1\.0"):
        FastDropoutLinear(6, 5, p=1.0)


def test_print_shows_the_rate():
    assert str(FastDropoutLinear(6, 5, p=0.2)) == (
        "FastDropoutLinear(in_features=6, out_features=5, bias=True, p=0.2, deterministic=False)"
    )


def power_of_relu(power, mean, variance):
    """E max(0, z)^power by numerical integration."""
    spread = math.sqrt(variance)

    def integrand(r):
        return (mean + spread * r) ** power * math.exp(-r * r / 2) / math.sqrt(2 * math.pi)

    return quad(integrand, max(-mean / spread, -12.0), 12.0, epsabs=1e-13)[0]


def test_the_rectified_moments_are_the_integrals():
    after = moments_of_relu(Moments(MEANS, VARIANCES))
    for i, (mean, variance) in enumerate(zip(MEANS.tolist(), VARIANCES.tolist(), strict=True)):
        first, second = power_of_relu(1, mean, variance), power_of_relu(2, mean, variance)
        assert float(after.mean[i]) == pytest.approx(first, rel=1e-9)
        assert float(after.variance[i]) == pytest.approx(second - first**2, rel=1e-8)


def test_the_rectified_moments_are_those_of_a_million_draws():
    means, variances = MEANS[:5], VARIANCES[:5]
    draws = (means + variances.sqrt() * torch.randn(1_000_000, 5, dtype=torch.float64)).relu()
    assert_moments(draws, *moments_of_relu(Moments(means, variances)))


def test_float32_rounds_by_the_size_of_the_variance_not_of_the_squared_mean():
    exact = moments_of_relu(Moments(MEANS, VARIANCES))
    single = moments_of_relu(Moments(MEANS.float(), VARIANCES.float()))
    epsilon = torch.finfo(torch.float32).eps
    assert ((single.mean - exact.mean).abs() <= 4 * epsilon * (MEANS.abs() + VARIANCES.sqrt())).all()
    assert ((single.variance - exact.variance).abs() <= 4 * epsilon * VARIANCES).all()


@pytest.mark.parametrize("variance", [0.0, 1e-45, 1e-38, 1e-20])
def test_units_that_are_sure_keep_or_lose_all(variance):
    mean = torch.tensor([-1.0, 0.0, 1.0, -1e20, 1e20], requires_grad=True)
    spread = torch.full((5,), variance, requires_grad=True)
    after = moments_of_relu(Moments(mean, spread))
    torch.testing.assert_close(after.mean, mean.relu(), rtol=0, atol=1e-9)
    assert after.variance.tolist() == pytest.approx([0, variance * (0.5 - 0.5 / math.pi), variance, 0, variance])
    (after.mean.sum() + after.variance.sum()).backward()
    assert mean.grad.isfinite().all()
    assert spread.grad.isfinite().all()


def test_gradients():
    mean = MEANS[:5].clone().requires_grad_()
    variance = VARIANCES[:5].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda m, v: tuple(moments_of_relu(Moments(m, v))), (mean, variance))

    def seeded(m, v):
        torch.manual_seed(3)
        return Moments(m, v).sample()

    assert torch.autograd.gradcheck(seeded, (mean, variance))


def test_a_draw_has_its_moments():
    shape = (100_000, len(MEANS))
    assert_moments(Moments(MEANS.expand(shape), VARIANCES.expand(shape)).sample(), MEANS, VARIANCES)


def test_no_variance_no_noise_and_no_gradient_of_it():
    variance = torch.zeros(3, requires_grad=True)
    drawn = Moments(torch.ones(3), variance).sample()
    drawn.sum().backward()
    assert drawn.tolist() == [1.0, 1.0, 1.0]
    assert variance.grad.tolist() == [0.0, 0.0, 0.0]


def test_half_precision_keeps_the_variance_wide():
    after = moments_of_relu(Moments(torch.ones(3, dtype=torch.bfloat16), torch.ones(3)))
    assert (after.mean.dtype, after.variance.dtype) == (torch.bfloat16, torch.float32)
    assert after.sample().dtype == torch.bfloat16
