from __future__ import annotations

import pytest
import torch
from helpers.five_errors import assert_moments
from scipy.stats import kstest

from evodrop.nn.zoo import GaussianDropout
from evodrop.nn.zoo.gaussian import gaussian_dropout

ROW = torch.tensor([-2.0, 0.0, 0.5, 3.0], dtype=torch.float64)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_mean_and_variance(p):
    draws = gaussian_dropout(ROW.expand(100_000, 4), p)
    assert_moments(draws, ROW, p / (1 - p) * ROW.square())


def test_the_noise_is_normal_and_independent():
    draws = gaussian_dropout(torch.ones(20_000, 3, dtype=torch.float64), 0.2)
    assert kstest(((draws - 1) / 0.5).flatten(), "norm").pvalue > 1e-3
    correlations = torch.corrcoef(draws.T)[torch.triu_indices(3, 3, 1).unbind()]
    assert (correlations.abs() < 5 / 20_000**0.5).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_rounds_the_output_alone(dtype):
    x = torch.rand(1000, dtype=torch.float32).to(dtype)
    torch.manual_seed(1)
    low = gaussian_dropout(x, 0.5)
    torch.manual_seed(1)
    torch.testing.assert_close(low, gaussian_dropout(x.float(), 0.5).to(dtype), rtol=0, atol=0)


def test_the_gradient_takes_the_noise_as_constant():
    x = torch.rand(50, requires_grad=True)
    y = gaussian_dropout(x, 0.5)
    y.sum().backward()
    torch.testing.assert_close(x.grad, (y / x).detach())


def test_the_module_is_the_function():
    x = torch.rand(6, 4)
    torch.manual_seed(1)
    y = GaussianDropout(0.3)(x)
    torch.manual_seed(1)
    assert (y == gaussian_dropout(x, 0.3)).all()
    assert gaussian_dropout(x, 0.3, training=False) is x
    assert str(GaussianDropout(0.3)) == "GaussianDropout(p=0.3)"


@pytest.mark.parametrize("p", [-0.1, 1.0, float("nan"), "0.5"])
def test_a_bad_rate_is_named(p):
    with pytest.raises(ValueError, match="dropout rate is"):
        GaussianDropout(p)
    with pytest.raises(ValueError, match="dropout rate is"):
        gaussian_dropout(ROW, p)


@pytest.mark.parametrize(("x", "message"), [(torch.ones(3, dtype=torch.int64), "torch.int64"), ([1.0], "a list")])
def test_a_bad_input_is_named(x, message):
    with pytest.raises(TypeError, match=message):
        GaussianDropout(0.5)(x)
