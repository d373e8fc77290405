"""A report of :mod:`evodrop.theory` as a picture."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np

from evodrop._checks import Floats
from evodrop.lab.store import write_whole
from evodrop.theory import Report

__all__ = ["COLOURS", "FORMATS", "check_path", "draw", "save"]

FORMATS = (".png", ".pdf", ".svg")
POINTS = 2000  # of a curve: more than pixels, so a million units draw as fast as a thousand
COLOURS = {  # legible on white and on black, and apart without red and green
    "standard": "#6F6F6F",
    "uniform": "#BF8C00",
    "data-dependent": "#0D6FC4",
    "water-filling": "#00A67C",
}


def draw(report: Report) -> Any:
    """A matplotlib Figure of two panels: the sorted sampling probabilities, and the chance of each unit to survive."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("a figure needs matplotlib; install evodrop[lab]") from error
    figure = Figure(figsize=(10, 4), layout="constrained")
    probability, survival = figure.subplots(1, 2)
    for name, noise in report.noises.items():
        if noise.k is not None:
            _curve(probability, name, noise.chances)
    probability.set(xscale="log", yscale="log", ylabel="probability of a draw, $p_i$", title="sampling probabilities")
    for name in COLOURS:
        _curve(survival, name, report.noises[name].survival)
    survival.set(xscale="log", ylim=(-0.02, 1.02), ylabel="probability to survive", title="units that survive")
    for panel in (probability, survival):
        panel.set_xlabel("unit, from the largest second moment to the smallest")
        panel.legend(frameon=False)
        panel.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{report.n:,} examples x {report.d:,} units, rate {report.rate:g}, k = {report.k:,}")
    return figure


def check_path(path: str | os.PathLike[str]) -> Path:
    """The path of a picture to be written, or an error before any work is done."""
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise ValueError(
            f"{str(path)!r} ends in {path.suffix!r}, but a figure is written as one of {', '.join(FORMATS)}"
        )
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {str(path.parent)!r} to write {path.name!r} in; make it first")
    if path.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a folder; name a file")
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"the folder {str(path.parent)!r} may not be written in; name another one")
    return path


def save(report: Report, path: str | os.PathLike[str]) -> None:
    """Write the picture: all of it or nothing."""
    path = check_path(path)
    picture = io.BytesIO()
    draw(report).savefig(picture, format=path.suffix[1:].lower(), dpi=150)
    write_whole(path, picture.getvalue(), shared=True)


def _curve(panel: Any, name: str, values: Floats) -> None:
    """The values from the largest to the smallest against their rank; those that are 0 are off the page."""
    values = np.sort(values)[::-1]
    rank = np.unique(np.geomspace(1, len(values), POINTS).round().astype(np.int64))
    marker = "o" if len(rank) == 1 else None  # a line of one point is invisible
    panel.plot(rank, values[rank - 1], marker=marker, color=COLOURS[name], label=name, linewidth=2)
