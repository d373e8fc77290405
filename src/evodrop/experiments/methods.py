"""The methods that are compared: from a name to the layer that stands in the place of dropout.

torch is imported when a layer is made, so that a list of methods costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from evodrop.definitions import checked_rate
from evodrop.matching import MATCHES

if TYPE_CHECKING:
    from torch import nn

__all__ = ["CHALLENGERS", "LINEAR", "LINEAR_METHODS", "METHODS", "Method", "make_dropout", "methods_of"]

CHALLENGERS = ("evolutional", "data-dependent")  # the paper's, for networks and for linear models
LINEAR = "linear"  # the network of a run without one: logistic regression


class Method(NamedTuple):
    """What a table says of a method, and how its layer is made.

    Attributes:
        words: one plain line.
        make: from rate and match to one fresh layer; None where there is no layer at all.
        uses_rate, uses_match: whether these matter. If not, runs that differ in them alone are the same.
    """

    words: str
    make: Callable[[float, str], nn.Module] | None
    uses_rate: bool = True
    uses_match: bool = True


def make_dropout(method: str, rate: float = 0.5, match: str = "draws") -> Callable[[], nn.Module] | None:
    """A function that makes one fresh layer for each place of dropout in a network; None for a network without any.

    Making a layer draws no random number, so networks that differ in the method alone can have the same weights.

    Args:
        method: a key of :data:`METHODS`.
        rate: fraction of the units to drop.
        match: what the number of draws is matched to, see :mod:`evodrop.matching`. Methods that draw nothing ignore it.

    Examples:
        >>> make_dropout("evolutional", 0.5, "noise")()
        EvolutionalDropout(p=0.5, scheme='multinomial', match='noise')
        >>> make_dropout("none") is None
        True
    """
    if method not in METHODS:
        raise ValueError(f"method is {method!r}, but it is one of {', '.join(map(repr, METHODS))}")
    if match not in MATCHES:
        raise ValueError(f"match is {match!r}, but it is one of {', '.join(map(repr, MATCHES))}")
    p, make = checked_rate(rate), METHODS[method].make
    return None if make is None else lambda: make(p, match)


def _standard(rate: float, _match: str) -> nn.Module:
    from torch import nn

    return nn.Dropout(rate)


def _uniform(rate: float, match: str) -> nn.Module:
    from evodrop.nn import MultinomialDropout

    return MultinomialDropout(rate, match=match)


def _evolutional(rate: float, match: str) -> nn.Module:
    from evodrop.nn import EvolutionalDropout

    return EvolutionalDropout(rate, match=match)


def _water_filling(rate: float, match: str) -> nn.Module:
    from evodrop.nn import EvolutionalDropout

    return EvolutionalDropout(rate, scheme="bernoulli", match=match)


def _batchnorm(_rate: float, _match: str) -> nn.Module:
    from evodrop.experiments.networks.batchnorm import LazyBatchNorm

    return LazyBatchNorm()


METHODS: dict[str, Method] = {
    "none": Method("no dropout at all", None, uses_rate=False, uses_match=False),
    "standard": Method("standard dropout: every unit is dropped with the same chance", _standard, uses_match=False),
    "uniform": Method("multinomial dropout: k draws among the units, all equally likely", _uniform),
    "evolutional": Method("the paper's: k draws among the units, strong ones more likely", _evolutional),
    "water-filling": Method("units are dropped independently, strong ones less often", _water_filling),
    "batchnorm": Method("batch normalisation in the place of dropout", _batchnorm, uses_rate=False, uses_match=False),
}

LINEAR_METHODS: dict[str, Method] = {  # names of evodrop.linear, which makes their noise
    "none": METHODS["none"],
    "standard": Method("standard dropout: every feature is dropped with the same chance", None, uses_match=False),
    "uniform": Method("multinomial dropout: k draws among the features, all equally likely", None),
    "data-dependent": Method("the paper's: k draws among the features, strong ones more likely", None),
    "water-filling": Method("features are dropped independently, strong ones less often", None),
    "weight-aware": Method("k draws, half data-dependent, half by strength times weight", None),
}


def methods_of(network: str) -> dict[str, Method]:
    """The methods that a network can be trained with; those of linear models if it is :data:`LINEAR`."""
    return LINEAR_METHODS if network == LINEAR else METHODS
