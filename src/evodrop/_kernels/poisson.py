"""Poisson counts by table, exactly.

A count costs 16 random bits: an alias table shares out 2^16 units of mass, floor(2^16 pmf(c)) of them to the count c.
What rounding cuts off, and the tail that the table has no room for, are units of their own; a draw that hits one of
those takes its count from exactly that remainder, computed from the pmf in double precision. A rate that no table
serves is drawn by transformed rejection.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from evodrop._checks import Array, Floats, Words
from evodrop._kernels.compile import compiled
from evodrop._kernels.rows import BLOCK, GOLDEN, U, add_draws, balance, build_table, hashed, row_sum

UNIT_BITS, SLOT_BITS = 16, 4
SLOT_MASK = (1 << SLOT_BITS) - 1
UNITS = 1 << UNIT_BITS
# A table has 2^bits entries of 16 bits: 16 - bits of threshold, and then the other count. It serves rates up to
# LARGEST_RATE[bits], where it has no room for a tail of 2^-9 at most. A rate larger than all of these has a table of
# one entry, 0, which sends every draw to large_count.
LARGEST_RATE = np.array([0.0, 0.0, 0.2411, 1.7125, 6.2149, 17.345, 42.519, 96.91])
MOST_BITS = len(LARGEST_RATE) - 1
# The words of a row: the tables read the first ones, and the rarer draws begin far behind.
RARE, LOST, REST, AGAIN = U(1 << 60), U(1 << 61), U(1 << 62), U(1 << 63)
# Many draws read tables of rates that are multiples of 1 / PER_RATE: one set for all units and calls.
PER_RATE, GRID_BITS = 16, 6
GRID_SIZE = int(PER_RATE * LARGEST_RATE[GRID_BITS])
BUCKET_BITS, BUCKET_SHIFT = np.uint16(GRID_BITS), np.uint16(UNIT_BITS - GRID_BITS)
LAST = np.uint16((1 << GRID_BITS) - 1)  # the count that sends a draw on
DRAWS_PER_UNIT = 2  # from so many on, Poisson counts are cheaper than single draws: measured at d = 768
LEAST_MANY = 64  # fewer draws than this are never many: the Poisson counts would leave most of them
# log n! by Stirling's formula lacks this; the series serves n from 16 on.
HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)
STIRLING = np.array([0.0] + [math.lgamma(n + 1) - (n + 0.5) * math.log(n) + n - HALF_LOG_TAU for n in range(1, 16)])


@compiled
def uniform(key: np.uint64, word: np.uint64) -> float:
    """A number in [0, 1) with 53 random bits."""
    return np.float64(hashed(key + word * GOLDEN) >> U(11)) * 2.0**-53


@compiled
def place_tables(rates: Floats, indices: Array, where: Array) -> int:
    """where[i] = 16 times the place where the table of feature i begins, plus its bits: a slot. Features that are not
    among the indices keep 0 and get no table. Gives the size of all tables."""
    for j in range(len(indices)):
        where[U(indices[U(j)])] = 1
    size = 0
    for i in range(len(rates)):
        if where[i] == 1:
            bits = max(np.searchsorted(LARGEST_RATE, rates[i]), 2) % len(LARGEST_RATE)  # 0 if no table serves the rate
            where[i] = (size << SLOT_BITS) | bits
            size += 1 << bits
    return size


@compiled
def fill_tables(rates: Floats, where: Array, tables: Array) -> None:
    masses, table = np.empty(1 << MOST_BITS, np.int64), np.empty(1 << MOST_BITS, np.int64)
    order = np.empty(len(masses) + 1, np.uint32)
    for i in range(len(rates)):
        place, bits = where[i] >> SLOT_BITS, where[i] & SLOT_MASK
        if bits > 0:
            share_out(rates[i], bits, masses)
            balance(masses, order, table, bits, UNIT_BITS)
            for bucket in range(1 << bits):
                tables[place + bucket] = table[bucket]


def build_tables(rates: Floats, indices: Array) -> tuple[Array, Array]:
    """Where the table of each feature among the indices begins, and the entries of all tables."""
    where = np.zeros(len(rates), np.int64)
    tables = np.zeros(place_tables(rates, indices, where), np.uint16)
    fill_tables(rates, where, tables)
    return where.astype(np.uint32) if len(tables) < 1 << (32 - SLOT_BITS) else where, tables


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
    """A count from what the table leaves."""
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
def large_count(rate: float, key: np.uint64, word: np.uint64) -> int:
    """A count of a rate that has no table."""
    stretch, bend, squeeze = shape_of(rate)
    return int(shaped_count(rate, stretch, bend, squeeze, key, word))


@compiled
def log_pmf(count: float, rate: float) -> float:
    """log(rate^count exp(-rate) / count!), where no term is much larger than count - rate."""
    if count == 0:
        return -rate
    return float(
        count * math.log(rate / count) + (count - rate) - 0.5 * math.log(2.0 * math.pi * count) - stirling(count)
    )


@compiled
def stirling(n: float) -> float:
    """What log n! has beyond Stirling's formula, for n >= 1."""
    if n < 16:
        return float(STIRLING[int(n)])
    square = float(n) * float(n)  # as integers, 1680 n^2 would wrap round from n = 10^8 on
    return (1 / 12 - (1 / 360 - (1 / 1260 - 1 / (1680 * square)) / square) / square) / n


def many_draws(k: int, d: int) -> bool:
    """Whether k draws of d units cost less by Poisson counts than one by one."""
    return k >= max(DRAWS_PER_UNIT * d, LEAST_MANY)


@cache
def grid_tables() -> Array:
    """The tables of the rates 0, 1/16, 2/16, ... that all calls share, and at last one that sends every draw on."""
    rates = np.arange(GRID_SIZE) / PER_RATE
    tables = np.full((GRID_SIZE + 1) << GRID_BITS, (1 << GRID_BITS) - 1, np.uint16)
    fill_tables(rates, (np.arange(GRID_SIZE) << (GRID_BITS + SLOT_BITS)) | GRID_BITS, tables)
    return tables


@compiled
def plan_many(probs: Floats, k: int, bits: int) -> Words:
    """What :func:`fill_many` reads: the alias tables of probs and of what the grid cuts off their rates, the sum of
    that, the rates of the units, and the places of their tables."""
    d, size = len(probs), 1 << bits
    plan = np.empty(2 * size + 1 + d + ((d + 1) >> 1), np.uint64)
    floats, cells, rests = plan[2 * size :].view(np.float64), plan[2 * size + 1 + d :].view(np.uint32), np.zeros(d)
    kappa, cut_off = k - 2.0 * math.sqrt(k), 0.0
    for i in range(d):
        rate = kappa * probs[i]
        cell = min(rate * PER_RATE, GRID_SIZE)
        if cell < GRID_SIZE:
            rests[i] = rate - math.floor(cell) / PER_RATE  # exact
        cut_off += rests[i]
        floats[1 + i] = rate
        cells[i] = np.uint32(cell) << np.uint32(GRID_BITS)
    plan[:size] = build_table(probs, bits)
    if cut_off > 0.0:
        plan[size : 2 * size] = build_table(rests / cut_off, bits)
    floats[0] = cut_off
    return plan


@compiled
def fill_many(row: Array, plan: Words, grid: Array, bits: int, k: int, key: np.uint64, words: Words) -> bool:
    """Mult(k; p) into a row for the price of the units. False if a count does not fit its type.

    The rates are kappa p_i, where kappa is a little less than k. Independent Poisson counts that sum to T are
    Mult(T; p), whatever T. A row whose T exceeds k, one in 44, is drawn again, which leaves them so; k - T further
    draws make them Mult(k; p). A rate is rounded down to the grid of the tables; what is cut off of all rates together
    is one more Poisson count, of draws among the units in proportion to what they lost.
    """
    size = 1 << bits
    floats, cells = plan[2 * size :].view(np.float64), plan[2 * size + 1 + len(row) :].view(np.uint32)
    cut_off, rates = floats[0], floats[1:]
    total = k + 1
    while total > k:
        used = key
        key = hashed(key + AGAIN * GOLDEN)  # for the next attempt, if there is one
        total = look_up(row, rates, cells, grid, used, words)
        rest = poisson(cut_off, used, LOST)
        total += rest
    add_draws(row, plan[size:], bits, LOST + U(1 << 40), rest, used, words[:BLOCK])
    add_draws(row, plan, bits, REST, k - total, used, words[:BLOCK])
    return bool(row_sum(row) == k)


@compiled
def look_up(row: Array, rates: Floats, cells: Array, grid: Array, key: np.uint64, words: Words) -> int:
    """Poisson counts from the tables of the grid into a row, and their sum. The look-ups have a loop of their own: all
    around them is done for many units at once."""
    random, places = words[:BLOCK], words[BLOCK : 3 * BLOCK].view(np.uint32)
    units, entries, total = random.view(np.uint16), words[3 * BLOCK :].view(np.uint16), 0
    for begin in range(0, len(row), len(units)):
        size = min(len(units), len(row) - begin)
        for t in range((size + 3) >> 2):
            random[t] = hashed(key + U((begin >> 2) + t) * GOLDEN)
        part, cell, rare = row[begin : begin + size], cells[begin : begin + size], False
        for j in range(size):
            places[j] = cell[j] + np.uint32(units[j] >> BUCKET_SHIFT)
        for j in range(size):
            entries[j] = grid[places[j]]
        for j in range(size):
            other = entries[j] & LAST
            is_own = np.uint16(units[j] << BUCKET_BITS) < np.uint16(entries[j] - other)
            part[j] = units[j] >> BUCKET_SHIFT if is_own else other
        for j in range(size):
            total += part[j]
            rare |= part[j] == LAST
        if rare:
            for i in range(begin, begin + size):
                if row[i] == LAST:
                    own, word = cells[i] >> np.uint32(GRID_BITS), RARE + (U(i) << U(20))
                    if own < GRID_SIZE:
                        count = count_of_remainder(own / PER_RATE, GRID_BITS, uniform(key, word))
                    else:
                        count = large_count(rates[i], key, word)
                    row[i] = count
                    total += count - np.int64(LAST)
    return total


@compiled
def poisson(rate: float, key: np.uint64, word: np.uint64) -> int:
    """A Poisson count of any rate."""
    if rate > 16.0:
        return int(large_count(rate, key, word))
    chance, count, pmf = uniform(key, word), 0, math.exp(-rate)
    while chance >= pmf and (count < rate or pmf > 1e-17):  # else only rounding errors are left
        chance -= pmf
        count += 1
        pmf *= rate / count
    return count


@compiled
def shape_of(rate: float) -> tuple[float, float, float]:
    """stretch, bend and squeeze of :func:`shaped_count`."""
    stretch = 0.931 + 2.53 * math.sqrt(rate)
    return stretch, 0.02483 * stretch - 0.059, 0.9277 - 3.6224 / (stretch - 2.0)


@compiled
def shaped_count(rate: float, stretch: float, bend: float, squeeze: float, key: np.uint64, word: np.uint64) -> int:
    """A count of a large rate, by transformed rejection with a squeeze (algorithm PTRS of Hoermann 1993).

    A uniform place is stretched to a count whose density has a known ratio to the pmf; most are accepted unseen.
    """
    while True:
        place, height = uniform(key, word) - 0.5, 1.0 - uniform(key, word + U(1))
        word += U(2)
        edge = 0.5 - abs(place)
        if edge == 0.0:
            continue
        count = math.floor((2.0 * bend / edge + stretch) * place + rate + 0.43)
        if edge >= 0.07 and height <= squeeze:
            return int(count)
        if count >= 0 and (edge >= 0.013 or height <= edge):
            density = height * (1.1239 + 1.1328 / (stretch - 3.4)) / (bend / (edge * edge) + stretch)
            if math.log(density) <= log_pmf(count, rate):
                return int(count)
