"""Rows over threads: a small pool of our own, safe to use from many threads and after a fork.

numba's ``parallel=True`` is neither. The kernels release the GIL, and every row has its own random stream, so how the
rows are split changes nothing but the time.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise

__all__ = ["over_rows"]


def over_rows(work: Callable[[int, int], object], rows: int, threads: int, least: int) -> None:
    """Call ``work(start, stop)`` on parts of ``range(rows)``, of ``least`` rows or more, in up to ``threads`` threads.

    The calling thread does the first part, and any other part that no worker has begun by then: a busy pool delays
    nobody.
    """
    parts = min(threads, rows // max(1, least))
    if parts <= 1:
        work(0, rows)
        return
    spans = list(pairwise(rows * part // parts for part in range(parts + 1)))
    waiting = [(_pool().submit(work, *span), span) for span in spans[1:]]
    work(*spans[0])
    for future, span in waiting:
        if future.cancel():
            work(*span)
        else:
            future.result()


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=os.cpu_count(), thread_name_prefix="evodrop")


if hasattr(os, "register_at_fork"):  # a forked child inherits the pool's object but none of its threads
    os.register_at_fork(after_in_child=_pool.cache_clear)
