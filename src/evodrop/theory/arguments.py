"""What the functions of the theory take: checked once, with errors that teach."""

from __future__ import annotations

import math
import numbers
import os
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

from evodrop._checks import checked_masses
from evodrop.definitions import second_moments

__all__ = [
    "Examples",
    "Floats",
    "checked_draws",
    "checked_examples",
    "checked_length",
    "checked_moments",
    "checked_positive",
    "checked_probs",
    "checked_weights",
    "finite_moments",
]

Floats: TypeAlias = npt.NDArray[np.float64]
Examples: TypeAlias = "Floats | sparse.csr_array"

REMEDIES = {1: "; one example is X[None, :]", 3: "; blocks of rows are given as an iterator, iter(blocks)"}
SUM_TOLERANCE = 1e-6  # probabilities that were rounded to float32 are still probabilities


def checked_moments(moments: npt.ArrayLike) -> Floats:
    """Second moments as (d,) float64: finite, not negative, not all zero."""
    masses: Floats = checked_masses(np.asarray(moments, np.float64), "moments")
    return masses


def checked_probs(probs: npt.ArrayLike) -> Floats:
    """Sampling probabilities as (d,) float64: masses that sum to 1."""
    masses: Floats = checked_masses(np.asarray(probs, np.float64), "probs")
    total = float(masses.sum())
    if not abs(total - 1.0) <= SUM_TOLERANCE:
        raise ValueError(f"probs sum to {total:.9g}, but probabilities sum to 1; divide them by their sum")
    return masses / total


def checked_draws(k: int) -> int:
    """The number of draws."""
    if not (isinstance(k, numbers.Integral) and 1 <= k <= 2**53):
        raise ValueError(f"k is {k!r}, but the number of draws is an integer from 1 to 2^53; see definitions.n_draws")
    return int(k)


def checked_weights(w: npt.ArrayLike) -> Floats:
    """The weights of a linear model as (d,) float64: finite."""
    weights = np.asarray(w, np.float64)
    if weights.ndim != 1 or len(weights) == 0:
        raise ValueError(f"w has shape {weights.shape}, but it takes one weight per unit: shape (d,), d >= 1")
    if not np.isfinite(weights).all():
        first = int(np.flatnonzero(~np.isfinite(weights))[0])
        raise ValueError(f"w[{first}] is {weights[first]}, but weights are finite")
    return weights


def checked_examples(X: Any, name: str = "X") -> Examples:
    """Examples as an (n, d) float64 array, or csr_array if they are sparse: at least one of each, finite."""
    if isinstance(X, str | bytes | os.PathLike):
        raise ValueError(
            f"{name} is {X!r}, but it takes the examples themselves; evodrop.linear.iter_svmlight reads a file"
        )
    if np.iscomplexobj(X):
        raise ValueError(
            f"{name} is complex, but its values are real; take their absolute values, or both parts as units"
        )
    examples = _canonical(X) if sparse.issparse(X) else np.asarray(X, np.float64)
    if examples.ndim != 2 or 0 in examples.shape:
        remedy = REMEDIES.get(examples.ndim, "") if 0 not in examples.shape else ""
        raise ValueError(
            f"{name} has shape {examples.shape}, but it takes at least one example: (n, d), n, d >= 1{remedy}"
        )
    values = examples.data if sparse.issparse(examples) else examples
    if not np.isfinite(values).all():
        raise ValueError(f"{name} has a value that is nan or infinite, but its values are finite; remove such examples")
    return examples


def finite_moments(X: Examples, name: str = "X") -> Floats:
    """(d,): E[x_i^2], unless a square or the sum of all is too large for a float."""
    with np.errstate(over="ignore"):
        moments: Floats = second_moments(X)
        finite = math.isfinite(moments.sum())
    if not finite:
        raise ValueError(f"{name} has values whose squares overflow; divide {name} by its largest value")
    return moments


def _canonical(X: Any) -> sparse.csr_array:
    """Each value once: what is given twice counts as the sum, as SciPy has it."""
    examples = sparse.csr_array(X, dtype=np.float64)
    if not examples.has_canonical_format:
        examples = examples.copy()  # the arrays may still be those of X
        examples.sum_duplicates()
    return examples


def checked_length(value: Any, name: str, d: int, reference: str) -> None:
    """Raise a ValueError unless the last dimension of value is d, as that of its reference is."""
    if value.shape[-1] != d:
        raise ValueError(f"{name} has {value.shape[-1]} units, but {reference} {d}; both take one value per unit")


def checked_positive(value: float, name: str, meaning: str) -> float:
    """A finite number above 0."""
    if not (isinstance(value, numbers.Real) and 0.0 < value < math.inf):
        raise ValueError(f"{name} is {value!r}, but {meaning} is a finite number above 0")
    return float(value)
