"""Part of scaling.py: dropout layers on a GPU, nn.Dropout and ours.

The contestants take turns in random order. A call goes forward and backward on 128 float32 rows; the clock stops when
the device has finished. Without a GPU the same calls are timed on the CPU, by the numba kernels too, which shows
that the benchmark runs and what the torch backend costs there, but nothing about a GPU.
"""

from __future__ import annotations

import argparse
import random
import time
from typing import Any

import torch
from dropout import Row
from numpy import median
from rich.table import Column, Table
from torch import Tensor, nn

from evodrop.nn import EvolutionalDropout, use_backend

ROWS, P, WARM_UP = 128, 0.5, 3
UNITS, QUICK = (256, 1024, 4096, 16384), (256, 1024)


def contestants(device: torch.device) -> dict[str, tuple[nn.Module, str]]:
    """A layer and a backend by name."""
    backends = ("torch",) if device.type == "cuda" else ("torch", "numba")
    ours = {f"EvolutionalDropout, {name}": (EvolutionalDropout(P), name) for name in backends}
    return {"nn.Dropout": (nn.Dropout(P), "auto"), **ours}


def seconds_of_call(layer: nn.Module, backend: str, x: Tensor, upstream: Tensor) -> float:
    wait(x.device)
    start = time.perf_counter()
    with use_backend(backend):
        layer(x).backward(upstream)
    wait(x.device)
    return time.perf_counter() - start


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def race(d: int, rounds: int, device: torch.device) -> Row:
    """The median seconds of each contestant."""
    x = torch.randn(ROWS, d, device=device).relu().requires_grad_()
    upstream, entered = torch.randn_like(x), contestants(device)
    times: dict[str, list[float]] = {name: [] for name in entered}
    for _ in range(rounds + WARM_UP):
        for name in random.sample(list(entered), len(entered)):
            times[name].append(seconds_of_call(*entered[name], x, upstream))
    return {"d": d, **{name: float(median(seconds[WARM_UP:])) for name, seconds in times.items()}}


def speed_table(rows: list[Row], device: torch.device) -> Table:
    names = list(contestants(device))
    columns = [Column(name, justify="right") for name in names]
    title = f"microseconds, forward and backward, {ROWS} rows, {device}"
    table = Table("d", *columns, Column(f"{names[1]} over {names[0]}", justify="right"), title=title)
    for row in rows:
        micros = [f"{row[name] * 1e6:,.0f}" for name in names]
        table.add_row(str(row["d"]), *micros, f"{row[names[1]] / row[names[0]]:.2f}")
    return table


def measure(asked: argparse.Namespace) -> tuple[Row, list[Row], list[Any]]:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows = [race(d, 5 if asked.quick else 50, device) for d in (QUICK if asked.quick else UNITS)]
    about = torch.cuda.get_device_name(device) if device.type == "cuda" else "no GPU: this says nothing about one"
    return {"device": about, "times": rows}, [], [speed_table(rows, device), about]
