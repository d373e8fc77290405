"""Variational dropout of type B: normal noise on every weight, drawn once per pre-activation, its variance learned."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from evodrop._checks import checked_rate
from evodrop.nn.functional import check_tensor
from evodrop.nn.zoo.adopt import conv2d_like, linear_like, noisy_like
from evodrop.nn.zoo.alpha import LearnedAlpha, checked_per, initial_log_alpha
from evodrop.nn.zoo.gaussian import wide
from evodrop.nn.zoo.moments import Moments, check_features, full_precision, squared
from evodrop.nn.zoo.protocol import About, Place

__all__ = ["VariationalConv2d", "VariationalLinear"]


class _VariationalWeights(LearnedAlpha):
    """What the linear and the convolutional layer share: all but the product of input and weights."""

    about: ClassVar[About] = About(
        name="variational-weights",
        year=2015,
        source="Kingma, Salimans and Welling 2015, type B",
        noise="N(w, alpha w^2) for every weight, drawn as one normal per pre-activation: mean x.w, "
        "variance alpha (x^2).(w^2), alpha at most 1",
        learns="alpha, per layer, output unit or weight",
        cost="a second product, of the squares, and a normal draw per pre-activation",
        regularizer="the KL divergence of the weights from a log-uniform prior, one term per weight",
        use="where the noise should be learned weight by weight, with little variance in its gradient",
    )
    needs: ClassVar[frozenset[str]] = frozenset({"after"})
    weight: Tensor
    bias: Any  # a Tensor or None

    def __init__(self, *sizes: Any, p: float = 0.5, per: str = "layer", **options: Any) -> None:
        super().__init__(*sizes, **options)
        self._learn(p, per)

    def _learn(self, p: float, per: str) -> None:
        self.p, self.per = checked_rate(p), checked_per(per, ("layer", "unit", "weight"))
        unit = (len(self.weight), *[1] * (self.weight.ndim - 1))
        shape = {"layer": (), "unit": unit, "weight": tuple(self.weight.shape)}[per]
        start = torch.full(shape, initial_log_alpha(p), device=self.weight.device, dtype=wide(self.weight.dtype))
        self.log_alpha = nn.Parameter(start)

    @classmethod
    def fit_in(cls, place: Place, **options: Any) -> Place:
        """The place with the weighted layer after it made noisy, linear or convolutional, and no dropout before it."""
        layer = noisy_like(place.after, VariationalLinear, VariationalConv2d, place.p, **options)
        if layer is None:
            raise ValueError(
                f"variational-weights puts its noise on the nn.Linear or nn.Conv2d after {place.dropout}, but there "
                f"comes {place.after}; VariationalDropout puts it on the units"
            )
        return place._replace(dropout=nn.Identity(), after=layer)

    def _terms(self) -> int:
        return self.weight.numel()

    def forward(self, input: Tensor) -> Tensor:
        check_tensor(input)
        mean = self._product(input, self.weight, self.bias)
        if not self.training or self.p == 0:
            return mean
        with full_precision(input):
            variance = self._product(squared(input), self.alpha * squared(self.weight), None)
        return Moments(mean, variance).sample()

    def _product(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        raise NotImplementedError

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        state_dict.setdefault(prefix + "log_alpha", self.log_alpha)  # so that the state of a plain layer loads
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, p={self.p}, per={self.per!r}"


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
        >>> layer = VariationalLinear.from_linear(nn.Linear(64, 10), 0.2, per="weight")
        >>> layer(torch.randn(128, 64)).shape, tuple(layer.alpha.shape)
        (torch.Size([128, 10]), (10, 64))
    """

    @classmethod
    def from_linear(cls, linear: nn.Linear, p: float = 0.5, *, per: str = "layer") -> Self:
        """A noisy layer with the very parameters of a plain one."""
        layer = linear_like(cls, linear, p=p, per=per)
        layer._learn(p, per)  # on the device of the weights
        return layer

    def _product(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        check_features(input, weight)
        return functional.linear(input, weight, bias)


class VariationalConv2d(_VariationalWeights, nn.Conv2d):
    """``nn.Conv2d`` as :class:`VariationalLinear` is ``nn.Linear``.

    Mean and variance of every output are exact. Outputs of one channel share their weights, so they are correlated; as
    is usual, that is neglected, and every position has noise of its own.

    Args:
        in_channels, ..., padding_mode, device, dtype: as in ``nn.Conv2d``.
        p, per: as in :class:`VariationalLinear`; a unit is an output channel.

    Shape:
        As ``nn.Conv2d``.

    Examples:
        >>> layer = VariationalConv2d(3, 8, 5, padding=2, p=0.2, per="unit")
        >>> layer(torch.randn(4, 3, 32, 32)).shape, tuple(layer.alpha.shape)
        (torch.Size([4, 8, 32, 32]), (8, 1, 1, 1))
    """

    @classmethod
    def from_conv2d(cls, conv: nn.Conv2d, p: float = 0.5, *, per: str = "layer") -> Self:
        """A noisy layer with the very parameters of a plain one."""
        layer = conv2d_like(cls, conv, p=p, per=per)
        layer._learn(p, per)  # on the device of the weights
        return layer

    def _product(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        output: Tensor = self._conv_forward(input, weight, bias)
        return output
