"""The fast exact sampler: alias tables and counter-based streams.

**Law.** Probabilities become integer masses that sum to 2^62 exactly, each within 2^-50 of its probability, and
a zero stays zero. An alias table with a power of two buckets splits the masses without any rounding. A draw is one
64-bit word: its top bits are the bucket, the next bits (62 in all) are compared with the bucket's threshold.
So a unit's chance is its mass / 2^62 to the last bit: no modulo bias, no float in the comparison.

**Many draws.** From some draws per unit on, a row begins with independent Poisson counts, which cost the same whatever
k, and single draws make up the rest: see :func:`evodrop._kernels.poisson.fill_many`. The law is the same multinomial;
the Poisson probabilities are computed in float64, so it is exact to its rounding.

**Masks.** 16 bits decide whether a unit is kept, and 46 more where they tie: its chance is a multiple of 2^-62.

**Streams.** Word t of row r is a hash of (seed, r, t), see :mod:`evodrop._kernels.rows`.
Every row can be made alone, so the result is a function of the arguments, whatever the number of threads.
"""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
import numpy.typing as npt

from evodrop._checks import Array, Bytes, Floats, checked_integer, checked_masses
from evodrop._kernels.poisson import many_draws, plan_many
from evodrop._kernels.rows import build_table, plan_mask
from evodrop._kernels.threads import DRAWS, MANY, MASK, NOISE, PRODUCTS, run_section, useful_threads
from evodrop.noise import MOST_DRAWS, normalised

__all__ = ["draw_counts", "draw_mask", "sample_counts"]


def sample_counts(probs: npt.ArrayLike, k: int, size: int, seed: int) -> npt.NDArray[np.int64]:
    """Independent exact draws of Mult(probs; k), one per row.

    Args:
        probs: (d,) masses, finite, not negative, not all zero; they are divided by their sum. Zeros are never drawn.
        k: number of draws per row, from 1 to 2^30. A row costs O(d + k), or O(d + sqrt(k)) where
            k is large against d.
        size: number of rows.
        seed: integer in [0, 2^64). Same arguments, same counts, on any number of threads.

    Shape:
        (size, d); each row sums to k.

    Examples:
        >>> sample_counts([0.7, 0.0, 0.3], k=10, size=2, seed=1).sum(axis=1)
        array([10, 10])
    """
    masses = checked_masses(np.asarray(probs, np.float64), "probs")
    k = checked_integer(k, "k", "the number of draws", most=MOST_DRAWS)
    size = checked_integer(size, "size", "the number of rows", 0, 2**62)
    seed = checked_integer(seed, "seed", "the seed", 0, 2**64 - 1)
    scaled = normalised(masses)
    threads = useful_threads(os.cpu_count() or 1, size * min(len(masses) + k, 3 * len(masses) + 2 * math.isqrt(k)))
    return draw_counts(scaled / scaled.sum(), k, size, seed, threads).astype(np.int64)


def draw_counts(probs: Floats, k: int, size: int, seed: int, threads: int, **multiply: Any) -> Array:
    """Counts as in :func:`sample_counts` for probs that sum to 1, in the narrowest type that holds them all.

    Bytes come first. A byte that wraps takes 256 from its row's sum, so the sum shows it, and the same words are then
    counted again in a wider type. ``multiply`` is as in :func:`draw_mask`.
    """
    d, bits = len(probs), (len(probs) - 1).bit_length()
    task, plan = (MANY, plan_many(probs, k, bits)) if many_draws(k, d) else (DRAWS, build_table(probs, bits))
    for dtype in (np.uint8, np.int32):
        counts: Array = np.empty((size, d), dtype)
        if run_section(
            task | _then(multiply), threads, counts=counts, plan=plan, seed=seed, bits=bits, k=k, **multiply
        ):
            break
    return counts


def draw_mask(keep: Floats, size: int, seed: int, threads: int, **multiply: Any) -> Bytes:
    """Independent bytes, 1 with probability ``keep[i]`` in column i, else 0.

    The same pass can make the noise mask * scale, with arrays ``scale`` and ``products``, or x * mask * scale, with
    ``x`` besides.
    """
    mask = np.empty((size, len(keep)), np.uint8)
    run_section(MASK | _then(multiply), threads, counts=mask, plan=plan_mask(keep), seed=seed, **multiply)
    return mask


def _then(multiply: dict[str, Any]) -> int:
    return PRODUCTS if "x" in multiply else NOISE if multiply else 0
