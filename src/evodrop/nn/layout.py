"""Which dimensions of a tensor are examples and which are units: from any tensor to rows of units, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["checked_dims", "count_units", "from_rows", "to_rows"]


def checked_dims(input: Tensor, unit_dims: int | Sequence[int] | None) -> tuple[int, ...]:
    """The dimensions of the units, ascending and not negative; by default all but the first, the batch.

    A vector has no batch: it is one example.
    """
    if unit_dims is None:
        return tuple(range(1, input.ndim)) or tuple(range(input.ndim))
    asked = (unit_dims,) if isinstance(unit_dims, int) else tuple(unit_dims)
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
    """Contiguous (examples, units), or (examples, units, shared) where positions share one noise."""
    if _is_rows(input, units):
        return input.contiguous()
    order = _order(input.ndim, units, shared)
    sizes = [-1, count_units(input, units)] + ([count_units(input, shared)] if shared else [])
    return input.permute(order).reshape(sizes).contiguous()


def from_rows(rows: Tensor, input: Tensor, units: Sequence[int]) -> Tensor:
    """The inverse of :func:`to_rows`, in the memory format of ``input``."""
    if _is_rows(input, units) and input.is_contiguous():
        return rows
    order = _order(input.ndim, units, ())
    back = sorted(range(input.ndim), key=order.__getitem__)
    output = rows.view([input.shape[dim] for dim in order]).permute(back)
    if output.stride() == input.stride():
        return output
    return torch.empty_like(input).copy_(output)


def _is_rows(input: Tensor, units: Sequence[int]) -> bool:
    """Rows of units already, as most layers have them: no view is needed."""
    return input.ndim == 2 and tuple(units) == (1,)


def _order(ndim: int, units: Sequence[int], shared: Sequence[int]) -> list[int]:
    return [dim for dim in range(ndim) if dim not in units and dim not in shared] + [*units, *shared]
