"""What came out of an experiment: runs on one data set, sorted into contenders, summed up and judged."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from evodrop.experiments.claims.summaries import Summary, summarise, time_of_processor
from evodrop.experiments.claims.trials import RatesTried, rates_tried
from evodrop.experiments.claims.verdicts import Judgement, judge_panel
from evodrop.experiments.curves import Curve
from evodrop.experiments.datasets.splits import VALIDATION
from evodrop.experiments.figures.contenders import Contender, contenders_of, final_curves, key_of, tuning_curves
from evodrop.experiments.figures.panels import Panel, shortened
from evodrop.experiments.methods import CHALLENGERS, LINEAR

__all__ = ["Outcome", "outcomes_of"]

MANY = 9  # contenders: from so many on the best come first, since nobody finds them in another order


@dataclass(frozen=True, eq=False)
class Outcome:
    """The results on one data set.

    Attributes:
        title: one plain line.
        panel: of the paper, if the runs are those of one.
        contenders: what is compared, in order.
        runs: every curve, tuning included.
        curves: for each label the curves that count, one a seed.
        baseline: label of the contender that the others are measured against, if there is one.
        summaries: a row of the table for each contender.
        judgements: on the claims of the panel.
        shortened: what is less than the panel's protocol, in words.
        rates: that were tried for each method, if they were tuned.
        edges: which contenders have a step size at the edge of those tried, in words: a better one may lie beyond.
    """

    title: str
    panel: Panel | None
    contenders: tuple[Contender, ...]
    runs: tuple[Curve, ...]
    curves: dict[str, list[Curve]]
    baseline: str | None
    summaries: list[Summary]
    judgements: list[Judgement]
    shortened: tuple[str, ...]
    edges: tuple[str, ...]
    rates: tuple[RatesTried, ...]

    @property
    def challenger(self) -> str | None:
        """Label of the paper's proposal, if there is one."""
        if self.panel is not None:
            return self.panel.challenger
        return next((item.label for item in self.contenders if item.method in CHALLENGERS), None)

    @property
    def is_ranked(self) -> bool:
        """Whether the best come first; a panel keeps the order of the paper."""
        return self.panel is None and len(self.summaries) >= MANY

    @property
    def ranking(self) -> list[Summary]:
        """The summaries, the least test error first and those without one last."""
        return sorted(self.summaries, key=lambda row: math.inf if row.test_error.mean is None else row.test_error.mean)

    @property
    def time_words(self) -> str:
        """Which time a step is measured by."""
        return "CPU time" if time_of_processor(self.curves) else "wall time, which depends on what else runs"

    @property
    def clock(self) -> str:
        """What the runs count: a linear model takes one example at a time."""
        return "examples seen" if all(run.network == LINEAR for run in self.runs) else "iterations"


def outcomes_of(curves: Iterable[Curve], panel: Panel | None = None, trials: Sequence[Curve] = ()) -> list[Outcome]:
    """The outcome on each data set, by name.

    Args:
        curves: of all runs.
        panel: that the runs belong to; those on other data sets are left without one.
        trials: short runs that chose the rates, on a part of the training data.
    """
    by_dataset: dict[str, list[Curve]] = {}
    for curve in curves:
        by_dataset.setdefault(curve.dataset, []).append(curve)
    return [
        _outcome(
            dataset,
            runs,
            panel if panel is not None and panel.dataset == dataset else None,
            rates_tried(trial for trial in trials if trial.dataset == VALIDATION + dataset),
        )
        for dataset, runs in sorted(by_dataset.items())
    ]


def _outcome(dataset: str, runs: Sequence[Curve], panel: Panel | None, rates: tuple[RatesTried, ...]) -> Outcome:
    contenders = contenders_of(runs, () if panel is None else panel.contenders)
    curves = {contender.label: final_curves(runs, contender) for contender in contenders}
    baseline = _baseline(contenders) if panel is None else panel.baseline
    tuning = {
        contender.label: tuning_curves([run for run in runs if key_of(run) == contender.key])
        for contender in contenders
    }
    summaries = summarise(curves, baseline)
    origins = dict.fromkeys(run.origin for run in runs if run.origin)
    return Outcome(
        title=", ".join([f"dropout on {dataset}" if panel is None else panel.title, *origins]),
        panel=panel,
        contenders=tuple(contenders),
        runs=tuple(runs),
        curves=curves,
        baseline=baseline if baseline in curves else None,
        summaries=summaries,
        judgements=[] if panel is None else judge_panel(panel, curves),
        shortened=() if panel is None else _shortened(panel, contenders, tuning, curves),
        edges=tuple(words for row in summaries if (words := _edge(row, tuning[row.label]))),
        rates=rates,
    )


def _baseline(contenders: Sequence[Contender]) -> str | None:
    """Standard dropout, if there is one and only one."""
    labels = [contender.label for contender in contenders if contender.method == "standard"]
    return labels[0] if len(labels) == 1 else None


def _edge(row: Summary, tuning: Sequence[Curve]) -> str:
    """That a step size was chosen at the edge of several, in words; nothing if it was not."""
    steps = sorted({curve.lr for curve in tuning})
    if len(steps) < 2 or row.lr not in (steps[0], steps[-1]):
        return ""
    which, beyond = ("smallest", "smaller") if row.lr == steps[0] else ("largest", "larger")
    return f"{row.label}: step {row.lr:g} is the {which} of {len(steps)} tried; a {beyond} one may be faster"


def _shortened(
    panel: Panel,
    contenders: Sequence[Contender],
    tuning: dict[str, list[Curve]],
    curves: dict[str, list[Curve]],
) -> tuple[str, ...]:
    """By what the contender with the least of each has; contenders that were not run are named."""
    grid = min(({curve.lr for curve in own} for own in tuning.values()), key=len)
    words = shortened(
        panel,
        epochs=min(curve.epochs for own in curves.values() for curve in own),
        seeds=min(map(len, curves.values())),
        grid=grid,
        tuning_epochs=min(own[0].epochs for own in tuning.values()),
    )
    missing = [contender.label for contender in panel.contenders if contender not in contenders]
    return (*words, f"not run: {', '.join(missing)}") if missing else words
