"""Part of scaling.py: DaskDropoutSGDClassifier on 1 and 2 worker processes.

* **time**: synthetic rows with Zipf features, made by the workers. One worker and two take turns on clusters that are
  there before the clock starts; both fit the same partitions, so both have to find the same model, which is checked.
* **error** (``--data``): 20 Newsgroups on 2 workers beside DropoutSGDClassifier, means over seeds.
* **kills**: fits in each of which a worker is killed (SIGKILL) at another moment; each has to end in the model of an
  undisturbed fit, to the last bit.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from dask import array, delayed
from distributed import Client, LocalCluster, futures_of, wait
from dropout import Row, claim
from rich.table import Table
from scipy import sparse
from sklearn.base import clone

from evodrop.linear import DaskDropoutSGDClassifier, DropoutSGDClassifier, iter_svmlight

ZIPF, NONZEROS = 1.1, 74
DISTURBED = 40_000, 20_000  # rows and features of the fits in which a worker is killed


class Extent(NamedTuple):
    """Of the large fit, and how many fits are disturbed."""

    rows: int
    d: int
    partitions: int
    epochs: int
    turns: int
    kills: int


FULL, QUICK = Extent(10**6, 10**6, 2, 10, 3, 10), Extent(20_000, 10_000, 2, 3, 1, 2)


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
    alone = DropoutSGDClassifier(loss="log_loss", max_iter=epochs, tol=None, random_state=0)
    model = DaskDropoutSGDClassifier(alone)
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


def measure_time(extent: Extent) -> Row:
    data, results, models = large_data(extent.rows, extent.d, extent.partitions), [], []
    for _ in range(extent.turns):
        for workers in (1, 2):
            model, row = timed_fit(workers, data, extent.epochs)
            results.append(row)
            models.append(model.coef_)
    fits = {workers: [row["fit"] for row in results if row["workers"] == workers] for workers in (1, 2)}
    ratio = float(np.median(np.divide(fits[2], fits[1])))
    unlike = sum(not np.array_equal(models[0], coef) for coef in models)
    return {**extent._asdict(), "turns": results, "ratio": ratio, "unlike": unlike}


def measure_error(folder: Path, seeds: int, partitions: int = 2) -> Row:
    """Percent of test error, one process and 2 workers."""
    X, y = next(iter_svmlight(folder / "20news" / "train.svm.bz2", 10**6))
    test = next(iter_svmlight(folder / "20news" / "test.svm.bz2", 10**6, n_features=X.shape[1]))
    models = [DropoutSGDClassifier(random_state=seed) for seed in range(seeds)]
    alone = [100 * (1 - model.fit(X, y).score(*test)) for model in models]
    with cluster_of(2) as cluster, Client(cluster):
        data = cut(X, y, partitions)
        ours = [100 * (1 - DaskDropoutSGDClassifier(model).fit(*data).score(*test)) for model in models]
    return {"alone": alone, "cluster": ours, "difference": float(np.mean(ours) - np.mean(alone))}


class Killer(threading.Thread):
    """SIGKILL to the worker that has most to do, once a fit has had so many rounds, and a part of one."""

    def __init__(self, client: Client, model: DaskDropoutSGDClassifier, rounds: float) -> None:
        super().__init__()
        self.client, self.model, self.rounds = client, model, rounds
        self.pids, self.over, self.killed = client.run(os.getpid), threading.Event(), False

    def run(self) -> None:
        while len(self.seconds()) < int(self.rounds) and not self.over.wait(0.005):
            pass
        if not self.over.wait(self.rounds % 1 * (self.seconds() or [0.5])[-1]):
            busy = max(self.client.processing().items(), key=lambda item: len(item[1]))[0]
            os.kill(self.pids[busy], signal.SIGKILL)
            self.killed = True

    def seconds(self) -> list[float]:
        """Of the rounds so far."""
        progress = getattr(getattr(self.model, "estimator_", None), "_progress", None)
        return progress.history["seconds"] if progress else []


def disturbed_fit(model: DaskDropoutSGDClassifier, data: tuple[Any, Any], workers: int, rounds: float) -> Row:
    """A fit on a cluster of its own, one worker of which is killed."""
    with cluster_of(workers) as cluster, Client(cluster) as client:
        killer = Killer(client, model, rounds)
        killer.start()
        start = time.perf_counter()
        coef = model.fit(*data).coef_
        seconds = time.perf_counter() - start
        killer.over.set()
        killer.join()
    return {"workers": workers, "rounds": rounds, "killed": killer.killed, "coef": coef, "seconds": seconds}


def measure_kills(kills: int) -> Row:
    """Kills spread over the length of a fit, on two workers, and a third as many of a worker that is the only one."""
    data = large_data(*DISTURBED, 4)
    model = DaskDropoutSGDClassifier(DropoutSGDClassifier(max_iter=12, tol=None, random_state=0))
    with cluster_of(2) as cluster, Client(cluster):
        expected = clone(model).fit(*data).coef_
    plan = [(2, rounds) for rounds in np.linspace(0.2, 10.7, kills).tolist()]
    plan += [(1, rounds) for rounds in np.linspace(3.4, 8.9, max(1, kills // 3)).tolist()]
    fits = [disturbed_fit(clone(model), data, *moment) for moment in plan]
    for fit in fits:
        fit["same"] = bool(np.array_equal(fit.pop("coef"), expected))
    return {"fits": fits}


def measure(asked: argparse.Namespace) -> tuple[Row, list[Row], list[Any]]:
    warnings.filterwarnings("ignore", "Sending large graph")  # 20news is in memory here
    extent = QUICK if asked.quick else FULL
    found = {"time": measure_time(extent), "kills": measure_kills(extent.kills)}
    if asked.data:
        found["error"] = measure_error(asked.data, 1 if asked.quick else 3)
    return found, claims_of(found), [fits_table(found), *([] if asked.data else ["no --data, so no test error"])]


def claims_of(found: Row) -> list[Row]:
    fit = found["time"]
    size = f"{fit['rows']:,} rows, d = {fit['d']:,}"
    claims = [
        claim(f"time of a Dask fit, 2 workers / 1, {size}", fit["ratio"], "<=", 0.65),
        claim("models of these fits that differ", fit["unlike"], "<=", 0),
    ]
    if "error" in found:
        points = abs(found["error"]["difference"])
        claims.append(claim("test error of 20news, 2 workers less one process, points", points, "<=", 0.5))
    for workers, text in ((2, "one of two workers"), (1, "the only worker")):
        fits = [row for row in found["kills"]["fits"] if row["workers"] == workers]
        right = sum(row["killed"] and row["same"] for row in fits)
        claims.append(claim(f"fits with {text} killed that end in the same model", right, ">=", len(fits)))
    return claims


def fits_table(found: Row) -> Table:
    table = Table("workers", "fit, s", "median round, s", "load", title="\nDaskDropoutSGDClassifier")
    for row in found["time"]["turns"]:
        table.add_row(str(row["workers"]), *(f"{row[name]:.3g}" for name in ("fit", "round", "load")))
    return table
