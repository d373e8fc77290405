"""The torch backend, for every device: torch's own operations, and words from the device's own generator.

Probabilities become integer masses of 2^62. A draw is a word from 1 to 2^62, and its unit the first whose running sum
of masses reaches it: the chance of a unit is its mass / 2^62 to the last bit, and a mass of zero is never drawn. What
rounding leaves over of 2^62 goes to the last unit that can be drawn. Nothing is read back to the host, but one number
where ``match="distinct"``, and everything can be traced, mapped and fused.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from evodrop.noise import LEAST_RATE, most_draws, normalised

if TYPE_CHECKING:
    from evodrop.nn._noise import Options

WHOLE = 2**62
FAR = {torch.float64: 500, torch.float32: 50}  # squares of values from 2^-500 to 2^500 neither over- nor underflow
BLOCK = 1024  # draws at a time at least, so that a large k does not need a large memory


def draw(
    rows: Tensor,
    options: Options,
    given: Tensor | None,
    generator: torch.Generator | None = None,
    opaque: bool = False,
) -> tuple[Tensor, Tensor]:
    """Counts (n, d) and scale (d,) of the noise for ``rows``, (n, d) or (n, d, positions), whose values nobody can see
    if they are ``opaque``."""
    wide, follows = wide_dtype(rows), options.follows
    if given is not None:  # on a device the values were not checked: what is no mass counts as 0
        given = given.to(wide) if follows else given.to(wide).nan_to_num(0.0, 0.0, 0.0).clip(min=0.0)
    # Of all units, in the same unit of measure.
    rms = given.sqrt() if follows and given is not None else norms(in_range(rows, opaque))
    sound = rms < math.inf
    if options.independent and not follows:
        keep: Tensor = options.noise(None, rms).chances if given is None else given.clip(max=1.0)
        return _draw_mask(rows, keep.masked_fill(~sound, 1.0), generator)
    finite = rms.nan_to_num(0.0, 0.0, 0.0)
    weights = finite if follows else sound * (torch.ones_like(rms) if given is None else normalised(given))
    found = options.noise(weights, None if follows else normalised(finite).square())
    passes = ~(sound & weights.any())
    if found.k is None:
        return _draw_mask(rows, found.chances.masked_fill(passes, 1.0), generator)
    k, most = found.k, found.k
    if options.match == "distinct" and not (rows.is_meta or opaque):
        k = most = int(k)
    elif options.match != "draws":  # what k does not exceed, without a look at the data
        d, p = rows.shape[1], options.p
        most = most_draws(d, p)
        if options.match == "noise" and follows:  # (sum s)^2 <= d sum s^2
            most = math.ceil(min(most, d * (1.0 - p) / p))
    counts = _draw_counts(rows, found.chances, k, most, generator)
    scale = (k * found.chances).clip(min=LEAST_RATE).reciprocal().masked_fill(passes, 1.0)
    return counts.masked_fill(passes, 1), scale.to(_scale_dtype(rows))


def in_range(rows: Tensor, opaque: bool = False, dtype: torch.dtype = torch.float64) -> Tensor:
    """The rows themselves, or divided by a power of two if their squares over- or underflow in ``dtype``."""
    if rows.dtype != dtype:
        return rows
    far = FAR[dtype]
    readable = rows.device.type == "cpu" and not opaque
    if readable:
        least, largest = map(float, torch.aminmax(rows))
        if 2.0**-far < max(largest, -least) < 2.0**far:
            return rows
    exponent = torch.frexp(rows.abs().nan_to_num(0.0, 0.0, 0.0).amax()).exponent
    if readable and abs(int(exponent)) < far:  # values that are not finite hid this
        return rows
    shift = exponent.where(exponent.abs() >= far, 0).clip(-2 * far, 2 * far)  # 2^1073 is infinite
    return rows * torch.exp2(-shift.to(dtype))


def wide_dtype(rows: Tensor) -> torch.dtype:
    return torch.float32 if rows.device.type == "mps" else torch.float64  # Apple's devices have no float64


def norms(rows: Tensor) -> Tensor:
    """Root of the sum over examples, and over positions if there are some, of the squares of each unit."""
    norms: Tensor = torch.linalg.vector_norm(rows, dim=(0,) if rows.ndim == 2 else (0, 2), dtype=wide_dtype(rows))
    return norms


def _scale_dtype(rows: Tensor) -> torch.dtype:
    return torch.float64 if rows.dtype == torch.float64 else torch.float32


def _draw_counts(rows: Tensor, probs: Tensor, k: int | Tensor, most: int, generator: torch.Generator | None) -> Tensor:
    """Exact draws of Mult(probs; k), in the narrowest type that is sure to hold them."""
    n, d = rows.shape[:2]
    dtype = torch.uint8 if most < 2**8 else torch.int16 if most < 2**15 else torch.int32
    reached = (probs * float(WHOLE)).long().cumsum(0)
    counts = torch.zeros((n, d), dtype=dtype, device=rows.device)
    block = max(d, BLOCK)
    for start in range(0, most, block):
        size = min(block, most - start)
        words = _words(rows, size, generator)
        units = torch.searchsorted(reached, torch.minimum(words, reached[-1]))
        if isinstance(k, int):
            counted = torch.ones((), dtype=dtype, device=rows.device)
        else:
            counted = (torch.arange(start, start + size, device=rows.device) < k).to(dtype)
        counts = counts.scatter_add(1, units, counted.expand(n, size))
    return counts


def _words(rows: Tensor, size: int, generator: torch.Generator | None) -> Tensor:
    """(n, size) random integers from 1 to 2^62."""
    given: Any = {} if generator is None else {"generator": generator}  # with generator=None, no size may be symbolic
    words: Tensor = torch.randint(1, WHOLE + 1, (len(rows), size), device=rows.device, **given)
    return words


def _draw_mask(rows: Tensor, keep: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """Independent bytes, 1 with probability ``keep[i]`` in column i, and the scale 1 / keep."""
    kept = _words(rows, rows.shape[1], generator) <= (keep * float(WHOLE)).long()
    return kept.view(torch.uint8), keep.clip(min=LEAST_RATE).reciprocal().to(_scale_dtype(rows))
