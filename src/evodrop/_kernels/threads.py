"""Several threads on one section of machine code, safe to use from many threads and after a fork.

numba's ``parallel=True`` is neither. A section takes its spans of rows by itself, and every row has its own random
stream, so the number of threads changes nothing but the time. Where torch has loaded OpenMP, its team does the work: it
is awake already, and a team of our own would compete with it for the cores. Elsewhere Python threads do.

With OpenMP, a hook pauses that team before each fork of the process: see :func:`_openmp`.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba import carray, types  # type: ignore[attr-defined]

from evodrop._checks import Array, Floats, Words
from evodrop._kernels.compile import compiled, compiled_callback, next_of, pointer_to
from evodrop._kernels.poisson import fill_many, grid_tables
from evodrop._kernels.rows import (
    BLOCK,
    ROW_STEP,
    U,
    column_moments,
    fill_mask,
    fill_row,
    hashed,
    is_finite,
    noise_row,
    plan_usual,
    scale_row,
)

WORK_PER_SPAN = 1 << 14  # draws and units that a thread takes on at a time: some 20 microseconds
WORK_PER_INTERRUPT = 1 << 22  # and between two looks for an interrupt: some 20 milliseconds
WORK_PER_THREAD = 1 << 16  # below this a second thread costs more than it saves
COLUMNS_PER_SPAN = 1024
OMP_PAUSE_SOFT = 1
BYTE, FLOAT = np.dtype(np.uint8), np.dtype(np.float32)
# In the place of what a task does not need.
NO_PLAN, NO_MOMENTS, NO_GRID = np.empty(0, np.uint64), np.empty(0), np.empty(0, np.uint16)
# What can be asked for. MOMENTS stands alone, since it takes columns; the others, which take rows, add up: how counts
# are made, and whether products or the noise itself are wanted.
MOMENTS, DRAWS, MANY, MASK, PRODUCTS, NOISE, FINITE = (1 << bit for bit in range(7))


@compiled
def do_rows(task: int, arrays: Any, bits: int, k: int, seed: np.uint64, start: int, stop: int) -> bool:
    """The task with the rows start..stop. False if a count has wrapped round, or a row is not finite but has to be."""
    x, counts, scale, products, plan, grid = arrays
    memory = np.empty(4 * BLOCK, np.uint64)
    words = memory[:BLOCK]
    if task & DRAWS:
        counts[start:stop] = 0  # long before the first is read: a row that was written a moment ago would be waited for
    for r in range(start, stop):
        key, row = hashed(seed + U(r) * ROW_STEP), counts[r]
        if task & FINITE and not is_finite(x[r]):
            return False
        if task & MASK:
            fill_mask(row, plan, key, words)
        if task & DRAWS and not fill_row(row, plan, bits, k, key, words):
            return False
        if task & MANY and not fill_many(row, plan, grid, bits, k, key, memory):
            return False
        if task & PRODUCTS:
            scale_row(x[r], row, scale, products[r])
        if task & NOISE:
            noise_row(row, scale, products[r])
    return True


@compiled
def drop_each(
    task: int,
    x: Array,
    weights: Floats,
    from_batch: bool,
    k: int,
    uniform_mix: float,
    bits: int,
    seeds: Words,
    counts: Array,
    scale: Array,
    products: Array,
) -> bool:
    """All of a usual call at once, for each of several batches: a step that is a call of its own costs more than its
    work in a small layer."""
    moments, grid = np.empty(x.shape[2]), np.empty(0, np.uint16)
    for batch in range(len(x)):
        own = x[batch]
        if task & DRAWS:
            column_moments(own, moments, 0, len(moments))
        plan = plan_usual(task & MASK > 0, moments, weights, from_batch, k, uniform_mix, bits, scale[batch])
        arrays = own, counts[batch], scale[batch], products[batch], plan, grid
        if len(plan) == 0 or not do_rows(task, arrays, bits, k, seeds[batch], 0, len(own)):
            return False
    return True


# A job for several threads: where they stand, what they do, sizes, and the addresses of the arrays.
JOB = np.dtype(
    [
        *((name, np.int64) for name in ("next", "end", "failed", "task", "step", "rows", "d", "size", "bits", "k")),
        ("seed", np.uint64),
        *((name, np.int64) for name in ("x", "counts", "scale", "products", "plan", "grid", "moments")),
    ]
)


@cache
def _section(floats: np.dtype[Any], integers: np.dtype[Any]) -> tuple[int, Any]:
    """A callback that takes spans of a job until none is left, its address, and a function that calls it without the
    GIL. Any number of threads may run it on the same job."""
    number, count, job_type = map(numba.from_dtype, (floats, integers, JOB))

    @compiled_callback(types.void(types.CPointer(job_type)))  # type: ignore[no-untyped-call]
    def section(pointer: Any) -> None:
        jobs = carray(pointer, 1)
        job = jobs[0]
        rows, d = job.rows, job.d
        x = carray(pointer_to(job.x, number), (rows, d))
        counts = carray(pointer_to(job.counts, count), (rows, d))
        scale = carray(pointer_to(job.scale, number), (d,))
        products = carray(pointer_to(job.products, number), (rows, d))
        plan = carray(pointer_to(job.plan, numba.uint64), (job.size,))
        moments = carray(pointer_to(job.moments, numba.float64), (d,))
        grid = carray(pointer_to(job.grid, numba.uint16), (d,))
        arrays = x, counts, scale, products, plan, grid
        start = next_of(jobs, job.step)
        while start < job.end and job.failed == 0:
            stop = min(start + job.step, job.end)
            if job.task == MOMENTS:
                column_moments(x, moments, start, stop)
            elif not do_rows(job.task, arrays, job.bits, job.k, job.seed, start, stop):
                job.failed = 1
            start = next_of(jobs, job.step)

    return section.address, ctypes.CFUNCTYPE(None, ctypes.c_void_p)(section.address)


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
    plan: Words = NO_PLAN,
    moments: Floats = NO_MOMENTS,
    seed: int = 0,
    bits: int = 0,
    k: int = 0,
) -> bool:
    """Do ``task`` with the rows of (rows, d) arrays, in ``threads`` threads. False if a count has wrapped round, or a
    row is not finite but has to be.

    A section is deaf to signals, so it ends from time to time, and Python sees an interrupt.
    """
    first: Any = counts if x is None else x
    shape, number = first.shape, next((a.dtype for a in (x, scale) if a is not None), FLOAT)
    x, products = _fitting(x, shape, number), _fitting(products, shape, number)
    scale = _fitting(scale, shape[1:], number)
    counts = _fitting(counts, shape, BYTE if counts is None else counts.dtype)
    arrays = (x, counts, scale, products, plan, grid_tables() if task & MANY else NO_GRID)
    (rows, d), seed = shape, seed % 2**64
    end, work = (d, rows) if task == MOMENTS else (rows, d + (math.isqrt(k) * 3 if task & MANY else k))
    step = COLUMNS_PER_SPAN if task == MOMENTS else WORK_PER_SPAN // work + 1
    if threads > 1:
        addresses = [array.__array_interface__["data"][0] for array in (*arrays, moments)]
        job = np.array((0, 0, 0, task, step, rows, d, plan.size, bits, k, seed, *addresses), JOB)
        address, call = _section(number, counts.dtype)
    at_once = threads * (WORK_PER_INTERRUPT // work + step)
    for start in range(0, end, at_once):
        stop = min(start + at_once, end)
        if threads > 1:
            job["next"], job["end"] = start, stop
            if (parallel := _openmp()) is not None:
                parallel(address, job.ctypes.data, threads, 0)
            else:
                _call_in_python_threads(call, job, threads, (*arrays, moments))
            done = not job["failed"]
        elif task == MOMENTS:
            done = column_moments(x, moments, start, stop) is None
        else:
            done = do_rows(task, arrays, bits, k, U(seed), start, stop)
        if not done:
            return False
    return True


def _fitting(array: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """The array, or an empty one in its place. A section trusts addresses, so what could lead it astray stops here."""
    if array is None:
        return np.empty((0,) * len(shape), dtype)
    if array.shape != shape or array.dtype != dtype or not array.flags.c_contiguous:
        raise ValueError(
            f"noise and input do not fit together: {array.dtype}{list(array.shape)} in the place of "
            f"{dtype}{list(shape)}; the noise is that of another tensor"
        )
    return array


def _call_in_python_threads(call: Any, job: Array, threads: int, arrays: object) -> None:
    helpers = []
    with suppress(RuntimeError):  # at the exit of the interpreter no thread can be started
        # A helper holds the arrays, so that an interrupt here takes no memory from it.
        helpers += [_pool().submit(lambda _: call(job.ctypes.data), arrays) for _ in range(threads - 1)]
    call(job.ctypes.data)
    for helper in helpers:
        if not helper.cancel():  # one that has not begun is not needed any more
            helper.result()


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
