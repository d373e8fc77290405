"""The paper's networks, layer by layer as the tables of its supplement have them. The dropout layer is an argument.

What the tables leave open, and what is done here:

===================  =================================================================================================
MNIST                a 4 x 4 filter takes 28 pixels to 25, not to 21; every size fits pictures of 24 x 24
crops                the centre of each picture, in training and in testing: the paper augments nothing
pixels               0 to 255 less the mean picture of the training data, as cuda-convnet and Caffe fed them
pooling              windows may stick out (ceil mode), or the sizes would not fit; averages are over what is inside
ReLU                 after every layer with weights but the last. Where max pooling follows, after it: the same function
                     and gradient, for fewer numbers
rnorm                cuda-convnet's for CIFAR-10: across 9 neighbouring channels, x / (1 + 0.001 mean x^2)^0.75
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

from collections.abc import Callable

from torch import nn

from evodrop.experiments.networks.response_norm import ResponseNorm
from evodrop.nn import LocallyConnected2d

__all__ = ["MakeDropout", "cifar10", "cifar10_caffe", "cifar100", "digits", "mnist", "svhn"]

MakeDropout = Callable[[], nn.Module]  # makes one fresh layer


def digits(dropout: MakeDropout | None) -> nn.Sequential:
    """A perceptron with dropout on both of its hidden layers."""
    return _stack(
        flatten=nn.Flatten(),
        fc1=nn.Linear(64, 150),
        relu1=nn.ReLU(),
        dropout1=_made(dropout),
        fc2=nn.Linear(150, 150),
        relu2=nn.ReLU(),
        dropout2=_made(dropout),
        fc3=nn.Linear(150, 10),
    )


def mnist(dropout: MakeDropout | None) -> nn.Sequential:
    """Two convolutions, and dropout on the 150 units of the first fully connected layer."""
    return _stack(
        conv1=nn.Conv2d(1, 32, 4),
        pool1=_max_pool(2, 2),
        relu1=nn.ReLU(),
        conv2=nn.Conv2d(32, 64, 5),
        pool2=_max_pool(3, 3),
        relu2=nn.ReLU(),
        flatten=nn.Flatten(),
        fc1=nn.Linear(64 * 3 * 3, 150),
        relu3=nn.ReLU(),
        dropout=_made(dropout),
        fc2=nn.Linear(150, 10),
    )


def _convolutions(padding: int, size: int) -> dict[str, nn.Module]:
    """What SVHN, CIFAR-10 and CIFAR-100 share: two convolutions, and two local layers on pictures of ``size``."""
    return {
        "conv1": nn.Conv2d(3, 64, 5, padding=padding),
        "pool1": _max_pool(3, 2),
        "relu1": nn.ReLU(),
        "rnorm1": _rnorm(),
        "conv2": nn.Conv2d(64, 64, 5, padding=2),
        "relu2": nn.ReLU(),
        "rnorm2": _rnorm(),
        "pool2": _max_pool(3, 2),
        "local3": LocallyConnected2d(64, 64, 3, size, padding=1),
        "relu3": nn.ReLU(),
        "local4": LocallyConnected2d(64, 32, 3, size, padding=1),
        "relu4": nn.ReLU(),
        "flatten": nn.Flatten(),
    }


def svhn(dropout: MakeDropout | None) -> nn.Sequential:
    """Dropout on the 1152 units of the last local layer."""
    head = {"fc1": nn.Linear(1152, 512), "relu5": nn.ReLU(), "fc10": nn.Linear(512, 10)}
    return _stack(**_convolutions(padding=0, size=6), dropout=_made(dropout), **head)


def cifar10(dropout: MakeDropout | None) -> nn.Sequential:
    """As for SVHN, with padding in the first convolution and a smaller fully connected layer."""
    head = {"fc1": nn.Linear(1152, 128), "relu5": nn.ReLU(), "fc10": nn.Linear(128, 10)}
    return _stack(**_convolutions(padding=2, size=6), dropout=_made(dropout), **head)


def cifar100(dropout: MakeDropout | None) -> nn.Sequential:
    """Dropout on the 128 units of the first of three fully connected layers."""
    return _stack(
        **_convolutions(padding=2, size=8),
        fc1=nn.Linear(2048, 128),
        relu5=nn.ReLU(),
        dropout=_made(dropout),
        fc2=nn.Linear(128, 128),
        relu6=nn.ReLU(),
        fc100=nn.Linear(128, 100),
    )


def cifar10_caffe(
    dropout: MakeDropout | None, normalised: bool, unit: Callable[[], nn.Module] = nn.ReLU
) -> nn.Sequential:
    """The BN panel: three convolutions, batch normalisation or none, and dropout on the 4096 units of the last."""
    bn1, bn2, bn3 = (nn.BatchNorm2d(channels) if normalised else None for channels in (32, 32, 64))
    return _stack(
        conv1=nn.Conv2d(3, 32, 5, padding=2),
        pool1=_max_pool(3, 2),
        bn1=bn1,
        unit1=unit(),
        conv2=nn.Conv2d(32, 32, 5, padding=2),
        bn2=bn2,
        unit2=unit(),
        pool2=_mean_pool(3, 2),
        conv3=nn.Conv2d(32, 64, 5, padding=2),
        bn3=bn3,
        unit3=unit(),
        dropout=_made(dropout),
        pool3=_mean_pool(3, 2),
        flatten=nn.Flatten(),
        fc1=nn.Linear(1024, 10),
    )


def _stack(**layers: nn.Module | None) -> nn.Sequential:
    network = nn.Sequential()
    for name, layer in layers.items():
        if layer is not None:
            network.add_module(name, layer)
    return network


def _made(dropout: MakeDropout | None) -> nn.Module | None:
    return None if dropout is None else dropout()


def _max_pool(size: int, stride: int) -> nn.Module:
    return nn.MaxPool2d(size, stride, ceil_mode=True)


def _mean_pool(size: int, stride: int) -> nn.Module:
    return nn.AvgPool2d(size, stride, ceil_mode=True)


def _rnorm() -> nn.Module:
    """cuda-convnet divides its scale by the number of channels in a sum, as torch does its alpha: they are the same."""
    return ResponseNorm(64, 9, alpha=0.001)
