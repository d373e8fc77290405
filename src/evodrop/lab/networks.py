"""The paper's networks, layer by layer as the tables of its supplement have them, with any method in place of dropout.

What the tables leave open, and what is done here:

===================  =================================================================================================
MNIST                a 4 x 4 filter takes 28 pixels to 25, not to 21; every size fits pictures of 24 x 24
crops                the centre of each picture, in training and in testing: the paper augments nothing
pixels               0 to 255 less the mean picture of the training data, as cuda-convnet and Caffe fed them
pooling              windows may stick out (ceil mode), or the sizes would not fit; averages are over what is inside
ReLU                 after every layer with weights but the last. Where max pooling follows, after it: the same function
                     and gradient, for fewer numbers
rnorm                cuda-convnet's for CIFAR-10: across 9 neighbouring channels, x / (1 + 0.001 mean x^2)^0.75; it
                     divides its scale by the number of channels in a sum, as torch does its alpha
local                biases of every position's own, as in cuda-convnet
dropout              after the ReLU. On pictures every channel and position is a unit, so d is C H W
BN panel             batch normalisation before the ReLU, as in Caffe's file, with torch's eps and momentum; the table
                     does not place the dropout of "BN + standard dropout": it is where e-dropout is
weights              N(0, 0.01), biases 0, in every network. Caffe's file has N(0, 0.0001) in conv1: the BN panel learns
                     from either, from 0.01 sooner. Weights and biases have the same step size
digits               not in the paper: two hidden layers, for the small digits of scikit-learn
===================  =================================================================================================
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from evodrop.lab.methods import METHODS, import_own, is_own
from evodrop.nn import LocallyConnected2d, convert_dropout

M = TypeVar("M", bound=nn.Module)
MakeDropout = Callable[[], nn.Module | None]  # makes one fresh layer; None leaves its place empty
Layers = Mapping[str, nn.Module | None]
_max_pool, _mean_pool = (partial(pool, ceil_mode=True) for pool in (nn.MaxPool2d, nn.AvgPool2d))


def digits(dropout: MakeDropout) -> nn.Sequential:
    """A perceptron with dropout on both of its hidden layers."""
    return _stack(
        {"flatten": nn.Flatten()},
        {"fc1": nn.Linear(64, 150), "relu1": nn.ReLU(), "dropout1": dropout()},
        {"fc2": nn.Linear(150, 150), "relu2": nn.ReLU(), "dropout2": dropout()},
        {"fc3": nn.Linear(150, 10)},
    )


def mnist(dropout: MakeDropout) -> nn.Sequential:
    """Two convolutions, and dropout on the 150 units of the first fully connected layer."""
    return _stack(
        {"conv1": nn.Conv2d(1, 32, 4), "pool1": _max_pool(2, 2), "relu1": nn.ReLU()},
        {"conv2": nn.Conv2d(32, 64, 5), "pool2": _max_pool(3, 3), "relu2": nn.ReLU(), "flatten": nn.Flatten()},
        {"fc1": nn.Linear(64 * 3 * 3, 150), "relu3": nn.ReLU(), "dropout": dropout()},
        {"fc2": nn.Linear(150, 10)},
    )


def _convolutions(padding: int, size: int) -> list[Layers]:
    """What SVHN, CIFAR-10 and CIFAR-100 share: two convolutions, and two local layers on pictures of ``size``."""
    norm1, norm2 = (ResponseNorm(64, 9, alpha=0.001) for _ in range(2))
    return [
        {"conv1": nn.Conv2d(3, 64, 5, padding=padding), "pool1": _max_pool(3, 2), "relu1": nn.ReLU()},
        {"rnorm1": norm1, "conv2": nn.Conv2d(64, 64, 5, padding=2), "relu2": nn.ReLU(), "rnorm2": norm2},
        {"pool2": _max_pool(3, 2), "local3": LocallyConnected2d(64, 64, 3, size, padding=1), "relu3": nn.ReLU()},
        {"local4": LocallyConnected2d(64, 32, 3, size, padding=1), "relu4": nn.ReLU(), "flatten": nn.Flatten()},
    ]


def svhn(dropout: MakeDropout, padding: int = 0, width: int = 512) -> nn.Sequential:
    """Dropout on the 1152 units of the last local layer. CIFAR-10 has padding and a smaller fully connected layer."""
    head = {"fc1": nn.Linear(1152, width), "relu5": nn.ReLU(), "fc10": nn.Linear(width, 10)}
    return _stack(*_convolutions(padding, size=6), {"dropout": dropout()}, head)


def cifar100(dropout: MakeDropout) -> nn.Sequential:
    """Dropout on the 128 units of the first of three fully connected layers."""
    return _stack(
        *_convolutions(padding=2, size=8),
        {"fc1": nn.Linear(2048, 128), "relu5": nn.ReLU(), "dropout": dropout()},
        {"fc2": nn.Linear(128, 128), "relu6": nn.ReLU(), "fc100": nn.Linear(128, 100)},
    )


def cifar10_caffe(dropout: MakeDropout, normalised: bool, unit: Callable[[], nn.Module] = nn.ReLU) -> nn.Sequential:
    """The BN panel: three convolutions, batch normalisation or none, and dropout on the 4096 units of the last."""
    bn1, bn2, bn3 = (nn.BatchNorm2d(channels) if normalised else None for channels in (32, 32, 64))
    return _stack(
        {"conv1": nn.Conv2d(3, 32, 5, padding=2), "pool1": _max_pool(3, 2), "bn1": bn1, "unit1": unit()},
        {"conv2": nn.Conv2d(32, 32, 5, padding=2), "bn2": bn2, "unit2": unit(), "pool2": _mean_pool(3, 2)},
        {"conv3": nn.Conv2d(32, 64, 5, padding=2), "bn3": bn3, "unit3": unit(), "dropout": dropout()},
        {"pool3": _mean_pool(3, 2), "flatten": nn.Flatten(), "fc1": nn.Linear(1024, 10)},
    )


def _stack(*stages: Layers) -> nn.Sequential:
    """Layers by name, stage after stage; a place that is None stays empty."""
    layers = ((name, layer) for stage in stages for name, layer in stage.items() if layer is not None)
    return nn.Sequential(OrderedDict(layers))


BETA = 0.75  # of every network of the paper, and x^-0.75 needs no pow: r sqrt(r) with r = 1 / sqrt(x)
PICTURES = 16  # at a time: their arrays fit in a core's cache


class ResponseNorm(nn.LocalResponseNorm):
    r"""``nn.LocalResponseNorm`` with beta = 0.75 and a known number of channels: the same function, much faster.

    A sum over n neighbouring channels is a product with a band matrix, hence a convolution of size 1, where torch pools
    in three dimensions.

    .. math:: y_c = x_c \Big(k + \frac{\alpha}{n} \sum_{c' \text{ near } c} x_{c'}^2 \Big)^{-0.75}
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


class BatchNorm(nn.LazyBatchNorm2d):
    """Batch normalisation of features, (N, C), or channels, (N, C, H, W), that finds its size when data first pass."""

    cls_to_become = None  # type: ignore[assignment]  # it stays of this class

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim not in (2, 4):
            shape = tuple(input.shape)
            raise ValueError(f"batch normalisation takes (N, C) or (N, C, H, W), but the input has shape {shape}")


class Network(NamedTuple):
    """How a network is made and fed: with the centre of a picture, less the mean of the training data, times scale."""

    build: Callable[[MakeDropout], nn.Sequential]
    channels: int
    size: int  # height and width of the pictures that it takes
    classes: int
    scale: float = 1.0

    @property
    def input_shape(self) -> tuple[int, int, int]:
        return self.channels, self.size, self.size


NETWORKS: dict[str, Network] = {
    "digits": Network(digits, 1, 8, 10),
    "mnist": Network(mnist, 1, 24, 10),
    "svhn": Network(svhn, 3, 28, 10),
    "cifar10": Network(partial(svhn, padding=2, width=128), 3, 24, 10),
    "cifar100": Network(cifar100, 3, 32, 100),
    "cifar10-nobn": Network(partial(cifar10_caffe, normalised=False), 3, 32, 10),
    "cifar10-bn": Network(partial(cifar10_caffe, normalised=True), 3, 32, 10),
    "cifar10-bn-sigmoid": Network(partial(cifar10_caffe, normalised=True, unit=nn.Sigmoid), 3, 32, 10),
}


def build_network(name: str, method: str = "none", rate: float = 0.5, match: str = "draws") -> nn.Sequential:
    """A network with a method in its places of dropout; its weights have the same names and sizes for every method.

    Building draws no random number that counts: :func:`initialize` sets the weights. Methods that draw nothing ignore
    ``match``.
    """
    if name not in NETWORKS:
        raise ValueError(f"network is {name!r}, but it is one of {', '.join(map(repr, NETWORKS))}")
    entry = NETWORKS[name]
    if method == "none":
        return entry.build(lambda: None)
    if method == "batchnorm":
        network = entry.build(BatchNorm).eval()  # no running mean moves
        with torch.no_grad():
            network(torch.zeros(1, *entry.input_shape))
        return network.train()
    network = entry.build(lambda: nn.Dropout(rate))
    if is_own(method):
        convert_dropout(network, to=import_own(method))
    elif method != "standard" and rate > 0:
        known = METHODS[method]
        options: dict[str, Any] = {"match": match} if known.uses_match else {}
        if known.uses_match and method != "weight-aware":
            options["unit_dims"] = None  # all of a picture, as in the paper, whatever layer is beside it
        convert_dropout(network, to=method, **options, **known.options)
    return network


@torch.no_grad()
def initialize(network: M, seed: int, std: float = 0.01) -> M:
    """Draw all weights from N(0, std) and set the biases to 0, in place; return the network.

    A layer's weights follow from the seed and from its name alone, on any device and in any memory format. So networks
    that differ in dropout or batch normalisation alone get the same weights from a seed. Layers of other kinds stay as
    they are, and torch's global generator is left alone.
    """
    for name, layer in network.named_modules():
        if isinstance(layer, nn.Linear | nn.Conv2d | LocallyConnected2d):
            # torch uses 32 bits of a seed, so all bits of the given one are mixed with the name
            digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
            generator = torch.Generator().manual_seed(int.from_bytes(digest[:4], "big"))
            layer.weight.copy_(torch.randn(layer.weight.shape, generator=generator) * std)
            if layer.bias is not None:
                layer.bias.zero_()
    return network
