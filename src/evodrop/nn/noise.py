"""Noise for a tensor: one seed a call, the path that fits the device, and the gradient.

Eager calls go through :class:`ScaleByCounts`, which keeps a byte per element for the backward pass. Where a
compiler traces or ``torch.func`` transforms, the operator ``evodrop::noise`` gives the same noise as floats, and torch
multiplies. Both draw the same seed, so both give the same output.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any

import torch
import torch.distributed
from torch import Tensor

from evodrop.definitions import checked_masses
from evodrop.nn.law import Law
from evodrop.nn.layout import from_rows, to_rows
from evodrop.stream import RANK_STEP

__all__ = ["apply_noise", "use_backend"]

BACKENDS = ("auto", "numba", "torch")
_backend: ContextVar[str] = ContextVar("evodrop_backend", default="auto")


@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Choose the path within a ``with`` block: ``"numba"`` (CPU tensors only), ``"torch"``, or ``"auto"`` by the device.

    Examples:
        >>> with use_backend("torch"):
        ...     y = evolutional_dropout(x)
    """
    if name not in BACKENDS:
        raise ValueError(f"use_backend: {name!r} is not a backend; choose one of {', '.join(BACKENDS)}")
    token = _backend.set(name)
    try:
        yield
    finally:
        _backend.reset(token)


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
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active() or _is_subclass(input):
        if generator is not None:
            raise ValueError(
                "generator= works in eager mode only; under torch.compile and torch.func use torch.manual_seed"
            )
        noise = torch.ops.evodrop.noise(input.detach(), given, *law, list(units), list(shared))
        return (input * noise).to(input.dtype)
    drawn = _draw(input, law, given, units, shared, _draw_seed(input.device, generator))
    if drawn is None:
        return input
    counts, scale = drawn
    if shared:
        return (input * _as_noise(counts, scale, input, units, shared)).to(input.dtype)
    output: Tensor = ScaleByCounts.apply(input, counts, scale, units)
    return output


class ScaleByCounts(torch.autograd.Function):
    """x * counts * scale. The noise is a constant, so the derivative is the same product, to any order."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, counts: Tensor, scale: Tensor, units: Sequence[int]) -> Tensor:
        ctx.save_for_backward(counts, scale)
        ctx.save_for_forward(counts, scale)
        ctx.units = units
        rows = _path(input.device).multiply(to_rows(input, units), counts, scale)
        return from_rows(rows, input, units)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return ScaleByCounts.apply(grad, *ctx.saved_tensors, ctx.units), None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        output: Tensor = ScaleByCounts.apply(tangent, *ctx.saved_tensors, ctx.units)
        return output


@torch.library.custom_op("evodrop::noise", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,))
def _noise(
    input: Tensor,
    given: Tensor | None,
    source: str,
    p: float,
    k: int | None,
    scheme: str,
    match: str,
    uniform_mix: float,
    units: Sequence[int],
    shared: Sequence[int],
    seed: Tensor | None = None,
) -> Tensor:
    law = Law(source, p, k, scheme, match, uniform_mix)
    drawn = _draw(input, law, given, units, shared, _draw_seed(input.device, None) if seed is None else seed)
    if drawn is None:
        return torch.ones_like(_empty_noise(input, shared))
    return _as_noise(*drawn, input, units, shared)


@_noise.register_fake
def _(input: Tensor, given: Tensor | None, *law: object) -> Tensor:
    shared: Sequence[int] = law[7]  # type: ignore[assignment]
    return _empty_noise(input, shared)


@_noise.register_vmap
def _(
    info: Any, in_dims: tuple[int | None, ...], input: Tensor, given: Tensor | None, *rest: Any
) -> tuple[Tensor, int]:
    """Each of the mapped inputs is a batch of its own, with probabilities of its own."""
    if info.randomness == "error":
        raise RuntimeError("vmap: dropout is random; call torch.func.vmap with randomness='different' or 'same'")
    seed = _draw_seed(input.device, None) if info.randomness == "same" else None
    inputs, weights = (
        [tensor] * info.batch_size if dim is None else tensor.unbind(dim)
        for tensor, dim in ((input, in_dims[0]), (given, in_dims[1]))
    )
    return torch.stack([_noise(x, w, *rest[:8], seed) for x, w in zip(inputs, weights, strict=True)]), 0


def _empty_noise(input: Tensor, shared: Sequence[int]) -> Tensor:
    sizes = [1 if dim in shared else size for dim, size in enumerate(input.shape)]
    return input.new_empty(sizes, dtype=torch.float64 if input.dtype == torch.float64 else torch.float32)


def _as_noise(counts: Tensor, scale: Tensor, input: Tensor, units: Sequence[int], shared: Sequence[int]) -> Tensor:
    noise = _empty_noise(input, shared)
    return from_rows(counts * scale, noise, [*units, *shared])


def _draw(
    input: Tensor, law: Law, given: Tensor | None, units: Sequence[int], shared: Sequence[int], seed: Tensor
) -> tuple[Tensor, Tensor] | None:
    if given is not None and given.device.type == "cpu":  # elsewhere, looking at the values would stall the device
        _check_given(given, law)
    path = _path(input.device)
    with torch.no_grad():
        drawn: tuple[Tensor, Tensor] | None = path.draw(to_rows(input.detach(), units, shared), law, given, seed)
    return drawn


def _check_given(given: Tensor, law: Law) -> None:
    name = "keep" if law.source == "keep" else "probs"
    checked_masses(given.detach(), name)
    if law.source == "keep" and given.max() > 1:
        raise ValueError(f"keep has a value of {float(given.max())}, but keep probabilities lie in [0, 1]")


def _path(device: torch.device) -> ModuleType:
    """The room with the code for the device. numba takes its time to import, so the CPU's waits for the first call."""
    backend = _backend.get()
    if backend == "torch" or (backend == "auto" and device.type != "cpu"):
        from evodrop.nn import device as path
    elif device.type == "cpu":
        from evodrop.nn import cpu as path
    else:
        raise ValueError(f"the numba backend works on CPU tensors, but the input is on {device}; use backend 'auto'")
    return path


def _draw_seed(device: torch.device, generator: torch.Generator | None) -> Tensor:
    """64 random bits from torch's generator, moved apart on every rank of a process group."""
    seed = torch.empty((), dtype=torch.int64, device=device).random_(-(2**63), None, generator=generator)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        seed += torch.distributed.get_rank() * RANK_STEP % 2**63
    return seed


def _is_subclass(input: Tensor) -> bool:
    """Fake tensors and the like have no memory that a kernel could read, but they know operators."""
    return type(input) not in (Tensor, torch.nn.Parameter)
