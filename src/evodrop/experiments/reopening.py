"""The end of an experiment, which can be had again at any time: figures, verdicts and report from the records alone.

Nothing is trained here, and torch is not needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from evodrop.experiments.claims.outcomes import Outcome, outcomes_of
from evodrop.experiments.claims.verdicts import VERDICTS_FILE, write_verdicts
from evodrop.experiments.figures.panels import Panel, find_panel
from evodrop.experiments.records.curves import read_curves
from evodrop.experiments.records.folder import RECORDS
from evodrop.experiments.records.record import FINAL, Ending

__all__ = ["DESCRIPTION", "TRIALS", "Findings", "Reopened", "conclude", "reopen", "reopen_all"]

DESCRIPTION = "experiment.json"
TRIALS = "tuning"  # folder of the runs that chose the rates


@dataclass(frozen=True)
class Findings:
    """What an experiment has come to: the outcome on each data set, the report, and the runs that failed."""

    outcomes: list[Outcome]
    report: Path
    failed: list[Ending] = field(default_factory=list)


class Reopened(NamedTuple):
    """What a folder holds: runs, the command and the panel of the experiment, and the runs that chose the rates."""

    runs: list[Path]
    command: str | None = None
    panel: Panel | None = None
    trials: tuple[Path, ...] = ()


def conclude(
    folders: Sequence[Path], out: Path, command: str, panel: Panel | None, trials: Sequence[Path] = ()
) -> tuple[list[Outcome], Path]:
    """Write figures, verdicts and the report of some runs to a folder; gives the outcomes and the report's path.

    Of a panel all runs in the folders count that belong to it and have come to their end.
    """
    from evodrop.experiments.drawing import save
    from evodrop.experiments.page import write_report

    curves = read_curves(folders)
    if panel is not None:
        curves = [curve for curve in curves if curve.status in FINAL and panel.owns(curve)]
        if not curves:
            raise ValueError(f"no run of {panel.id} in {', '.join(map(str, folders))} has come to its end")
    outcomes = outcomes_of(curves, panel, read_curves(trials) if trials else ())
    out.mkdir(parents=True, exist_ok=True)
    for at, outcome in enumerate(outcomes):
        name = "figure" if len(outcomes) == 1 else f"figure-{at + 1}"
        save(outcome, out / f"{name}.png", out / f"{name}.pdf")
    if panel is not None:
        write_verdicts([judgement for outcome in outcomes for judgement in outcome.judgements], out / VERDICTS_FILE)
    return outcomes, write_report(outcomes, out, command)


def reopen_all(folders: Sequence[Path], out: Path, command: str) -> Findings:
    """Make the report of experiments, or of single runs, again from their records.

    Args:
        folders: of experiments or of runs. Where all experiments are of one panel of the paper, it is judged again.
        out: folder of the report; it is made if it is missing.
        command: what the report says that it was made by, if no experiment in the folders knows.
    """
    opened = [reopen(folder) for folder in folders]
    known = dict.fromkeys(found.command for found in opened if found.command is not None)
    panels = {None if found.panel is None else found.panel.id: found.panel for found in opened}
    panel = next(iter(panels.values())) if len(panels) == 1 else None
    runs = [folder for found in opened for folder in found.runs]
    trials = [folder for found in opened for folder in found.trials]
    return Findings(*conclude(runs, out, "\n".join(known) or command, panel, trials))


def reopen(folder: Path) -> Reopened:
    """The folders of the runs of an experiment, its command, its panel and its trials.

    Of a folder without a description, the runs are those in it, and there is neither command nor panel. Runs that are
    no longer there are left out.
    """
    try:
        known = json.loads((folder / DESCRIPTION).read_bytes())
        command, panel = str(known["command"]), known["panel"]
        inside, trials = _runs_named(folder, known["runs"]), _runs_named(folder / TRIALS, known.get("trials", []))
        if panel is not None:
            return Reopened([folder], command, find_panel(str(panel)))
        return Reopened(inside or [folder], command, trials=tuple(trials))
    except FileNotFoundError:
        return Reopened([folder])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"{folder / DESCRIPTION} is damaged; remove it to report all runs in its folder") from error


def _runs_named(folder: Path, names: Iterable[object]) -> list[Path]:
    return [folder / name for name in map(str, names) if _is_run(folder, name)]


def _is_run(folder: Path, name: str) -> bool:
    """Whether a name is that of a run in the folder: a description from elsewhere may name any path."""
    return Path(name).name == name != ".." and (folder / name / RECORDS).is_file()
