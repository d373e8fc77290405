"""The rates of one machine from which docs/scaling.md works out larger ones; they go to docs/scaling_rates.json.

Each is a median of repeats. Leave the machine alone meanwhile; then `python docs/scaling.py` renews the page.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.queues import Queue
from pathlib import Path
from queue import Empty

import numpy as np
from linear import SHAPES, TINY, zipf_data

from evodrop.linear import DropoutSGDClassifier

FILE = Path(__file__).parents[1] / "docs" / "scaling_rates.json"
NUMBERS, LONGEST = 512, 120.0  # of an all_reduce, and seconds to wait for its processes


def linear_nonzeros_per_second(quick: bool) -> float:
    """Non-zeros over seconds of an epoch, from the second epoch on: the first one compiles."""
    X, y = zipf_data(*(TINY if quick else SHAPES)["RCV1"])
    model = DropoutSGDClassifier("data-dependent", max_iter=4 if quick else 12, tol=None, random_state=0).fit(X, y)
    return X.nnz / float(np.median(model.history_["seconds"][1:]))


def all_reduce_seconds(quick: bool) -> float:
    """Of a few numbers by gloo, between 2 processes."""
    context = get_context("spawn")
    answer: Queue[float] = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        store, repeats = f"file://{folder}/store", 50 if quick else 2000
        ranks = [context.Process(target=reduce_often, args=(rank, store, repeats, answer)) for rank in range(2)]
        try:
            for rank in ranks:
                rank.start()
            return answer.get(timeout=LONGEST)
        except Empty:
            raise SystemExit(f"no all_reduce within {LONGEST:.0f} s: its processes say why above") from None
        finally:
            for rank in ranks:
                rank.join(5)
                rank.terminate()


def reduce_often(rank: int, store: str, repeats: int, answer: Queue[float]) -> None:
    import torch
    import torch.distributed

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    numbers, seconds = torch.zeros(NUMBERS, dtype=torch.float64), []
    for _ in range(repeats):
        start = time.perf_counter()
        torch.distributed.all_reduce(numbers)
        seconds.append(time.perf_counter() - start)
    if rank == 0:
        answer.put(float(np.median(seconds)))
    torch.distributed.destroy_process_group()


def dask_seconds_per_round(quick: bool) -> float:
    """A round on two partitions so small that nothing but the messages takes time."""
    from dask import array
    from distributed import Client

    from evodrop.linear import cluster

    rng = np.random.default_rng(0)
    X, y = array.from_array(rng.random((20, 5)), chunks=(10, 5)), rng.integers(2, size=20)
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=None):
        model = cluster.DaskDropoutSGDClassifier(max_iter=5 if quick else 50, tol=None, random_state=0).fit(X, y)
    return float(np.median(model.history_["seconds"][1:]))


MEASURES: tuple[Callable[[bool], float], ...] = (linear_nonzeros_per_second, all_reduce_seconds, dask_seconds_per_round)


def main() -> None:
    parser = argparse.ArgumentParser(description="measure the rates that docs/scaling.md starts from")
    parser.add_argument("--quick", action="store_true", help="a look: small data, few repeats")
    parser.add_argument("--json", type=Path, default=FILE, help="default: docs/scaling_rates.json")
    asked = parser.parse_args()
    found: dict[str, float | None] = {}
    for measure in MEASURES:
        try:
            found[measure.__name__] = float(f"{measure(asked.quick):.3g}")
        except ImportError as error:
            found[measure.__name__] = None
            print(f"{measure.__name__} is not measured: {error}")
    print(json.dumps(found, indent=2))
    unfinished = asked.json.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(found, indent=2) + "\n")
    unfinished.replace(asked.json)


if __name__ == "__main__":
    main()
