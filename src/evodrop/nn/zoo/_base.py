"""What the dropouts of the zoo share: a place in a model, penalties, layers made of plain ones, Gaussian sums."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from inspect import getattr_static, signature
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional
from torch.nn.modules import activation, batchnorm, conv, normalization
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.parameter import is_lazy

from evodrop._checks import checked_rate
from evodrop.nn._noise import UnitDims, checked_dims
from evodrop.nn.functional import check_tensor
from evodrop.nn.locally_connected import LocallyConnected2d

# What a layer with weights may be, and what neighbours see past.
WEIGHTED = (nn.Linear, nn.Embedding, conv._ConvNd, LocallyConnected2d)
# Activations that are no maps of single units: what comes out at one depends on others.
MIXING = {"MultiheadAttention", "Softmax", "Softmax2d", "LogSoftmax", "Softmin", "GLU"}
ELEMENTWISE: tuple[type[nn.Module], ...] = (
    *(getattr(activation, name) for name in activation.__all__ if name not in MIXING),
    nn.Identity,
    _DropoutNd,
)
POOLING: tuple[type[nn.Module], ...] = tuple(
    getattr(nn, f"{kind}Pool{n}d") for kind in ("Max", "Avg", "LP", "AdaptiveMax", "AdaptiveAvg") for n in (1, 2, 3)
)
NORMALISATION: tuple[type[nn.Module], ...] = (
    batchnorm._NormBase,
    *(getattr(normalization, name) for name in normalization.__all__),
)

Layer = nn.Linear | nn.Conv2d
L = TypeVar("L", bound=nn.Module)


class Site(NamedTuple):
    """A dropout layer of a model with its neighbours: the weighted layers before and after it, where they are known.

    ``convert_dropout`` passes it to the classmethod ``place`` of a class, which returns a site with the new layers. A
    class without ``place`` takes the rate alone. A class with ``needs``, a set of ``"before"`` and ``"after"``, gets
    only sites with these neighbours.
    """

    before: nn.Module | None
    dropout: nn.Module
    after: nn.Module | None
    between: tuple[nn.Module, ...] = ()  # what stands between the dropout and the layer after it: activations, pooling
    since: tuple[nn.Module, ...] = ()  # what stands between the layer before and the dropout

    @property
    def p(self) -> float:
        return float(self.dropout.p)  # type: ignore[arg-type]


class UnitDropout(_DropoutNd):
    """Noise on units, instead of ``nn.Dropout``. In eval mode the identity, unless the class says otherwise."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(checked_rate(p))

    def extra_repr(self) -> str:
        return f"p={self.p}"


class WeightedDropout(nn.Module):
    """A linear layer or a convolution with noise of its own: it replaces a dropout and the plain layer beside it."""

    needs: ClassVar[frozenset[str]] = frozenset({"after"})  # the side of that plain layer
    makes: ClassVar[tuple[Any, ...]] = ()  # the classes that may replace it, if not this one alone
    remedy: ClassVar[str]  # where the layer beside the dropout is of another kind
    shown: ClassVar[tuple[str, ...]] = ("p",)
    p: float
    weight: Tensor
    bias: Any  # a Tensor or None

    def __init__(self, *sizes: Any, p: float, **options: Any) -> None:
        if any(isinstance(size, float) for size in sizes):  # nn.Linear would take a third one for its bias
            raise TypeError(f"{type(self).__name__} was given {sizes}, but its sizes are integers; give the rate as p=")
        super().__init__(*sizes, **options)
        self.p = checked_rate(p)

    @classmethod
    def from_layer(cls, plain: nn.Module, p: float = 0.5, **options: Any) -> Self:
        """The same layer with noise. It has the very parameters of the plain one, so an optimizer keeps them.

        Args:
            plain: an ``nn.Linear``, or an ``nn.Conv2d`` for a class of convolutions.
            p: the rate.
            options: as in the class.
        """
        return layer_like(cls, plain, p=p, **options)

    @classmethod
    def place(cls, site: Site, **options: Any) -> Site:
        """The site without its dropout, and with noise in the plain layer beside it."""
        (side,), makes = cls.needs, cls.makes or (cls,)
        neighbour = getattr(site, side)
        for make in makes:
            if isinstance(neighbour, _kind(make)):
                return site._replace(dropout=nn.Identity(), **{side: make.from_layer(neighbour, site.p, **options)})
        kinds = " or ".join(f"nn.{_kind(make).__name__}" for make in makes)
        raise ValueError(
            f"{cls.__name__} works on the {kinds} {side} {site.dropout}, but there stands {neighbour}; {cls.remedy}"
        )

    def extra_repr(self) -> str:
        return ", ".join([super().extra_repr(), *(f"{name}={getattr(self, name)!r}" for name in self.shown)])

    def _check(self, input: Tensor) -> None:
        """An error unless the layer takes the input."""
        if not isinstance(self, nn.Conv2d):
            return check_features(input, self.weight)
        check_tensor(input)
        if input.ndim not in (3, 4) or input.shape[-3] != self.in_channels:
            raise ValueError(
                f"{type(self).__name__}: the input has shape {tuple(input.shape)}, but this layer takes pictures with "
                f"{self.in_channels} channels, (N, C, H, W) or (C, H, W)"
            )

    def _product(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """What the plain layer makes of the input with this weight and bias."""
        if not isinstance(self, nn.Conv2d):
            return functional.linear(input, weight, bias)
        output: Tensor = self._conv_forward(input, weight, bias)
        return output

    def _variance(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The variance of the output, where weight and bias are independent noise of these variances."""
        with full_precision(input):
            return self._product(squared(input), weight, bias)


def penalties(model: nn.Module) -> Tensor:
    """The sum of the penalties of all layers, 0 if none has any; divide it by the number of training examples.

    Examples:
        >>> penalties(nn.Linear(2, 2))
        tensor(0.)
    """
    # Not by getattr: a wrapper such as that of torch.compile has the attributes of its layer, which would count twice.
    penalised: list[Any] = [layer for layer in model.modules() if callable(getattr_static(layer, "penalty", None))]
    terms: list[Tensor] = [layer.penalty() for layer in penalised]
    if not terms:
        return torch.zeros(())
    device = max(terms, key=lambda term: term.requires_grad).device  # a layer that learns nothing may be on another
    return torch.stack([term.to(device) for term in terms]).sum()


def is_plain(layer: nn.Module | None, kind: type[Layer]) -> bool:
    """Whether another layer may do what this one does: it computes as its ``kind``, with parameters of its own."""
    if not isinstance(layer, kind):
        return False
    # Tools that quantise or time single layers give one object a forward of its own; a new layer would lose it.
    same_code = all(
        name not in layer.__dict__ and getattr(type(layer), name, None) is getattr(kind, name, None)
        for name in ("forward", "_conv_forward")
    )
    weight = layer._parameters.get("weight")
    return same_code and "bias" in layer._parameters and weight is not None and not is_lazy(weight)


def layer_like(make: type[L], plain: nn.Module, **options: Any) -> L:
    """A layer of class ``make`` with the sizes, the mode and the very parameters of ``plain``."""
    kind = _kind(make)
    if not is_plain(plain, kind):
        raise ValueError(
            f"a {type(plain).__name__} cannot be replaced by {make.__name__}, which takes the forward of "
            f"nn.{kind.__name__}, and weight and bias that are parameters; this one computes something else, has noise "
            "already, is not initialised, or makes its weight or bias of others, as weight normalisation and pruning "
            "do; leave it out by only=, or undo that first"
        )
    sizes = {name: getattr(plain, name) for name in signature(kind).parameters.keys() - {"bias", "device", "dtype"}}
    layer = make(**sizes, bias=plain.bias is not None, device="meta", **options)
    layer.weight, layer.bias = plain.weight, plain.bias
    return layer.train(plain.training)


def _kind(make: type[nn.Module]) -> type[Layer]:
    return nn.Conv2d if issubclass(make, nn.Conv2d) else nn.Linear


class Moments(NamedTuple):
    """Mean and variance of every unit of a layer, taken as independent and normal; the variance in float32 or wider.

    A pre-activation is a sum over many noisy terms, so it is nearly normal whatever the noise. One draw per
    pre-activation then stands for one per input or weight (Wang and Manning 2013; Kingma, Salimans and Welling 2015).
    """

    mean: Tensor
    variance: Tensor

    def sample(self) -> Tensor:
        """One draw per unit, by reparameterisation: the gradient goes through the mean and the variance."""
        normal = torch.randn_like(self.variance)
        positive = self.variance > 0  # the slope of the root is infinite at 0, where there is no noise to learn from
        deviation = self.variance.where(positive, 1.0).sqrt().where(positive, 0.0)
        return (self.mean + deviation * normal).to(self.mean.dtype)


def unit_sizes(input: Tensor, unit_dims: UnitDims) -> list[int]:
    """The shape of one value per unit that broadcasts with the input."""
    dims = checked_dims(input, unit_dims)
    return [size if dim in dims else 1 for dim, size in enumerate(input.shape)]


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} is {value!r}, but it is one of {', '.join(map(repr, choices))}")


def check_features(input: Tensor, weight: Tensor) -> None:
    """An error unless a linear layer with this weight takes the input."""
    check_tensor(input)
    if input.ndim == 0 or input.shape[-1] != weight.shape[1]:
        raise ValueError(
            f"a linear layer with weight of shape {tuple(weight.shape)} takes inputs of shape (..., {weight.shape[1]}) "
            f"but got one of shape {tuple(input.shape)}; flatten it, or make the layer for its last dimension"
        )


def takes_torch_alone() -> bool:
    """Whether a compiler, torch.func or forward mode is at work. They take no function of ours with a gradient."""
    traced = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
    return traced or forward_ad._current_level >= 0


def full_precision(tensor: Tensor) -> AbstractContextManager[object]:
    """A block where autocast lowers nothing: half precision would round or lose the squares that make a variance."""
    kind = tensor.device.type
    return torch.autocast(kind, enabled=False) if torch.amp.is_autocast_available(kind) else nullcontext()


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """Where moments are computed: float32 for half precision, or the dtype itself."""
    return torch.promote_types(dtype, torch.float32)


def widened(tensor: Tensor) -> Tensor:
    """The same values in float32 or wider."""
    return tensor.to(wide_dtype(tensor.dtype))


def squared(tensor: Tensor) -> Tensor:
    """The squares, in float32 or wider."""
    return widened(tensor).square()
