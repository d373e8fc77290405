"""Variational dropout of type A: Gaussian dropout of units whose variance is learned, with its price as a penalty."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from evodrop.nn._neighbours import POOLING
from evodrop.nn._noise import checked_dims, count_units
from evodrop.nn.functional import check_tensor
from evodrop.nn.zoo.alpha import LearnedAlpha, checked_per, clipped, initial_log_alpha
from evodrop.nn.zoo.gaussian import times_gaussian
from evodrop.nn.zoo.protocol import About, Place, ZooDropout

__all__ = ["VariationalDropout"]


class VariationalDropout(LearnedAlpha, ZooDropout):
    r"""Multiply every unit by normal noise whose variance alpha is learned, in the place of ``nn.Dropout``.

    Noise on a unit is noise on all its outgoing weights at once. Read as a posterior of the weights, with a log-uniform
    prior, alpha can be learned from the evidence lower bound: the loss pulls it down, :meth:`penalty` pulls it up
    (Kingma, Salimans and Welling 2015, section 3.2; their type A). Add ``penalties(model) / n_train`` to the mean loss.

    .. math:: \hat x_i = x_i \xi_i, \qquad \xi_i \sim N(1, \alpha_i), \qquad
        E \hat x_i = x_i, \quad \mathrm{Var}\, \hat x_i = \alpha_i x_i^2, \qquad 0 < \alpha_i \le 1

    Args:
        p: rate in [0, 1) that gives the first alpha, p / (1 - p), at most 1: any p above 1/2 starts at 1. At p = 0 the
            layer is off: the identity, with penalty 0.
        per: ``"layer"``, one alpha for all units, or ``"unit"``, one for each.
        units: number of units d. Needed per unit. Per layer, the widest training batch so far tells, so a layer that
            is used in many places counts for its widest.
        unit_dims: dimensions that are units; all others are examples. Default: every dimension but the first. The noise
            is independent for every example and unit. For a sequence, (N, T, C), -1 is usually meant.

    Attributes:
        log_alpha: the learned logarithms, () or (d,). Weight decay should leave them out.

    Shape:
        Any shape; the output has the shape, dtype and memory format of the input.

    Examples:
        >>> layer = VariationalDropout(0.2, per="unit", units=150)
        >>> layer(torch.randn(128, 150)).shape, layer.alpha[0]
        (torch.Size([128, 150]), tensor(0.2500, grad_fn=<SelectBackward0>))
        >>> loss = layer(torch.randn(128, 150)).square().mean() + layer.penalty() / 60_000
    """

    about: ClassVar[About] = About(
        name="variational",
        year=2015,
        source="Kingma, Salimans and Welling 2015, type A",
        noise="x N(1, alpha), independent for every unit: mean x, variance alpha x^2, alpha at most 1",
        learns="alpha, per layer or unit",
        cost="as Gaussian dropout, and a sum over the alphas",
        regularizer="the KL divergence of the noise from a log-uniform prior, one term per unit",
        use="where the rate should be learned instead of tuned",
    )
    likes: ClassVar[frozenset[str]] = frozenset({"before", "after"})

    def __init__(
        self,
        p: float = 0.5,
        *,
        per: str = "layer",
        units: int | None = None,
        unit_dims: int | Sequence[int] | None = None,
    ) -> None:
        super().__init__(p)
        self.per = checked_per(per, ("layer", "unit"))
        self.units = _checked_units(units, per)
        self.unit_dims = unit_dims
        shape = () if per == "layer" else (self.units,)
        self.log_alpha = nn.Parameter(torch.full(shape, initial_log_alpha(p)))  # type: ignore[arg-type]

    @classmethod
    def fit_in(cls, place: Place, **options: Any) -> Place:
        """The same place with this dropout in it; one alpha per unit takes their number from the neighbours."""
        if options.get("per") == "unit" and "units" not in options:
            options = {**_units_between(place), **options}
        return super().fit_in(place, **options)

    def _terms(self) -> int:
        if self.units is None:
            raise RuntimeError("the penalty needs the number of units: give units, or train on a batch first")
        return self.units

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return input
        check_tensor(input)
        dims = checked_dims(input, self.unit_dims)
        self._count(input, dims)
        sizes = [size if dim in dims else 1 for dim, size in enumerate(input.shape)]
        deviation = (0.5 * clipped(self.log_alpha)).exp()
        return times_gaussian(input, deviation if self.per == "layer" else deviation.view(sizes))

    def _count(self, input: Tensor, dims: Sequence[int]) -> None:
        d = count_units(input, dims)
        if self.per == "layer":
            self.units = max(d, self.units or 1)
        elif d != self.units:
            raise ValueError(
                f"VariationalDropout has an alpha for each of {self.units} units, but an input of shape "
                f"{tuple(input.shape)} has {d} in its dimensions {tuple(dims)}; give units={d}, or other unit_dims"
            )

    def extra_repr(self) -> str:
        told = {"units": self.units, "unit_dims": self.unit_dims}
        return f"p={self.p}, per={self.per!r}" + "".join(f", {k}={v!r}" for k, v in told.items() if v is not None)


def _checked_units(units: int | None, per: str) -> int | None:
    if units is None and per == "layer":
        return None
    if not (isinstance(units, numbers.Integral) and not isinstance(units, bool) and units >= 1):
        raise ValueError(f"units is {units!r}, but VariationalDropout(per={per!r}) takes their number, at least 1")
    return int(units)


def _units_between(place: Place) -> dict[str, int]:
    """The options that tell the units of a dropout: the inputs of the layer after it, or the outputs of that before.

    Behind pooling and flattening a linear layer has other inputs than the dropout; channels are the same on any way.
    """
    flattened, pooled = (any(isinstance(one, kinds) for one in place.between) for kinds in (nn.Flatten, POOLING))
    if isinstance(place.after, nn.Linear) and not pooled:
        return {"units": place.after.in_features} | ({} if flattened else {"unit_dims": -1})
    if isinstance(place.after, nn.Conv2d):
        return {"units": place.after.in_channels, "unit_dims": 1}
    if isinstance(place.before, nn.Linear):
        return {"units": place.before.out_features, "unit_dims": -1}
    if isinstance(place.before, nn.Conv2d):
        return {"units": place.before.out_channels, "unit_dims": 1}
    return {}
