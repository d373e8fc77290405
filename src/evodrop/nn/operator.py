"""``torch.ops.evodrop.noise``: the noise as floats, for whoever cannot look inside a kernel.

A compiler that traces, ``torch.func`` that transforms and fake tensors need an operator with known shapes; torch then
multiplies. It draws the same seed as an eager call, so the output is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from evodrop.nn.draw import draw, draw_seed
from evodrop.nn.law import Law
from evodrop.nn.layout import write_rows

__all__ = ["as_noise", "noise", "unmapped"]


# The tag says: random, so neither merge two calls nor make one of them again.
@torch.library.custom_op("evodrop::noise", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,))
def noise(
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
    """Noise for ``input``, of size 1 in the dimensions that share it; float64 for float64, else float32."""
    law = Law(source, p, k, scheme, match, uniform_mix)
    drawn = draw(input, law, given, units, shared, draw_seed(input.device) if seed is None else seed)
    return as_noise(*drawn, input.shape, units, shared)


@noise.register_fake
def _(input: Tensor, given: Tensor | None, *law_and_dims: Any) -> Tensor:  # noqa: ARG001
    shared: Sequence[int] = law_and_dims[7]
    return input.new_empty(noise_shape(input.shape, shared), dtype=noise_dtype(input))


@noise.register_vmap
def _(
    info: Any, in_dims: tuple[int | None, ...], input: Tensor, given: Tensor | None, *law_and_dims: Any
) -> tuple[Tensor, int]:
    """Each of the mapped inputs is a batch of its own, with probabilities of its own; "same" shares the seed."""
    if info.randomness == "error":
        raise RuntimeError("vmap: dropout is random; call torch.func.vmap with randomness='different' or 'same'")
    law_and_dims, seed = law_and_dims[:8], (*law_and_dims[8:], None)[0]  # an inner vmap may have drawn the seed
    if seed is None and info.randomness == "same":
        seed = draw_seed(input.device)
    inputs = unmapped(input, in_dims[0], info.batch_size)
    weights = unmapped(given, in_dims[1], info.batch_size)
    seeds = unmapped(seed, (*in_dims[10:], None)[0], info.batch_size)
    each = zip(inputs, weights, seeds, strict=True)
    return torch.stack([noise(x, w, *law_and_dims, one_seed) for x, w, one_seed in each]), 0


def noise_shape(shape: Sequence[int], shared: Sequence[int]) -> list[int]:
    return [1 if dim in shared else size for dim, size in enumerate(shape)]


def noise_dtype(input: Tensor) -> torch.dtype:
    return torch.float64 if input.dtype == torch.float64 else torch.float32


def as_noise(
    counts: Tensor, scale: Tensor, shape: Sequence[int], units: Sequence[int], shared: Sequence[int] = ()
) -> Tensor:
    """counts * scale, laid out to be multiplied with an input of the shape."""
    factors = scale.new_empty(noise_shape(shape, shared))
    write_rows(counts * scale, factors, [*units, *shared])
    return factors


def unmapped(tensor: Tensor | None, dim: int | None, size: int) -> Sequence[Tensor | None]:
    """An argument for each of those that vmap maps over."""
    return [tensor] * size if tensor is None or dim is None else tensor.unbind(dim)
