"""The dropout rate of each contender, chosen on a part of the training data: the test data have no say in it."""

from __future__ import annotations

import dataclasses
import math

from evodrop.experiments.claims.trials import rates_tried
from evodrop.experiments.data import VALIDATION
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
    they take at most half as many epochs as the comparison itself; where that is not an epoch each, fewer rates are
    tried, the same for all.
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
    budget = math.floor(SHARE * panel.seeds * panel.epochs)  # epochs of one contender
    rates = _affordable(budget)
    if tuned and not rates:
        raise ValueError(
            "rate is 'tune', which tries rates for half as many epochs as the comparison has, but "
            f"{panel.seeds} seeds of {panel.epochs} epochs leave {budget}, and two rates need one each; give more "
            "epochs or seeds, or a rate"
        )
    contenders = tuple(contender._replace(rate=rate) for rate in rates for contender in tuned)
    short = dataclasses.replace(
        panel,
        dataset=VALIDATION + panel.dataset,
        contenders=contenders,
        grid=(panel.good_step,),
        epochs=budget // max(1, len(rates)),
        seeds=1,
    )
    return [trial.run for trial in Plan(short, short.epochs).tuning]


def _affordable(epochs: int) -> tuple[float, ...]:
    """As many of the rates, evenly spread, as can have an epoch; none if these are not two.

    Examples:
        >>> _affordable(7), _affordable(3), _affordable(2), _affordable(1)
        ((0.1, 0.2, 0.35, 0.5, 0.65), (0.1, 0.35, 0.65), (0.2, 0.5), ())
    """
    count = min(epochs, len(RATES))
    return tuple(RATES[(2 * at + 1) * len(RATES) // (2 * count)] for at in range(count)) if count > 1 else ()
