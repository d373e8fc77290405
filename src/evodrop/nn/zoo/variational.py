"""Variational dropout: normal noise on units or on weights, whose variance is learned, with its price as a penalty."""

from __future__ import annotations

import math
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from evodrop._checks import checked_integer
from evodrop.nn._noise import UnitDims
from evodrop.nn.zoo._base import POOLING, Moments, Site, WeightedDropout, check_choice, squared, widened
from evodrop.nn.zoo.gaussian import LearnedUnitDropout, noise_variance

__all__ = ["VariationalConv2d", "VariationalDropout", "VariationalLinear", "kl_divergence"]

LEAST_ALPHA = 1e-8  # noise of a ten-thousandth of a unit: none to speak of, and its logarithm is finite
K1, K2, K3 = 0.63576, 1.87320, 1.48695  # Molchanov, Ashukha and Vetrov 2017, equation 14


def kl_divergence(log_alpha: Tensor) -> Tensor:
    r"""KL from the posterior N(w, alpha w^2) to the log-uniform prior, for every alpha, in nats.

    The prior is improper, so the divergence is known up to a constant; this one makes it 0 at infinite alpha:

    .. math:: \mathrm{KL}(\alpha) = -\tfrac12 \log \alpha + E_{\xi \sim N(1, \alpha)} \log |\xi|
        + \tfrac12 (\gamma + \log 2)

    It has no elementary form. On alpha in [0.001, 1] the cubic of Kingma, Salimans and Welling 2015 is off by up to
    0.040 and its slope in log(alpha) by 15 %, the form of Molchanov, Ashukha and Vetrov 2017 by 0.0094 and 2.5 %. So it
    is the one used here (:math:`\sigma` is the sigmoid):

    .. math:: \mathrm{KL}(\alpha) \approx k_1 - k_1 \sigma(k_2 + k_3 \log \alpha) + \tfrac12 \log(1 + \alpha^{-1})

    Args:
        log_alpha: natural logarithms of alpha, of any shape.

    Examples:
        >>> kl_divergence(torch.tensor([0.001, 0.1, 1.0]).log())
        tensor([4.0900, 1.7235, 0.4312])
    """
    falling = K1 * torch.sigmoid(-(K2 + K3 * log_alpha))
    return falling + 0.5 * functional.softplus(-log_alpha)


def clipped(log_alpha: Tensor) -> Tensor:
    """log(alpha) with alpha at most 1, as in the paper: beyond it the objective has poor local optima.

    The gradient passes as if nothing were clipped. A plain clamp would pass none above the bound, and an alpha that the
    penalty has once pulled over it would stay there for ever, however much the noise hurts.
    """
    log_alpha = widened(log_alpha)
    return log_alpha - log_alpha.detach().clamp(min=0.0)


class LearnedAlpha(nn.Module):
    """A layer that learns the variance of its noise: it has a rate ``p``, where it begins, and a ``log_alpha``."""

    p: float
    log_alpha: Tensor

    def _learn(self, like: Tensor) -> None:
        """Begin with the noise of dropout at the rate, within the bounds of alpha; one alpha for each value."""
        start = math.log(min(max(noise_variance(self.p), LEAST_ALPHA), 1.0))
        self.log_alpha = nn.Parameter(torch.full_like(widened(like.detach()), start))

    @property
    def alpha(self) -> Tensor:
        """The variance of the noise, relative to the square of what it is put on, in (0, 1]; as ``log_alpha``."""
        return clipped(self.log_alpha).exp()

    def penalty(self) -> Tensor:
        """The KL divergence, summed over all units or weights; they share the alphas evenly. It pulls none beyond 1."""
        if self.p == 0 or self._terms() == 0:
            return self.log_alpha.new_zeros(())
        return kl_divergence(widened(self.log_alpha).clamp(max=0.0)).mean() * self._terms()

    def _terms(self) -> int:
        raise NotImplementedError


class VariationalDropout(LearnedAlpha, LearnedUnitDropout):
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
        units: number of units d, one term of the penalty each. ``convert_dropout`` takes it from the layers beside.
        unit_dims: dimensions that are units; all others are examples. Default: every dimension but the first. For a
            sequence, (N, T, C), -1 is usually meant.

    Attributes:
        log_alpha: the learned logarithms, () or (d,). Weight decay should leave them out.

    Shape:
        Any shape; the output has the shape, dtype and memory format of the input.

    Examples:
        >>> layer = VariationalDropout(0.2, per="unit", units=150)
        >>> layer(torch.randn(128, 150)).shape, layer.alpha[0]
        (torch.Size([128, 150]), tensor(0.2500, grad_fn=<SelectBackward0>))
    """

    def __init__(
        self, p: float = 0.5, *, per: str = "layer", units: int | None = None, unit_dims: UnitDims = None
    ) -> None:
        super().__init__(p)
        check_choice("per", per, ("layer", "unit"))
        self.per, self.unit_dims = per, unit_dims
        optional = units is None and per == "layer"
        self.units = None if optional else checked_integer(units, "units", "the number of units")  # type: ignore[arg-type]
        self._learn(torch.empty(() if per == "layer" else self.units))  # type: ignore[arg-type]

    @classmethod
    def place(cls, site: Site, **options: Any) -> Site:
        """The same site with this dropout in it. The layers beside it give the number of its units."""
        options = {**_units_between(site), **options}
        if options.get("per", "layer") == "layer":
            options.pop("unit_dims", None)  # one alpha for all
        return site._replace(dropout=cls(site.p, **options))

    def _terms(self) -> int:
        if self.units is None:
            raise RuntimeError(f"{self} has a penalty for each of its units, but their number is not given; give units")
        return self.units

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return input
        return self._times_noise(input, (0.5 * clipped(self.log_alpha)).exp())

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, per={self.per!r}{self._extra_units()}"


def _units_between(site: Site) -> dict[str, int]:
    """The units of a dropout, as options: the inputs of the layer after it, or the outputs of the layer before.

    Behind pooling and flattening a linear layer has other inputs than the dropout; its channels stay the same.
    """
    flattened, pooled = (any(isinstance(one, kinds) for one in site.between) for kinds in (nn.Flatten, POOLING))
    if isinstance(site.after, nn.Linear) and not pooled:
        return {"units": site.after.in_features} | ({} if flattened else {"unit_dims": -1})
    if isinstance(site.after, nn.Conv2d):
        return {"units": site.after.in_channels, "unit_dims": 1}
    if isinstance(site.before, nn.Linear):
        return {"units": site.before.out_features, "unit_dims": -1}
    if isinstance(site.before, nn.Conv2d):
        return {"units": site.before.out_channels, "unit_dims": 1}
    return {}


class _VariationalWeights(LearnedAlpha, WeightedDropout):
    """What the linear and the convolutional layer share."""

    remedy = "VariationalDropout puts its noise on the units"
    shown = ("p", "per")

    def __init__(self, *sizes: Any, p: float = 0.5, per: str = "layer", **options: Any) -> None:
        super().__init__(*sizes, p=p, **options)
        check_choice("per", per, ("layer", "unit", "weight"))
        self.per = per
        self.reset_alpha()

    def reset_alpha(self) -> None:
        """Begin again at the noise of the rate p, on the device of the weights."""
        unit = (len(self.weight), *[1] * (self.weight.ndim - 1))
        self._learn(self.weight.new_empty({"layer": (), "unit": unit, "weight": self.weight.shape}[self.per]))

    @classmethod
    def from_layer(cls, plain: nn.Module, p: float = 0.5, **options: Any) -> Self:
        layer = super().from_layer(plain, p, **options)
        layer.reset_alpha()
        return layer

    def _terms(self) -> int:
        return self.weight.numel()

    def forward(self, input: Tensor) -> Tensor:
        self._check(input)
        mean = self._product(input, self.weight, self.bias)
        if not self.training or self.p == 0:
            return mean
        return Moments(mean, self._variance(input, self.alpha * squared(self.weight), None)).sample()


class VariationalLinear(_VariationalWeights, nn.Linear):
    r"""``nn.Linear`` whose weights are normal, with a learned variance; the noise is drawn per pre-activation.

    The posterior of a weight is :math:`N(w_{ji}, \alpha_{ji} w_{ji}^2)`, independent of the others. The pre-activations
    are then exactly normal, so they are drawn instead of the weights: independent for every example, and with far less
    variance in the gradient (Kingma, Salimans and Welling 2015, sections 2.3 and 3.1; their type B). Add
    ``penalties(model) / n_train`` to the mean loss. In eval mode the plain layer.

    The penalty has a term per weight. With many more weights than training examples it outweighs the loss and pulls
    alpha to its bound, 1: the layer then is ``FastDropoutLinear`` at p = 0.5, whatever the p it began with.

    .. math:: z_j \sim N\Bigl(b_j + \sum_i w_{ji} x_i, \; \sum_i \alpha_{ji} w_{ji}^2 x_i^2\Bigr),
        \qquad 0 < \alpha_{ji} \le 1

    Args:
        in_features, out_features, bias, device, dtype: as in ``nn.Linear``.
        p: rate in [0, 1) that gives the first alpha, p / (1 - p), at most 1: any p above 1/2 starts at 1. At p = 0 the
            layer is plain, with penalty 0.
        per: what has an alpha of its own: ``"layer"``, ``"unit"`` (of the output) or ``"weight"``.

    Attributes:
        log_alpha: the learned logarithms, (), (out_features, 1) or as the weight. Weight decay should leave them out.

    Shape:
        As ``nn.Linear``. The variance is computed in float32 or wider, under autocast too.

    Examples:
        >>> layer = VariationalLinear.from_layer(nn.Linear(64, 10), 0.2, per="weight")
        >>> layer(torch.randn(128, 64)).shape, tuple(layer.alpha.shape)
        (torch.Size([128, 10]), (10, 64))
    """


class VariationalConv2d(_VariationalWeights, nn.Conv2d):
    """``nn.Conv2d`` as :class:`VariationalLinear` is ``nn.Linear``.

    Mean and variance of every output are exact. Outputs of one channel share their weights, so they are correlated; as
    is usual, that is neglected, and every position has noise of its own.

    Args:
        in_channels, ..., padding_mode, device, dtype: as in ``nn.Conv2d``; the others as in :class:`VariationalLinear`.

    Shape:
        As ``nn.Conv2d``.

    Examples:
        >>> VariationalConv2d(3, 8, 5, p=0.2, per="unit").alpha.shape
        torch.Size([8, 1, 1, 1])
    """


_VariationalWeights.makes = (VariationalLinear, VariationalConv2d)
