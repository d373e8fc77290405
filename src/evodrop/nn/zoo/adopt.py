"""Make a layer with noise out of a plain one: the same sizes and the very same parameters."""

from __future__ import annotations

from typing import Any, TypeVar

from torch import nn

from evodrop.nn.zoo.protocol import Place

__all__ = ["conv2d_like", "linear_like", "replace_after"]

L = TypeVar("L", bound=nn.Linear)
C = TypeVar("C", bound=nn.Conv2d)


def linear_like(make: type[L], plain: nn.Linear, **options: Any) -> L:
    """A layer of class ``make`` with the parameters of ``plain``, the same objects: an optimizer keeps them."""
    bias = plain.bias is not None
    layer = make(plain.in_features, plain.out_features, bias=bias, device="meta", **options)
    _take_parameters(layer, plain)
    return layer


def conv2d_like(make: type[C], plain: nn.Conv2d, **options: Any) -> C:
    """As :func:`linear_like`, for a convolution."""
    names = ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups", "padding_mode")
    sizes = {name: getattr(plain, name) for name in names}
    layer = make(**sizes, bias=plain.bias is not None, device="meta", **options)
    _take_parameters(layer, plain)
    return layer


def _take_parameters(layer: nn.Linear | nn.Conv2d, plain: nn.Linear | nn.Conv2d) -> None:
    layer.weight, layer.bias = plain.weight, plain.bias
    layer.train(plain.training)


def replace_after(place: Place, layer: nn.Module) -> Place:
    """The place with ``layer`` after it; the noise has moved there, so nothing is left of the dropout."""
    return place._replace(dropout=nn.Identity(), after=layer)
