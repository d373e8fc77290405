"""The table of names: every dropout of this package, in networks and in linear models.

A class of the zoo has its row in ``about``, so it takes one line in :data:`CLASSES` to stand in the table. The rows of
those that are not of the zoo, torch's and the paper's, stand here.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from evodrop.nn.layers import DataDependentDropout, EvolutionalDropout, MultinomialDropout, WaterFillingDropout
from evodrop.nn.zoo.adaptive import AdaptiveRateDropout
from evodrop.nn.zoo.batchwise import BatchwiseDropout
from evodrop.nn.zoo.dropconnect import DropConnectLinear
from evodrop.nn.zoo.fast import FastDropoutLinear
from evodrop.nn.zoo.gaussian import GaussianDropout
from evodrop.nn.zoo.protocol import About
from evodrop.nn.zoo.standout import Standout
from evodrop.nn.zoo.variational import VariationalDropout
from evodrop.nn.zoo.variational_weights import VariationalLinear
from evodrop.nn.zoo.weight_aware import WeightAwareDropout

__all__ = ["LINEAR", "ZOO", "about", "rooms"]


PAPER = "Li, Gong and Yang"

ABOUTS: dict[type[nn.Module], About] = {
    nn.Dropout: About(
        name="standard",
        year=2012,
        source="Hinton, Srivastava, Krizhevsky, Sutskever and Salakhutdinov",
        noise="independent masks, mean 1, variance p/(1-p)",
        learns="nothing",
        cost="1, the measure of the others",
        regularizer="p/(1-p) sum w_i^2 E[q x_i^2] / 2 in a logistic model, with q = s(1-s)",
        use="as the baseline",
    ),
    MultinomialDropout: About(
        name="uniform",
        year=2016,
        source=PAPER,
        noise="multinomial, k draws among d units, mean 1, variance (d - 1)/k",
        learns="nothing",
        cost="k draws an example",
        regularizer="as below with p_i = 1/d",
        use="to tell what draws do and what their probabilities do",
    ),
    DataDependentDropout: About(
        name="data-dependent",
        year=2016,
        source=PAPER,
        noise="multinomial, p_i ~ sqrt(E x_i^2) of the data, mean 1, variance (1 - p_i)/(k p_i)",
        learns="nothing; second moments of the training data, once",
        cost="as uniform",
        regularizer="E[q (sum w_i^2 x_i^2 / p_i - (w.x)^2)] / 2k in a logistic model",
        use="on inputs, whose second moments do not change",
    ),
    EvolutionalDropout: About(
        name="evolutional",
        year=2016,
        source=PAPER,
        noise="multinomial, p_i ~ sqrt(E x_i^2) of the batch, mean 1, variance (1 - p_i)/(k p_i)",
        learns="nothing",
        cost="as uniform, and the second moments of the batch",
        regularizer="as data-dependent, at the moments of the batch",
        use="on hidden layers, in the place of standard dropout",
    ),
    WaterFillingDropout: About(
        name="water-filling",
        year=2026,
        source="evodrop",
        noise="independent masks, kept with pi_i = min(1, t sqrt(E x_i^2)), mean 1, variance 1/pi_i - 1",
        learns="nothing",
        cost="a sort of the second moments of the batch",
        regularizer="sum w_i^2 E[q x_i^2] (1/pi_i - 1) / 2 in a logistic model",
        use="for the least noise at so many units kept; weak units starve where much is dropped",
    ),
}

CLASSES: tuple[Any, ...] = (
    WeightAwareDropout,
    GaussianDropout,
    FastDropoutLinear,
    Standout,
    DropConnectLinear,
    BatchwiseDropout,
    VariationalDropout,
    VariationalLinear,
    AdaptiveRateDropout,
)

ZOO: dict[str, type[nn.Module]] = {
    **{row.name: cls for cls, row in ABOUTS.items()},
    **{cls.about.name: cls for cls in CLASSES},
}

LINEAR: dict[str, str] = {  # how evodrop.linear spells it, which is never imported here
    "standard": "DropoutSGDClassifier('standard')",
    "uniform": "DropoutSGDClassifier('uniform')",
    "data-dependent": "DropoutSGDClassifier('data-dependent')",
    "water-filling": "DropoutSGDClassifier('water-filling')",
    "weight-aware": "DropoutSGDClassifier('weight-aware')",
    "gaussian": "DropoutLogisticRegression(noise='gaussian')",
    "adaptive-rate": "AdaptiveRateLogisticRegression()",
}


def about(name: str) -> About:
    """The row of a dropout.

    Examples:
        >>> about("evolutional").year
        2016
    """
    cls: Any = checked_class(name)
    return ABOUTS.get(cls) or cls.about


def rooms(name: str) -> tuple[str, ...]:
    """Where a name exists: in ``nn``, in ``linear``, or in both.

    Examples:
        >>> rooms("data-dependent"), rooms("evolutional")
        (('nn', 'linear'), ('nn',))
    """
    checked_class(name)
    return ("nn", "linear") if name in LINEAR else ("nn",)


def checked_class(name: str) -> type[nn.Module]:
    """The class of a name, or a ValueError that lists the names."""
    if name not in ZOO:
        raise ValueError(f"dropout {name!r} is not in the zoo; it has {', '.join(map(repr, sorted(ZOO)))}")
    return ZOO[name]
