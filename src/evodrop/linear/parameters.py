"""What a parameter of an estimator may be, in scikit-learn's words: it checks them when a fit begins."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

from sklearn.utils._param_validation import Interval, StrOptions

from evodrop.linear.losses import LOSSES
from evodrop.linear.plans import DROPOUTS, MOST_DRAWS
from evodrop.matching import MATCHES

__all__ = ["ADAPTIVE_PARAMETERS", "LOGISTIC_PARAMETERS", "SGD_PARAMETERS"]

POSITIVE_INTEGER = Interval(Integral, 1, None, closed="left")
NOT_NEGATIVE = Interval(Real, 0, None, closed="left")
POSITIVE = Interval(Real, 0, None, closed="neither")

BOTH: dict[str, list[Any]] = {
    "rate": [Interval(Real, 0, 1, closed="left")],
    "match": [StrOptions(set(MATCHES))],
    "alpha": [NOT_NEGATIVE],
    "fit_intercept": ["boolean"],
    "max_iter": [POSITIVE_INTEGER],
    "class_weight": [dict, StrOptions({"balanced"}), None],
    "warm_start": ["boolean"],
    "n_jobs": [Integral, None],
    "verbose": ["verbose"],
}

SGD_PARAMETERS: dict[str, list[Any]] = {
    **BOTH,
    "dropout": [StrOptions(set(DROPOUTS))],
    "k": [Interval(Integral, 1, MOST_DRAWS, closed="both"), None],
    "loss": [StrOptions(set(LOSSES))],
    "learning_rate": [StrOptions({"constant", "invscaling", "bound"})],
    "eta0": [POSITIVE],
    "power_t": [NOT_NEGATIVE],
    "radius": [POSITIVE],
    "average": ["boolean", Interval(Integral, 0, 2**53, closed="both"), StrOptions({"tail"})],
    "tol": [NOT_NEGATIVE, None],
    "n_iter_no_change": [POSITIVE_INTEGER],
    "early_stopping": ["boolean"],
    "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
    "shuffle": ["boolean"],
    "random_state": ["random_state"],
}

LOGISTIC_PARAMETERS: dict[str, list[Any]] = {
    **BOTH,
    "k": [POSITIVE_INTEGER, None],
    "noise": [StrOptions({"multinomial", "bernoulli", "gaussian"})],
    "tol": [NOT_NEGATIVE],
}

ADAPTIVE_PARAMETERS: dict[str, list[Any]] = {
    **{name: allowed for name, allowed in BOTH.items() if name != "match"},
    "rate": [Interval(Real, 0, 1, closed="neither")],
    "concentration": [Interval(Real, 1, None, closed="left")],
    "groups": ["array-like", StrOptions({"all"}), None],
    "tol": [NOT_NEGATIVE],
}
