"""Batch normalisation in the place of dropout, whatever the shape there: it finds its size when data first pass."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["BatchNorm", "LazyBatchNorm", "find_sizes"]


class _AnyShape:
    """Features, (N, C), or channels, (N, C, H, W): torch has a class for each."""

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim not in (2, 4):
            raise ValueError(
                f"batch normalisation of an input of shape {tuple(input.shape)}, but it takes (N, C) or (N, C, H, W)"
            )


class BatchNorm(_AnyShape, nn.BatchNorm2d):
    """Batch normalisation of features, (N, C), or of channels, (N, C, H, W)."""


class LazyBatchNorm(_AnyShape, nn.LazyBatchNorm2d):
    """A :class:`BatchNorm` that does not know its number of units yet.

    It begins as every batch normalisation does, scale 1 and shift 0, without a random number.
    """

    cls_to_become = BatchNorm


@torch.no_grad()
def find_sizes(network: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    """Send one example of zeros through the network, so that lazy layers find their size; return the network.

    It is sent in eval mode: no noise is drawn, and no running mean moves. Do it before the weights are initialised and
    before an optimiser is made.

    Examples:
        >>> find_sizes(nn.Sequential(nn.Linear(4, 3), LazyBatchNorm()), (4,))[1].num_features
        3
    """
    modes = [(module, module.training) for module in network.modules()]
    network.eval()(torch.zeros(1, *shape))
    for module, training in modes:
        module.training = training
    return network
