"""What to run for a panel, in two stages: every step size with the first seed, then the chosen one with all seeds.

The choice is a function of the records alone, so an interrupted reproduction chooses the same again.
"""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from evodrop.experiments.curves import Curve
from evodrop.experiments.figures.contenders import Contender, choose_step, key_of
from evodrop.experiments.figures.panels import Panel
from evodrop.experiments.run import Run

__all__ = ["Plan", "Trial", "runs_of"]

MOST_RECORDS = 100  # of a run
QUICK_SEEDS = 2  # the least that have an interval


class Trial(NamedTuple):
    """One run of a plan: whose it is, and the arguments of the run."""

    contender: Contender
    fields: Mapping[str, Any]

    @property
    def run(self) -> Run:
        """The run, of a network or of a linear model."""
        return Run(**self.fields)


@dataclass(frozen=True)
class Plan:
    """The runs of a panel, whose fields may be fewer epochs, seeds and step sizes than the paper's protocol has.

    Examples:
        >>> from evodrop.experiments.figures.panels import find_panel
        >>> plan = runs_of(find_panel("fig2-mnist"), seeds=2)
        >>> len(plan.tuning), plan.tuning[0].run.id[:-10]
        (16, 'mnist-standard-lr0.001-seed0-')
        >>> steps = {contender.label: 0.005 for contender in plan.panel.contenders}
        >>> [trial.fields["seed"] for trial in plan.final(steps)]
        [0, 0, 0, 0, 1, 1, 1, 1]
    """

    panel: Panel
    tuning_epochs: int

    @property
    def tuning(self) -> tuple[Trial, ...]:
        """The first stage: each contender with each step size, first seed.

        Those of a step follow each other, so that whatever else the machine does falls on all contenders alike.
        """
        return tuple(
            self._trial(contender, 0, step, self.tuning_epochs)
            for step in self.panel.grid
            for contender in self.panel.contenders
        )

    @property
    def ids(self) -> set[str]:
        """The names of all runs that the plan may take, whichever step sizes are chosen."""
        finals = (self.final(dict.fromkeys(self._labels, step)) for step in self.panel.grid)
        return {trial.run.id for trials in (self.tuning, *finals) for trial in trials}

    @property
    def _labels(self) -> list[str]:
        return [contender.label for contender in self.panel.contenders]

    def choose(self, curves: Sequence[Curve]) -> dict[str, float]:
        """The step size of each contender, by label, from the curves of the first stage.

        Curves of other runs do no harm; a contender without a curve is an error.
        """
        chosen = {}
        for contender in self.panel.contenders:
            own = [curve for curve in curves if self._tunes(curve, contender)]
            if not own:
                raise ValueError(f"there is no run of {contender.label!r} to choose its step size from; run them first")
            chosen[contender.label] = choose_step(own)
        return chosen

    def final(self, steps: Mapping[str, float]) -> tuple[Trial, ...]:
        """The second stage: each contender at its step size, all seeds; those of a seed follow each other.

        Those that tuning has run are done by then.
        """
        return tuple(
            self._trial(contender, seed, steps[contender.label], self.panel.epochs)
            for seed in range(self.panel.seeds)
            for contender in self.panel.contenders
        )

    def _tunes(self, curve: Curve, contender: Contender) -> bool:
        same = key_of(curve) == contender.key and curve.dataset == self.panel.dataset
        return same and curve.seed == 0 and curve.epochs == self.tuning_epochs and curve.lr in self.panel.grid

    def _trial(self, contender: Contender, seed: int, step: float, epochs: int) -> Trial:
        panel = dataclasses.replace(self.panel, epochs=epochs)
        fields: dict[str, Any] = {
            "dataset": panel.dataset,
            "network": contender.network,
            "method": contender.method,
            "match": contender.match,
            "rate": contender.rate,
            "seed": seed,
            "lr": step,
            "epochs": panel.epochs,
            "eval_every": _spacing(panel),
        }
        if not panel.is_linear:
            fields |= {name: getattr(panel, name) for name in ("batch_size", "momentum", "weight_std")}
            fields["decay"] = _decay(panel)
        return Trial(contender, fields)


def runs_of(
    panel: Panel,
    *,
    epochs: int | None = None,
    seeds: int | None = None,
    grid: Iterable[float] | None = None,
    tuning_epochs: int | None = None,
    quick: bool = False,
    methods: Iterable[str] | None = None,
) -> Plan:
    """The plan of a panel, by its own protocol or cut short.

    Args:
        panel: one of :data:`evodrop.experiments.figures.panels.PANELS`.
        epochs, seeds, grid: instead of the panel's. Decreases of the step move along with the epochs.
        tuning_epochs: of the runs that only choose the step; as many as of the others by default, as in the paper.
        quick: a few epochs, two seeds, one step size; the arguments above go before it.
        methods: names of the contenders to run; all by default.
    """
    if quick:
        epochs = panel.quick_epochs if epochs is None else epochs
        seeds = QUICK_SEEDS if seeds is None else seeds
        grid = (panel.good_step,) if grid is None else grid
    changes: dict[str, Any] = {} if methods is None else {"contenders": _named(panel, list(methods))}
    if epochs is not None:
        changes["epochs"] = _counted("epochs", epochs)
    if seeds is not None:
        changes["seeds"] = _counted("seeds", seeds)
    if grid is not None:
        changes["grid"] = tuple(dict.fromkeys(float(step) for step in grid))
        if not changes["grid"] or not all(step > 0 for step in changes["grid"]):
            raise ValueError(f"the grid is {changes['grid']}, but it takes step sizes above 0, at least one")
    panel = dataclasses.replace(panel, **changes)
    return Plan(panel, panel.epochs if tuning_epochs is None else _counted("tuning_epochs", tuning_epochs))


def _named(panel: Panel, names: Sequence[str]) -> tuple[Contender, ...]:
    known = [contender.name for contender in panel.contenders]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        given = ", ".join(map(repr, unknown)) or "none"
        raise ValueError(f"methods name {given}, but those of {panel.id} are {', '.join(known)}")
    return tuple(contender for contender in panel.contenders if contender.name in names)


def _counted(name: str, value: int) -> int:
    if not (isinstance(value, numbers.Integral) and not isinstance(value, bool) and value >= 1):
        raise ValueError(f"{name} is {value!r}, but it takes an integer of at least 1")
    return int(value)


def _spacing(panel: Panel) -> int:
    iterations = panel.epochs * (panel.examples // panel.batch_size)
    return max(panel.least_spacing, iterations // MOST_RECORDS)


def _decay(panel: Panel) -> tuple[int, ...]:
    """The epochs after which the step falls; those that a short run has no room for are left out."""
    epochs = dict.fromkeys(round(share * panel.epochs) for share in panel.decay)
    return tuple(epoch for epoch in epochs if 1 <= epoch < panel.epochs)
