"""The plots of a report as plain data, which the page's script draws."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from evodrop.experiments.claims.outcomes import Outcome
from evodrop.experiments.claims.summaries import final_error
from evodrop.experiments.curves import Curve, Floats
from evodrop.experiments.plotting import KINDS, Style, bands_of, highest, name_with_remarks, styles_of

__all__ = ["ON_DARK", "ON_LIGHT", "Plot", "curve_plots", "layer_plots", "ranking_plots"]

Plot = dict[str, Any]
POINTS = 400  # of a line, and columns of a heat map: more than a screen can tell apart
DIGITS = 5
# Colours of the palette that are too faint on a white page, or too dark on a black one, and what stands for them.
ON_LIGHT = {"#E69F00": "#B27800", "#CC79A7": "#B85F90", "#56B4E9": "#2C89BF"}
ON_DARK = {"#000000": "#F0F0F0", "#0072B2": "#4FA8E0", "#767676": "#A0A0A0"}
LAYER_SERIES = {  # a number of each layer, what the axis says, and whether it is a share of the units
    "dead": ("dead units: zero on the whole batch", True),
    "effective": ("effective units: all of them if equally strong", True),
    "kept": ("units that survive the noise, on average", True),
    "noise": ("loudness of the noise: 1 is standard dropout's", False),
}


def curve_plots(outcome: Outcome, prefix: str) -> Iterator[Plot]:
    """One plot for each kind of error that the runs have."""
    styles = styles_of(outcome.contenders)
    for kind, title in KINDS.items():
        bands = bands_of(outcome, kind)
        lines = [
            _line(name_with_remarks(label, outcome, step=False), styles[label], band.iterations, band.mean)
            | {"low": _numbers(band.low), "high": _numbers(band.high)}
            for label, band in bands.items()
        ]
        if lines:
            plot = _plot(f"{prefix}-{kind}", title, outcome.clock, lines)
            yield plot | {"top": highest(bands), "percent": True}


def ranking_plots(outcome: Outcome, prefix: str) -> Iterator[Plot]:
    """The test error of each contender at the end, the best first, if there are many; else none."""
    if not outcome.is_ranked:
        return
    styles = styles_of(outcome.contenders)
    title = "test error at the end: dots are seeds, bars the 95% interval of their mean"
    rows = [
        _inks(styles[row.label])
        | {
            "label": name_with_remarks(row.label, outcome, step=False),
            "seeds": [error for curve in outcome.curves[row.label] if (error := final_error(curve)) is not None],
            "interval": row.test_error[:3],  # mean, low and high, each of them a number or null
            "baseline": row.label == outcome.baseline,
        }
        for row in outcome.ranking
    ]
    yield _plot(prefix, title, "contenders", []) | {"rows": rows}


def layer_plots(outcome: Outcome, prefix: str) -> Iterator[Plot]:
    """For each dropout layer four numbers over time and a map of its probabilities, as the first seed saw them.

    What is never known of a contender has no line: not every method's noise has a law that could be told.
    """
    styles = styles_of(outcome.contenders)
    first = {label: curves[0] for label, curves in outcome.curves.items() if curves}
    names = dict.fromkeys(name for curve in first.values() for name in _layer_names(curve))
    for position, name in enumerate(names):
        for series, (title, share) in LAYER_SERIES.items():
            lines = [
                _line(label, styles[label], *_series(curve, name, series, share))
                for label, curve in first.items()
                if name in _layer_names(curve)
            ]
            told = [line for line in lines if any(value is not None for value in line["y"])]
            if told:
                plot = _plot(f"{prefix}-{position}-{series}", title, outcome.clock, told)
                yield plot | {"group": name, "percent": share, "top": None}
        maps = [_map(label, curve, name) for label, curve in first.items() if name in _layer_names(curve)]
        title = "sampling probabilities, times the number of units"
        plot = _plot(f"{prefix}-{position}-probs", title, outcome.clock, [])
        labels = [item["label"] for item in maps]
        shown = labels.index(outcome.challenger) if outcome.challenger in labels else 0
        yield plot | {"group": name, "maps": maps, "shown": shown}


def _plot(name: str, title: str, clock: str, lines: list[dict[str, Any]]) -> Plot:
    return {"id": name, "title": title, "clock": clock, "lines": lines}


def _line(label: str, style: Style, x: Floats, y: Floats) -> dict[str, Any]:
    points = {"x": x[_thinned(len(x))].tolist(), "y": _numbers(y)}
    return {"label": label, "dashed": style.dashed, **_inks(style), **points}


def _inks(style: Style) -> dict[str, Any]:
    """The colour of a style on a light page and on a dark one."""
    return {mode: on.get(style.colour, style.colour) for mode, on in (("light", ON_LIGHT), ("dark", ON_DARK))}


def _layer_names(curve: Curve) -> list[str]:
    return list(dict.fromkeys(layer["name"] for layers in curve.layers for layer in layers))


def _of_layer(curve: Curve, name: str) -> Iterator[tuple[float, Any]]:
    for iteration, layers in zip(curve.iterations, curve.layers, strict=True):
        for layer in layers:
            if layer["name"] == name:
                yield float(iteration), layer


def _series(curve: Curve, name: str, series: str, share: bool) -> tuple[Floats, Floats]:
    points = [
        (iteration, math.nan if layer[series] is None else layer[series] / (layer["units"] if share else 1))
        for iteration, layer in _of_layer(curve, name)
    ]
    x, y = np.array(points, np.float64).T
    return x, y


def _map(label: str, curve: Curve, name: str) -> dict[str, Any]:
    """log10(d p) of the quantiles over time: 0 where all units are equally likely, empty where one is never drawn."""
    layers = list(_of_layer(curve, name))
    layers = [layers[index] for index in _thinned(len(layers))]
    height = min(len(layer["probs"]) for _, layer in layers)
    probs = np.array([np.array(layer["probs"][:height]) * layer["units"] for _, layer in layers], np.float64).T
    with np.errstate(divide="ignore"):
        z = np.log10(probs)
    x = [iteration for iteration, _ in layers]
    y = np.linspace(0, 100, height) if height > 1 else np.zeros(height)
    return {"label": label, "x": x, "y": _rounded(y), "z": [_rounded(row) for row in z]}


def _numbers(values: Floats) -> list[float | None]:
    return _rounded(values[_thinned(len(values))])


def _rounded(values: Floats) -> list[float | None]:
    return [float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None for value in values.tolist()]


def _thinned(n: int) -> Sequence[int]:
    """The indices of at most :data:`POINTS` of n values, evenly spread, both ends among them."""
    if n <= POINTS:
        return range(n)
    kept: list[int] = np.linspace(0, n - 1, POINTS).round().astype(np.int64).tolist()
    return kept
