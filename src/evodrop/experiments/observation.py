"""What a dropout layer sees of a batch in training. The layer, its noise and its gradient know nothing of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from evodrop.definitions import expected_kept, second_moments
from evodrop.nn import BernoulliDropout, EvolutionalDropout, MultinomialDropout
from evodrop.nn.law import Chances, Law, find_chances

__all__ = ["LayerStatistics", "layer_statistics", "watch_dropout"]

Floats = npt.NDArray[np.float64]
QUANTILES = 64
DIGITS = 6


class LayerStatistics(TypedDict):
    """One dropout layer on one batch. With s_i the root of the second moment of unit i over the batch:"""

    name: str
    units: int  # d
    dead: int  # units that are zero on the whole batch
    effective: float  # (sum s)^2 / sum s^2, the effective number of units: d if all are equally strong
    kept: float  # live units that survive the noise, on average
    noise: float | None  # E||x * noise||^2 over standard dropout's at the same rate; None if x is zero
    probs: list[float]  # quantiles, least to largest, of s_i / sum s: evolutional dropout draws with them, or would


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
            if isinstance(layer, _DropoutNd):
                hooks.enter_context(layer.register_forward_pre_hook(partial(_note, seen, name)))
        yield seen


def _note(seen: list[LayerStatistics], name: str, layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    if layer.training:
        seen.append(layer_statistics(name, layer, inputs[0]))


def layer_statistics(name: str, layer: nn.Module, input: Tensor) -> LayerStatistics:
    """The statistics of a layer whose units are all dimensions of its input but the first."""
    moments = second_moments(input.detach().flatten(1)).numpy()
    moments = np.where(np.isfinite(moments), moments, 0.0)
    strengths = np.sqrt(moments)
    total = strengths.sum()
    law, given = _law_of(layer)
    found = find_chances(law, strengths, given)
    live = moments > 0
    standard = moments.sum() / (1.0 - law.p)
    return LayerStatistics(
        name=name,
        units=len(moments),
        dead=int((~live).sum()),
        effective=_rounded(total**2 / moments.sum()) if total > 0 else 0.0,
        kept=_rounded(_kept(found, live)),
        noise=_rounded((moments * _squared_noise(found)).sum() / standard) if standard > 0 else None,
        probs=[_rounded(q) for q in np.quantile(strengths / (total or 1.0), np.linspace(0, 1, QUANTILES))],
    )


def _law_of(layer: nn.Module) -> tuple[Law, Floats | None]:
    """The law of a layer's noise, and the weights or keep probabilities that it was given."""
    options: Any = layer
    if isinstance(layer, EvolutionalDropout | MultinomialDropout):
        if layer.p == 0 and layer.match != "draws":  # infinitely many draws keep every unit
            return Law("keep", 0.0), None
        source, given = ("probs", layer.probs) if isinstance(layer, MultinomialDropout) else ("batch", None)
        law = Law(source, layer.p, layer.k, layer.scheme, layer.match, layer.uniform_mix)
        return law, None if given is None else given.double().numpy()
    if isinstance(layer, BernoulliDropout) and layer.keep is not None:
        return Law("keep", layer.p), layer.keep.double().numpy()
    if isinstance(layer, nn.Dropout | BernoulliDropout):
        return Law("keep", layer.p), None
    raise TypeError(f"the noise of {options} is not known; methods are made of nn.Dropout and of evodrop.nn's layers")


def _squared_noise(found: Chances) -> Floats:
    """E[epsilon_i^2]: 1 / pi_i if units are independent, else 1 / (k p_i) + (k - 1) / k, the terms of Proposition 2."""
    if found.k is None:
        return np.asarray(found.scale)
    drawn = found.scale + (found.k - 1) / found.k
    return np.where(found.passes, 1.0, np.where(found.chances > 0, drawn, 0.0))


def _kept(found: Chances, live: npt.NDArray[np.bool_]) -> float:
    if found.k is None:
        return float(found.chances[live].sum())
    return float(expected_kept(found.chances[live], found.k))


def _rounded(value: float) -> float:
    """As many digits as a figure can show: records stay small."""
    return float(f"{value:.{DIGITS}g}")
