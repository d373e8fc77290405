"""Processes that share this machine and a gloo group, for the benchmarks that need several."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

PATIENCE = timedelta(minutes=20)


def on_ranks(ranks: int, job: Callable[..., Any], *arguments: Any, bound: bool = False) -> list[Any]:
    """What ``job(*arguments)`` returns on every rank of a new group, each with one thread: numbers, lists, tensors.

    Where processes are ``bound``, each has a core of its own, and its gloo threads never wait for another's steps.
    """
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_work, (ranks, folder, job, arguments, bound), nprocs=ranks)
        return [torch.load(Path(folder, str(rank)), weights_only=True) for rank in range(ranks)]


def _work(rank: int, ranks: int, folder: str, job: Callable[..., Any], arguments: tuple[Any, ...], bound: bool) -> None:
    torch.set_num_threads(1)
    if bound and hasattr(os, "sched_setaffinity"):  # on Linux
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=ranks, timeout=PATIENCE)
    torch.save(job(*arguments), Path(folder, str(rank)))
    dist.destroy_process_group()
    os._exit(0)  # DDP's threads may abort a process on Python's own way out: docs/scaling.md, Limits
