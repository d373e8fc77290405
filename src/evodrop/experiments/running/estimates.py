"""How long a panel would take here, from a few steps of its network or linear model on made-up data."""

from __future__ import annotations

import time
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from evodrop.experiments.data import Documents
from evodrop.experiments.figures.panels import Panel, split_sizes
from evodrop.experiments.figures.plans import Plan
from evodrop.experiments.records.runs import AnyRun, LinearRun, Run

__all__ = ["Speed", "estimate", "in_words", "runs_in"]

NON_ZEROS = {
    "real-sim": 51,
    "news20": 455,
    "rcv1": 74,
    "20news": 134,
    "reuters52": 61,
    "rcv1-part": 75,
}  # of a row, on average
FEATURES = 50_000  # of the made-up text: more would cost memory, and change little
ROWS, STEPS = 1000, 3


class Speed(NamedTuple):
    """Seconds of one iteration, and of one example when errors are measured."""

    step: float
    example: float


def runs_in(plan: Plan) -> list[AnyRun]:
    """The runs that a plan takes, whichever steps are chosen: each seed that tuning has not run counts once."""
    first = [trial.run for trial in plan.tuning]
    steps = {contender.label: plan.panel.grid[0] for contender in plan.panel.contenders}
    return list(dict.fromkeys(first + [trial.run for trial in plan.final(steps)]))


def estimate(plan: Plan, jobs: int) -> float:
    """Seconds that a plan takes on this machine, so many runs at a time."""
    return sum(_seconds(run, plan.panel) for run in runs_in(plan)) / jobs


def _seconds(run: AnyRun, panel: Panel) -> float:
    if isinstance(run, Run):
        speed, seen = _network_speed(run.network, panel.batch_size), run.probe
    else:
        speed, seen = _linear_speed(run.dataset), panel.examples
    iterations = run.epochs * (panel.examples // panel.batch_size)
    measured = split_sizes(run.dataset)[1] + seen
    return iterations * speed.step + iterations / run.eval_every * measured * speed.example


@cache
def _network_speed(network: str, batch_size: int) -> Speed:
    import torch

    from evodrop.experiments.networks.catalogue import NETWORKS
    from evodrop.experiments.running.laboratory import network_for
    from evodrop.experiments.training.loop import Training
    from evodrop.experiments.training.pixels import Pixels

    channels, size, _ = NETWORKS[network].input_shape
    x = torch.randn(batch_size * STEPS, size, size, channels, generator=torch.Generator().manual_seed(0))
    y = torch.zeros(len(x), dtype=torch.int64)
    fields: dict[str, Any] = {"method": "evolutional", "seed": 0, "lr": 1e-6, "epochs": 1, "batch_size": batch_size}
    run = Run(dataset="random", network=network, eval_every=STEPS, probe=1, **fields)
    return _measured(Training(run, network_for(run), Pixels(x, y, x, y, "")), len(x) + 1)


@cache
def _linear_speed(dataset: str) -> Speed:
    from scipy import sparse

    from evodrop.experiments.training.shallow import LinearTraining

    rng, width = np.random.default_rng(0), NON_ZEROS[dataset]
    indices = np.sort(rng.integers(0, FEATURES // width, (ROWS, width)) + np.arange(width) * (FEATURES // width))
    indptr = np.arange(0, ROWS * width + 1, width)
    X = sparse.csr_array((np.full(ROWS * width, width**-0.5), indices.ravel().astype(np.int32), indptr))
    documents = Documents("random", X, np.resize([-1.0, 1.0], ROWS), X, np.resize([-1.0, 1.0], ROWS))
    run = LinearRun(dataset="random", method="data-dependent", seed=0, lr=0.1, epochs=2, eval_every=ROWS)
    training = LinearTraining(run, documents)
    training.advance()  # compiles, if need be
    training.timing()
    return _measured(training, 2 * ROWS)


def _measured(training: Any, examples: int) -> Speed:
    start = time.perf_counter()
    training.advance()
    seconds, timing = time.perf_counter() - start, training.timing()
    return Speed(timing["median_seconds"], max(0.0, seconds - timing["seconds"]) / examples)


def in_words(seconds: float) -> str:
    """A long time, roughly.

    Examples:
        >>> [in_words(seconds) for seconds in (42, 600, 40000)]
        ['1 min', '10 min', '11.1 h']
    """
    return f"{max(1, round(seconds / 60))} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
