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
from typing import Any, ClassVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from evodrop.lab.run import FINAL, Record, Run
from evodrop.lab.training import Score, load_once, training_for
from evodrop.lab.training.network import NOISE, NetworkTraining, Pixels
from evodrop.nn import convert_sync_dropout

LEADER = 0
PATIENCE = timedelta(days=365)  # the others wait while the leader reports; torchrun ends all when one has ended


class SharedTraining(NetworkTraining):
    """A training in which every rank makes the same steps, on its share of the batch, and agrees on records.

    Dropout follows the moments of the whole batch; its noise is a function of seed, rank and iteration.
    """

    active: ClassVar[SharedTraining | None] = None  # the one that all ranks have begun, and not ended
    # Gradients have a group of their own, since DistributedDataParallel never lets go of its group. The threads of a
    # group that outlives ``destroy_process_group`` may still hold a message when Python ends, and then they abort the
    # process: the group of the last message, which ends the others, has to be one that can end.
    gradients: ClassVar[dist.ProcessGroup | None] = None

    def __init__(self, run: Run, network: nn.Module, pixels: Pixels) -> None:
        super().__init__(run, convert_sync_dropout(network), pixels, dist.get_rank(), dist.get_world_size())
        if self.ranks > self.size:
            raise ValueError(f"there are {self.ranks} ranks, but a batch has {self.size} examples; start fewer ranks")

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
            from_leader((self.run, self.fingerprint, self.state()))  # the others wait for it in ``follow``
        if SharedTraining.gradients is None:
            SharedTraining.gradients = dist.new_group(timeout=PATIENCE)
        SharedTraining.active = self
        self.model = DistributedDataParallel(self.network, process_group=SharedTraining.gradients)

    def sum_over_ranks(self, sums: list[float]) -> list[float]:
        shared = torch.tensor(sums, dtype=torch.float64)
        dist.all_reduce(shared)
        whole: list[float] = shared.tolist()
        return whole

    def evaluate(self, x: Tensor, y: Tensor) -> Score:
        """The leader's: the others' running means may differ, and all must come to the same end."""
        score: Score = from_leader(super().evaluate(x, y) if self.rank == LEADER else None)
        return score


def from_leader(value: Any = None) -> Any:
    """What the leader gives to this call, on every rank; the others wait for it."""
    values = [value]
    dist.broadcast_object_list(values, LEADER)
    return values[0]


@contextmanager
def joined(data: Path | None = None) -> Iterator[bool]:
    """Join the processes that torchrun has started; gives whether this one leads.

    One that does not has followed the leader until the end when the ``with`` block begins.
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
                from_leader(None)  # there is no further task
    finally:
        SharedTraining.gradients = None
        dist.destroy_process_group()


def follow(data: Path | None = None) -> None:
    """Do one task of the leader after another, until there is none."""
    while (task := from_leader()) is not None:
        run, fingerprint, state = task
        training = training_for(run, load_once(run.dataset, data))
        if training.fingerprint != fingerprint:
            raise ValueError(
                f"rank {dist.get_rank()} has other data for {run.dataset} than rank {LEADER}; "
                "give every machine the same data folder"
            )
        training.load_state(state)
        for _ in training.records():
            pass
