"""The Gaussian in the place of a sum: mean and variance of pre-activations, a draw from them, their way through ReLU.

A pre-activation is a sum over many noisy terms, so it is nearly normal whatever the noise. One draw per pre-activation
then does for one draw per input or weight (Wang and Manning 2013; Kingma, Salimans and Welling 2015).
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor

from evodrop.nn.functional import check_tensor
from evodrop.nn.zoo.gaussian import widened

__all__ = ["Moments", "check_features", "full_precision", "moments_of_relu", "squared"]

FAR = 10.0  # so many deviations from 0 the tail beyond 0 is below 1e-23: the unit is surely on, or surely off


class Moments(NamedTuple):
    """Mean and variance of every unit of a layer, taken as independent and normal.

    Attributes:
        mean, variance: two tensors of one shape; the variance in float32 or wider.

    Examples:
        >>> Moments(torch.zeros(2, 3), torch.zeros(2, 3)).sample()
        tensor([[0., 0., 0.],
                [0., 0., 0.]])
    """

    mean: Tensor
    variance: Tensor

    def sample(self) -> Tensor:
        """One draw per unit, by reparameterisation: the gradient goes through the mean and the variance."""
        normal = torch.randn_like(self.variance)
        return (self.mean + _root(self.variance) * normal).to(self.mean.dtype)


def moments_of_relu(moments: Moments) -> Moments:
    r"""Mean and variance of max(0, z) for z normal: the rectified Gaussian, in closed form.

    Wang and Manning 2013. With :math:`r = \mu / s`, the normal density :math:`\varphi` and its integral
    :math:`\Phi`, both at r:

    .. math:: E = \mu \Phi + s \varphi, \qquad
        \mathrm{Var} = s^2 \bigl(\Phi + r^2 \Phi (1 - \Phi) + r \varphi (1 - 2 \Phi) - \varphi^2\bigr)

    Args:
        moments: of z; where the variance is 0, z is its mean.

    Returns:
        Those of max(0, z): the mean in the dtype it came in, the variance in float32 or wider.

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


def full_precision(tensor: Tensor) -> AbstractContextManager[object]:
    """A block where autocast lowers nothing: half precision would round or lose the squares that make a variance."""
    kind = tensor.device.type
    return torch.autocast(kind, enabled=False) if torch.amp.is_autocast_available(kind) else nullcontext()


def squared(tensor: Tensor) -> Tensor:
    """The squares, in float32 or wider."""
    return widened(tensor).square()


def check_features(input: Tensor, weight: Tensor) -> None:
    """An error unless a linear layer with this weight takes the input."""
    check_tensor(input)
    if input.ndim == 0 or input.shape[-1] != weight.shape[1]:
        raise ValueError(
            f"a linear layer with weight of shape {tuple(weight.shape)} takes inputs of shape (..., {weight.shape[1]}) "
            f"but got one of shape {tuple(input.shape)}; flatten it, or make the layer for its last dimension"
        )


def _root(variance: Tensor) -> Tensor:
    """The square root, with gradient 0 at 0, where the slope is infinite: a silent input has no noise to learn from."""
    positive = variance > 0
    return variance.where(positive, 1.0).sqrt().where(positive, 0.0)
