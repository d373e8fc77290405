"""The curves of runs as TensorBoard's event files, a folder for each run."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from evodrop.experiments.claims.outcomes import Outcome

__all__ = ["write_events"]

EVENTS = "events.out.tfevents.*"
TAGS = {"clean": "training error, clean", "noisy": "training error, noise on", "test": "test error"}


def write_events(outcomes: Iterable[Outcome], folder: Path) -> Path:
    """Write the errors of all runs, tuning included, to ``folder/<run>``; return the folder.

    Event files that are there are replaced: TensorBoard would draw the curves of both.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("event files need TensorBoard; install tensorboard") from error
    for outcome in outcomes:
        for run in outcome.runs:
            own = folder / run.folder.resolve().name
            for old in own.glob(EVENTS):
                old.unlink()
            with SummaryWriter(str(own)) as writer:
                for kind, tag in TAGS.items():
                    for iteration, value in zip(run.iterations, getattr(run, kind), strict=True):
                        if math.isfinite(value):
                            writer.add_scalar(tag, value, int(iteration))
    return folder
