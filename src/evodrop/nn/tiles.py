"""The Triton kernels: counts of a tile of rows and units, and the product with them.

A tile lies in the registers of one program. ``tl.histogram`` counts draws there by way of shared memory, in integers;
it is the only histogram that Triton has, since it gives no address in shared memory to add to. Its cost grows with the
number of bins, so a tile is narrow, and a row wider than a tile is drawn again by the program of each of its tiles,
which counts the draws that fall into its own. Nothing is lost or counted twice: the words are a function of seed, row
and counter (:mod:`evodrop.stream`), so all of these programs see the same draws.

This file is imported by :mod:`evodrop.nn.gpu`, and only where Triton is installed.
"""

# mypy: disallow-untyped-decorators=False, disallow-untyped-defs=False, disallow-untyped-calls=False
# mypy: disallow-incomplete-defs=False

from __future__ import annotations

import inspect

import triton
import triton.language as tl

from evodrop import stream

__all__ = ["INTERPRETED", "draw_tile", "multiply_tile"]

if "mask" not in inspect.signature(tl.histogram).parameters:
    raise ImportError(f"the histogram of Triton {triton.__version__} takes no mask; install a newer Triton")

# A kernel reads no global but those that are marked as constant.
GOLDEN, ROW_STEP = tl.constexpr(stream.GOLDEN), tl.constexpr(stream.ROW_STEP)
(SHIFT_1, FACTOR_1), (SHIFT_2, FACTOR_2), (SHIFT_3, _) = (
    (tl.constexpr(shift), tl.constexpr(factor)) for shift, factor in stream.HASH
)
MASS_BITS = tl.constexpr(stream.MASS_BITS)


@triton.jit
def hashed(z):
    z = (z ^ (z >> SHIFT_1)) * FACTOR_1
    z = (z ^ (z >> SHIFT_2)) * FACTOR_2
    return z ^ (z >> SHIFT_3)


@triton.jit
def tile_of_program(d, ROWS: tl.constexpr, UNITS: tl.constexpr):
    """The rows (ROWS,) and units (UNITS,) of this program; the last ones may lie outside."""
    tiles = tl.cdiv(d, UNITS)
    program = tl.program_id(0)
    rows = (program // tiles).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    return rows, (program % tiles) * UNITS + tl.arange(0, UNITS)


@triton.jit
def units_of(table, words, BITS: tl.constexpr):
    """The unit that each word draws, as in ``evodrop.nn.device``."""
    bucket = words >> (MASS_BITS - BITS)
    entry = tl.load(table + bucket)
    threshold, below = entry >> BITS, words - (bucket << (MASS_BITS - BITS))
    return tl.where(below < threshold, bucket, entry - (threshold << BITS))


@triton.jit
def store_products(x, scale, products, rows, units, size, d, counts):
    """products = x * (counts * scale) on a tile, computed in the type of the scale."""
    places, here = rows[:, None] * d + units[None, :], (rows < size)[:, None] & (units < d)[None, :]
    factors = tl.load(scale + units, mask=units < d, other=0.0)
    noise = counts.to(factors.dtype) * factors[None, :]
    values = tl.load(x + places, mask=here, other=0.0).to(factors.dtype)
    tl.store(products + places, (values * noise).to(products.dtype.element_ty), mask=here)


@triton.jit
def draw_tile(
    table,  # (2^BITS,) the alias table, read by all
    seed,  # () and k, () too: they stay on the device
    k,
    passes,  # (d,) 1 where a unit passes unchanged
    scale,  # (d,)
    x,  # (size, d), like counts and products
    counts,
    products,
    size,
    d,
    BITS: tl.constexpr,
    ROWS: tl.constexpr,
    UNITS: tl.constexpr,
    DRAWS: tl.constexpr,  # of each row at a time
    MULTIPLY: tl.constexpr,  # else x and products are not touched
):
    rows, units = tile_of_program(d, ROWS, UNITS)
    keys = hashed(tl.load(seed).to(tl.uint64, bitcast=True) + rows.to(tl.uint64) * ROW_STEP)
    first, draws = tl.min(units, 0), tl.load(k)
    drawn = tl.zeros([ROWS * UNITS], tl.int32)
    for start in range(0, draws, DRAWS):
        counter = (start + tl.arange(0, DRAWS)).to(tl.uint64)
        words = hashed(keys[:, None] + counter[None, :] * GOLDEN) >> (64 - MASS_BITS)
        unit = units_of(table, words.to(tl.int64), BITS) - first
        inside = (unit >= 0) & (unit < UNITS) & (start + tl.arange(0, DRAWS) < draws)[None, :]
        place = (tl.arange(0, ROWS)[:, None] * UNITS + tl.where(inside, unit, 0)).to(tl.int32)
        drawn += tl.histogram(tl.ravel(place), ROWS * UNITS, mask=tl.ravel(inside))
    passing = tl.load(passes + units, mask=units < d, other=0)
    count = tl.where(passing[None, :] != 0, 1, tl.reshape(drawn, [ROWS, UNITS]))
    here = (rows < size)[:, None] & (units < d)[None, :]
    tl.store(counts + rows[:, None] * d + units[None, :], count.to(counts.dtype.element_ty), mask=here)
    if MULTIPLY:
        store_products(x, scale, products, rows, units, size, d, count)


@triton.jit
def multiply_tile(x, counts, scale, products, size, d, ROWS: tl.constexpr, UNITS: tl.constexpr):
    rows, units = tile_of_program(d, ROWS, UNITS)
    here = (rows < size)[:, None] & (units < d)[None, :]
    count = tl.load(counts + rows[:, None] * d + units[None, :], mask=here, other=0)
    store_products(x, scale, products, rows, units, size, d, count)


INTERPRETED = not isinstance(draw_tile, triton.runtime.JITFunction)  # TRITON_INTERPRET=1 when this file was imported
