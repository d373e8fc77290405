"""DaskDropoutSGDClassifier on 1 and 2 worker processes: wall time of a large fit, test error on text, and kills.

* **time**: synthetic rows with Zipf features, made by the workers. One worker and two take turns on clusters that are
  there before the clock starts; both fit the same partitions, so both have to find the same model, which is checked.
* **error** (``--data``): 20 Newsgroups on 2 workers beside DropoutSGDClassifier, means over seeds.
* **kills**: fits in each of which a worker is killed (SIGKILL) at another moment; each has to end in the model of an
  undisturbed fit, to the last bit.

Leave the machine alone meanwhile: a load above the number of workers makes the times mean nothing, and is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import threading
import time
import warnings
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from dask import array, delayed
from distributed import Client, LocalCluster, futures_of, wait
from rich.console import Console
from rich.table import Table
from scipy import sparse

from evodrop.linear import DaskDropoutSGDClassifier, DropoutSGDClassifier, iter_svmlight

Row = dict[str, Any]
TIME_LIMIT, ERROR_LIMIT = 0.65, 0.5  # of one worker's time; points of test error
ZIPF, NONZEROS = 1.1, 74


def make_rows(number: int, n: int, d: int) -> tuple[sparse.csr_array, np.ndarray]:
    """Rows of norm 1 with draws from a Zipf law, and labels of a linear model that all partitions share."""
    rng = np.random.default_rng((number, n, d))
    ranks = (1 + rng.random((n, NONZEROS)) * ((d + 1) ** (1 - ZIPF) - 1)) ** (1 / (1 - ZIPF))
    features = np.random.default_rng(d).permutation(d)[np.minimum(ranks.astype(np.int64) - 1, d - 1)]
    places = np.arange(0, n * NONZEROS + 1, NONZEROS)
    X = sparse.csr_array((rng.random(n * NONZEROS) + 0.1, features.ravel().astype(np.int32), places), shape=(n, d))
    X.sum_duplicates()
    X.data /= np.repeat(np.sqrt(X.multiply(X).sum(axis=1)), np.diff(X.indptr))
    scores = X @ np.random.default_rng(d + 1).standard_normal(d)
    return X, np.where(scores + 0.3 * rng.standard_normal(n) > 0, 1, -1)


def large_data(rows: int, d: int, partitions: int) -> tuple[Any, Any]:
    """Dask arrays whose blocks the workers make: this process never holds a row."""
    sizes = np.diff(np.linspace(0, rows, partitions + 1).astype(int))
    parts = [delayed(make_rows, nout=2)(number, int(n), d) for number, n in enumerate(sizes)]
    X = [
        array.from_delayed(part[0], shape=(n, d), dtype=np.float64, meta=sparse.csr_array((0, 0)))
        for part, n in zip(parts, sizes, strict=True)
    ]
    y = [array.from_delayed(part[1], shape=(n,), dtype=np.int64) for part, n in zip(parts, sizes, strict=True)]
    return array.concatenate(X), array.concatenate(y)


def cut(X: sparse.csr_array, y: np.ndarray, partitions: int) -> tuple[Any, np.ndarray]:
    """Data in memory as a dask array; rows are shuffled first, as they must be."""
    order = np.random.default_rng(0).permutation(len(y))
    edges = np.linspace(0, len(y), partitions + 1).astype(int)
    blocks = [
        array.from_delayed(
            delayed(X[order[start:stop]]),
            shape=(stop - start, X.shape[1]),
            dtype=X.dtype,
            meta=sparse.csr_array((0, 0)),
        )
        for start, stop in pairwise(edges)
    ]
    return array.concatenate(blocks), y[order]


def cluster_of(workers: int) -> LocalCluster:
    return LocalCluster(n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=":0")


def timed_fit(workers: int, data: tuple[Any, Any], epochs: int) -> tuple[DaskDropoutSGDClassifier, Row]:
    """A fit on a cluster of its own, whose workers have compiled and hold the data before the clock starts."""
    model = DaskDropoutSGDClassifier(loss="log_loss", max_iter=epochs, tol=None, random_state=0)
    with cluster_of(workers) as cluster, Client(cluster) as client:
        for worker in client.nthreads():  # every worker compiles, not only the first
            client.submit(_compile, workers=[worker], pure=False).result()
        held = client.persist(data)
        wait(futures_of(held))
        start = time.perf_counter()
        model.fit(*held)
        whole = time.perf_counter() - start
    rounds = model.history_["seconds"]
    return model, {"workers": workers, "fit": whole, "round": float(np.median(rounds)), "load": os.getloadavg()[0]}


def _compile() -> None:
    X, y = make_rows(0, 200, 1000)
    DropoutSGDClassifier(loss="log_loss", max_iter=2, tol=None).fit(X, y)


def measure_time(rows: int, d: int, partitions: int, epochs: int, turns: int) -> Row:
    data, results, models = large_data(rows, d, partitions), [], []
    for _ in range(turns):
        for workers in (1, 2):
            model, row = timed_fit(workers, data, epochs)
            results.append(row)
            models.append(model.coef_)
    fits = {workers: [row["fit"] for row in results if row["workers"] == workers] for workers in (1, 2)}
    ratio = float(np.median(np.divide(fits[2], fits[1])))
    same = all(np.array_equal(models[0], coef) for coef in models)
    return {
        "rows": rows,
        "d": d,
        "partitions": partitions,
        "epochs": epochs,
        "turns": results,
        "ratio": ratio,
        "same": same,
    }


def measure_error(folder: Path, seeds: int, partitions: int = 2) -> Row:
    """Percent of test error, one process and 2 workers."""
    X, y = next(iter_svmlight(folder / "20news" / "train.svm.bz2", 10**6))
    test = next(iter_svmlight(folder / "20news" / "test.svm.bz2", 10**6, n_features=X.shape[1]))
    alone = [100 * (1 - DropoutSGDClassifier(random_state=seed).fit(X, y).score(*test)) for seed in range(seeds)]
    with cluster_of(2) as cluster, Client(cluster):
        data = cut(X, y, partitions)
        ours = [
            100 * (1 - DaskDropoutSGDClassifier(random_state=seed).fit(*data).score(*test)) for seed in range(seeds)
        ]
    return {"alone": alone, "cluster": ours, "difference": float(np.mean(ours) - np.mean(alone))}


def kill_later(client: Client, seconds: float, done: threading.Event) -> None:
    """SIGKILL to the worker that has most to do, after so many seconds of a fit."""
    pids = client.run(os.getpid)
    if not done.wait(seconds):
        busy = max(client.processing().items(), key=lambda item: len(item[1]))[0]
        os.kill(pids[busy], signal.SIGKILL)


def disturbed_fit(model: DaskDropoutSGDClassifier, data: tuple[Any, Any], workers: int, after: float) -> Row:
    """A fit on a cluster of its own, one worker of which is killed."""
    with cluster_of(workers) as cluster, Client(cluster) as client:
        done, before = threading.Event(), set(client.nthreads())
        killer = threading.Thread(target=kill_later, args=(client, after, done))
        killer.start()
        start = time.perf_counter()
        coef = model.fit(*data).coef_
        seconds = time.perf_counter() - start
        done.set()
        killer.join()
        gone = before - set(client.nthreads())
    return {"workers": workers, "after": after, "killed": len(gone) == 1, "coef": coef, "seconds": seconds}


def measure_kills(rows: int, d: int, kills: int) -> Row:
    """Kills spread over the length of a fit, on two workers, and a third as many of a worker that is the only one."""
    data = large_data(rows, d, 4)
    model = DaskDropoutSGDClassifier(max_iter=12, tol=None, random_state=0)
    with cluster_of(2) as cluster, Client(cluster):
        start = time.perf_counter()
        expected = model.fit(*data).coef_.copy()
        whole = time.perf_counter() - start
    plan = [(2, share) for share in (np.arange(kills) + 0.5) / kills]
    plan += [(1, share) for share in (np.arange(kills // 3) + 0.5) / max(1, kills // 3)]
    fits = [disturbed_fit(model, data, workers, 0.9 * whole * share) for workers, share in plan]
    for fit in fits:
        fit["same"] = bool(np.array_equal(fit.pop("coef"), expected))
    return {"undisturbed": whole, "fits": fits}


def machine() -> Row:
    names = ("numpy", "scipy", "numba", "dask", "distributed", "evodrop")
    return {"machine": platform.machine(), "cores": os.cpu_count()} | {name: version(name) for name in names}


def report(found: Row) -> Table:
    table = Table("figure", "measured", "bound", "result", title="DaskDropoutSGDClassifier")

    def line(text: str, value: str, bound: str, holds: bool) -> None:
        table.add_row(text, value, bound, "pass" if holds else "MISS")

    fit = found["time"]
    size = f"{fit['rows']:,} rows, d = {fit['d']:,}, {fit['partitions']} partitions"
    line(f"time of 2 workers / 1, {size}", f"{fit['ratio']:.3f}", f"<= {TIME_LIMIT}", fit["ratio"] <= TIME_LIMIT)
    line("all these models equal", str(fit["same"]), "True", fit["same"])
    if error := found.get("error"):
        value = error["difference"]
        line(
            "test error less that of one process, 20news",
            f"{value:+.2f} points",
            f"<= {ERROR_LIMIT}",
            value <= ERROR_LIMIT,
        )
    for workers in (2, 1):
        fits = [row for row in found["kills"]["fits"] if row["workers"] == workers]
        hit, right = sum(row["killed"] for row in fits), sum(row["killed"] and row["same"] for row in fits)
        text = f"one of {workers} killed: completed and equal" if workers > 1 else "the only worker killed"
        line(text, f"{right} of {hit} (of {len(fits)} tries)", f"{len(fits)} of {len(fits)}", right == len(fits) > 0)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10**6, help="of the large fit; default: %(default)s")
    parser.add_argument("--features", type=int, default=10**6, help="default: %(default)s")
    parser.add_argument("--partitions", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--epochs", type=int, default=10, help="default: %(default)s")
    parser.add_argument("--turns", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--kills", type=int, default=10, help="default: %(default)s")
    parser.add_argument("--data", type=Path, help="folder with 20news: measures the test error too")
    parser.add_argument(
        "--json", type=Path, default=Path("build/bench/scaling_linear.json"), help="default: %(default)s"
    )
    asked = parser.parse_args()
    warnings.filterwarnings("ignore", "Sending large graph")  # 20news is in memory here
    found: Row = {"about": machine()}
    found["time"] = measure_time(asked.rows, asked.features, asked.partitions, asked.epochs, asked.turns)
    if asked.data:
        found["error"] = measure_error(asked.data, seeds=3)
    found["kills"] = measure_kills(min(asked.rows, 40_000), min(asked.features, 20_000), asked.kills)
    Console(width=130, highlight=False).print(json.dumps(found["about"]), report(found))
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    unfinished = asked.json.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(found, indent=1))
    unfinished.replace(asked.json)


if __name__ == "__main__":
    main()
