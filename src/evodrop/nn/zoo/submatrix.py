"""The product of a linear layer some of whose inputs and outputs are dropped: the rest of the matrix is multiplied."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

__all__ = ["submatrix_linear"]


class _Kept(NamedTuple):
    """Which units are kept, and for every unit where it stands among them; those dropped stand behind the last."""

    which: Tensor
    place: Tensor


Units = _Kept | None  # None: all of them


def submatrix_linear(
    input: Tensor, weight: Tensor, bias: Tensor | None, outputs: Tensor | None, inputs: Tensor | None
) -> Tensor:
    """A linear layer with dropped units, which are not multiplied, neither forward nor backward.

    What remains of the weight is copied into a smaller matrix; the gradients are spread over zeros again. It can be
    differentiated once.

    Args:
        input: (n, in_features); what it has in dropped columns is not read, and gets gradient 0.
        weight, bias: (out_features, in_features) and (out_features,) or None.
        outputs, inputs: which units are kept, (out_features,) and (in_features,) of bool, or None for all.

    Shape:
        (n, out_features), 0 where an output is dropped.

    Examples:
        >>> kept = torch.tensor([True, False])
        >>> submatrix_linear(torch.ones(1, 2), torch.tensor([[1.0, 2.0], [3.0, 4.0]]), None, None, kept)
        tensor([[1., 3.]])
    """
    output: Tensor = _Submatrix.apply(input, weight, bias, _kept(outputs), _kept(inputs))  # type: ignore[no-untyped-call]
    return output


class _Submatrix(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None, outputs: Units, inputs: Units) -> Tensor:
        x, w = _pick(input, 1, inputs), _pick(_pick(weight, 0, outputs), 1, inputs)
        ctx.save_for_backward(x, w)
        ctx.units = outputs, inputs
        y = x @ w.T if bias is None else torch.addmm(_pick(bias, 0, outputs), x, w.T)
        return _spread(_with_zero(y, outputs), 1, outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (x, w), (outputs, inputs) = ctx.saved_tensors, ctx.units
        need_input, need_weight, need_bias, *_ = ctx.needs_input_grad
        g = _pick(grad, 1, outputs)
        to_input = _spread(_with_zero(g @ w, inputs), 1, inputs) if need_input else None
        g = _with_zero(g, outputs)
        to_weight = _spread(_spread(g.T @ _with_zero(x, inputs), 0, outputs), 1, inputs) if need_weight else None
        to_bias = _spread(g.sum(0), 0, outputs) if need_bias else None
        return to_input, to_weight, to_bias, None, None


def _kept(mask: Tensor | None) -> Units:
    if mask is None:
        return None
    which = mask.nonzero().squeeze(1)
    return _Kept(which, torch.where(mask, mask.cumsum(0) - 1, len(which)))


def _pick(tensor: Tensor, dim: int, units: Units) -> Tensor:
    return tensor if units is None else tensor.index_select(dim, units.which)


def _with_zero(tensor: Tensor, units: Units) -> Tensor:
    """One more column, of zeros: the value of all units that are dropped."""
    return tensor if units is None else pad(tensor, (0, 1))


def _spread(tensor: Tensor, dim: int, units: Units) -> Tensor:
    """All units again. Reading each from its place, or from the zero, is faster than writing into a field of zeros."""
    return tensor if units is None else tensor.index_select(dim, units.place)
