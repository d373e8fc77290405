from __future__ import annotations

import numpy as np
import pytest
import torch

from evodrop._kernels.threads import NOISE, PRODUCTS
from evodrop.definitions import second_moments
from evodrop.nn import _numba
from evodrop.nn._noise import Options

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (4, 1024), (7, 1025), (128, 3000), (130, 20, 30)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_second_moments_are_those_of_the_definition(shape, dtype):
    rows = RNG.normal(size=shape).astype(dtype)
    expected = second_moments(rows) if len(shape) == 2 else second_moments(rows).mean(1)
    np.testing.assert_allclose(_numba.second_moments(rows), expected, rtol=1e-12)


@pytest.mark.parametrize("uniform_mix", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("source", ["batch", "probs", "uniform"])
def test_the_kernel_of_the_usual_call_does_what_the_steps_do(source, uniform_mix):
    x = RNG.normal(size=(50, 200)) * (RNG.random(200) < 0.8)
    options = Options(0.3, uniform_mix=uniform_mix, follows=source == "batch")
    weights = RNG.random(200) if source == "probs" else None
    results = compare(x, options, weights)
    assert (results[0].sum(axis=1) == 140).all()


@pytest.mark.parametrize("keep", [None, RNG.random(200).round(1)])
def test_a_usual_call_of_independent_noise_does_what_the_steps_do(keep):
    compare(RNG.normal(size=(50, 200)), Options(0.3, independent=True), keep)


def test_the_usual_call_of_positions_that_share_their_noise_does_what_the_steps_do():
    x, results = RNG.normal(size=(50, 20, 30)), []
    for drop in (_numba._drop_at_once, _numba._drop_in_steps):
        noise = np.full((50, 20), np.nan)
        results.append((*drop(x, Options(0.3, follows=True), None, 5, NOISE, noise), noise))
    for at_once, in_steps in zip(*results, strict=True):
        np.testing.assert_allclose(at_once, in_steps, rtol=1e-12)


def compare(x, options, values):
    results = []
    for task in (PRODUCTS, NOISE):
        for drop in (_numba._drop_at_once, _numba._drop_in_steps):
            output = np.full_like(x, np.nan)
            results.append((*drop(x, options, values, 5, task, output), output))
        for at_once, in_steps in zip(*results[-2:], strict=True):
            np.testing.assert_allclose(at_once, in_steps, rtol=1e-12)
        counts, scale, _ = results[-1]
        np.testing.assert_allclose(output, (x if task == PRODUCTS else 1.0) * (counts * scale), rtol=1e-12)
    return results[0]


@pytest.mark.parametrize("x", [np.zeros((2, 3)), np.array([[1.0, np.nan]]), np.array([[np.inf]]), np.ones((1, 1))])
def test_the_kernel_of_the_usual_call_leaves_the_unusual_to_the_steps(x):
    options = Options(0.5, k=300, follows=True)  # more than a byte holds, if there is one unit
    assert _numba._drop_at_once(x, options, None, 5, PRODUCTS, np.empty_like(x)) is None
    if not np.isfinite(x).all():
        options = Options(0.5, independent=True)
        assert _numba._drop_at_once(x, options, None, 5, NOISE, np.empty_like(x)) is None


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("count", [torch.uint8, torch.int32, torch.int64])
def test_the_product_is_that_of_torch(dtype, count):
    rows = torch.randn(5, 300, dtype=torch.float64).to(dtype)
    counts = torch.randint(0, 200, (5, 300)).to(count)
    scale = torch.rand(300, dtype=torch.float64 if dtype == torch.float64 else torch.float32)
    output = torch.empty_like(rows)
    _numba.multiply(rows, counts, scale, output)
    torch.testing.assert_close(output, (rows * (counts * scale)).to(dtype), rtol=0, atol=0)
