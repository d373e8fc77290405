"""Under ``torchrun -m evodrop ...`` all ranks of a process group train every network together: rank 0 leads and writes.

Each rank has its share of every batch. The leader decides what is trained and keeps the records; the others follow.
What they send one another in a step: the gradients, by DistributedDataParallel, the second moments of synchronised
dropout, and three sums for the record.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from evodrop.lab.run import FINAL, Record, Run
from evodrop.lab.training import Evaluation, load_once, training_for
from evodrop.lab.training.network import NOISE, Batches, NetworkTraining, Pixels
from evodrop.nn import convert_sync_dropout

__all__ = ["SharedTraining", "Task", "follow", "joined", "receive_task", "send_task"]

LEADER = 0
PATIENCE = timedelta(days=365)  # the others wait while the leader reports; torchrun ends all when one has ended


class Task(NamedTuple):
    """What the leader sends the others before they train."""

    run: Run
    fingerprint: str  # of the data
    state: dict[str, Any]  # from where


class SharedTraining(NetworkTraining):
    """A training in which every rank makes the same steps, on its share of the batch, and agrees on records.

    Dropout follows the moments of the whole batch; its noise is a function of seed, rank and iteration. A loss over a
    share counts by the number of its examples, so that the gradient is that of the batch.

    Args:
        run, network, pixels: as for one process, on every rank the same.
    """

    active: ClassVar[SharedTraining | None] = None  # the one that all ranks have begun, and not ended
    # Gradients have a group of their own, since DistributedDataParallel never lets go of its group. The threads of a
    # group that outlives ``destroy_process_group`` may still hold a message when Python ends, and then they abort the
    # process: the group of the last message, which ends the others, has to be one that can end.
    gradients: ClassVar[dist.ProcessGroup | None] = None

    def __init__(self, run: Run, network: nn.Module, pixels: Pixels) -> None:
        self.rank, ranks = dist.get_rank(), dist.get_world_size()
        batches = Batches(len(pixels.train_x), run.batch_size, run.seed, self.rank, ranks)
        super().__init__(run, convert_sync_dropout(network), pixels, batches)
        self.share = len(range(self.rank, batches.size, ranks)) * ranks / batches.size

    def step(self) -> Record | None:
        if self.model is self.network:
            self._begin()
        numbers = np.random.SeedSequence([self.run.seed, NOISE, self.rank, self.iteration])
        self.noise = torch.Generator().manual_seed(int(numbers.generate_state(1)[0])).get_state()
        record = super().step()
        if self.status in FINAL:
            SharedTraining.active = None
        return record

    def _begin(self) -> None:
        if SharedTraining.active is not None:
            lost = SharedTraining.active.run.id
            raise SystemExit(f"evodrop: {lost} ended early, which the other ranks cannot; the same command resumes it")
        if self.rank == LEADER:
            self.call_the_others()
        if SharedTraining.gradients is None:
            SharedTraining.gradients = dist.new_group(timeout=PATIENCE)
        SharedTraining.active = self
        self.model = DistributedDataParallel(self.network, process_group=SharedTraining.gradients)

    def call_the_others(self) -> None:
        """On the leader: have the other ranks begin the same training."""
        send_task(Task(self.run, self.fingerprint, self.state()))

    def _descend(self, loss: Tensor, lr: float) -> None:
        super()._descend(loss * self.share, lr)

    def sum_over_ranks(self, sums: list[float]) -> list[float]:
        shared = torch.tensor(sums, dtype=torch.float64)
        dist.all_reduce(shared)
        whole: list[float] = shared.tolist()
        return whole

    def evaluate(self, x: Tensor, y: Tensor) -> Evaluation:
        """The leader's: the others' running means may differ, and all must come to the same end."""
        found: list[Any] = [super().evaluate(x, y) if self.rank == LEADER else None]
        self.network.eval()
        dist.broadcast_object_list(found, LEADER)
        return Evaluation(*found[0])


def send_task(task: Task | None) -> None:
    """On the leader: give the others a task; None ends them."""
    dist.broadcast_object_list([task], LEADER)


def receive_task() -> Task | None:
    """On another rank: wait for the leader's next task."""
    tasks: list[Task | None] = [None]
    dist.broadcast_object_list(tasks, LEADER)
    return tasks[0]


@contextmanager
def joined(data: Path | None = None) -> Iterator[bool]:
    """Join the processes that torchrun has started; gives whether this one leads.

    One that does not has followed the leader until the end when the ``with`` block begins.

    Args:
        data: the data folder of this process.
    """
    dist.init_process_group("gloo", timeout=PATIENCE)
    try:
        leads = dist.get_rank() == LEADER
        try:
            if not leads:
                follow(data)
            yield leads
        finally:
            if leads and SharedTraining.active is None:  # in the middle of a run they hear nothing but the run
                send_task(None)
    finally:
        SharedTraining.gradients = None
        dist.destroy_process_group()


def follow(data: Path | None = None) -> None:
    """Do one task of the leader after another, until there is none."""
    while (task := receive_task()) is not None:
        training = training_for(task.run, load_once(task.run.dataset, data))
        if training.fingerprint != task.fingerprint:
            raise ValueError(
                f"rank {dist.get_rank()} has other data for {task.run.dataset} than rank {LEADER}; "
                "give every machine the same data folder"
            )
        training.load_state(task.state)
        for _ in training.records():
            pass
