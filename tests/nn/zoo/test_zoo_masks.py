from __future__ import annotations

import pytest
import torch
from helpers.five_errors import assert_moments

from evodrop.nn.zoo import masks
from evodrop.nn.zoo.masks import draw_masks, masked_linear


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9])
def test_masks_are_independent_bits(keep):
    drawn = draw_masks(torch.zeros(3, 4), 50_000, keep)
    assert drawn.dtype == torch.bool
    assert_moments(drawn.flatten(1), keep, torch.full((12,), keep * (1 - keep), dtype=torch.float64))
    off_diagonal = torch.corrcoef(drawn.flatten(1).T.double()) - torch.eye(12)
    assert off_diagonal.abs().max() < 5 / 50_000**0.5


@pytest.mark.parametrize("block", [1, 12, 40, 10**6])
def test_blocks_are_the_whole_product(block, monkeypatch):
    monkeypatch.setattr(masks, "BLOCK", block)
    x, weight = torch.randn(7, 2, 5, requires_grad=True), torch.randn(4, 5, requires_grad=True)
    drawn, upstream = torch.rand(7, 4, 5) < 0.5, torch.randn(7, 2, 4)
    ours, whole = masked_linear(x, weight, drawn), torch.einsum("nti,oi,noi->nto", x, weight, drawn.float())
    torch.testing.assert_close(ours, whole)
    found = torch.autograd.grad(ours, (x, weight), upstream)
    for one, other in zip(found, torch.autograd.grad(whole, (x, weight), upstream), strict=True):
        torch.testing.assert_close(one, other)


def test_gradients_in_half_precision_are_added_up_in_full(monkeypatch):
    monkeypatch.setattr(masks, "BLOCK", 1)
    x, weight = torch.ones(600, 1, 2, dtype=torch.bfloat16), torch.ones(2, 2, dtype=torch.bfloat16, requires_grad=True)
    masked_linear(x, weight, torch.ones(600, 2, 2, dtype=torch.bool)).sum().backward()
    assert (weight.grad == 600).all()  # in bfloat16, 256 + 1 is 256


@pytest.mark.parametrize(("inputs", "outputs"), [(0, 3), (3, 0)])
def test_a_layer_without_weights_has_masks_too(inputs, outputs):
    x, weight = torch.ones(4, 1, inputs), torch.ones(outputs, inputs, requires_grad=True)
    output = masked_linear(x, weight, draw_masks(weight.detach(), 4, 0.5))
    output.sum().backward()
    assert (output == torch.zeros(4, 1, outputs)).all()
    assert weight.grad.shape == weight.shape


def test_masks_follow_the_seed_of_torch():
    torch.manual_seed(3)
    first = draw_masks(torch.zeros(3, 4), 8, 0.5)
    assert (draw_masks(torch.zeros(3, 4), 8, 0.5) != first).any()
    torch.manual_seed(3)
    assert (draw_masks(torch.zeros(3, 4), 8, 0.5) == first).all()


def test_the_gradient_can_be_differentiated():
    x, weight = torch.randn(3, 2, 4).double().requires_grad_(), torch.randn(5, 4).double().requires_grad_()
    drawn = torch.rand(3, 5, 4) < 0.5
    assert torch.autograd.gradgradcheck(lambda *both: masked_linear(*both, drawn), (x, weight))
