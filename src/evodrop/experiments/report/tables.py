"""What an experiment found, on the terminal: as tables, or where these do not fit, line by line.

No number is ever cut: a table folds words, and if its numbers are too wide for the screen, each stands on its own line.
A ranking has to be seen at a glance, so where it is too wide it leaves out columns first, which the report has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from evodrop.experiments.claims.outcomes import Outcome
from evodrop.experiments.claims.verdicts import Judgement
from evodrop.experiments.report.cells import NO_BREAK, RANKED_WORDS, Cells, cells_of

__all__ = ["print_findings", "summary_table", "verdict_table"]

NARROWEST = 120  # columns that the summary needs where nobody looks: a file or a pipe
COLUMNS = {  # of the summary: what stands above, and the cell
    "step": "step",
    "test error": "test_error",
    "change": "test_change",
    "to training\ntarget": "to_training",
    "to test\ntarget": "to_test",
    "time\na step": "seconds",
}
FEW_COLUMNS = {name: COLUMNS[name] for name in ("test error", "change", "time\na step")}


def print_findings(outcomes: Sequence[Outcome], console: Console | None = None) -> None:
    """Print the summary of each outcome, the verdicts on its claims, and what limits them."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, NARROWEST)
    for outcome in outcomes:
        short = [summary_table(outcome, FEW_COLUMNS)] if outcome.is_ranked else []
        _print_first_that_fits(console, [summary_table(outcome), *short], _summary_lines(outcome))
        console.print(Text(_legend(outcome)))
        if outcome.judgements:
            _print_first_that_fits(console, [verdict_table(outcome.judgements)], _verdict_lines(outcome.judgements))
        for tried in outcome.rates:
            console.print(f"rate of {tried.words}", markup=False)
        for words in outcome.shortened:
            console.print(f"shorter than the protocol: {words}", markup=False)
        for words in outcome.edges:
            console.print(f"at the edge of the grid: {words}", markup=False)


def _print_first_that_fits(console: Console, tables: Sequence[Table], lines: str) -> None:
    """The first table all of which fits, else the lines."""
    anywhere = console.options.update(max_width=10_000)
    fitting = (table for table in tables if Measurement.get(console, anywhere, table).minimum <= console.width)
    console.print(next(fitting, Text(lines)))


def _add_words(table: Table, name: str, texts: Sequence[str]) -> None:
    """A column of words, never narrower than the longest of them."""
    table.add_column(name, min_width=max(len(word) for text in (name, *texts) for word in text.split()))


def _add_numbers(table: Table, name: str, cells: Sequence[str]) -> None:
    """A column as wide as the longest line of its cells: what may be parted is parted already."""
    widest = max(len(line) for cell in (name, *cells) for line in cell.split("\n"))
    table.add_column(name, no_wrap=True, min_width=widest, justify="right")


def summary_table(outcome: Outcome, fields: Mapping[str, str] = COLUMNS) -> Table:
    """A row for each contender, with a column for each of the fields, and what stands above it."""
    rows = cells_of(outcome)
    table = Table(title=Text(outcome.title))
    _add_words(table, "method", [row.label for row in rows])
    columns = [[_parted(getattr(row, field)) for row in rows] for field in fields.values()]
    for name, cells in zip(fields, columns, strict=True):
        _add_numbers(table, name, cells)
    for row, *cells in zip(rows, *columns, strict=True):
        table.add_row(Text(row.label), *map(Text, cells))
    return table


def _parted(cell: str) -> str:
    """A cell in two lines, where it has two parts."""
    return cell.replace(" (", "\n(").replace("reached in ", "reached in\n")


def _summary_lines(outcome: Outcome) -> str:
    blocks = [[outcome.title], *(_block(row) for row in cells_of(outcome))]
    return "\n".join(line for block in blocks for line in (*block, ""))


def _block(row: Cells) -> list[str]:
    numbers = (f"  {name}: {getattr(row, field)}".replace("\n", " ") for name, field in COLUMNS.items())
    return [row.label, *(line.replace(NO_BREAK, " ") for line in numbers)]


def _legend(outcome: Outcome) -> str:
    seeds = max(len(summary.seeds) for summary in outcome.summaries)
    means = f"Means over {seeds} seeds; ± and brackets are 95% intervals." if seeds > 1 else "One seed: no interval."
    if outcome.baseline is None:
        relative = " There is no run of standard dropout to compare with."
    else:
        relative = (
            f" Changes are relative to {outcome.baseline}, seed by seed.\nTargets: {outcome.clock} until its best "
            "training error on clean data, and its best test error."
        )
    errors = "Errors: mean of the last records, up to five." + f" {RANKED_WORDS}" * outcome.is_ranked
    return f"{errors}\n{means}{relative}\nTime a step: {outcome.time_words}.\n"


def verdict_table(judgements: Sequence[Judgement]) -> Table:
    """Each claim of the paper and what became of it."""
    table = Table(title=_claims_title(judgements))
    rows = [(judgement.claim.words, judgement.verdict, judgement.measured) for judgement in judgements]
    for name, texts in zip(("claim", "verdict", "measured"), zip(*rows, strict=True), strict=True):
        _add_words(table, name, texts)
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _claims_title(judgements: Sequence[Judgement]) -> str:
    in_paper = all(judgement.claim.in_paper for judgement in judgements)
    return "claims of the paper" if in_paper else "claims of the paper, asked of other data"


def _verdict_lines(judgements: Sequence[Judgement]) -> str:
    blocks = (f"{item.claim.words}\n  {item.verdict}\n  {item.measured}\n" for item in judgements)
    return "\n".join([f"{_claims_title(judgements)}\n", *blocks])
