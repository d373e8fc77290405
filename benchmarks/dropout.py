"""Forward plus backward of dropout layers on the CPU: ours, PyTorch's, and what one would write by hand.

The contestants take turns in random order, a few calls a turn, so that noise hits all alike; the first call of a turn
does not count, since the others have had the caches. A call goes through autograd on 128 float32 rows, the ReLU of
normal noise, with a dense gradient made beforehand. The tables hold medians and their ratios. Imports and first calls
are those of new processes. Leave the machine alone meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from numpy import median, percentile
from rich.console import Console
from rich.progress import Progress
from rich.table import Column, Table
from torch import Tensor, nn
from torch.distributions import Multinomial

from evodrop.nn import BernoulliDropout, EvolutionalDropout, WaterFillingDropout

Times = dict[tuple[str, int, int], list[float]]  # seconds by contestant, number of units and number of threads
Row = dict[str, Any]

ROWS, P, THREADS = 128, 0.5, (1, 2)
STANDARD, BY_HAND, COMPILED = "nn.Dropout", "where(rand < p, 0, x / (1 - p))", "torch.compile(nn.Dropout)"
BY_DRAWS, BY_LAW = "e-dropout, torch.multinomial", "e-dropout, distributions.Multinomial"
OURS, OURS_BERNOULLI = "EvolutionalDropout", "BernoulliDropout"
CALLS, WARM_UP, ROUNDS = 5, 2, {150: 40, 1152: 30, 4096: 15, 16384: 6}  # rounds by the number of units


def e_dropout(x: Tensor, count: Callable[[Tensor, int, int], Tensor]) -> Tensor:
    scale = x.detach().square().mean(0).sqrt()
    probs, k = scale / scale.sum(), round(x.shape[1] * (1 - P))
    return x * (count(probs, k, len(x)) / (k * probs))


def count_draws(probs: Tensor, k: int, rows: int) -> Tensor:
    drawn = torch.multinomial(probs, rows * k, replacement=True).view(rows, k)  # faster than a call with rows of probs
    return torch.zeros(rows, len(probs)).scatter_add_(1, drawn, torch.ones(rows, k))


CONTESTANTS: dict[str, Callable[[int], Callable[[Tensor], Tensor]]] = {
    STANDARD: lambda _: nn.Dropout(P),
    BY_HAND: lambda _: lambda x: torch.where(torch.rand_like(x) < P, 0, x / (1 - P)),
    COMPILED: lambda _: torch.compile(nn.Dropout(P)),
    BY_DRAWS: lambda _: lambda x: e_dropout(x, count_draws),
    BY_LAW: lambda _: lambda x: e_dropout(x, lambda probs, k, rows: Multinomial(k, probs).sample((rows,))),
    "nn.BatchNorm1d": nn.BatchNorm1d,
    OURS: lambda _: EvolutionalDropout(P),
    f"{OURS}, bernoulli": lambda _: WaterFillingDropout(P),
    OURS_BERNOULLI: lambda _: BernoulliDropout(P),
}


def activations(d: int, rows: int = ROWS) -> tuple[Tensor, Tensor]:
    """A leaf that looks like the output of a ReLU, and a dense gradient: that of a sum would be a broadcast 1."""
    return torch.randn(rows, d).relu().requires_grad_(), torch.ones(rows, d)


def seconds_of_call(layer: Callable[[Tensor], Tensor], x: Tensor, upstream: Tensor) -> float:
    x.grad = None
    start = time.perf_counter()
    layer(x).backward(upstream)
    return time.perf_counter() - start


def can_compile() -> bool:
    with suppress(Exception):
        torch.compile(nn.Dropout(P))(torch.ones(1, 1))  # whatever is missing, only the first call tells
        return True
    print(f"{COMPILED} does not work here and is skipped; it needs a C++ compiler")
    return False


def turn(layer: Callable[[Tensor], Tensor], x: Tensor, upstream: Tensor) -> list[float]:
    return [seconds_of_call(layer, x, upstream) for _ in range(1 + CALLS)][1:]


def race(names: Sequence[str], d: int, rounds: int, progress: Progress) -> Times:
    torch.compiler.reset()  # else a second size would be compiled for any size
    layers, (x, upstream) = {name: CONTESTANTS[name](d) for name in names}, activations(d)
    times: Times = {(name, d, threads): [] for threads in THREADS for name in names}
    for threads in THREADS:
        torch.set_num_threads(threads)
        for _ in progress.track(range(WARM_UP + rounds), description=f"d = {d}, threads: {threads}"):
            for name in random.sample(names, len(names)):
                times[name, d, threads] += turn(layers[name], x, upstream)
    return {case: seconds[WARM_UP * CALLS :] for case, seconds in times.items()}


def race_of_threads(d: int, rounds: int, progress: Progress) -> Times:
    """Ours on one thread and on two, in turns; elsewhere the number of threads would change too seldom to compare."""
    layer, (x, upstream) = CONTESTANTS[OURS](d), activations(d)
    times: Times = {(OURS, d, threads): [] for threads in THREADS}
    for _ in progress.track(range(rounds), description=f"d = {d}, one thread against two"):
        for threads in THREADS:
            torch.set_num_threads(threads)
            times[OURS, d, threads] += turn(layer, x, upstream)
    return times


def bytes_kept(rows: int, d: int) -> int:
    saved: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(saved.append, lambda _: None):
        EvolutionalDropout(P)(activations(d, rows)[0])
    return sum(tensor.nbytes for tensor in saved)


def seconds_in_new_process(before: str, timed: str, cache: str) -> float:
    code = f"import time\n{before}\nstart = time.perf_counter()\n{timed}\nprint(time.perf_counter() - start)"
    environment = os.environ | {"NUMBA_CACHE_DIR": cache, "PYTHONDONTWRITEBYTECODE": ""}  # users have their bytecode
    run = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return float(run.stdout)


def median_starts(repeats: int, progress: Progress) -> list[float]:
    """Seconds of two imports and of a first call, cache empty and warm; torch's own first backward imports sympy."""
    ready = f"import torch, evodrop.nn; x = torch.rand({ROWS}, 1152).requires_grad_(); x.sin().backward(x.detach())"
    call = f"evodrop.nn.EvolutionalDropout({P})(x).backward(x.detach())"
    steps = [("", "import evodrop"), ("import torch", "import evodrop.nn"), (ready, call), (ready, call)]
    seconds = []
    for _ in progress.track(range(repeats), description="imports and first calls"):
        with tempfile.TemporaryDirectory() as cache:
            seconds.append([seconds_in_new_process(before, timed, cache) for before, timed in steps])
    return median(seconds, axis=0).tolist()


def claim(text: str, value: float, sense: str, bound: float) -> Row:
    holds = value <= bound if sense == "<=" else value >= bound
    return {"claim": text, "value": float(value), "bound": f"{sense} {bound:g}", "holds": bool(holds)}


def claims_of(times: Times, alone: Times, starts: Sequence[float]) -> list[Row]:
    def ratio(name: str, peer: str, least: int = 1152, most: int = 1 << 20) -> float:
        return max(median(times[name, d, 1]) / median(times[peer, d, 1]) for _, d, _ in times if least <= d <= most)

    scaling = max(median(alone[OURS, d, 2]) / median(alone[OURS, d, 1]) for _, d, _ in alone)
    kept = (bytes_kept(ROWS, 4096) - bytes_kept(ROWS // 2, 4096)) / (ROWS // 2 * 4096)  # what is O(d) cancels
    return [
        claim(f"{OURS} / {STANDARD}, d >= 1152", ratio(OURS, STANDARD), "<=", 0.25),
        claim(f"{OURS} / {STANDARD}, d = 150", ratio(OURS, STANDARD, 150, 150), "<=", 0.6),
        claim(f"{OURS_BERNOULLI} / {STANDARD}, d >= 1152", ratio(OURS_BERNOULLI, STANDARD), "<=", 0.35),
        claim(f"{OURS} / {BY_HAND}, d >= 1152", ratio(OURS, BY_HAND), "<=", 0.5),
        claim(f"{BY_LAW} / {OURS}, d = 1152", ratio(BY_LAW, OURS, 1152, 1152), ">=", 12),
        claim(f"{OURS} alone, 2 threads / 1 thread, d >= 4096", scaling, "<=", 0.65),
        claim(f"{OURS}, bytes kept for backward per element", kept, "<=", 1),
        claim("import evodrop, seconds", starts[0], "<=", 0.15),
        claim("import evodrop.nn after torch, seconds", starts[1], "<=", 0.3),
        claim("first call, empty cache, seconds", starts[2], "<=", 6),
        claim("first call, warm cache, seconds", starts[3], "<=", 0.5),
    ]


def machine() -> Row:
    info = Path("/proc/cpuinfo")
    model = info.read_text().partition("model name\t: ")[2].partition("\n")[0] if info.exists() else ""
    hardware = {"CPU": model or platform.processor(), "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 2)}
    return hardware | {name: version(name) for name in ("torch", "numba", "evodrop")}


def summary(times: Times) -> list[Row]:
    return [
        {"contestant": name, "d": d, "threads": threads, "calls": len(seconds)}
        | {"quartiles_us": (percentile(seconds, (25, 50, 75)) * 1e6).round(1).tolist()}
        | {"ratio": float(median(seconds) / median(times[STANDARD, d, threads]))}
        for (name, d, threads), seconds in times.items()
    ]


def speed_table(rows: Sequence[Row], threads: int) -> Table:
    calls = {row["d"]: row["calls"] for row in rows}
    table = Table("contestant", *(Column(f"d = {d}\n{n} calls", justify="right") for d, n in calls.items()))
    table.title = f"\nforward + backward in µs, and ratio to {STANDARD}, torch threads: {threads}"
    for name in dict.fromkeys(row["contestant"] for row in rows):
        own = [row for row in rows if row["contestant"] == name and row["threads"] == threads]
        table.add_row(name, *(f"{row['quartiles_us'][1]:,.0f} {row['ratio']:7.2f}" for row in own))
    return table


def claims_table(claims: Sequence[Row], scope: str = "1 thread unless said, the worst d") -> Table:
    table = Table(scope, "measured", "bound", "holds", title="\nwhat it must show")
    for row in claims:
        table.add_row(row["claim"], f"{row['value']:.4g}", row["bound"], "yes" if row["holds"] else "NO")
    return table


def write(path: Path, found: dict[str, Any]) -> None:
    """As JSON; a file that is there is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(found, indent=1) + "\n")
    unfinished.replace(path)


def measure(quick: bool) -> tuple[Times, list[Row]]:
    rounds_of, alone_of, repeats = ({150: 2, 1152: 2}, {4096: 2}, 1) if quick else (ROUNDS, {4096: 60, 16384: 30}, 5)
    names = [name for name in CONTESTANTS if name != COMPILED or (not quick and can_compile())]
    with Progress(console=Console(stderr=True)) as progress:
        races = [race(names, d, rounds, progress) for d, rounds in rounds_of.items()]
        races_alone = [race_of_threads(d, rounds, progress) for d, rounds in alone_of.items()]
        times, alone = ({key: value for one in found for key, value in one.items()} for found in (races, races_alone))
        return times, claims_of(times, alone, median_starts(repeats, progress))


def main() -> None:
    parser = argparse.ArgumentParser(description="ours against the peers, in about three minutes")
    parser.add_argument("--quick", action="store_true", help="few rounds: whether it works, not how fast")
    parser.add_argument("--json", type=Path, default=Path("build/bench/dropout.json"), help="default: %(default)s")
    asked, about = parser.parse_args(), machine()
    times, claims = measure(asked.quick)
    rows, heading = summary(times), ", ".join(f"{name} {value}" for name, value in about.items())
    Console(width=120, highlight=False).print(heading, speed_table(rows, 1), speed_table(rows, 2), claims_table(claims))
    write(asked.json, {"machine": about, "times": rows, "claims": claims})


if __name__ == "__main__":
    main()
