"""Draw the noise of a call: one seed from torch's generator, and the path that fits the device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType

import torch
import torch.distributed
from torch import Tensor

from evodrop._checks import checked_keep, checked_masses
from evodrop._kernels.rows import RANK_STEP
from evodrop.nn import cpu
from evodrop.nn import device as device_path
from evodrop.nn.law import Law
from evodrop.nn.layout import to_rows, write_rows

__all__ = ["draw", "draw_seed", "path_for", "use_backend"]

_DISTRIBUTED = torch.distributed.is_available()
BACKENDS = ("auto", "numba", "torch")
_backend: ContextVar[str] = ContextVar("evodrop_backend", default="auto")


@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Choose the path within a ``with`` block: ``"numba"`` (CPU only), ``"torch"`` (any device), or ``"auto"``: numba
    on the CPU, torch elsewhere.

    Examples:
        >>> from evodrop.nn.functional import evolutional_dropout
        >>> with use_backend("torch"):
        ...     y = evolutional_dropout(torch.randn(8, 4))
    """
    if name not in BACKENDS:
        raise ValueError(f"use_backend: {name!r} is not a backend; choose one of {', '.join(BACKENDS)}")
    token = _backend.set(name)
    try:
        yield
    finally:
        _backend.reset(token)


def path_for(device: torch.device) -> ModuleType:
    """The module with the code for the device."""
    backend = _backend.get()
    if backend == "numba" and device.type != "cpu":
        raise ValueError(f"the numba backend takes CPU tensors, but the input is on {device}; use the backend 'auto'")
    return cpu if backend == "numba" or (backend == "auto" and device.type == "cpu") else device_path


def draw_seed(device: torch.device, generator: torch.Generator | None = None) -> Tensor:
    """64 random bits from torch's generator, moved apart on every rank of a process group."""
    seed = torch.randint(-(2**63), 2**63 - 1, (), dtype=torch.int64, device=device, generator=generator)
    if _DISTRIBUTED and torch.distributed.is_initialized():
        return seed + torch.distributed.get_rank() * RANK_STEP % 2**63
    return seed


def _check_values(given: Tensor, law: Law) -> None:
    if law.source == "keep":
        checked_keep(given)
    elif law.source == "probs":
        checked_masses(given, "probs")
    elif (negative := given < 0).any():  # moments may be infinite: such units pass
        raise ValueError(f"moments holds {float(given[negative][0])}, but a mean of squares is not negative")


def draw(
    input: Tensor,
    law: Law,
    given: Tensor | None,
    units: Sequence[int],
    shared: Sequence[int],
    seed: Tensor,
    output: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Counts (examples, units) and scale (units,) of the noise; ``input`` times the noise goes to ``output``."""
    if given is not None and given.device.type == "cpu":  # elsewhere, looking at the values would stall the device
        _check_values(given, law)
    rows = to_rows(input.detach(), units, shared)
    product = None if output is None else to_rows(output, units)
    drawn: tuple[Tensor, Tensor] = path_for(input.device).drop(rows, law, given, seed, product)
    if output is not None and product is not None:
        write_rows(product, output, units)
    return drawn
