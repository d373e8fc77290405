"""Standout: a belief network, which shares the weights of the layer, gives each unit its chance to stay."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable

import torch
from torch import Tensor

from evodrop._checks import checked_rate
from evodrop.nn.functional import check_tensor
from evodrop.nn.zoo._base import UnitDropout, widened

__all__ = ["Standout", "keep_probabilities", "standout"]

Activation = Callable[[Tensor], Tensor]


def keep_probabilities(preactivation: Tensor, p: float = 0.5, alpha: float = 1.0) -> Tensor:
    r"""What the belief network computes: sigmoid(alpha z + beta) with beta = log((1 - p) / p), in float32 or wider.

    Examples:
        >>> keep_probabilities(torch.tensor([-1.0, 0.0, 1.0]), p=0.25)
        tensor([0.5246, 0.7500, 0.8908])
    """
    rate = checked_rate(p)
    wider = widened(preactivation)
    return torch.sigmoid(alpha * wider + math.log((1.0 - rate) / rate)) if rate > 0 else torch.ones_like(wider)


def standout(
    input: Tensor,
    p: float = 0.5,
    training: bool = True,
    *,
    alpha: float = 1.0,
    rescale: bool = False,
    activation: Activation | None = None,
) -> Tensor:
    r"""Keep each unit with a probability that grows with its own pre-activation: strong units stand out.

    A binary belief network decides about each unit. Its weights are tied to those of the layer, up to a factor and a
    shift, alpha and beta (Ba and Frey 2013), so it needs the pre-activation z alone.

    .. math:: y_j = m_j f(z_j), \qquad m_j \sim \mathrm{Bernoulli}(\pi_j), \qquad \pi_j = \sigma(\alpha z_j + \beta),
        \qquad \beta = \log \tfrac{1 - p}{p}

    .. math:: E y_j = \pi_j f(z_j), \qquad \mathrm{Var}\, y_j = \pi_j (1 - \pi_j) f(z_j)^2

    After ReLU, and max pooling, the input itself will do: where z > 0 it is z, and where z <= 0 the unit is silent
    whether it stays or not. Any other function leave out of the model, and give it as ``activation``.

    As in the paper the noise is biased, E y = pi f(z), and the same factor pi is applied when ``training`` is off. With
    ``rescale`` the mask is divided by pi: E y = f(z), variance (1 - pi) / pi f(z)^2, and f(z) without training.

    In training the mask is a constant for the gradient, as in the paper; without training the output has its true
    gradient. The uniforms that decide have the precision of the keep probabilities: in float32, 2^-24.

    Args:
        input: what ReLU has made of z; or z itself, where ``activation`` is given.
        p: fraction dropped of units with z = 0, in [0, 1); it sets beta. At 0 nothing is dropped.
        training: whether to draw.
        alpha: how much a unit's strength counts; 0 is standard dropout, not rescaled, and below 0 strong units go.
        rescale: divide by the keep probability, so that the noise has mean 1.
        activation: f, where it is not ReLU.

    Shape:
        Any shape; the output has the shape and dtype of the input.

    Examples:
        >>> y = standout(torch.tensor([0.0, 1.0, 30.0]).expand(1000, 3))
        >>> bool((y[:, 2] == 30).all()), 0.65 < float(y[:, 1].mean()) < 0.8  # sigmoid(1) = 0.73
        (True, True)
    """
    _check_alpha(alpha)
    check_tensor(input)
    output = input if activation is None else activation(input)
    if getattr(output, "shape", None) != input.shape:
        raise ValueError(
            f"activation has made {output!r:.80} of an input of shape {tuple(input.shape)}, but it takes a function of "
            "single units, such as torch.tanh"
        )
    if checked_rate(p) == 0 or (rescale and not training):
        return output
    keep = keep_probabilities(input.detach() if training else input, p, alpha)
    if training:
        kept = torch.rand_like(keep) < keep
        keep = kept / keep.where(kept, 1.0) if rescale else kept
    return (output * keep).to(output.dtype)


class Standout(UnitDropout):
    """:func:`standout` as a layer, in the place of ``nn.Dropout`` after ReLU, or of another activation and dropout.

    In eval mode it multiplies by the keep probabilities; with ``rescale`` it is the identity there. In an
    ``nn.TransformerEncoderLayer`` take ``rescale``: in eval mode without gradients torch computes that layer by one
    fused kernel, without what stands for its dropouts.

    Args:
        p: fraction dropped of units whose pre-activation is 0, in [0, 1).
        alpha, rescale, activation: as in :func:`standout`.

    Shape:
        Any shape; the output has the shape and dtype of the input.

    Examples:
        >>> model = torch.nn.Sequential(torch.nn.Linear(64, 150), Standout(0.5, activation=torch.tanh))
        >>> model(torch.randn(128, 64)).shape
        torch.Size([128, 150])
    """

    def __init__(
        self, p: float = 0.5, *, alpha: float = 1.0, rescale: bool = False, activation: Activation | None = None
    ) -> None:
        super().__init__(p)
        if not (activation is None or callable(activation)):
            raise TypeError(f"activation is {activation!r}, but it takes a function, such as torch.tanh")
        self.alpha, self.rescale, self.activation = _check_alpha(alpha), rescale, activation

    def forward(self, input: Tensor) -> Tensor:
        return standout(
            input, self.p, self.training, alpha=self.alpha, rescale=self.rescale, activation=self.activation
        )

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, alpha={self.alpha}" + (", rescale=True" if self.rescale else "")


def _check_alpha(alpha: float) -> float:
    if not (isinstance(alpha, numbers.Real) and math.isfinite(alpha)):
        raise ValueError(f"alpha is {alpha!r}, but it takes a finite number, such as 1")
    return float(alpha)
