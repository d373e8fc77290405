"""An experiment: a panel carried out in a folder, from the choice of rates and step sizes to the report.

``experiment.json`` in the folder says what was run and by which command, so that the report can be made again from the
records alone: nothing is trained for it, and torch is not needed.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path

from evodrop.lab.curves import read_curves
from evodrop.lab.data import VALIDATION
from evodrop.lab.groups import counted
from evodrop.lab.methods import find_method
from evodrop.lab.panels import PANELS, Panel, find_panel
from evodrop.lab.run import FAILED, FINAL, Run, RunResult
from evodrop.lab.store import KEPT, RECORDS, VERDICTS, locked, write_whole
from evodrop.lab.verdicts import Outcome, outcomes_of, rates_tried, write_verdicts

DESCRIPTION = "experiment.json"
RATES = (0.1, 0.2, 0.35, 0.5, 0.65)
TRIALS_SHARE = 0.5  # of the epochs of the comparison itself, at most


def carry_out(
    panel: Panel, out: Path, *, data: Path | None = None, jobs: int = 2, command: str = "", tune_rates: bool = False
) -> tuple[list[Outcome], list[RunResult]]:
    """Run a panel, in two stages if there are step sizes to choose from, and write the report.

    With ``tune_rates`` the rate of each method is chosen before, on a part of the training data. What is done already
    is not done again, and a second command is refused before it has written to ``out``. The report on a panel of the
    paper covers all its finished runs in the folder, whichever command made them; it names the last command. Returned
    are the outcome on each data set and the runs that failed.
    """
    from evodrop.lab.live import watching
    from evodrop.lab.runner import run_all

    trials = rate_trials(panel) if tune_rates else []
    panel.tuning_runs()  # what is wrong with a run is an error before a folder is made
    whole = PANELS.get(panel.id)  # the panel of the paper, if this is one or a part of one
    done, failed = list[Run](), list[RunResult]()

    def run(runs: Sequence[Run], stage: str) -> list[Path]:
        """Do what is not done yet, and show how it goes; the folders of the runs that came to their end."""
        new = [one for one in runs if one not in done]
        done.extend(new)
        known = {"command": command, "panel": whole.id if whole else None, "runs": [one.id for one in done]}
        write_whole(out / DESCRIPTION, json.dumps(known, indent=2).encode() + b"\n")
        with watching(new, out, f"{panel.title}: {stage}") as show:
            results = run_all(new, out, data, jobs=jobs, on_result=show, is_locked=True)
        failed.extend(result for result in results if result.status == FAILED)
        lost = {result.run for result in failed}
        return [out / one.id for one in runs if one not in lost]

    out.mkdir(parents=True, exist_ok=True)
    with locked(out):
        if trials:
            tried = rates_tried(read_curves(run(trials, "choosing rates")))
            if failed:
                raise ValueError(f"{len(failed)} of the {len(trials)} trials of rates failed: {failed[0].error}")
            best = {method: own[0].rate for method, own in tried.items()}
            variants = (item._replace(rate=best.get(item.method, item.rate)) for item in panel.variants)
            panel = dataclasses.replace(panel, variants=tuple(variants))
        steps = {variant.label: panel.grid[0] for variant in panel.variants}
        if len(panel.grid) > 1:
            steps = panel.choose_steps(read_curves(run(panel.tuning_runs(), "choosing step sizes") or [out]))
        run(panel.final_runs(steps), "training")
        ended = [out / one.id for one in done if one not in {result.run for result in failed}]
        if not ended:
            raise ValueError(f"none of the {len(done)} runs came to its end; the lines above say why")
        return write_findings([out] if whole else ended, out, command, whole), failed


def rate_trials(panel: Panel) -> list[Run]:
    """The runs that choose the rate of each method that has one, among :data:`RATES`.

    Each rate is tried with the first seed at the panel's good step, on four fifths of the training data; the least
    error on the last fifth decides. The trials are so short that they take at most half as many epochs as the panel
    itself; where that is not an epoch each, fewer rates are tried, the same for all.
    """
    found = [(variant, find_method(panel.network, variant.method)) for variant in panel.variants]
    tuned = [variant for variant, method in found if method is not None and method.uses_rate]
    budget = math.floor(TRIALS_SHARE * panel.seeds * panel.epochs)  # epochs of one method
    count = min(budget, len(RATES))
    if tuned and count < 2:
        raise ValueError(
            "--rate is 'tune', which tries rates for half as many epochs as the comparison has: with "
            f"{counted(panel.seeds, 'seed')} of {counted(panel.epochs, 'epoch')} that is {budget}, but two rates need "
            "one each; give more epochs or seeds, or a rate"
        )
    rates = [RATES[(2 * at + 1) * len(RATES) // (2 * count)] for at in range(count)]  # evenly spread
    short = dataclasses.replace(
        panel,
        dataset=VALIDATION + panel.dataset,
        variants=tuple(variant._replace(rate=rate) for rate in rates for variant in tuned),
        grid=(panel.good_step,),
        epochs=budget // max(1, count),
    )
    return short.tuning_runs()


def write_findings(folders: Sequence[Path], out: Path, command: str, panel: Panel | None) -> list[Outcome]:
    """Write figures, verdicts and the report of some runs to a folder.

    Of a panel all runs in the folders count that belong to it and have come to their end.
    """
    from evodrop.lab.figures import draw, save
    from evodrop.lab.report import NAME, make_page

    curves = read_curves(folders)
    if panel is not None:
        curves = [curve for curve in curves if curve.status in FINAL and panel.owns(curve)]
        if not curves:
            raise ValueError(f"no run of {panel.id} in {', '.join(map(str, folders))} has come to its end")
    outcomes = outcomes_of(curves, panel)
    out.mkdir(parents=True, exist_ok=True)
    for at, outcome in enumerate(outcomes):
        name = "figure" if len(outcomes) == 1 else f"figure-{at + 1}"
        save(draw(outcome), out / f"{name}.png", out / f"{name}.pdf")
    if panel is not None:
        write_verdicts(outcomes, out / VERDICTS, command, panel)
    page = make_page(outcomes, command).encode(errors="replace")  # a name of a file need not be text
    write_whole(out / NAME, page, shared=True)  # a report may be made at any time
    return outcomes


def reopen(folders: Sequence[Path], out: Path, command: str) -> list[Outcome]:
    """Make the report of experiments, or of single runs, again from their records.

    Where all experiments are of one panel of the paper, it is judged again. The command is for the report to say, if no
    experiment in the folders has one.
    """
    opened = [read_description(folder) for folder in folders]
    commands = dict.fromkeys(found[1] for found in opened if found[1] is not None)
    panels = dict.fromkeys(found[2] for found in opened)
    panel = find_panel(name) if len(panels) == 1 and (name := next(iter(panels))) is not None else None
    return write_findings([run for found in opened for run in found[0]], out, "\n".join(commands) or command, panel)


def read_description(folder: Path) -> tuple[list[Path], str | None, str | None]:
    """The runs of an experiment, its command and the name of its panel.

    Of a folder without a description, the runs are those in it, and there is neither command nor panel. Runs that are
    no longer there are left out, and so is any path: a description from elsewhere may name what it likes.
    """
    path = folder / (VERDICTS if (folder / KEPT).is_file() else DESCRIPTION)
    try:
        known = json.loads(path.read_bytes())
        command, panel = str(known["command"]), known["panel"]
        if panel is not None or path.name == VERDICTS:
            return [folder], command, None if panel is None else find_panel(str(panel)).id
        names = [name for name in map(str, known["runs"]) if Path(name).name == name != ".."]
        return [folder / name for name in names if (folder / name / RECORDS).is_file()] or [folder], command, None
    except FileNotFoundError:
        return [folder], None, None
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"{path} is damaged; remove it to report all runs in its folder") from error
