"""Figures in the form of the paper's: training and test error against iterations, a colour for each contender.

Of many contenders the curves hide each other, so the figure has their final errors below, ranked, with intervals.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from evodrop.durable import write_whole
from evodrop.experiments.claims.outcomes import Outcome
from evodrop.experiments.claims.summaries import Band, band_of, final_error
from evodrop.experiments.figures.contenders import Contender
from evodrop.experiments.theory_figure import COLOURS as NOISES
from evodrop.experiments.theory_figure import check_path

__all__ = ["COLOURS", "KINDS", "Style", "bands_of", "draw", "highest", "name_with_remarks", "save", "styles_of"]

COLOURS = NOISES | {  # the other methods, with the rest of the same palette
    "evolutional": NOISES["data-dependent"],
    "none": "#767676",
    "batchnorm": "#D55E00",
    "weight-aware": "#CC79A7",
}
SPARE = ("#D55E00", "#CC79A7", "#56B4E9", "#E69F00", "#009E73", "#767676")
KINDS = {  # of curves: what the axis says
    "clean": "training error on clean data",
    "noisy": "training error with the noise on",
    "test": "test error",
}
RESOLUTION = 150  # dots an inch
UNDATED: dict[str, dict[str, Any]] = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}  # same curves, same file


class Style(NamedTuple):
    """How a contender is drawn."""

    colour: str
    dashed: bool


def styles_of(contenders: Sequence[Contender]) -> dict[str, Style]:
    """A style for each label: the colour is that of the method, and matched variants are dashed.

    Where two would look the same, the later one gets a colour that nobody has, and where these are used up, lines of
    the other kind.
    """
    styles: dict[str, Style] = {}
    for contender in contenders:
        style = Style(COLOURS.get(contender.method, SPARE[0]), contender.match != "draws")
        if contender.method not in COLOURS or style in styles.values():
            style = _spare(style, contenders, set(styles.values()))
        styles[contender.label] = style
    return styles


def _spare(style: Style, contenders: Sequence[Contender], used: set[Style]) -> Style:
    taken = {other.colour for other in used} | {COLOURS.get(item.method) for item in contenders}
    own = [Style(colour, style.dashed) for colour in SPARE if colour not in taken]
    others = [Style(colour, not style.dashed) for colour in dict.fromkeys([*COLOURS.values(), *SPARE])]
    return next((free for free in (*own, *others) if free not in used), style)


def draw(outcome: Outcome, training: str = "clean") -> Any:
    """A matplotlib Figure of two panels: training error and test error, smoothed over the last records, up to five.

    Lines are means over the seeds, bands go from the least to the largest seed. If contenders are ranked, there are no
    bands, and a third panel has the test error of each at the end: dots are seeds, bars the 95% interval of their mean.

    Args:
        outcome: of an experiment.
        training: which training error: "clean", without noise, or "noisy", as the batches of the training saw it. The
            axis says which.
    """
    if training not in ("clean", "noisy"):
        raise ValueError(f"training is {training!r}, but the training error is drawn 'clean' or 'noisy'")
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("a figure needs matplotlib; install evodrop[lab]") from error
    heights = (4.2, 0.8 + 0.26 * len(outcome.summaries)) if outcome.is_ranked else (4.2,)
    figure = Figure(figsize=(10, sum(heights)), layout="constrained")
    curves, *below = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    for panel, kind in zip(curves.subplots(1, 2), (training, "test"), strict=True):
        _draw_panel(panel, outcome, kind)
    for part in below:
        _draw_ranking(part.subplots(), outcome)
    if not below:  # else the names of the ranking are the legend
        lines = next((axes.get_legend_handles_labels() for axes in figure.axes if axes.lines), ([], []))
        figure.legend(*lines, loc="outside lower center", ncols=3, frameon=False)
    place = f"\n{outcome.panel.place}" if outcome.panel is not None else ""
    figure.suptitle(outcome.title + place, fontsize="medium")
    return figure


def _draw_panel(panel: Any, outcome: Outcome, kind: str) -> None:
    styles, bands = styles_of(outcome.contenders), bands_of(outcome, kind)
    for label, band in bands.items():
        colour, dashed = styles[label]
        name = name_with_remarks(label, outcome)
        panel.plot(band.iterations, band.mean, color=colour, linestyle="--" if dashed else "-", label=name)
        if not outcome.is_ranked:
            panel.fill_between(band.iterations, band.low, band.high, color=colour, alpha=0.15, linewidth=0)
    panel.set(xlabel=outcome.clock, ylabel=KINDS[kind])
    panel.set_ylim(0, highest(bands))
    panel.yaxis.set_major_formatter("{x:.1%}")
    panel.spines[["top", "right"]].set_visible(False)


def _draw_ranking(panel: Any, outcome: Outcome) -> None:
    """A line for each contender, the best on top, in the style of its curve."""
    from matplotlib.ticker import PercentFormatter

    styles = styles_of(outcome.contenders)
    for height, row in enumerate(outcome.ranking):
        colour, dashed = styles[row.label]
        errors = [error for curve in outcome.curves[row.label] if (error := final_error(curve)) is not None]
        panel.plot(errors, [height] * len(errors), "o", color=colour, markersize=3, alpha=0.6)
        mean, low, high, _ = row.test_error
        if mean is not None:
            panel.plot(mean, height, "|", color=colour, markersize=12, markeredgewidth=2)
        if low is not None and high is not None:
            panel.plot(
                [max(low, 0.0), high], [height] * 2, color=colour, linestyle="--" if dashed else "-", linewidth=2
            )
        if row.label == outcome.baseline and mean is not None:
            panel.axvline(mean, color="#767676", linewidth=0.8, zorder=0)
    several = len({row.lr for row in outcome.summaries}) > 1
    names = [name_with_remarks(row.label, outcome, step=several) for row in outcome.ranking]
    panel.set_yticks(range(len(names)), names)
    panel.invert_yaxis()
    panel.set_xlabel("test error at the end: dots are seeds, lines the 95% interval of their mean")
    panel.xaxis.set_major_formatter(PercentFormatter(1.0))  # as many digits as the ticks need
    panel.spines[["top", "right"]].set_visible(False)


def bands_of(outcome: Outcome, kind: str) -> dict[str, Band]:
    """The bands of the contenders that have any."""
    bands = ((label, band_of(curves, kind)) for label, curves in outcome.curves.items())
    return {label: band for label, band in bands if band is not None}


def highest(bands: Mapping[str, Band]) -> float:
    """Where the axis of errors ends: at the largest error after a fifth of the way.

    Before it errors fall so steeply that all the rest would look flat. Curves that end before it have no say.
    """
    way = max((band.iterations[-1] for band in bands.values()), default=0.0)
    later = [band.high[band.iterations >= way / 5] for band in bands.values()]
    return 1.1 * max((float(errors.max()) for errors in later if len(errors)), default=0.0) or 1.0


def name_with_remarks(label: str, outcome: Outcome, step: bool = True) -> str:
    """A label, with its step size, if asked for, and what a reader of its curve has to know."""
    row = {summary.label: summary for summary in outcome.summaries}[label]
    remarks = [f"step {row.lr:g}"] if step else []
    if row.diverged:
        remarks.append(f"{row.diverged} of {len(row.seeds)} diverged")
    if row.unfinished:
        remarks.append(f"{row.unfinished} of {len(row.seeds)} unfinished")
    return f"{label} ({', '.join(remarks)})" if remarks else label


def save(outcome: Outcome, *paths: str | os.PathLike[str], training: str = "clean") -> None:
    """Write the figure to files whose endings name their formats: png, pdf or svg. No half of one is ever seen."""
    checked = [check_path(path) for path in paths]
    figure = draw(outcome, training)
    for path in checked:
        buffer = io.BytesIO()
        suffix = path.suffix.lower()
        figure.savefig(buffer, format=suffix[1:], dpi=RESOLUTION, metadata=UNDATED.get(suffix))
        write_whole(path, buffer.getvalue(), shared=True)
