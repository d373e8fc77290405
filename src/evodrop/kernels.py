"""The kernels: machine code for one thread, and nothing else. Who calls them splits rows, checks and allocates.

They stand in one file because numba's cache does not notice when a kernel in another file has changed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from evodrop import stream
from evodrop.definitions import LEAST_RATE
from evodrop.jit import compiled

__all__ = ["build_table", "column_moments", "drop_rows", "fill_chances", "fill_counts", "fill_mask", "scale_rows"]

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]

U = np.uint64  # in a kernel, an unsigned and a signed integer make a float: every operand wears its U
GOLDEN, ROW_STEP = U(stream.GOLDEN), U(stream.ROW_STEP)
(SHIFT_1, FACTOR_1), (SHIFT_2, FACTOR_2), (SHIFT_3, _) = ((U(shift), U(factor)) for shift, factor in stream.HASH)
MASS_BITS = stream.MASS_BITS


@compiled
def hashed(z: np.uint64) -> np.uint64:
    z = (z ^ (z >> SHIFT_1)) * FACTOR_1
    z = (z ^ (z >> SHIFT_2)) * FACTOR_2
    return z ^ (z >> SHIFT_3)


@compiled
def integer_masses(probs: Floats, size: int) -> Array:
    """Array that sum to 2^62 in proportion to probs. What rounding down cuts off is carried to the next unit.

    The floats miss a sum of 1 by their rounding errors: all units share that in a second pass, and the largest takes
    what is left, less than 2^-52 of the whole.
    """
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
def build_table(probs: Floats, bits: int) -> Words:
    """The alias table of Walker (1977), a word per bucket: the threshold, and in the last ``bits`` bits the other unit.

    Each bucket holds the same mass: its own unit's up to the threshold, a richer unit's above. Array, so that
    the books balance to the last bit. Units from len(probs) on are padding: they own nothing.
    """
    masses = integer_masses(probs, 1 << bits)
    share = 1 << (MASS_BITS - bits)
    table = np.empty(1 << bits, np.int64)
    giver = 0
    for start in range(1 << bits):
        taker = start
        while masses[taker] <= share:
            if masses[taker] == share:
                table[taker] = taker
                break
            while masses[giver] <= share:
                giver += 1
            table[taker] = (masses[taker] << bits) | giver
            masses[giver] -= share - masses[taker]
            if giver >= start:  # its turn as a taker is still to come
                break
            taker = giver
    return table.view(np.uint64)


@compiled
def fill_counts(counts: Array, table: Words, bits: int, k: int, seed: np.uint64, first: int) -> bool:
    """Fill each row with k draws; row 0 is row ``first`` of the stream. False as soon as a count has wrapped round."""
    bucket_shift, low = U(MASS_BITS - bits), U(bits)
    below_bucket, below_threshold = (U(1) << bucket_shift) - U(1), (U(1) << low) - U(1)
    for r in range(len(counts)):
        row = counts[r]
        row[:] = 0
        key = hashed(seed + U(first + r) * ROW_STEP)
        for t in range(k):
            word = hashed(key + U(t) * GOLDEN) >> U(64 - MASS_BITS)
            bucket = word >> bucket_shift
            entry = table[bucket]
            unit = bucket if (word & below_bucket) < (entry >> low) else entry & below_threshold
            row[unit] += 1
        total = 0
        for i in range(len(row)):
            total += row[i]
        if total != k:
            return False
    return True


@compiled
def fill_mask(mask: Array, chances: Words, seed: np.uint64, first: int) -> None:
    """Fill each row with independent bytes, 1 with probability chances[i] / 2^62."""
    for r in range(len(mask)):
        row = mask[r]
        key = hashed(seed + U(first + r) * ROW_STEP)
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
def fill_chances(weights: Floats, rms: Floats, k: int, uniform_mix: float, probs: Floats, scale: Array) -> bool:
    """Probabilities in proportion to weights, and the scale 1 / (k p_i) of their noise. False if a unit is not finite
    or none can be drawn."""
    total, drawable = 0.0, 0
    for i in range(len(weights)):
        if not np.isfinite(rms[i]):
            return False
        total += weights[i]
        drawable += weights[i] > 0.0
    if total == 0.0:
        return False
    for i in range(len(weights)):
        if weights[i] > 0.0:
            probs[i] = (1.0 - uniform_mix) * weights[i] / total + uniform_mix / drawable
            scale[i] = 1.0 / max(k * probs[i], LEAST_RATE)
        else:
            probs[i] = scale[i] = 0.0
    return True


@compiled
def scale_rows(rows: Array, counts: Array, scale: Array, products: Array) -> None:
    """products = rows * (counts * scale)."""
    number = scale.dtype.type  # a count times a float32 would be a float64
    for r in range(len(rows)):
        row, count, product = rows[r], counts[r], products[r]
        for i in range(len(row)):
            product[i] = row[i] * (number(count[i]) * scale[i])


@compiled
def drop_rows(
    rows: Array,
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
    """All of a usual call at once: in a small layer, each step that is a call of its own costs more than its work."""
    rms = np.empty(rows.shape[1])
    column_moments(rows, rms, 0, len(rms))
    for i in range(len(rms)):
        rms[i] = np.sqrt(rms[i])
    probs = np.empty(len(rms))
    if not fill_chances(rms if from_batch else weights, rms, k, uniform_mix, probs, scale):
        return False
    if not fill_counts(counts, build_table(probs, bits), bits, k, seed, 0):
        return False
    scale_rows(rows, counts, scale, products)
    return True
