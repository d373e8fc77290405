from __future__ import annotations

import pytest
import torch
from torch import nn

from evodrop.experiments.networks.response_norm import ResponseNorm


@pytest.mark.parametrize("size", [1, 2, 4, 9, 30])
@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last])
def test_values_and_gradients_are_torchs(size, format):
    ours, torchs = ResponseNorm(12, size, 0.3, 0.6, 2.0).double(), nn.LocalResponseNorm(size, 0.3, 0.6, 2.0)
    x = torch.randn(3, 12, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 5
    x = x.contiguous(memory_format=format).requires_grad_()
    results = [(y, *torch.autograd.grad(y.sin().sum(), x)) for y in (ours(x), torchs(x))]
    torch.testing.assert_close(*results)
    assert results[0][0].is_contiguous(memory_format=format)


def test_it_is_a_local_response_norm_without_a_state():
    layer = ResponseNorm(64, 9, alpha=0.001)
    assert isinstance(layer, nn.LocalResponseNorm)
    assert str(layer) == "ResponseNorm(9, alpha=0.001, beta=0.75, k=1.0)"
    assert layer.state_dict() == {}
