"""``evodrop reproduce``: the panels of the paper's figures, by its own protocol or cut short."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from evodrop.experiments.claims.verdicts import VERDICTS_FILE, Judgement, check, read_verdicts
from evodrop.experiments.data import status
from evodrop.experiments.figures.panels import PANELS, Panel, find_panel
from evodrop.experiments.figures.plans import Plan, runs_of
from evodrop.experiments.running.estimates import estimate, runs_in
from evodrop.experiments.running.experiment import Experiment, Findings
from evodrop.experiments.running.laboratory import load_once

__all__ = ["Entry", "Extent", "gone_back_on", "kept_verdicts", "list_panels", "panels_named", "reproduce"]


class Extent(NamedTuple):
    """How much of the protocol to follow; None is all of it."""

    epochs: int | None = None
    seeds: int | None = None
    quick: bool = False
    grid: tuple[float, ...] | None = None
    tuning_epochs: int | None = None
    methods: tuple[str, ...] | None = None

    def plan(self, panel: Panel) -> Plan:
        """The runs of a panel to this extent."""
        return runs_of(panel, **self._asdict())


class Entry(NamedTuple):
    """What ``evodrop reproduce list`` says of a panel."""

    panel: Panel
    data: str  # "present", "downloadable" or "missing"
    runs: int
    seconds: float


def list_panels(
    extent: Extent, data: Path | None, jobs: int, on_panel: Callable[[str], None] = lambda _: None
) -> Iterator[Entry]:
    """Each panel: is its data there, how many runs does it take, and how long would that be on this machine?

    Args:
        extent: of the protocol.
        data: the data folder.
        jobs: runs at once.
        on_panel: called with each id before its network is timed.
    """
    for panel in PANELS.values():
        on_panel(panel.id)
        plan = extent.plan(panel)
        yield Entry(panel, status(panel.dataset, data), len(runs_in(plan)), estimate(plan, jobs))


def panels_named(name: str, data: Path | None) -> tuple[list[Panel], list[Panel]]:
    """The panels that a name stands for, and those of them whose data are not there.

    "all" is every panel; one whose data are missing is left out. A panel asked for by name is never left out: its data
    set says how it can be had when it is loaded.
    """
    if name != "all":
        return [find_panel(name)], []
    present = [panel for panel in PANELS.values() if status(panel.dataset, data) == "present"]
    return present, [panel for panel in PANELS.values() if panel not in present]


def reproduce(
    panel: Panel, extent: Extent, out: Path, *, data: Path | None = None, jobs: int = 2, command: str = ""
) -> Findings:
    """Run a panel and judge its claims by all its finished runs in the folder. What is done is not done again.

    Args:
        panel: which one.
        extent: of the protocol; the report tells what it leaves out.
        out: folder of the results.
        data: the data folder.
        jobs: runs at once.
        command: what the report says that it was made by.
    """
    if status(panel.dataset, data) != "present" and not out.exists():
        load_once(panel.dataset, data)  # which says how to get it, before a folder is made
    return Experiment(out, data, jobs, command, panel.id).carry_out(extent.plan(panel), panel)


def kept_verdicts(panels: Iterable[Panel], results: Path) -> dict[str, dict[str, str]]:
    """The verdicts in ``results/<panel>`` of each panel that has some, by the panels' ids.

    Read them before the first run: a file that is damaged should not be found after hours of training.
    """
    paths = {panel.id: results / panel.id / VERDICTS_FILE for panel in panels}
    return {name: read_verdicts(path) for name, path in paths.items() if path.is_file()}


def gone_back_on(findings: Findings, kept: Mapping[str, str]) -> list[Judgement]:
    """The claims that hold by kept verdicts, and not by these findings."""
    return check([judgement for outcome in findings.outcomes for judgement in outcome.judgements], kept)
