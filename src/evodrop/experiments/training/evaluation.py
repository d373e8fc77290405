"""The error of a network without noise."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from evodrop.experiments.training.pixels import as_input

__all__ = ["Evaluation", "evaluate"]

AT_ONCE = 500  # images


class Evaluation(NamedTuple):
    """The fraction of wrong answers and the mean cross-entropy; both None if an answer was not finite."""

    error: float | None
    loss: float | None


@torch.no_grad()
def evaluate(network: nn.Module, x: Tensor, y: Tensor) -> Evaluation:
    """Evaluate on images (n, height, width, channels). It draws no random number and leaves the network in eval mode.

    Examples:
        >>> network = nn.Sequential(nn.Flatten(), nn.Dropout(0.5))
        >>> evaluate(network, torch.tensor([[[[1.0, 0.0]]], [[[0.0, 1.0]]]]), torch.tensor([0, 0])).error
        0.5
    """
    network.eval()
    wrong, loss = 0, 0.0
    for images, labels in zip(torch.split(x, AT_ONCE), torch.split(y, AT_ONCE), strict=True):
        logits = network(as_input(images))
        wrong += int((logits.argmax(1) != labels).sum())
        loss += float(cross_entropy(logits.double(), labels, reduction="sum"))
    return Evaluation(wrong / len(y), loss / len(y)) if math.isfinite(loss) else Evaluation(None, None)
