"""Dropout whose rate is inferred from the data."""

from __future__ import annotations

import math
import numbers

import torch
from torch import Tensor, nn
from torch.distributions import Beta, kl_divergence

from evodrop._checks import checked_integer
from evodrop.nn._noise import UnitDims
from evodrop.nn.zoo._base import wide_dtype, widened
from evodrop.nn.zoo.gaussian import LearnedUnitDropout

__all__ = ["AdaptiveRateDropout"]

LEAST, MOST = 1e-12, 1e12  # of the concentration: within them no gamma function over- or underflows


class AdaptiveRateDropout(LearnedUnitDropout):
    r"""Dropout whose rate has a Beta prior and a Beta posterior that is learned (Zhuo, Zhu and Zhang, 2015).

    There the features of a linear model have rates of their own, inferred in a Bayesian way; see
    :class:`evodrop.linear.AdaptiveRateLogisticRegression`. This layer does so for units, or for all units at once.

    A mask over 1 - r has the mean 1 and, for r ~ Beta(alpha, beta), the variance E r / (1 - r) = alpha / (beta - 1).
    The layer multiplies by normal noise with these two moments, so the gradient of alpha and beta follows the path of
    the sample, exact and of low variance, where that of a mask would need a score function.

    .. math:: \hat x_i = x_i \Big(1 + \varepsilon_i \sqrt{\tfrac{\alpha_i}{\beta_i - 1}}\Big), \qquad
              \mathrm{Var}\,\hat x_i = x_i^2 \frac{\alpha_i}{\beta_i - 1}, \qquad
              \mathrm{penalty} = \sum_i \mathrm{KL}(\mathrm{Beta}(\alpha_i, \beta_i) \,\|\, \mathrm{Beta}(a, b))

    The prior is a = c p and b = 1 + c (1 - p), where the posterior begins: at first the noise has the variance
    p / (1 - p) of dropout at p. Add ``penalties(model) / n_train`` to the mean loss: without it the rate falls to 0.
    With it, a unit that is needed gets a low rate and one that is not stays at the prior. The penalty is of the order
    of c, the loss of n_train, so c is the number of examples that the prior is worth. No weight decay for its two
    parameters.

    Args:
        p: what is believed before the data, in [0, 1). At 0 there is nothing to infer: the layer is the identity.
        concentration: c, from 1e-12 to 1e12; how firmly it is believed.
        units: how many units have a rate of their own. None: one rate for the layer.
        unit_dims: as in :class:`VariationalDropout`.

    Shape:
        Any shape; the output has the shape and dtype of the input.

    Examples:
        >>> layer = AdaptiveRateDropout(0.5, units=4)
        >>> layer(torch.randn(8, 4)).shape
        torch.Size([8, 4])
        >>> layer.rate()  # the mean of Beta(500, 501)
        tensor([0.4995, 0.4995, 0.4995, 0.4995], grad_fn=<DivBackward0>)
    """

    concentration: float
    log_alpha: nn.Parameter | None
    log_beta: nn.Parameter | None

    def __init__(
        self, p: float = 0.5, *, concentration: float = 1000.0, units: int | None = None, unit_dims: UnitDims = None
    ) -> None:
        super().__init__(p)
        if not (isinstance(concentration, numbers.Real) and LEAST <= concentration <= MOST):
            raise ValueError(f"concentration is {concentration!r}, but it takes a number from {LEAST:g} to {MOST:g}")
        self.concentration, self.unit_dims = float(concentration), unit_dims
        self.units = None if units is None else checked_integer(units, "units", "the number of units")
        for name in ("log_alpha", "log_beta"):
            values = nn.Parameter(torch.empty(() if units is None else units)) if self.p > 0 else None
            self.register_parameter(name, values)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Back to the prior. ``log_alpha`` is log alpha, and ``log_beta`` is log(beta - 1)."""
        if self.log_alpha is not None and self.log_beta is not None:
            a, b = self._prior()
            nn.init.constant_(self.log_alpha, math.log(a))
            nn.init.constant_(self.log_beta, math.log(b))

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or self.log_alpha is None:
            return input
        return self._times_noise(input, self.variance().sqrt())

    def rate(self) -> Tensor:
        """The posterior mean of the rate, alpha / (alpha + beta): a number, or one for each unit."""
        alpha, beta = self._posterior()
        return alpha / (alpha + beta)

    def variance(self) -> Tensor:
        """alpha / (beta - 1), the variance of the noise: a number, or one for each unit."""
        log_alpha, log_beta = self._logarithms()
        return (log_alpha - log_beta).exp()

    def penalty(self) -> Tensor:
        """The divergence of the posterior from the prior, summed over the rates, in nats."""
        if self.log_alpha is None:
            return torch.zeros(())
        a, b = self._prior()
        alpha, beta = (one.double() for one in self._posterior())  # differences of large logarithms of gamma
        prior = Beta(torch.full_like(alpha, a), torch.full_like(beta, 1.0 + b), validate_args=False)
        divergence: Tensor = kl_divergence(Beta(alpha, beta, validate_args=False), prior)
        return divergence.sum().to(wide_dtype(self.log_alpha.dtype))

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, concentration={self.concentration:g}{self._extra_units()}"

    def _prior(self) -> tuple[float, float]:
        """a and b - 1, of which the logarithms are finite for the smallest rates too."""
        return max(self.concentration * self.p, LEAST**2), self.concentration * (1.0 - self.p)

    def _posterior(self) -> tuple[Tensor, Tensor]:
        log_alpha, log_beta = self._logarithms()
        return log_alpha.exp(), 1.0 + log_beta.exp()

    def _logarithms(self) -> tuple[Tensor, Tensor]:
        if self.log_alpha is None or self.log_beta is None:
            return torch.tensor(-math.inf), torch.zeros(())
        return widened(self.log_alpha), widened(self.log_beta)
