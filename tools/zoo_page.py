"""The measured tables of docs/zoo.md, made again from the costs in zoo_costs.json and the records of results/zoo.

    python tools/zoo_page.py                   renew the page
    python tools/zoo_page.py --check           leave it alone; show what differs, and fail if anything does
    python tools/zoo_page.py --results FOLDER  the ranking from other records

The name of a block is that of a function here; see ``pages`` for the rest.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

from pages import parser_for, renew, table

from evodrop.lab.curves import read_curves
from evodrop.lab.experiment import DESCRIPTION, read_description
from evodrop.lab.panels import PANELS
from evodrop.lab.report import RANKED, cells
from evodrop.lab.store import KEPT
from evodrop.lab.verdicts import Outcome, outcomes_of
from evodrop.nn.zoo import ZOO

ROOT = Path(__file__).parents[1]
PAGE, COSTS = ROOT / "docs" / "zoo.md", ROOT / "docs" / "zoo_costs.json"  # by benchmarks/zoo.py
RESULTS = ROOT / "results" / "zoo"
NOT_YET = (
    "Not measured yet: no records of `evodrop compare --methods all --rate tune` are kept here. The command makes the "
    "ranking on your machine; the report that it writes has the same table."
)


def costs(path: Path = COSTS) -> str:
    """What every dropout costs, as benchmarks/zoo.py measured it."""
    found = json.loads(path.read_text(encoding="utf-8"))
    rows, measured = [], set[str]()
    for title, times in found["races"].items():
        for key, ms in times.items():
            name, comma, variant = key.partition(",")
            measured.add(name)
            rows.append([title, f"`{name}`{comma}{variant}", f"{ms:,.2f}", f"{ms / times['standard']:.2f}"])
    if missing := sorted(set(ZOO) - measured):
        raise SystemExit(f"{path} has no cost of {missing[0]!r}; `python benchmarks/zoo.py --json {path}` measures it")
    where = f"One thread of a CPU ({found['machine']['CPU']}), torch {found['machine']['torch']}."
    return f"{where}\n\n{table(('what is measured', 'method', 'ms', 'of `nn.Dropout`'), rows)}"


def ranking(results: Path = RESULTS) -> str:
    """The table of each experiment that is kept, or that there is none."""
    folders = [path.parent for name in (DESCRIPTION, KEPT) for path in sorted(results.glob(f"**/{name}"))]
    outcomes = [outcome for folder in folders for outcome in outcomes_in(folder)]
    return "\n\n".join(map(ranked, outcomes)) or NOT_YET


def outcomes_in(folder: Path) -> list[Outcome]:
    runs, _, panel = read_description(folder)
    return outcomes_of(read_curves(runs), PANELS.get(panel or ""))


def ranked(outcome: Outcome) -> str:
    """The methods of an outcome, the best first."""
    by_label = {row["method"]: row for row in cells(outcome)}
    columns = ("method", "test error", "change", "training error", "time per step")
    rows = [
        [str(rank), *(by_label[row.label][column] for column in columns)] for rank, row in enumerate(outcome.ranking, 1)
    ]
    head = ("rank", "method", "test error", "change from standard dropout", "training error", "time per step")
    epochs = " or ".join(str(epochs) for epochs in sorted({run.epochs for run in outcome.runs}))
    seeds = min(len(row.seeds) for row in outcome.summaries)
    rates = " Rates were chosen for each method by validation." if outcome.rates else " All methods had the same rate."
    return f"**{outcome.title}**: {seeds} seeds, {epochs} epochs.{rates} {RANKED}\n\n{table(head, rows)}"


def main() -> int:
    parser = parser_for(PAGE)
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER", help="of the records")
    options = parser.parse_args()
    blocks = {"costs": costs, "ranking": partial(ranking, options.results)}
    return renew(options.page, blocks, options.check)


if __name__ == "__main__":
    sys.exit(main())
