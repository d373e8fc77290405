"""What noise costs: E||x * noise||^2 (Proposition 2), its covariance (Eq. 5), and what SGD reaches (Theorem 1)."""

from __future__ import annotations

import math
import numbers
import os
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

from evodrop._checks import Floats, checked_integer, checked_keep, checked_masses
from evodrop.definitions import second_moments
from evodrop.noise import Noise

Examples: TypeAlias = "Floats | sparse.csr_array"
LARGEST = 2**53  # beyond, a float does not distinguish k from k + 1
SUM_TOLERANCE = 1e-6  # probabilities that were rounded to float32 are still probabilities


def squared_norm(moments: npt.ArrayLike, noise: Noise) -> float:
    """B^2 = E||x * noise||^2: what the noise costs in the risk bound (Proposition 2).

    1/k sum_i E[x_i^2] / p_i + (k - 1)/k sum_i E[x_i^2] for k draws, sum_i E[x_i^2] / pi_i for independent noise.

    Args:
        moments: (d,), E[x_i^2]; see :func:`evodrop.definitions.second_moments`.
        noise: on d units; its chances are positive wherever the moments are.

    Examples:
        >>> squared_norm([9.0, 1.0], Noise([0.5, 0.5], 2)), squared_norm([9.0, 1.0], Noise([0.5, 0.5]))
        (15.0, 20.0)
    """
    moments = checked_moments(moments)
    with np.errstate(over="ignore"):  # infinite is the answer where it is not a float
        return added_norm(moments, noise) + float(moments.sum())


def added_norm(moments: Floats, noise: Noise) -> float:
    """What the noise adds to E||x||^2: sum_i (spread_i - shared) E[x_i^2], the trace of the mean covariance."""
    noise = checked_noise(noise, moments, "moments")
    with np.errstate(over="ignore"):
        return float((moments * np.where(noise.drawn, noise.spread - noise.shared, 0.0)).sum())


def noise_covariance(x: Any, noise: Noise) -> Any:
    """The covariance of x * noise (Eq. 5), (d, d); sparse if x is, so that d may be a million.

    For k draws diag(x_i^2 / p_i) / k - x x' / k: each unit has its own noise, and all compete for the same k draws. For
    independent noise diag(x_i^2 (1 - pi_i) / pi_i).

    Args:
        x: (d,) array, or a sparse array of one example.
        noise: on d units; its chances are positive wherever x is not 0.

    Examples:
        >>> noise_covariance([3.0, 1.0], Noise([0.75, 0.25], 2)).tolist()
        [[1.5, -1.5], [-1.5, 1.5]]
    """
    x = x if sparse.issparse(x) else as_floats(x, "x")
    if not max(x.shape, default=0) == math.prod(x.shape) > 0:
        raise ValueError(f"x has shape {x.shape}, but it takes one example: shape (d,), d >= 1")
    row, squares = checked_examples(x.reshape(1, -1), "x")
    noise = checked_noise(noise, squares, "x")
    with np.errstate(over="ignore"):
        own = squares * noise.spread
    if isinstance(row, np.ndarray):
        return np.diag(own) - noise.shared * np.outer(row, row)
    return (sparse.diags_array(own) - noise.shared * (row.T @ row)).tocsr()


def risk_bound(G: float, B: float, r: float, n: int) -> float:
    """G B r / sqrt(n): how much more risk n steps of SGD leave, on average, than the best weights have (Theorem 1).

    For a convex loss it bounds E[L(w_n) + R(w_n)] - L(w*) - R(w*) for every ||w*|| <= r. L is the risk, R what the
    noise adds to it (see :func:`~evodrop.theory.regularizer`), w_n the mean of n iterates that start at 0, and the step
    that of :func:`bound_step_size`. To halve it takes four times the examples; to halve B^2 is worth half of them.

    Args:
        G: the Lipschitz constant of the loss: 1 for the logistic and the hinge loss.
        B: the root of B^2 = E||x * noise||^2; see :func:`squared_norm`.
        r: the largest norm of the weights that we compare with.
        n: the number of steps, one example each.

    Examples:
        >>> risk_bound(G=1, B=2, r=3, n=100)
        0.6
    """
    G = checked_positive(G, "G", "the Lipschitz constant of the loss")
    B = checked_positive(B, "B", "the root of E||x * noise||^2")
    r = checked_positive(r, "r", "the largest norm of the weights")
    return G * B * r / math.sqrt(checked_integer(n, "n", "the number of steps", most=LARGEST))


def bound_step_size(G: float, B: float, r: float, n: int) -> float:
    """r / (G B sqrt(n)): the step at which the bound of Theorem 1 is least.

    The proof gives r^2 / (2 eta n) + eta G^2 B^2 / 2 for a step eta; this one makes the two terms equal.

    Args:
        G, B, r, n: as in :func:`risk_bound`.

    Examples:
        >>> bound_step_size(G=1, B=2, r=3, n=100)
        0.15
    """
    risk_bound(G, B, r, n)  # which checks them
    return float(r) / float(G) / float(B) / math.sqrt(n)


def checked_noise(noise: Noise, moments: Floats | None = None, name: str = "") -> Noise:
    """The noise in float64, its probabilities with a sum of 1; unbiased for every unit whose moment is not 0."""
    if not isinstance(noise, Noise):
        raise ValueError(f"noise is {noise!r}, but it takes a Noise(chances, k); evodrop.noise.make_noise makes one")
    chances, k = as_floats(noise.chances, "chances"), noise.k
    if k is None:
        checked_keep(chances)
    else:
        k = checked_integer(k, "k", "the number of draws", most=LARGEST)
        with np.errstate(over="ignore"):
            total = checked_masses(chances, "probs").sum()
        if not abs(total - 1.0) <= SUM_TOLERANCE:
            raise ValueError(f"probs sum to {total:.9g}, but probabilities sum to 1; divide them by their sum")
        chances = chances / total
    if moments is not None:
        if len(moments) != len(chances):
            raise ValueError(
                f"{name} has {len(moments)} units, but the noise {len(chances)}; both take one value per unit"
            )
        lost = np.flatnonzero((chances == 0) & (moments > 0))
        if len(lost):
            raise ValueError(
                f"unit {lost[0]} is not always zero, but the noise never keeps it, so that the mean of the noise is "
                "not 1; give every such unit a positive probability"
            )
    return Noise(chances, k)


def checked_model(w: npt.ArrayLike, X: Any, noise: Noise) -> tuple[Floats, Examples, Noise]:
    """The arguments of a regulariser. The noise of a unit without weight is never felt, so it may be biased."""
    X, moments = checked_examples(X)
    w = checked_weights(w, X.shape[1], "X")
    return w, X, checked_noise(noise, moments * (w != 0), "X")


def checked_weights(w: npt.ArrayLike, d: int, reference: str) -> Floats:
    weights = as_floats(w, "w")
    if weights.shape != (d,):
        raise ValueError(f"w has shape {weights.shape}, but it takes one weight per unit of {reference}: shape ({d},)")
    infinite = np.flatnonzero(~np.isfinite(weights))
    if len(infinite):
        raise ValueError(f"w[{infinite[0]}] is {weights[infinite[0]]}, but weights are finite")
    return weights


def checked_moments(moments: npt.ArrayLike) -> Floats:
    masses: Floats = checked_masses(as_floats(moments, "moments"), "moments")
    return masses


def checked_examples(X: Any, name: str = "X") -> tuple[Examples, Floats]:
    """At least one example as an (n, d) float64 array, or csr_array if X is sparse; and the second moments, finite."""
    if isinstance(X, str | bytes | os.PathLike):
        raise ValueError(f"{name} is {X!r}, but it takes the examples; evodrop.linear.iter_svmlight reads a file")
    if sparse.issparse(X):
        examples = sparse.csr_array(X, copy=True)  # else the arrays may still be those of X
        examples.data = as_floats(examples.data, name)
        examples.sum_duplicates()  # a value that is given twice counts as the sum, as SciPy has it
    else:
        examples = as_floats(X, name)
    if examples.ndim != 2 or 0 in examples.shape:
        raise ValueError(
            f"{name} has shape {examples.shape}, but it takes at least one example: (n, d), n, d >= 1; one example is "
            f"{name}[None, :], and blocks of rows are an iterator, iter(blocks)"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        moments = second_moments(examples)
        finite = np.isfinite(moments.sum())
    if not finite and not np.isfinite(abs(examples).max()):
        raise ValueError(f"{name} has a value that is nan or infinite, but its values are finite; remove such examples")
    if not finite:
        raise ValueError(f"{name} has values whose squares overflow; divide {name} by its largest value")
    return examples, moments


def as_floats(values: Any, name: str) -> Floats:
    try:  # NumPy would make numbers of dates and of texts too
        return np.asarray(values).astype(np.float64, casting="same_kind", copy=False)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name} is {values!r:.60}, but it takes real numbers: {error}") from error


def checked_positive(value: float, name: str, meaning: str) -> float:
    if not (isinstance(value, numbers.Real) and 0.0 < value < math.inf):
        raise ValueError(f"{name} is {value!r}, but {meaning} is a finite number above 0")
    return float(value)
