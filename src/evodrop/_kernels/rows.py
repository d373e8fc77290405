"""Random words, alias tables, masks, second moments, and rows times noise: machine code for one row or one thread.

**The stream.** Word t of row r is ``hashed(hashed(seed + r * ROW_STEP) + t * GOLDEN)`` modulo 2^64, where ``hashed`` is
the finaliser of SplitMix64 (Steele, Lea and Flood 2014): for each (shift, factor) of ``HASH``,
``z = (z ^ (z >> shift)) * factor``. A seed, a row and a counter give the word: no state, so any row can be made by any
thread, and made again.
"""

from __future__ import annotations

import numpy as np

from evodrop._checks import Array, Floats, Words
from evodrop._kernels.compile import compiled
from evodrop.noise import LEAST_RATE

U = np.uint64  # in a kernel, an unsigned and a signed integer make a float, so both operands are unsigned
GOLDEN = U(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio, odd: the step between the words of a row
ROW_STEP = U(0xD1342543DE82EF95)  # another odd number: the step between rows
RANK_STEP = 0xDA942042E4DD58B5  # and another, for torch to add: the step between the ranks of a process group
HASH = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))
(SHIFT_1, FACTOR_1), (SHIFT_2, FACTOR_2), (SHIFT_3, _) = ((U(shift), U(factor)) for shift, factor in HASH)
MASS_BITS = 62  # of a word's 64 bits decide a draw: masses that sum to 2^62 fit a signed integer
OTHER_BITS = MASS_BITS - 16  # the bits of a chance that 16 bits of a word leave undecided
TIE = U(1 << 60)  # the words of those bits begin far behind those of any row
LEAST_TOTAL = 2.0**-400  # of weights: squares of roots that sum to more have all bits, but for the tiniest of them
BLOCK = 128  # words hashed at a time, a multiple of 32


@compiled
def hashed(z: np.uint64) -> np.uint64:
    z = (z ^ (z >> SHIFT_1)) * FACTOR_1
    z = (z ^ (z >> SHIFT_2)) * FACTOR_2
    return z ^ (z >> SHIFT_3)


@compiled
def integer_masses(probs: Floats, size: int) -> Array:
    """Integers that sum to 2^62 in proportion to probs, each rounded. The floats miss a sum of 1 by their rounding
    errors: all units share that in a second pass, and the largest takes what little is left."""
    masses = np.zeros(size, np.int64)
    scale, missing = 2.0**MASS_BITS, 0
    for _ in range(2):
        missing = 1 << MASS_BITS
        for i in range(len(probs)):
            masses[i] = np.int64(np.rint(probs[i] * scale))
            missing -= masses[i]
        scale *= 1.0 + missing / 2.0**MASS_BITS
    masses[np.argmax(masses)] += missing
    return masses


@compiled
def balance(masses: Array, order: Array, table: Array, bits: int, mass_bits: int) -> None:
    """The alias table of Walker (1977), a number per bucket: the threshold, and in the last ``bits`` bits another unit.
    Each of 2^bits buckets holds the same mass: its own unit's up to the threshold, that of a larger unit above. The
    masses are integers that sum to 2^mass_bits, so nothing is rounded. ``order`` is memory for 2^bits + 1 units.

    Units of less than a share wait at the end of ``order``, the givers at its beginning. Every step fills one bucket:
    that of the giver, if a share or less is left of it, and the next giver adds what lacks; else that of the next unit
    that waits. Both are computed and one is chosen, since no processor could foresee which.
    """
    share, size = 1 << (mass_bits - bits), 1 << bits
    giver, waiting = 0, size
    for i in range(size):
        waits = masses[i] < share
        waiting -= waits
        order[waiting if waits else giver] = i
        giver += not waits
    order[size] = 0  # read, and not used, after the last giver
    giver, waiting = 0, size - 1
    other = order[0]
    left = masses[other]
    for _ in range(size):
        ends = left <= share
        owner = other if ends else order[waiting]
        mass = left if ends else masses[owner]
        giver += ends
        waiting -= not ends
        other = order[giver]
        left = (masses[other] if ends else left) - (share - mass)
        table[owner] = owner if mass == share else (mass << bits) | other


@compiled
def build_table(probs: Floats, bits: int) -> Words:
    """The alias table of probs. Units from len(probs) on are padding: they own nothing."""
    masses = integer_masses(probs, 1 << bits)
    table = np.empty(1 << bits, np.int64)
    balance(masses, np.empty(len(masses) + 1, np.uint32), table, bits, MASS_BITS)
    return table.view(np.uint64)


@compiled
def add_draws(row: Array, table: Words, bits: int, first: np.uint64, size: int, key: np.uint64, words: Words) -> None:
    """Add ``size`` draws to a row, by the words from ``first`` on."""
    bucket_shift, low = U(MASS_BITS - bits), U(bits)
    below_bucket, below_threshold = (U(1) << bucket_shift) - U(1), (U(1) << low) - U(1)
    for begin in range(0, size, len(words)):
        end = min(len(words), size - begin)
        for t in range((end + 31) & ~31):  # apart from the look-ups, and in whole vectors
            words[t] = hashed(key + (first + U(begin + t)) * GOLDEN) >> U(64 - MASS_BITS)
        for t in range(end):
            bucket = words[t] >> bucket_shift
            entry = table[bucket]
            unit = bucket if (words[t] & below_bucket) < (entry >> low) else entry & below_threshold
            row[unit] += 1


@compiled
def row_sum(row: Array) -> int:
    """It shows whether a count has wrapped round: a byte that does takes 256 from the sum."""
    total = 0
    for i in range(len(row)):
        total += row[i]
    return total


@compiled
def fill_row(row: Array, table: Words, bits: int, k: int, key: np.uint64, words: Words) -> bool:
    """k draws into a row of zeros. False if a count has wrapped round."""
    add_draws(row, table, bits, U(0), k, key, words)
    return k < 1 << 8 or bool(row_sum(row) == k)


@compiled
def fill_mask(row: Array, plan: Words, key: np.uint64, words: Words) -> None:
    """Independent marks in a row, 1 with the chances of a plan, which are multiples of 2^-62, else 0.

    16 random bits, compared with the leading 16 of the 62, decide a mark. Only where they are equal, once in
    65,536 units, 46 bits of a word used nowhere else are compared with the others. A chance of 1 has 2^16 - 1 leading,
    and 2^46 others, which no 46 bits reach.
    """
    units, leading = words.view(np.uint16), plan[len(row) :].view(np.uint16)
    for begin in range(0, len(row), len(units)):
        size = min(len(units), len(row) - begin)
        for t in range((size + 3) >> 2):
            words[t] = hashed(key + U((begin >> 2) + t) * GOLDEN)
        marks, limits = row[begin : begin + size], leading[begin : begin + size]
        tied = False
        for j in range(size):
            marks[j] = units[j] < limits[j]
            tied |= units[j] == limits[j]
        if tied:
            for j in range(size):
                if units[j] == limits[j]:
                    i = U(begin + j)
                    others = hashed(key + (TIE + i) * GOLDEN) >> U(64 - OTHER_BITS)
                    marks[j] = others < plan[i] - (U(limits[j]) << U(OTHER_BITS))


@compiled
def plan_mask(keep: Floats) -> Words:
    """What :func:`fill_mask` reads: the chances, and then their leading bits, four in a word."""
    d = len(keep)
    plan = np.empty(d + ((d + 3) >> 2), np.uint64)
    leading = plan[d:].view(np.uint16)
    for i in range(d):
        plan[i] = U(np.ceil(keep[i] * 2.0**MASS_BITS))
        leading[i] = min(plan[i] >> U(OTHER_BITS), U(2**16 - 1))
    return plan


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
def noise_row(counts: Array, scale: Array, products: Array) -> None:
    number = scale.dtype.type
    for i in range(len(counts)):
        products[i] = number(counts[i]) * scale[i]


@compiled
def is_finite(row: Array) -> bool:
    bad = False
    for i in range(len(row)):
        bad |= not (abs(row[i]) < np.inf)
    return not bad


@compiled
def plan_usual(
    independent: bool,
    moments: Floats,
    weights: Floats,
    from_batch: bool,
    k: int,
    uniform_mix: float,
    bits: int,
    scale: Array,
) -> Words:
    """What the rows of a usual call are filled from, and the scale of its noise.

    Independent noise has the weights as keep probabilities. Else the probabilities of k draws are in proportion to the
    weights, or to the roots of the moments; the plan is empty if a unit is not finite, none can be drawn, or squares
    may have underflowed.
    """
    if independent:
        for i in range(len(weights)):
            scale[i] = 1.0 / max(weights[i], LEAST_RATE) if weights[i] > 0.0 else 0.0
        masked: Words = plan_mask(weights)
        return masked
    probs = np.empty(len(moments))
    total, drawable = 0.0, 0
    for i in range(len(moments)):
        probs[i] = np.sqrt(moments[i]) if from_batch else weights[i]
        total += probs[i] + 0.0 * moments[i]  # not finite if one of them is not
        drawable += probs[i] > 0.0
    if not (LEAST_TOTAL < total < np.inf):
        return np.empty(0, np.uint64)
    factor, share = (1.0 - uniform_mix) / total, uniform_mix / drawable
    for i in range(len(moments)):
        drawn = probs[i] > 0.0
        probs[i] = probs[i] * factor + share if drawn else 0.0
        scale[i] = 1.0 / max(k * probs[i], LEAST_RATE) if drawn else 0.0
    table: Words = build_table(probs, bits)
    return table
