"""The numba backend, for the CPU: kernels on the memory of the tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from evodrop._checks import Array
from evodrop._kernels.rows import COUNTS, MOMENTS, PRODUCTS, drop_rows, plan_draws, scale_rows
from evodrop._kernels.threads import WORK_PER_INTERRUPT, run_section, useful_threads
from evodrop.definitions import n_draws
from evodrop.noise import Noise, normalised
from evodrop.sampling import draw_counts, draw_mask, many_draws

if TYPE_CHECKING:
    from evodrop.nn._noise import Options

HALF = (torch.float16, torch.bfloat16)
NONE = np.empty(0)


def drop(
    rows: Tensor, options: Options, given: Tensor | None, seed: Tensor, output: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Counts (n, d) and scale (d,) of the noise for ``rows``, (n, d) or (n, d, positions).

    The product goes to ``output``, if there is one.
    """
    x, key = _array(rows), int(seed) % 2**64
    values = None if given is None else _array(given).astype(np.float64)
    if values is not None and not (options.follows or options.independent):
        values = normalised(values)
    product = None if output is None else _array_for(output)
    drawn = None
    if product is not None and options.match == "draws" and not options.independent:
        drawn = _drop_at_once(x, options, values, key, product)
    counts, scale = drawn or _drop_in_steps(x, options, values, key, product)
    _write_half(product, output)
    return torch.from_numpy(counts), torch.from_numpy(scale)


def multiply(rows: Tensor, counts: Tensor, scale: Tensor, output: Tensor) -> None:
    """output = rows * (counts * scale), in one pass."""
    product = _array_for(output)
    x, by, times = _array(rows), counts.contiguous().numpy(), _array(scale.contiguous())
    _multiply(x, by, times.astype(x.dtype, copy=False), product)
    _write_half(product, output)


def second_moments(x: Array) -> Array:
    """E[x_i^2] of each column; threads take columns, so that no sum depends on their number."""
    moments = np.empty(x[0].size)
    run_section(MOMENTS, _threads(x), x=x.reshape(len(x), -1), moments=moments)
    return moments if x.ndim == 2 else moments.reshape(x.shape[1:]).mean(1)


def sum_squares(rows: Tensor) -> Tensor:
    """Sum over examples, and over positions if there are some, of the squares of each unit, in float64."""
    x = _array(rows)
    return torch.from_numpy(second_moments(x) * (x.size // x.shape[1]))


def _multiply(x: Array, counts: Array, scale: Array, product: Array) -> None:
    threads = _threads(x)
    if threads == 1 and x.shape == counts.shape and len(scale) == x.shape[1] and x.size < WORK_PER_INTERRUPT:
        scale_rows(x, counts, scale, product)
    else:
        run_section(PRODUCTS, threads, x=x, counts=counts, scale=scale, products=product)


def _drop_at_once(
    x: Array, options: Options, values: Array | None, key: int, product: Array
) -> tuple[Array, Array] | None:
    """The usual call by few kernels: in a small layer, the steps of :func:`_drop_in_steps` cost more than the draws.
    None if a unit is not finite, none can be drawn, a count exceeds 255, or the draws are many."""
    (size, d), threads, follows = x.shape, _threads(x), options.follows
    k, bits = n_draws(d, options.p) if options.k is None else options.k, (d - 1).bit_length()
    if many_draws(k, d):
        return None
    weights = NONE if follows else np.ones(d) if values is None else values
    counts, scale = np.empty((size, d), np.uint8), np.empty(d, x.dtype)
    plan = (weights, follows, k, options.uniform_mix, bits)
    if threads == 1 and size * (d + k) < WORK_PER_INTERRUPT and not (follows and values is not None):
        drawn = drop_rows(x, *plan, np.uint64(key), counts, scale, product)
    else:
        moments = values if follows and values is not None else second_moments(x)
        table = plan_draws(moments, *plan, scale)
        arrays = {"x": x, "counts": counts, "scale": scale, "products": product, "table": table}
        drawn = len(table) and run_section(COUNTS | PRODUCTS, threads, seed=key, bits=bits, k=k, **arrays)
    return (counts, scale) if drawn else None


def _drop_in_steps(
    x: Array, options: Options, values: Array | None, key: int, product: Array | None
) -> tuple[Array, Array]:
    """Any other call. Units that are not finite pass unchanged, and all do if none can be drawn."""
    rms = np.sqrt(values if options.follows and values is not None else second_moments(x))
    sound, threads = np.isfinite(rms), _threads(x)
    finite = np.where(sound, rms, 0.0)
    if options.independent and not options.follows:
        passes = ~sound
        found = Noise(values) if values is not None else options.noise(None, rms)
    else:
        weights = finite if options.follows else np.where(sound, 1.0 if values is None else values, 0.0)
        passes = ~sound | (weights.sum() == 0)
        found = options.noise(weights, normalised(finite) ** 2)
    if found.k is None:
        found = Noise(np.where(passes, 1.0, found.chances))
        scale = found.scale.astype(x.dtype, copy=False)
        multiply = {} if product is None else {"x": x, "scale": scale, "products": product}
        return draw_mask(found.chances, len(x), key, threads, **multiply), scale
    scale = np.where(passes, 1.0, found.scale).astype(x.dtype, copy=False)
    counts = draw_counts(found.chances, found.k, len(x), key, threads)
    counts[:, passes] = 1
    if product is not None:
        _multiply(x, counts, scale, product)
    return counts, scale


def _threads(x: Array) -> int:
    return useful_threads(torch.get_num_threads(), x.size)


def _array(tensor: Tensor) -> Array:
    """The tensor's own memory as an array; half precision, which numba does not support, widened to float32."""
    tensor = tensor.float() if tensor.dtype in HALF else tensor
    array: Array = tensor.detach().resolve_neg().numpy()
    return array


def _array_for(output: Tensor) -> Array:
    """Where a kernel may write ``output``: its own memory, or float32 beside it for half precision."""
    if output.dtype in HALF:
        return np.empty(output.shape, np.float32)
    array: Array = output.numpy()
    return array


def _write_half(product: Array | None, output: Tensor | None) -> None:
    if product is not None and output is not None and output.dtype in HALF:
        output.copy_(torch.from_numpy(product))
