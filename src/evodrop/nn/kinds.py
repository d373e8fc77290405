"""Kinds of layers: those with weights, and those that a path from one to the next may pass."""

from __future__ import annotations

from torch import nn
from torch.nn.modules import activation, batchnorm, conv, instancenorm, normalization
from torch.nn.modules.dropout import _DropoutNd

from evodrop.nn.layers import LocallyConnected2d

__all__ = ["ELEMENTWISE", "PASSED", "POOLING", "WEIGHTED"]

WEIGHTED = (nn.Linear, conv._ConvNd, LocallyConnected2d)
MIXING = {"MultiheadAttention", "Softmax", "Softmax2d", "LogSoftmax", "Softmin", "GLU"}  # activations that are no maps
# of single units: what comes out at one depends on others

ELEMENTWISE: tuple[type[nn.Module], ...] = (
    *(getattr(activation, name) for name in activation.__all__ if name not in MIXING),
    nn.Identity,
    _DropoutNd,
)
POOLING: tuple[type[nn.Module], ...] = tuple(
    getattr(nn, f"{kind}Pool{n}d") for kind in ("Max", "Avg", "LP", "AdaptiveMax", "AdaptiveAvg") for n in (1, 2, 3)
)
NORMALISATION = (
    batchnorm._NormBase,
    instancenorm._InstanceNorm,
    *(getattr(normalization, name) for name in normalization.__all__),
)
PASSED = (*ELEMENTWISE, *POOLING, *NORMALISATION, nn.Flatten)
