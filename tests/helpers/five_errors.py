"""Compare what was drawn with its law: a mean and a variance, each within five of its own standard errors."""

from __future__ import annotations

import math

ROUNDING = 1e-12  # of float64: where the variance is 0, all draws are the mean but for this


def assert_moments(draws, mean, variance):
    """Independent draws along dimension 0 have this mean and variance, element by element.

    The standard error of the mean is sqrt(variance / n), that of the variance sqrt((fourth - variance^2) / n) with the
    fourth central moment of the draws.
    """
    n, draws = len(draws), draws.double()
    centred = draws - mean
    found, fourth = centred.square().mean(0), centred.pow(4).mean(0)
    assert (centred.mean(0).abs() <= 5 * (variance / n) ** 0.5 + ROUNDING).all()
    assert (
        (found - variance).abs() <= 5 * (fourth - found.square()).clamp(min=0).sqrt() / math.sqrt(n) + ROUNDING
    ).all()
