"""The numba backend, for the CPU: kernels on the memory of the tensors."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from evodrop._checks import Array
from evodrop._kernels.poisson import many_draws
from evodrop._kernels.rows import plan_usual
from evodrop._kernels.threads import (
    DRAWS,
    FINITE,
    MASK,
    MOMENTS,
    NOISE,
    PRODUCTS,
    WORK_PER_INTERRUPT,
    drop_each,
    run_section,
    useful_threads,
)
from evodrop.definitions import n_draws
from evodrop.nn._torch import in_range
from evodrop.noise import Noise, normalised
from evodrop.sampling import draw_counts, draw_mask

if TYPE_CHECKING:
    from evodrop.nn._noise import Options

HALF = (torch.float16, torch.bfloat16)
NONE = np.empty(0)
_cached_n_draws = lru_cache(n_draws)  # a layer asks for the same every time


def drop(rows: Tensor, options: Options, given: Tensor | None, seed: Tensor, output: Tensor) -> tuple[Tensor, Tensor]:
    """Counts (n, d) and scale (d,) of the noise for ``rows``, (n, d); the product goes to ``output``."""
    product = _array_for(output)
    counts, scale = _drop(_array(rows), options, given, int(seed) % 2**64, PRODUCTS, product)
    _write_half(product, output)
    return torch.from_numpy(counts), torch.from_numpy(scale)


def noise(rows: Tensor, options: Options, given: Tensor | None, seed: Tensor) -> Tensor:
    """(n, d): counts * scale for ``rows``, (n, d) or (n, d, positions), in float32 or wider."""
    x = _array(rows)
    floats = np.empty(x.shape[:2], x.dtype)
    _drop(x, options, given, int(seed) % 2**64, NOISE, floats)
    return torch.from_numpy(floats)


def noise_of_batches(rows: Tensor, options: Options, seeds: Tensor) -> Tensor | None:
    """:func:`noise` of each of several batches, (batches, n, d), or None if their call is not a usual one."""
    x = _array(rows)
    usual = _usual_call(options, None, x.shape[2])
    if usual is None:
        return None
    task, *plan = usual
    floats, scale, counts = np.empty_like(x), np.empty((len(x), x.shape[2]), x.dtype), np.empty(x.shape, np.uint8)
    keys = seeds.contiguous().numpy().view(np.uint64)
    return torch.from_numpy(floats) if drop_each(task | NOISE, x, *plan, keys, counts, scale, floats) else None


def multiply(rows: Tensor, counts: Tensor, scale: Tensor, output: Tensor) -> None:
    """output = rows * (counts * scale), in one pass."""
    product = _array_for(output)
    x, by, times = _array(rows), counts.contiguous().numpy(), _array(scale.contiguous())
    run_section(PRODUCTS, _threads(x), x=x, counts=by, scale=times.astype(x.dtype, copy=False), products=product)
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


def _drop(x: Array, options: Options, given: Tensor | None, key: int, task: int, output: Array) -> tuple[Array, Array]:
    """Counts and scale; ``output`` gets what the task says, the products or the noise."""
    values = None if given is None else _array(given).astype(np.float64)
    if values is not None and not (options.follows or options.independent):
        values = normalised(values)
    arguments = x, options, values, key, task, output
    return _drop_at_once(*arguments) or _drop_in_steps(*arguments)


def _usual_call(options: Options, values: Array | None, d: int) -> tuple[int, Array, bool, int, float, int] | None:
    """How the counts of a usual call are made, and all but the moments that :func:`plan_usual` takes; else None."""
    if options.match != "draws":
        return None
    if options.independent and not options.follows:
        return MASK | FINITE, np.full(d, 1.0 - options.p) if values is None else values, False, 0, 0.0, 0
    k = _cached_n_draws(d, options.p) if options.k is None else options.k
    if options.independent or many_draws(k, d):
        return None
    weights = NONE if options.follows else np.ones(d) if values is None else values
    return DRAWS, weights, options.follows, k, options.uniform_mix, (d - 1).bit_length()


def _drop_at_once(
    x: Array, options: Options, values: Array | None, key: int, task: int, output: Array
) -> tuple[Array, Array] | None:
    """The usual call by few kernels: in a small layer, the steps of :func:`_drop_in_steps` cost more than the draws.
    None if a unit is not finite, none can be drawn, a count exceeds 255, or the draws are many."""
    (size, d), threads, follows = x.shape[:2], _threads(x), options.follows
    usual = _usual_call(options, values, d)
    if usual is None or (x.ndim == 3 and options.independent):
        return None
    how, _, _, k, _, bits = usual
    counts, scale = np.empty((size, d), np.uint8), np.empty(d, x.dtype)
    given = follows and values is not None
    if threads == 1 and x.ndim == 2 and size * (d + k) < WORK_PER_INTERRUPT and not given:
        each = (np.array([key], np.uint64), counts[None], scale[None], output[None])
        drawn = drop_each(how | task, x[None], *usual[1:], *each)
    else:
        moments = NONE if how & MASK else values if given else second_moments(x)
        plan = plan_usual(how & MASK > 0, moments, *usual[1:], scale)
        arrays = {"counts": counts, "scale": scale, "products": output, "plan": plan}
        arrays |= {"x": x} if x.ndim == 2 else {}
        drawn = len(plan) and run_section(how | task, threads, seed=key, bits=bits, k=k, **arrays)
    return (counts, scale) if drawn else None


def _drop_in_steps(
    x: Array, options: Options, values: Array | None, key: int, task: int, output: Array
) -> tuple[Array, Array]:
    """Any other call. Units that are not finite pass unchanged, and all do if none can be drawn."""
    if values is not None and options.follows:
        rms = np.sqrt(values)
    else:
        rms = np.sqrt(second_moments(in_range(torch.from_numpy(x)).numpy()))
    sound, threads = np.isfinite(rms), _threads(x)
    rms = np.where(sound, rms, 0.0)
    if options.independent and not options.follows:
        passes = ~sound
        found = Noise(values) if values is not None else options.noise(None, rms)
    else:
        weights = rms if options.follows else np.where(sound, 1.0 if values is None else values, 0.0)
        passes = ~sound if weights.any() else np.ones_like(sound)
        found = options.noise(weights, None if options.follows else normalised(rms) ** 2)
    scale = np.where(passes, 1.0, found.scale).astype(x.dtype, copy=False)
    then: dict[str, Any] = {"scale": scale, "products": output} | ({"x": x} if task == PRODUCTS else {})
    if found.k is None:
        return draw_mask(np.where(passes, 1.0, found.chances), len(x), key, threads, **then), scale
    if not passes.any():
        return draw_counts(found.chances, found.k, len(x), key, threads, **then), scale
    counts = draw_counts(found.chances, found.k, len(x), key, threads)
    counts[:, passes] = 1
    run_section(task, threads, counts=counts, **then)
    return counts, scale


def _threads(x: Array) -> int:
    return useful_threads(torch.get_num_threads(), x.size)


def _array(tensor: Tensor) -> Array:
    """The tensor's own memory as an array; half precision, which numba does not support, widened to float32."""
    array: Array = (tensor.float() if tensor.dtype in HALF else tensor.resolve_neg()).numpy()
    return array


def _array_for(output: Tensor) -> Array:
    """Where a kernel may write ``output``: its own memory, or float32 beside it for half precision."""
    return np.empty(output.shape, np.float32) if output.dtype in HALF else _array(output)


def _write_half(product: Array, output: Tensor) -> None:
    if output.dtype in HALF:
        output.copy_(torch.from_numpy(product))
