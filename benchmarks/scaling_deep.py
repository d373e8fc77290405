"""Part of scaling.py: what synchronised dropout costs in steps of the CIFAR-10 network under DDP, on one machine.

Two kinds of steps take turns in the same processes, with the same weights, batches and noise: DDP alone, and DDP whose
dropout follows the batch of all processes. A turn is a few steps between two barriers; in each round the order is
drawn. The overhead is the median over rounds of the ratio of neighbours, so that whatever else the machine does meets
both; its standard error, by resampling the rounds, is printed beside it. The all_reduce alone is timed too.

Processes are bound to a core each, as docs/scaling.md advises, and for comparison left to the system, which lets the
threads of gloo wait behind the other process's steps; then single rounds scatter by several percent.
"""

from __future__ import annotations

import argparse
import random
import time
from typing import Any

import torch
import torch.distributed as dist
from dropout import Row, claim
from gloo import on_ranks
from numpy import array, median
from numpy.random import default_rng
from rich.table import Table
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from evodrop.lab.networks import NETWORKS, build_network, initialize
from evodrop.nn import EvolutionalDropout, convert_sync_dropout

NETWORK, BATCH, STEPS = "cifar10", 128, 4  # the batch of all processes together; steps of a turn
BOUND = "2, each bound to a core"
PLAIN, SYNCED, REDUCE = "DDP", "DDP, synchronised dropout", "one all_reduce"


class Contest:
    """On a rank: one network, whose dropout can be synchronised or not, and its steps."""

    def __init__(self, ranks: int) -> None:
        network = initialize(build_network(NETWORK, "evolutional"), seed=0)
        network = convert_sync_dropout(network).to(memory_format=torch.channels_last)
        self.layers = [layer for layer in network.modules() if isinstance(layer, EvolutionalDropout)]
        self.model = DistributedDataParallel(network)
        self.optimizer = torch.optim.SGD(network.parameters(), lr=1e-4, momentum=0.9)
        x = 64 * torch.randn(BATCH // ranks, *NETWORKS[NETWORK].input_shape)
        self.x, self.y = x.to(memory_format=torch.channels_last), torch.arange(len(x)) % NETWORKS[NETWORK].classes
        self.sums = torch.zeros(self.units(network) + 1, dtype=torch.float64)

    def units(self, network: nn.Module) -> int:
        """Of the dropout layer: what is communicated is one number more."""
        found: list[int] = []
        with self.layers[0].register_forward_pre_hook(lambda _, inputs: found.append(inputs[0][0].numel())):
            network(self.x[:1])
        return found[0]

    def turn(self, name: str) -> float:
        """Seconds of a step."""
        for layer in self.layers:
            layer.sync = name == SYNCED
        dist.barrier()
        start = time.perf_counter()
        for _ in range(STEPS):
            self.reduce() if name == REDUCE else self.step()
        dist.barrier()
        return (time.perf_counter() - start) / STEPS

    def step(self) -> None:
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(self.x), self.y).backward()
        self.optimizer.step()

    def reduce(self) -> None:
        dist.all_reduce(self.sums)


def work(ranks: int, rounds: int) -> Row:
    torch.manual_seed(0)
    contest, order = Contest(ranks), random.Random(0)  # the same order on every rank
    seconds: dict[str, list[float]] = {name: [] for name in (PLAIN, SYNCED, REDUCE)}
    for name in seconds:
        contest.turn(name)
    for _ in range(rounds):
        for name in order.sample(list(seconds), len(seconds)):
            seconds[name].append(contest.turn(name))
    return {"seconds": seconds, "units": len(contest.sums) - 1}


def table_of(found: dict[str, Row]) -> Table:
    table = Table("processes", "contestant", title=f"\nthe {NETWORK} network, {BATCH} examples a step in all")
    for heading in ("median ms a step", "ratio to DDP", "± its standard error"):
        table.add_column(heading, justify="right")
    for processes, one in found.items():
        for name, times in one["seconds"].items():
            ratios = ratios_of(one, name)
            numbers = (f"{1e3 * median(times):.3f}", f"{median(ratios):.4f}", f"{standard_error(ratios):.4f}")
            table.add_row(processes, name, *numbers)
    return table


def ratios_of(found: Row, name: str) -> list[float]:
    """Round by round, against DDP alone."""
    return [one / plain for one, plain in zip(found["seconds"][name], found["seconds"][PLAIN], strict=True)]


def standard_error(ratios: list[float]) -> float:
    """Of their median."""
    drawn = array(ratios)[default_rng(0).integers(0, len(ratios), (1000, len(ratios)))]
    return float(median(drawn, axis=1).std())


def measure(asked: argparse.Namespace) -> tuple[Row, list[Row], list[Any]]:
    rounds, few = (3, 3) if asked.quick else (120, 20)
    found = {
        "1": on_ranks(1, work, 1, few)[0],
        BOUND: on_ranks(2, work, 2, rounds, bound=True)[0],
        "2, not bound": on_ranks(2, work, 2, rounds)[0],
    }
    overhead, units = median(ratios_of(found[BOUND], SYNCED)), found[BOUND]["units"]
    claims = [claim(f"a step with synchronised dropout / DDP alone, processes: {BOUND}", overhead, "<=", 1.03)]
    return found, claims, [table_of(found), f"a step communicates {8 * (units + 1):,} bytes for {units:,} units"]
