from __future__ import annotations

import pytest
import torch
from torch import nn

from evodrop.lab.networks import PICTURES, ResponseNorm


@pytest.mark.parametrize("size", [1, 2, 4, 9, 30])
@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("n", [0, 3, PICTURES + 1])
def test_values_and_gradients_are_torchs(size, format, n):
    ours, torchs = ResponseNorm(12, size, 0.3, 2.0).double(), nn.LocalResponseNorm(size, 0.3, 0.75, 2.0)
    x = torch.randn(n, 12, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 5
    x = x.contiguous(memory_format=format).requires_grad_()
    results = [(y, *torch.autograd.grad(y.sin().sum(), x)) for y in (ours(x), torchs(x))]
    torch.testing.assert_close(*results)
    assert results[0][0].is_contiguous(memory_format=format)


def test_it_is_a_local_response_norm_without_a_state():
    layer = ResponseNorm(64, 9, alpha=0.001)
    assert isinstance(layer, nn.LocalResponseNorm)
    assert str(layer) == "ResponseNorm(9, alpha=0.001, beta=0.75, k=1.0)"
    assert layer.state_dict() == {}


def test_single_precision_is_within_1e_6_of_torchs():
    x = torch.randn(40, 64, 6, 6, generator=torch.Generator().manual_seed(1)) * 30
    ours, torchs = ResponseNorm(64, 9, alpha=0.001)(x), nn.LocalResponseNorm(9, alpha=0.001)(x)
    torch.testing.assert_close(ours, torchs, rtol=1e-6, atol=0.0)


def test_gradcheck():
    x = torch.randn(2, 5, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2), requires_grad=True)
    assert torch.autograd.gradcheck(ResponseNorm(5, 4, 0.5).double(), (x,))
