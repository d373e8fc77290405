"""How strongly each unit acts on the next weighted layer: the sum of the squares of the weights that leave it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import fold, pad

from evodrop.nn._neighbours import ELEMENTWISE
from evodrop.nn.locally_connected import LocallyConnected2d

__all__ = ["checked_path", "outgoing_squares"]

Pair = tuple[int, int]
Path = Sequence[nn.Module]
Shape = tuple[int, ...]
Rule = Callable[[Any, Path, Shape], Tensor]
ENDS = (nn.Linear, nn.Conv2d, LocallyConnected2d)


def outgoing_squares(path: Path, shape: Shape) -> Tensor:
    """(*shape): for each unit, the sum of the squares of its outgoing weights.

    Args:
        path: what follows the units, up to a ``Linear``, ``Conv2d`` or ``LocallyConnected2d``. Between may stand
            ``Flatten``, pooling in two dimensions, batch normalisation, and activations, whose slopes count as 1. A
            unit's share of a maximum counts as if it were the maximum, and of a mean by its part. Windows that overlap
            count as if they met in no later unit.
        shape: of the units, without the batch: (d,), or (channels, height, width). For a convolution, (channels,)
            means whole channels.

    Examples:
        >>> linear = nn.Linear(4, 1, bias=False)
        >>> _ = nn.init.constant_(linear.weight, 3.0)
        >>> outgoing_squares([nn.AvgPool2d(2), nn.Flatten(), linear], (1, 4, 4))[0, 0]  # a quarter of 3, squared
        tensor([0.5625, 0.5625, 0.5625, 0.5625])
    """
    layer, rest = path[0], path[1:]
    return _rule_for(layer)(layer, rest, shape)


def checked_path(path: Path) -> tuple[nn.Module, ...]:
    """Layers that end with weights and through which units can be followed, or a ValueError."""
    if not path or not isinstance(path[-1], ENDS):
        raise ValueError(
            f"after is {path}, but it takes a layer with weights, or the layers up to one: Linear, Conv2d or "
            "LocallyConnected2d"
        )
    for layer in path:
        _rule_for(layer)
    return tuple(path)


def _rule_for(layer: nn.Module) -> Rule:
    for kind, rule in RULES.items():
        if isinstance(layer, kind):
            return rule
    raise ValueError(
        f"weight-aware dropout cannot follow units through {type(layer).__name__}, so it does not know their outgoing "
        "weights; place the dropout after that layer, or use EvolutionalDropout"
    )


def _linear(layer: Any, _rest: Path, shape: Shape) -> Tensor:
    if not shape or shape[-1] != layer.in_features:
        raise _misfit(layer, shape)
    return _squares(layer).sum(0).expand(shape)


def _convolution(layer: Any, _rest: Path, shape: Shape) -> Tensor:
    if len(shape) not in (1, 3) or shape[0] != layer.in_channels or layer.padding_mode != "zeros":
        raise _misfit(layer, shape)
    squares = _squares(layer)
    grouped = squares.reshape(layer.groups, -1, *squares.shape[1:]).sum(1).flatten(0, 1)  # (channels, *kernel)
    if len(shape) == 1:
        return grouped.sum((1, 2))
    left, right, top, bottom = layer._reversed_padding_repeated_twice
    before, after = (top, left), (bottom, right)
    sizes = [size + first + last for size, first, last in zip(shape[1:], before, after, strict=True)]
    windows = [_count(*args) for args in zip(sizes, layer.kernel_size, layer.stride, layer.dilation, strict=True)]
    if min(windows) < 1:
        raise _misfit(layer, shape)
    patches = grouped[..., None, None].expand(*grouped.shape, *windows)
    return _lay_out(patches, layer.stride, layer.dilation, before, shape)


def _local(layer: Any, _rest: Path, shape: Shape) -> Tensor:
    if shape != (layer.in_channels, *layer.input_size):
        raise _misfit(layer, shape)
    patches = _squares(layer).sum(-1).permute(4, 2, 3, 0, 1)
    return _lay_out(patches, layer.stride, (1, 1), layer.padding, shape)


def _pooling(layer: Any, rest: Path, shape: Shape) -> Tensor:
    """Each unit gets what the windows have in which it is, and of a mean a part of it."""
    if len(shape) != 3:
        raise _misfit(layer, shape)
    kernel, stride, padding = (_pair(getattr(layer, name)) for name in ("kernel_size", "stride", "padding"))
    dilation = _pair(getattr(layer, "dilation", 1))
    windows = [
        _count(size + 2 * edge, length, step, apart, layer.ceil_mode, size + edge)
        for size, edge, length, step, apart in zip(shape[1:], padding, kernel, stride, dilation, strict=True)
    ]
    after = outgoing_squares(rest, (shape[0], *windows))
    if isinstance(layer, nn.AvgPool2d):
        after = after / (layer.divisor_override or math.prod(kernel)) ** 2
    patches = after[:, None, None].expand(-1, *kernel, -1, -1)
    return _lay_out(patches, stride, dilation, padding, shape)


def _adaptive_pooling(layer: Any, rest: Path, shape: Shape) -> Tensor:
    if len(shape) != 3:
        raise _misfit(layer, shape)
    size = [asked or there for asked, there in zip(_pair(layer.output_size), shape[1:], strict=True)]
    if any(there % asked for there, asked in zip(shape[1:], size, strict=True)):
        raise _misfit(layer, shape)
    kernel = (shape[1] // size[0], shape[2] // size[1])
    plain = nn.AvgPool2d if isinstance(layer, nn.AdaptiveAvgPool2d) else nn.MaxPool2d
    return _pooling(plain(kernel), rest, shape)


def _flatten(layer: Any, rest: Path, shape: Shape) -> Tensor:
    if layer.start_dim != 1 or layer.end_dim not in (-1, len(shape)):
        raise _misfit(layer, shape)
    return outgoing_squares(rest, (math.prod(shape),)).reshape(shape)


def _batch_norm(layer: Any, rest: Path, shape: Shape) -> Tensor:
    """By the running variance: that of the batch to come is not known."""
    if layer.running_var is None or shape[:1] != (layer.num_features,):
        raise _misfit(layer, shape)
    factor: Tensor = 1.0 / (layer.running_var.float() + layer.eps)
    if layer.weight is not None:
        factor = factor * layer.weight.detach().float() ** 2
    return outgoing_squares(rest, shape) * factor.view(-1, *[1] * (len(shape) - 1))


def _unchanged(_layer: Any, rest: Path, shape: Shape) -> Tensor:
    return outgoing_squares(rest, shape)


RULES: dict[Any, Rule] = {
    nn.Linear: _linear,
    nn.Conv2d: _convolution,
    LocallyConnected2d: _local,
    (nn.MaxPool2d, nn.AvgPool2d): _pooling,
    (nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d): _adaptive_pooling,
    nn.Flatten: _flatten,
    (nn.BatchNorm1d, nn.BatchNorm2d): _batch_norm,
    ELEMENTWISE: _unchanged,
}


def _lay_out(patches: Tensor, stride: Pair, dilation: Pair, offset: Pair, shape: Shape) -> Tensor:
    """Add up (channels, *kernel, *windows) where they lie in pictures of ``shape``, whose corner is at ``offset``."""
    kernel, windows = patches.shape[1:3], patches.shape[3:]
    sizes = zip(windows, stride, dilation, kernel, strict=True)
    canvas = tuple((n - 1) * step + apart * (k - 1) + 1 for n, step, apart, k in sizes)
    rows = patches.reshape(1, -1, math.prod(windows))
    whole = fold(rows, canvas, tuple(kernel), dilation=dilation, stride=stride)[0]
    missing = [max(0, size + first - there) for size, first, there in zip(shape[1:], offset, canvas, strict=True)]
    whole = pad(whole, (0, missing[1], 0, missing[0]))
    return whole[:, offset[0] : offset[0] + shape[1], offset[1] : offset[1] + shape[2]]


def _count(size: int, kernel: int, stride: int, dilation: int, ceil: bool = False, end: int = 0) -> int:
    """The number of windows; a last one that sticks out has to begin before the ``end``."""
    room = size - dilation * (kernel - 1) - 1
    count = (room + (stride - 1 if ceil else 0)) // stride + 1
    return count - 1 if ceil and (count - 1) * stride >= end else count


def _squares(layer: Any) -> Tensor:
    weight: Tensor = layer.weight.detach()
    return torch.square(weight if weight.dtype == torch.float64 else weight.float())


def _pair(value: Any) -> Pair:
    return (value, value) if not isinstance(value, Sequence) else (value[0], value[1])


def _misfit(layer: nn.Module, shape: Shape) -> ValueError:
    return ValueError(
        f"weight-aware dropout: units of shape {shape} do not fit {layer}, or it is one through which units cannot be "
        "followed; check unit_dims, place the dropout directly before a layer with weights, or use EvolutionalDropout"
    )
