"""Epochs of DropoutSGDClassifier with every dropout beside scikit-learn's SGDClassifier, on sparse data, one thread.

The contestants take turns in random order, a fit a turn, so that noise hits all alike; all have log loss and average
their iterates. An epoch of ours is the mean of what the fit records from the second one on: steps, and for
"weight-aware" new tables. One of SGDClassifier's is a fit less a fit of one
epoch, over the epochs between: its steps alone. The setup is the rest of a fit, negative if the first epoch, with no
weights to be aware of, is faster than the later ones. The tables hold medians over the rounds; a ratio is the median of
the ratios within a round. Leave the machine alone meanwhile.
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
from evodrop.linear._fit import DROPOUTS

Data = tuple[sparse.csr_array, np.ndarray]  # examples with 32-bit indices, and labels -1 or 1
Row = dict[str, Any]

PEER, OURS, NAIVE = "SGDClassifier", "data-dependent", "Generator.multinomial row by row"
LIMITS = {OURS: 3.0, "standard": 1.8, "none": 1.2}  # of the ratio to SGDClassifier
FILES = ("20news", "reuters52")
SAME = {"loss": "log_loss", "average": True, "tol": None, "random_state": 0}
ZIPF, NONZEROS = 1.1, 74  # the exponent, and the mean of a row where the features grow


class Size(NamedTuple):
    shapes: dict[str, tuple[int, int, int]]  # rows, features, mean non-zeros of a row
    rows: int  # of the data whose features grow
    features: tuple[int, ...]  # of these; ratios are to the second, memory is that of the third
    epochs: int
    rounds: int
    naive_rows: int


SHAPES = {"RCV1": (20_000, 47_236, 74), "news20": (20_000, 1_355_191, 455), "real-sim": (72_309, 20_958, 51)}
FULL = Size(SHAPES, 20_000, (10**4, 10**5, 10**6, 10**7), epochs=5, rounds=9, naive_rows=207)
TINY = {"RCV1": (1000, 4000, 74), "news20": (200, 40_000, 455), "real-sim": (2000, 2000, 51)}
QUICK = Size(TINY, 1000, (10**3, 10**4, 10**5), epochs=4, rounds=3, naive_rows=9)


def zipf_draws(d: int, distinct: int) -> int:
    """How many draws have that many distinct features on average."""
    edges = np.arange(1, d + 2) ** (1 - ZIPF)
    probs, draws = -np.diff(edges) / (edges[0] - edges[-1]), float(distinct)
    for _ in range(12):
        draws *= distinct / -np.expm1(-draws * probs).sum()
    return round(draws)


def zipf_features(n: int, d: int, draws: int, rng: np.random.Generator) -> np.ndarray:
    """(n, draws) features, each row sorted: ranks of a power law by its inverse cdf, given to shuffled features."""
    ranks = (1 + rng.random((n, draws)) * ((d + 1) ** (1 - ZIPF) - 1)) ** (1 / (1 - ZIPF))
    features = rng.permutation(d).astype(np.int32)[np.minimum(ranks.astype(np.int32) - 1, d - 1)]
    return np.sort(features, axis=1)


def zipf_data(n: int, d: int, nonzeros: int) -> Data:
    """Rows of norm 1 that have the distinct ones of some draws from a Zipf law; labels of a noisy linear model."""
    rng = np.random.default_rng((n, d, nonzeros))
    features = zipf_features(n, d, zipf_draws(d, nonzeros), rng)
    new = np.diff(features, axis=1, prepend=-1) != 0
    starts = np.concatenate([[0], np.cumsum(new.sum(axis=1))]).astype(np.int32)
    values = rng.random(starts[-1]) + 0.1
    values /= np.repeat(np.sqrt(np.add.reduceat(values**2, starts[:-1])), np.diff(starts))
    X = sparse.csr_array((values, features[new], starts), shape=(n, d))
    scores = X @ rng.standard_normal(d) + 0.3 * rng.standard_normal(n)
    return X, np.where(scores > np.median(scores), 1, -1)


def spread_out(data: Data, d: int) -> Data:
    """The same examples, their features scattered among d columns."""
    X, y = data
    columns = np.sort(np.random.default_rng(d).choice(d, X.shape[1], replace=False)).astype(np.int32)
    return sparse.csr_array((X.data, columns[X.indices], X.indptr), shape=(X.shape[0], d)), y


def contestant(name: str, epochs: int) -> Any:
    if name == PEER:
        return SGDClassifier(**SAME, max_iter=epochs)
    return DropoutSGDClassifier(dropout=name, **SAME, max_iter=epochs, learning_rate="constant")


def turn(name: str, data: Data, epochs: int) -> tuple[Any, float, float]:
    """A fitted model, seconds of an epoch after the first, and of the fit without its epochs."""
    seconds = []
    for count in (1, epochs) if name == PEER else (epochs,):
        model, start = contestant(name, count), time.perf_counter()
        model.fit(*data)
        seconds.append(time.perf_counter() - start)
    between = seconds[-1] - seconds[0] if name == PEER else sum(model.history_["seconds"][1:])
    epoch = between / (epochs - 1)
    return model, epoch, seconds[-1] - epochs * epoch


def race(data: dict[Any, Data], names: Sequence[str], size: Size, progress: Progress) -> list[Row]:
    """The seconds of every contestant on every data set, all in turns."""
    rows = [
        {"data": key, "contestant": name, "shape": [*X.shape, X.nnz], "epoch": [], "setup": []}
        for key, (X, _) in data.items()
        for name in names
    ]
    for _ in progress.track(range(size.rounds), description=f"epochs, {', '.join(map(str, data))}"):
        for row in random.sample(rows, len(rows)):
            _, epoch, setup = turn(row["contestant"], data[row["data"]], size.epochs)
            row["epoch"].append(epoch)
            row["setup"].append(setup)
    return rows


def find(rows: Sequence[Row], data: Any, name: str) -> Row:
    return next(row for row in rows if row["data"] == data and row["contestant"] == name)


def ratio(row: Row, other: Row) -> float:
    return float(np.median(np.divide(row["epoch"], other["epoch"])))


def naive_epoch(model: Any, X: sparse.csr_array, rows: int, rng: np.random.Generator) -> float:
    """Seconds of an epoch that draws all features for each row; only the noise, no step."""
    start = time.perf_counter()
    for begin, end in zip(X.indptr[:rows], X.indptr[1 : rows + 1], strict=True):
        support = X.indices[begin:end]
        X.data[begin:end] * (rng.multinomial(model.k_, model.probs_)[support] / (model.k_ * model.probs_[support]))
    return (time.perf_counter() - start) / rows * X.shape[0]


def naive_race(key: str, data: Data, size: Size, progress: Progress) -> list[Row]:
    rows = [{"data": key, "contestant": name, "epoch": []} for name in (NAIVE, OURS)]
    rng = np.random.default_rng(0)
    for _ in progress.track(range(size.rounds), description=NAIVE):
        model, epoch, _ = turn(OURS, data, size.epochs)
        rows[0]["epoch"].append(naive_epoch(model, data[0], size.naive_rows // size.rounds, rng))
        rows[1]["epoch"].append(epoch)
    return rows


def memory_of(data: dict[Any, Data], progress: Progress) -> list[Row]:
    """The most bytes that a fit holds at a time, beside the data."""
    rows = []
    for key, name in progress.track([(key, name) for key in data for name in (PEER, *DROPOUTS)], description="memory"):
        tracemalloc.start()
        contestant(name, 2).fit(*data[key])
        peak, entries = tracemalloc.get_traced_memory()[1], data[key][0].shape[1] + data[key][0].nnz
        tracemalloc.stop()
        rows.append({"data": key, "contestant": name, "bytes": peak, "entries": entries})
    return rows


def claim(text: str, value: float, sense: str, bound: float) -> Row:
    holds = value <= bound if sense == "<=" else value >= bound
    return {"claim": text, "value": float(value), "bound": f"{sense} {bound:g}", "holds": bool(holds)}


def claims_of(epochs: Sequence[Row], naive: Sequence[Row], growth: Sequence[Row], size: Size) -> list[Row]:
    claims = []
    for row in epochs:
        if limit := LIMITS.get(name := row["contestant"]):
            value, aim = ratio(row, find(epochs, row["data"], PEER)), ", aim 2.0" if name == OURS else ""
            claims.append(claim(f"{name} / {PEER}, {row['data']}{aim}", value, "<=", limit))
    base, most = (find(growth, size.features[place], OURS) for place in (1, -1))
    claims.append(claim(f"{NAIVE} / {OURS}, {naive[0]['data']}", ratio(*naive), ">=", 200))
    claims.append(claim(f"{OURS}, d = {most['data']:,} / d = {base['data']:,}", ratio(most, base), "<=", 1.6))
    return claims


def machine() -> Row:
    info = Path("/proc/cpuinfo")
    model = info.read_text().partition("model name\t: ")[2].partition("\n")[0] if info.exists() else ""
    hardware = {"CPU": model or platform.processor(), "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 2)}
    return hardware | {name: version(name) for name in ("numpy", "scipy", "scikit-learn", "numba", "evodrop")}


def ms(seconds: Sequence[float]) -> str:
    return f"{1e3 * np.median(seconds):,.1f}"


def epochs_table(rows: Sequence[Row]) -> Table:
    n, d, nonzeros = rows[0]["shape"]
    table = Table("contestant", *(Column(name, justify="right") for name in ("ms per epoch", "ratio", "setup ms")))
    table.title = f"\n{rows[0]['data']}\nn = {n:,}, d = {d:,}, {nonzeros / n:.0f} a row"
    for row in rows:
        table.add_row(row["contestant"], ms(row["epoch"]), f"{ratio(row, rows[0]):.2f}", ms(row["setup"]))
    return table


def wide_table(title: str, rows: Sequence[Row], cell: Callable[[Row], str]) -> Table:
    """A line for each contestant, a column for each data set."""
    keys = dict.fromkeys(row["data"] for row in rows)
    heads = (f"d = {key:,}" if isinstance(key, int) else key for key in keys)
    table = Table("contestant", *(Column(head, justify="right") for head in heads), title=f"\n{title}")
    for name in dict.fromkeys(row["contestant"] for row in rows):
        table.add_row(name, *(cell(find(rows, key, name)) for key in keys))
    return table


def claims_table(claims: Sequence[Row]) -> Table:
    table = Table("ratio", "measured", "bound", "result", title="\nwhat it must show")
    for row in claims:
        table.add_row(row["claim"], f"{row['value']:.4g}", row["bound"], "pass" if row["holds"] else "MISS")
    return table


def tables(found: Row, size: Size) -> list[Table]:
    epochs, base = found["epochs"], size.features[1]

    def growth_table(title: str, rows: Sequence[Row]) -> Table:
        def cell(row: Row) -> str:
            return f"{ms(row['epoch'])} {ratio(row, find(rows, base, row['contestant'])):7.2f}"

        return wide_table(f"{title}:\nms per epoch and ratio to d = {base:,}", rows, cell)

    def memory_cell(row: Row) -> str:
        return f"{row['bytes'] / 1e6:,.1f} {row['bytes'] / row['entries']:7.1f}"

    return [
        *(epochs_table(epochs[i : i + 1 + len(DROPOUTS)]) for i in range(0, len(epochs), 1 + len(DROPOUTS))),
        wide_table("ms per epoch by hand", found["naive"], lambda row: ms(row["epoch"])),
        growth_table("the same examples among more columns", found["growth"]),
        growth_table("as many non-zeros of a richer vocabulary", found["words"]),
        wide_table("extra peak of a fit: MB\nand bytes per (d + non-zeros)", found["memory"], memory_cell),
        claims_table(found["claims"]),
    ]


def load(folder: Path | None, size: Size, progress: Progress) -> dict[str, Data]:
    """The data sets of the folder, if there is one, and those of our making."""
    data = {}
    for key in progress.track(FILES if folder else (), description="reading data"):
        data[key] = next(iter_svmlight(folder / key / "train.svm.bz2", 10**6))
    for key, shape in progress.track(size.shapes.items(), description="making data"):
        data[f"like {key}"] = zipf_data(*shape)
    return data


def measure(size: Size, folder: Path | None, progress: Progress) -> Row:
    for name in DROPOUTS:  # the first fit compiles
        contestant(name, 2).fit(*zipf_data(100, 2000, 10))
    data = load(folder, size, progress)
    epochs = [row for key in data for row in race({key: data[key]}, (PEER, *DROPOUTS), size, progress)]
    naive = naive_race(*next(iter(data.items())), size, progress)
    few = zipf_data(size.rows, size.features[0], NONZEROS)
    scattered = {d: spread_out(few, d) for d in size.features}
    growth = race(scattered, (PEER, *LIMITS), size, progress)
    memory = memory_of({"like RCV1": data["like RCV1"], size.features[2]: scattered[size.features[2]]}, progress)
    richer = {d: zipf_data(size.rows, d, NONZEROS) for d in progress.track(size.features, description="larger data")}
    words = race(richer, (PEER, *LIMITS), size, progress)
    claims = claims_of(epochs, naive, growth, size)
    return {"epochs": epochs, "naive": naive, "growth": growth, "words": words, "memory": memory, "claims": claims}


def main() -> None:
    parser = argparse.ArgumentParser(description="ours against SGDClassifier, in about four minutes")
    parser.add_argument("--quick", action="store_true", help="tiny data: whether it works, not how fast")
    parser.add_argument("--data", type=Path, help=f"folder with {' and '.join(FILES)}, a train.svm.bz2 in each")
    parser.add_argument("--json", type=Path, default=Path("build/bench/linear.json"), help="default: %(default)s")
    asked, about = parser.parse_args(), machine()
    size = QUICK if asked.quick else FULL
    with Progress(console=Console(stderr=True)) as progress, threadpool_limits(1):
        found = measure(size, asked.data, progress)
    heading = ", ".join(f"{name} {value}" for name, value in about.items())
    heading += "\n--quick: the data are too small for the figures to mean anything" * asked.quick
    Console(width=120, highlight=False).print(heading, *tables(found, size))
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    unfinished = asked.json.with_suffix(".unfinished")
    unfinished.write_text(json.dumps({"machine": about} | found, indent=1))
    unfinished.replace(asked.json)


if __name__ == "__main__":
    main()
