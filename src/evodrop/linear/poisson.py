"""Poisson counts by table, exactly.

A count costs 16 random bits: 2^16 units of mass are shared out by an alias table, floor(2^16 pmf(c)) of them to the
count c. What rounding cut off, and the tail that the table has no room for, are units of their own; who draws one of
those gets a count from exactly that remainder, computed from the pmf in double precision.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from evodrop.jit import compiled
from evodrop.kernels import balance

__all__ = ["UNITS", "UNIT_BITS", "build_tables", "count_of_remainder", "stirling"]

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

UNIT_BITS = 16
UNITS = 1 << UNIT_BITS
# A table has 2^bits entries of 16 bits: 16 - bits of threshold, and then the other count. It serves rates up to
# LARGEST_RATE[bits], where it has no room for a tail of 2^-9 at most. A rate larger than all of these has no table.
LARGEST_RATE = np.array([0.0, 0.0, 0.2411, 1.7125, 6.2149, 17.345, 42.519, 96.91, 211.35])
MOST_BITS = len(LARGEST_RATE) - 1
# log n! by Stirling's formula lacks this; the series serves n from 16 on.
HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)
STIRLING = np.array([0.0] + [math.lgamma(n + 1) - (n + 0.5) * math.log(n) + n - HALF_LOG_TAU for n in range(1, 16)])


@compiled
def bits_for(rate: float) -> int:
    """The bits of a rate's table, or 0 if there is none."""
    for bits in range(2, MOST_BITS + 1):
        if rate <= LARGEST_RATE[bits]:
            return bits
    return 0


@compiled
def place_tables(rates: Floats, present: Array, where: Array) -> int:
    """where[i] = 16 times the place of feature i in the pool, plus the bits of its table. Gives the pool's size."""
    size = 0
    for i in present:
        bits = bits_for(rates[i])
        where[i] = (size << 4) | bits
        size += 1 + ((1 << bits) >> 2)
    return size


@compiled
def fill_tables(rates: Floats, present: Array, where: Array, pool: Floats, tables: Array) -> None:
    masses, table = np.empty(1 << MOST_BITS, np.int64), np.empty(1 << MOST_BITS, np.int64)
    for i in present:
        place, bits = where[i] >> 4, where[i] & 15
        pool[place] = rates[i]
        if bits > 0:
            share_out(rates[i], bits, masses)
            balance(masses, table, bits, UNIT_BITS)
            for bucket in range(1 << bits):
                tables[4 * (place + 1) + bucket] = table[bucket]


def build_tables(rates: Floats, present: Array) -> tuple[Array, Floats]:
    """A pool of the features that are present, and where each begins in it: its rate, and then its table, four entries
    in the place of a float, so that both come in one line of the cache.
    """
    where = np.zeros(len(rates), np.int64)
    pool = np.zeros(place_tables(rates, present, where) + 1)  # a feature without a table still reads behind its rate
    fill_tables(rates, present, where, pool, pool.view(np.uint16))
    return where.astype(np.uint32) if len(pool) < 1 << 28 else where, pool


@compiled
def share_out(rate: float, bits: int, masses: Array) -> None:
    """floor(2^16 pmf(c)) units for every count c but the last, and what is left for the last: the remainder."""
    last = (1 << bits) - 1
    pmf = math.exp(-rate) * UNITS
    masses[last] = UNITS
    for count in range(last):
        masses[count] = int(pmf)
        masses[last] -= masses[count]
        pmf *= rate / (count + 1)


@compiled
def count_of_remainder(rate: float, bits: int, chance: float) -> int:
    """A count from what the table leaves; without a table, from the whole law."""
    if bits == 0:
        return int(count_from_peak(rate, chance))
    last = (1 << bits) - 1
    first = math.exp(-rate) * UNITS
    left, pmf = float(UNITS), first
    for count in range(last):
        left -= math.floor(pmf)
        pmf *= rate / (count + 1)
    left *= chance
    count, pmf = 0, first
    while True:
        left -= pmf - (math.floor(pmf) if count < last else 0.0)
        if left < 0.0 or (count > last and pmf < 1e-17):  # only rounding errors are left
            return count
        count += 1
        pmf *= rate / count


@compiled
def count_from_peak(rate: float, chance: float) -> int:
    """Inversion of a large rate's law with the likely counts first, in some sqrt(rate) steps."""
    up = down = int(rate)
    log_peak = up * math.log(rate / up) - (rate - up) - 0.5 * math.log(2.0 * math.pi * up) - stirling(up)
    above = below = math.exp(log_peak)
    chance -= above
    while chance >= 0.0 and above + below > 1e-18:
        up += 1
        above *= rate / up
        chance -= above
        if chance < 0.0:
            return up
        below *= down / rate
        down -= 1
        chance -= below
        if chance < 0.0:
            return down
    return int(rate)


@compiled
def stirling(n: float) -> float:
    if n < 16:
        return float(STIRLING[int(n)])
    square = n * n
    return (1 / 12 - (1 / 360 - (1 / 1260 - 1 / (1680 * square)) / square) / square) / n
