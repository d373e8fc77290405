"""A run from its beginning, or from where it was killed, to its end: a stream of records."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator
from copy import deepcopy
from datetime import UTC, datetime
from time import perf_counter
from typing import Any, Protocol, cast

from torch import nn

from evodrop.experiments.records.checkpoints import load_checkpoint, save_checkpoint
from evodrop.experiments.records.environment import describe_environment, describe_git
from evodrop.experiments.records.folder import RecordsError, RunFolder, read_records, seconds_per_iteration
from evodrop.experiments.records.record import FINAL, Record
from evodrop.experiments.records.runs import AnyRun, Run
from evodrop.experiments.training.batches import Batches
from evodrop.experiments.training.loop import Training
from evodrop.experiments.training.pixels import Pixels

__all__ = ["Trainable", "finished_records", "keep_records", "train"]

CHECKPOINT_SECONDS = 15.0


def train(
    run: Run,
    network: nn.Module,
    pixels: Pixels,
    folder: str | os.PathLike[str] | None = None,
    *,
    batches: Batches | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Iterator[Record]:
    """Train a network and yield all records of the run, the same however often it was interrupted.

    Records that an earlier process has left in the folder come first; those of a finished run are all there is, and
    nothing is trained. A checkpoint that cannot be used is a RuntimeWarning, and the run begins anew.

    Args:
        run: what to do.
        network: built, with the initial weights of the run; it is trained in place.
        pixels: the data, from :func:`evodrop.experiments.training.pixels.prepare`.
        folder: where records and checkpoints are kept; None keeps nothing.
        batches: a stream of indices; by default that of the run's seed.
        checkpoint_seconds: time from one checkpoint to the next.

    Examples:
        >>> import numpy as np
        >>> from evodrop.experiments.data import Images
        >>> from evodrop.experiments.training.pixels import prepare
        >>> x, y = np.zeros((8, 1, 2, 2), np.uint8), np.zeros(8, np.int64)
        >>> network = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
        >>> run = Run(dataset="blank", network="tiny", method="none", seed=0, lr=0.1, epochs=2)
        >>> [record["status"] for record in train(run, network, prepare(Images("blank", x, y, x, y, 2)))]
        ['finished']
    """
    training = Training(run, network, pixels, batches)
    yield from keep_records(training, pixels.fingerprint, folder, checkpoint_seconds)


class Trainable(Protocol):
    """What can be followed: it makes records, and its state can be saved and loaded between them."""

    iteration: int
    status: str
    ranks: int

    @property
    def run(self) -> AnyRun: ...
    def state(self) -> dict[str, Any]: ...
    def load_state(self, state: dict[str, Any]) -> None: ...
    def records(self) -> Iterator[Record]: ...
    def advance(self, deadline: float = math.inf) -> Record | None: ...
    def timing(self) -> dict[str, Any]: ...


def keep_records(
    training: Trainable,
    fingerprint: str,
    folder: str | os.PathLike[str] | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Iterator[Record]:
    """Yield all records of a training that stands at its beginning, as :func:`train` does.

    Args:
        training: of a network or of a linear model.
        fingerprint: digest of its data; records of other data in the folder are an error.
        folder, checkpoint_seconds: as in :func:`train`.
    """
    if not checkpoint_seconds >= 0:
        raise ValueError(f"checkpoint_seconds is {checkpoint_seconds!r}, but it takes a number of at least 0")
    if folder is None:
        yield from training.records()
        return
    header = {
        "run": training.run.to_dict(),
        "data": fingerprint,
        "environment": describe_environment(training.ranks),
        "git": describe_git(),
    }
    with RunFolder(folder, header) as kept:
        if _are_final(kept.records):
            yield from cast(list[Record], kept.records)
        else:
            _restore(training, kept)
            yield from cast(list[Record], list(kept.records))
            yield from _go_on(training, kept, checkpoint_seconds)
        kept.finish()


def finished_records(folder: str | os.PathLike[str], run: AnyRun) -> list[Record] | None:
    """The records of a run that has come to its end, or None. Ask before loading data for a run that needs none."""
    try:
        header, records = read_records(folder)
    except RecordsError:
        return None
    return cast(list[Record], records) if header["run"] == run.to_dict() and _are_final(records) else None


def _are_final(records: list[dict[str, Any]]) -> bool:
    return bool(records) and records[-1].get("status") in FINAL


def _restore(training: Trainable, kept: RunFolder) -> None:
    """Bring training and records to the last checkpoint, or to the beginning where there is none that can be used."""
    fresh = deepcopy(training.state())
    trouble = None
    try:
        state = load_checkpoint(kept.checkpoint)
        if state is not None:
            training.load_state(state["training"])
            kept.go_back(state["mark"])
    except Exception as error:  # anybody may have changed the file, and it can be wrong in any way
        trouble = f"{type(error).__name__}: {error}"
        training.load_state(fresh)
        warnings.warn(f"{kept.path} begins anew, since its checkpoint is of no use: {trouble}", RuntimeWarning, 3)
    if training.iteration == 0:
        kept.restart()
    _announce(training, kept, trouble)


def _announce(training: Trainable, kept: RunFolder, trouble: str | None) -> None:
    before, now = kept.header.get("environment"), kept.asked["environment"]
    if before != now:
        message = f"{kept.path} goes on elsewhere, so its last digits may differ: {before} became {now}"
        warnings.warn(message, RuntimeWarning, 4)
    moment = datetime.now(UTC).isoformat(timespec="seconds")
    session = {"event": "start", "iteration": training.iteration, "time": moment, "pid": os.getpid()}
    kept.remark(session | {"environment": now, "trouble": trouble})


def _go_on(training: Trainable, kept: RunFolder, every: float) -> Iterator[Record]:
    """Train to the end, keeping each record when it is made and the state from time to time."""
    saved = perf_counter()
    while training.status not in FINAL:
        record = training.advance(saved + every)
        if record is not None:
            kept.append(record)
            kept.remark(training.timing())
            yield record
        if training.status not in FINAL and perf_counter() - saved >= every:
            save_checkpoint(kept.checkpoint, {"training": training.state(), "mark": kept.mark()})
            saved = perf_counter()
    seconds = seconds_per_iteration(kept.path)
    kept.remark({"event": "end", "status": training.status, "seconds_per_iteration": seconds})
