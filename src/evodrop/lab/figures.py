"""The plots of an outcome: :func:`series` gives the numbers, plotly draws the page's and matplotlib the figure's.

The picture of ``evodrop theory`` is here too, since it shares colours and formats.
"""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from itertools import chain, cycle, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evodrop.lab.panels import Variant
from evodrop.lab.store import write_whole
from evodrop.lab.summary import band_of, final_error
from evodrop.lab.verdicts import Outcome
from evodrop.theory import Report

COLOURS = {  # each stands out from a white page and from a dark one, and apart without red and green
    "standard": "#6F6F6F",
    "uniform": "#BF8C00",
    "data-dependent": "#0D6FC4",
    "water-filling": "#00A67C",
    "evolutional": "#0D6FC4",  # the same law
    "none": "#6F6F6F",
    "batchnorm": "#BE4400",
    "weight-aware": "#C77BB4",
}
REFERENCE = "#8A8A8A"  # the line at the baseline's mean
DASHES = {"solid": "-", "dash": "--", "dot": ":"}  # plotly's name and matplotlib's
ERRORS = {"clean": "training error on clean data", "noisy": "training error with the noise on", "test": "test error"}
LAYERS = {  # numbers of a layer; but for the last they are shares of its units
    "dead": "dead units: zero on the whole batch",
    "effective": "effective units: all of them if equally strong",
    "kept": "units that survive the noise, on average",
    "noise": "noise level: 1 is standard dropout's",
}
TITLES = {  # of the plots, by kind
    **ERRORS,
    "ranking": "test error at the end: dots are seeds, bars the 95% interval of their mean",
    "probs": "sampling probabilities: 1 is the mean of all units",
    **LAYERS,
}
POINTS = 400  # of a line: more than a screen shows
PIXELS = 2000  # points of a sorted curve: a million units draw as fast as a thousand
UNDATED: dict[str, dict[str, Any]] = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}  # same curves, same file


class Line(NamedTuple):
    """One method in a plot.

    Over the iterations ``x`` it is ``y``, within a band from ``low`` to ``high`` if it has one. In a ranking ``x`` are
    the errors of the seeds, and the rest is their mean and its interval. Of probabilities ``y`` has the eleven deciles,
    from the weakest unit to the strongest.
    """

    name: str
    colour: str
    dash: str
    x: Any
    y: Any
    low: Any = None
    high: Any = None


def styles_of(variants: Sequence[Variant]) -> dict[str, tuple[str, str]]:
    """Colour and dash for each label: the colour is that of its method, and dashes mean that its draws are matched.

    A method that has no colour, or would look like another, gets a style that nobody has.
    """
    dashes = {item.label: "solid" if item.match == "draws" else "dash" for item in variants}
    dashes |= {item.label: "dot" for item in variants if item.method == "none"}
    wanted = {item.label: (COLOURS[item.method], dashes[item.label]) for item in variants if item.method in COLOURS}
    every = [(colour, dash) for dash, colour in product(DASHES, dict.fromkeys(COLOURS.values()))]
    spare = chain((style for style in every if style not in wanted.values()), cycle(every))
    styles: dict[str, tuple[str, str]] = {}
    for item in variants:
        style = wanted.get(item.label)
        styles[item.label] = next(spare) if style is None or style in styles.values() else style
    return styles


def series(outcome: Outcome) -> dict[tuple[str, str], list[Line]]:
    """Every plot of an outcome, by layer and kind: its errors, a ranking if it has many methods, and dropout layers.

    The kind is a key of :data:`TITLES`; what is not of a layer has "" in its place. Lines of errors are means over the
    seeds, bands go from the least to the largest seed. Layers are those of the first seed; what is never known of a
    method, such as the noise of one whose law has no formula, has no line.
    """
    styles, names = styles_of(outcome.variants), _names(outcome)
    plots: dict[tuple[str, str], list[Line]] = {("", kind): [] for kind in (*ERRORS, "ranking")}
    for kind in ERRORS:
        for label, curves in outcome.curves.items():
            if (band := band_of(curves, kind)) is not None:
                plots["", kind].append(_line(names[label], styles[label], *band))
    for row in outcome.ranking if outcome.is_ranked else []:
        errors = np.array([final_error(curve) for curve in outcome.curves[row.label]])
        mean = (np.array([value]) for value in row.test_error)
        plots["", "ranking"].append(Line(names[row.label], *styles[row.label], errors[np.isfinite(errors)], *mean))
    first = {label: curves[0] for label, curves in outcome.curves.items()}
    for name in dict.fromkeys(layer["name"] for curve in first.values() for record in curve.layers for layer in record):
        plots |= {(name, kind): [] for kind in ("probs", *LAYERS)}
        for label, curve in first.items():
            pairs = zip(curve.iterations, curve.layers, strict=True)
            seen = [(at, layer) for at, record in pairs for layer in record if layer["name"] == name]
            x, units = np.array([at for at, _ in seen]), np.array([layer["units"] for _, layer in seen])
            for kind in LAYERS:
                y = np.array([dict(layer)[kind] for _, layer in seen], np.float64)
                if np.isfinite(y).any():
                    plots[name, kind].append(_line(label, styles[label], x, y if kind == "noise" else y / units))
            if seen and all(layer["probs"] for _, layer in seen):  # as many quantiles as a record may have
                deciles = np.array([np.quantile(layer["probs"], np.linspace(0, 1, 11)) for _, layer in seen]).T
                plots[name, "probs"].append(_line(label, styles[label], x, deciles * units))
    return {key: lines for key, lines in plots.items() if lines}


def _line(name: str, style: tuple[str, str], x: Any, *values: Any) -> Line:
    """A line of at most :data:`POINTS` points, evenly spread, both ends among them."""
    some = np.linspace(0, len(x) - 1, min(len(x), POINTS)).round().astype(np.int64)
    return Line(name, *style, x[some], *(value[..., some].astype(np.float32) for value in values))


def _names(outcome: Outcome) -> dict[str, str]:
    """For each label its name in a legend: with its step size if these differ, and how many runs went wrong."""
    several, names = len({row.lr for row in outcome.summaries}) > 1, {}
    for row in outcome.summaries:
        remarks = [f"step {row.lr:g}"] if several else []
        for count, state in ((row.diverged, "diverged"), (row.unfinished, "unfinished")):
            remarks += [f"{count} of {len(row.seeds)} {state}"] if count else []
        names[row.label] = f"{row.label} ({', '.join(remarks)})" if remarks else row.label
    return names


def _highest(lines: Sequence[Line]) -> float:
    """Where the axis of errors ends: at the largest error after a fifth of the way.

    Before it errors fall so steeply that all the rest would look flat. Curves that end before it have no say.
    """
    start = max((line.x[-1] for line in lines), default=0.0) / 5
    return 1.1 * max((float(line.high[line.x >= start].max(initial=0)) for line in lines), default=0.0) or 1.0


def interactive(kind: str, lines: Sequence[Line], name: str, outcome: Outcome) -> str:
    """A plot of :func:`series` as HTML, for a page that has plotly's script and style sheet; the name is its id there.

    Its colours are those of the lines alone: the page gives it the others.
    """
    import plotly.graph_objects as go

    axis = {"automargin": True, "zeroline": False}
    layout = {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 13},
        "margin": {"t": 8, "r": 8, "b": 8, "l": 8},
        "hovermode": "x unified",
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "xaxis": axis | {"title": {"text": outcome.clock, "font": {"size": 13}}, "tickformat": "~s"},
        "yaxis": axis | {"rangemode": "tozero"},
        "height": (380 if kind in ERRORS else 340) + 24 * max(0, len(lines) - 6),
    }
    figure = go.Figure(layout={"template": go.layout.Template(layout=layout)})
    escaped = [line._replace(name=html.escape(line.name, quote=False)) for line in lines]  # plotly reads some HTML
    if kind == "ranking":
        _add_ranking(figure, escaped, outcome)
    elif kind == "probs":
        _add_fans(figure, escaped, outcome)
    else:
        _add_lines(figure, escaped, kind, with_bands=not outcome.is_ranked)  # many bands hide each other
    config = {"responsive": True, "displayModeBar": False}
    return str(figure.to_html(full_html=False, include_plotlyjs=False, div_id=name, config=config))


def _add_lines(figure: Any, lines: Sequence[Line], kind: str, with_bands: bool) -> None:
    digits = ".4g" if kind == "noise" else ".2%"
    for line in lines:
        own = {"legendgroup": line.name, "mode": "lines"}
        if line.low is not None and with_bands:
            figure.add_scatter(**_band(line, line.low, line.high), **own)
        look = {"color": line.colour, "dash": line.dash, "width": 2}
        figure.add_scatter(x=line.x, y=line.y, name=line.name, line=look, hovertemplate=f"%{{y:{digits}}}", **own)
    figure.update_layout(showlegend=True)
    figure.update_yaxes(tickformat="" if kind == "noise" else "~%")
    if kind in ERRORS:
        figure.update_yaxes(range=[0, _highest(lines)])


def _add_ranking(figure: Any, lines: Sequence[Line], outcome: Outcome) -> None:
    for line, row in zip(lines, outcome.ranking, strict=True):
        own = {"name": line.name, "mode": "markers", "hovertemplate": "%{x:.2%}"}
        bar = {"array": line.high - line.y, "arrayminus": line.y - np.maximum(line.low, 0), "width": 0}
        mark = {"color": line.colour, "size": 14, "symbol": "line-ns", "line": {"color": line.colour, "width": 3}}
        figure.add_scatter(x=line.y, y=[line.name], marker=mark, error_x=bar | {"color": line.colour}, **own)
        dots = {"color": line.colour, "size": 7, "opacity": 0.7}
        figure.add_scatter(x=line.x, y=[line.name] * len(line.x), marker=dots, **own)
        if row.label == outcome.baseline and np.isfinite(line.y[0]):
            figure.add_vline(x=line.y[0], line={"color": REFERENCE, "width": 1})
    figure.update_layout(hovermode="closest", showlegend=False, height=60 + 26 * len(lines))
    figure.update_xaxes(title="", tickformat="~%")
    figure.update_yaxes(type="category", autorange="reversed")


def _add_fans(figure: Any, lines: Sequence[Line], outcome: Outcome) -> None:
    """The deciles of a method as nested bands around the median; a menu chooses the method."""
    challenger = html.escape(outcome.challenger or "", quote=False)
    shown = next((at for at, line in enumerate(lines) if line.name == challenger), 0)
    for at, line in enumerate(lines):
        own = {"visible": at == shown, "mode": "lines"}
        for low, high in zip(line.y[:5], line.y[:5:-1], strict=True):
            figure.add_scatter(**_band(line, low, high), **own)
        for decile, name in ((10, "strongest unit"), (5, "median unit"), (0, "weakest unit")):
            look = {"color": line.colour, "width": 2 if decile == 5 else 1}
            figure.add_scatter(x=line.x, y=line.y[decile], name=name, line=look, hovertemplate="%{y:.3g}", **own)
    chosen = np.repeat(np.eye(len(lines), dtype=bool), len(figure.data) // len(lines), axis=1).tolist()
    buttons = [
        {"label": line.name, "method": "restyle", "args": ["visible", visible]}
        for line, visible in zip(lines, chosen, strict=True)
    ]
    menu = {"buttons": buttons, "active": shown, "showactive": False, "x": 0, "xanchor": "left", "y": 1.02}
    figure.update_layout(showlegend=False, updatemenus=[menu | {"yanchor": "bottom"}])
    top = max(min(line.y[10].max(), 3 * line.y[9].max()) for line in lines)  # a few strong units may go beyond
    figure.update_yaxes(range=[0, 1.1 * float(top)])


def _band(line: Line, low: Any, high: Any) -> dict[str, Any]:
    edges = {"x": np.concatenate([line.x, line.x[::-1]]), "y": np.concatenate([high, low[::-1]])}
    look = {"fill": "toself", "fillcolor": line.colour, "opacity": 0.18, "line": {"width": 0}}
    return edges | look | {"showlegend": False, "hoverinfo": "skip"}


def draw(outcome: Outcome) -> Any:
    """A matplotlib Figure in the form of the paper's: training error on clean data beside test error.

    If methods are ranked, there are no bands, which would hide each other, and the ranking stands below.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    plots = series(outcome)
    heights = (4.2, 0.8 + 0.26 * len(outcome.summaries)) if outcome.is_ranked else (4.2,)
    figure = Figure(figsize=(10, sum(heights)), layout="constrained")
    above, *below = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    for axes, kind in zip(above.subplots(1, 2), ("clean", "test"), strict=True):
        draw_errors(axes, plots.get(("", kind), []), with_bands=not below)
        axes.set(xlabel=outcome.clock, ylabel=ERRORS[kind])
    if below:  # the names of the ranking are the legend
        axes, lines = below[0].subplots(), plots["", "ranking"]
        for height, (line, row) in enumerate(zip(lines, outcome.ranking, strict=True)):
            axes.plot(line.x, [height] * len(line.x), "o", color=line.colour, markersize=3, alpha=0.6)
            axes.plot(line.y, [height], "|", color=line.colour, markersize=12, markeredgewidth=2)
            axes.hlines(height, np.maximum(line.low, 0), line.high, line.colour, DASHES[line.dash], linewidth=2)
            if row.label == outcome.baseline:
                axes.axvline(line.y[0], color=REFERENCE, linewidth=0.8, zorder=0)
        axes.set(yticks=range(len(lines)), yticklabels=[line.name for line in lines], xlabel=TITLES["ranking"])
        axes.invert_yaxis()
        axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    else:
        handles = next((axes.get_legend_handles_labels() for axes in figure.axes if axes.lines), ([], []))
        figure.legend(*handles, loc="outside lower center", ncols=3, frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    place = f"\n{outcome.panel.place}" if outcome.panel is not None else ""
    figure.suptitle(outcome.title + place, fontsize="medium")
    return figure


def draw_errors(axes: Any, lines: Sequence[Line], with_bands: bool = True) -> None:
    """Errors over the iterations, in matplotlib's axes."""
    from matplotlib.ticker import PercentFormatter

    for line in lines:
        axes.plot(line.x, line.y, color=line.colour, linestyle=DASHES[line.dash], label=line.name)
        if with_bands:
            axes.fill_between(line.x, line.low, line.high, color=line.colour, alpha=0.15, linewidth=0)
    axes.set_ylim(0, _highest(lines))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.spines[["top", "right"]].set_visible(False)


def draw_theory(report: Report) -> Any:
    """A matplotlib Figure of two panels: the sorted sampling probabilities, and the chance of each unit to survive."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    probability, survival = figure.subplots(1, 2)
    drawn = [(probability, name, noise.chances) for name, noise in report.noises.items() if noise.k is not None]
    drawn += [(survival, name, noise.survival) for name, noise in report.noises.items() if name != "none"]
    for axes, name, values in drawn:  # from the largest to the smallest against its rank; 0 is off the page
        rank = np.unique(np.geomspace(1, len(values), PIXELS).round().astype(np.int64))
        marker = "o" if len(rank) == 1 else None  # a line of one point is invisible
        axes.plot(rank, np.sort(values)[::-1][rank - 1], marker=marker, color=COLOURS[name], label=name, linewidth=2)
    probability.set(xscale="log", yscale="log", ylabel="probability of a draw, $p_i$", title="sampling probabilities")
    survival.set(xscale="log", ylim=(-0.02, 1.02), ylabel="probability to survive", title="units that survive")
    for axes in (probability, survival):
        axes.set_xlabel("unit, from the largest second moment to the smallest")
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{report.n:,} examples x {report.d:,} units, rate {report.rate:g}, k = {report.k:,}")
    return figure


def save(figure: Any, *paths: Path) -> None:
    """Write a figure to files whose endings name their formats. No half of one is ever seen."""
    for path in paths:
        buffer, suffix = io.BytesIO(), path.suffix.lower()
        figure.savefig(buffer, format=suffix[1:], dpi=150, metadata=UNDATED.get(suffix))
        write_whole(path, buffer.getvalue(), shared=True)
