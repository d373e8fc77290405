"""The tables of results/README.md, made again from the records.

    python tools/results_page.py            renew the page
    python tools/results_page.py --check    leave it alone; show what differs, and fail if anything does

The name of a block is ``claims``, or that of a folder of results; see ``pages`` for the rest.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from pages import parser_for, renew, table

from evodrop.lab.curves import Curve, read_curves
from evodrop.lab.experiment import read_description
from evodrop.lab.panels import PANELS as OF_PAPER
from evodrop.lab.summary import Interval
from evodrop.lab.verdicts import Outcome, outcomes_of

RESULTS = Path(__file__).parents[1] / "results"
PAGE = RESULTS / "README.md"
TEXT = ("fig1-20news", "fig1-reuters52")
PANELS = ("fig2-mnist", "fig2-cifar10", "fig1-bn", *TEXT, *(f"{name}-papergrid" for name in TEXT))
HEAD = ("method", "step", "training error", "test error", "change", "training pace", "test pace")
SEEN = ("noise", "kept", "silent")  # of a dropout layer


def outcome_of(name: str) -> Outcome:
    """What the records of a folder say."""
    runs, _, panel = read_description(RESULTS / name)
    return outcomes_of(read_curves(runs), OF_PAPER.get(panel or ""))[0]


def claims() -> str:
    """Each claim with its verdict, and beside it what the same measure says at equal noise."""
    head = ("claim", "verdict", "measured", "the same at matched noise")
    return table(head, [row for name in PANELS for row in claim_rows(name)])


def claim_rows(name: str) -> Iterator[Sequence[str]]:
    outcome = outcome_of(name)
    for verdict in outcome.verdicts:
        claim = verdict.claim
        asked = [claim.place if claim.in_paper else "asked of other data", *cuts(outcome)]
        matched = [words.split(": ", 1)[-1] for label, words in verdict.beside if "matched noise" in label]
        said = f"{claim.words} ({', '.join([*asked, *(['steps to 50'] if name in TEXT else [])])})"
        yield said, verdict.verdict, verdict.measured, "; ".join(matched) or "-"


def cuts(outcome: Outcome) -> list[str]:
    """That a panel was run for less than its protocol."""
    ran, whole = epochs_of(outcome), outcome.panel.epochs if outcome.panel else 0
    return [f"after {ran} of {whole} epochs"] if ran < whole else []


def epochs_of(outcome: Outcome) -> int:
    return min(curve.epochs for curves in outcome.curves.values() for curve in curves)


def methods(name: str) -> str:
    """A row for each method of a folder, and below it what was cut short."""
    outcome = outcome_of(name)
    layers = any(any(curve.layers) for curve in outcome.runs)
    rows = []
    for row in outcome.summaries:
        changes = map(change, (row.test_change, row.training_pace, row.test_pace))
        rows.append(
            [row.label, f"{row.lr:g}", error(row.training_error), error(row.test_error)]
            + (["baseline"] * 3 if row.label == outcome.baseline else list(changes))
            + (seen(outcome.curves[row.label]) if layers else [])
        )
    seeds = min(len(row.seeds) for row in outcome.summaries)
    words = [
        f"{seeds} seeds, {epochs_of(outcome)} epochs.",
        *(f"Not the protocol: {cut}." for cut in outcome.shortened),
    ]
    return f"{table((*HEAD, *(SEEN if layers else ())), rows)}\n\n{' '.join(words)}"


def seen(curves: Sequence[Curve]) -> list[str]:
    """What the dropout layers saw, the mean over all records: noise, surviving units and units without any signal."""
    layers = [layer for curve in curves for record in curve.layers for layer in record]
    noises = [layer["noise"] for layer in layers if layer["noise"] is not None]
    if not noises:
        return ["-"] * len(SEEN)
    kept, silent = (statistics.fmean(layer[key] / layer["units"] for layer in layers) for key in ("kept", "dead"))
    return [f"{statistics.fmean(noises):.2f}", f"{kept:.0%}", f"{silent:.0%}"]


def error(interval: Interval) -> str:
    if interval.mean is None:
        return "diverged"
    half = interval.half_width
    return f"{100 * interval.mean:.2f}%" + ("" if half is None else f" ± {100 * half:.2f}")


def change(interval: Interval) -> str:
    if interval.mean is None or interval.low is None or interval.high is None:
        return "-"
    return f"{100 * interval.mean:+.1f}% ({100 * interval.low:+.1f} to {100 * interval.high:+.1f})"


def main() -> int:
    options = parser_for(PAGE).parse_args()
    folders = [path.parent.relative_to(RESULTS) for path in RESULTS.rglob("experiment.json")]
    blocks = {str(folder): partial(methods, str(folder)) for folder in folders}
    return renew(options.page, {"claims": claims, **blocks}, options.check)


if __name__ == "__main__":
    sys.exit(main())
