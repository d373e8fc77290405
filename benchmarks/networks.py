"""The paper's networks on one thread of a CPU: their locally connected layers, and what the choice of dropout costs.

The layers, forward and backward, race matrix products of as many multiplications: a batched product of the same shapes,
and one product of two square matrices, the fastest there is. Then whole training steps with each dropout race each
other. The contestants take turns in random order, and the first call of a turn does not count, since the others have
had the caches. The tables hold medians of the process's own time, which a busy machine disturbs less.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from dropout import OURS as EVOLUTIONAL
from dropout import STANDARD, Row, claim, claims_table, machine, write
from numpy import median
from rich.console import Console
from rich.progress import Progress
from rich.table import Column, Table
from torch import Tensor, nn

from evodrop.lab.networks import NETWORKS, build_network, initialize
from evodrop.nn import LocallyConnected2d
from evodrop.nn.locally_connected import local_by_patches

BATCH, CALLS = 128, 3
LAYERS = {  # size, channels in and out
    "local3, SVHN and CIFAR-10": (6, 64, 64),
    "local4, SVHN and CIFAR-10": (6, 64, 32),
    "local3, CIFAR-100": (8, 64, 64),
    "local4, CIFAR-100": (8, 64, 32),
}
SHAPES = tuple(LAYERS)
OURS, PATCHES, BATCHED, SQUARE = "LocallyConnected2d", "unfold and einsum", "batched product", "square matrices"
METHODS = {STANDARD: "standard", EVOLUTIONAL: "evolutional"}
NETWORKS_RACED = ("mnist", "svhn", "cifar10", "cifar100", "cifar10-nobn")
Call = Callable[[], None]
Races = dict[str, dict[str, float]]  # what was raced, by whom, in milliseconds


def backward_of(output: Callable[[], Tensor], *leaves: Tensor) -> Call:
    """A call of forward and backward; the gradient is made beforehand and is dense."""
    upstream = torch.randn_like(output())

    def call() -> None:
        torch.autograd.grad(output(), leaves, upstream)

    return call


def contestants(size: int, into: int, out: int) -> dict[str, Call]:
    positions, seen = size * size, 9 * into
    side = round((positions * BATCH * seen * out) ** (1 / 3))
    layer = LocallyConnected2d(into, out, 3, size, padding=1)
    x = torch.randn(BATCH, into, size, size).to(memory_format=torch.channels_last).requires_grad_()
    patches, filters = leaf(positions, BATCH, seen), leaf(positions, seen, out)
    one, other = leaf(side, side), leaf(side, side)
    return {
        OURS: backward_of(lambda: layer(x), x, *layer.parameters()),
        PATCHES: backward_of(lambda: local_by_patches(x, layer.weight, layer.geometry), x, layer.weight),
        BATCHED: backward_of(lambda: patches @ filters, patches, filters),
        SQUARE: backward_of(lambda: one @ other, one, other),
    }


def leaf(*shape: int) -> Tensor:
    return torch.randn(shape, requires_grad=True)


def step_of(name: str, method: str) -> Call:
    """A call of one training step, channels last, on noise as large as pixels."""
    network = initialize(build_network(name, method), seed=0).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-4, momentum=0.9)
    x = (64 * torch.randn(BATCH, *NETWORKS[name].input_shape)).to(memory_format=torch.channels_last)
    y = torch.arange(BATCH) % NETWORKS[name].classes

    def call() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        optimizer.step()

    return call


def race(calls: dict[str, Call], rounds: int) -> dict[str, float]:
    """Median milliseconds of each."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name in random.sample(list(calls), len(calls)):
            calls[name]()
            for _ in range(CALLS):
                start = time.process_time()
                calls[name]()
                seconds[name].append(time.process_time() - start)
    return {name: float(1e3 * median(times)) for name, times in seconds.items()}


def table_of(title: str, races: Races, peer: str) -> Table:
    names = list(next(iter(races.values())))
    table = Table(
        "",
        *(Column(name, justify="right") for name in names),
        title=f"\n{title}: ms, and ratio to {peer}",
    )
    for row, times in races.items():
        table.add_row(row, *(f"{times[name]:.1f} {times[name] / times[peer]:6.2f}" for name in names))
    return table


def measure(rounds: int, shapes: Sequence[str], names: Sequence[str]) -> tuple[Races, Races]:
    torch.set_num_threads(1)
    with Progress(console=Console(stderr=True)) as progress:
        layers = {
            title: race(contestants(*LAYERS[title]), rounds) for title in progress.track(shapes, description="layers")
        }
        steps = {
            name: race({title: step_of(name, method) for title, method in METHODS.items()}, rounds)
            for name in progress.track(names, description="networks")
        }
    return layers, steps


def claims_of(layers: Races, steps: Races) -> list[Row]:
    worst = max(times[OURS] / times[SQUARE] for times in layers.values())
    standard, evolutional = (steps["cifar10"][name] for name in METHODS)
    return [
        claim(f"{OURS} / {SQUARE}, the worst", worst, "<=", 3),
        claim(f"a step of CIFAR-10, {EVOLUTIONAL} / {STANDARD}", evolutional / standard, "<=", 1),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="the paper's networks, in about two minutes")
    parser.add_argument("--quick", action="store_true", help="a look, with few rounds and one network")
    parser.add_argument("--json", type=Path, default=Path("build/bench/networks.json"), help="default: %(default)s")
    asked, about = parser.parse_args(), machine()
    layers, steps = measure(1, SHAPES[:1], ["cifar10"]) if asked.quick else measure(12, SHAPES, NETWORKS_RACED)
    claims, heading = claims_of(layers, steps), ", ".join(f"{name} {value}" for name, value in about.items())
    tables = [table_of("a layer, forward + backward", layers, SQUARE), table_of("a training step", steps, STANDARD)]
    Console(width=120, highlight=False).print(heading, *tables, claims_table(claims, "1 thread"))
    write(asked.json, {"machine": about, "layers": layers, "steps": steps, "claims": claims})


if __name__ == "__main__":
    main()
