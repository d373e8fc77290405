"""The CPU path: numba kernels on the memory of the tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evodrop._kernels.rows import COUNTS, MOMENTS, PRODUCTS, drop_rows, plan_draws, scale_rows
from evodrop._kernels.threads import run_section, useful_threads
from evodrop.definitions import n_draws
from evodrop.nn.law import Law, find_chances
from evodrop.sampling import draw_counts, draw_mask

__all__ = ["drop", "multiply", "sum_squares"]

Array = npt.NDArray[Any]
HALF = (torch.float16, torch.bfloat16)
NONE = np.empty(0)
DROP = COUNTS | PRODUCTS


def drop(rows: Tensor, law: Law, given: Tensor | None, seed: Tensor, output: Tensor | None) -> tuple[Tensor, Tensor]:
    """Counts (n, d) and scale (d,) of the noise for ``rows``; the product goes to ``output``, if there is one."""
    x, key = _array(rows), int(seed) % 2**64
    weights = None if given is None else _array(given).astype(np.float64)
    if weights is not None and law.source == "probs":
        weights = weights / weights.max()  # so that the sum of huge weights is finite
    product = None if output is None else _array_for(output)
    drawn = _drop_usual(x, law, weights, key, product) or _drop_in_steps(x, law, weights, key, product)
    if output is not None:
        _hand_over(product, output)
    return torch.from_numpy(drawn[0]), torch.from_numpy(drawn[1])


def multiply(rows: Tensor, counts: Tensor, scale: Tensor, output: Tensor) -> None:
    """output = rows * (counts * scale), in one pass."""
    product = _array_for(output)
    x, by, times = _array(rows), counts.contiguous().numpy(), _array(scale.contiguous())
    _multiply(x, by, times.astype(x.dtype, copy=False), product)
    _hand_over(product, output)


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
    if threads == 1 and x.shape == counts.shape and len(scale) == x.shape[1]:
        scale_rows(x, counts, scale, product)
    else:
        run_section(PRODUCTS, threads, x=x, counts=counts, scale=scale, products=product)


def _drop_usual(
    x: Array, law: Law, weights: Array | None, key: int, product: Array | None
) -> tuple[Array, Array] | None:
    """The usual call by few kernels: in a small layer, the steps of :func:`_drop_in_steps` cost more than the draws.
    None if it is not usual: another law, a unit that is not finite, or a count above 255."""
    usual = law.scheme == "multinomial" and law.match == "draws" and law.source != "keep"
    if not usual or product is None:
        return None
    (size, d), threads = x.shape, _threads(x)
    k, bits = n_draws(d, law.p) if law.k is None else law.k, (d - 1).bit_length()
    moments = None
    if weights is None:
        weights = NONE if law.source == "batch" else np.ones(d)
    elif law.source == "batch":
        moments = weights
    counts, scale = np.empty((size, d), np.uint8), np.empty(d, x.dtype)
    plan = (weights, law.source == "batch", k, law.uniform_mix, bits)
    if threads == 1 and moments is None:
        drawn = drop_rows(x, *plan, np.uint64(key), counts, scale, product)
    else:
        table = plan_draws(second_moments(x) if moments is None else moments, *plan, scale)
        arrays = {"x": x, "counts": counts, "scale": scale, "products": product, "table": table}
        drawn = len(table) and run_section(DROP, threads, seed=key, bits=bits, k=k, **arrays)
    return (counts, scale) if drawn else None


def _drop_in_steps(x: Array, law: Law, weights: Array | None, key: int, product: Array | None) -> tuple[Array, Array]:
    moments = weights if weights is not None and law.source == "batch" else second_moments(x)
    found = find_chances(law, np.sqrt(moments), weights)
    scale, threads = found.scale.astype(x.dtype, copy=False), _threads(x)
    if found.k is None:
        multiply = {} if product is None else {"x": x, "scale": scale, "products": product}
        return draw_mask(found.chances, len(x), key, threads, **multiply), scale
    counts = draw_counts(found.chances, int(found.k), len(x), key, threads)
    counts[:, found.passes] = 1
    if product is not None:
        _multiply(x, counts, scale, product)
    return counts, scale


def _threads(x: Array) -> int:
    return useful_threads(torch.get_num_threads(), x.size)


def _array(tensor: Tensor) -> Array:
    """The tensor's own memory as an array; half precision, which numba does not know, widened to float32."""
    tensor = tensor.float() if tensor.dtype in HALF else tensor
    array: Array = tensor.resolve_neg().numpy()
    return array


def _array_for(output: Tensor) -> Array:
    """Where a kernel may write ``output``: its own memory, or float32 beside it for half precision."""
    if output.dtype in HALF:
        return np.empty(output.shape, np.float32)
    array: Array = output.numpy()
    return array


def _hand_over(product: Array | None, output: Tensor) -> None:
    if product is not None and output.dtype in HALF:
        output.copy_(torch.from_numpy(product))
