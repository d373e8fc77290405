"""Gaussian dropout: every unit times a normal factor of mean 1, with the variance of standard dropout's noise."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from evodrop._checks import checked_rate
from evodrop.nn._noise import UnitDims, checked_dims
from evodrop.nn.functional import check_tensor
from evodrop.nn.zoo._base import UnitDropout, unit_sizes, wide_dtype

__all__ = ["GaussianDropout", "gaussian_dropout"]


def gaussian_dropout(input: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    r"""Multiply every unit by normal noise of mean 1 and variance p / (1 - p).

    A sum over many units with the noise of standard dropout is nearly normal, so its first two moments matter. This
    keeps both, and never sets a unit to zero (Wang and Manning 2013; Srivastava et al. 2014, section 10).

    .. math:: \hat x_i = x_i \xi_i, \qquad \xi_i \sim N\bigl(1, \tfrac{p}{1-p}\bigr), \qquad
        E \hat x_i = x_i, \quad \mathrm{Var}\, \hat x_i = \tfrac{p}{1-p} x_i^2

    Args:
        input: a floating-point tensor.
        p: the dropout rate in [0, 1) whose noise is imitated.
        training: without it, or with p = 0, the input is returned, the very same tensor.

    Shape:
        Any shape; the output has the shape, dtype and memory format of the input.

    Examples:
        >>> x = torch.full((100_000,), 2.0)
        >>> y = gaussian_dropout(x, 0.2)
        >>> abs(float(y.mean()) - 2) < 0.02, abs(float(y.var()) - 0.2 / 0.8 * 4) < 0.03
        (True, True)
    """
    variance = noise_variance(p)
    if not training or variance == 0:
        return input
    return times_gaussian(input, math.sqrt(variance))


class GaussianDropout(UnitDropout):
    """:func:`gaussian_dropout` as a layer, in the place of ``nn.Dropout``; in eval mode the identity.

    Args:
        p: the dropout rate in [0, 1) whose noise is imitated: the variance is p / (1 - p).

    Shape:
        Any shape; the output has the shape, dtype and memory format of the input.

    Examples:
        >>> GaussianDropout(0.5)(torch.randn(128, 64)).shape
        torch.Size([128, 64])
    """

    def forward(self, input: Tensor) -> Tensor:
        return gaussian_dropout(input, self.p, self.training)


class LearnedUnitDropout(UnitDropout):
    """Normal noise with a deviation that is learned: one for all units, or one for each."""

    units: int | None
    unit_dims: UnitDims

    def _times_noise(self, input: Tensor, deviation: Tensor) -> Tensor:
        """``input`` times N(1, deviation^2), or a ValueError if it has other units than there are deviations."""
        check_tensor(input)
        if deviation.ndim:
            sizes = unit_sizes(input, self.unit_dims)
            if (d := math.prod(sizes)) != len(deviation):
                raise ValueError(
                    f"{type(self).__name__} learns a value for each of {len(deviation)} units, but an input of shape "
                    f"{tuple(input.shape)} has {d} in its dimensions {checked_dims(input, self.unit_dims)}; give "
                    f"units={d}, or other unit_dims"
                )
            deviation = deviation.view(sizes)
        return times_gaussian(input, deviation)

    def _extra_units(self) -> str:
        given = {"units": self.units, "unit_dims": self.unit_dims}
        return "".join(f", {name}={value!r}" for name, value in given.items() if value is not None)


def noise_variance(p: float) -> float:
    """p / (1 - p), the variance of standard dropout's noise, or a ValueError for a bad rate."""
    return checked_rate(p) / (1.0 - p)


def times_gaussian(input: Tensor, deviation: float | Tensor) -> Tensor:
    """``input`` times N(1, deviation^2); the deviation may be learned, so the gradient goes through it too."""
    check_tensor(input)
    normal = torch.randn_like(input, dtype=wide_dtype(input.dtype))
    return (input * (1.0 + deviation * normal)).to(input.dtype)
