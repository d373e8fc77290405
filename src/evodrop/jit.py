"""The one way that this package compiles a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba

__all__ = ["compiled"]


def compiled(kernel: Callable[..., Any]) -> Any:
    """Compile ``kernel`` at its first call, without the GIL, and keep the machine code on disk.

    Where no cache folder can be written, numba refuses ``cache=True``; then the code is compiled in memory.
    """
    try:
        return _njit(kernel, cache=True)
    except RuntimeError:
        return _njit(kernel, cache=False)


def _njit(kernel: Callable[..., Any], cache: bool) -> Any:
    # error_model="numpy": a division by zero gives inf or nan and no branch, so loops vectorise.
    return numba.njit(nogil=True, cache=cache, error_model="numpy")(kernel)
