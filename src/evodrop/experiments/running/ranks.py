"""Under ``torchrun -m evodrop ...`` all ranks do every run together: rank 0 leads, writes and draws."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import cast

import torch.distributed as dist

from evodrop.experiments.data import Images
from evodrop.experiments.running.laboratory import load_once, training_of
from evodrop.experiments.training.shared import LEADER, SharedTraining, sharing, task_of_leader, tell

__all__ = ["follow", "joined"]

PATIENCE = timedelta(days=365)  # the others wait while the leader reports; torchrun ends all when one has ended


@contextmanager
def joined(data: Path | None = None) -> Iterator[bool]:
    """Join the processes that torchrun has started; gives whether this one leads.

    One that does not has followed the leader until the end when the ``with`` block begins.

    Args:
        data: the data folder of this process.
    """
    dist.init_process_group("gloo", timeout=PATIENCE)
    try:
        with sharing(PATIENCE):
            leads = dist.get_rank() == LEADER
            try:
                if not leads:
                    follow(data)
                yield leads
            finally:
                if leads and SharedTraining.at_work is None:  # in the middle of a run they hear nothing but the run
                    tell(None)
    finally:
        dist.destroy_process_group()


def follow(data: Path | None = None) -> None:
    """Do one task of the leader after another, until there is none."""
    while (task := task_of_leader()) is not None:
        training = training_of(task.run, cast(Images, load_once(task.run.dataset, data)))  # as the leader has found
        if training.pixels.fingerprint != task.fingerprint:
            raise ValueError(
                f"rank {dist.get_rank()} has other data for {task.run.dataset} than rank {LEADER}; "
                "give every machine the same data folder"
            )
        training.load_state(task.state)
        for _ in training.records():
            pass
