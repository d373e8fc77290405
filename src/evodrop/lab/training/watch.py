"""What a dropout layer sees of a batch in training. The layer, its noise and its gradient stay as they are.

Where the noise has moved into the weights of a neighbour, an ``nn.Identity`` marks the place, and is watched as well.
Units that batchwise dropout spares the layer before it are zero on the whole batch, and count as dead.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from evodrop.definitions import second_moments
from evodrop.lab.run import LayerStatistics
from evodrop.noise import make_noise

QUANTILES = 16
DIGITS = 6  # as many as a figure can show: records stay small


@contextmanager
def watch_dropout(network: nn.Module) -> Iterator[list[LayerStatistics]]:
    """A list that fills, within the ``with`` block, when data pass through dropout layers in training mode."""
    seen = list[LayerStatistics]()

    def note(name: str, layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if layer.training:
            seen.append(layer_statistics(name, layer, inputs[0]))

    with ExitStack() as hooks:
        for name, layer in network.named_modules():
            if isinstance(layer, _DropoutNd | nn.Identity):
                hooks.enter_context(layer.register_forward_pre_hook(partial(note, name)))
        yield seen


def layer_statistics(name: str, layer: nn.Module, input: Tensor) -> LayerStatistics:
    """The statistics of a layer whose units are all dimensions of its input but the first.

    What the noise does is known of standard dropout, and of layers that give their noise for second moments.
    """
    moments = second_moments(input.detach().flatten(1)).numpy()
    moments = np.where(np.isfinite(moments), moments, 0.0)
    strengths, live = np.sqrt(moments), moments > 0
    total, noise = strengths.sum(), None
    if type(layer) is nn.Dropout:  # a subclass may have another noise
        noise = make_noise(None, moments, layer.p, independent=True)
    elif all(getattr(layer, name, None) is None for name in ("unit_dims", "batched")):
        noise_for: Any = getattr(layer, "noise_for", None)  # with those options it depends on more, or on other units
        noise = None if noise_for is None else noise_for(moments)
    seen = LayerStatistics(
        name=name,
        units=len(moments),
        dead=int((~live).sum()),
        effective=0.0,
        kept=None if noise is None else 0.0,
        noise=None,
        probs=[_rounded(q) for q in np.quantile(strengths / (total or 1.0), np.linspace(0, 1, QUANTILES))],
    )
    if live.any():
        seen["effective"] = _rounded(total**2 / moments.sum())
    if live.any() and noise is not None:
        standard = moments.sum() / (1.0 - float(layer.p))  # type: ignore[arg-type]
        seen["kept"] = _rounded(noise.survival[live].sum())
        seen["noise"] = _rounded(moments @ noise.mean_square / standard)
    return seen


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
