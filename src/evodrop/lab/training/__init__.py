"""Models in training: a stream of records, the same however often it was interrupted.

============  ==============================================================
``network``   a network on images
``linear``    a linear model on text
``ranks``     a network, trained by all ranks of a process group together
``watch``     what a dropout layer saw of a batch, without disturbing it
============  ==============================================================
"""

from __future__ import annotations

import hashlib
import math
import os
import statistics
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evodrop.lab.data import PAIR, VALIDATION, Documents, Images, data_folder, held_out, load
from evodrop.lab.data.text import pair_paths
from evodrop.lab.methods import LINEAR
from evodrop.lab.run import DIVERGED, FINAL, FINISHED, RUNNING, Record, Run

__all__ = ["Evaluation", "Training", "fingerprint", "load_once", "training_for", "whole_paths"]


class Evaluation(NamedTuple):
    """The fraction of wrong answers and the mean cross-entropy; both None if an answer was not finite."""

    error: float | None = None
    loss: float | None = None


class Training:
    """A model in training. It moves on step by step, and its state can be saved and loaded between two steps.

    Args:
        run: what to do.
        fingerprint: a digest of the data; records of other data have another.
        per_epoch: iterations in an epoch.
        ranks: processes that share every batch.
    """

    def __init__(self, run: Run, fingerprint: str, per_epoch: int, ranks: int = 1) -> None:
        self.run, self.fingerprint, self.per_epoch, self.ranks = run, fingerprint, per_epoch, ranks
        self.iteration, self.iterations, self.status = 0, run.epochs * per_epoch, RUNNING
        self.timed = list[tuple[int, float, float]]()  # steps, and their seconds by the clock and of the processor

    def step(self) -> Record | None:
        """Move on, at most to the next record; None before that."""
        raise NotImplementedError

    def records(self) -> Iterator[Record]:
        """All records from here to the end of the run."""
        while self.status not in FINAL:
            record = self.step()
            if record is not None:
                yield record

    def state(self) -> dict[str, Any]:
        """All that the rest of the run depends on: tensors, numbers and strings. They are not copied."""
        return {"run": self.run.id, "iteration": self.iteration}

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from a state of the same run. One that does not fit raises, and leaves the training in between."""
        iteration = state["iteration"]
        if state["run"] != self.run.id or not (type(iteration) is int and 0 <= iteration < self.iterations):
            raise ValueError(f"the state is that of {state['run']!r:.200} at iteration {iteration!r:.50}")
        self.iteration = iteration

    def timing(self) -> dict[str, Any]:
        """Seconds of the steps since this was last asked. No part of a record: they are never the same."""
        timed, self.timed = self.timed, []
        return {
            "iteration": self.iteration,
            "steps": sum(steps for steps, _, _ in timed),
            "seconds": sum(seconds for _, seconds, _ in timed),
            "median_seconds": statistics.median(seconds / n for n, seconds, _ in timed) if timed else None,
            "median_cpu_seconds": statistics.median(seconds / n for n, _, seconds in timed) if timed else None,
        }

    def next_record(self) -> int:
        """The iteration of the next record."""
        if self.status in FINAL:
            raise RuntimeError(f"the run has {self.status} at iteration {self.iteration}; there is no further record")
        every = self.run.eval_every
        return min(self.iterations, self.iteration - self.iteration % every + every)

    def make_record(
        self, lr: float, noisy: tuple[float | None, float], clean: Evaluation, test: Evaluation, layers: list[Any]
    ) -> Record:
        """The record of this iteration, and with it the status. ``noisy`` has the error and the loss with noise."""
        sound = math.isfinite(noisy[1]) and clean.loss is not None and test.loss is not None
        self.status = DIVERGED if not sound else FINISHED if self.iteration == self.iterations else RUNNING
        return Record(
            iteration=self.iteration,
            epoch=self.iteration / self.per_epoch,
            status=self.status,
            lr=lr,
            noisy_error=noisy[0],
            noisy_loss=noisy[1] if math.isfinite(noisy[1]) else None,
            clean_error=clean.error,
            clean_loss=clean.loss,
            test_error=test.error,
            test_loss=test.loss,
            layers=layers,
        )


def training_for(run: Run, data: Images | Documents) -> Training:
    """A run at its beginning, of a network or of a linear model; all ranks share it where there are several.

    Examples:
        >>> run = Run(dataset="digits", network="digits", method="evolutional", seed=0, lr=0.01, epochs=1)
        >>> [record["iteration"] for record in training_for(run, load_once("digits")).records()]
        [11]
    """
    if isinstance(data, Images) == (run.network == LINEAR):
        found = "images" if isinstance(data, Images) else "text"
        raise ValueError(f"{run.dataset} holds {found}, which the network {run.network!r} cannot learn")
    if isinstance(data, Documents):
        from evodrop.lab.training.linear import LinearTraining

        return LinearTraining(run, data)
    import torch.distributed as dist

    from evodrop.lab.training.network import NetworkTraining, network_for, prepare_for
    from evodrop.lab.training.ranks import SharedTraining

    kind = SharedTraining if dist.is_available() and dist.is_initialized() else NetworkTraining
    pixels = prepare_for(run.network, data)  # before the network: it says whether the two fit
    return kind(run, network_for(run), pixels)


def load_once(name: str, folder: str | os.PathLike[str] | None = None) -> Images | Documents:
    """A data set, kept in memory until another one is asked for.

    "validation:NAME" is the training data of NAME alone, a fifth of them set aside as test data.

    Examples:
        >>> [len(part) for part in load_once("validation:digits")[1:5]]
        [1151, 1151, 287, 287]
    """
    return _load(*whole_paths(name, folder))


def whole_paths(name: str, folder: str | os.PathLike[str] | None = None) -> tuple[str, Path]:
    """The name and the folder of a data set for a worker, which may have another working folder."""
    part = VALIDATION if name.startswith(VALIDATION) else ""
    if name.removeprefix(part).startswith(PAIR):
        name = part + PAIR + ",".join(str(path.absolute()) for path in pair_paths(name.removeprefix(part)))
    return name, data_folder(folder).absolute()


@lru_cache(maxsize=1)
def _load(name: str, folder: Path) -> Images | Documents:
    whole: Any = load(name.removeprefix(VALIDATION), folder)
    if name.startswith(VALIDATION):
        x, y = whole.train_x, whole.train_y
        train, test = held_out(len(y))
        whole = whole._replace(name=name, train_x=x[train], train_y=y[train], test_x=x[test], test_y=y[test])
    data: Images | Documents = whole
    return data


def fingerprint(*parts: Any) -> str:
    """A digest of arrays and of a few words about them."""
    digest = hashlib.sha256()
    for part in parts:
        is_array = isinstance(part, np.ndarray)
        digest.update(repr((part.shape, part.dtype.str) if is_array else part).encode())
        if is_array:
            digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()[:16]
