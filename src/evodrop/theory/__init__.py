"""The theory, executable: every statement of the paper as a function of your data and a noise.

==================================================  ============================================================
``squared_norm``                                    B^2 = E||x * noise||^2 (Proposition 2)
``noise_covariance``                                Cov(x * noise) (Eq. 5)
``risk_bound``, ``bound_step_size``                 what SGD reaches in n steps (Theorem 1)
``regularizer``                                     what the noise adds to the risk (Proposition 1)
``regularizer_taylor``                              its second-order expansion (Eq. 4)
``regularizer_bound``, ``regularizer_tight_bound``  two upper bounds of it (Proposition 4, supplement)
``tight_probabilities``                             the probabilities that minimise the tight bound
``outcomes``                                        every value of a noise, and its probability
``noises_for``, ``noise_gap``                       the noises we compare; is it worth it on my data?
``report``                                          all of it for a data set, in one table
==================================================  ============================================================

A noise is an :class:`evodrop.noise.Noise`: ``Noise(probs, k)`` for k draws, ``Noise(keep)`` for independent units.
NumPy only; matrices of examples may be dense or SciPy sparse. ``docs/theory.md`` explains all of it.
"""

from evodrop.theory.bounds import (
    NoiseGap,
    bound_step_size,
    noise_covariance,
    noise_gap,
    noises_for,
    risk_bound,
    squared_norm,
)
from evodrop.theory.prediction import Prediction, Report, report
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
