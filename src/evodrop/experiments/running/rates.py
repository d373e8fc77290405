"""The dropout rate of each contender, chosen on a part of the training data: the test data have no say in it."""

from __future__ import annotations

import dataclasses
import math

from evodrop.experiments.claims.summaries import final_error
from evodrop.experiments.figures.panels import Panel
from evodrop.experiments.figures.plans import Plan
from evodrop.experiments.methods import methods_of
from evodrop.experiments.records.curves import read_curve
from evodrop.experiments.records.runs import AnyRun
from evodrop.experiments.running.experiment import Experiment
from evodrop.experiments.running.laboratory import VALIDATION

__all__ = ["RATES", "tune_rates"]

RATES = (0.1, 0.2, 0.35, 0.5, 0.65)
SHARE = 0.5  # of the epochs of the comparison itself, at most
FOLDER = "tuning"


def tune_rates(panel: Panel, experiment: Experiment) -> Panel:
    """The panel with the best of :data:`RATES` for every contender that has a rate.

    Each rate is tried with the first seed at the panel's good step, on four fifths of the training data; the least
    error on the last fifth decides, smoothed as everywhere, and of equals the lower rate. The trials are so short that
    they take half as many epochs as the comparison itself, or one each.
    """
    uses = methods_of(panel.network)
    tuned = [contender for contender in panel.contenders if uses[contender.method].uses_rate]
    epochs = max(1, math.floor(SHARE * panel.seeds * panel.epochs / len(RATES)))
    short = dataclasses.replace(
        panel, dataset=VALIDATION + panel.dataset, grid=(panel.good_step,), epochs=epochs, seeds=1
    )
    trials: dict[tuple[str, float], AnyRun] = {}
    for rate in RATES:
        own = tuple(contender._replace(rate=rate) for contender in tuned)
        plan = Plan(dataclasses.replace(short, contenders=own), epochs)
        for trial in plan.tuning:
            trials[trial.contender.label, rate] = trial.run
    with experiment.held():
        failed = experiment.run(list(trials.values()), "choosing rates", FOLDER)
    if failed:
        raise ValueError(f"{len(failed)} of the trials that choose the rates failed: {failed[0].error}")
    best = {
        label: min((_error(experiment, trials[label, rate]), rate) for rate in RATES)[1]
        for label in (contender.label for contender in tuned)
    }
    contenders = (item._replace(rate=best.get(item.label, item.rate)) for item in panel.contenders)
    return dataclasses.replace(panel, contenders=tuple(contenders))


def _error(experiment: Experiment, run: AnyRun) -> float:
    error = final_error(read_curve(experiment.out / FOLDER / run.id))
    return math.inf if error is None else error
