"""The curves of runs as TensorBoard's event files, a folder for each run."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from evodrop.experiments.claims.outcomes import Outcome
from evodrop.experiments.plotting import KINDS

__all__ = ["event_writer", "write_events"]

EVENTS = "events.out.tfevents.*"


def event_writer() -> Any:
    """TensorBoard's writer, or an error that says how to get it: ask before what takes long."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("event files need TensorBoard; install tensorboard") from error
    return SummaryWriter


def write_events(outcomes: Iterable[Outcome], folder: Path) -> Path:
    """Write the errors of all runs, tuning included, to ``folder/<run>``; return the folder.

    Event files that are there are replaced: TensorBoard would draw the curves of both.
    """
    make_writer = event_writer()
    for outcome in outcomes:
        for run in outcome.runs:
            own = folder / run.folder.resolve().name
            for old in own.glob(EVENTS):
                old.unlink()
            with make_writer(str(own)) as writer:
                for kind, tag in KINDS.items():
                    for iteration, value in zip(run.iterations, getattr(run, kind), strict=True):
                        if math.isfinite(value):
                            writer.add_scalar(tag, value, int(iteration))
    return folder
