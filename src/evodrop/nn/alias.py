"""An alias table in plain torch operations, exact: every unit owns its integer mass to the last bit.

On the CPU one loop fills the buckets in turn (``_kernels.rows.balance``). A device has no use for a loop of d
steps, but who fills whom follows from two running sums: what the poor units lack, and what the rich ones can spare.
"""

from __future__ import annotations

import torch
from torch import Tensor

from evodrop._kernels.rows import MASS_BITS

__all__ = ["build_table", "integer_masses", "table_bits"]

CARRY_BITS = 20  # of the fraction that rounding a mass down cuts off


def table_bits(d: int) -> int:
    """A table for d units has 2^bits buckets, the least power of two that holds them all."""
    return (d - 1).bit_length()


def build_table(probs: Tensor) -> Tensor:
    """A number per bucket: the threshold, and in the last bits another unit, as ``_kernels.rows.balance`` packs.

    Each bucket holds the share 2^62 / 2^bits: its own unit's mass up to the threshold, a richer unit's above. In the
    order of the units, the rich give to the poor. Let ``wanted`` be the running sum of what is lacking and ``offered``
    that of what is spare; both end at the same number. A poor unit is filled by the first rich one whose offer the
    units before it did not use up. A rich unit gives until the wants reach its offer. The last gift may leave it poor:
    then its threshold is what it has left, and the next rich unit fills it.
    """
    bits = table_bits(len(probs))
    share = 1 << (MASS_BITS - bits)
    masses = torch.nn.functional.pad(integer_masses(probs), (0, (1 << bits) - len(probs)))
    lacking, spare = (share - masses).clip(min=0), (masses - share).clip(min=0)
    wanted, offered = lacking.cumsum(0), spare.cumsum(0)
    rich = spare > 0
    reached = wanted[torch.searchsorted(wanted, offered)]
    threshold = torch.where(rich, share + offered - reached, masses)
    other = torch.searchsorted(offered, torch.where(rich, offered, wanted - lacking), right=True)
    return (threshold << bits) | other.clip(max=(1 << bits) - 1)  # a full bucket has no other: any number will do


def integer_masses(probs: Tensor) -> Tensor:
    """Integers that sum to 2^62 in proportion to probs, as :func:`evodrop._kernels.rows.integer_masses` makes them."""
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
