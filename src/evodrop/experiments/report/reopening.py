"""The end of an experiment, which can be had again at any time: figures, verdicts and report from the records alone.

Nothing is trained here, and torch is not needed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evodrop.experiments.claims.outcomes import Outcome, outcomes_of
from evodrop.experiments.claims.verdicts import VERDICTS_FILE, write_verdicts
from evodrop.experiments.figures.panels import Panel, find_panel
from evodrop.experiments.records.curves import read_curves
from evodrop.experiments.records.folder import RECORDS
from evodrop.experiments.records.record import Ending

__all__ = ["DESCRIPTION", "Findings", "conclude", "reopen", "reopen_all"]

DESCRIPTION = "experiment.json"


@dataclass(frozen=True)
class Findings:
    """What an experiment has come to: the outcome on each data set, the report, and the runs that failed."""

    outcomes: list[Outcome]
    report: Path
    failed: list[Ending] = field(default_factory=list)


def conclude(folders: Sequence[Path], out: Path, command: str, panel: Panel | None) -> tuple[list[Outcome], Path]:
    """Write figures, verdicts and the report of some runs to a folder; gives the outcomes and the report's path."""
    from evodrop.experiments.plotting import save
    from evodrop.experiments.report.page import write_report

    outcomes = outcomes_of(read_curves(folders), panel)
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
        command, panel = str(known["command"]), known["panel"]
        inside = [folder / name for name in map(str, known["runs"]) if _is_run(folder, name)]
        return inside or [folder], command, None if panel is None else find_panel(str(panel))
    except FileNotFoundError:
        return [folder], None, None
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"{folder / DESCRIPTION} is damaged; remove it to report all runs in its folder") from error


def _is_run(folder: Path, name: str) -> bool:
    """Whether a name is that of a run in the folder: a description from elsewhere may name any path."""
    return Path(name).name == name != ".." and (folder / name / RECORDS).is_file()
