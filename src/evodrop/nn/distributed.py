"""Second moments of a batch that is spread over the processes of a group.

A layer and a step cost one all_reduce of d + 1 numbers, [sum x_1^2, ..., sum x_d^2, count], in float64. Sums and counts
add up, so shares of the batch may differ in size, and some may be empty. The noise is a constant to autograd: nothing
is communicated backward.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed
from torch import Tensor

from evodrop.nn import _numba, _torch
from evodrop.nn._noise import UnitDims, checked_dims, count_units, is_opaque, to_rows, uses_numba
from evodrop.nn.functional import check_tensor

__all__ = ["global_moments"]

ProcessGroup = torch.distributed.ProcessGroup if torch.distributed.is_available() else None


def global_moments(input: Tensor, unit_dims: UnitDims = None, process_group: Any = None) -> Tensor:
    r"""Second moments of the batch of which every process of a group holds a share, the same on every process.

    .. math:: E[x_i^2] = \sum_{\text{ranks}} \sum_j x_{ji}^2 \Big/ \sum_{\text{ranks}} n

    It is a collective: every rank of the group calls it, with the same number of units. Without a process group, the
    moments are those of the input.

    Args:
        input: this rank's share, with any number of examples, none as well.
        unit_dims: dimensions that are units. Default: every dimension but the first.
        process_group: which ranks share the batch. Default: all.

    Returns:
        (d,) moments, detached, for ``moments=`` of :func:`~evodrop.nn.functional.evolutional_dropout`.

    Examples:
        >>> global_moments(torch.tensor([[3.0, 0.0], [4.0, 1.0]]))
        tensor([12.5000,  0.5000], dtype=torch.float64)
    """
    check_group(process_group)
    check_tensor(input)
    return moments_of(checked_sums(all_reduce_sums(local_sums(input, checked_dims(input, unit_dims)), process_group)))


def local_sums(input: Tensor, units: Sequence[int], positions: Sequence[int] = ()) -> Tensor:
    """(d + 1,): the sum of the squares of each unit, and how many squares that were; nan, if none can be held.

    So a rank whose squares over- or underflow says so in the collective, and all ranks end with the same error:
    one that raised before it would leave the others waiting.
    """
    d = count_units(input, units)
    if input.numel() == 0:
        return torch.zeros(d + 1, dtype=_torch.wide_dtype(input), device=input.device)
    rows, opaque = to_rows(input.detach(), units, positions), is_opaque(input)
    if input.device.type == "cpu" and not opaque and _torch.in_range(rows) is not rows:
        return torch.full((d + 1,), torch.nan, dtype=torch.float64)
    by_numba = not opaque and uses_numba(input.device)
    squares = _numba.sum_squares(rows) if by_numba else _torch.norms(rows).square()
    return torch.cat([squares, squares.new_full((1,), input.numel() // d)])


def checked_sums(sums: Tensor, remedy: str = "scale the input, or do without momentum and sync") -> Tensor:
    """The sums, unless a rank could not hold its own; on devices nobody looks, since that would stall them."""
    if sums.device.type == "cpu" and not is_opaque(sums) and sums[-1].isnan():
        raise ValueError(
            "the squares of the input over- or underflow in float64, so they cannot be summed over batches or "
            f"processes; {remedy}"
        )
    return sums


def moments_of(sums: Tensor) -> Tensor:
    """(d,): sums of squares over their count; 0 of none."""
    return sums[:-1] / sums[-1].clip(min=torch.finfo(sums.dtype).tiny)


def all_reduce_sums(sums: Tensor, group: Any) -> Tensor:
    """The sums over all ranks of the group, by default of all ranks there are; alone, the sums themselves.

    A compiler gets torch's functional collective, which it neither drops nor moves past another.
    """
    if group is None and not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return sums
    if is_opaque(sums):
        group = torch.distributed.distributed_c10d._get_default_group() if group is None else group
        pending = torch.ops._c10d_functional.all_reduce(sums, "sum", group.group_name)
        reduced: Tensor = torch.ops._c10d_functional.wait_tensor(pending)
        return reduced
    torch.distributed.all_reduce(sums, group=group)
    return sums


def check_group(process_group: Any) -> None:
    """A TypeError unless it is a group that this process is a member of, or None for all processes."""
    if process_group is not None and (ProcessGroup is None or not isinstance(process_group, ProcessGroup)):
        raise TypeError(
            f"process_group is {process_group!r}, but it takes a group that this process is a member of, from "
            "torch.distributed.new_group or DeviceMesh.get_group, or None for all processes"
        )
