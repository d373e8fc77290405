"""Part of scaling.py: the rates of one machine from which docs/scaling.md works out larger ones: medians of repeats."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed
from dropout import Row
from gloo import on_ranks
from linear import SHAPES, TINY, zipf_data
from rich.table import Column, Table

from evodrop.linear import DropoutSGDClassifier

NUMBERS = 512  # of an all_reduce


def linear_nonzeros_per_second(quick: bool) -> float:
    """Non-zeros over seconds of an epoch, from the second epoch on: the first one compiles."""
    X, y = zipf_data(*(TINY if quick else SHAPES)["RCV1"])
    model = DropoutSGDClassifier(max_iter=4 if quick else 12, tol=None, random_state=0).fit(X, y)
    return X.nnz / float(np.median(model.history_["seconds"][1:]))


def all_reduce_seconds(quick: bool) -> float:
    """Of a few numbers by gloo, between 2 processes."""
    return float(np.median(on_ranks(2, reduce_often, 50 if quick else 2000)[0]))


def reduce_often(repeats: int) -> list[float]:
    numbers, seconds = torch.zeros(NUMBERS, dtype=torch.float64), []
    for _ in range(repeats):
        start = time.perf_counter()
        torch.distributed.all_reduce(numbers)
        seconds.append(time.perf_counter() - start)
    return seconds


def dask_seconds_per_round(quick: bool) -> float:
    """A round on two partitions so small that nothing but the messages takes time."""
    from dask import array
    from distributed import Client

    from evodrop.linear import DaskDropoutSGDClassifier

    rng = np.random.default_rng(0)
    X, y = array.from_array(rng.random((20, 5)), chunks=(10, 5)), rng.integers(2, size=20)
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=None):
        alone = DropoutSGDClassifier(max_iter=5 if quick else 50, tol=None, random_state=0)
        model = DaskDropoutSGDClassifier(alone).fit(X, y)
    return float(np.median(model.history_["seconds"][1:]))


MEASURES: tuple[Callable[[bool], float], ...] = (linear_nonzeros_per_second, all_reduce_seconds, dask_seconds_per_round)


def measure(asked: argparse.Namespace) -> tuple[Row, list[Row], list[Any]]:
    found = {rate.__name__: float(f"{rate(asked.quick):.3g}") for rate in MEASURES}
    table = Table("rate", Column("measured", justify="right"), title="\nwhat docs/scaling.md starts from")
    for name, value in found.items():
        table.add_row(name, f"{value:.3g}")
    return found, [], [table]
