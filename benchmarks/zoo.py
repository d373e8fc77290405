"""What every dropout of the zoo costs, forward and backward, on one thread of a CPU, beside ``nn.Dropout``.

Dropouts of units race by themselves, on 128 examples of 4096 units. Those that work with weights race as a linear layer
of 4096 x 4096, against ``nn.Dropout`` and the same linear layer. A mask of the weights per example takes 2 GB and
seconds, so it has fewer rounds. Batchwise dropout races between two layers of 2048, where it saves their work.

The contestants take turns in random order, and the first call of a turn does not count, since the others have had the
caches. The tables hold medians of the process's own time, which a busy machine disturbs less. A contestant is called by
its name in the zoo, perhaps with a variant after a comma; to race another, give it a line in one of the lists.
``--json docs/zoo_costs.json`` keeps the result for tools/zoo_page.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from dropout import Row, activations, claim, claims_table, machine
from networks import Call, Races, backward_of, race, write
from rich.console import Console
from rich.progress import Progress
from rich.table import Column, Table
from torch import nn

from evodrop.nn import DataDependentDropout, EvolutionalDropout, MultinomialDropout, convert_dropout
from evodrop.nn.zoo import (
    AdaptiveRateDropout,
    BatchwiseDropout,
    DropConnectLinear,
    FastDropoutLinear,
    GaussianDropout,
    Standout,
    VariationalDropout,
    VariationalLinear,
    WaterFillingDropout,
    WeightAwareLinear,
)

P, UNITS, WIDTH, STANDARD = 0.5, 4096, 2048, "standard"
Make = Callable[[int], nn.Module]  # makes a layer for so many units

ON_UNITS: dict[str, Make] = {
    STANDARD: lambda _: nn.Dropout(P),
    "uniform": lambda _: MultinomialDropout(P),
    "data-dependent": lambda d: DataDependentDropout.from_data(activations(d)[0], P),
    "evolutional": lambda _: EvolutionalDropout(P),
    "water-filling": lambda _: WaterFillingDropout(P),
    "gaussian": lambda _: GaussianDropout(P),
    "variational": lambda _: VariationalDropout(P),
    "variational, per unit": lambda d: VariationalDropout(P, per="unit", units=d),
    "adaptive-rate": lambda _: AdaptiveRateDropout(P),
    "adaptive-rate, per unit": lambda d: AdaptiveRateDropout(P, units=d),
    "standout": lambda _: Standout(P),
    "batchwise, alone": lambda _: BatchwiseDropout(P),
}
ON_WEIGHTS: dict[str, Make] = {
    STANDARD: lambda d: nn.Sequential(nn.Dropout(P), nn.Linear(d, d)),
    "weight-aware": lambda d: WeightAwareLinear(d, d, p=P),
    "variational-weights": lambda d: VariationalLinear(d, d, p=P),
    "fast": lambda d: FastDropoutLinear(d, d, p=P),
    "dropconnect, a mask per batch": lambda d: DropConnectLinear(d, d, p=P, masks="batch"),
}
PER_EXAMPLE: dict[str, Make] = {
    STANDARD: ON_WEIGHTS[STANDARD],
    "dropconnect": lambda d: DropConnectLinear(d, d, p=P),
}


def call_of(make: Make, d: int) -> Call:
    """Forward and backward, to the input and to all parameters."""
    layer, (x, _) = make(d), activations(d)
    return backward_of(lambda: layer(x), x, *layer.parameters())


def standard_between(d: int) -> nn.Module:
    return nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Dropout(P), nn.Linear(d, d))


BETWEEN: dict[str, Make] = {
    STANDARD: standard_between,
    "batchwise": lambda d: convert_dropout(standard_between(d), "batchwise"),
}


def races_of(quick: bool) -> dict[str, tuple[dict[str, Make], int, int]]:
    """Titles, with the contestants, the number of units and that of the rounds."""
    d, width, rounds = (64, 64, 1) if quick else (UNITS, WIDTH, 12)
    return {
        f"units, d = {d}": (ON_UNITS, d, rounds),
        f"with a linear layer, d = {d}": (ON_WEIGHTS, d, rounds),
        f"a linear layer with a mask per example, d = {d}": (PER_EXAMPLE, d, max(1, rounds // 6)),
        f"between two linear layers, d = {width}": (BETWEEN, width, rounds),
    }


def measure(quick: bool) -> Races:
    torch.set_num_threads(1)
    with Progress(console=Console(stderr=True)) as progress:
        return {
            title: race({name: call_of(make, d) for name, make in makes.items()}, rounds)
            for title, (makes, d, rounds) in progress.track(races_of(quick).items(), description="races")
        }


def table_of(title: str, times: dict[str, float]) -> Table:
    right = partial(Column, justify="right")
    table = Table("", right("ms"), right("ratio"), title=f"\n{title}: ms, and ratio to nn.Dropout")
    for name, milliseconds in times.items():
        table.add_row(name, f"{milliseconds:.2f}", f"{milliseconds / times[STANDARD]:.2f}")
    return table


def claims_of(races: Races) -> list[Row]:
    *_, (title, between) = races.items()
    return [claim(f"batchwise / nn.Dropout, {title}", between["batchwise"] / between[STANDARD], "<=", 0.6)]


def main() -> None:
    parser = argparse.ArgumentParser(description="every dropout of the zoo, in about three minutes")
    parser.add_argument("--quick", action="store_true", help="few units and one round: whether it works, not how fast")
    parser.add_argument("--json", type=Path, default=Path("build/bench/zoo.json"), help="default: %(default)s")
    asked, about = parser.parse_args(), machine()
    races = measure(asked.quick)
    claims, heading = claims_of(races), ", ".join(f"{name} {value}" for name, value in about.items())
    tables = [table_of(title, times) for title, times in races.items()]
    Console(width=120, highlight=False).print(heading, *tables, claims_table(claims, "1 thread"))
    write(asked.json, {"machine": about, "races": races, "claims": claims})


if __name__ == "__main__":
    main()
