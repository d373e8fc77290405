"""The paper in a page: every quantity by its definition, plain and slow.

The fast code is tested against this file. Each function takes an ndarray or a torch Tensor and answers in kind;
:func:`second_moments` takes SciPy sparse arrays too. Words: ``moments`` are E[x_i^2], ``probs`` the sampling
probabilities p_i, ``k`` the number of draws, ``counts`` the multinomial m_i, ``noise`` the factor epsilon_i.
"""

from __future__ import annotations

import math

import numpy as np

from evodrop._checks import ArrayOrTensor, checked_integer, checked_keep, checked_masses, checked_rate, namespace

__all__ = [
    "bernoulli_noise",
    "expected_kept",
    "keep_probabilities",
    "multinomial_noise",
    "n_draws",
    "sampling_probabilities",
    "second_moments",
    "survival_probabilities",
]


def second_moments(x: ArrayOrTensor) -> ArrayOrTensor:
    """E[x_i^2], the mean over the rows of the squares of each unit.

    Args:
        x: (n, d) ndarray, Tensor or SciPy sparse array. Computed in float64, so that no square of a float32 overflows.

    Examples:
        >>> second_moments(np.array([[3.0, 0.0], [4.0, 1.0]]))
        array([12.5,  0.5])
    """
    if not hasattr(x, "shape"):
        x = np.asarray(x)
    if x.shape[0] == 0:
        raise ValueError(f"second_moments: x of shape {tuple(x.shape)} has no rows; give at least one example")
    if hasattr(x, "tocsr"):
        wide = x.astype(np.float64)
        return np.asarray(wide.multiply(wide).mean(axis=0)).ravel()
    wide = _wide(x)
    return (wide * wide).mean(0)


def sampling_probabilities(moments: ArrayOrTensor) -> ArrayOrTensor:
    """p_i = sqrt(E x_i^2) / sum_j sqrt(E x_j^2), the probabilities that minimise the risk bound (Proposition 3).

    Examples:
        >>> sampling_probabilities(np.array([9.0, 1.0, 0.0]))
        array([0.75, 0.25, 0.  ])
    """
    scale = namespace(moments).sqrt(_wide(checked_masses(moments, "moments")))
    return scale / scale.sum()


def n_draws(d: int, rate: float) -> int:
    """k = d (1 - rate), rounded half up and never 0: the number of draws that the paper gives d units.

    Examples:
        >>> n_draws(1152, 0.5), n_draws(3, 0.5), n_draws(1, 0.9)
        (576, 2, 1)
    """
    d = checked_integer(d, "d", "the number of units")
    return max(1, math.floor(d * (1.0 - checked_rate(rate)) + 0.5))


def keep_probabilities(moments: ArrayOrTensor, k: float) -> ArrayOrTensor:
    """Water-filling: pi_i = min(1, t sqrt(E x_i^2)) with t such that the pi_i sum to k.

    These independent keep probabilities have the least E||x * noise||^2 among all that keep k units on average, and
    never more than multinomial noise with k draws. If k exceeds the number of units that are not always zero, all
    of those are kept.

    Examples:
        >>> keep_probabilities(np.array([16.0, 1.0, 1.0, 0.0]), 2)
        array([1. , 0.5, 0.5, 0. ])
    """
    xp = namespace(moments)
    scale = xp.sqrt(_wide(checked_masses(moments, "moments")))
    if not k > 0:
        raise ValueError(f"keep_probabilities: k is {k!r}, but the expected number of kept units is positive")
    certain = scale < 0  # none yet
    if k >= (scale > 0).sum():
        return xp.where(scale > 0, 1.0, xp.zeros_like(scale))
    while True:
        t = (k - certain.sum()) / scale[~certain].sum()
        if not (t * scale > 1)[~certain].any():
            return xp.where(certain, 1.0, t * scale)
        certain = certain | (t * scale > 1)


def survival_probabilities(probs: ArrayOrTensor, k: ArrayOrTensor) -> ArrayOrTensor:
    """(d,): 1 - (1 - p_i)^k, the chance of each unit to be drawn at least once in k draws.

    Examples:
        >>> survival_probabilities(np.array([0.5, 0.25, 0.25]), 2)
        array([0.75  , 0.4375, 0.4375])
    """
    xp = namespace(probs)
    certain = probs >= 1.0  # log1p(-1) is -inf
    missed = k * xp.log1p(-xp.where(certain, 0.0, probs))
    return xp.where(certain, 1.0, -xp.expm1(missed))


def expected_kept(probs: ArrayOrTensor, k: ArrayOrTensor) -> ArrayOrTensor:
    """sum_i 1 - (1 - p_i)^k: how many distinct units survive k draws, on average.

    It is less than k, since draws repeat: 0.393 d for uniform probabilities and k = d / 2.

    Examples:
        >>> float(expected_kept(np.array([0.5, 0.5]), 2))
        1.5
    """
    return survival_probabilities(probs, k).sum()


def multinomial_noise(probs: ArrayOrTensor, k: int, size: int, rng: np.random.Generator) -> ArrayOrTensor:
    """epsilon_i = m_i / (k p_i) with m ~ Mult(p; k), one row per example (Definition 1). Units with p_i = 0 get 0.

    Examples:
        >>> noise = multinomial_noise(np.array([0.25, 0.75]), 4, 1000, np.random.default_rng(0))
        >>> bool((noise @ np.array([0.25, 0.75]) == 1).all())
        True
    """
    probs = _wide(checked_masses(probs, "probs"))
    probs = probs / probs.max() / (probs / probs.max()).sum()
    k, xp = checked_integer(k, "k", "the number of draws"), namespace(probs)
    counts = xp.asarray(rng.multinomial(k, np.asarray(probs, np.float64), size=size))
    return xp.where(probs > 0, counts / (k * xp.where(probs > 0, probs, 1.0)), 0.0)


def bernoulli_noise(keep: ArrayOrTensor, size: int, rng: np.random.Generator) -> ArrayOrTensor:
    """epsilon_i = b_i / pi_i with independent b_i ~ Bernoulli(pi_i). Units with pi_i = 0 get 0.

    Examples:
        >>> bernoulli_noise(np.array([1.0, 0.0]), 2, np.random.default_rng(0))
        array([[1., 0.],
               [1., 0.]])
    """
    keep = _wide(checked_keep(keep))
    xp = namespace(keep)
    kept = xp.asarray(rng.random((size, len(keep)))) < keep
    return xp.where(kept, 1.0 / xp.where(keep > 0, keep, 1.0), 0.0)


def _wide(x: ArrayOrTensor) -> ArrayOrTensor:
    return np.asarray(x, np.float64) if namespace(x) is np else x.double()
