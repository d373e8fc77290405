"""``torch.ops.evodrop.local``: the products of a locally connected layer.

No patch is copied and no padding multiplied. With the positions before the examples, (height, width, N, channels), what
one offset of the kernel sees from a row of positions is a slice of the input, and a batched product reads it in place.
The layer and its two gradients are three operators, each of which has the other two as its derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import unfold

__all__ = ["local", "local_by_patches", "local_to_input", "local_to_weight", "output_size"]

Slices = tuple[int | slice, ...]
Meeting = tuple[Slices, Slices, Slices]  # of the output, of the input and of the filters
Operator = Callable[[Tensor, Tensor, Sequence[int]], Tensor]


@torch.library.custom_op("evodrop::local", mutates_args=())
def local(input: Tensor, weight: Tensor, geometry: Sequence[int]) -> Tensor:
    """The layer without its biases; ``geometry`` are the sizes of input and kernel, the stride and the padding."""
    x, w = _positions_first(input), _wide(weight)
    output = x.new_zeros(*weight.shape[:2], len(input), weight.shape[-1])
    for here, there, filters in _meetings(tuple(geometry)):
        output[here].baddbmm_(x[there], w[filters])
    return _examples_first(output, input)


@torch.library.custom_op("evodrop::local_to_input", mutates_args=())
def local_to_input(grad: Tensor, weight: Tensor, geometry: Sequence[int]) -> Tensor:
    """The gradient of the input."""
    g, w = _positions_first(grad), _wide(weight)
    output = g.new_zeros(*geometry[:2], len(grad), weight.shape[-2])
    for here, there, filters in _meetings(tuple(geometry)):
        output[there].baddbmm_(g[here], w[filters].mT)
    return _examples_first(output, grad)


@torch.library.custom_op("evodrop::local_to_weight", mutates_args=())
def local_to_weight(grad: Tensor, input: Tensor, geometry: Sequence[int]) -> Tensor:
    """The gradient of the weights; those that only ever meet padding get 0."""
    g, x = _positions_first(grad), _positions_first(input)
    output = g.new_zeros(*grad.shape[2:], *geometry[2:4], input.shape[1], grad.shape[1])
    for here, there, filters in _meetings(tuple(geometry)):
        output[filters].baddbmm_(x[there].mT, g[here], beta=0)
    return output.to(grad.dtype)


@local.register_fake
def _(input: Tensor, weight: Tensor, geometry: Sequence[int]) -> Tensor:  # noqa: ARG001
    return _empty(input, (len(input), weight.shape[-1], *weight.shape[:2]))


@local_to_input.register_fake
def _(grad: Tensor, weight: Tensor, geometry: Sequence[int]) -> Tensor:
    return _empty(grad, (len(grad), weight.shape[-2], *geometry[:2]))


@local_to_weight.register_fake
def _(grad: Tensor, input: Tensor, geometry: Sequence[int]) -> Tensor:
    return grad.new_empty((*grad.shape[2:], *geometry[2:4], input.shape[1], grad.shape[1]))


def local_by_patches(input: Tensor, weight: Tensor, geometry: Sequence[int]) -> Tensor:
    """:func:`local` by torch's own operations, slow and simple, which ``torch.func`` can transform."""
    kernel, stride, padding = (tuple(geometry[start : start + 2]) for start in (2, 4, 6))
    patches = unfold(input, kernel, stride=stride, padding=padding)  # (N, channels * kernel, positions)
    filters = weight.permute(4, 2, 3, 0, 1, 5).reshape(*patches.shape[1:], -1)
    output = torch.einsum("ncp,cpo->nop", patches, filters)
    return output.reshape(*output.shape[:2], *weight.shape[:2])


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor, Sequence[int]], output: Tensor) -> None:  # noqa: ARG001
    ctx.save_for_backward(*inputs[:2])
    ctx.geometry = inputs[2]


def _differentiate(operator: Any, first: Operator, second: Operator) -> None:
    """An operator is linear in each of two tensors; ``first`` and ``second`` map a gradient and the other one back."""

    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        one, other = ctx.saved_tensors
        need_one, need_other, _ = ctx.needs_input_grad
        return (
            first(grad, other, ctx.geometry) if need_one else None,
            second(grad, one, ctx.geometry) if need_other else None,
            None,
        )

    operator.register_autograd(backward, setup_context=_keep)


def _swapped(operator: Operator) -> Operator:
    return lambda grad, other, geometry: operator(other, grad, geometry)


_differentiate(local, local_to_input, local_to_weight)
_differentiate(local_to_input, local, _swapped(local_to_weight))
_differentiate(local_to_weight, _swapped(local), _swapped(local_to_input))


def output_size(geometry: Sequence[int]) -> tuple[int, int]:
    height, width, kernel_height, kernel_width, down, right, top, left = geometry
    return (height + 2 * top - kernel_height) // down + 1, (width + 2 * left - kernel_width) // right + 1


@lru_cache(maxsize=256)
def _meetings(geometry: tuple[int, ...]) -> list[Meeting]:
    """Where outputs, inputs and filters meet: a slice of each per row of positions and offset in the kernel."""
    height, width, kernel_height, kernel_width, down, right, top, left = geometry
    rows, columns = output_size(geometry)
    spans = list(_spans(width, columns, kernel_width, right, left))
    meetings: list[Meeting] = []
    for row, i in product(range(rows), range(kernel_height)):
        line = row * down + i - top
        if 0 <= line < height:
            meetings += [((row, here), (line, there), (row, here, i, j)) for j, here, there in spans]
    return meetings


def _spans(size: int, positions: int, kernel: int, stride: int, padding: int) -> Iterator[tuple[int, slice, slice]]:
    """For each offset in the kernel: the positions from which it sees the input, and what it sees there."""
    for offset in range(kernel):
        first = max(0, -((offset - padding) // stride))
        last = min(positions - 1, (size - 1 - offset + padding) // stride)
        if first <= last:
            start, stop = (position * stride + offset - padding for position in (first, last))
            yield offset, slice(first, last + 1), slice(start, stop + 1, stride)


def _wide(tensor: Tensor) -> Tensor:
    """Half precision becomes float32, since a sum is rounded after each offset of the kernel."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _positions_first(pictures: Tensor) -> Tensor:
    return _wide(pictures.permute(2, 3, 0, 1)).contiguous()


def _examples_first(positions: Tensor, like: Tensor) -> Tensor:
    height, width, n, channels = positions.shape
    pictures = _empty(like, (n, channels, height, width))
    return pictures.copy_(positions.permute(2, 3, 0, 1))


def _empty(like: Tensor, shape: Sequence[int]) -> Tensor:
    """An empty tensor in the memory format of another one."""
    last = like.is_contiguous(memory_format=torch.channels_last) and not like.is_contiguous()
    memory_format = torch.channels_last if last else torch.contiguous_format
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=memory_format)
