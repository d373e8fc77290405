"""The counts of a row: exact multinomial noise for the price of the row's non-zeros.

Of m ~ Mult(p; k) a row needs only the counts on its support S. With the rates k p_i and their sum over S, rate = k p_S:

1. Each feature of S draws c_i ~ Poisson(k p_i), independently. Their sum M is Poisson(rate), and given M they are
   multinomial with the probabilities p restricted to S.
2. The sum that m has on S is N ~ Binomial(k, p_S). It is drawn together with M so that the two are equal as often as
   two such numbers can be: N = M with probability min(1, binomial(M) / poisson(M)), else N comes from the law in
   proportion to max(0, binomial - poisson). They differ with probability p_S at most, so for sparse rows hardly ever.
3. If N > M, N - M draws from p on S are added; if N < M, M - N draws are taken away at random. Given N, the counts are
   then Mult(N; p on S), which makes them the counts of m on S, exactly.

**Poisson counts** cost 16 random bits each: 2^16 units of mass are shared out by an alias table, floor(2^16 pmf(c)) of
them to the count c. What rounding cut off, and the tail that the table has no room for, are units of their own; who
draws one of those gets a count from exactly that remainder, computed from the pmf in double precision.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from evodrop import stream
from evodrop.jit import compiled
from evodrop.kernels import balance, hashed

__all__ = ["FEATURE", "build_tables", "draw_row"]

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

UNIT_BITS = 16
UNITS = 1 << UNIT_BITS
# A feature's rate k p_i; and where its table begins, times 16, plus the bits of the table's size. An entry of the table
# has 16 - bits bits of threshold, then the other count.
FEATURE = np.dtype([("rate", np.float64), ("table", np.int64)])
# A table of 2^bits entries serves rates up to LARGEST_RATE[bits]: then it has no room for a tail of 2^-9 at most.
# Tables have 4 to 256 entries; a larger rate has none.
LARGEST_RATE = np.array([0.0, 0.0, 0.2411, 1.7125, 6.2149, 17.345, 42.519, 96.91, 211.35])
MOST_BITS = len(LARGEST_RATE) - 1
# log n! by Stirling's formula lacks this; the series serves n from 16 on.
HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)
STIRLING = np.array([0.0] + [math.lgamma(n + 1) - (n + 0.5) * math.log(n) + n - HALF_LOG_TAU for n in range(1, 16)])

U = np.uint64
GOLDEN = U(stream.GOLDEN)
# The words of a row: the tables read the first ones, and the rarer draws begin far behind.
REMAINDER, COUPLING, EXCHANGE = U(1 << 40), U(1 << 41), U(1 << 42)


@compiled
def uniform(key: np.uint64, word: np.uint64) -> float:
    """A number in [0, 1) with 53 random bits."""
    return np.float64(hashed(key + word * GOLDEN) >> U(11)) * 2.0**-53


@compiled
def bits_for(rate: float) -> int:
    """The bits of a rate's table, or 0 if there is none."""
    for bits in range(2, MOST_BITS + 1):
        if rate <= LARGEST_RATE[bits]:
            return bits
    return 0


@compiled
def build_tables(rates: Floats, present: Array, features: Array) -> Array:
    """Fill in the features that are present; gives the entries of their tables."""
    size = 0
    for i in present:
        bits = bits_for(rates[i])
        features[i].rate = rates[i]
        features[i].table = (size << 4) | bits
        size += 1 << bits
    entries = np.zeros(size, np.uint16)
    masses, table = np.empty(1 << MOST_BITS, np.int64), np.empty(1 << MOST_BITS, np.int64)
    for i in present:
        first, bits = features[i].table >> 4, features[i].table & 15
        if bits > 0:
            share_out(rates[i], bits, masses)
            balance(masses, table, bits, UNIT_BITS)
            for bucket in range(1 << bits):
                entries[first + bucket] = table[bucket]
    return entries


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
    return total_of_excess(k, rate, uniform(key, COUPLING + U(1)))


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


@compiled
def draw_row(
    indices: Array,
    data: Array,
    start: int,
    stop: int,
    features: Array,
    mask: int,
    entries: Array,
    k: int,
    key: np.uint64,
    words: Array,
    units: Array,
    counts: Array,
    values: Floats,
) -> None:
    """values = the row from start to stop times its noise m_i / (k p_i). ``units`` are ``words`` as 16-bit numbers.

    Feature i has the record i & mask: its own, or one for all.
    """
    size = stop - start
    for t in range((size + 3) >> 2):
        words[t] = hashed(key + U(t) * GOLDEN)
    rate, total = 0.0, 0
    for j in range(size):
        feature = features[U(indices[U(start + j)] & mask)]
        bits = feature.table & 15
        last = (1 << bits) - 1
        place = np.int64(units[j]) << bits
        bucket, low = place >> UNIT_BITS, place & (UNITS - 1)
        entry = np.int64(entries[U((feature.table >> 4) + bucket)])
        other = entry & last
        # The bucket's own count below the threshold, else the other: without a branch, which nobody could predict.
        count = other ^ ((bucket ^ other) & ((low - (entry - other)) >> 63))
        if count == last:
            count = count_of_remainder(feature.rate, bits, uniform(key, REMAINDER + U(j)))
        counts[j] = count
        values[j] = data[U(start + j)] * (count / feature.rate)
        rate += feature.rate
        total += count
    wanted = coupled_total(total, k, rate, key)
    if wanted != total:
        rates = np.empty(size)
        for j in range(size):
            rates[j] = features[U(indices[U(start + j)] & mask)].rate
        exchange(counts, rates, total, wanted, key)
        for j in range(size):
            values[j] = data[U(start + j)] * (counts[j] / rates[j])
