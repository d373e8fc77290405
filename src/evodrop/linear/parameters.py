"""What a parameter of an estimator may be, in scikit-learn's words, which checks them, and what it is in our own."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from sklearn.utils._param_validation import Interval, StrOptions

from evodrop.linear.kernels import Settings
from evodrop.linear.losses import LOSSES, steepest_slope
from evodrop.linear.plans import DROPOUTS, MOST_DRAWS
from evodrop.noise import MATCHES

__all__ = [
    "ADAPTIVE_PARAMETERS",
    "CLUSTER_PARAMETERS",
    "LOGISTIC_PARAMETERS",
    "SGD_PARAMETERS",
    "dropout_of",
    "radius_of",
    "settings_of",
]

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

CLUSTER_PARAMETERS: dict[str, list[Any]] = {
    **SGD_PARAMETERS,
    "local_epochs": [POSITIVE_INTEGER],
    "cluster": [str, None],
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


def settings_of(estimator: Any) -> Settings:
    """The numbers that a kernel takes."""
    average = estimator.average
    return Settings(
        LOSSES.index(estimator.loss),
        float(estimator.eta0),
        float(estimator.power_t) if estimator.learning_rate == "invscaling" else 0.0,
        float(estimator.alpha),
        bool(estimator.fit_intercept),
        1.0 if average == "tail" else float(average) if average else math.inf,
    )


def dropout_of(estimator: Any) -> dict[str, Any]:
    """The arguments of a plan."""
    return {name: getattr(estimator, name) for name in ("dropout", "rate", "k", "match")}


def radius_of(estimator: Any) -> float | None:
    """r / G of Theorem 1, for learning_rate="bound"."""
    return estimator.radius / steepest_slope(estimator.loss) if estimator.learning_rate == "bound" else None
