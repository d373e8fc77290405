"""What the noise adds to the risk of a logistic model (Proposition 1), its expansion (Eq. 4) and its bounds.

Throughout, the loss is log(1 + exp(-y w.x)), E_D is the mean over the rows of X, and s is the logistic function.
"""

from __future__ import annotations

from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import comb, exp2, expit, gammaln, xlogy

from evodrop._checks import ArrayOrTensor, Floats, checked_integer
from evodrop.definitions import bernoulli_noise, multinomial_noise
from evodrop.noise import Noise, normalised
from evodrop.theory.bounds import Examples, added_norm, checked_model, checked_moments, checked_noise, checked_weights

CELLS = 4_000_000  # numbers held at a time, and in a table of outcomes with method="auto"
MOST_CELLS = 20_000_000  # numbers in the table of all outcomes


class Estimate(NamedTuple):
    """A value and its standard error, which is 0 if the value is exact."""

    value: float
    standard_error: float


def regularizer(
    w: npt.ArrayLike,
    X: Any,
    noise: Noise,
    *,
    method: str = "auto",
    n_samples: int = 1000,
    random_state: int | np.random.Generator | None = None,
) -> Estimate:
    """R(w) = E[loss under noise] - E[loss without], the regulariser that dropout is equivalent to (Proposition 1).

    E_D E_noise log [cosh(w.(x * noise) / 2) / cosh(w.x / 2)]

    The labels have no part in it. It is never negative (Jensen), and grows with the variance of the scores.

    Args:
        w: (d,), the weights.
        X: (n, d) array or SciPy sparse array, the examples.
        noise: on d units; its chances are positive wherever X is not 0.
        method: "exact" enumerates every outcome of the noise, "sample" draws ``n_samples`` of them for all rows
            together, "auto" enumerates if that takes no more than four million numbers.
        n_samples: how many; the standard error falls with its root.
        random_state: a seed or a NumPy generator.

    Examples:
        >>> X, noise = np.array([[3.0, 1.0], [0.0, 2.0]]), Noise([0.6, 0.4], 3)
        >>> round(regularizer([1.0, -1.0], X, noise).value, 4)
        0.1907
    """
    w, X, noise = checked_model(w, X, noise)
    if method not in ("auto", "exact", "sample"):
        raise ValueError(f"method is {method!r}, but it takes one of 'auto', 'exact', 'sample'")
    portion = max(1, CELLS // max(X.shape))
    if method == "exact" or (method == "auto" and n_outcomes(noise) * X.shape[1] <= CELLS):
        values, pmf = outcomes(noise)
        parts = [_excesses(w, X, values[start : start + portion]) for start in range(0, len(values), portion)]
        return Estimate(float(np.concatenate(parts) @ pmf), 0.0)
    n = checked_integer(n_samples, "n_samples", "the number of draws for a standard error", least=2)
    rng, sizes = np.random.default_rng(random_state), [min(portion, n - start) for start in range(0, n, portion)]
    means = np.concatenate([_excesses(w, X, sample_noise(noise, size, rng)) for size in sizes])
    return Estimate(float(means.mean()), float(means.std(ddof=1) / np.sqrt(n)))


def regularizer_taylor(w: npt.ArrayLike, X: Any, noise: Noise) -> float:
    """The second-order expansion of :func:`regularizer` in the noise (Eq. 4).

    1/2 E_D[s(w.x) (1 - s(w.x)) w' Cov(x * noise) w]

    The paper prints s(w.x / 2). The second derivative of the loss is s (1 - s) at w.x itself, and so it stands here.

    Args:
        w, X, noise: as in :func:`regularizer`.

    Examples:
        >>> w, X, noise = np.array([1.0, -1.0]), np.array([[3.0, 1.0], [0.0, 2.0]]), Noise([0.6, 0.4], 300)
        >>> round(regularizer_taylor(w, X, noise), 6), round(regularizer(w, X, noise).value, 6)
        (0.001706, 0.001713)
    """
    w, X, noise = checked_model(w, X, noise)
    likely = expit(X @ w)
    return float((likely * (1.0 - likely) * score_variances(w, X, noise)).mean() / 2.0)


def regularizer_tight_bound(w: npt.ArrayLike, X: Any, noise: Noise) -> float:
    """E_D[w' Cov(x * noise) w] / 8, at least :func:`regularizer_taylor` (supplement, proof of Proposition 4).

    For multinomial noise 1/(8k) {sum_i w_i^2 E[x_i^2] / p_i - E[(w.x)^2]}. It takes 1/4 for s (1 - s), so it is tight
    where all scores w.x are 0. It bounds :func:`regularizer` itself as well, whose second derivative is at most 1/4.

    Args:
        w, X, noise: as in :func:`regularizer`.

    Examples:
        >>> w, X, noise = [1.0, -1.0], [[2.0, 2.0]], Noise([0.5, 0.5], 2)  # the score is 0
        >>> regularizer_tight_bound(w, X, noise), regularizer_taylor(w, X, noise)
        (1.0, 1.0)
    """
    w, X, noise = checked_model(w, X, noise)
    return float(score_variances(w, X, noise).mean() / 8.0)


def regularizer_bound(w: npt.ArrayLike, moments: npt.ArrayLike, noise: Noise) -> float:
    """||w||^2 (E||x * noise||^2 - E||x||^2) / 8, at least :func:`regularizer_tight_bound` (Proposition 4).

    For multinomial noise 1/(8k) ||w||^2 (sum_i E[x_i^2] / p_i - E||x||^2). The weights and the probabilities stand
    apart, so the probabilities of Proposition 3 minimise it for all weights at once. It is loose: it takes the trace of
    a covariance for its largest eigenvalue, so it is tight only where the noise of every x has one direction and w lies
    along it: a single unit that is noisy, or two that share all the draws.

    Args:
        w: (d,), the weights.
        moments, noise: as in :func:`squared_norm`.

    Examples:
        >>> regularizer_bound([1.0, -1.0], [4.0, 4.0], Noise([0.5, 0.5], 2))
        1.0
    """
    moments = checked_moments(moments)
    w = checked_weights(w, len(moments), "moments")
    added = added_norm(moments, noise)
    with np.errstate(over="ignore"):  # infinite is the answer where it is not a float
        return float((w @ w) * added / 8.0) if added else 0.0


def tight_probabilities(w: npt.ArrayLike, moments: npt.ArrayLike) -> Floats:
    """``p_i = |w_i| sqrt(E x_i^2) / sum_j |w_j| sqrt(E x_j^2)``, which minimise :func:`regularizer_tight_bound`.

    The supplement prints w_i for w_j in the denominator, where it would cancel. Since the weights are not known before
    they are learned, ``DropoutSGDClassifier(dropout="weight-aware")`` takes those of the moment.

    Args:
        w, moments: (d,), the weights and E[x_i^2].

    Examples:
        >>> tight_probabilities([1.0, -3.0], [9.0, 1.0])
        array([0.5, 0.5])
    """
    moments = checked_moments(moments)
    w = checked_weights(w, len(moments), "moments")
    masses = normalised(np.abs(w)) * np.sqrt(normalised(moments))
    if not masses.any():
        raise ValueError("w is 0 wherever moments are positive, so every bound is 0 and no probabilities are best")
    probs: Floats = masses / masses.sum()
    return probs


def outcomes(noise: Noise) -> tuple[Floats, Floats]:
    """Every value of the noise, (n, d), and the probability of each, (n,).

    Examples:
        >>> outcomes(Noise([0.5, 1.0]))
        (array([[0., 1.], [2., 1.]]), array([0.5, 0.5]))
    """
    noise = checked_noise(noise)
    d, n = len(noise.chances), n_outcomes(noise)
    if n * d > MOST_CELLS:
        raise ValueError(
            f"{n:.3g} outcomes of {d} units are too many for a table of {MOST_CELLS:,} numbers; sample the noise"
        )
    chances, k = noise.chances[noise.drawn], noise.k
    if k is None:
        kept = np.array(list(product(*[(1.0,) if certain else (0.0, 1.0) for certain in chances == 1.0])))
        factors, pmf = kept / chances, np.where(kept > 0, chances, 1.0 - chances).prod(axis=1)
    else:  # stars and bars: k draws in a row with bars between the units
        bars = len(chances) - 1
        places = np.array(list(combinations(range(k + bars), bars)), np.int64).reshape(int(n), bars)
        counts = np.diff(places, prepend=-1, append=k + bars, axis=1) - 1.0
        log_pmf = gammaln(k + 1.0) + (xlogy(counts, chances) - gammaln(counts + 1.0)).sum(axis=1)
        factors, pmf = counts / (k * chances), np.exp(log_pmf)
    values = np.zeros((len(pmf), d))
    values[:, noise.drawn] = factors
    return values, pmf


def n_outcomes(noise: Noise) -> float:
    """C(k + d - 1, k) for k draws among d units, 2^u for u independent units that are neither 0 nor certain."""
    if noise.k is None:
        return float(exp2(np.count_nonzero(noise.drawn & (noise.chances < 1.0))))
    return float(np.rint(comb(noise.k + np.count_nonzero(noise.drawn) - 1, noise.k)))


def sample_noise(noise: Noise, size: int, rng: np.random.Generator) -> ArrayOrTensor:
    """(size, d): independent draws."""
    if noise.k is None:
        return bernoulli_noise(noise.chances, size, rng)
    return multinomial_noise(noise.chances, noise.k, size, rng)


def score_variances(w: Floats, X: Examples, noise: Noise) -> Floats:
    """(n,): the variance w' Cov(x * noise) w of each example's score, sum_i spread_i w_i^2 x_i^2 - shared (w.x)^2."""
    squares = X * X if isinstance(X, np.ndarray) else X.multiply(X)
    with np.errstate(over="ignore", invalid="ignore"):
        return _not_negative(squares @ (noise.spread * w * w) - noise.shared * (X @ w) ** 2)


def _excesses(w: Floats, X: Examples, factors: Floats) -> Floats:
    """For each value of the noise what it adds to the loss, less the linear term, averaged over the rows of X.

    That term has mean 0, as the noise has mean 1. Without it a value is at least 0 (convexity) and varies far less.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        clean, noisy = X @ w, X @ (w * factors).T
        slope = 0.5 * np.tanh(clean / 2.0)
        base = np.logaddexp(clean / 2.0, -clean / 2.0) - slope * clean
        values = np.logaddexp(noisy / 2.0, -noisy / 2.0) - slope[:, None] * noisy - base[:, None]
        means: Floats = _not_negative(values).mean(axis=0)
        return means


def _not_negative(values: Floats) -> Floats:
    if not np.isfinite(values).all():
        raise ValueError("w and X are so large that squares of scores overflow; divide one by its largest value")
    return np.maximum(values, 0.0)  # what rounding leaves of 0 may be below it
