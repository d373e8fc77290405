from __future__ import annotations

import math

import pytest
import torch
from helpers.five_errors import assert_moments
from scipy.integrate import quad

from evodrop.nn.zoo import Moments, moments_of_relu

MEANS = torch.tensor([-3.0, -0.5, 0.0, 0.7, 4.0, 20.0], dtype=torch.float64)
VARIANCES = torch.tensor([1.0, 4.0, 0.25, 0.09, 9.0, 5.0], dtype=torch.float64)


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
