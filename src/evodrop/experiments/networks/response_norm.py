"""Local response normalisation, fast on a CPU: torch's own takes half the time of the paper's CIFAR networks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["ResponseNorm"]

BETA = 0.75  # of every network of the paper, and x^-0.75 needs no pow: r sqrt(r) with r = 1 / sqrt(x)
PICTURES = 16  # at a time: their arrays fit in a core's cache


class ResponseNorm(nn.LocalResponseNorm):
    r"""``nn.LocalResponseNorm`` with beta = 0.75 and a known number of channels: the same function, much faster.

    A sum over n neighbouring channels is a product with a band matrix, hence a convolution of size 1, where torch pools
    in three dimensions.

    .. math:: y_c = x_c \Big(k + \frac{\alpha}{n} \sum_{c' \text{ near } c} x_{c'}^2 \Big)^{-0.75}

    Args:
        channels: of the input.
        size: n, the number of channels in a sum.
        alpha, k: as in ``nn.LocalResponseNorm``.

    Shape:
        (N, channels, height, width), in and out.

    Examples:
        >>> x = torch.randn(2, 64, 6, 6)
        >>> torch.allclose(ResponseNorm(64, 9)(x), nn.LocalResponseNorm(9)(x))
        True
    """

    neighbours: Tensor
    offset: Tensor

    def __init__(self, channels: int, size: int, alpha: float = 1e-4, k: float = 1.0) -> None:
        super().__init__(size, alpha, BETA, k)
        channel = torch.arange(channels)
        distance = channel - channel[:, None]
        near = (distance >= -(size // 2)) & (distance <= (size - 1) // 2)
        self.register_buffer("neighbours", near[:, :, None, None] * (alpha / size), persistent=False)
        self.register_buffer("offset", torch.full((channels,), float(k)), persistent=False)

    def forward(self, input: Tensor) -> Tensor:
        normalised: Tensor = _Normalise.apply(input, self.neighbours, self.offset)  # type: ignore[no-untyped-call]
        return normalised


class _Normalise(torch.autograd.Function):
    r"""y = x D^-0.75 with D = offset + W x^2, and its gradient g D^-0.75 - 1.5 x W^T (g y / D).

    Under autograd alone every power is a pass over memory of its own. Here a few pictures at a time stay in the cache,
    and only the root D^-0.5 is kept.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, neighbours: Tensor, offset: Tensor) -> Tensor:
        y, root = torch.empty_like(x), torch.empty_like(x)
        for x_, y_, root_ in zip(*(torch.split(whole, PICTURES) for whole in (x, y, root)), strict=True):
            torch.rsqrt(nn.functional.conv2d(x_.square(), neighbours, offset), out=root_)
            torch.mul(root_.sqrt().mul_(root_), x_, out=y_)
        ctx.save_for_backward(x, y, root, neighbours)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        x, y, root, neighbours = ctx.saved_tensors
        result, weights = torch.empty_like(x), neighbours.transpose(0, 1) * (-2 * BETA)
        parts = (torch.split(whole, PICTURES) for whole in (gradient, x, y, root, result))
        for gradient_, x_, y_, root_, result_ in zip(*parts, strict=True):
            through_sums = nn.functional.conv2d((gradient_ * y_).mul_(root_).mul_(root_), weights)
            torch.addcmul(root_.sqrt().mul_(root_).mul_(gradient_), x_, through_sums, out=result_)
        return result, None, None
