"""The sections of a report as HTML: what was found, in words and tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from evodrop.experiments.claims.outcomes import Outcome
from evodrop.experiments.claims.verdicts import VERDICTS, Judgement
from evodrop.experiments.figures.panels import CHOICES
from evodrop.experiments.report.cells import RANKED_WORDS, cells_of, percent
from evodrop.experiments.report.markup import Markup, element, join, table
from evodrop.experiments.report.plots import Plot
from evodrop.experiments.run import RUNNING

__all__ = ["claims_section", "notice", "origin_section", "plot_boxes", "summary_section"]

SIGNS = dict(zip(VERDICTS, ("✓", "✗", "?", "-"), strict=True))


def notice(outcomes: Sequence[Outcome]) -> Markup:
    """What a reader has to know before anything else: what was cut short, tuned too narrowly, or is not done yet."""
    words = [part for outcome in outcomes for part in outcome.shortened]
    edges = [part for outcome in outcomes for part in outcome.edges]
    runs = sum(len(outcome.runs) for outcome in outcomes)
    unfinished = sum(run.status == RUNNING for outcome in outcomes for run in outcome.runs)
    lines = []
    if words:
        lines.append(element("p", element("strong", "Shorter than the protocol: "), "; ".join(words), "."))
    if edges:
        lines.append(element("p", element("strong", "At the edge of the grid: "), "; ".join(edges), "."))
    if unfinished:
        lines.append(element("p", element("strong", "Not finished: "), f"{unfinished} of {runs} runs."))
    return element("aside", *lines, class_="notice", aria_label="limits of this report") if lines else Markup("")


def plot_boxes(plots: Iterable[Plot]) -> Markup:
    """The places where the page's script draws plots, those of a group together under its name."""
    groups: dict[str, list[Markup]] = {}
    for plot in plots:
        groups.setdefault(plot.get("group", ""), []).append(_plot_box(plot))
    parts = [
        join(element("h3", f"Layer {group}"), element("div", *boxes, class_="plots layers"))
        if group
        else element("div", *boxes, class_="plots")
        for group, boxes in groups.items()
    ]
    return join(*parts)


def _plot_box(plot: Plot) -> Markup:
    names = ", ".join(item["label"] for item in plot["lines"] or plot.get("rows") or plot.get("maps", ()))
    picture = element(
        "div", id=plot["id"], class_="plot", role="img", aria_label=f"{plot['title']} over {plot['clock']}: {names}"
    )
    chooser: Markup | str = ""
    if plot.get("maps"):
        options = (
            element("option", item["label"], value=str(at), selected=at == plot["shown"])
            for at, item in enumerate(plot["maps"])
        )
        chooser = element("label", "method ", element("select", *options, data_plot=plot["id"]))
    return element("figure", element("figcaption", plot["title"], chooser), picture, class_="wide" if chooser else None)


def claims_section(outcomes: Sequence[Outcome]) -> Markup:
    """Each claim of the paper with its verdict."""
    judgements = [judgement for outcome in outcomes for judgement in outcome.judgements]
    if not judgements:
        return element("p", "The paper makes no claim about these runs: they are not those of one of its figures.")
    counts = {verdict: sum(item.verdict == verdict for item in judgements) for verdict in VERDICTS}
    digest = ", ".join(f"{verdict}: {count}" for verdict, count in counts.items() if count)
    how = (
        "A claim holds, or does not, if the whole 95% interval over the seeds says so; else nobody can tell from these "
        "runs. Changes are relative to the baseline with the same seed, and negative where the paper's method is "
        "better. A method lowers the error faster if it has less error on average over the run. Where a claim counts "
        "iterations, they are those to the baseline's mean error over its last fifth of records; never to get there "
        "counts against the claim from six seeds on, if none of them does."
    )
    head = join(
        element("p", f"{_who_claims(judgements)} {digest.capitalize()}."),
        element("p", how, class_="small"),
    )
    return join(head, *map(_claim, judgements))


def _who_claims(judgements: Sequence[Judgement]) -> str:
    n = len(judgements)
    if all(judgement.claim.in_paper for judgement in judgements):
        return f"The paper makes {n} claim{'s' * (n > 1)} here."
    return f"These data are not in the paper: its claims about others are judged on them, {n} in all."


def _claim(judgement: Judgement) -> Markup:
    claim, verdict, measured, beside = judgement
    badge = element("span", f"{SIGNS[verdict]} {verdict}", class_=f"badge {verdict.replace(' ', '-')}")
    reading = element("p", "Our reading: ", claim.reading, class_="small") if claim.reading else ""
    return element(
        "article",
        element("h3", badge, " ", claim.words),
        element("p", f"Measured: {measured}."),
        *(element("p", f"Beside it, {label}: {words}.", class_="small") for label, words in beside),
        reading,
        element("p", claim.place, class_="small"),
        class_="claim",
    )


def summary_section(outcome: Outcome) -> Markup:
    """The table of contenders."""
    best = f"of {outcome.baseline}" if outcome.baseline else "of a baseline"
    head = (
        "method",
        "step",
        "test error",
        "best on the way",
        "change of test error",
        "training error",
        f"{outcome.clock} to the best training error {best}",
        f"{outcome.clock} to the best test error {best}",
        "time a step",
        "runs",
    )
    rows = table(
        "Errors at the end, in percent: mean of the last records, up to five. "
        f"± and brackets: 95% intervals over the seeds. Time a step: {outcome.time_words}."
        + f" {RANKED_WORDS}"
        * outcome.is_ranked,
        head,
        cells_of(outcome),
    )
    words = [join(element("dt", contender.label), element("dd", contender.words)) for contender in outcome.contenders]
    return join(rows, _rates_table(outcome), element("dl", *words))


def _rates_table(outcome: Outcome) -> Markup:
    """The validation error of each rate that was tried; nothing if none was."""
    if not outcome.rates:
        return Markup("")
    rates = sorted({rate for tried in outcome.rates for rate in tried.errors})
    rows = [
        (tried.method, *(percent(tried.errors.get(rate)) for rate in rates), f"{tried.chosen:g}")
        for tried in outcome.rates
    ]
    caption = (
        "Validation error of each dropout rate that was tried: one seed, a fifth of the training data set aside. The "
        "least decides, and of equals the lower rate."
    )
    return table(caption, ("method", *(f"rate {rate:g}" for rate in rates), "chosen"), rows)


def origin_section(outcomes: Sequence[Outcome], command: str) -> Markup:
    """How it was made: the command, the machine, every run, and what the paper leaves open."""
    runs = [run for outcome in outcomes for run in outcome.runs]
    origins = dict.fromkeys(
        json.dumps({"environment": run.header.get("environment"), "git": run.header.get("git")}, indent=2)
        for run in runs
    )
    rows = [
        (
            run.folder.name,
            ", ".join(filter(None, (run.dataset, run.origin))),
            run.method,
            f"{run.lr:g}",
            str(run.seed),
            str(run.epochs),
            f"{run.iterations[-1]:,.0f}",
            run.status,
        )
        for run in runs
    ]
    head = (
        "run",
        "data",
        "method",
        "step",
        "seed",
        "epochs",
        outcomes[0].clock,
        "status",
    )
    parts = [element("h3", "Command"), element("pre", element("code", command), tabindex="0")]
    parts += [element("h3", "Environment"), *(element("pre", origin, tabindex="0") for origin in origins)]
    if any(outcome.panel for outcome in outcomes):
        choices = (join(element("dt", name), element("dd", words)) for name, words in CHOICES.items())
        parts += [element("h3", "What the paper leaves open"), element("dl", *choices)]
    parts += [
        element("h3", "Runs"),
        element("details", element("summary", f"all {len(runs)} runs"), table("Every run", head, rows)),
    ]
    return join(*parts)
