"""results/README.md, docs/reproduction.md and the two figures, made again from the records that are kept.

    python tools/results_page.py                        renew both pages and the figures
    python tools/results_page.py results/raw/fig2-svhn  first keep a folder of finished runs as results/fig2-svhn
    python tools/results_page.py --check                write nothing; show what differs, and fail if anything does

The name of a block is that of a function here, or that of an experiment in results; see ``pages`` for the rest.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from keep import keep, renew_figure
from pages import parser_for, renew, table

from evodrop.lab.claims import CLAIMS, Claim
from evodrop.lab.curves import Curve, read_curves
from evodrop.lab.experiment import read_description
from evodrop.lab.figures import draw, draw_errors, series
from evodrop.lab.methods import LINEAR
from evodrop.lab.panels import OTHER_DATA, PANELS, Panel
from evodrop.lab.report import VERBS, cells
from evodrop.lab.store import KEPT
from evodrop.lab.summary import Interval
from evodrop.lab.verdicts import UNMEASURED, Outcome, Verdict, outcomes_of

ROOT = Path(__file__).parents[1]
RESULTS, DETAILS = ROOT / "results", ROOT / "docs" / "reproduction.md"
PAGE = RESULTS / "README.md"
NOT_AT_HAND = ("real-sim", "news20", "rcv1")  # data sets of the paper that are not to be had here
FIGURES = {  # in the paper's layout; the left three of the first show the data that are at hand
    "figure1.png": ("fig1-20news", "fig1-reuters52", "fig1-rcv1-part", "fig1-bn"),
    "figure2.png": ("fig2-mnist", "fig2-svhn", "fig2-cifar10", "fig2-cifar100"),
}
NAMES = {"mnist": "MNIST", "svhn": "SVHN", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100", **OTHER_DATA}
HEAD = ("method", "seeds", "step", "training error", "test error", "change", "training pace", "test pace")
SEEN = ("noise", "kept", "silent")  # of a dropout layer


@cache
def outcome_of(name: str) -> Outcome | None:
    """What the kept records of an experiment say; None if none are kept."""
    folder = RESULTS / name
    if not (folder / KEPT).is_file():
        return None
    runs, _, panel = read_description(folder)
    return outcomes_of(read_curves(runs), PANELS.get(panel or ""))[0]


# The claims


def claims() -> str:
    """Each claim with its verdict, the number that it rests on, and one clause why."""
    order = sorted(CLAIMS, key=lambda claim: (PANELS[claim.panel].dataset in NOT_AT_HAND, not claim.in_paper))
    return table(("claim", "verdict", "measured", "why"), map(claim_row, order))


def claim_row(claim: Claim) -> Sequence[str]:
    outcome, panel = outcome_of(claim.panel), PANELS[claim.panel]
    place = claim.place if claim.in_paper else "other data"
    grid = ", steps of the paper" if claim.panel.endswith("papergrid") else ""
    found = {item.claim.id: item for item in outcome.verdicts}.get(claim.id) if outcome else None
    said = f"{claim.words.rstrip('.')} ({place}{grid})"
    if outcome is None or found is None or found.verdict == UNMEASURED:
        absent = "the data are not at hand" if panel.dataset in NOT_AT_HAND else "not run yet"
        return said, UNMEASURED, "-", absent
    return said, found.verdict, found.measured, why(outcome, found)


def why(outcome: Outcome, verdict: Verdict) -> str:
    """What the records say besides: how far the runs went, the layers, or the same at matched noise."""
    panel = outcome.panel
    if panel is None:
        return ""
    if (ran := epochs_of(outcome)) < panel.epochs:
        return f"{ran} of {panel.epochs} epochs: how training begins, not where it ends"
    if len(outcome.edges) == len(outcome.summaries):
        return f"every method is fastest at {outcome.summaries[0].lr:g}, the largest step of the grid"
    if panel.network != LINEAR:
        (noise, _, silent), (_, _, others) = (seen(outcome.curves[name]) for name in (panel.challenger, panel.baseline))
        return f"noise {noise} of standard's; {silent} of the units silent, with standard {others}"
    matched = next((words for label, words in verdict.beside if "matched noise" in label), "")
    return f"at matched noise {matched.partition(': ')[2].partition(' (')[0]}"


def verdicts() -> str:
    """How many claims hold, in a sentence for the paper's own data and one for the others."""
    lines = []
    for in_paper, where in ((True, "the paper's data"), (False, "other data")):
        own = [claim_row(claim)[1] for claim in CLAIMS if claim.in_paper == in_paper]
        counts = Counter(own)
        became = [f"{counts[name]} {verbs[counts[name] > 1]}" for name, verbs in VERBS.items() if counts[name]]
        lines.append(f"Of {len(own)} claims on {where}, {', '.join(became)}.")
    return " ".join(lines)


# The headline of the abstract, and the choice of a dropout


def headline() -> str:
    """The two numbers of the abstract on CIFAR-100: how much better in the end, and how much sooner."""
    if (outcome := outcome_of("fig2-cifar100")) is None:
        return "Not run yet."
    columns = ("method", "runs", "test error", "change", "to training target", "to test target")
    head = ("method", "seeds", "test error at the end", "change", "iterations to training error", "to test error")
    return table(head, ([row[name] for name in columns] for row in cells(outcome)))


def choice() -> str:
    """The test error at the end of standard dropout, the paper's and none, for every panel that is kept."""
    found = [outcome_of(name) for names in FIGURES.values() for name in names]
    rows = [
        [title_of(outcome.panel), *(cell_of(outcome, label) for label in columns_of(outcome.panel))]
        for outcome in found
        if outcome is not None and outcome.panel is not None
    ]
    return table(("data", "standard", "the paper's", "the paper's, matched noise", "no dropout"), rows)


def columns_of(panel: Panel) -> Sequence[str]:
    noiseless = "BN" if panel.id == "fig1-bn" else "none"
    return panel.baseline, panel.challenger, f"{panel.challenger}, matched noise", noiseless


def cell_of(outcome: Outcome, label: str) -> str:
    row = next((row for row in outcome.summaries if row.label == label), None)
    return "-" if row is None else error(row.test_error)


# Every experiment


def experiment(name: str) -> str:
    """What there is to say on a panel or a comparison: its table, what was shortened, the claims, and the figure."""
    outcome = outcome_of(name)
    if outcome is None:
        return "Not run: the data are not at hand." if PANELS[name].dataset in NOT_AT_HAND else "Not run yet."
    parts = [methods(outcome), limits_of(outcome)]
    parts += [claim_words(verdict) for verdict in outcome.verdicts]
    parts += [f"![errors: {outcome.title}](../results/{name}/figure.png)"]
    return "\n\n".join(part for part in parts if part)


def methods(outcome: Outcome) -> str:
    layers = any(any(curve.layers) for curve in outcome.runs)
    rows = []
    for row in outcome.summaries:
        changes = map(change, (row.test_change, row.training_pace, row.test_pace))
        rows.append(
            [row.label, str(len(row.seeds)), f"{row.lr:g}", error(row.training_error), error(row.test_error)]
            + (["baseline"] * 3 if row.label == outcome.baseline else list(changes))
            + (list(seen(outcome.curves[row.label])) if layers else [])
        )
    return table((*HEAD, *(SEEN if layers else ())), rows)


def limits_of(outcome: Outcome) -> str:
    steps = sorted({curve.lr for curve in outcome.runs})
    tried = f", steps tried: {', '.join(f'{step:g}' for step in steps)}" if len(steps) > 1 else ""
    shorter = "; ".join(outcome.shortened)
    words = f"{epochs_of(outcome)} epochs{tried}. " + (f"Not the protocol: {shorter}." if shorter else "")
    return words.strip()


def claim_words(verdict: Verdict) -> str:
    beside = "".join(f" Beside it, {label}: {words}." for label, words in verdict.beside)
    reading = f" Our reading: {verdict.claim.reading}" if verdict.claim.reading else ""
    return f"- **{verdict.verdict}**: {verdict.claim.words} Measured: {verdict.measured}.{beside}{reading}"


def epochs_of(outcome: Outcome) -> int:
    return min(curve.epochs for curves in outcome.curves.values() for curve in curves)


def seen(curves: Sequence[Curve]) -> tuple[str, str, str]:
    """What the dropout layers saw, the mean over all records: noise, surviving units and units without any signal."""
    layers = [layer for curve in curves for record in curve.layers for layer in record]
    noises = [layer["noise"] for layer in layers if layer["noise"] is not None]
    if not noises:
        return "-", "-", "-"
    kept, silent = ([(layer[key] or 0) / layer["units"] for layer in layers] for key in ("kept", "dead"))
    return f"{statistics.fmean(noises):.2f}", f"{statistics.fmean(kept):.0%}", f"{statistics.fmean(silent):.0%}"


def error(interval: Interval) -> str:
    mean, low, high = interval
    half = "" if math.isnan(low) else f" ± {100 * (high - low) / 2:.2f}"
    return "diverged" if math.isnan(mean) else f"{100 * mean:.2f}%{half}"


def change(interval: Interval) -> str:
    mean, low, high = interval
    ends = "" if math.isnan(low) else f" ({100 * low:+.1f} to {100 * high:+.1f})"
    return "-" if math.isnan(mean) else f"{100 * mean:+.1f}%{ends}"


# The figures


def draw_figure(names: Sequence[str]) -> Any:
    """Panels side by side: the training error on clean data above, the test error below, bands over the seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 7.5), layout="constrained")
    for column, name in zip(figure.subplots(2, len(names)).T, names, strict=True):
        outcome, panel = outcome_of(name), PANELS[name]
        column[0].set_title(title_of(panel), fontsize="medium")
        for axes, kind, words in zip(column, ("clean", "test"), ("training error", "test error"), strict=True):
            if outcome is None:
                axes.set(xticks=[], yticks=[])
                axes.text(0.5, 0.5, "not run yet", ha="center", va="center", transform=axes.transAxes)
                continue
            draw_errors(axes, series(outcome)["", kind])
            axes.set(ylabel=words)
        if outcome is not None:
            column[1].set_xlabel(f"{outcome.clock}{extent_of(outcome)}")
            column[1].legend(frameon=False, fontsize="small", loc="lower left")
    return figure


def extent_of(outcome: Outcome) -> str:
    whole = outcome.panel.epochs if outcome.panel else 0
    ran, counts = epochs_of(outcome), sorted({len(row.seeds) for row in outcome.summaries})
    seeds = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    return f"\n{f'only {ran} of {whole}' if ran < whole else ran} epochs, seeds: {seeds}"


def title_of(panel: Panel) -> str:
    ours = " (not in the paper)" if panel.dataset in OTHER_DATA else ""
    return "Batch normalisation, CIFAR-10" if panel.id == "fig1-bn" else NAMES[panel.dataset] + ours


def renew_figures(check: bool) -> int:
    """Draw those again whose records have changed since; with ``check`` only say so, and fail."""
    old = 0
    for path, names in FIGURES.items():
        records = [folder / KEPT for name in names if ((folder := RESULTS / name) / KEPT).is_file()]
        old += renew_figure(RESULTS / path, partial(draw_figure, names), records, check)
    for path in sorted(RESULTS.rglob(KEPT)):
        outcome = outcome_of(str(path.parent.relative_to(RESULTS)))
        old += renew_figure(path.parent / "figure.png", partial(draw, outcome), [path], check)
    return int(check and old > 0)


def blocks() -> dict[str, Any]:
    folders = {str(path.parent.relative_to(RESULTS)) for path in RESULTS.rglob(KEPT)}
    own = {name: partial(experiment, name) for name in sorted(folders | set(PANELS))}
    return {function.__name__: function for function in (claims, verdicts, headline, choice)} | own


def main() -> int:
    options = parser_for(PAGE).parse_args()
    if options.page.is_dir():  # of finished runs
        keep(options.page, RESULTS / options.page.name)
        options.page = PAGE
    if options.page != PAGE:
        return renew(options.page, blocks(), options.check)
    return max(renew_figures(options.check), *(renew(page, blocks(), options.check) for page in (PAGE, DETAILS)))


if __name__ == "__main__":
    sys.exit(main())
