"""An experiment: a plan carried out in a folder, from the choice of step sizes to the report.

``experiment.json`` in the folder says what was run and by which command, so that the report can be made again: see
:mod:`evodrop.experiments.reopening`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evodrop.durable import write_whole
from evodrop.experiments.figures.panels import Panel
from evodrop.experiments.figures.plans import Plan
from evodrop.experiments.records.curves import read_curves
from evodrop.experiments.records.record import FAILED, Ending
from evodrop.experiments.records.runs import AnyRun
from evodrop.experiments.reopening import DESCRIPTION, TRIALS, Findings, conclude, reopen
from evodrop.experiments.running.laboratory import run_all
from evodrop.experiments.running.live import watching
from evodrop.locking import FolderLock

__all__ = ["Experiment", "Findings"]

Folder = str | os.PathLike[str]


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
    trials: list[AnyRun] = field(default_factory=list)  # that chose the rates

    def carry_out(self, plan: Plan, panel: Panel | None = None) -> Findings:
        """Run a plan, in two stages if there are step sizes to choose from, and write the report.

        Args:
            plan: what to run.
            panel: of the paper, if it is one's.
        """
        tuning = [trial.run for trial in plan.tuning]  # what is wrong with a run is told before a folder is made
        with self.held():
            if panel is None:  # the runs of a panel stay together, whichever command made them
                self._tell_of_others(plan)
            return self._carry_out(plan, tuning, panel)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder: a second command is refused before it has written anything there."""
        self.out.mkdir(parents=True, exist_ok=True)
        with FolderLock(self.out):
            yield

    def try_out(self, trials: Sequence[AnyRun], stage: str) -> list[Path]:
        """Do the runs that choose the rates, in a folder of their own; the report tells what they found."""
        failed = self.run(trials, stage, TRIALS)
        if failed:
            raise ValueError(f"{len(failed)} of the {len(trials)} trials failed ({stage}): {failed[0].error}")
        self.trials = list(trials)
        return [self.out / TRIALS / run.id for run in trials]

    def _tell_of_others(self, plan: Plan) -> None:
        """Say so if the folder holds runs of another protocol: they are never mixed with these."""
        with suppress(ValueError):  # a description that is damaged is written anew
            found = reopen(self.out)
            others = {path.name for path in found.runs if path != self.out} - plan.ids
            if found.command is not None and others:
                print(
                    f"evodrop: {self.out} holds runs of another protocol ({len(others)}), by: {found.command}\n"
                    "evodrop: they stay there, and are not in the report of this command; to go on with them, give "
                    "that command again",
                    file=sys.stderr,
                )

    def _carry_out(self, plan: Plan, tuning: list[AnyRun], panel: Panel | None) -> Findings:
        runs, failed = list[AnyRun](), list[Ending]()
        steps = {contender.label: plan.panel.grid[0] for contender in plan.panel.contenders}
        if len(plan.panel.grid) > 1:
            runs = tuning
            self._describe(runs, panel)
            failed = self.run(runs, "choosing step sizes")
            steps = plan.choose(read_curves(self._folders(runs, failed)))
        rest = [trial.run for trial in plan.final(steps) if trial.run not in runs]
        runs = [*runs, *rest]
        self._describe(runs, panel)
        failed += self.run(rest, "training")
        outcomes, report = conclude(
            self._folders(runs, failed) if panel is None else [self.out],
            self.out,
            self.command,
            panel,
            [self.out / TRIALS / run.id for run in self.trials],
        )
        return Findings(outcomes, report, failed)

    def run(self, runs: Sequence[AnyRun], stage: str, within: str = ".") -> list[Ending]:
        """Do runs in the folder, which is held, or in one within it, and show how they go; those that failed."""
        out = self.out / within
        with watching(runs, out, f"{self.title}: {stage}") as tell:
            endings = run_all(runs, out, self.data, jobs=self.jobs, on_ending=tell, locked=True)
        return [ending for ending in endings if ending.status == FAILED]

    def _describe(self, runs: Sequence[AnyRun], panel: Panel | None) -> None:
        """Keep what :func:`reopen` needs, before the runs begin."""
        known: dict[str, Any] = {
            "command": self.command,
            "panel": None if panel is None else panel.id,
            "runs": [run.id for run in runs],
        }
        if self.trials:
            known["trials"] = [run.id for run in self.trials]
        write_whole(self.out / DESCRIPTION, json.dumps(known, indent=2).encode() + b"\n")

    def _folders(self, runs: Sequence[AnyRun], failed: Iterable[Ending]) -> list[Path]:
        lost = {ending.run for ending in failed}
        folders = [self.out / run.id for run in runs if run not in lost]
        if not folders:
            raise ValueError(f"none of the {len(runs)} runs came to its end; the lines above say why")
        return folders
