"""Multiply a tensor by noise, and its gradient by the same noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from evodrop.nn.draw import draw, draw_seed, path_for
from evodrop.nn.law import Law
from evodrop.nn.layout import to_rows, write_rows
from evodrop.nn.operator import as_noise, noise

__all__ = ["apply_noise", "needs_operator"]


def apply_noise(
    input: Tensor,
    law: Law,
    given: Tensor | None,
    units: Sequence[int],
    shared: Sequence[int] = (),
    generator: torch.Generator | None = None,
) -> Tensor:
    """``input`` times noise that follows ``law``; ``shared`` dimensions get one noise for all their positions."""
    if input.numel() == 0:
        return input
    given = None if given is None else given.detach()
    if needs_operator(input):
        if generator is not None:
            raise ValueError(
                "generator= is for plain tensors in eager mode; "
                "under torch.compile, torch.func and with tensor subclasses use torch.manual_seed"
            )
        floats: Tensor = noise(input.detach(), given, *law, list(units), list(shared))
        return (input * floats).to(input.dtype)
    seed = draw_seed(input.device, generator)
    if shared:
        drawn = draw(input, law, given, units, shared, seed)
        return (input * as_noise(*drawn, input.shape, units, shared)).to(input.dtype)
    output = torch.empty_like(input)
    counts, scale = draw(input, law, given, units, shared, seed, output)
    return _scale_by_counts(input, counts, scale, units, [output])


class ScaleByCounts(torch.autograd.Function):
    """x * counts * scale, keeping a byte per element. The noise is a constant: the derivative is the same product."""

    @staticmethod
    def forward(
        ctx: Any, input: Tensor, counts: Tensor, scale: Tensor, units: Sequence[int], ready: list[Tensor]
    ) -> Tensor:
        """``ready`` may hold the product; a list hides it from autograd, which would take it for an input."""
        ctx.save_for_backward(counts, scale)
        ctx.save_for_forward(counts, scale)
        ctx.units, ctx.shape_of_one = units, input.shape
        return ready.pop() if ready else _product(input, counts, scale, units)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        counts, scale = ctx.saved_tensors
        if _is_mapped(grad):  # many gradients at once
            return (grad * as_noise(counts, scale, ctx.shape_of_one, ctx.units)).to(grad.dtype), None, None, None, None
        if torch.is_grad_enabled():  # somebody wants a second derivative
            return _scale_by_counts(grad, counts, scale, ctx.units, []), None, None, None, None
        return _product(grad, counts, scale, ctx.units), None, None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        counts, scale = ctx.saved_tensors
        return _scale_by_counts(tangent, counts, scale, ctx.units, [])


def _scale_by_counts(input: Tensor, counts: Tensor, scale: Tensor, units: Sequence[int], ready: list[Tensor]) -> Tensor:
    output: Tensor = ScaleByCounts.apply(input, counts, scale, units, ready)  # type: ignore[no-untyped-call]
    return output


def _product(input: Tensor, counts: Tensor, scale: Tensor, units: Sequence[int]) -> Tensor:
    output = torch.empty_like(input)
    rows = to_rows(output, units)
    path_for(input.device).multiply(to_rows(input.detach(), units), counts, scale, rows)
    write_rows(rows, output, units)
    return output


def needs_operator(input: Tensor) -> bool:
    """While a compiler traces or torch.func transforms, and for fake tensors, no kernel can see the memory."""
    return (
        torch.compiler.is_compiling()
        or torch._C._is_tracing()
        or torch._C._are_functorch_transforms_active()
        or type(input) not in (Tensor, torch.nn.Parameter)
    )


def _is_mapped(grad: Tensor) -> bool:
    """Gradients that vmap has stacked, in either of torch's two ways, have no memory that a kernel could read."""
    return torch._C._functorch.is_legacy_batchedtensor(grad) or torch._C._functorch.is_batchedtensor(grad)
