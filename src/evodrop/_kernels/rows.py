"""Random words, alias tables, masks, and rows times noise.

Machine code for one thread, and at the end the section that several threads run together.

**The stream.** Word t of row r is ``hashed(hashed(seed + r * ROW_STEP) + t * GOLDEN)`` modulo 2^64, where ``hashed`` is
the finaliser of SplitMix64 (Steele, Lea and Flood 2014): for each (shift, factor) of ``HASH``,
``z = (z ^ (z >> shift)) * factor``. A seed, a row and a counter give the word: no state, so any row can be made by any
thread, and made again.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numba
import numpy as np
from numba import carray, types  # type: ignore[attr-defined]

from evodrop._checks import Array, Floats, Words
from evodrop._kernels.compile import compiled, compiled_callback, next_of, pointer_to
from evodrop.noise import LEAST_RATE

U = np.uint64  # in a kernel, an unsigned and a signed integer make a float, so both operands are unsigned
GOLDEN = U(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio, odd: the step between the words of a row
ROW_STEP = U(0xD1342543DE82EF95)  # another odd number: the step between rows
RANK_STEP = 0xDA942042E4DD58B5  # and another, for torch to add: the step between the ranks of a process group
HASH = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))
(SHIFT_1, FACTOR_1), (SHIFT_2, FACTOR_2), (SHIFT_3, _) = ((U(shift), U(factor)) for shift, factor in HASH)
MASS_BITS = 62  # of a word's 64 bits decide a draw: masses that sum to 2^62 fit a signed integer
BLOCK = 64  # words hashed at a time


@compiled
def hashed(z: np.uint64) -> np.uint64:
    z = (z ^ (z >> SHIFT_1)) * FACTOR_1
    z = (z ^ (z >> SHIFT_2)) * FACTOR_2
    return z ^ (z >> SHIFT_3)


@compiled
def integer_masses(probs: Floats, size: int) -> Array:
    """Integers that sum to 2^62 in proportion to probs. What rounding down cuts off is carried to the next unit. The
    floats miss a sum of 1 by their rounding errors: all units share that in a second pass, and the largest takes what
    little is left."""
    masses = np.zeros(size, np.int64)
    scale = 2.0**MASS_BITS
    for _ in range(2):
        carry, missing, largest = 0.0, 1 << MASS_BITS, 0
        for i in range(len(probs)):
            if probs[i] > 0.0:
                exact = probs[i] * scale
                mass = int(exact)
                carry += exact - mass
                if carry >= 1.0:
                    carry -= 1.0
                    mass += 1
                masses[i] = mass
                missing -= mass
                if mass > masses[largest]:
                    largest = i
        if abs(missing) < 1 << 10:
            break
        scale *= 1.0 + missing / 2.0**MASS_BITS
    masses[largest] += missing
    return masses


@compiled
def balance(masses: Array, table: Array, bits: int, mass_bits: int) -> None:
    """The alias table of Walker (1977), a number per bucket: the threshold, and in the last ``bits`` bits another unit.
    Each of 2^bits buckets holds the same mass: its own unit's up to the threshold, that of a larger unit above. The
    masses are integers that sum to 2^mass_bits, so nothing is rounded; they are used up."""
    share = 1 << (mass_bits - bits)
    donor = 0
    for start in range(1 << bits):
        owner = start
        while masses[owner] <= share:
            if masses[owner] == share:
                table[owner] = owner
                break
            while masses[donor] <= share:
                donor += 1
            table[owner] = (masses[owner] << bits) | donor
            masses[donor] -= share - masses[owner]
            if donor >= start:  # its own turn is still to come
                break
            owner = donor


@compiled
def build_table(probs: Floats, bits: int) -> Words:
    """The alias table of probs. Units from len(probs) on are padding: they own nothing."""
    masses = integer_masses(probs, 1 << bits)
    table = np.empty(1 << bits, np.int64)
    balance(masses, table, bits, MASS_BITS)
    return table.view(np.uint64)


@compiled
def fill_row(row: Array, table: Words, bits: int, k: int, key: np.uint64, words: Words) -> bool:
    """k draws into a row. False if a count has wrapped round: a byte that does takes 256 from the sum."""
    bucket_shift, low = U(MASS_BITS - bits), U(bits)
    below_bucket, below_threshold = (U(1) << bucket_shift) - U(1), (U(1) << low) - U(1)
    row[:] = 0
    for begin in range(0, k, len(words)):
        end = min(len(words), k - begin)
        for t in range(end):  # apart from the look-ups, so that it vectorises
            words[t] = hashed(key + U(begin + t) * GOLDEN) >> U(64 - MASS_BITS)
        for t in range(end):
            bucket = words[t] >> bucket_shift
            entry = table[bucket]
            unit = bucket if (words[t] & below_bucket) < (entry >> low) else entry & below_threshold
            row[unit] += 1
    total = 0
    for i in range(len(row)):
        total += row[i]
    return total == k


@compiled
def fill_mask(row: Array, chances: Words, key: np.uint64) -> None:
    """Independent marks in a row, 1 with probability chances[i] / 2^62, else 0."""
    for i in range(len(row)):
        row[i] = (hashed(key + U(i) * GOLDEN) >> U(64 - MASS_BITS)) < chances[i]


@compiled
def column_moments(rows: Array, moments: Floats, start: int, stop: int) -> None:
    """Mean squares of the columns start..stop, in float64. Blocks of columns stay in the nearest cache; four rows at
    a time spare it three visits of four."""
    size = len(rows)
    for left in range(start, stop, 1024):
        right = min(left + 1024, stop)
        sums = moments[left:right]
        sums[:] = 0.0
        whole = size - size % 4
        for r in range(0, whole, 4):
            a, b, c, d = rows[r, left:right], rows[r + 1, left:right], rows[r + 2, left:right], rows[r + 3, left:right]
            for i in range(right - left):
                w, x, y, z = np.float64(a[i]), np.float64(b[i]), np.float64(c[i]), np.float64(d[i])
                sums[i] += (w * w + x * x) + (y * y + z * z)
        for r in range(whole, size):
            a = rows[r, left:right]
            for i in range(right - left):
                sums[i] += np.float64(a[i]) * np.float64(a[i])
        for i in range(right - left):
            sums[i] /= size


@compiled
def scale_row(row: Array, counts: Array, scale: Array, products: Array) -> None:
    """products = row * (counts * scale)."""
    number = scale.dtype.type  # a count times a float32 would be a float64
    for i in range(len(row)):
        products[i] = row[i] * (number(counts[i]) * scale[i])


@compiled
def plan_draws(
    moments: Floats, weights: Floats, from_batch: bool, k: int, uniform_mix: float, bits: int, scale: Array
) -> Words:
    """The alias table of a usual call, and the scale 1 / (k p_i) of its noise. Probabilities are in proportion to
    weights, or to the roots of the moments. The table is empty if a unit is not finite or none can be drawn."""
    probs = np.empty(len(moments))
    total, drawable = 0.0, 0
    for i in range(len(moments)):
        probs[i] = np.sqrt(moments[i]) if from_batch else weights[i]
        total += probs[i] + 0.0 * moments[i]  # not finite if one of them is not
        drawable += probs[i] > 0.0
    if not (0.0 < total < np.inf):
        return np.empty(0, np.uint64)
    factor, share = (1.0 - uniform_mix) / total, uniform_mix / drawable
    for i in range(len(moments)):
        drawn = probs[i] > 0.0
        probs[i] = probs[i] * factor + share if drawn else 0.0
        scale[i] = 1.0 / max(k * probs[i], LEAST_RATE) if drawn else 0.0
    table: Words = build_table(probs, bits)
    return table


# What a job asks for. MOMENTS stands alone, since it takes columns; the others, which take rows, add up.
MOMENTS, COUNTS, MASK, PRODUCTS = 1, 2, 4, 8


@compiled
def do_rows(
    task: int,
    x: Array,
    counts: Array,
    scale: Array,
    products: Array,
    table: Words,
    bits: int,
    k: int,
    seed: np.uint64,
    start: int,
    stop: int,
) -> bool:
    """The task with the rows start..stop. False if a count has wrapped round."""
    words = np.empty(BLOCK, np.uint64)
    for r in range(start, stop):
        key = hashed(seed + U(r) * ROW_STEP)
        if task & MASK:
            fill_mask(counts[r], table, key)
        if task & COUNTS and not fill_row(counts[r], table, bits, k, key, words):
            return False
        if task & PRODUCTS:
            scale_row(x[r], counts[r], scale, products[r])
    return True


@compiled
def drop_rows(
    x: Array,
    weights: Floats,
    from_batch: bool,
    k: int,
    uniform_mix: float,
    bits: int,
    seed: np.uint64,
    counts: Array,
    scale: Array,
    products: Array,
) -> bool:
    """All of a usual call at once: in a small layer, a step that is a call of its own costs more than its work."""
    moments = np.empty(x.shape[1])
    column_moments(x, moments, 0, len(moments))
    table = plan_draws(moments, weights, from_batch, k, uniform_mix, bits, scale)
    if len(table) == 0:
        return False
    done: bool = do_rows(COUNTS | PRODUCTS, x, counts, scale, products, table, bits, k, seed, 0, len(x))
    return done


@compiled
def scale_rows(x: Array, counts: Array, scale: Array, products: Array) -> None:
    for r in range(len(x)):
        scale_row(x[r], counts[r], scale, products[r])


# A job for several threads: where they stand, what they do, sizes, and the addresses of the arrays.
JOB = np.dtype(
    [
        *((name, np.int64) for name in ("next", "end", "task", "step", "rows", "d", "bits", "k", "wrapped")),
        ("seed", np.uint64),
        *((name, np.int64) for name in ("x", "counts", "scale", "products", "table", "moments")),
    ]
)


@cache
def section_for(float_name: str, count_name: str) -> Any:
    """A callback that takes spans of a job until none is left. Any number of threads may run it on the same job."""
    number, count, job_type = getattr(numba, float_name), getattr(numba, count_name), numba.from_dtype(JOB)

    @compiled_callback(types.void(types.CPointer(job_type)))  # type: ignore[no-untyped-call]
    def section(pointer: Any) -> None:
        jobs = carray(pointer, 1)
        job = jobs[0]
        rows, d = job.rows, job.d
        x = carray(pointer_to(job.x, number), (rows, d))
        counts = carray(pointer_to(job.counts, count), (rows, d))
        scale = carray(pointer_to(job.scale, number), (d,))
        products = carray(pointer_to(job.products, number), (rows, d))
        table = carray(pointer_to(job.table, numba.uint64), (max(d, 1 << job.bits),))
        moments = carray(pointer_to(job.moments, numba.float64), (d,))
        start = next_of(jobs, job.step)
        while start < job.end and job.wrapped == 0:
            stop = min(start + job.step, job.end)
            if job.task == MOMENTS:
                column_moments(x, moments, start, stop)
            elif not do_rows(job.task, x, counts, scale, products, table, job.bits, job.k, job.seed, start, stop):
                job.wrapped = 1
            start = next_of(jobs, job.step)

    return section
