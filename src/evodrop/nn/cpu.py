"""The CPU path: numba kernels on the memory of the tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evodrop.definitions import n_draws
from evodrop.kernels import column_moments, drop_rows, scale_rows
from evodrop.nn.law import Law, find_chances
from evodrop.sampling import draw_counts, draw_mask
from evodrop.threads import over_rows

__all__ = ["drop", "multiply"]

Array = npt.NDArray[Any]
NONE = np.empty(0)
ELEMENTS_PER_THREAD = 1 << 17  # below this a second thread costs more than it saves


def drop(rows: Tensor, law: Law, given: Tensor | None, seed: Tensor, output: Tensor | None) -> tuple[Tensor, Tensor]:
    """Counts (n, d) and scale (d,) of the noise for ``rows``; the product goes to ``output``, if there is one."""
    x, key = _array(rows), int(seed) % 2**64
    weights = None if given is None else _array(given.detach()).astype(np.float64)
    if weights is not None and law.source == "probs":
        weights = weights / weights.max()  # so that the sum of huge weights is finite
    product: Array | None = None if output is None else _array_for(output)
    drawn = _drop_at_once(x, law, weights, key, product) or _drop_in_steps(x, law, weights, key, product)
    if output is not None and product is not None:
        _hand_over(product, output)
    return torch.from_numpy(drawn[0]), torch.from_numpy(drawn[1])


def multiply(rows: Tensor, counts: Tensor, scale: Tensor, output: Tensor) -> None:
    """output = rows * (counts * scale), in one pass."""
    x, by, times, product = _array(rows), counts.numpy(), scale.numpy(), _array_for(output)

    def work(start: int, stop: int) -> None:
        scale_rows(x[start:stop], by[start:stop], times, product[start:stop])

    over_rows(work, len(x), torch.get_num_threads(), ELEMENTS_PER_THREAD // x.shape[1] + 1)
    _hand_over(product, output)


def second_moments(rows: Array) -> Array:
    """E[x_i^2] of each column, split by columns, so that no sum depends on the number of threads."""
    size, d = rows.shape[0], rows[0].size
    moments = np.empty(d)

    def work(start: int, stop: int) -> None:
        column_moments(rows.reshape(size, d), moments, start, stop)

    over_rows(work, d, torch.get_num_threads(), ELEMENTS_PER_THREAD // size + 1)
    return moments if rows.ndim == 2 else moments.reshape(rows.shape[1:]).mean(1)


def _drop_at_once(
    x: Array, law: Law, weights: Array | None, key: int, product: Array | None
) -> tuple[Array, Array] | None:
    """The usual call by one kernel, or None if it is not usual: too large for one thread, a unit that is not finite or
    a count above 255."""
    usual = law.scheme == "multinomial" and law.match == "draws" and law.source != "keep" and product is not None
    if not usual or (x.size > ELEMENTS_PER_THREAD and torch.get_num_threads() > 1):
        return None
    size, d = x.shape
    if weights is None:
        weights = NONE if law.source == "batch" else np.ones(d)
    k = n_draws(d, law.p) if law.k is None else law.k
    counts, scale = np.empty((size, d), np.uint8), np.empty(d, x.dtype)
    options = (law.source == "batch", k, law.uniform_mix, (d - 1).bit_length(), np.uint64(key))
    return (counts, scale) if drop_rows(x, weights, *options, counts, scale, product) else None


def _drop_in_steps(x: Array, law: Law, weights: Array | None, key: int, product: Array | None) -> tuple[Array, Array]:
    found = find_chances(law, np.sqrt(second_moments(x)), weights)
    scale = found.scale.astype(x.dtype, copy=False)
    some_pass = found.passes.any()

    def finish(counts: Array, start: int, stop: int) -> None:
        if some_pass:
            counts[start:stop, found.passes] = 1
        if product is not None:
            scale_rows(x[start:stop], counts[start:stop], scale, product[start:stop])

    if found.k is None:
        counts = draw_mask(found.chances, len(x), key, torch.get_num_threads(), finish)
    else:
        counts = draw_counts(found.chances, int(found.k), len(x), key, torch.get_num_threads(), finish)
    return counts, scale


def _array(tensor: Tensor) -> Array:
    """The tensor's own memory as an array; half precision, which numba does not know, widened to float32."""
    array: Array = (tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor).numpy()
    return array


def _array_for(output: Tensor) -> Array:
    """Where a kernel may write ``output``: its own memory, or float32 beside it for half precision."""
    if output.dtype in (torch.float16, torch.bfloat16):
        return np.empty(output.shape, np.float32)
    array: Array = output.numpy()
    return array


def _hand_over(product: Array, output: Tensor) -> None:
    if output.dtype in (torch.float16, torch.bfloat16):
        output.copy_(torch.from_numpy(product))
