"""What SGD under noise reaches in n steps (Theorem 1), and what a quieter noise is worth."""

from __future__ import annotations

import math
import numbers
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from evodrop._checks import checked_rate
from evodrop.definitions import keep_probabilities, n_draws, sampling_probabilities
from evodrop.theory.arguments import checked_moments, checked_positive
from evodrop.theory.noises import BernoulliNoise, MultinomialNoise, Noise
from evodrop.theory.statistics import squared_norm

__all__ = ["NoiseGap", "bound_step_size", "noise_gap", "noises_for", "risk_bound"]


def risk_bound(G: float, B: float, r: float, n: int) -> float:
    """G B r / sqrt(n): how much more risk n steps of SGD leave, on average, than the best weights have (Theorem 1).

    At most, for a convex loss,
    E[L(w_n) + R(w_n)] - L(w*) - R(w*) for every ||w*|| <= r, where L is the risk, R what the noise adds to it (see
    :func:`~evodrop.theory.regularizer`), w_n the mean of n iterates that start at 0, and the step that of
    :func:`bound_step_size`. To halve it takes four times the examples; to halve B^2 is worth half of them.

    Args:
        G: how steep the convex loss is at most: 1 for the logistic and the hinge loss.
        B: the root of B^2 = E||x * noise||^2; see :func:`~evodrop.theory.expected_squared_norm`.
        r: how long the weights are that we compare with.
        n: the number of steps, one example each.

    Examples:
        >>> risk_bound(G=1, B=2, r=3, n=100)
        0.6
    """
    G, B, r, n = _checked_problem(G, B, r, n)
    return G * B * r / math.sqrt(n)


def bound_step_size(G: float, B: float, r: float, n: int) -> float:
    """r / (G B sqrt(n)): the step at which the bound of Theorem 1 is least.

    The proof gives r^2 / (2 eta n) + eta G^2 B^2 / 2 for a step eta; this one makes the two terms equal.

    Args:
        G, B, r, n: as in :func:`risk_bound`.

    Examples:
        >>> bound_step_size(G=1, B=2, r=3, n=100)
        0.15
    """
    G, B, r, n = _checked_problem(G, B, r, n)
    return r / G / B / math.sqrt(n)


class NoiseGap(NamedTuple):
    """Factors by which one noise has a smaller B^2 than another: above 1 it pays, by the paper's criterion.

    To reach the same bound, SGD needs that many times fewer examples.
    """

    data_dependent_over_uniform: float
    data_dependent_over_standard: float
    water_filling_over_uniform: float
    water_filling_over_standard: float
    evenness: float  # (sum s)^2 / (d sum s^2) with s_i = sqrt(E x_i^2): 1 if all units are alike, 1/d if one has all


def noise_gap(moments: npt.ArrayLike, rate: float = 0.5) -> NoiseGap:
    """Is it worth it on my data? By what factor noise that follows the data has a smaller B^2 than noise that does not.

    Data-dependent noise has B^2 = E||x||^2 (1 + (d evenness - 1) / k) with k = d (1 - rate), standard dropout
    E||x||^2 / (1 - rate). Up to the rounding of k, it beats standard dropout just where the evenness is below
    rate + 1/d, and uniform multinomial noise wherever the moments differ; water-filling never loses to either.

    Args:
        moments: (d,), E[x_i^2].
        rate: the fraction to drop.

    Examples:
        >>> even, skewed = np.ones(100), 1.0 / np.arange(1, 101) ** 2
        >>> round(noise_gap(even).data_dependent_over_standard, 3)  # draws repeat: nearly 3 against 2
        0.671
        >>> _, data_dependent, _, water_filling, evenness = noise_gap(skewed)
        >>> round(data_dependent, 2), round(water_filling, 2), round(evenness, 3)
        (1.53, 1.95, 0.165)
    """
    moments = checked_moments(moments)
    moments = moments / moments.max()  # so that no sum overflows
    norm = {name: squared_norm(moments, noise) for name, noise in noises_for(moments, rate).items()}
    scale = np.sqrt(moments)
    return NoiseGap(
        data_dependent_over_uniform=norm["uniform"] / norm["data-dependent"],
        data_dependent_over_standard=norm["standard"] / norm["data-dependent"],
        water_filling_over_uniform=norm["uniform"] / norm["water-filling"],
        water_filling_over_standard=norm["standard"] / norm["water-filling"],
        evenness=float(scale.sum() ** 2 / (len(scale) * (scale**2).sum())),
    )


def noises_for(moments: npt.ArrayLike, rate: float) -> dict[str, Noise]:
    """The noises that the paper and this library compare, by their names, at one rate: k = d (1 - rate) for all.

    Args:
        moments: (d,), E[x_i^2].
        rate: the fraction to drop.

    Examples:
        >>> noises_for([4.0, 1.0, 1.0, 0.0], 0.5)["data-dependent"]
        MultinomialNoise(probs=array([0.5 , 0.25, 0.25, 0.  ]), k=2)
    """
    moments, rate = checked_moments(moments), checked_rate(rate)
    d = len(moments)
    k = n_draws(d, rate)
    return {
        "none": BernoulliNoise(np.ones(d)),
        "standard": BernoulliNoise(np.full(d, 1.0 - rate)),
        "uniform": MultinomialNoise(np.full(d, 1.0 / d), k),
        "data-dependent": MultinomialNoise(sampling_probabilities(moments), k),
        "water-filling": BernoulliNoise(keep_probabilities(moments, k)),
    }


def _checked_problem(G: float, B: float, r: float, n: int) -> tuple[float, float, float, int]:
    if not (isinstance(n, numbers.Integral) and 1 <= n <= 2**53):
        raise ValueError(f"n is {n!r}, but the number of steps is an integer from 1 to 2^53")
    return (
        checked_positive(G, "G", "the Lipschitz constant of the loss"),
        checked_positive(B, "B", "the root of E||x * noise||^2"),
        checked_positive(r, "r", "the largest norm of the weights"),
        int(n),
    )
