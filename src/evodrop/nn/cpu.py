"""The CPU path: numba kernels on the memory of the tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evodrop import sampling
from evodrop.definitions import n_draws
from evodrop.jit import compiled
from evodrop.nn.law import LEAST_RATE, Chances, Law, find_chances
from evodrop.threads import over_rows

__all__ = ["draw", "multiply"]

Array = npt.NDArray[Any]
NOBODY = np.zeros(1, bool)  # no unit passes through
ELEMENTS_PER_THREAD = 1 << 17  # below this a second thread costs more than it saves


def draw(rows: Tensor, law: Law, given: Tensor | None, seed: Tensor) -> tuple[Tensor, Tensor] | None:
    """Counts (n, d) and scale (d,) of the noise for ``rows``, or None if there is nothing to drop."""
    rms = np.sqrt(second_moments(_array(rows)))
    weights = None if given is None else _array(given.detach()).astype(np.float64)
    if weights is not None and law.source == "probs":
        weights = weights / weights.max()  # so that the sum of huge weights is finite
    dtype = np.float64 if rows.dtype == torch.float64 else np.float32
    usual = law.scheme == "multinomial" and law.match == "draws" and law.source != "keep"
    found = (_usual_chances(law, rms, weights, dtype) if usual else None) or find_chances(law, rms, weights)
    if found.passes.all():
        return None
    scale = torch.from_numpy(found.scale.astype(dtype, copy=False))
    return torch.from_numpy(_sample(found, len(rows), int(seed) % 2**64)), scale


def _usual_chances(law: Law, rms: Array, weights: Array | None, dtype: type) -> Chances | None:
    """What :func:`find_chances` finds, by one kernel: in a small layer its many small steps would cost more than the
    draws. None if a unit is not finite, or none can be drawn."""
    if weights is None:
        weights = rms if law.source == "batch" else np.ones_like(rms)
    k = n_draws(len(rms), law.p) if law.k is None else law.k
    probs = np.empty_like(rms)
    scale: Array = np.empty(len(rms), dtype)
    if not fill_chances(weights, rms, k, law.uniform_mix, probs, scale):
        return None
    return Chances(probs, k, k, scale, NOBODY)


def _sample(found: Chances, size: int, seed: int) -> Array:
    threads = torch.get_num_threads()
    if found.k is None:
        return sampling.draw_mask(found.chances, size, seed, threads)
    counts = sampling.draw_counts(found.chances, int(found.k), size, seed, threads)
    if found.passes.any():
        counts[:, found.passes] = 1
    return counts


def second_moments(rows: Array) -> Array:
    """E[x_i^2] of each column, split by columns, so that no sum depends on the number of threads."""
    size, d = rows.shape[0], rows[0].size
    moments = np.empty(d)

    def work(start: int, stop: int) -> None:
        column_moments(rows.reshape(size, d), moments, start, stop)

    over_rows(work, d, torch.get_num_threads(), ELEMENTS_PER_THREAD // size + 1)
    return moments if rows.ndim == 2 else moments.reshape(rows.shape[1:]).mean(1)


def multiply(rows: Tensor, counts: Tensor, scale: Tensor) -> Tensor:
    """rows * (counts * scale), in one pass and in the dtype of rows."""
    output = torch.empty(rows.shape, dtype=scale.dtype)
    factors, by, times, products = _array(rows), _array(counts), _array(scale), _array(output)

    def work(start: int, stop: int) -> None:
        scale_rows(factors[start:stop], by[start:stop], times, products[start:stop])

    over_rows(work, len(rows), torch.get_num_threads(), ELEMENTS_PER_THREAD // rows.shape[1] + 1)
    return output.to(rows.dtype)


def _array(tensor: Tensor) -> Array:
    """The tensor's own memory as an array; half precision, which numba does not know, widened to float32."""
    array: Array = (tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor).numpy()
    return array


@compiled
def column_moments(rows: Array, moments: Array, start: int, stop: int) -> None:
    """Mean squares of the columns start..stop, in float64. Blocks of columns stay in the nearest cache; four rows at
    a time spare it three visits of four."""
    size = len(rows)
    for left in range(start, stop, 1024):
        right = min(left + 1024, stop)
        sums = moments[left:right]
        sums[:] = 0.0
        whole = size - size % 4
        for r in range(0, whole, 4):
            a, b, c, d = rows[r, left:right], rows[r + 1, left:right], rows[r + 2, left:right], rows[r + 3, left:right]
            for i in range(right - left):
                w, x, y, z = np.float64(a[i]), np.float64(b[i]), np.float64(c[i]), np.float64(d[i])
                sums[i] += (w * w + x * x) + (y * y + z * z)
        for r in range(whole, size):
            a = rows[r, left:right]
            for i in range(right - left):
                sums[i] += np.float64(a[i]) * np.float64(a[i])
        for i in range(right - left):
            sums[i] /= size


@compiled
def fill_chances(weights: Array, rms: Array, k: int, uniform_mix: float, probs: Array, scale: Array) -> bool:
    total, drawable = 0.0, 0
    for i in range(len(weights)):
        if not np.isfinite(rms[i]):
            return False
        total += weights[i]
        drawable += weights[i] > 0.0
    if total == 0.0:
        return False
    for i in range(len(weights)):
        if weights[i] > 0.0:
            probs[i] = (1.0 - uniform_mix) * weights[i] / total + uniform_mix / drawable
            scale[i] = 1.0 / max(k * probs[i], LEAST_RATE)
        else:
            probs[i] = scale[i] = 0.0
    return True


@compiled
def scale_rows(rows: Array, counts: Array, scale: Array, products: Array) -> None:
    number = scale.dtype.type  # a count times a float32 would be a float64
    for r in range(len(rows)):
        row, count, product = rows[r], counts[r], products[r]
        for i in range(len(row)):
            product[i] = row[i] * (number(count[i]) * scale[i])
