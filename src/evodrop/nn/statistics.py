"""Sampling probabilities of a whole data set, whatever it comes in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evodrop.definitions import sampling_probabilities, second_moments
from evodrop.nn.layout import checked_dims, to_rows

__all__ = ["probabilities_of"]

LONG = 50  # batches from which a loader gets a progress bar


def probabilities_of(data: Any, unit_dims: int | Sequence[int] | None = None) -> Tensor:
    """(d,) float32 probabilities p_i ~ sqrt(E x_i^2) of an array, a sparse matrix, a tensor or a loader of batches."""
    if hasattr(data, "tocsr"):
        moments = torch.from_numpy(second_moments(data))
    elif isinstance(data, (np.ndarray, Tensor)):
        moments = _moments_of_batches(_tensors([data]), unit_dims)
    elif isinstance(data, Iterable) and not isinstance(data, str):
        moments = _moments_of_batches(_tensors(_with_progress(data)), unit_dims)
    else:
        raise TypeError(
            f"data of type {type(data).__name__}; give an array, a sparse matrix, a tensor or a data loader"
        )
    bad = ~torch.isfinite(moments)
    if bad.any():
        raise ValueError(
            f"unit {int(bad.nonzero()[0])} of the data has values that are not finite; clean the data first"
        )
    if not moments.any():
        raise ValueError("the data are all zero, so there is nothing for the probabilities to follow")
    probs: Tensor = sampling_probabilities(moments)
    return probs.float()


def _moments_of_batches(batches: Iterator[Tensor], unit_dims: int | Sequence[int] | None) -> Tensor:
    total, size = torch.zeros(0, dtype=torch.float64), 0
    for batch in batches:
        if batch.numel() == 0:
            continue
        rows = to_rows(batch.detach(), checked_dims(batch, unit_dims)).double()
        if size and len(total) != rows.shape[1]:
            raise ValueError(
                f"a batch of shape {tuple(batch.shape)} has {rows.shape[1]} units, not {len(total)} as before"
            )
        squares = rows.square().sum(0)
        total, size = total + squares if size else squares, size + len(rows)
    if size == 0:
        raise ValueError("the data hold no examples, so there are no second moments; is the loader used up?")
    return total / size


def _tensors(batches: Iterable[Any]) -> Iterator[Tensor]:
    for batch in batches:
        inputs = batch[0] if isinstance(batch, (tuple, list)) else batch
        if not isinstance(inputs, (Tensor, np.ndarray)):
            raise TypeError(f"a batch of type {type(batch).__name__}; give tensors, or tuples that begin with one")
        if isinstance(inputs, Tensor) and inputs.layout != torch.strided:
            raise TypeError(f"a tensor of layout {inputs.layout}; give a SciPy sparse array, or .to_dense()")
        # A copy, since an array may be read-only, reversed or of another byte order, which torch does not take.
        yield inputs if isinstance(inputs, Tensor) else torch.from_numpy(np.array(inputs, np.float64))


def _with_progress(batches: Iterable[Any]) -> Iterable[Any]:
    if not isinstance(batches, Sized) or len(batches) < LONG:
        return batches
    from rich.progress import track

    return track(batches, description="second moments", transient=True)
