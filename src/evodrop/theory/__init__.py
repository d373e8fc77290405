"""The theory, executable: every statement of the paper as a function of your data and a noise.

A noise is an :class:`evodrop.noise.Noise`: ``Noise(probs, k)`` for k draws, ``Noise(keep)`` for independent units.
NumPy only; matrices of examples may be dense or SciPy sparse. ``docs/theory.md`` explains all of it.
"""

from evodrop.theory.bounds import bound_step_size, noise_covariance, risk_bound, squared_norm
from evodrop.theory.prediction import NoiseGap, Prediction, Report, noise_gap, noises_for, report
from evodrop.theory.regularizers import (
    Estimate,
    outcomes,
    regularizer,
    regularizer_bound,
    regularizer_taylor,
    regularizer_tight_bound,
    tight_probabilities,
)

__all__ = [
    "Estimate",
    "NoiseGap",
    "Prediction",
    "Report",
    "bound_step_size",
    "noise_covariance",
    "noise_gap",
    "noises_for",
    "outcomes",
    "regularizer",
    "regularizer_bound",
    "regularizer_taylor",
    "regularizer_tight_bound",
    "report",
    "risk_bound",
    "squared_norm",
    "tight_probabilities",
]
