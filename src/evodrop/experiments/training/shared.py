"""A network in training by all ranks of a process group: each has its share of every batch, and rank 0 leads.

The leader decides what is trained and keeps the records; the others follow. What they tell one another per step: the
gradients, by DistributedDataParallel, the second moments of synchronised dropout, and three sums for the record.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from evodrop.experiments.records.record import FINAL, Record
from evodrop.experiments.records.runs import Run
from evodrop.experiments.training.batches import Batches
from evodrop.experiments.training.evaluation import Evaluation
from evodrop.experiments.training.loop import NOISE, Training
from evodrop.experiments.training.pixels import Pixels
from evodrop.nn import convert_sync_dropout

__all__ = ["SharedTraining", "Task", "is_shared", "sharing", "task_of_leader", "tell"]

LEADER = 0


class Task(NamedTuple):
    """What a leader tells the others before they train."""

    run: Run
    fingerprint: str  # of the data
    state: dict[str, Any]  # from where


class SharedTraining(Training):
    """A :class:`Training` in which every rank makes the same steps, on its share of the batch, and agrees on records.

    Dropout follows the moments of the whole batch; its noise is a function of seed, rank and iteration. A loss over a
    share counts by the number of its examples, so that the gradient is that of the batch.

    Args:
        run, network, pixels: as there, on every rank the same.
    """

    at_work: ClassVar[SharedTraining | None] = None  # the one that the others have begun, and not ended

    def __init__(self, run: Run, network: nn.Module, pixels: Pixels) -> None:
        self.rank, ranks = dist.get_rank(), dist.get_world_size()
        batches = Batches(len(pixels.train_x), run.batch_size, run.seed, self.rank, ranks)
        super().__init__(run, convert_sync_dropout(network), pixels, batches)
        self.share = len(range(self.rank, batches.size, ranks)) * ranks / batches.size

    def advance(self, deadline: float = math.inf) -> Record | None:
        if self.model is self.network:
            self._begin()
        record = super().advance(deadline)
        if self.status in FINAL:
            SharedTraining.at_work = None
        return record

    def _begin(self) -> None:
        if SharedTraining.at_work is not None:
            lost = SharedTraining.at_work.run.id
            raise SystemExit(f"evodrop: {lost} ended early, which the other ranks cannot; the same command goes on")
        if self.rank == LEADER:
            self._call_the_others()
        SharedTraining.at_work = self
        self.model = DistributedDataParallel(self.network, process_group=_gradients)

    def _call_the_others(self) -> None:
        tell(Task(self.run, self.pixels.fingerprint, self.state()))

    def _step(self) -> Any:
        numbers = np.random.SeedSequence([self.run.seed, NOISE, self.rank, self.iteration])
        torch.manual_seed(int(numbers.generate_state(1)[0]))
        return super()._step()

    def _descend(self, loss: Tensor) -> None:
        super()._descend(loss * self.share)

    def _whole(self, sums: list[float]) -> list[float]:
        shared = torch.tensor(sums, dtype=torch.float64)
        dist.all_reduce(shared)
        whole: list[float] = shared.tolist()
        return whole

    def _evaluate(self, x: Tensor, y: Tensor) -> Evaluation:
        """The leader's: the others' running means may differ, and all must come to the same end."""
        found: list[Any] = [super()._evaluate(x, y) if self.rank == LEADER else None]
        self.network.eval()
        dist.broadcast_object_list(found, LEADER)
        return Evaluation(*found[0])


def tell(task: Task | None) -> None:
    """On the leader: give the others a task; None sends them home."""
    dist.broadcast_object_list([task], LEADER)


def task_of_leader() -> Task | None:
    """On another rank: wait for what the leader tells."""
    told: list[Task | None] = [None]
    dist.broadcast_object_list(told, LEADER)
    return told[0]


_sharing = False
_gradients: dist.ProcessGroup | None = None  # the group that adds them up; None is the one for everything


@contextmanager
def sharing(patience: timedelta | None = None) -> Iterator[None]:
    """Within it, every network is trained by all ranks together; they all have to be within it.

    Gradients have a group of their own, since DistributedDataParallel never lets go of its group. The threads of a
    group that outlives ``destroy_process_group`` may still hold a message when Python ends, and then they abort the
    process: the group of the last message, which sends everybody home, has to be one that can end.

    Args:
        patience: how long a rank waits for the gradients of the others; None is torch's own limit.
    """
    global _sharing, _gradients
    _sharing, _gradients = True, dist.new_group(timeout=patience)
    try:
        yield
    finally:
        _sharing, _gradients = False, None


def is_shared() -> bool:
    """Whether networks are trained by all ranks together."""
    return _sharing
