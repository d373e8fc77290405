"""Masks over weights, one per example: how they are drawn, and a linear layer's product with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evodrop._kernels.threads import useful_threads
from evodrop.nn._noise import draw_seed, unmapped
from evodrop.nn.zoo.gaussian import wide
from evodrop.sampling import draw_mask

__all__ = ["draw_masks", "masked_linear"]

BLOCK = 2**18  # weights that are multiplied by their masks at a time: they stay in the cache until they are used


def draw_masks(weight: Tensor, copies: int, keep: float) -> Tensor:
    """(copies, *weight.shape) of bool, independent, each True with probability ``keep``.

    On a CPU our kernel draws them, at a fraction of the time that ``bernoulli_`` takes.

    Examples:
        >>> draw_masks(torch.zeros(100, 50), 8, 0.25).shape
        torch.Size([8, 100, 50])
    """
    if weight.device.type != "cpu" or weight.numel() == 0:
        return torch.rand((copies, *weight.shape), device=weight.device) < keep
    transformed = torch._C._are_functorch_transforms_active() and not torch.compiler.is_compiling()
    drawn: Tensor = _masks(weight, copies, keep, draw_seed(weight.device) if transformed else None)
    return drawn


@torch.library.custom_op("evodrop::draw_masks", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,))
def _masks(weight: Tensor, copies: int, keep: float, seed: Tensor | None) -> Tensor:
    """By a seed that is given, since vmap knows whether there is one for each or one for all, or by one of its own."""
    bits = int(draw_seed(weight.device) if seed is None else seed) % 2**64
    threads = useful_threads(torch.get_num_threads(), copies * weight.numel())
    drawn = draw_mask(np.full(weight.numel(), keep), copies, bits, threads)
    return torch.from_numpy(drawn).view(torch.bool).reshape(copies, *weight.shape)


@_masks.register_fake
def _(weight: Tensor, copies: int, keep: float, seed: Tensor | None) -> Tensor:  # noqa: ARG001
    return weight.new_empty((copies, *weight.shape), dtype=torch.bool)


@_masks.register_vmap
def _(
    info: Any, in_dims: tuple[int | None, ...], weight: Tensor, copies: int, keep: float, seed: Tensor | None
) -> tuple[Tensor, int]:
    weights, seeds = (unmapped(one, dim, info.batch_size) for one, dim in ((weight, in_dims[0]), (seed, in_dims[3])))
    each = zip(weights, seeds, strict=True)
    return torch.stack([_masks(one, copies, keep, its_seed) for one, its_seed in each]), 0


def masked_linear(input: Tensor, weight: Tensor, masks: Tensor) -> Tensor:
    """A linear layer with a mask over its weights for every example; a byte of each mask is kept, and no product.

    Args:
        input: (n, positions, in_features).
        weight: (out_features, in_features).
        masks: (n, out_features, in_features) of bool.

    Shape:
        (n, positions, out_features).

    Examples:
        >>> masked_linear(torch.ones(1, 1, 2), torch.tensor([[3.0, 4.0]]), torch.tensor([[[True, False]]]))
        tensor([[[3.]]])
    """
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return torch.bmm(input, (weight * masks).mT)
    output: Tensor = _MaskedLinear.apply(input, weight, masks)  # type: ignore[no-untyped-call]
    return output


class _MaskedLinear(torch.autograd.Function):
    """In blocks of examples and outputs: the masked weights of all would fit into no cache, nor perhaps into memory.

    Gradients are added up in float32 or wider, as in a product of whole matrices. The backward pass is made of torch's
    own operations on what was given, so it can be differentiated again.
    """

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, masks: Tensor) -> Tensor:
        ctx.save_for_backward(input, weight, masks)
        output = input.new_empty((*input.shape[:2], len(weight)))
        for some, outputs in _blocks(masks):
            output[some, :, outputs] = torch.bmm(input[some], (weight[outputs] * masks[some, outputs]).mT)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight, masks = ctx.saved_tensors
        to_input, to_weight = (torch.zeros_like(one, dtype=wide(one.dtype)) for one in (x, weight))
        for some, outputs in _blocks(masks):
            coming, mask = grad[some, :, outputs], masks[some, outputs]
            to_input[some] += torch.bmm(coming, weight[outputs] * mask)
            to_weight[outputs] += (torch.bmm(coming.mT, x[some]) * mask).sum(0)
        return to_input.to(x.dtype), to_weight.to(weight.dtype), None


def _blocks(masks: Tensor) -> Iterator[tuple[slice, slice]]:
    """Many examples with all outputs where a mask is small, else an example with some of the outputs."""
    n, outputs, inputs = masks.shape
    across = max(1, min(outputs, BLOCK // max(1, inputs)))
    many = max(1, BLOCK // max(1, across * inputs))
    for start in range(0, n, many):
        for first in range(0, outputs, across):
            yield slice(start, start + many), slice(first, first + across)
