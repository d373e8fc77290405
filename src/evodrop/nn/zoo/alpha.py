"""The noise variance alpha of variational dropout: where it starts, where it is clipped, what it costs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from evodrop.nn.zoo.gaussian import noise_variance, widened

__all__ = ["LearnedAlpha", "checked_per", "clipped", "initial_log_alpha", "kl_divergence", "total_divergence"]

LEAST_ALPHA = 1e-8  # noise of a ten-thousandth of a unit: none to speak of, and its logarithm is finite
K1, K2, K3 = 0.63576, 1.87320, 1.48695  # Molchanov, Ashukha and Vetrov 2017, equation 14


def kl_divergence(log_alpha: Tensor) -> Tensor:
    r"""KL from the posterior N(w, alpha w^2) to the log-uniform prior, for every alpha, in nats.

    The prior is improper, so the divergence is known up to a constant; this one makes it 0 at infinite alpha:

    .. math:: \mathrm{KL}(\alpha) = -\tfrac12 \log \alpha + E_{\xi \sim N(1, \alpha)} \log |\xi|
        + \tfrac12 (\gamma + \log 2)

    It has no elementary form. The cubic of Kingma, Salimans and Welling 2015 (c1 = 1.16145124, c2 = -1.50204118,
    c3 = 0.58629921) is off by up to 0.040 on alpha in [0.001, 1], and by 0.020 with the best constant. The form of
    Molchanov, Ashukha and Vetrov 2017 is off by 0.0094, its slope in log(alpha) by 2.5 % where the cubic's is by 15 %,
    so it is the one used here (:math:`\sigma` is the sigmoid):

    .. math:: \mathrm{KL}(\alpha) \approx k_1 - k_1 \sigma(k_2 + k_3 \log \alpha) + \tfrac12 \log(1 + \alpha^{-1})

    Args:
        log_alpha: natural logarithms of alpha, of any shape.

    Examples:
        >>> kl_divergence(torch.tensor([0.001, 0.1, 1.0]).log())
        tensor([4.0900, 1.7235, 0.4312])
    """
    falling = K1 * torch.sigmoid(-(K2 + K3 * log_alpha))
    return falling + 0.5 * functional.softplus(-log_alpha)


def total_divergence(log_alpha: Tensor, terms: int) -> Tensor:
    """The divergence of so many weights or units that share these alphas evenly; it pulls no alpha beyond 1."""
    within = widened(log_alpha).clamp(max=0.0)
    return kl_divergence(within).mean() * terms


def clipped(log_alpha: Tensor) -> Tensor:
    """log(alpha) with alpha at most 1, as in the paper: beyond it the objective has poor local optima.

    The gradient passes as if nothing were clipped. A plain clamp would pass none above the bound, and an alpha that the
    penalty has once pulled over it would stay there for ever, however much the noise hurts.

    Examples:
        >>> log_alpha = torch.tensor([-1.0, 0.5], requires_grad=True)
        >>> clipped(log_alpha).sum().backward()
        >>> clipped(log_alpha).tolist(), log_alpha.grad
        ([-1.0, 0.0], tensor([1., 1.]))
    """
    log_alpha = widened(log_alpha)
    return log_alpha - log_alpha.detach().clamp(min=0.0)


def initial_log_alpha(p: float) -> float:
    """log(p / (1 - p)), the noise of dropout at rate p, within the bounds of alpha."""
    return math.log(min(max(noise_variance(p), LEAST_ALPHA), 1.0))


class LearnedAlpha(nn.Module):
    """A layer whose noise has a variance that is learned: it has a rate ``p``, where it begins, and a ``log_alpha``."""

    p: float
    log_alpha: Tensor

    @property
    def alpha(self) -> Tensor:
        """The variance of the noise, relative to the square of what it is put on, in (0, 1]; as ``log_alpha``."""
        return clipped(self.log_alpha).exp()

    def penalty(self) -> Tensor:
        """The KL divergence, summed over all that has noise."""
        return self.log_alpha.new_zeros(()) if self.p == 0 else total_divergence(self.log_alpha, self._terms())

    def _terms(self) -> int:
        """How many weights or units have noise."""
        raise NotImplementedError


def checked_per(per: str, choices: Sequence[str]) -> str:
    """What each alpha belongs to, or a ValueError."""
    if per not in choices:
        raise ValueError(f"per is {per!r}, but an alpha is learned per one of {', '.join(map(repr, choices))}")
    return per
