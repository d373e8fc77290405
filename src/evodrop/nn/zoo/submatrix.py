"""The product of a linear layer some of whose inputs and outputs are dropped: the rest of the matrix is multiplied."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["submatrix_linear"]


class _Kept(NamedTuple):
    """The units that are kept, and one more, which :func:`_pick` sets to 0; where each of all the units stands there.

    Those dropped stand where the 0 is. It takes part in every product, so that every product has a 0 to read them from.
    """

    units: Tensor
    places: Tensor


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
    def forward(
        ctx: Any,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        outputs: _Kept | None,
        inputs: _Kept | None,
    ) -> Tensor:
        x, w = _pick(input, 1, inputs), _pick(_pick(weight, 0, outputs), 1, inputs)
        ctx.save_for_backward(x, w)
        ctx.kept = outputs, inputs
        y = x @ w.T if bias is None else torch.addmm(_pick(bias, 0, outputs), x, w.T)
        return _spread(y, 1, outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (x, w), (outputs, inputs) = ctx.saved_tensors, ctx.kept
        need_input, need_weight, need_bias, *_ = ctx.needs_input_grad
        g = _pick(grad, 1, outputs)
        to_input = _spread(g @ w, 1, inputs) if need_input else None
        to_weight = _spread(_spread(g.T @ x, 0, outputs), 1, inputs) if need_weight else None
        to_bias = _spread(g.sum(0), 0, outputs) if need_bias else None
        return to_input, to_weight, to_bias, None, None


def _kept(mask: Tensor | None) -> _Kept | None:
    if mask is None:
        return None
    units = mask.nonzero().squeeze(1)
    places = torch.where(mask, mask.cumsum(0) - 1, len(units))
    return _Kept(torch.cat([units, units.new_zeros(1)]), places)


def _pick(tensor: Tensor, dim: int, kept: _Kept | None) -> Tensor:
    if kept is None:
        return tensor
    picked = tensor.index_select(dim, kept.units)
    picked.select(dim, -1).zero_()
    return picked


def _spread(tensor: Tensor, dim: int, kept: _Kept | None) -> Tensor:
    """All units again. Reading each from its place is faster than writing the kept ones into a field of zeros."""
    return tensor if kept is None else tensor.index_select(dim, kept.places)
