"""Weight-aware dropout: layers that drop their own inputs, those that are strong or have large weights less often."""

from __future__ import annotations

import numbers
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from evodrop.nn import _torch
from evodrop.nn._noise import checked_options, is_opaque
from evodrop.nn.functional import multinomial_dropout
from evodrop.nn.zoo._base import WeightedDropout, widened
from evodrop.noise import normalised

__all__ = ["WeightAwareConv2d", "WeightAwareLinear", "weight_aware_probabilities"]


def weight_aware_probabilities(scale: Tensor, norms: Tensor, weight_share: float) -> Tensor:
    r"""(d,) sampling probabilities: a share by weight and second moment, the rest by the moment alone.

    .. math:: p_i = \lambda \frac{|w_i| s_i}{\sum_j |w_j| s_j} + (1 - \lambda) \frac{s_i}{\sum_j s_j}

    Args:
        scale: (d,) :math:`s_i`, the roots of the second moments, or any multiple of them.
        norms: (d,) :math:`|w_i|`, of the weights that read unit i. Where all are 0, the moments decide alone.
        weight_share: :math:`\lambda`.

    Examples:
        >>> weight_aware_probabilities(torch.tensor([1.0, 1.0, 2.0]), torch.tensor([3.0, 1.0, 0.0]), 1.0)
        tensor([0.7500, 0.2500, 0.0000])
    """

    def shares(masses: Tensor, otherwise: Tensor) -> Tensor:  # without a look at the values: a device need not wait
        usable = (masses.max() > 0) & torch.isfinite(masses).all()
        chosen = torch.where(usable, normalised(masses), otherwise)
        return chosen / chosen.sum()

    by_moment = shares(scale, torch.ones_like(scale))
    return weight_share * shares(scale * norms, by_moment) + (1.0 - weight_share) * by_moment


class _WeightAware(WeightedDropout):
    """What the linear and the convolutional layer share."""

    remedy = "EvolutionalDropout goes anywhere"
    unit_dims: ClassVar[tuple[int, ...]]
    weight_share: float
    k: int | None
    match: str
    uniform_mix: float

    def __init__(
        self,
        *sizes: Any,
        p: float = 0.5,
        weight_share: float = 0.5,
        k: int | None = None,
        match: str = "draws",
        uniform_mix: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(*sizes, p=0.0, **options)
        if not (isinstance(weight_share, numbers.Real) and 0.0 <= weight_share <= 1.0):
            raise ValueError(
                f"weight_share is {weight_share!r}, but it takes a number in [0, 1], the share that follows the weights"
            )
        self.weight_share = float(weight_share)
        self.p, self.k, self.match, self.uniform_mix, *_ = checked_options(p, k, match, uniform_mix)

    def forward(self, input: Tensor) -> Tensor:
        active = self.training and (self.p > 0 or self.k is not None)
        return self._product(self._dropped(input) if active else input, self.weight, self.bias)

    def _dropped(self, input: Tensor) -> Tensor:
        self._check(input)
        if 0 in (input.numel(), self.weight.numel()):
            return input
        with torch.no_grad():
            units = input.shape[-len(self.unit_dims) :]
            scale = torch.linalg.vector_norm(_in_range(input).reshape(-1, *units), dim=0)
            scale = torch.where(torch.isfinite(scale), scale, 0.0)  # units that are not finite pass through anyway
            norms = self._squares().to(scale.dtype).sqrt().expand(units)
            probs = weight_aware_probabilities(scale.flatten(), norms.flatten(), self.weight_share)
        return multinomial_dropout(
            input, self.p, probs, k=self.k, match=self.match, uniform_mix=self.uniform_mix, unit_dims=self.unit_dims
        )

    def _squares(self) -> Tensor:
        """|w_i|^2 of every unit, up to a common factor, in a shape that broadcasts with the units."""
        squares = _in_range(self.weight).square()
        if not isinstance(self, nn.Conv2d):
            return squares.sum(0)
        # (groups, outputs of a group, inputs of a group, height, width): a group reads its own channels
        grouped = squares.view(self.groups, -1, *self.weight.shape[1:])
        return grouped.sum((1, 3, 4)).reshape(-1, 1, 1)

    def extra_repr(self) -> str:
        given = f", match={self.match!r}" if self.k is None else f", k={self.k}"
        mixed = f", uniform_mix={self.uniform_mix:g}" if self.uniform_mix else ""
        return f"{super().extra_repr()}, weight_share={self.weight_share:g}{given}{mixed}"


class WeightAwareLinear(_WeightAware, nn.Linear):
    r"""``nn.Linear`` that drops its inputs by multinomial noise, and draws those that matter to it more often.

    The supplement's tight bound of the regulariser is least for p_i ~ sqrt(w_i^2 E x_i^2), which needs the weights.
    Here they are at hand; :func:`weight_aware_probabilities` has the formula, and the moments are those of the batch.

    .. math:: \hat x_i = x_i \frac{m_i}{k p_i}, \quad m \sim \mathrm{Mult}(p; k), \qquad
              \mathrm{Var}\,\hat x_i = x_i^2 \frac{1 - p_i}{k p_i},

    with mean x_i wherever p_i > 0. By the weights alone a unit without weights would never be drawn, and then never get
    any, so half of the probability follows the moments, as in :class:`evodrop.linear.DropoutSGDClassifier`. No gradient
    goes through the probabilities. In eval mode the plain layer.

    Args:
        in_features, out_features, bias, device, dtype: as in ``nn.Linear``.
        p: fraction of the inputs to drop; it sets the number of draws.
        weight_share: share of the probability that follows the weights, in [0, 1]; 0 is evolutional dropout.
        k, match, uniform_mix: as in :class:`evodrop.nn.EvolutionalDropout`.

    Shape:
        As ``nn.Linear``. The units are the last dimension, all others are examples.

    Examples:
        >>> WeightAwareLinear(64, 10, p=0.5)(torch.randn(128, 64)).shape
        torch.Size([128, 10])
    """

    unit_dims = (-1,)


class WeightAwareConv2d(_WeightAware, nn.Conv2d):
    """``nn.Conv2d`` as :class:`WeightAwareLinear` is ``nn.Linear``: every channel and position of its input is a unit.

    A unit has the weights of its channel. That border positions are read by fewer of them is neglected.

    Args:
        in_channels, ..., padding_mode, device, dtype: as in ``nn.Conv2d``; the others as in :class:`WeightAwareLinear`.

    Shape:
        As ``nn.Conv2d``.

    Examples:
        >>> WeightAwareConv2d(3, 8, 5, p=0.2)(torch.randn(4, 3, 32, 32)).shape
        torch.Size([4, 8, 28, 28])
    """

    unit_dims = (-3, -2, -1)


_WeightAware.makes = (WeightAwareLinear, WeightAwareConv2d)


def _in_range(tensor: Tensor) -> Tensor:
    """In float32 or wider, and divided by a power of two where the squares would over- or underflow."""
    wide = widened(tensor.detach())
    return _torch.in_range(wide, is_opaque(wide), wide.dtype)
