"""Several threads on one section of machine code, safe to use from many threads and after a fork.

numba's ``parallel=True`` is neither. A section takes its spans of rows by itself, and every row has its own random
stream, so the number of threads changes nothing but the time. Where torch has loaded OpenMP, its team does the work: it
is awake already, and a team of our own would compete with it for the cores. Elsewhere Python threads do.

With OpenMP, a hook pauses that team before each fork of the process: see :func:`_openmp`.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from evodrop._checks import Array
from evodrop._kernels.rows import JOB, MOMENTS, section_for

WORK_PER_SPAN = 1 << 14  # draws and units that a thread takes on at a time: some 20 microseconds
WORK_PER_INTERRUPT = 1 << 22  # and between two looks for an interrupt: some 20 milliseconds
COLUMNS_PER_SPAN = 1024
OMP_PAUSE_SOFT = 1
WORK_PER_THREAD = 1 << 16  # below this a second thread costs more than it saves


def useful_threads(threads: int, work: int) -> int:
    """As many of the threads as save more than they cost, for so many elements or draws."""
    return max(1, min(threads, work // WORK_PER_THREAD))


def run_section(
    task: int,
    threads: int,
    *,
    x: Array | None = None,
    counts: Array | None = None,
    scale: Array | None = None,
    products: Array | None = None,
    table: Array | None = None,
    moments: Array | None = None,
    seed: int = 0,
    bits: int = 0,
    k: int = 0,
) -> bool:
    """Do ``task`` with the rows of (rows, d) arrays, in ``threads`` threads. False if a count has wrapped round.

    A section is deaf to signals, so it ends from time to time, and Python sees an interrupt.
    """
    arrays = (x, counts, scale, products, table, moments)
    rows, d = _checked_shape(arrays)
    end, work = (d, rows) if task == MOMENTS else (rows, d + k)
    step = COLUMNS_PER_SPAN if task == MOMENTS else WORK_PER_SPAN // work + 1
    addresses = [0 if array is None else array.__array_interface__["data"][0] for array in arrays]
    job = np.array((0, 0, task, step, rows, d, bits, k, 0, seed % 2**64, *addresses), JOB)
    address, call = _section(None if x is None else x.dtype, None if counts is None else counts.dtype)
    at_once = threads * (WORK_PER_INTERRUPT // work + step)
    for start in range(0, end, at_once):
        job["next"], job["end"] = start, min(start + at_once, end)
        if threads == 1:
            call(job.ctypes.data)
        elif (parallel := _openmp()) is not None:
            parallel(address, job.ctypes.data, threads, 0)
        else:
            _call_in_python_threads(call, job, threads, arrays)
        if job["wrapped"]:
            return False
    return True


def run_spans(kernel: Callable[[int, int], bool], rows: int, work_per_row: int, threads: int) -> bool:
    """Call ``kernel(start, stop)`` for all spans of the rows, until one of them answers False.

    A span is short, and Python sees an interrupt between two of them.
    """
    step = WORK_PER_INTERRUPT // work_per_row + 1
    spans = [(start, min(start + step, rows)) for start in range(0, rows, step)]
    if threads == 1 or len(spans) == 1:
        return all(kernel(*span) for span in spans)
    for first in range(0, len(spans), threads):
        helpers = [_pool().submit(kernel, *span) for span in spans[first + 1 : first + threads]]
        if not all([kernel(*spans[first]), *(helper.result() for helper in helpers)]):
            return False
    return True


def _checked_shape(arrays: tuple[Array | None, ...]) -> tuple[int, int]:
    """The number of rows and columns. A section trusts addresses, so whatever could lead it astray stops here."""
    x, counts, scale, products, _, _ = arrays
    first = x if x is not None else counts
    assert first is not None
    shape, number = first.shape, first.dtype
    fits = (
        first.flags.c_contiguous
        and (counts is None or (counts.flags.c_contiguous and counts.shape == shape))
        and (scale is None or (scale.flags.c_contiguous and scale.shape == shape[1:] and scale.dtype == number))
        and (products is None or (products.flags.c_contiguous and products.shape == shape and products.dtype == number))
    )
    if not fits:
        shapes = ", ".join(f"{array.dtype}{list(array.shape)}" for array in arrays if array is not None)
        raise ValueError(f"noise and input do not fit together: {shapes}; the noise is that of another tensor")
    return shape[0], shape[1]


def _call_in_python_threads(call: Any, job: Array, threads: int, arrays: object) -> None:
    """A helper holds the arrays, so that an interrupt here takes no memory from it."""

    def help_out(_: object) -> None:
        call(job.ctypes.data)

    helpers = []
    with suppress(RuntimeError):  # at the exit of the interpreter no thread can be started
        helpers += [_pool().submit(help_out, arrays) for _ in range(threads - 1)]
    call(job.ctypes.data)
    for helper in helpers:
        if not helper.cancel():  # one that has not begun is not needed any more
            helper.result()


@cache
def _section(x: np.dtype[Any] | None, counts: np.dtype[Any] | None) -> tuple[int, Any]:
    """The address of the section for these types, and a function that calls it and lets go of the GIL meanwhile."""
    address = section_for("float32" if x is None else x.name, "uint8" if counts is None else counts.name).address
    return address, ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)


@cache
def _openmp() -> Any:
    """GOMP_parallel of the library that torch has loaded, or None."""
    torch = sys.modules.get("torch")
    for path in sorted(Path(torch.__file__).parent.glob("lib/libgomp*")) if torch and torch.__file__ else ():
        try:
            library = ctypes.CDLL(str(path))
            parallel, pause = library.GOMP_parallel, library.omp_pause_resource_all
        except (OSError, AttributeError):
            continue
        parallel.argtypes, parallel.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint), None
        # A forked child would wait forever for a team of which it has the records but no threads: dismiss it first.
        os.register_at_fork(before=partial(pause, OMP_PAUSE_SOFT))
        return parallel
    return None


@cache
def _pool() -> ThreadPoolExecutor:
    pool = ThreadPoolExecutor(max_workers=os.cpu_count(), thread_name_prefix="evodrop")
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_pool.cache_clear)
    return pool
