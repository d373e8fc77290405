"""An experiment: the user's question as a panel, and a panel carried out in a folder, from the first run to the report.

``experiment.json`` in the folder says what was run and by which command, so that the report can be made again from the
records alone: nothing is trained for it, and torch is not needed.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from evodrop.lab.curves import read_curves
from evodrop.lab.data import VALIDATION, Documents
from evodrop.lab.methods import LINEAR, PROPOSED, USUAL, find_method, is_own, methods_of, stamped
from evodrop.lab.panels import DEEP_GRID, LINEAR_GRID, PANELS, Panel, Variant, counted, find_panel, key_of
from evodrop.lab.run import FAILED, FINAL, Run, RunResult
from evodrop.lab.store import KEPT, RECORDS, VERDICTS, locked, write_whole
from evodrop.lab.verdicts import Outcome, outcomes_of, rates_tried, write_verdicts
from evodrop.noise import MATCHES

DESCRIPTION = "experiment.json"
RATES = (0.1, 0.2, 0.35, 0.5, 0.65)
TRIALS_SHARE = 0.5  # of the epochs of the comparison itself, at most
ALL = "all"  # in the place of methods: every one that the network can have
USUAL_TEXT = ("none", "standard", "uniform", "data-dependent", "water-filling")
# Of the paper's grid, the step of fastest descent for all six methods on other seeds (100 and 101).
DIGITS_STEP, DIGITS_EPOCHS, DIGITS_SPACING = 0.01, 100, 10
EPOCHS, TEXT_EPOCHS, IMAGE_STEP, TEXT_STEP = 5, 10, 0.01, 1.0


def panel_for(
    dataset: str,
    methods: Sequence[str] | None = None,
    *,
    network: str = "auto",
    rate: str = "0.5",
    match: str = "draws",
    seeds: int = 3,
    epochs: int | None = None,
    lr: str | None = None,
    data: Path | None = None,
) -> Panel:
    """The panel that compares methods on a data set: arguments are the options of the command, as they were typed.

    Each option is checked here, once. None leaves a choice to the data set.

    Examples:
        >>> panel = panel_for("digits", ["standard", "evolutional"])
        >>> [variant.label for variant in panel.variants], panel.grid, panel.epochs
        (['standard', 'evolutional'], (0.01,), 100)
    """
    from evodrop.lab.training import load_once
    from evodrop.lab.training.network import check_fit

    loaded = load_once(dataset, data)
    is_digits = dataset == "digits"
    if is_text := isinstance(loaded, Documents):
        if network not in ("auto", LINEAR):
            raise ValueError(f"--network is {network!r}, but text is learned by a linear model; leave it out")
        network = LINEAR
    else:
        network = dataset if network == "auto" else network
        check_fit(network, loaded)
    if match not in MATCHES:
        raise ValueError(f"--match is {match!r}, but it is one of {', '.join(MATCHES)}")
    if rate == "tune" and match != "draws":
        raise ValueError(
            f"--match is {match!r} and --rate is 'tune', but a match sets methods equal at one rate, and tuning gives "
            "each its own; name a rate, or leave the match out"
        )
    fraction = 0.5 if rate == "tune" else _number(rate)
    if not 0 <= fraction < 1:
        raise ValueError(f"--rate is {rate!r}, but it is a number in [0, 1), or 'tune'")
    known = {  # of two panels on the same data, the first is the main one
        (panel.dataset, item.network): panel.good_step for panel in reversed(PANELS.values()) for item in panel.variants
    }
    step = DIGITS_STEP if is_digits else known.get((dataset, network))
    if lr is not None:
        step = None if lr == "grid" else _number(lr)
        if step is not None and not 0 < step < math.inf:
            raise ValueError(f"--lr is {lr!r}, but it is a number above 0, or 'grid' to choose from the paper's grid")
    usual = DIGITS_EPOCHS if is_digits else TEXT_EPOCHS if is_text else EPOCHS
    return Panel(
        id=f"compare-{dataset}",
        place="",
        title=f"dropout on {dataset}",
        dataset=dataset,
        network=network,
        examples=len(loaded.train_y),
        variants=_variants(methods, network, match, fraction),
        baseline="standard",
        challenger=PROPOSED[is_text],
        grid=(LINEAR_GRID if is_text else DEEP_GRID) if step is None else (step,),
        good_step=(TEXT_STEP if is_text else IMAGE_STEP) if step is None else step,
        epochs=usual if epochs is None else epochs,
        seeds=seeds,
        decay=(),
        batch_size=1 if is_text else 128,
        least_spacing=DIGITS_SPACING if is_digits else 100,
    )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan  # in no range


def _variants(methods: Sequence[str] | None, network: str, match: str, rate: float) -> tuple[Variant, ...]:
    from evodrop.lab.training.network import check_method

    known = methods_of(network)
    if methods is not None and not methods:
        raise ValueError(f"--methods names none; name some of {', '.join(known)}, or leave it out for the usual ones")
    names = tuple(methods or (USUAL_TEXT if network == LINEAR else USUAL))
    if network == LINEAR:  # the paper's method goes by two names
        names = tuple("data-dependent" if name == "evolutional" else name for name in names)
    variants = []
    for name in dict.fromkeys([*known, *filter(is_own, names)] if ALL in names else names):
        if name not in known and (network == LINEAR or not is_own(name)):
            kind, own = ("linear models", "") if network == LINEAR else ("networks", ", or module:Class of your own")
            raise ValueError(f"--methods names {name!r}, but those of {kind} are {', '.join(known)}{own}")
        method = stamped(name) if is_own(name) else name
        try:
            if network != LINEAR:
                check_method(method, network)
        except ValueError as error:
            if ALL not in names:
                raise
            print(f"evodrop: {name} is left out. {error}", file=sys.stderr)
            continue
        variants.append(Variant(name, *key_of(Variant(name, network, method, match, rate))))
    return tuple(variants)


def carry_out(
    panel: Panel, out: Path, *, data: Path | None = None, jobs: int = 2, command: str = "", tune_rates: bool = False
) -> tuple[list[Outcome], list[RunResult]]:
    """Run a panel, in two stages if there are step sizes to choose from, and write the report.

    With ``tune_rates`` the rate of each method is chosen before, on a part of the training data. What is done already
    is not done again, and a second command is refused before it has written to ``out``. The report on a panel of the
    paper covers all its finished runs in the folder, whichever command made them; it names the last command. Returned
    are the outcome on each data set and the runs that failed.
    """
    from evodrop.lab.runner import run_all, watching

    trials = rate_trials(panel) if tune_rates else []
    panel.tuning_runs()  # what is wrong with a run is an error before a folder is made
    whole = PANELS.get(panel.id)  # the panel of the paper, if this is one or a part of one
    done, results = list[Run](), dict[Run, RunResult]()

    def run(runs: Sequence[Run], stage: str) -> list[Path]:
        """Do what is not done yet, and show how it goes; the folders of the runs that came to their end."""
        new = [one for one in runs if one not in done]
        done.extend(new)
        known = {"command": command, "panel": whole.id if whole else None, "runs": [one.id for one in done]}
        write_whole(out / DESCRIPTION, json.dumps(known, indent=2).encode() + b"\n")
        with watching(new, out, f"{panel.title}: {stage}") as show:
            for result in run_all(new, out, data, jobs=jobs):
                show(result)
                results[result.run] = result
        return [out / one.id for one in runs if results[one].status != FAILED]

    out.mkdir(parents=True, exist_ok=True)
    with locked(out):
        if trials:
            tried = rates_tried(read_curves(run(trials, "choosing rates")))
            if failed := [results[one] for one in trials if results[one].status == FAILED]:
                raise ValueError(f"{len(failed)} of the {len(trials)} trials of rates failed: {failed[0].error}")
            best = {method: own[0].rate for method, own in tried.items()}
            variants = (item._replace(rate=best.get(item.method, item.rate)) for item in panel.variants)
            panel = dataclasses.replace(panel, variants=tuple(variants))
        steps = {variant.label: panel.grid[0] for variant in panel.variants}
        if len(panel.grid) > 1:
            steps = panel.choose_steps(read_curves(run(panel.tuning_runs(), "choosing step sizes") or [out]))
        run(panel.final_runs(steps), "training")
        ended = [out / one.id for one in done if results[one].status != FAILED]
        failed = [results[one] for one in done if results[one].status == FAILED]
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
