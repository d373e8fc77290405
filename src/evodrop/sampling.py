"""The fast exact sampler: alias tables and counter-based streams.

**Law.** Probabilities become integer masses that sum to 2^62 exactly, each within 2^-51 of its probability, and
a zero stays zero. An alias table with a power of two buckets splits the masses without any rounding. A draw is one
64-bit word: its top bits are the bucket, the next bits (62 in all) are compared with the bucket's threshold.
So a unit's chance is its mass / 2^62 to the last bit: no modulo bias, no float in the comparison.

**Streams.** Word t of row r is a hash of (seed, r, t), see :mod:`evodrop.stream`. Every row can be made alone, so the
result is a function of the arguments, whatever the number of threads.
"""

from __future__ import annotations

import numbers
import os
from typing import Any

import numpy as np
import numpy.typing as npt

from evodrop import stream
from evodrop.definitions import checked_masses
from evodrop.jit import compiled
from evodrop.threads import over_rows

__all__ = ["draw_counts", "draw_mask", "sample_counts"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[Any]
Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]

U = np.uint64  # in a kernel, an unsigned and a signed integer make a float: every operand wears its U
GOLDEN, ROW_STEP = U(stream.GOLDEN), U(stream.ROW_STEP)
(SHIFT_1, FACTOR_1), (SHIFT_2, FACTOR_2), (SHIFT_3, _) = ((U(shift), U(factor)) for shift, factor in stream.HASH)
MASS_BITS = stream.MASS_BITS
WORK_PER_THREAD = 1 << 16  # draws below which a second thread costs more than it saves


def sample_counts(probs: npt.ArrayLike, k: int, size: int, seed: int) -> npt.NDArray[np.int64]:
    """Independent exact draws of Mult(probs; k), one per row.

    Args:
        probs: (d,) masses, finite, not negative, not all zero; they are divided by their sum. Zeros are never drawn.
        k: number of draws per row, at least 1. A row costs O(k + d).
        size: number of rows.
        seed: integer in [0, 2^64). Same arguments, same counts, on any number of threads.

    Shape:
        (size, d); each row sums to k.

    Examples:
        >>> sample_counts([0.7, 0.0, 0.3], k=10, size=2, seed=1).sum(axis=1)
        array([10, 10])
    """
    masses = checked_masses(np.asarray(probs, np.float64), "probs")
    k, size = _checked_int(k, "k", 1, 2**62), _checked_int(size, "size", 0, 2**62)
    seed = _checked_int(seed, "seed", 0, 2**64 - 1)
    scaled = masses / masses.max()  # so that the sum of huge masses is finite
    return draw_counts(scaled / scaled.sum(), k, size, seed, os.cpu_count() or 1).astype(np.int64)


def draw_counts(probs: Floats, k: int, size: int, seed: int, threads: int) -> Integers:
    """Counts as in :func:`sample_counts` for probs that sum to 1, in the narrowest type that holds them all.

    Bytes come first. A byte that wraps takes 256 from its row's sum, so the sum tells, and the same words are then
    counted again in a wider type.
    """
    bits = (len(probs) - 1).bit_length()
    table = build_table(probs, bits)
    for dtype in (np.uint8, np.int32, np.int64):
        counts = np.empty((size, len(probs)), dtype)
        fitted: list[bool] = []

        def fill(start: int, stop: int, counts: Integers = counts, fitted: list[bool] = fitted) -> None:
            fitted.append(fill_counts(counts[start:stop], table, bits, k, U(seed), start))

        over_rows(fill, size, threads, WORK_PER_THREAD // (k + len(probs)) + 1)
        if all(fitted):
            break
    return counts


def draw_mask(keep: Floats, size: int, seed: int, threads: int) -> Bytes:
    """Independent bytes, 1 with probability ``keep[i]`` in column i, else 0."""
    chances = np.ceil(keep * 2.0**MASS_BITS).astype(np.uint64)
    mask = np.empty((size, len(keep)), np.uint8)

    def fill(start: int, stop: int) -> None:
        fill_mask(mask[start:stop], chances, U(seed), start)

    over_rows(fill, size, threads, WORK_PER_THREAD // len(keep) + 1)
    return mask


@compiled
def hashed(z: np.uint64) -> np.uint64:
    z = (z ^ (z >> SHIFT_1)) * FACTOR_1
    z = (z ^ (z >> SHIFT_2)) * FACTOR_2
    return z ^ (z >> SHIFT_3)


@compiled
def integer_masses(probs: Floats, size: int) -> Integers:
    """Integers that sum to 2^62 in proportion to probs. What rounding down cuts off is carried to the next unit.

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

    Each bucket holds the same mass: its own unit's up to the threshold, a richer unit's above. Integers, so that
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
def fill_counts(counts: Integers, table: Words, bits: int, k: int, seed: np.uint64, first: int) -> bool:
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
def fill_mask(mask: Bytes, chances: Words, seed: np.uint64, first: int) -> None:
    """Fill each row with independent bytes, 1 with probability chances[i] / 2^62."""
    for r in range(len(mask)):
        row = mask[r]
        key = hashed(seed + U(first + r) * ROW_STEP)
        for i in range(len(row)):
            row[i] = (hashed(key + U(i) * GOLDEN) >> U(64 - MASS_BITS)) < chances[i]


def _checked_int(value: int, name: str, least: int, most: int) -> int:
    if not (isinstance(value, numbers.Integral) and least <= value <= most):
        raise ValueError(f"sample_counts: {name} is {value!r}, but it is an integer from {least} to {most}")
    return int(value)
