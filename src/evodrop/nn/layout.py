"""Which dimensions of a tensor are examples and which are units: from any tensor to rows of units, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index

from torch import Tensor

__all__ = ["checked_dims", "count_units", "to_rows", "write_rows"]


def checked_dims(input: Tensor, unit_dims: int | Sequence[int] | None) -> tuple[int, ...]:
    """The dimensions of the units, ascending and not negative; by default all but the first, the batch.

    A vector has no batch: it is one example.
    """
    if unit_dims is None:
        return tuple(range(1, input.ndim)) or tuple(range(input.ndim))
    try:
        asked = tuple(map(index, unit_dims)) if isinstance(unit_dims, Sequence) else (index(unit_dims),)
    except TypeError as error:
        raise TypeError(f"unit_dims is {unit_dims!r}, but it takes an integer or a tuple of integers") from error
    dims = tuple(sorted({dim + input.ndim if dim < 0 else dim for dim in asked}))
    if not asked or len(dims) != len(asked) or dims[0] < 0 or dims[-1] >= input.ndim:
        raise ValueError(
            f"unit_dims is {unit_dims!r}, but the input has shape {tuple(input.shape)}: "
            f"name different dimensions from {-input.ndim} to {input.ndim - 1}"
        )
    return dims


def count_units(input: Tensor, units: Sequence[int]) -> int:
    return math.prod([input.shape[dim] for dim in units])


def to_rows(input: Tensor, units: Sequence[int], shared: Sequence[int] = ()) -> Tensor:
    """Contiguous (examples, units), or (examples, units, shared) where positions share one noise.

    They are the memory of ``input`` itself wherever its layout allows.
    """
    if input.ndim == 2 and not shared and tuple(units) == (1,):  # as most layers have it: no view is needed
        return input.contiguous()
    sizes = [-1, count_units(input, units)] + ([count_units(input, shared)] if shared else [])
    return input.permute(_order(input.ndim, [*units, *shared])).reshape(sizes).contiguous()


def write_rows(rows: Tensor, output: Tensor, units: Sequence[int]) -> None:
    """Put rows that were written where they belong in ``output``, unless they are its memory."""
    if rows.data_ptr() != output.data_ptr():
        order = _order(output.ndim, units)
        output.permute(order).copy_(rows.view([output.shape[dim] for dim in order]))


def _order(ndim: int, last: Sequence[int]) -> list[int]:
    return [dim for dim in range(ndim) if dim not in last] + [*last]
