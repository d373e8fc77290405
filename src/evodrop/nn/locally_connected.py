""":class:`LocallyConnected2d`, a convolution whose positions do not share their weights, and its products.

No patch is copied and no padding multiplied. With the positions before the examples, (height, width, N, channels), what
one offset of the kernel sees from a row of positions is a slice of the input, and a batched product reads it in place.
The layer and its two gradients are one operator, whose derivatives it gives itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.functional import unfold

from evodrop._checks import checked_integer

__all__ = ["LocallyConnected2d"]

Pair = tuple[int, int]
Slices = tuple[int | slice, ...]
Overlap = tuple[Slices, Slices, Slices]  # of the output, of the input and of the filters


class LocallyConnected2d(nn.Module):
    r"""A convolution with weights of its own at every position, and with biases of its own.

    In a centred picture it matters where something is seen, which a shared filter cannot learn. These are the "local"
    layers of cuda-convnet, which the paper's networks for SVHN and CIFAR use.

    .. math:: y_{o,h,w} = b_{o,h,w} + \sum_{c,i,j} W_{h,w,i,j,c,o} \; x_{c,\, sh + i - p,\, sw + j - p}

    Args:
        in_channels, out_channels: as in ``nn.Conv2d``.
        kernel_size: an integer or (height, width).
        input_size: of the pictures, an integer or (height, width): the number of weights depends on it.
        stride, padding: an integer or (height, width), as in ``nn.Conv2d``, with padding by zeros.
        bias: whether there are biases, one per channel and position.
        device, dtype: of the parameters.

    Shape:
        ``(N, in_channels, *input_size)`` to ``(N, out_channels, *output_size)``, in the memory format of the input.
        ``weight`` is ``(*output_size, *kernel_size, in_channels, out_channels)``, ``bias`` is
        ``(out_channels, *output_size)``. Half precision is summed in float32.

    Examples:
        >>> layer = LocallyConnected2d(64, 32, 3, input_size=(6, 6), padding=1)
        >>> layer(torch.randn(128, 64, 6, 6)).shape
        torch.Size([128, 32, 6, 6])
        >>> sum(parameter.numel() for parameter in layer.parameters())
        664704
    """

    bias: Tensor | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Pair,
        input_size: int | Pair,
        stride: int | Pair = 1,
        padding: int | Pair = 0,
        bias: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_channels = checked_integer(in_channels, "LocallyConnected2d: in_channels")
        self.out_channels = checked_integer(out_channels, "LocallyConnected2d: out_channels")
        self.kernel_size = _checked_pair(kernel_size, "kernel_size", 1)
        self.input_size = _checked_pair(input_size, "input_size", 1)
        self.stride = _checked_pair(stride, "stride", 1)
        self.padding = _checked_pair(padding, "padding", 0)
        self.output_size = output_size(self.geometry)
        if min(self.output_size) < 1:
            raise ValueError(
                f"LocallyConnected2d: a kernel of size {self.kernel_size} is larger than an input of size "
                f"{self.input_size} with padding {self.padding}; take a smaller kernel or more padding"
            )
        filters = (*self.output_size, *self.kernel_size, self.in_channels, self.out_channels)
        biases = (self.out_channels, *self.output_size)
        self.weight = nn.Parameter(torch.empty(filters, device=device, dtype=dtype))
        self.register_parameter("bias", nn.Parameter(torch.empty(biases, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    @property
    def geometry(self) -> tuple[int, ...]:
        return (*self.input_size, *self.kernel_size, *self.stride, *self.padding)

    def reset_parameters(self) -> None:
        """Uniform between plus and minus 1 / sqrt(fan in), as ``nn.Conv2d`` does."""
        bound = 1.0 / math.sqrt(self.in_channels * math.prod(self.kernel_size))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        if not isinstance(input, Tensor):
            raise TypeError(f"LocallyConnected2d: the input is a {type(input).__name__}, but it takes a tensor")
        x, weight = as_autocast(input), as_autocast(self.weight)
        expected = (self.in_channels, *self.input_size)
        if tuple(x.shape[1:]) != expected or x.dtype != weight.dtype:
            raise ValueError(
                f"LocallyConnected2d: the input has shape {tuple(input.shape)} and {x.dtype}, but this layer takes "
                f"(N, {', '.join(map(str, expected))}) and {weight.dtype}; its weights belong to positions, so "
                "pictures of another size need another layer"
            )
        # An operator of ours has neither transformations nor a forward-mode derivative.
        transformed = torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
        operands = x, weight, self.geometry
        output: Tensor = local_by_patches(*operands) if transformed else local(None, *operands)
        return output if self.bias is None else output + as_autocast(self.bias)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, input_size={self.input_size}"
        text += f", stride={self.stride}" + (f", padding={self.padding}" if any(self.padding) else "")
        return text + ("" if self.bias is not None else ", bias=False")


def _checked_pair(value: int | Sequence[int], name: str, least: int) -> Pair:
    """(height, width) of one integer for both, or of two."""
    pair = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value, value)
    if len(pair) != 2:
        raise ValueError(f"LocallyConnected2d: {name} is {value!r}, but it takes an integer or (height, width)")
    height, width = (checked_integer(one, f"LocallyConnected2d: {name}", least=least) for one in pair)
    return height, width


def as_autocast(tensor: Tensor) -> Tensor:
    """What autocast makes of the arguments of a convolution."""
    kind = tensor.device.type
    if not tensor.is_floating_point() or tensor.dtype == torch.float64:
        return tensor
    lowered = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return tensor.to(torch.get_autocast_dtype(kind)) if lowered else tensor


@torch.library.custom_op(
    "evodrop::local",
    mutates_args=(),
    schema="(Tensor? output, Tensor? input, Tensor? weight, int[] geometry) -> Tensor",
)
def local(output: Any, input: Any, weight: Any, geometry: Sequence[int]) -> Any:
    """Of three tensors the one that is None: the layer's output without biases, or the gradient of one of the others.

    ``geometry`` are the sizes of input and kernel, the stride and the padding. Weights that only see padding get 0.
    """
    y: Any = None if output is None else _positions_first(output)
    x: Any = None if input is None else _positions_first(input)
    w: Any = None if weight is None else _wide(weight)
    if y is None:
        y = x.new_zeros(*weight.shape[:2], x.shape[2], weight.shape[-1])
    elif x is None:
        x = y.new_zeros(*geometry[:2], y.shape[2], weight.shape[-2])
    else:
        w = y.new_zeros(*y.shape[:2], *geometry[2:4], x.shape[-1], y.shape[-1])
    for here, there, filters in _overlaps(tuple(geometry)):
        if output is None:
            y[here].baddbmm_(x[there], w[filters])
        elif input is None:
            x[there].baddbmm_(y[here], w[filters].mT)
        else:
            w[filters].baddbmm_(x[there].mT, y[here], beta=0)
    if weight is None:
        return w.to(output.dtype)
    return _examples_first(y, input) if output is None else _examples_first(x, output)


@local.register_fake
def _(output: Any, input: Any, weight: Any, geometry: Sequence[int]) -> Any:
    if output is None:
        return _empty(input, (len(input), weight.shape[-1], *weight.shape[:2]))
    if input is None:
        return _empty(output, (len(output), weight.shape[-2], *geometry[:2]))
    return output.new_empty((*output.shape[2:], *geometry[2:4], input.shape[1], output.shape[1]))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001
    *tensors, ctx.geometry = inputs
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """A gradient stands in for the tensor that was None; then each of the others may be the one that is."""
    tensors = [grad if tensor is None else tensor for tensor in ctx.saved_tensors]
    gradients = [
        local(*tensors[:place], None, *tensors[place + 1 :], ctx.geometry) if ctx.needs_input_grad[place] else None
        for place in range(3)
    ]
    return (*gradients, None)


local.register_autograd(_backward, setup_context=_keep)


def local_by_patches(input: Tensor, weight: Tensor, geometry: Sequence[int]) -> Tensor:
    """The output of :func:`local` by torch's own operations, for ``torch.func`` and forward mode."""
    kernel, stride, padding = (tuple(geometry[start : start + 2]) for start in (2, 4, 6))
    patches = unfold(input, kernel, stride=stride, padding=padding)  # (N, channels * kernel, positions)
    filters = weight.permute(4, 2, 3, 0, 1, 5).reshape(*patches.shape[1:], -1)
    output = torch.einsum("ncp,cpo->nop", patches, filters)
    return output.reshape(*output.shape[:2], *weight.shape[:2])


def output_size(geometry: Sequence[int]) -> tuple[int, int]:
    height, width, kernel_height, kernel_width, down, right, top, left = geometry
    return (height + 2 * top - kernel_height) // down + 1, (width + 2 * left - kernel_width) // right + 1


@lru_cache(maxsize=256)
def _overlaps(geometry: tuple[int, ...]) -> list[Overlap]:
    """A slice of the output, of the input and of the filters per row of positions and offset in the kernel."""
    height, width, kernel_height, kernel_width, down, right, top, left = geometry
    rows, columns = output_size(geometry)
    spans = list(_spans(width, columns, kernel_width, right, left))
    overlaps: list[Overlap] = []
    for row, i in product(range(rows), range(kernel_height)):
        line = row * down + i - top
        if 0 <= line < height:
            overlaps += [((row, here), (line, there), (row, here, i, j)) for j, here, there in spans]
    return overlaps


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
