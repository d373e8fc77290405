"""The theory, executable: every statement of the paper as a function of your data.

====================================================================  =============================================
``MultinomialNoise(probs, k)``, ``BernoulliNoise(keep)``              a noise as a value: sample it, enumerate it
``expected_squared_norm``, ``expected_squared_norm_bernoulli``        B^2 = E||x * noise||^2 (Proposition 2)
``squared_norm(moments, noise)``, ``noises_for(moments, rate)``       the same of any noise; the noises we compare
``noise_covariance``, ``noise_covariance_bernoulli``                  Cov(x * noise) (Eq. 5)
``regularizer``                                                       what the noise adds to the risk (Proposition 1)
``regularizer_taylor``                                                its second-order expansion (Eq. 4)
``regularizer_bound``, ``regularizer_tight_bound``                    what bounds that (Proposition 4, supplement)
``tight_probabilities``                                               the probabilities of least tight bound
``risk_bound``, ``bound_step_size``                                   what SGD reaches in n steps (Theorem 1)
``expected_kept``, ``matched_draws``                                  from draws to distinct units, and back
``noise_gap``                                                         is it worth it on my data?
``report``                                                            all of it for a data set: a table, a picture
====================================================================  =============================================

NumPy only; matrices of examples may be dense or SciPy sparse. The story is told in ``docs/theory.md``.
"""

from evodrop.theory.kept import expected_kept, matched_draws
from evodrop.theory.noises import BernoulliNoise, MultinomialNoise
from evodrop.theory.regularizers import (
    Estimate,
    regularizer,
    regularizer_bound,
    regularizer_taylor,
    regularizer_tight_bound,
    tight_probabilities,
)
from evodrop.theory.report import Prediction, Report, report
from evodrop.theory.risk import NoiseGap, bound_step_size, noise_gap, noises_for, risk_bound
from evodrop.theory.statistics import (
    expected_squared_norm,
    expected_squared_norm_bernoulli,
    noise_covariance,
    noise_covariance_bernoulli,
    squared_norm,
)

__all__ = [
    "BernoulliNoise",
    "Estimate",
    "MultinomialNoise",
    "NoiseGap",
    "Prediction",
    "Report",
    "bound_step_size",
    "expected_kept",
    "expected_squared_norm",
    "expected_squared_norm_bernoulli",
    "matched_draws",
    "noise_covariance",
    "noise_covariance_bernoulli",
    "noise_gap",
    "noises_for",
    "regularizer",
    "regularizer_bound",
    "regularizer_taylor",
    "regularizer_tight_bound",
    "report",
    "risk_bound",
    "squared_norm",
    "tight_probabilities",
]
