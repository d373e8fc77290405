from __future__ import annotations

import numpy as np
import pytest
import torch

from evodrop.definitions import second_moments
from evodrop.nn import cpu
from evodrop.nn.law import Law, find_chances

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (4, 1024), (7, 1025), (128, 3000), (130, 20, 30)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_second_moments_are_those_of_the_definition(shape, dtype):
    rows = RNG.normal(size=shape).astype(dtype)
    expected = second_moments(rows) if len(shape) == 2 else second_moments(rows).mean(1)
    np.testing.assert_allclose(cpu.second_moments(rows), expected, rtol=1e-12)


@pytest.mark.parametrize("uniform_mix", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("source", ["batch", "probs", "uniform"])
def test_the_kernel_of_the_usual_case_finds_the_chances_of_the_law(source, uniform_mix):
    rms = np.where(RNG.random(200) < 0.2, 0.0, RNG.random(200))
    law = Law("batch" if source == "batch" else "probs", 0.3, uniform_mix=uniform_mix)
    weights = RNG.random(200) if source == "probs" else None
    usual, general = cpu._usual_chances(law, rms, weights, np.float64), find_chances(law, rms, weights)
    assert usual.k == general.k == 140
    np.testing.assert_allclose(usual.chances, general.chances, rtol=1e-12)
    np.testing.assert_allclose(usual.scale, general.scale, rtol=1e-12)


@pytest.mark.parametrize("rms", [np.zeros(3), np.array([1.0, np.nan, 2.0]), np.array([1.0, np.inf, 2.0])])
def test_the_kernel_of_the_usual_case_leaves_the_unusual_to_the_law(rms):
    assert cpu._usual_chances(Law("batch", 0.5), rms, None, np.float64) is None


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("count", [torch.uint8, torch.int32, torch.int64])
def test_the_product_is_that_of_torch(dtype, count):
    rows = torch.randn(5, 300, dtype=torch.float64).to(dtype)
    counts = torch.randint(0, 200, (5, 300)).to(count)
    scale = torch.rand(300, dtype=torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(cpu.multiply(rows, counts, scale), (rows * (counts * scale)).to(dtype), rtol=0, atol=0)
