"""The dropout rate of each contender, chosen on a part of the training data: the test data have no say in it."""

from __future__ import annotations

import dataclasses
import math

from evodrop.experiments.claims.trials import rates_tried
from evodrop.experiments.datasets.splits import VALIDATION
from evodrop.experiments.figures.panels import Panel
from evodrop.experiments.figures.plans import Plan
from evodrop.experiments.methods import methods_of
from evodrop.experiments.records.curves import read_curves
from evodrop.experiments.records.runs import AnyRun
from evodrop.experiments.running.experiment import Experiment

__all__ = ["RATES", "tune_rates"]

RATES = (0.1, 0.2, 0.35, 0.5, 0.65)
SHARE = 0.5  # of the epochs of the comparison itself, at most


def tune_rates(panel: Panel, experiment: Experiment) -> Panel:
    """The panel with the best of :data:`RATES` for every contender that has a rate.

    Each rate is tried with the first seed at the panel's good step, on four fifths of the training data; the least
    error on the last fifth decides, smoothed as everywhere, and of equals the lower rate. The trials are so short that
    they take half as many epochs as the comparison itself, or one each.
    """
    trials = _trials(panel)
    if not trials:
        return panel
    with experiment.held():
        folders = experiment.try_out(trials, "choosing rates")
    best = {tried.method: tried.chosen for tried in rates_tried(read_curves(folders))}
    contenders = (item._replace(rate=best.get(item.method, item.rate)) for item in panel.contenders)
    return dataclasses.replace(panel, contenders=tuple(contenders))


def _trials(panel: Panel) -> list[AnyRun]:
    uses = methods_of(panel.network)
    tuned = [contender for contender in panel.contenders if uses[contender.method].uses_rate]
    epochs = max(1, math.floor(SHARE * panel.seeds * panel.epochs / len(RATES)))
    contenders = tuple(contender._replace(rate=rate) for rate in RATES for contender in tuned)
    short = dataclasses.replace(
        panel,
        dataset=VALIDATION + panel.dataset,
        contenders=contenders,
        grid=(panel.good_step,),
        epochs=epochs,
        seeds=1,
    )
    return [trial.run for trial in Plan(short, epochs).tuning]
