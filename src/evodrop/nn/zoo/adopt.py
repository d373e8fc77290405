"""Make a layer with noise out of a plain one: the same sizes and the very same parameters."""

from __future__ import annotations

from typing import Any, TypeVar

from torch import nn
from torch.nn.parameter import is_lazy

__all__ = ["conv2d_like", "is_plain", "linear_like", "noisy_like"]

L = TypeVar("L", bound=nn.Linear)
C = TypeVar("C", bound=nn.Conv2d)
COMPUTING: dict[type[nn.Module], tuple[str, ...]] = {nn.Linear: ("forward",), nn.Conv2d: ("forward", "_conv_forward")}


def is_plain(layer: nn.Module | None, kind: type[nn.Linear] | type[nn.Conv2d]) -> bool:
    """Whether another layer may do what this one does: it computes as its ``kind``, with parameters of its own.

    Examples:
        >>> normed = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
        >>> is_plain(nn.Linear(2, 2), nn.Linear), is_plain(normed, nn.Linear), is_plain(None, nn.Linear)
        (True, False, False)
    """
    if not isinstance(layer, kind):
        return False
    # A forward of the layer alone, which tools hang on a single object, would be lost without a word.
    same_code = all(
        name not in layer.__dict__ and getattr(type(layer), name) is getattr(kind, name) for name in COMPUTING[kind]
    )
    weight = layer._parameters.get("weight")
    return same_code and "bias" in layer._parameters and weight is not None and not is_lazy(weight)


def linear_like(make: type[L], plain: nn.Linear, **options: Any) -> L:
    """A layer of class ``make`` with the parameters of ``plain``, the same objects: an optimizer keeps them."""
    _check_plain(plain, nn.Linear)
    bias = plain.bias is not None
    layer = make(plain.in_features, plain.out_features, bias=bias, device="meta", **options)
    _take_parameters(layer, plain)
    return layer


def conv2d_like(make: type[C], plain: nn.Conv2d, **options: Any) -> C:
    """As :func:`linear_like`, for a convolution."""
    _check_plain(plain, nn.Conv2d)
    names = ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups", "padding_mode")
    sizes = {name: getattr(plain, name) for name in names}
    layer = make(**sizes, bias=plain.bias is not None, device="meta", **options)
    _take_parameters(layer, plain)
    return layer


def noisy_like(plain: nn.Module | None, linear: Any, conv2d: Any, p: float, **options: Any) -> nn.Module | None:
    """A layer of one of the two classes with the parameters of ``plain``, or None if it is neither of the kinds."""
    if isinstance(plain, nn.Linear):
        made: nn.Module = linear.from_linear(plain, p, **options)
    elif isinstance(plain, nn.Conv2d):
        made = conv2d.from_conv2d(plain, p, **options)
    else:
        return None
    return made


def _check_plain(layer: nn.Module, kind: type[nn.Linear] | type[nn.Conv2d]) -> None:
    if not is_plain(layer, kind):
        raise ValueError(
            f"a {type(layer).__name__} cannot be replaced by a layer with noise, which takes the forward of "
            f"nn.{kind.__name__}, and weight and bias that are parameters; this one computes something else, has noise "
            "already, is not initialised, or makes its weight or bias of others, as weight normalisation and pruning "
            "do; leave it out by only=, or undo that first"
        )


def _take_parameters(layer: nn.Linear | nn.Conv2d, plain: nn.Linear | nn.Conv2d) -> None:
    layer.weight, layer.bias = plain.weight, plain.bias
    layer.train(plain.training)
