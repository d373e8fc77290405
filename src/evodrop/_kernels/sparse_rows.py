"""The counts of a row: exact multinomial noise for the price of the row's non-zeros.

Of m ~ Mult(p; k) a row needs only the counts on its support S. With the rates k p_i and their sum over S, rate = k p_S:

1. Each feature of S draws c_i ~ Poisson(k p_i), independently. Their sum M is Poisson(rate), and given M they are
   multinomial with the probabilities p restricted to S.
2. The sum that m has on S is N ~ Binomial(k, p_S). It is drawn together with M so that the two are equal as often as
   two such numbers can be: N = M with probability min(1, binomial(M) / poisson(M)), else N comes from the law in
   proportion to max(0, binomial - poisson). They differ with probability p_S at most, so for sparse rows hardly ever.
3. If N > M, N - M draws from p on S are added; if N < M, M - N draws are taken away at random. Given N, the counts are
   then Mult(N; p on S), which makes them the counts of m on S, exactly.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from evodrop._checks import Array, Floats
from evodrop._kernels.compile import compiled, inlined
from evodrop._kernels.poisson import (
    LARGEST_RATE,
    SLOT_BITS,
    SLOT_MASK,
    UNIT_BITS,
    UNITS,
    build_tables,
    count_of_remainder,
    shape_of,
    shaped_count,
    stirling,
    uniform,
)
from evodrop._kernels.rows import GOLDEN, U, hashed
from evodrop.noise import Noise

CLEAN, EQUAL, KEPT, DRAWN = range(4)  # no noise; kept with one probability for all, or each with its own; drawn
# The words of a row: the tables read the first ones, and the rarer draws begin far behind.
RARE, COUPLING, EXCHANGE = U(1 << 60), U(1 << 61), U(1 << 62)
LEAST = 1e-300  # a feature whose square is 0 in floating point is never drawn, and never 0 / 0


class RowNoise(NamedTuple):
    """What corrupts the rows of a matrix."""

    scheme: int
    k: int
    rates: Floats  # (d,): k p_i if features are drawn, else the keep probabilities
    tables: Array  # as of poisson.build_tables
    slots: Array  # for each non-zero, the slot of its feature
    scaled: Floats  # for each non-zero, its value over the rate of its feature
    row_rates: Floats  # for each row, the sum of the rates of its features
    large: Floats  # (m, 4): each rate that has no table, and its shape; a slot without bits is a place in here


def row_noise(noise: Noise | None, indptr: Array, indices: Array, data: Array) -> RowNoise:
    """The noise of the rows of a CSR matrix.

    Args:
        noise: on d features, or None.
        indptr, indices, data: the matrix.
    """
    none, where, tables = np.zeros(0), np.zeros(0, np.uint32), np.zeros(0, np.uint16)
    large = np.zeros((0, 4))
    if noise is None:
        return RowNoise(CLEAN, 0, none, tables, where, none, none, large)
    chances, k = noise
    rates = np.maximum(chances if k is None else k * chances, LEAST)
    if not np.isfinite(rates).all():  # a kernel would draw for ever
        raise ValueError("the probabilities of the dropout are not finite; divide X by its largest value")
    equal = bool((rates == rates[0]).all())
    if k is None:
        where = np.zeros(len(rates), np.uint32)
    elif equal:  # one table serves all features
        where, tables = build_tables(rates[:1], np.zeros(1, np.int64))
        large = number_large(rates[:1], where)
        where = np.repeat(where, len(rates))
    else:
        where, tables = build_tables(rates, indices)
        large = number_large(rates, where)
    if len(tables) < len(large):  # a draw looks at its place there, too, though for nothing
        tables = np.append(tables, np.zeros(len(large) - len(tables), np.uint16))
    slots, scaled, row_rates = spread(indptr, indices, data, rates, where)
    scheme = DRAWN if k is not None else EQUAL if equal else KEPT
    return RowNoise(scheme, k or 0, rates, tables, slots, scaled, row_rates, large)


@compiled
def number_large(rates: Floats, where: Array) -> Floats:
    """``large`` of a :class:`RowNoise`; the slots of its rates are changed to their places in it."""
    large = np.empty(((rates > LARGEST_RATE[-1]).sum(), 4))
    place = 0
    for i in range(len(rates)):
        if rates[i] > LARGEST_RATE[-1]:
            stretch, bend, squeeze = shape_of(rates[i])
            large[place, 0], large[place, 1], large[place, 2], large[place, 3] = rates[i], stretch, bend, squeeze
            where[i] = place << SLOT_BITS
            place += 1
    return large


@compiled
def spread(indptr: Array, indices: Array, data: Array, rates: Floats, where: Array) -> tuple[Array, Floats, Floats]:
    """slots, scaled and row_rates of a :class:`RowNoise`: what a row needs of its features, in the order of its
    non-zeros. An epoch reads them one after the other, and looks up a feature for its weight and little else."""
    slots, scaled = np.empty(len(indices), where.dtype), np.empty(len(indices))
    row_rates = np.zeros(len(indptr) - 1)
    for row in range(len(row_rates)):
        for j in range(indptr[row], indptr[row + 1]):
            i = U(indices[U(j)])
            slots[U(j)] = where[i]
            scaled[U(j)] = data[U(j)] / rates[i]
            row_rates[row] += rates[i]
    return slots, scaled, row_rates


@compiled
def log_ratio(total: int, k: int, rate: float) -> float:
    """log(binomial(total) / poisson(total)) for k trials of mean ``rate`` < k; no term exceeds total or rate."""
    rest = k - total
    if rest < 0:
        return -np.inf
    if rest == 0:
        orders = 0.5 * math.log(2 * math.pi * k) - k
    else:
        orders = -(rest + 0.5) * math.log1p(-total / k) - total - stirling(rest)
    return float(orders + stirling(k) + rest * math.log1p(-rate / k) + rate)


@compiled
def coupled_total(total: int, k: int, rate: float, key: np.uint64) -> int:
    """N ~ Binomial(k, rate / k), equal to ``total`` ~ Poisson(rate) as often as can be."""
    if rate >= k:
        return k
    chance = uniform(key, COUPLING)
    # Without logarithms first: log(1 - x) >= -x - x^2 up to x = 1/2, and exp(x) >= 1 + x.
    n, p = float(total), rate / k
    if (
        2.0 * max(n, rate) < k
        and chance <= 1.0 - n * (n - 1.0) / (2.0 * k) - n * n * n / (3.0 * k * k) + n * p - (k - n) * p * p
    ):
        return total
    log_chance = log_ratio(total, k, rate)
    if log_chance >= 0.0 or chance < math.exp(log_chance):
        return total
    return int(total_of_excess(k, rate, uniform(key, COUPLING + U(1))))


@compiled
def total_of_excess(k: int, rate: float, chance: float) -> int:
    """A number from the law in proportion to max(0, binomial - poisson).

    The ratio binomial / poisson is largest at the peak, and above 1 on an interval around it. Poisson probabilities are
    taken relative to that of the peak.
    """
    peak = min(k, int(rate) + 1)
    highest = math.exp(log_ratio(peak, k, rate))
    weight, left = 0.0, np.inf
    for _ in range(2):  # first to weigh the interval, then to find the place in it
        n, ratio, poisson = peak, highest, 1.0
        while ratio > 1.0:
            weight += (ratio - 1.0) * poisson
            left -= (ratio - 1.0) * poisson
            if left < 0.0:
                return n
            ratio *= (1.0 - n / k) / (1.0 - rate / k)
            n += 1
            poisson *= rate / n
        n, ratio, poisson = peak, highest, 1.0
        while n > 0:
            poisson *= n / rate
            n -= 1
            ratio *= (1.0 - rate / k) / (1.0 - n / k)
            if ratio <= 1.0:
                break
            weight += (ratio - 1.0) * poisson
            left -= (ratio - 1.0) * poisson
            if left < 0.0:
                return n
        left = chance * weight
    return peak


@compiled
def exchange(counts: Array, rates: Floats, total: int, wanted: int, key: np.uint64) -> None:
    """Add draws in proportion to the rates, or take draws away at random, until the counts sum to ``wanted``."""
    word, size = EXCHANGE, len(rates)
    steps = np.cumsum(rates) if wanted > total else np.cumsum(counts[:size].astype(np.float64))
    full = counts[:size].copy()
    while total != wanted:
        place = uniform(key, word) * steps[-1]
        word += U(1)
        unit = min(np.searchsorted(steps, place, side="right"), size - 1)
        if wanted > total:
            counts[unit] += 1
            total += 1
        elif place - (steps[unit] - full[unit]) < counts[unit]:  # else that draw was taken away before
            counts[unit] -= 1
            total -= 1


# A row is passed as whole arrays with its start and stop, and these functions are written into the loop over the rows:
# a slice, and an array out of a tuple, count their references, which would take longer than the work on a short row.


@inlined
def keep_some(
    indices: Array,
    start: int,
    stop: int,
    equal: bool,
    keep: Floats,
    scaled: Floats,
    key: np.uint64,
    words: Array,
    values: Floats,
) -> None:
    """values = the row from start to stop times Bernoulli noise: its value over the keep probability, or 0."""
    for j in range(stop - start):
        words[j] = hashed(key + U(j) * GOLDEN) >> U(12)
    if equal:  # one probability for all: the loop vectorises
        same = keep[0]
        for j in range(stop - start):
            values[j] = scaled[U(start + j)] * np.float64((np.float64(words[j]) + 0.5) * 2.0**-52 < same)
    else:
        for j in range(stop - start):
            own = keep[U(indices[U(start + j)])]
            values[j] = scaled[U(start + j)] * np.float64((np.float64(words[j]) + 0.5) * 2.0**-52 < own)


@inlined
def draw_row(
    indices: Array,
    start: int,
    stop: int,
    rates: Floats,
    tables: Array,
    slots: Array,
    scaled: Floats,
    k: int,
    rate: float,
    key: np.uint64,
    large: Floats,
    words: Array,
    units: Array,
    counts: Array,
    places: Array,
    values: Floats,
) -> None:
    """values = the row from start to stop, whose rates sum to ``rate``, times its noise m_i / (k p_i). ``units`` are
    the words as 16-bit numbers."""
    size, rare = stop - start, 0
    for t in range((size + 3) >> 2):
        words[t] = hashed(key + U(t) * GOLDEN)
    total = np.int64(0)
    for j in range(size):
        slot = np.int64(slots[U(start + j)])
        bits = slot & SLOT_MASK
        target = np.int64(units[j]) << bits
        bucket, low = target >> UNIT_BITS, target & (UNITS - 1)
        entry = np.int64(tables[U((slot >> SLOT_BITS) + bucket)])
        last = (1 << bits) - 1
        other = entry & last
        # The bucket's own count below the threshold, else the other: without a branch, which is unpredictable.
        count = other ^ ((bucket ^ other) & ((low - (entry - other)) >> 63))
        counts[j] = count
        values[j] = scaled[U(start + j)] * count
        total += count
        places[U(rare)] = j
        rare += count == last
    for r in range(rare):  # what the tables do not give; apart, so that the loop above has no branch
        j = places[U(r)]
        slot = np.int64(slots[U(start + j)])
        bits, place = slot & SLOT_MASK, slot >> SLOT_BITS
        word = RARE + (U(j) << U(20))  # the words are far behind those of the tables, and 2^20 apart
        if bits == 0:
            count = shaped_count(large[place, 0], large[place, 1], large[place, 2], large[place, 3], key, word)
        else:
            count = count_of_remainder(rates[U(indices[U(start + j)])], bits, uniform(key, word))
        total += count - counts[j]
        counts[j] = count
        values[j] = scaled[U(start + j)] * count
    wanted = coupled_total(total, k, rate, key)
    if wanted != total:
        own_rates = np.empty(size)
        for j in range(size):
            own_rates[j] = rates[U(indices[U(start + j)])]
        exchange(counts, own_rates, total, wanted, key)
        for j in range(size):
            values[j] = scaled[U(start + j)] * counts[j]
