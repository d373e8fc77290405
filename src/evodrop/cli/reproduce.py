"""``evodrop reproduce``: the paper's figures, and a verdict on each of its claims."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Exit, Option

from evodrop.cli.options import Data, Jobs, all_ranks, checked_out, command_line, names_in, resumable, show

if TYPE_CHECKING:
    from evodrop.experiments.figures.panels import Panel
    from evodrop.experiments.running.reproduction import Extent


def run(
    name: Annotated[str, Argument(metavar="ID|all|list", help="list names the panels")],
    methods: Annotated[str | None, Option(help="some of a panel's methods, as standard,evolutional [all]")] = None,
    epochs: Annotated[int | None, Option(help="instead of the protocol's", min=1)] = None,
    seeds: Annotated[int | None, Option(help="instead of the protocol's", min=1)] = None,
    steps: Annotated[str | None, Option(help="step sizes to choose from, as 0.1,1,10, instead of the paper's")] = None,
    tuning_epochs: Annotated[
        int | None, Option(help="of the runs that choose the step [as many as all]", min=1)
    ] = None,
    quick: Annotated[bool, Option("--quick", help="a few epochs, two seeds, one step size")] = False,
    check: Annotated[bool, Option("--check", help="exit 1 if a claim that holds in RESULTS fails here")] = False,
    results: Annotated[Path, Option(help="where --check finds the kept results of each panel")] = Path("results"),
    jobs: Jobs = 2,
    data: Data = None,
    out: Annotated[Path, Option(help="each panel gets a folder in it")] = Path("runs"),
) -> None:
    """Rerun a figure of the paper and judge its claims.

    The paper's protocol is the default, and what is cut short is told. Report and verdicts cover every finished run of
    the panel in its folder, whichever command made it.

    A run that was stopped goes on where it was; a finished one is not repeated. Under torchrun all processes share
    every batch of a network.
    """
    with all_ranks(data) as leads:
        if not leads:
            return
        from evodrop.experiments.running.reproduction import Extent

        grid = None if steps is None else _numbers(steps)
        names = None if methods is None else names_in(methods)
        extent = Extent(epochs, seeds, quick, grid, tuning_epochs, names)
        if name == "list":
            _list(extent, data)
        else:
            _reproduce(name, extent, results if check else None, jobs, data, out)


def _reproduce(name: str, extent: Extent, results: Path | None, jobs: int, data: Path | None, out: Path) -> None:
    from evodrop.experiments.claims.verdicts import loss_in_words
    from evodrop.experiments.running.reproduction import gone_back_on, panels_named, reproduce

    panels, absent = panels_named(name, data)
    for folder in (out, *(out / panel.id for panel in panels)):
        checked_out(folder)
    kept = {} if results is None else _kept(panels, results, name != "all")
    broken = bool(absent)
    with resumable():
        for panel in panels:
            findings = reproduce(panel, extent, out / panel.id, data=data, jobs=jobs, command=command_line())
            show(findings)
            lost = gone_back_on(findings, kept.get(panel.id, {}))
            for judgement in lost:
                print(f"evodrop: {loss_in_words(judgement)}", file=sys.stderr)
            broken = broken or bool(lost or findings.failed)
    if absent:
        names = ", ".join(panel.id for panel in absent)
        print(f"evodrop: left out, since their data are not there: {names}; see evodrop data list", file=sys.stderr)
    if broken:
        raise Exit(1)


def _kept(panels: list[Panel], results: Path, named: bool) -> dict[str, dict[str, str]]:
    """What --check goes by, read before the first run. A panel that was named must have some; of all, not each does."""
    from evodrop.experiments.running.reproduction import kept_verdicts

    kept = kept_verdicts(panels, results)
    missing = ", ".join(panel.id for panel in panels if panel.id not in kept)
    if missing and named:
        raise FileNotFoundError(f"there are no verdicts on {missing} in {results} to check against; name --results")
    if missing:
        print(f"evodrop: nothing to check against in {results}: {missing}", file=sys.stderr)
    return kept


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(word) for word in text.split(","))
    except ValueError:
        raise ValueError(f"--steps is {text!r}, but it takes numbers with commas between them, as 0.1,1,10") from None


def _list(extent: Extent, data: Path | None) -> None:
    from rich.console import Console
    from rich.table import Table

    from evodrop.experiments.running.reproduction import list_panels

    table = Table("panel", "place in the paper", "data")
    table.add_column("runs", justify="right")
    table.add_column("iterations", justify="right")
    for entry in list_panels(extent, data):
        words = f"{entry.panel.dataset}: {entry.data}"
        table.add_row(entry.panel.id, entry.panel.place, words, str(entry.runs), f"{entry.iterations:,}")
    Console().print(table)
