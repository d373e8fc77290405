"""One self-contained page for a set of runs: it opens in any browser, without a network."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from evodrop.experiments.claims.outcomes import Outcome
from evodrop.experiments.report.markup import Markup, element, join
from evodrop.experiments.report.plots import Plot, curve_plots, layer_plots, ranking_plots
from evodrop.experiments.report.sections import (
    claims_section,
    notice,
    origin_section,
    plot_boxes,
    summary_section,
)
from evodrop.experiments.store import write_whole

__all__ = ["make_page", "write_report"]

NAME = "report.html"
CURVES_WORDS = (
    "Lines are means over the seeds, each point that of the last records, up to five; bands go from the least to the "
    "largest seed. The training error is shown twice: on clean data, which is what the network can do, and with the "
    "noise on, which a louder noise raises by itself. Click a name to hide its curve, twice to see it alone."
)
LOGARITHMIC = element(
    "label", element("input", type="checkbox", id="logarithmic"), " logarithmic axis of errors", class_="small"
)
LAYERS_WORDS = (
    "What each dropout layer saw of a training batch, first seed. The map shows the probabilities that evolutional "
    "dropout draws with, or would: from the weakest unit below to the strongest above; 1 is as likely as any other, "
    "and units without colour are never drawn. What the noise does to the units is told of standard, uniform, "
    "evolutional and water-filling dropout, whose law is that of strengths and rate. Units that batchwise "
    "dropout spares the layer before it count as dead."
)


def write_report(outcomes: Sequence[Outcome], out: str | os.PathLike[str], command: str) -> Path:
    """Write the report of outcomes, and return its path.

    Args:
        outcomes: from :func:`evodrop.experiments.claims.outcomes.outcomes_of`.
        out: the file to write, or a folder, where it is named ``report.html``.
        command: that made the runs, for the page to say.
    """
    path = Path(out) / NAME if Path(out).is_dir() else Path(out)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {str(path.parent)!r} to write {path.name!r} in; make it first")
    write_whole(path, make_page(outcomes, command).encode(), shared=True)  # a report may be made at any time
    return path


def make_page(outcomes: Sequence[Outcome], command: str) -> str:
    """The page of outcomes, as HTML."""
    if not outcomes:
        raise ValueError("there is nothing to report yet: none of the runs has a record")
    plots, curves, rankings, layers = _plots(outcomes)
    summaries = [join(*parts) for parts in zip(rankings, map(summary_section, outcomes), strict=True)]
    tabs = {
        "curves": ("Curves", join(element("p", CURVES_WORDS, class_="small"), LOGARITHMIC, _each(outcomes, curves))),
        "claims": ("Claims", claims_section(outcomes)),
        "summary": ("Summary", _each(outcomes, summaries)),
        "layers": ("Layers", join(element("p", LAYERS_WORDS, class_="small"), _each(outcomes, layers))),
        "origin": ("Origin", origin_section(outcomes, command)),
    }
    title = outcomes[0].title if len(outcomes) == 1 else f"dropout on {len(outcomes)} data sets"
    return _fill(
        _resource("page.html"),
        {
            "title": element("span", title),
            "subtitle": element("p", _subtitle(outcomes), class_="small"),
            "notice": notice(outcomes),
            "tabs": join(*(_tab(name, words) for name, (words, _) in tabs.items())),
            "sections": join(*(_section(name, *parts) for name, parts in tabs.items())),
            "style": _resource("style.css"),
            "plotly": _plotly(),
            "data": json.dumps(plots, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
            "script": _resource("script.js"),
        },
    )


def _plots(outcomes: Sequence[Outcome]) -> tuple[list[Plot], list[Markup], list[Markup], list[Markup]]:
    """All plots, and for each outcome the places for those of its curves, its ranking and its layers."""
    curves = [list(curve_plots(outcome, f"curves-{at}")) for at, outcome in enumerate(outcomes)]
    rankings = [list(ranking_plots(outcome, f"ranking-{at}")) for at, outcome in enumerate(outcomes)]
    layers = [list(layer_plots(outcome, f"layers-{at}")) for at, outcome in enumerate(outcomes)]
    none = element("p", "These runs have no dropout layers.")
    plots = [plot for group in (*curves, *rankings, *layers) for plot in group]
    places = [plot_boxes(own) if own else none for own in layers]
    return plots, [plot_boxes(own) for own in curves], [plot_boxes(own) for own in rankings], places


def _each(outcomes: Sequence[Outcome], contents: Sequence[Markup]) -> Markup:
    """What there is to say of each outcome, under its title if there are several."""
    if len(outcomes) == 1:
        return contents[0]
    titles = [element("h3", outcome.title) for outcome in outcomes]
    return join(*(part for pair in zip(titles, contents, strict=True) for part in pair))


def _subtitle(outcomes: Sequence[Outcome]) -> str:
    runs = [run for outcome in outcomes for run in outcome.runs]
    places = [outcome.panel.place for outcome in outcomes if outcome.panel is not None]
    return " · ".join([*places, f"{len(runs)} runs", f"{len({run.seed for run in runs})} seeds"])


def _tab(name: str, words: str) -> Markup:
    return element("a", words, href=f"#{name}", id=f"tab-{name}")


def _section(name: str, words: str, content: Markup) -> Markup:
    return element("section", element("h2", words), content, id=name, aria_labelledby=f"tab-{name}")


def _fill(template: str, parts: dict[str, str]) -> str:
    """Put the parts in their places, once: nothing in a part is a place."""
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], template)


def _resource(name: str) -> str:
    return files("evodrop.experiments.report").joinpath("assets", name).read_text("utf-8")


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("a report needs plotly; install evodrop[lab]") from error
    return str(get_plotlyjs())
