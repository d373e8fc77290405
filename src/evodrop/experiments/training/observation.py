"""What a dropout layer sees of a batch in training. The layer, its noise and its gradient know nothing of it.

Where the noise has moved into the weights of a neighbour, an ``nn.Identity`` marks the place, and is watched as well.
Units that batchwise dropout spares the layer before it are zero on the whole batch, and count as dead.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from evodrop.definitions import second_moments
from evodrop.experiments.records.record import LayerStatistics
from evodrop.nn import EvolutionalDropout, MultinomialDropout
from evodrop.nn.law import Law, find_chances
from evodrop.noise import Noise
from evodrop.theory import squared_norm

__all__ = ["layer_statistics", "watch_dropout"]

Floats = npt.NDArray[np.float64]
QUANTILES = 16
DIGITS = 6
SOURCES: dict[type[nn.Module], str] = {EvolutionalDropout: "batch", MultinomialDropout: "probs"}


@contextmanager
def watch_dropout(network: nn.Module) -> Iterator[list[LayerStatistics]]:
    """A list that fills, within the ``with`` block, when data pass through dropout layers in training mode.

    Examples:
        >>> import torch
        >>> network = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5))
        >>> with watch_dropout(network) as seen:
        ...     y = network(torch.ones(2, 4))
        >>> [(layer["name"], layer["units"], layer["noise"]) for layer in seen]
        [('1', 8, 1.0)]
    """
    seen = list[LayerStatistics]()
    with ExitStack() as hooks:
        for name, layer in network.named_modules():
            if isinstance(layer, _DropoutNd | nn.Identity):
                hooks.enter_context(layer.register_forward_pre_hook(partial(_note, seen, name)))
        yield seen


def _note(seen: list[LayerStatistics], name: str, layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    if layer.training:
        seen.append(layer_statistics(name, layer, inputs[0]))


def layer_statistics(name: str, layer: nn.Module, input: Tensor) -> LayerStatistics:
    """The statistics of a layer whose units are all dimensions of its input but the first.

    What the noise does is told of standard, uniform, evolutional and water-filling dropout, whose laws are known here.
    """
    moments = second_moments(input.detach().flatten(1)).numpy()
    moments = np.where(np.isfinite(moments), moments, 0.0)
    strengths, live = np.sqrt(moments), moments > 0
    total, law = strengths.sum(), _law_of(layer)
    seen = LayerStatistics(
        name=name,
        units=len(moments),
        dead=int((~live).sum()),
        effective=0.0,
        kept=None if law is None else 0.0,
        noise=None,
        probs=[_rounded(q) for q in np.quantile(strengths / (total or 1.0), np.linspace(0, 1, QUANTILES))],
    )
    if live.any():
        seen["effective"] = _rounded(total**2 / moments.sum())
    if live.any() and law is not None:
        noise, standard = _noise_of(law, strengths), Noise(np.full(len(moments), 1.0 - law.p))
        seen["kept"] = _rounded(noise.survival[live].sum())
        seen["noise"] = _rounded(squared_norm(moments, noise) / squared_norm(moments, standard))
    return seen


def _law_of(layer: nn.Module) -> Law | None:
    """The law of a layer's noise, or None for one that follows more than the strengths of its units and the rate."""
    if isinstance(layer, nn.Dropout):
        return Law("keep", layer.p)
    if type(layer) not in SOURCES or getattr(layer, "probs", None) is not None:
        return None
    law = Law(SOURCES[type(layer)], *(getattr(layer, field) for field in Law._fields[1:]))
    never = law.p == 0 and law.match != "draws"  # infinitely many draws keep every unit
    return Law("keep", 0.0) if never else law


def _noise_of(law: Law, strengths: Floats) -> Noise:
    """The law's noise for units of such strengths, as the theory has it."""
    found = find_chances(law, strengths, None)
    return Noise(found.chances, None if found.k is None else int(found.k))


def _rounded(value: float) -> float:
    """As many digits as a figure can show: records stay small."""
    return float(f"{value:.{DIGITS}g}")
