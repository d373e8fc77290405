"""From draws to the distinct units that survive them, and back."""

from __future__ import annotations

import numpy.typing as npt

from evodrop import definitions
from evodrop.noise import draws_for_kept
from evodrop.theory.arguments import checked_draws, checked_positive, checked_probs

__all__ = ["expected_kept", "matched_draws"]

MOST_DRAWS = 2**53  # beyond, a float does not tell k from k + 1


def expected_kept(probs: npt.ArrayLike, k: int) -> float:
    """sum_i 1 - (1 - p_i)^k: how many distinct units survive k draws, on average.

    The paper calls k the number of kept features. Draws repeat, so it is less: about 0.393 d for even probabilities and
    k = d / 2.

    Args:
        probs: (d,), the sampling probabilities.
        k: the number of draws.

    Examples:
        >>> expected_kept([0.5, 0.5], 2)
        1.5
    """
    return float(definitions.expected_kept(checked_probs(probs), checked_draws(k)))


def matched_draws(probs: npt.ArrayLike, kept: float) -> int:
    """The number of draws whose expected number of distinct units is closest to ``kept``; :func:`expected_kept` undone.

    Args:
        probs: (d,), the sampling probabilities.
        kept: units to keep on average, d (1 - rate) for the number of standard dropout; less than the number of units
            that can be drawn.

    Examples:
        >>> matched_draws([0.001] * 1000, 500)  # not 500: draws repeat
        693
    """
    probs, kept = checked_probs(probs), checked_positive(kept, "kept", "the number of units to keep on average")
    drawn = int((probs > 0).sum())
    if kept > drawn or kept == drawn > 1:
        raise ValueError(
            f"kept is {kept}, but {drawn} units can be drawn, and no number of draws keeps all of them always"
        )
    if definitions.expected_kept(probs, MOST_DRAWS) < kept:
        raise ValueError(f"kept is {kept}, but so many units are not kept in 2^53 draws; some are all but never drawn")
    return int(draws_for_kept(probs, kept, MOST_DRAWS))
