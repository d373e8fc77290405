"""Validation that several parts share, and the types that they all name.

An error names the value, the rule and, where there is one, the remedy.
"""

from __future__ import annotations

import numbers
import sys
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = [
    "Array",
    "ArrayOrTensor",
    "Bytes",
    "Floats",
    "Words",
    "checked_integer",
    "checked_keep",
    "checked_masses",
    "checked_rate",
    "namespace",
]

Array: TypeAlias = npt.NDArray[Any]
Floats: TypeAlias = npt.NDArray[np.float64]
Words: TypeAlias = npt.NDArray[np.uint64]
Bytes: TypeAlias = npt.NDArray[np.uint8]
ArrayOrTensor: TypeAlias = Any  # an ndarray or a torch.Tensor; torch is never imported for it


def namespace(x: ArrayOrTensor) -> Any:
    """The module whose functions fit x: torch for a Tensor, NumPy for all else."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(x, torch.Tensor) else np


def checked_rate(rate: float, closed: bool = False) -> float:
    """The rate as a float if it is in [0, 1), or in [0, 1] with ``closed``; otherwise a ValueError."""
    number = isinstance(rate, numbers.Real)
    if not (number and (0.0 <= rate < 1.0 or (closed and rate == 1.0))):
        span = "[0, 1]" if closed else "[0, 1)"
        raise ValueError(f"dropout rate is {rate!r}, but it takes a number in {span}, the fraction of units to drop")
    return float(rate)


def checked_integer(value: int, name: str, meaning: str = "it", least: int = 1, most: int | None = None) -> int:
    """The value as an int if it is an integer from ``least`` to ``most``; otherwise a ValueError."""
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not (whole and least <= value and (most is None or value <= most)):
        span = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name} is {value!r}, but {meaning} is an integer {span}")
    return int(value)


def checked_masses(masses: ArrayOrTensor, name: str) -> ArrayOrTensor:
    """The masses themselves if they are finite, not negative and not all zero; otherwise a ValueError."""
    xp = namespace(masses)
    masses = np.asarray(masses) if xp is np else masses.detach()
    if masses.ndim != 1 or len(masses) == 0:
        raise ValueError(f"{name} has shape {tuple(masses.shape)}, but it takes one value per unit: shape (d,), d >= 1")
    bad = ~(xp.isfinite(masses) & (masses >= 0))
    if bad.any():
        first = int(xp.where(bad)[0][0])
        raise ValueError(f"{name}[{first}] is {float(masses[first])}, but {name} are finite and not negative")
    if not (masses > 0).any():
        raise ValueError(f"{name} are all zero, so no unit could be drawn; at least one must be positive")
    return masses


def checked_keep(keep: ArrayOrTensor) -> ArrayOrTensor:
    """Keep probabilities themselves if they are masses of at most 1; otherwise a ValueError."""
    keep = checked_masses(keep, "keep")
    if keep.max() > 1:
        raise ValueError(f"keep has a value of {float(keep.max())}, but keep probabilities lie in [0, 1]")
    return keep
