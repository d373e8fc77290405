"""What an experiment found, as tables on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from evodrop.experiments.claims.outcomes import Outcome
from evodrop.experiments.claims.verdicts import Judgement
from evodrop.experiments.report.cells import cells_of

__all__ = ["print_findings", "summary_table", "verdict_table"]

NARROWEST = 120  # columns that the summary needs where nobody looks: a file or a pipe


def print_findings(outcomes: Sequence[Outcome], console: Console | None = None) -> None:
    """Print the summary of each outcome, the verdicts on its claims, and what limits them."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, NARROWEST)
    for outcome in outcomes:
        console.print(summary_table(outcome))
        if outcome.judgements:
            console.print(verdict_table(outcome.judgements))
        for words in outcome.shortened:
            console.print(f"shorter than the protocol: {words}", markup=False)
        for words in outcome.edges:
            console.print(f"at the edge of the grid: {words}", markup=False)


def summary_table(outcome: Outcome) -> RenderableType:
    """A row for each contender, and what its columns mean."""
    table = Table(title=Text(outcome.title))
    table.add_column("method", overflow="fold")
    for name in ("step", "test error", "change", "to training target", "to test target", "time a step"):
        table.add_column(name, justify="right")
    for row in cells_of(outcome):
        figures = (row.step, row.test_error, row.test_change, row.to_training, row.to_test, row.seconds)
        table.add_row(Text(row.label), *(Text(figure.replace(" (", "\n(")) for figure in figures))
    return Group(table, Text(_legend(outcome)))


def _legend(outcome: Outcome) -> str:
    seeds = max(len(summary.seeds) for summary in outcome.summaries)
    errors = "Errors: mean of the last records, up to five.\n"
    means = (
        f"{errors}Means over {seeds} seeds; ± and brackets are 95% intervals."
        if seeds > 1
        else f"{errors}One seed: no interval."
    )
    if outcome.baseline is None:
        return f"{means} There is no run of standard dropout to compare with.\n"
    return (
        f"{means} Changes are relative to {outcome.baseline}, seed by seed.\nTargets: {outcome.clock} until its best "
        "training error on clean data, and its best test error.\n"
    )


def verdict_table(judgements: Sequence[Judgement]) -> Table:
    """Each claim of the paper and what became of it."""
    in_paper = all(judgement.claim.in_paper for judgement in judgements)
    title = "claims of the paper" if in_paper else "claims of the paper, asked of other data"
    table = Table("claim", "verdict", "measured", title=title)
    for judgement in judgements:
        table.add_row(Text(judgement.claim.words), Text(judgement.verdict), Text(judgement.measured))
    return table
