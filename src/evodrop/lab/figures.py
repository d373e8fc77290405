"""The plots of an outcome: :func:`series` gives the numbers, plotly draws the page's and matplotlib the figure's.

The picture of ``evodrop theory`` is here too, since it shares colours and formats.
"""

from __future__ import annotations

import html
import io
from collections.abc import Mapping, Sequence
from itertools import chain, cycle, product
from pathlib import Path
from typing import Any

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
Lines = Mapping[tuple[str, str, str], tuple[Any, ...]]  # the name of each method, its colour and dash: its numbers
UNDATED: dict[str, dict[str, Any]] = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}  # same curves, same file


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


def series(outcome: Outcome) -> dict[tuple[str, str], Lines]:
    """Every plot of an outcome, by layer and kind: its errors, a ranking if it has many methods, and dropout layers.

    The kind is a key of :data:`TITLES`; what is not of a layer has "" in its place. Errors have the iterations, the
    mean over the seeds, and a band from the least to the largest seed; a ranking the errors of the seeds, their mean
    and its interval. Layers are those of the first seed, over the iterations; probabilities have eleven deciles, from
    the weakest unit to the strongest. What is never known of a method, such as the noise of one whose law has no
    formula, has no line.
    """
    styles, names = styles_of(outcome.variants), _names(outcome)
    plots: dict[tuple[str, str], dict[Any, Any]] = {("", kind): {} for kind in (*ERRORS, "ranking")}
    for kind in ERRORS:
        for label, curves in outcome.curves.items():
            if (band := band_of(curves, kind)) is not None:
                plots["", kind][names[label], *styles[label]] = _thinned(*band)
    for row in outcome.ranking if outcome.is_ranked else []:
        errors = np.array([final_error(curve) for curve in outcome.curves[row.label]])
        mean = (np.array([value]) for value in row.test_error)
        plots["", "ranking"][names[row.label], *styles[row.label]] = errors[np.isfinite(errors)], *mean
    first = {label: curves[0] for label, curves in outcome.curves.items()}
    for name in dict.fromkeys(layer["name"] for curve in first.values() for record in curve.layers for layer in record):
        plots |= {(name, kind): {} for kind in ("probs", *LAYERS)}
        for label, curve in first.items():
            pairs = zip(curve.iterations, curve.layers, strict=True)
            seen = [(at, layer) for at, record in pairs for layer in record if layer["name"] == name]
            x, units = np.array([at for at, _ in seen]), np.array([layer["units"] for _, layer in seen])
            for kind in LAYERS:
                y = np.array([dict(layer)[kind] for _, layer in seen], np.float64)
                if np.isfinite(y).any():
                    plots[name, kind][label, *styles[label]] = _thinned(x, y if kind == "noise" else y / units)
            if seen and all(layer["probs"] for _, layer in seen):  # as many quantiles as a record may have
                deciles = np.array([np.quantile(layer["probs"], np.linspace(0, 1, 11)) for _, layer in seen]).T
                plots[name, "probs"][label, *styles[label]] = _thinned(x, deciles * units)
    return {key: lines for key, lines in plots.items() if lines}


def _thinned(x: Any, *values: Any) -> tuple[Any, ...]:
    """At most :data:`POINTS` points, evenly spread, both ends among them."""
    some = np.linspace(0, len(x) - 1, min(len(x), POINTS)).round().astype(np.int64)
    return x[some], *(value[..., some].astype(np.float32) for value in values)


def _names(outcome: Outcome) -> dict[str, str]:
    """For each label its name in a legend: with its step size if these differ, and how many runs went wrong."""
    several, names = len({row.lr for row in outcome.summaries}) > 1, {}
    for row in outcome.summaries:
        remarks = [f"step {row.lr:g}"] if several else []
        for count, state in ((row.diverged, "diverged"), (row.unfinished, "unfinished")):
            remarks += [f"{count} of {len(row.seeds)} {state}"] if count else []
        names[row.label] = f"{row.label} ({', '.join(remarks)})" if remarks else row.label
    return names


def _highest(lines: Lines) -> float:
    """Where the axis of errors ends: at the largest error after a fifth of the way.

    Before it errors fall so steeply that all the rest would look flat. Curves that end before it have no say.
    """
    start = max((x[-1] for x, *_ in lines.values()), default=0.0) / 5
    return 1.1 * max((float(high[x >= start].max(initial=0)) for x, *_, high in lines.values()), default=0.0) or 1.0


def interactive(kind: str, lines: Lines, name: str, outcome: Outcome) -> str:
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
    # plotly reads some HTML
    escaped = {(html.escape(label, quote=False), colour, dash): own for (label, colour, dash), own in lines.items()}
    if kind == "ranking":
        _add_ranking(figure, escaped, outcome)
    elif kind == "probs":
        _add_fans(figure, escaped, outcome)
    else:
        _add_lines(figure, escaped, kind, with_bands=not outcome.is_ranked)  # many bands hide each other
    config = {"responsive": True, "displayModeBar": False}
    return str(figure.to_html(full_html=False, include_plotlyjs=False, div_id=name, config=config))


def _add_lines(figure: Any, lines: Lines, kind: str, with_bands: bool) -> None:
    digits = ".4g" if kind == "noise" else ".2%"
    for (name, colour, dash), (x, y, *band) in lines.items():
        own = {"legendgroup": name, "mode": "lines"}
        if band and with_bands:
            figure.add_scatter(**_band(colour, x, *band), **own)
        look = {"color": colour, "dash": dash, "width": 2}
        figure.add_scatter(x=x, y=y, name=name, line=look, hovertemplate=f"%{{y:{digits}}}", **own)
    figure.update_layout(showlegend=True)
    figure.update_yaxes(tickformat="" if kind == "noise" else "~%")
    if kind in ERRORS:
        figure.update_yaxes(range=[0, _highest(lines)])


def _add_ranking(figure: Any, lines: Lines, outcome: Outcome) -> None:
    for ((name, colour, _), (errors, mean, low, high)), row in zip(lines.items(), outcome.ranking, strict=True):
        own = {"name": name, "mode": "markers", "hovertemplate": "%{x:.2%}"}
        bar = {"array": high - mean, "arrayminus": mean - np.maximum(low, 0), "width": 0}
        mark = {"color": colour, "size": 14, "symbol": "line-ns", "line": {"color": colour, "width": 3}}
        figure.add_scatter(x=mean, y=[name], marker=mark, error_x=bar | {"color": colour}, **own)
        dots = {"color": colour, "size": 7, "opacity": 0.7}
        figure.add_scatter(x=errors, y=[name] * len(errors), marker=dots, **own)
        if row.label == outcome.baseline and np.isfinite(mean[0]):
            figure.add_vline(x=mean[0], line={"color": REFERENCE, "width": 1})
    figure.update_layout(hovermode="closest", showlegend=False, height=60 + 26 * len(lines))
    figure.update_xaxes(title="", tickformat="~%")
    figure.update_yaxes(type="category", autorange="reversed")


def _add_fans(figure: Any, lines: Lines, outcome: Outcome) -> None:
    """The deciles of a method as nested bands around the median; a menu chooses the method."""
    challenger, names = html.escape(outcome.challenger or "", quote=False), [name for name, *_ in lines]
    shown = names.index(challenger) if challenger in names else 0
    for at, ((_, colour, _), (x, deciles)) in enumerate(lines.items()):
        own = {"visible": at == shown, "mode": "lines"}
        for low, high in zip(deciles[:5], deciles[:5:-1], strict=True):
            figure.add_scatter(**_band(colour, x, low, high), **own)
        for decile, unit in ((10, "strongest unit"), (5, "median unit"), (0, "weakest unit")):
            look = {"color": colour, "width": 2 if decile == 5 else 1}
            figure.add_scatter(x=x, y=deciles[decile], name=unit, line=look, hovertemplate="%{y:.3g}", **own)
    chosen = np.repeat(np.eye(len(lines), dtype=bool), len(figure.data) // len(lines), axis=1).tolist()
    buttons = [
        {"label": name, "method": "restyle", "args": ["visible", visible]}
        for name, visible in zip(names, chosen, strict=True)
    ]
    menu = {"buttons": buttons, "active": shown, "showactive": False, "x": 0, "xanchor": "left", "y": 1.02}
    figure.update_layout(showlegend=False, updatemenus=[menu | {"yanchor": "bottom"}])
    top = max(min(deciles[10].max(), 3 * deciles[9].max()) for _, deciles in lines.values())
    figure.update_yaxes(range=[0, 1.1 * float(top)])  # a few strong units may go beyond


def _band(colour: str, x: Any, low: Any, high: Any) -> dict[str, Any]:
    edges = {"x": np.concatenate([x, x[::-1]]), "y": np.concatenate([high, low[::-1]])}
    look = {"fill": "toself", "fillcolor": colour, "opacity": 0.18, "line": {"width": 0}}
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
        draw_errors(axes, plots.get(("", kind), {}), with_bands=not below)
        axes.set(xlabel=outcome.clock, ylabel=ERRORS[kind])
    if below:  # the names of the ranking are the legend
        axes, lines = below[0].subplots(), plots["", "ranking"]
        for height, (line, row) in enumerate(zip(lines.items(), outcome.ranking, strict=True)):
            (_, colour, dash), (errors, mean, low, high) = line
            axes.plot(errors, [height] * len(errors), "o", color=colour, markersize=3, alpha=0.6)
            axes.plot(mean, [height], "|", color=colour, markersize=12, markeredgewidth=2)
            axes.hlines(height, np.maximum(low, 0), high, colour, DASHES[dash], linewidth=2)
            if row.label == outcome.baseline:
                axes.axvline(mean[0], color=REFERENCE, linewidth=0.8, zorder=0)
        axes.set(yticks=range(len(lines)), yticklabels=[name for name, *_ in lines], xlabel=TITLES["ranking"])
        axes.invert_yaxis()
        axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    else:
        handles = next((axes.get_legend_handles_labels() for axes in figure.axes if axes.lines), ([], []))
        figure.legend(*handles, loc="outside lower center", ncols=3, frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    place = f"\n{outcome.panel.place}" if outcome.panel is not None else ""
    figure.suptitle(outcome.title + place, fontsize="medium")
    return figure


def draw_errors(axes: Any, lines: Lines, with_bands: bool = True) -> None:
    """Errors over the iterations, in matplotlib's axes."""
    from matplotlib.ticker import PercentFormatter

    for (name, colour, dash), (x, y, low, high) in lines.items():
        axes.plot(x, y, color=colour, linestyle=DASHES[dash], label=name)
        if with_bands:
            axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
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
