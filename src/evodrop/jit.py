"""The one way that this package compiles a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numba

__all__ = ["compiled"]

F = TypeVar("F", bound=Callable[..., object])


def compiled(kernel: F) -> F:
    """Compile ``kernel`` at its first call, without the GIL, and keep the machine code on disk.

    Where no cache folder can be written, numba refuses ``cache=True``; then the code is compiled in memory.
    """
    try:
        return _njit(kernel, cache=True)
    except RuntimeError:
        return _njit(kernel, cache=False)


def _njit(kernel: F, cache: bool) -> F:
    # error_model="numpy": a division by zero gives inf or nan and no branch, so loops vectorise.
    dispatcher: F = numba.njit(nogil=True, cache=cache, error_model="numpy")(kernel)
    return dispatcher
