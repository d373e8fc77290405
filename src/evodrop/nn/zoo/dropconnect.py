"""DropConnect: every weight of a layer is dropped by itself; in use, a Gaussian stands for all the masks."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from evodrop._checks import checked_rate
from evodrop.nn.functional import check_tensor
from evodrop.nn.locally_connected import as_autocast
from evodrop.nn.zoo.adopt import conv2d_like, linear_like, noisy_like
from evodrop.nn.zoo.gaussian import noise_variance
from evodrop.nn.zoo.masks import draw_masks, masked_linear
from evodrop.nn.zoo.moments import Moments, check_features, full_precision, squared
from evodrop.nn.zoo.protocol import About, Place

__all__ = ["DropConnectConv2d", "DropConnectLinear"]

MASKS, INFERENCES = ("example", "batch"), ("mean", "sample")


class _DropConnect(nn.Module):
    """What the linear and the convolutional layer share: all but the product of input and weights."""

    about: ClassVar[About] = About(
        name="dropconnect",
        year=2013,
        source="Wan et al. 2013",
        noise="w Bernoulli(1 - p) / (1 - p) for every weight and bias, drawn anew for every example: mean x.w + b, "
        "variance p / (1 - p) ((x^2).(w^2) + b^2)",
        learns="nothing",
        cost="a draw and a product per example and weight, a byte of each kept for the backward pass; "
        "with one mask per batch, a draw and a product per weight",
        regularizer="for a linear model to second order that of standard dropout on the inputs at the same p",
        use="on fully connected layers of moderate size; on large ones with one mask per batch",
    )
    needs: ClassVar[frozenset[str]] = frozenset({"before"})
    one_example: ClassVar[int]  # its number of dimensions
    weight: Tensor
    bias: Any  # a Tensor or None

    def __init__(
        self, *sizes: Any, p: float = 0.5, masks: str = "example", inference: str = "mean", **options: Any
    ) -> None:
        super().__init__(*sizes, **options)
        for name, value, choices in (("masks", masks, MASKS), ("inference", inference, INFERENCES)):
            if value not in choices:
                raise ValueError(f"{name} is {value!r}, but it is one of {', '.join(map(repr, choices))}")
        self.p, self.masks, self.inference = checked_rate(p), masks, inference

    @classmethod
    def fit_in(cls, place: Place, **options: Any) -> Place:
        """The place with the weighted layer before it, whose outputs were dropped, and no dropout after it."""
        layer = noisy_like(place.before, DropConnectLinear, DropConnectConv2d, place.p, **options)
        if layer is None:
            raise ValueError(
                f"dropconnect drops the weights of the nn.Linear or nn.Conv2d before {place.dropout}, but there stands "
                f"{place.before}; GaussianDropout goes anywhere"
            )
        return place._replace(before=layer, dropout=nn.Identity())

    def moments(self, input: Tensor) -> Moments:
        """Mean and variance of every output over all masks, both exact; the variance in float32 or wider."""
        self._check(input)
        mean = self._product(input, self.weight, self.bias)
        with full_precision(input):
            bias = None if self.bias is None else squared(self.bias)
            variance = noise_variance(self.p) * self._product(squared(input), squared(self.weight), bias)
        return Moments(mean, variance)

    def forward(self, input: Tensor) -> Tensor:
        self._check(input)
        if self.training and self.p > 0:
            return self._masked(input)
        if self.inference == "sample":
            return self.moments(input).sample()
        return self._product(input, self.weight, self.bias)

    def _masked(self, input: Tensor) -> Tensor:
        apart = self.masks == "example" and input.ndim > self.one_example and len(input) > 0
        keep, copies = 1.0 - self.p, len(input) if apart else 1
        weight, weights = as_autocast(self.weight) / keep, draw_masks(self.weight.detach(), copies, keep)
        bias = None
        if self.bias is not None:
            bias = as_autocast(self.bias) / keep * draw_masks(self.bias.detach(), copies, keep)
        if apart:
            return self._products(as_autocast(input), weight, weights, bias)
        return self._product(input, weight * weights[0], None if bias is None else bias[0])

    def _check(self, input: Tensor) -> None:
        raise NotImplementedError

    def _product(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        raise NotImplementedError

    def _products(self, input: Tensor, weight: Tensor, masks: Tensor, bias: Tensor | None) -> Tensor:
        raise NotImplementedError

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, p={self.p}, masks={self.masks!r}, inference={self.inference!r}"


class DropConnectLinear(_DropConnect, nn.Linear):
    r"""``nn.Linear`` that drops each of its weights, and biases, instead of its inputs or outputs.

    Dropout on the outputs of a layer is the case where a row of the mask is dropped as a whole (Wan et al. 2013). The
    masks M and m have independent entries, Bernoulli(1 - p), and every example has masks of its own.

    .. math:: z = \frac{(M * W) x + m * b}{1 - p}, \qquad E z = W x + b, \qquad
        \mathrm{Var}\, z = \frac{p}{1 - p} \bigl((W * W)(x * x) + b * b\bigr)

    The paper does not divide by 1 - p: its weights are ours over 1 - p, and the two have the same law. Divided, the
    mean is the plain layer, so a trained plain layer can be taken over and a new one begins at the usual scale.

    In eval mode the default is the mean, the plain layer. With ``inference="sample"`` z is drawn from the Gaussian of
    the same mean and variance, the paper's moment matching; the paper averages what the next activation makes of
    several draws: average as many passes. :meth:`moments` has both moments.

    Args:
        in_features, out_features, bias, device, dtype: as in ``nn.Linear``.
        p: fraction of the weights to drop, in [0, 1).
        masks: ``"example"``, one per example of the batch, as in the paper, shared by the positions of a sequence; or
            ``"batch"``, one for all. With N examples the first draws N masks, keeps N bytes per weight (64 MB for 64
            examples of a layer of 1000 x 1000), and takes 2 to 10 ns per example and weight, forward and backward:
            30 to 80 times the plain layer with dropout. The second draws one mask and makes one more matrix.
        inference: in eval mode the ``"mean"``, which is the plain layer, or a ``"sample"`` of the Gaussian.

    Shape:
        As ``nn.Linear``, dimension 0 of two or more being the batch.

    Examples:
        >>> layer = DropConnectLinear.from_linear(nn.Linear(64, 10), 0.5)
        >>> layer(torch.randn(128, 64)).shape
        torch.Size([128, 10])
        >>> layer.moments(torch.zeros(1, 64)).variance.allclose(layer.bias.square())
        True
    """

    one_example = 1

    @classmethod
    def from_linear(cls, linear: nn.Linear, p: float = 0.5, **options: Any) -> Self:
        """A layer that drops the very weights of a plain one; ``options`` are masks and inference."""
        return linear_like(cls, linear, p=p, **options)

    def _check(self, input: Tensor) -> None:
        check_features(input, self.weight)

    def _product(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return functional.linear(input, weight, bias)

    def _products(self, input: Tensor, weight: Tensor, masks: Tensor, bias: Tensor | None) -> Tensor:
        output = masked_linear(input.reshape(len(input), -1, self.in_features), weight, masks)
        output = output if bias is None else output + bias.unsqueeze(1)
        return output.reshape(*input.shape[:-1], self.out_features)


class DropConnectConv2d(_DropConnect, nn.Conv2d):
    """``nn.Conv2d`` as :class:`DropConnectLinear` is ``nn.Linear``: a mask over the filters, shared by all positions.

    Mean and variance of every output are exact. In training the positions of a channel are correlated, since they share
    a mask; a ``"sample"`` in eval mode neglects that, as the paper does with the outputs of an example.

    Args:
        in_channels, ..., padding_mode, device, dtype: as in ``nn.Conv2d``.
        p, masks, inference: as in :class:`DropConnectLinear`.

    Shape:
        As ``nn.Conv2d``.

    Examples:
        >>> layer = DropConnectConv2d(3, 8, 5, padding=2, p=0.2)
        >>> layer(torch.randn(4, 3, 32, 32)).shape
        torch.Size([4, 8, 32, 32])
    """

    one_example = 3

    @classmethod
    def from_conv2d(cls, conv: nn.Conv2d, p: float = 0.5, **options: Any) -> Self:
        """A layer that drops the very weights of a plain one; ``options`` are masks and inference."""
        return conv2d_like(cls, conv, p=p, **options)

    def _check(self, input: Tensor) -> None:
        check_tensor(input)
        if input.ndim not in (3, 4) or input.shape[-3] != self.in_channels:
            raise ValueError(
                f"DropConnectConv2d: the input has shape {tuple(input.shape)}, but this layer takes pictures with "
                f"{self.in_channels} channels, (N, C, H, W) or (C, H, W)"
            )

    def _product(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        output: Tensor = self._conv_forward(input, weight, bias)
        return output

    def _products(self, input: Tensor, weight: Tensor, masks: Tensor, bias: Tensor | None) -> Tensor:
        each = torch.vmap(self._product, in_dims=(0, 0, None if bias is None else 0))
        output: Tensor = each(input, weight * masks, bias)
        return output
