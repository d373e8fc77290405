"""The path for every other device: plain torch operations, exact as well.

Integer masses, an alias table and the words of :mod:`evodrop._kernels.rows`, as on the CPU; only who
fills whose bucket in the table differs. Counts are added up as integers, and nothing is read back to the host.
"""

from __future__ import annotations

import torch
from torch import Tensor

from evodrop._kernels.rows import GOLDEN, HASH, MASS_BITS, ROW_STEP
from evodrop.nn.alias import build_table, table_bits
from evodrop.nn.law import Chances, Law, find_chances

__all__ = ["count_type", "draw_noise", "drop", "find", "multiply", "scale_for", "sum_squares", "wide"]


def drop(rows: Tensor, law: Law, given: Tensor | None, seed: Tensor, output: Tensor | None) -> tuple[Tensor, Tensor]:
    """Counts (n, d) and scale (d,) of the noise for ``rows``; the product goes to ``output``, if there is one."""
    found = find(rows, law, given)
    counts, scale = draw_noise(found, len(rows), seed), scale_for(rows, found)
    if output is not None:
        multiply(rows, counts, scale, output)
    return counts, scale


def find(rows: Tensor, law: Law, given: Tensor | None) -> Chances:
    """What the law makes of the second moments of ``rows``, or of given ones."""
    given = None if given is None else given.to(wide(rows))
    if law.source == "batch" and given is not None:
        return find_chances(law, given.sqrt(), None)
    rms = _norms(rows) / rows[:, 0].numel() ** 0.5
    return find_chances(law, rms, None if given is None else _sound(given, law))


def draw_noise(found: Chances, size: int, seed: Tensor) -> Tensor:
    """Counts (size, d) in the narrowest type that is sure to hold them."""
    if found.k is None:
        counts = _draw_mask(found.chances, size, seed)
    else:
        counts = _draw_counts(found.chances, found.k, found.most, size, seed)
        counts = torch.where(found.passes, 1, counts)
    return counts.to(count_type(found.most))


def count_type(most: int) -> torch.dtype:
    return torch.uint8 if most < 2**8 else torch.int16 if most < 2**15 else torch.int32


def scale_for(rows: Tensor, found: Chances) -> Tensor:
    scale: Tensor = found.scale.to(torch.float64 if rows.dtype == torch.float64 else torch.float32)
    return scale


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
    table = build_table(probs)
    firsts = torch.arange(size, device=probs.device)[:, None] * d
    counts = torch.zeros(size * d, dtype=torch.int32, device=probs.device)
    block = max(d, 1024)
    for start in range(0, most, block):
        draws = torch.arange(start, min(start + block, most), device=probs.device)
        units = _units(table, table_bits(d), _words(seed, size, draws))
        counted = (draws < k).to(torch.int32).expand(size, -1)
        counts.scatter_add_(0, (units + firsts).flatten(), counted.flatten())
    return counts.view(size, d)


def _units(table: Tensor, bits: int, words: Tensor) -> Tensor:
    """The unit that each word draws: its top bits are the bucket, the others are compared with the threshold there."""
    bucket = words >> (MASS_BITS - bits)
    entry = table[bucket]
    below = words & ((1 << (MASS_BITS - bits)) - 1)
    return torch.where(below < (entry >> bits), bucket, entry & ((1 << bits) - 1))


def _draw_mask(keep: Tensor, size: int, seed: Tensor) -> Tensor:
    chances = (keep * 2.0**MASS_BITS).ceil().long()
    return _words(seed, size, torch.arange(len(keep), device=keep.device)) < chances


def _words(seed: Tensor, size: int, draws: Tensor) -> Tensor:
    """The top 62 bits of the words of ``size`` rows at the given counters. Products wrap round modulo 2^64."""
    rows = torch.arange(size, device=draws.device)[:, None]
    keys = _hashed(seed + rows * _signed(int(ROW_STEP)))
    return _shifted(_hashed(keys + draws * _signed(int(GOLDEN))), 64 - MASS_BITS)


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
