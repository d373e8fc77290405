"""An experiment: a plan carried out in a folder, from the choice of step sizes to the report.

``experiment.json`` in the folder says what was run and by which command, so that the report can be made again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evodrop.durable import write_whole
from evodrop.experiments.curves import read_curves
from evodrop.experiments.figures import Panel, find_panel
from evodrop.experiments.laboratory import Ending, run_all
from evodrop.experiments.live import watching
from evodrop.experiments.outcomes import Outcome, outcomes_of
from evodrop.experiments.plans import Plan
from evodrop.experiments.records import RECORDS
from evodrop.experiments.runs import AnyRun
from evodrop.experiments.verdicts import write_verdicts

__all__ = ["Experiment", "Findings", "conclude", "reopen", "reopen_all"]

DESCRIPTION, VERDICTS = "experiment.json", "verdicts.json"
Folder = str | os.PathLike[str]


@dataclass(frozen=True)
class Findings:
    """What an experiment has come to: the outcome on each data set, the report, and the runs that failed."""

    outcomes: list[Outcome]
    report: Path
    failed: list[Ending] = field(default_factory=list)


@dataclass
class Experiment:
    """A folder in which a plan is carried out.

    Args:
        out: the folder; it is made if it is missing.
        data: the data folder.
        jobs: runs at once.
        command: what the report says that it was made by.
        title: above the live table.
    """

    out: Path
    data: Folder | None
    jobs: int
    command: str
    title: str

    def carry_out(self, plan: Plan, panel: Panel | None = None) -> Findings:
        """Run a plan, in two stages if there are step sizes to choose from, and write the report.

        Args:
            plan: what to run.
            panel: of the paper, if it is one's.
        """
        runs, failed = list[AnyRun](), list[Ending]()
        steps = {contender.label: plan.panel.grid[0] for contender in plan.panel.contenders}
        if len(plan.panel.grid) > 1:
            runs = [trial.run for trial in plan.tuning]
            self._describe(runs, panel)
            failed = self.run(runs, "choosing step sizes")
            steps = plan.choose(read_curves(self._folders(runs, failed)))
        rest = [trial.run for trial in plan.final(steps) if trial.run not in runs]
        runs += rest
        self._describe(runs, panel)
        failed += self.run(rest, "training")
        outcomes, report = conclude(self._folders(runs, failed), self.out, self.command, panel)
        return Findings(outcomes, report, failed)

    def run(self, runs: Sequence[AnyRun], stage: str, within: str = ".") -> list[Ending]:
        """Do runs in the folder, or in one within it, and show how they come along; those that failed."""
        out = self.out / within
        with watching(runs, out, f"{self.title}: {stage}") as tell:
            endings = run_all(runs, out, self.data, jobs=self.jobs, on_ending=tell)
        return [ending for ending in endings if ending.status == "failed"]

    def _describe(self, runs: Sequence[AnyRun], panel: Panel | None) -> None:
        """Keep what :func:`reopen` needs, before the runs begin."""
        known = {
            "command": self.command,
            "panel": None if panel is None else panel.id,
            "runs": [run.id for run in runs],
        }
        self.out.mkdir(parents=True, exist_ok=True)
        write_whole(self.out / DESCRIPTION, json.dumps(known, indent=2).encode() + b"\n")

    def _folders(self, runs: Sequence[AnyRun], failed: Iterable[Ending]) -> list[Path]:
        lost = {ending.run for ending in failed}
        folders = [self.out / run.id for run in runs if run not in lost]
        if not folders:
            raise ValueError(f"none of the {len(runs)} runs came to its end; the lines above say why")
        return folders


def conclude(folders: Sequence[Path], out: Path, command: str, panel: Panel | None) -> tuple[list[Outcome], Path]:
    """Write figures, verdicts and the report of some runs to a folder; gives the outcomes and the report's path."""
    from evodrop.experiments.plotting import save
    from evodrop.experiments.report import write_report

    outcomes = outcomes_of(read_curves(folders), panel)
    for at, outcome in enumerate(outcomes):
        name = "figure" if len(outcomes) == 1 else f"figure-{at + 1}"
        save(outcome, out / f"{name}.png", out / f"{name}.pdf")
    if panel is not None:
        write_verdicts([judgement for outcome in outcomes for judgement in outcome.judgements], out / VERDICTS)
    return outcomes, write_report(folders, out, command=command, panel=panel)


def reopen_all(folders: Sequence[Path], out: Path, command: str) -> Findings:
    """Make the report of experiments, or of single runs, again from their records.

    Args:
        folders: of experiments or of runs. Where all experiments are of one panel of the paper, it is judged again.
        out: folder of the report.
        command: what the report says that it was made by, if no experiment in the folders knows.
    """
    opened = [reopen(folder) for folder in folders]
    known = dict.fromkeys(words for _, words, _ in opened if words is not None)
    panels = {None if panel is None else panel.id: panel for _, _, panel in opened}
    panel = next(iter(panels.values())) if len(panels) == 1 else None
    runs = [folder for inside, _, _ in opened for folder in inside]
    return Findings(*conclude(runs, out, "\n".join(known) or command, panel))


def reopen(folder: Path) -> tuple[list[Path], str | None, Panel | None]:
    """The folders of the runs of an experiment, its command and its panel.

    Of a folder without a description, the runs are those in it, and there is neither command nor panel. Runs that are
    no longer there are left out.
    """
    try:
        known = json.loads((folder / DESCRIPTION).read_bytes())
        command, panel, runs = str(known["command"]), known["panel"], [str(name) for name in known["runs"]]
    except FileNotFoundError:
        return [folder], None, None
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"{folder / DESCRIPTION} is damaged; remove it to report all runs in its folder") from error
    inside = [folder / name for name in runs if Path(name).name == name and (folder / name / RECORDS).is_file()]
    return inside or [folder], command, None if panel is None else find_panel(panel)
