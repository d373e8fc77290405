"""Fast dropout: the pre-activations of a layer with dropped inputs as Gaussians, drawn once each, or never drawn."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from evodrop._checks import checked_rate
from evodrop.nn.zoo._base import Moments, WeightedDropout, check_features, full_precision, squared

__all__ = ["FastDropoutLinear", "FastDropoutReLU", "fast_dropout_linear", "moments_of_relu"]

FAR = 10.0  # so many deviations from 0 the tail beyond 0 is below 1e-23: the unit is surely on, or surely off


def fast_dropout_linear(input: Tensor | Moments, weight: Tensor, bias: Tensor | None = None, p: float = 0.5) -> Moments:
    r"""Mean and variance of a linear layer whose inputs are dropped at rate p, without drawing a mask.

    Wang and Manning 2013. An input has a mean :math:`\mu_i` and a variance :math:`\sigma_i^2`, 0 where it is known.

    .. math:: E z_j = b_j + \sum_i w_{ji} \mu_i, \qquad
        \mathrm{Var}\, z_j = \sum_i w_{ji}^2 \, \frac{p \mu_i^2 + \sigma_i^2}{1 - p}

    Both are exact for independent inputs. That z is normal is the approximation, the better the more inputs there are:
    with ten normal inputs and weights at p = 0.3, the mean of ReLU(z) is off by 1 % of a deviation of z, on average.

    Args:
        input: (..., in_features), values or their moments.
        weight, bias: (out_features, in_features) and (out_features,).
        p: fraction of the inputs to drop, in [0, 1).

    Shape:
        Both moments are (..., out_features); the variance is in float32 or wider, under autocast too.

    Examples:
        >>> fast_dropout_linear(torch.tensor([[3.0, 4.0]]), torch.ones(1, 2))
        Moments(mean=tensor([[7.]]), variance=tensor([[25.]]))
    """
    keep = 1.0 - checked_rate(p)
    mean = input.mean if isinstance(input, Moments) else input
    check_features(mean, weight)
    with full_precision(mean):
        spread = p * squared(mean) + (input.variance if isinstance(input, Moments) else 0.0)
        variance = functional.linear(spread / keep, squared(weight))
    return Moments(functional.linear(mean, weight, bias), variance)


def moments_of_relu(moments: Moments) -> Moments:
    r"""Mean and variance of max(0, z) for z normal: the rectified Gaussian, in closed form.

    Wang and Manning 2013. With :math:`r = \mu / s`, the normal density :math:`\varphi` and its integral
    :math:`\Phi`, both at r:

    .. math:: E = \mu \Phi + s \varphi, \qquad
        \mathrm{Var} = s^2 \bigl(\Phi + r^2 \Phi (1 - \Phi) + r \varphi (1 - 2 \Phi) - \varphi^2\bigr)

    Args:
        moments: of z; where the variance is 0, z is its mean. Both keep their dtype.

    Examples:
        >>> after = moments_of_relu(Moments(torch.zeros(1), torch.ones(1)))
        >>> after.mean, after.variance  # 1 / sqrt(2 pi) and 1/2 - 1 / (2 pi)
        (tensor([0.3989]), tensor([0.3408]))
    """
    mean, variance = moments.mean.to(moments.variance.dtype), moments.variance
    sure = mean.square() >= FAR**2 * variance
    spread = variance.where(~sure, 1.0).sqrt()
    r = mean.where(~sure, 0.0) / spread
    below, above = torch.special.ndtr(-r), torch.special.ndtr(r)
    density = torch.exp(-0.5 * r * r) / math.sqrt(2.0 * math.pi)
    # Terms of size mu^2 would cancel; in this form each is of the size of the variance.
    ratio = above + r * r * above * below + r * density * (below - above) - density * density
    first = (spread * (r * above + density).clamp(min=0.0)).where(~sure, mean.relu())
    second = (variance * ratio.clamp(min=0.0)).where(~sure, variance * (mean > 0))
    return Moments(first.to(moments.mean.dtype), second)


class FastDropoutLinear(WeightedDropout, nn.Linear):
    """``nn.Linear`` whose inputs are dropped, its pre-activations replaced by their Gaussian approximation.

    One normal draw per pre-activation stands for a mask over all inputs; :func:`fast_dropout_linear` has the formula.
    With ``deterministic`` nothing is drawn: the output is a pair of ``mean`` and ``variance``, which
    :class:`FastDropoutReLU` and the next fast layer take. Let the last layer draw, or take the ``mean`` of its output.
    In eval mode the plain layer.

    Args:
        in_features, out_features, bias, device, dtype: as in ``nn.Linear``.
        p: fraction of the inputs to drop, in [0, 1).
        deterministic: pass on the moments in training instead of a draw.

    Shape:
        As ``nn.Linear``: a tensor, or moments of two such.

    Examples:
        >>> model = nn.Sequential(
        ...     FastDropoutLinear(64, 150, p=0.2, deterministic=True), FastDropoutReLU(), FastDropoutLinear(150, 10)
        ... )
        >>> model(torch.randn(128, 64)).shape  # one draw for each of the ten, none for the 150
        torch.Size([128, 10])
    """

    remedy = "GaussianDropout has the same moments anywhere"
    shown = ("p", "deterministic")

    def __init__(self, *sizes: Any, p: float = 0.5, deterministic: bool = False, **options: Any) -> None:
        super().__init__(*sizes, p=p, **options)
        self.deterministic = deterministic

    def forward(self, input: Tensor | Moments) -> Tensor | Moments:  # type: ignore[override]
        rate = self.p if self.training else 0.0
        if isinstance(input, Tensor) and rate == 0.0:
            return functional.linear(input, self.weight, self.bias)
        moments = fast_dropout_linear(input, self.weight, self.bias, rate)
        return moments if self.deterministic else moments.sample()


class FastDropoutReLU(nn.Module):
    """ReLU of a tensor, or of moments: :func:`moments_of_relu`.

    It carries the moments of a deterministic :class:`FastDropoutLinear` to the next one, so that nothing is drawn on
    the way.

    Shape:
        Any shape: a tensor gives a tensor, and moments give moments of two tensors of their shape.

    Examples:
        >>> FastDropoutReLU()(torch.tensor([-1.0, 2.0]))
        tensor([0., 2.])
    """

    def forward(self, input: Tensor | Moments) -> Tensor | Moments:
        return moments_of_relu(input) if isinstance(input, Moments) else functional.relu(input)
