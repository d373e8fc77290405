"""The path for every other device: plain torch operations, exact as well.

Integer masses and the words of :mod:`evodrop.stream`, as on the CPU; a word finds its unit by bisection of the running
sum of the masses, where the CPU looks into an alias table, which no device builds quickly. Counts are added up as
integers, and nothing is read back to the host.
"""

from __future__ import annotations

import torch
from torch import Tensor

from evodrop.nn.law import Law, find_chances
from evodrop.stream import GOLDEN, HASH, MASS_BITS, ROW_STEP

__all__ = ["drop", "multiply", "sum_squares", "wide"]

CARRY_BITS = 20  # of the fraction that rounding a mass down cuts off


def drop(rows: Tensor, law: Law, given: Tensor | None, seed: Tensor, output: Tensor | None) -> tuple[Tensor, Tensor]:
    """Counts (n, d) and scale (d,) of the noise for ``rows``; the product goes to ``output``, if there is one."""
    given = None if given is None else given.to(wide(rows))
    if law.source == "batch" and given is not None:
        rms, weights = given.sqrt(), None
    else:
        rms = _norms(rows) / rows[:, 0].numel() ** 0.5
        weights = None if given is None else _sound(given, law)
    found = find_chances(law, rms, weights)
    if found.k is None:
        counts = _draw_mask(found.chances, len(rows), seed)
    else:
        counts = _draw_counts(found.chances, found.k, found.most, len(rows), seed)
        counts = torch.where(found.passes, 1, counts)
    narrow = torch.uint8 if found.most < 2**8 else torch.int16 if found.most < 2**15 else torch.int32
    counts, scale = counts.to(narrow), found.scale.to(torch.float64 if rows.dtype == torch.float64 else torch.float32)
    if output is not None:
        multiply(rows, counts, scale, output)
    return counts, scale


def multiply(rows: Tensor, counts: Tensor, scale: Tensor, output: Tensor) -> None:
    """output = rows * (counts * scale)."""
    output.copy_(rows * (counts * scale))


def sum_squares(rows: Tensor) -> Tensor:
    """Sum over examples, and over positions if there are some, of the squares of each unit, as wide as can be."""
    return _norms(rows).square()


def _norms(rows: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(rows, dim=(0,) if rows.ndim == 2 else (0, 2), dtype=wide(rows))
    return norms


def wide(rows: Tensor) -> torch.dtype:
    return torch.float32 if rows.device.type == "mps" else torch.float64  # Apple's devices have no float64


def _sound(given: Tensor, law: Law) -> Tensor:
    """Values that were not checked, since checking would stall the device: what is no mass counts as 0."""
    given = torch.where(torch.isfinite(given) & (given > 0), given, 0.0)
    return given.clip(max=1.0) if law.source == "keep" else given / given.max().clip(min=torch.finfo(given.dtype).tiny)


def _draw_counts(probs: Tensor, k: int | Tensor, most: int, size: int, seed: Tensor) -> Tensor:
    """Exact draws of Mult(probs; k), in blocks of about d draws, so that a large k does not need a large memory."""
    d = len(probs)
    edges = _integer_masses(probs).cumsum(0)
    firsts = torch.arange(size, device=probs.device)[:, None] * d
    counts = torch.zeros(size * d, dtype=torch.int32, device=probs.device)
    block = max(d, 1024)
    for start in range(0, most, block):
        draws = torch.arange(start, min(start + block, most), device=probs.device)
        units = torch.searchsorted(edges, _words(seed, size, draws), right=True)
        counted = (draws < k).to(torch.int32).expand(size, -1)
        counts.scatter_add_(0, (units + firsts).flatten(), counted.flatten())
    return counts.view(size, d)


def _draw_mask(keep: Tensor, size: int, seed: Tensor) -> Tensor:
    chances = (keep * 2.0**MASS_BITS).ceil().long()
    return _words(seed, size, torch.arange(len(keep), device=keep.device)) < chances


def _integer_masses(probs: Tensor) -> Tensor:
    """Integers that sum to 2^62 in proportion to probs, as :func:`evodrop.kernels.integer_masses` makes them."""
    scale: float | Tensor = 2.0**MASS_BITS
    for _ in range(2):
        exact = probs * scale
        whole = exact.floor()
        cut = ((exact - whole) * 2.0**CARRY_BITS).long()
        carried = cut.cumsum(0)
        masses = whole.long() + (carried >> CARRY_BITS) - ((carried - cut) >> CARRY_BITS)
        missing = 2**MASS_BITS - masses.sum()
        scale = scale * (1.0 + missing.to(probs.dtype) / 2.0**MASS_BITS)
    return torch.scatter_add(masses, 0, masses.argmax()[None], missing[None])


def _words(seed: Tensor, size: int, draws: Tensor) -> Tensor:
    """The top 62 bits of the words of ``size`` rows at the given counters. Products wrap round modulo 2^64."""
    rows = torch.arange(size, device=draws.device)[:, None]
    keys = _hashed(seed + rows * _signed(ROW_STEP))
    return _shifted(_hashed(keys + draws * _signed(GOLDEN)), 64 - MASS_BITS)


def _hashed(z: Tensor) -> Tensor:
    for shift, factor in HASH:
        z = (z ^ _shifted(z, shift)) * _signed(factor)
    return z


def _shifted(z: Tensor, bits: int) -> Tensor:
    """The shift of an unsigned word: torch's own copies the sign."""
    shifted: Tensor = (z >> bits) & (2 ** (64 - bits) - 1)
    return shifted


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word
