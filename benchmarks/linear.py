"""Epochs of DropoutSGDClassifier with every dropout beside scikit-learn's SGDClassifier, on sparse data, one thread.

The contestants take turns in random order, a fit a turn, so that noise hits all alike; log loss, average of the
iterates and penalty are the same for all. An epoch of ours is what the fit itself records from the second epoch on: the
steps, the error on the clean training data, and for "weight-aware" the new tables. One of SGDClassifier's is a fit of
several epochs less a fit of one, divided by the epochs between, so that it pays for its steps only. The setup is the
rest of a fit. The tables hold medians and their ratios. Leave the machine alone meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import time
import tracemalloc
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Column, Table
from scipy import sparse
from sklearn.linear_model import SGDClassifier
from threadpoolctl import threadpool_limits

from evodrop.linear import DropoutSGDClassifier, iter_svmlight
from evodrop.linear.plans import DROPOUTS

Data = tuple[sparse.csr_array, np.ndarray]  # examples and their labels, -1 or 1
Row = dict[str, Any]

PEER, OURS = "SGDClassifier", "data-dependent"
LIMITS = {OURS: 3.0, "standard": 1.8, "none": 1.2}  # of the ratio to SGDClassifier
AIM = {OURS: ", aim 2.0"}
FILES = ("20news", "reuters52")
SAME = {"loss": "log_loss", "average": True, "alpha": 1e-4, "tol": None, "random_state": 0}
EXPONENT = 1.1


class Size(NamedTuple):
    """How much is measured."""

    shapes: dict[str, tuple[int, int, int]]  # rows, features, mean non-zeros of a row
    rows: int  # of the data that grow
    features: tuple[int, ...]  # of the data that grow; ratios are to the second
    epochs: int
    rounds: int
    naive_rows: int


SHAPES = {"RCV1": (20_000, 47_236, 74), "news20": (20_000, 1_355_191, 455), "real-sim": (72_309, 20_958, 51)}
FULL = Size(SHAPES, 20_000, (10**4, 10**5, 10**6, 10**7), epochs=5, rounds=7, naive_rows=200)
TINY = {"RCV1": (1000, 4000, 74), "news20": (200, 40_000, 455), "real-sim": (2000, 2000, 51)}
QUICK = Size(TINY, 1000, (10**3, 10**4, 10**5), epochs=4, rounds=3, naive_rows=10)


def zipf_draws(d: int, distinct: int) -> int:
    """How many draws give that many distinct features on average."""
    edges = np.arange(1, d + 2) ** (1 - EXPONENT)
    probs, draws = -np.diff(edges) / (edges[0] - edges[-1]), float(distinct)
    for _ in range(12):
        draws *= distinct / -np.expm1(-draws * probs).sum()
    return round(draws)


def zipf_features(n: int, d: int, draws: int, rng: np.random.Generator) -> np.ndarray:
    """(n, draws) features, each row sorted: a power law by its inverse cdf, then in shuffled order."""
    power = 1 - EXPONENT
    ranks = (1 + rng.random((n, draws)) * ((d + 1) ** power - 1)) ** (1 / power)
    features = rng.permutation(d).astype(np.int32)[np.minimum(ranks.astype(np.int32) - 1, d - 1)]
    return np.sort(features, axis=1)


def zipf_data(n: int, d: int, nonzeros: int) -> Data:
    """Rows of norm 1 with the distinct ones of some draws from a Zipf law; labels of a noisy linear model."""
    rng = np.random.default_rng((n, d, nonzeros))
    features = zipf_features(n, d, zipf_draws(d, nonzeros), rng)
    new = np.diff(features, axis=1, prepend=-1) != 0
    starts = np.concatenate([[0], np.cumsum(new.sum(axis=1))]).astype(np.int32)
    values = rng.random(starts[-1]) + 0.1
    values /= np.repeat(np.sqrt(np.add.reduceat(values**2, starts[:-1])), np.diff(starts))
    X = sparse.csr_array((values, features[new], starts), shape=(n, d))
    scores = X @ rng.standard_normal(d) + 0.3 * rng.standard_normal(n)
    return X, np.where(scores > np.median(scores), 1, -1)


def contestant(name: str, epochs: int) -> Any:
    if name == PEER:
        return SGDClassifier(**SAME, max_iter=epochs)
    return DropoutSGDClassifier(name, **SAME, max_iter=epochs)


def seconds_of_fit(model: Any, data: Data) -> float:
    start = time.perf_counter()
    model.fit(*data)
    return time.perf_counter() - start


def turn(name: str, data: Data, epochs: int) -> tuple[float, float]:
    """Seconds of an epoch, and of a fit without its epochs."""
    once = seconds_of_fit(contestant(name, 1), data) if name == PEER else 0.0
    model = contestant(name, epochs)
    whole = seconds_of_fit(model, data)
    epoch = (whole - once) / (epochs - 1) if name == PEER else float(np.median(model.history_["seconds"][1:]))
    return epoch, whole - epochs * epoch


def race(data: dict[Any, Data], names: Sequence[str], size: Size, progress: Progress) -> list[Row]:
    """The medians of every contestant on every data set, all in turns."""
    cases = [(key, name) for key in data for name in names]
    turns: dict[Any, list[tuple[float, float]]] = {case: [] for case in cases}
    for _ in progress.track(range(size.rounds), description=f"epochs, {', '.join(map(str, data))}"):
        for key, name in random.sample(cases, len(cases)):
            turns[key, name].append(turn(name, data[key], size.epochs))
    medians = {case: np.median(seconds, axis=0).tolist() for case, seconds in turns.items()}
    return [
        {"data": key, "contestant": name, "epoch": epoch, "setup": setup, "ratio": epoch / medians[key, PEER][0]}
        | {"shape": [*data[key][0].shape, data[key][0].nnz], "epochs": [epoch for epoch, _ in turns[key, name]]}
        for (key, name), (epoch, setup) in medians.items()
    ]


def naive_epoch(data: Data, rows: int) -> float:
    """Seconds of an epoch whose noise is a multinomial draw of all features for each row: no step, only the noise."""
    X = data[0]
    model, rng, seconds = contestant(OURS, 1).fit(*data), np.random.default_rng(0), []
    for start, stop in zip(X.indptr[:rows], X.indptr[1 : rows + 1], strict=True):
        began, support = time.perf_counter(), X.indices[start:stop]
        X.data[start:stop] * (rng.multinomial(model.k_, model.probs_)[support] / (model.k_ * model.probs_[support]))
        seconds.append(time.perf_counter() - began)
    return float(np.median(seconds)) * X.shape[0]


def peak_bytes(name: str, data: Data) -> int:
    """The largest sum of what a fit holds at a time; the data are not among it."""
    tracemalloc.start()
    try:
        contestant(name, 2).fit(*data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def memory_of(data: dict[Any, Data], progress: Progress) -> list[Row]:
    rows = []
    for key, (X, y) in progress.track(data.items(), description="memory"):
        for name in (PEER, *DROPOUTS):
            peak = peak_bytes(name, (X, y))
            rows.append({"data": key, "contestant": name, "bytes": peak, "per_entry": peak / (X.shape[1] + X.nnz)})
    return rows


def find(rows: Sequence[Row], data: Any, name: str) -> Row:
    return next(row for row in rows if row["data"] == data and row["contestant"] == name)


def keys_of(rows: Sequence[Row], column: str = "data") -> list[Any]:
    return list(dict.fromkeys(row[column] for row in rows))


def claim(text: str, value: float, sense: str, bound: float) -> Row:
    holds = value <= bound if sense == "<=" else value >= bound
    return {"claim": text, "value": float(value), "bound": f"{sense} {bound:g}", "holds": bool(holds)}


def claims_of(epochs: Sequence[Row], naive: Row, growth: Sequence[Row], size: Size) -> list[Row]:
    ratios = [
        claim(f"{name} / {PEER}, {data}{AIM.get(name, '')}", find(epochs, data, name)["ratio"], "<=", limit)
        for name, limit in LIMITS.items()
        for data in keys_of(epochs)
    ]
    base, most = size.features[1], size.features[-1]
    grown = find(growth, most, OURS)["epoch"] / find(growth, base, OURS)["epoch"]
    return [
        *ratios,
        claim(f"Generator.multinomial row by row / {OURS}, {naive['data']}", naive["ratio"], ">=", 200),
        claim(f"{OURS}, d = {most:,} / d = {base:,}", grown, "<=", 1.6),
    ]


def machine() -> Row:
    info = Path("/proc/cpuinfo")
    model = info.read_text().partition("model name\t: ")[2].partition("\n")[0] if info.exists() else ""
    hardware = {"CPU": model or platform.processor(), "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 2)}
    return hardware | {name: version(name) for name in ("numpy", "scipy", "scikit-learn", "numba", "evodrop")}


def epochs_table(rows: Sequence[Row], size: Size) -> Table:
    n, d, nonzeros = rows[0]["shape"]
    table = Table("contestant", *(Column(name, justify="right") for name in ("ms per epoch", "ratio", "setup ms")))
    table.title = f"\n{rows[0]['data']}: n = {n:,}, d = {d:,}, {nonzeros / n:.0f} a row; {size.rounds} fits"
    for row in rows:
        epoch, setup = f"{1e3 * row['epoch']:,.2f}", f"{1e3 * row['setup']:,.1f}"
        table.add_row(row["contestant"], epoch, f"{row['ratio']:.2f}", setup)
    return table


def wide_table(title: str, rows: Sequence[Row], cell: Callable[[Row], str]) -> Table:
    """A line for each contestant, a column for each data set."""
    keys = keys_of(rows)
    heads = (f"d = {key:,}" if isinstance(key, int) else key for key in keys)
    table = Table("contestant", *(Column(head, justify="right") for head in heads), title=f"\n{title}")
    for name in keys_of(rows, "contestant"):
        table.add_row(name, *(cell(find(rows, key, name)) for key in keys))
    return table


def growth_table(rows: Sequence[Row], size: Size) -> Table:
    base = size.features[1]

    def cell(row: Row) -> str:
        ratio = row["epoch"] / find(rows, base, row["contestant"])["epoch"]
        return f"{1e3 * row['epoch']:,.2f} {ratio:7.2f}"

    return wide_table(f"ms per epoch as the features grow, and ratio to d = {base:,}", rows, cell)


def memory_cell(row: Row) -> str:
    return f"{row['bytes'] / 1e6:,.1f} {row['per_entry']:7.1f}"


def claims_table(claims: Sequence[Row]) -> Table:
    table = Table("1 thread", "measured", "bound", "result", title="\nwhat it must show")
    for row in claims:
        table.add_row(row["claim"], f"{row['value']:.4g}", row["bound"], "pass" if row["holds"] else "MISS")
    return table


def load(folder: Path | None, size: Size, progress: Progress) -> dict[str, Data]:
    """The data sets of the folder, if there is one, and those of our making."""
    files = {key: folder / key / "train.svm.bz2" for key in FILES} if folder else {}
    read = progress.track(files.items(), description="reading data")
    made = progress.track(size.shapes.items(), description="making data")
    return {key: next(iter_svmlight(file, 10**6)) for key, file in read} | {
        f"like {key}": zipf_data(*shape) for key, shape in made
    }


def warm_up() -> None:
    for name in DROPOUTS:  # the first fit compiles
        contestant(name, 2).fit(*zipf_data(100, 1000, 10))


def measure(size: Size, folder: Path | None) -> Row:
    with Progress(console=Console(stderr=True)) as progress, threadpool_limits(1):
        warm_up()
        data = load(folder, size, progress)
        epochs = [row for key in data for row in race({key: data[key]}, (PEER, *DROPOUTS), size, progress)]
        first = next(iter(data))
        naive = {"data": first, "epoch": naive_epoch(data[first], size.naive_rows)}
        naive["ratio"] = naive["epoch"] / find(epochs, first, OURS)["epoch"]
        grown = {d: zipf_data(size.rows, d, 74) for d in progress.track(size.features, description="larger data")}
        growth = race(grown, (PEER, *LIMITS), size, progress)
        memory = memory_of({"like RCV1": data["like RCV1"], size.features[2]: grown[size.features[2]]}, progress)
    claims = claims_of(epochs, naive, growth, size)
    return {"epochs": epochs, "naive": naive, "growth": growth, "memory": memory, "claims": claims}


def tables(found: Row, size: Size) -> list[Table | str]:
    naive = found["naive"]
    return [
        *(
            epochs_table([row for row in found["epochs"] if row["data"] == key], size)
            for key in keys_of(found["epochs"])
        ),
        f"\nGenerator.multinomial row by row, {naive['data']}: {naive['epoch']:,.1f} s per epoch, "
        f"{naive['ratio']:,.0f} times {OURS}",
        growth_table(found["growth"], size),
        wide_table("extra peak of a fit: MB, and bytes per (d + non-zeros)", found["memory"], memory_cell),
        claims_table(found["claims"]),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="ours against SGDClassifier, in about four minutes")
    parser.add_argument("--quick", action="store_true", help="tiny data: whether it works, not how fast")
    parser.add_argument("--data", type=Path, help=f"folder with {' and '.join(FILES)}, a train.svm.bz2 in each")
    parser.add_argument("--json", type=Path, default=Path("build/bench/linear.json"), help="default: %(default)s")
    asked, about = parser.parse_args(), machine()
    size = QUICK if asked.quick else FULL
    found, heading = measure(size, asked.data), ", ".join(f"{name} {value}" for name, value in about.items())
    Console(width=120, highlight=False).print(heading, *tables(found, size))
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    unfinished = asked.json.with_suffix(".unfinished")
    unfinished.write_text(json.dumps({"machine": about} | found, indent=1))
    unfinished.replace(asked.json)


if __name__ == "__main__":
    main()
