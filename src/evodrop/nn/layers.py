"""Layers that torch lacks: :class:`LocallyConnected2d`, a convolution whose positions do not share their weights."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from evodrop.nn.local import local, local_by_patches, output_size

__all__ = ["LocallyConnected2d"]

Pair = tuple[int, int]


class LocallyConnected2d(nn.Module):
    r"""A convolution with weights of its own at every position, and with biases of its own.

    Where a thing is seen matters in a centred picture, so a shared filter would waste its knowledge of the place. These
    are the "local" layers of cuda-convnet, which the paper's networks for SVHN and CIFAR use.

    .. math:: y_{o,h,w} = b_{o,h,w} + \sum_{c,i,j} W_{h,w,i,j,c,o} \; x_{c,\, sh + i - p,\, sw + j - p}

    Args:
        in_channels, out_channels: as in ``nn.Conv2d``.
        kernel_size: an integer or (height, width).
        input_size: of the pictures, an integer or (height, width): the number of weights depends on it.
        stride, padding: an integer or (height, width), as in ``nn.Conv2d``, with padding by zeros.
        bias: whether there are biases, one per channel and position.
        device, dtype: of the parameters.

    Shape:
        (N, in_channels, *input_size) to (N, out_channels, *output_size), in the memory format of the input. ``weight``
        is (*output_size, *kernel_size, in_channels, out_channels), ``bias`` is (out_channels, *output_size). Half
        precision is summed in float32.

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
        self.in_channels = _checked_count(in_channels, "in_channels", 1)
        self.out_channels = _checked_count(out_channels, "out_channels", 1)
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
        x, weight = as_autocast(input), as_autocast(self.weight)
        expected = (self.in_channels, *self.input_size)
        if tuple(x.shape[1:]) != expected or x.dtype != weight.dtype:
            raise ValueError(
                f"LocallyConnected2d: the input has shape {tuple(input.shape)} and {x.dtype}, but this layer takes "
                f"(N, {', '.join(map(str, expected))}) and {weight.dtype}; its weights belong to positions, so "
                "pictures of another size need another layer"
            )
        products = local_by_patches if torch._C._are_functorch_transforms_active() else local
        output: Tensor = products(x, weight, self.geometry)
        return output if self.bias is None else output + as_autocast(self.bias)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, input_size={self.input_size}"
        text += f", stride={self.stride}" + (f", padding={self.padding}" if any(self.padding) else "")
        return text + ("" if self.bias is not None else ", bias=False")


def _checked_count(value: int, name: str, least: int) -> int:
    if not (isinstance(value, numbers.Integral) and not isinstance(value, bool) and value >= least):
        raise ValueError(f"LocallyConnected2d: {name} is {value!r}, but it takes an integer of at least {least}")
    return int(value)


def _checked_pair(value: int | Sequence[int], name: str, least: int) -> Pair:
    """(height, width) of one integer for both, or of two."""
    pair = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value, value)
    if len(pair) != 2:
        raise ValueError(f"LocallyConnected2d: {name} is {value!r}, but it takes an integer or (height, width)")
    height, width = (_checked_count(one, name, least) for one in pair)
    return height, width


def as_autocast(tensor: Tensor) -> Tensor:
    """What autocast makes of the arguments of a convolution."""
    kind = tensor.device.type
    if not tensor.is_floating_point() or tensor.dtype == torch.float64:
        return tensor
    lowered = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return tensor.to(torch.get_autocast_dtype(kind)) if lowered else tensor
