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
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from evodrop import stream
from evodrop.jit import compiled
from evodrop.kernels import hashed
from evodrop.linear.poisson import UNIT_BITS, UNITS, count_of_remainder, stirling

__all__ = ["Noise", "draw_row", "keep_some"]

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

U = np.uint64
GOLDEN = U(stream.GOLDEN)
# The words of a row: the tables read the first ones, and the rarer draws begin far behind.
REMAINDER, COUPLING, EXCHANGE = U(1 << 40), U(1 << 41), U(1 << 42)


class Noise(NamedTuple):
    """What corrupts a row. The mask is -1, or 0 if all features are alike and have one entry."""

    scheme: int
    k: int
    mask: int
    where: Array  # as of poisson.build_tables
    pool: Floats  # likewise; for Bernoulli noise the keep probabilities
    tables: Array  # the pool as 16-bit numbers


@compiled
def uniform(key: np.uint64, word: np.uint64) -> float:
    """A number in [0, 1) with 53 random bits."""
    return np.float64(hashed(key + word * GOLDEN) >> U(11)) * 2.0**-53


@compiled
def log_ratio(total: int, k: int, rate: float) -> float:
    """log(binomial(total) / poisson(total)) for k trials with mean ``rate`` < k: no term is larger than the total."""
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

    The ratio binomial / poisson is largest at the peak, and above 1 on an interval around it. The common factor of
    all poisson probabilities does not matter: it is 1 at the peak.
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
    steps = np.cumsum(rates[:size]) if wanted > total else np.cumsum(counts[:size].astype(np.float64))
    full = counts[:size].copy()
    while total != wanted:
        place = uniform(key, word) * steps[-1]
        word += U(1)
        unit = min(np.searchsorted(steps, place, side="right"), size - 1)
        if wanted > total:
            if rates[unit] > 0.0:  # else the place is a rounding error
                counts[unit] += 1
                total += 1
        elif place - (steps[unit] - full[unit]) < counts[unit]:  # else that draw was taken away before
            counts[unit] -= 1
            total -= 1


# A row is passed as an array with its start and stop: a slice of an array counts its references, twice a row, and that
# takes as long as ten non-zeros.


@compiled
def keep_some(
    indices: Array,
    data: Array,
    start: int,
    stop: int,
    noise: Noise,
    key: np.uint64,
    words: Array,
    values: Floats,
) -> None:
    """values = the row from start to stop times Bernoulli noise: its value over the keep probability, or 0."""
    for j in range(stop - start):
        words[j] = hashed(key + U(j) * GOLDEN) >> U(12)
    for j in range(stop - start):
        chance = noise.pool[U(indices[U(start + j)] & noise.mask)]
        kept = np.float64((np.float64(words[j]) + 0.5) * 2.0**-52 < chance)
        values[j] = data[U(start + j)] / chance * kept


@compiled
def draw_row(
    indices: Array,
    data: Array,
    start: int,
    stop: int,
    noise: Noise,
    key: np.uint64,
    words: Array,
    units: Array,
    counts: Array,
    values: Floats,
) -> None:
    """values = the row from start to stop times its noise m_i / (k p_i). ``units`` are the words as 16-bit numbers."""
    size = stop - start
    for t in range((size + 3) >> 2):
        words[t] = hashed(key + U(t) * GOLDEN)
    rate, total = 0.0, np.int64(0)
    for j in range(size):
        at = np.int64(noise.where[U(indices[U(start + j)] & noise.mask)])
        place, bits = at >> 4, at & 15
        feature_rate = noise.pool[U(place)]
        target = np.int64(units[j]) << bits
        bucket, low = target >> UNIT_BITS, target & (UNITS - 1)
        entry = np.int64(noise.tables[U(4 * (place + 1) + bucket)])
        last = (1 << bits) - 1
        other = entry & last
        # The bucket's own count below the threshold, else the other: without a branch, which nobody could predict.
        count = other ^ ((bucket ^ other) & ((low - (entry - other)) >> 63))
        if count == last:
            count = count_of_remainder(feature_rate, bits, uniform(key, REMAINDER + U(j)))
        counts[j] = count
        values[j] = data[U(start + j)] * (count / feature_rate)
        rate += feature_rate
        total += count
    wanted = coupled_total(total, noise.k, rate, key)
    if wanted != total:
        rates = np.empty(size)
        for j in range(size):
            rates[j] = noise.pool[noise.where[U(indices[U(start + j)] & noise.mask)] >> 4]
        exchange(counts, rates, total, wanted, key)
        for j in range(size):
            values[j] = data[U(start + j)] * (counts[j] / rates[j])
