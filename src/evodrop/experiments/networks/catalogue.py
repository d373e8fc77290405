"""Networks by their names: how to build, feed, initialise and describe them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

import torch
from torch import nn

from evodrop.experiments.networks.architectures import (
    MakeDropout,
    cifar10,
    cifar10_caffe,
    cifar100,
    digits,
    mnist,
    svhn,
)
from evodrop.nn import LocallyConnected2d

__all__ = ["NETWORKS", "Layer", "Network", "build_network", "describe", "initialize"]

M = TypeVar("M", bound=nn.Module)
WEIGHTED = (nn.Linear, nn.Conv2d, LocallyConnected2d)


class Network(NamedTuple):
    """How a network is made and fed: with the centre of a picture, less the mean of the training data, times scale."""

    build: Callable[[MakeDropout | None], nn.Sequential]
    channels: int
    size: int  # height and width of the pictures that it takes
    classes: int
    scale: float = 1.0

    @property
    def input_shape(self) -> tuple[int, int, int]:
        return self.channels, self.size, self.size


class Layer(NamedTuple):
    """A row of :func:`describe`."""

    name: str
    kind: str
    shape: tuple[int, ...]  # of the output for one example
    parameters: int


def build_network(name: str, dropout: MakeDropout | None = None) -> nn.Sequential:
    """A network by its name, with a fresh dropout layer in each place of dropout.

    Args:
        name: a key of :data:`NETWORKS`.
        dropout: makes one dropout layer, or whatever is to stand in its place; None leaves the places empty.

    Examples:
        >>> from evodrop.nn import EvolutionalDropout
        >>> network = build_network("mnist", lambda: EvolutionalDropout(0.5))
        >>> network.dropout
        EvolutionalDropout(p=0.5)
        >>> network(torch.zeros(2, *NETWORKS["mnist"].input_shape)).shape
        torch.Size([2, 10])
    """
    if name not in NETWORKS:
        raise ValueError(f"network is {name!r}, but it is one of {', '.join(map(repr, NETWORKS))}")
    return NETWORKS[name].build(dropout)


@torch.no_grad()
def initialize(network: M, seed: int, std: float = 0.01) -> M:
    """Draw the weights from N(0, std) and set the biases to 0, in place; return the network.

    A layer's weights follow from the seed and from its name alone, on any device and in any memory format. So networks
    that differ in dropout or batch normalisation alone get the same weights from a seed. Layers of other kinds stay as
    they are, and torch's global generator is left alone.

    Args:
        network: anything made of linear, convolutional and locally connected layers.
        seed: of the weights.
        std: standard deviation of the weights.

    Examples:
        >>> plain, dropping = (initialize(build_network("mnist", make), seed=7) for make in (None, nn.Dropout))
        >>> bool((plain.fc1.weight == dropping.fc1.weight).all())
        True
    """
    if not 0 <= std < math.inf:
        raise ValueError(f"std is {std!r}, but a standard deviation is finite and not negative, such as 0.01")
    for name, layer in network.named_modules():
        if isinstance(layer, WEIGHTED):
            generator = torch.Generator().manual_seed(_seed_of(seed, name))
            layer.weight.copy_(torch.randn(layer.weight.shape, generator=generator) * std)
            if layer.bias is not None:
                layer.bias.zero_()
    return network


def _seed_of(seed: int, name: str) -> int:
    """A seed of a layer's own. torch uses 32 bits of it, so all bits of the given seed are mixed in."""
    return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:4], "big")


@torch.no_grad()
def describe(network: nn.Sequential, input_shape: tuple[int, ...]) -> list[Layer]:
    """The table of a network: each layer with its kind, the shape of its output and its number of parameters.

    An example of zeros passes in eval mode: no noise is drawn, no running mean moves, and a lazy layer finds its size.

    Examples:
        >>> for layer in describe(build_network("digits"), NETWORKS["digits"].input_shape)[:2]:
        ...     print(*layer)
        flatten Flatten (64,) 0
        fc1 Linear (150,) 9750
    """
    x, rows, training = torch.zeros(1, *input_shape), [], network.training
    for name, layer in network.eval().named_children():
        x = layer(x)
        parameters = sum(parameter.numel() for parameter in layer.parameters())
        rows.append(Layer(name, type(layer).__name__, tuple(x.shape[1:]), parameters))
    network.train(training)
    return rows


NETWORKS: dict[str, Network] = {
    "digits": Network(digits, 1, 8, 10),
    "mnist": Network(mnist, 1, 24, 10),
    "svhn": Network(svhn, 3, 28, 10),
    "cifar10": Network(cifar10, 3, 24, 10),
    "cifar100": Network(cifar100, 3, 32, 100),
    "cifar10-nobn": Network(partial(cifar10_caffe, normalised=False), 3, 32, 10),
    "cifar10-bn": Network(partial(cifar10_caffe, normalised=True), 3, 32, 10),
}
