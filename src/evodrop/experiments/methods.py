"""The methods that are compared: from a name to what stands in the places of dropout in a network.

A method has a layer of its own, or it is a name of :mod:`evodrop.nn.zoo`: those may need the layers beside them, so the
whole network is converted. Of the zoo's names ``data-dependent`` is missing: it follows the second moments of fixed
data, and those of a hidden layer change with every step. torch is imported when a layer is made, so that a list of
methods costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from evodrop._checks import checked_rate
from evodrop.noise import MATCHES

if TYPE_CHECKING:
    from torch import nn

__all__ = [
    "CHALLENGERS",
    "LINEAR",
    "LINEAR_METHODS",
    "METHODS",
    "USUAL",
    "Method",
    "build_with",
    "make_dropout",
    "methods_of",
]

N = TypeVar("N", bound="nn.Module")

CHALLENGERS = ("evolutional", "data-dependent")  # the paper's, for networks and for linear models
LINEAR = "linear"  # the network of a run without one: logistic regression


class Method(NamedTuple):
    """What a table says of a method, and how its layer is made.

    Attributes:
        words: one plain line.
        make: from rate and match to one fresh layer; None where there is no layer at all.
        uses_rate, uses_match: whether these matter. If not, runs that differ in them alone are the same. A method that
            learns its noise starts from the rate.
        in_zoo: whether a network is converted to it, standard dropout marking the places.
        rescaled: for a dropout that may be biased, that here it is not. A bias shrinks the signal, and one step size
            would not suit it and the others.
    """

    words: str
    make: Callable[[float, str], nn.Module] | None
    uses_rate: bool = True
    uses_match: bool = True
    in_zoo: bool = False
    rescaled: bool = False


def build_with(
    build: Callable[[Callable[[], nn.Module] | None], N], method: str, rate: float = 0.5, match: str = "draws"
) -> N:
    """A network with a method in its places of dropout. It has the same names and sizes of weights for every method.

    Args:
        build: makes the network, given what :func:`make_dropout` returns.
        method, rate, match: as in :func:`make_dropout`, and every name of the zoo.

    Examples:
        >>> from evodrop.experiments.networks.catalogue import NETWORKS
        >>> build_with(NETWORKS["digits"].build, "fast", 0.2).fc3
        FastDropoutLinear(in_features=150, out_features=10, bias=True, p=0.2, deterministic=False)
    """
    found = _found(method, match)
    network = build(make_dropout("standard" if found.in_zoo else method, rate, match))
    if found.in_zoo:
        from evodrop.nn import convert_dropout

        options: dict[str, Any] = {"match": match} if found.uses_match else {}
        if found.rescaled:
            options["rescale"] = True
        convert_dropout(network, to=method, **options)
    return network


def make_dropout(method: str, rate: float = 0.5, match: str = "draws") -> Callable[[], nn.Module] | None:
    """A function that makes one fresh layer for each place of dropout in a network; None for a network without any.

    Making a layer draws no random number, so networks that differ in the method alone can have the same weights.

    Args:
        method: a key of :data:`METHODS` that has a layer of its own; :func:`build_with` takes the others too.
        rate: fraction of the units to drop.
        match: what the number of draws is matched to, see :mod:`evodrop.noise`. Methods that draw nothing ignore it.

    Examples:
        >>> make_dropout("evolutional", 0.5, "noise")()
        EvolutionalDropout(p=0.5, match='noise')
        >>> make_dropout("none") is None
        True
    """
    found = _found(method, match)
    if found.in_zoo:
        raise ValueError(f"method is {method!r}, which takes a whole network, not a layer; build_with() makes one")
    p, make = checked_rate(rate), found.make
    return None if make is None else lambda: make(p, match)


def _found(method: str, match: str) -> Method:
    if method not in METHODS:
        raise ValueError(f"method is {method!r}, but it is one of {', '.join(map(repr, METHODS))}")
    if match not in MATCHES:
        raise ValueError(f"match is {match!r}, but it is one of {', '.join(map(repr, MATCHES))}")
    return METHODS[method]


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
    from evodrop.nn import WaterFillingDropout

    return WaterFillingDropout(rate, match=match)


def _batchnorm(_rate: float, _match: str) -> nn.Module:
    from evodrop.experiments.networks.batchnorm import LazyBatchNorm

    return LazyBatchNorm()


def _of_zoo(words: str, uses_match: bool = False, rescaled: bool = False) -> Method:
    return Method(words, None, uses_match=uses_match, in_zoo=True, rescaled=rescaled)


METHODS: dict[str, Method] = {
    "none": Method("no dropout at all", None, uses_rate=False, uses_match=False),
    "standard": Method("standard dropout: every unit is dropped with the same chance", _standard, uses_match=False),
    "uniform": Method("multinomial dropout: k draws among the units, all equally likely", _uniform),
    "evolutional": Method("the paper's: k draws among the units, strong ones more likely", _evolutional),
    "water-filling": Method("units are dropped independently, strong ones less often", _water_filling),
    "batchnorm": Method("batch normalisation in the place of dropout", _batchnorm, uses_rate=False, uses_match=False),
    "weight-aware": _of_zoo("k draws, half by strength, half by strength times outgoing weight", uses_match=True),
    "gaussian": _of_zoo("units times normal noise as loud as standard dropout's"),
    "fast": _of_zoo("standard dropout as a normal number for each sum over the units"),
    "standout": _of_zoo("a unit is kept the more often the larger its pre-activation is; rescaled", rescaled=True),
    "dropconnect": _of_zoo("weights are dropped instead of units, others for every example"),
    "batchwise": _of_zoo("standard dropout with the same mask for all examples of a batch"),
    "variational": _of_zoo("units times normal noise; its variance is learned, from the rate on"),
    "variational-weights": _of_zoo("weights with normal noise; its variance is learned, from the rate on"),
    "adaptive-rate": _of_zoo("units times normal noise; its rate is inferred, from the rate on"),
}
USUAL = tuple(name for name, method in METHODS.items() if not method.in_zoo)  # what is compared unless others are named

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
