"""Models in training: a stream of records, the same however often it was interrupted.

============  ==============================================================
``network``   a network on images, and what its dropout layers saw
``linear``    a linear model on text
``ranks``     a network, trained by all ranks of a process group together
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
from typing import Any

import numpy as np

from evodrop.lab.data import PAIR, VALIDATION, Documents, Images, data_folder, load
from evodrop.lab.data.text import pair_paths
from evodrop.lab.run import DIVERGED, FINAL, FINISHED, RUNNING, Record, Run

Score = tuple[float | None, float | None]  # the fraction of wrong answers, and the mean cross-entropy
UNKNOWN: Score = (None, None)  # an answer was not finite


class Training:
    """A model in training. It moves on step by step, and its state can be saved and loaded between two steps.

    The fingerprint is a digest of the data, ``per_epoch`` counts iterations, and ``ranks`` processes share every batch.
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
        every = self.run.eval_every
        return min(self.iterations, self.iteration - self.iteration % every + every)

    def make_record(
        self, lr: float, noisy: tuple[float | None, float], clean: Score, test: Score, layers: list[Any]
    ) -> Record:
        """The record of this iteration, and with it the status. ``noisy`` has the error and the loss with noise."""
        sound = math.isfinite(noisy[1]) and UNKNOWN not in (clean, test)
        self.status = DIVERGED if not sound else FINISHED if self.iteration == self.iterations else RUNNING
        return Record(
            iteration=self.iteration,
            epoch=self.iteration / self.per_epoch,
            status=self.status,
            lr=lr,
            noisy_error=noisy[0],
            noisy_loss=noisy[1] if math.isfinite(noisy[1]) else None,
            clean_error=clean[0],
            clean_loss=clean[1],
            test_error=test[0],
            test_loss=test[1],
            layers=layers,
        )


def training_for(run: Run, data: Images | Documents) -> Training:
    """A run at its beginning, of a network or of a linear model; all ranks share it where there are several.

    Examples:
        >>> run = Run(dataset="digits", network="digits", method="evolutional", seed=0, lr=0.01, epochs=1)
        >>> [record["iteration"] for record in training_for(run, load_once("digits")).records()]
        [11]
    """
    if isinstance(data, Documents):
        from evodrop.lab.training.linear import LinearTraining

        return LinearTraining(run, data)
    import torch.distributed as dist

    from evodrop.lab.training.network import NetworkTraining, check_fit, network_for, prepare
    from evodrop.lab.training.ranks import SharedTraining

    kind = SharedTraining if dist.is_available() and dist.is_initialized() else NetworkTraining
    entry = check_fit(run.network, data)
    return kind(run, network_for(run), prepare(data, entry.size, entry.scale))


def load_once(name: str, folder: str | os.PathLike[str] | None = None) -> Images | Documents:
    """A data set as :func:`evodrop.lab.data.load` reads it, kept in memory until another one is asked for."""
    return _load(*whole_paths(name, folder))


_load = lru_cache(maxsize=1)(load)


def whole_paths(name: str, folder: str | os.PathLike[str] | None = None) -> tuple[str, Path]:
    """The name and the folder of a data set for a worker, which may have another working folder."""
    part = VALIDATION if name.startswith(VALIDATION) else ""
    if name.removeprefix(part).startswith(PAIR):
        name = part + PAIR + ",".join(str(path.absolute()) for path in pair_paths(name.removeprefix(part)))
    return name, data_folder(folder).absolute()


def fingerprint(*parts: Any) -> str:
    """A digest of arrays and of a few words about them."""
    digest = hashlib.sha256()
    for part in parts:
        is_array = isinstance(part, np.ndarray)
        digest.update(repr((part.shape, part.dtype.str) if is_array else part).encode())
        if is_array:
            digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()[:16]
