"""A data set that can be learned in a second, a network with convolution and dropout for it, and a short run."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import torch
from torch import nn

from evodrop.lab.data import Images
from evodrop.lab.networks import NETWORKS, Network, build_network
from evodrop.lab.run import Run
from evodrop.lab.training.network import NetworkTraining, prepare

CLASSES = 3


def images(n=100, seed=0):
    """Noise, with a bright spot whose place is the class."""
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, 60, (n, 1, 6, 6)), rng.integers(0, CLASSES, n)
    x[np.arange(n), 0, 2 * y, 2 * y] += 180
    x, train = x.astype(np.uint8), n * 3 // 4
    return Images("spots", x[:train], y[:train], x[train:], y[train:], CLASSES)


def pixels():
    return prepare(images(), scale=1 / 64)


def network(method="evolutional", seed=0, rate=0.5, match="draws"):
    with patch.dict(NETWORKS, tiny=Network(_build, 1, 6, CLASSES)):
        model = build_network("tiny", method, rate, match)
    generator = torch.Generator().manual_seed(seed)
    for layer in model:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.normal_(layer.weight, std=0.2, generator=generator)
            nn.init.zeros_(layer.bias)
    return model


def _build(make):
    places = [[layer for layer in (make(),) if layer is not None] for _ in range(2)]
    return nn.Sequential(
        *[nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), *places[0], nn.Flatten()],
        *[nn.Linear(144, 12), nn.ReLU(), *places[1], nn.Linear(12, CLASSES)],
    )


def run(**fields):
    usual = {"method": "evolutional", "seed": 0, "lr": 0.05, "epochs": 4, "batch_size": 16, "eval_every": 3}
    return Run(**{"dataset": "spots", "network": "tiny"} | usual | fields)


def training(**fields):
    """A short run at its beginning."""
    this = run(**fields)
    return NetworkTraining(this, network(this.method, this.seed, this.rate, this.match), pixels())
