"""The losses of a margin m = y f(x), each with its slope, as machine code: one function for all, chosen by number.

A kernel that took functions as arguments would be compiled anew in every process: numba cannot cache such code.
"""

from __future__ import annotations

import math

from evodrop._kernels.compile import compiled

__all__ = ["LOSSES", "loss_and_slope", "steepest_slope"]

LOSSES = ("log_loss", "hinge", "squared_hinge", "modified_huber")
STEEPEST = {"log_loss": 1.0, "hinge": 1.0, "modified_huber": 4.0}
LOG_LOSS, HINGE, SQUARED_HINGE = range(3)


@compiled
def loss_and_slope(loss: int, margin: float) -> tuple[float, float]:
    """The loss number ``loss`` of ``LOSSES`` at a margin, and its derivative."""
    if loss == LOG_LOSS:
        small = math.exp(-abs(margin))  # never overflows
        value = math.log1p(small) + max(-margin, 0.0)
        return value, -(small if margin > 0.0 else 1.0) / (1.0 + small)
    short = 1.0 - margin
    if not short > 0.0:
        return 0.0 * short, 0.0  # nan stays nan
    if loss == HINGE:
        return short, -1.0
    if loss == SQUARED_HINGE or margin >= -1.0:
        return short * short, -2.0 * short
    return -4.0 * margin, -4.0


def steepest_slope(loss: str) -> float:
    """G of Theorem 1, the Lipschitz constant of a loss."""
    if loss not in STEEPEST:
        raise ValueError(
            f"learning_rate='bound' needs a loss of bounded slope, and {loss!r} is not; "
            f"use {', '.join(map(repr, STEEPEST))} or learning_rate='constant'"
        )
    return STEEPEST[loss]
