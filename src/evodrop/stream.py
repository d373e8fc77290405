"""The random words, as numbers: what the samplers of every device have in common.

Word t of row r is ``hashed(hashed(seed + r * ROW_STEP) + t * GOLDEN)`` modulo 2^64. There, ``hashed`` is the finaliser
of SplitMix64 (Steele, Lea and Flood 2014): for each (shift, factor) of ``HASH``, ``z = (z ^ (z >> shift)) * factor``.
A seed, a row and a counter give the word: no state, so any row can be made by any thread, and made again.
"""

from __future__ import annotations

__all__ = ["GOLDEN", "HASH", "MASS_BITS", "RANK_STEP", "ROW_STEP"]

GOLDEN = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio, odd: the step between the words of a row
ROW_STEP = 0xD1342543DE82EF95  # another odd number: the step between rows
RANK_STEP = 0xDA942042E4DD58B5  # and another: the step between the ranks of a process group
HASH = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))
MASS_BITS = 62  # of a word's 64 bits decide a draw: masses that sum to 2^62 fit a signed integer
