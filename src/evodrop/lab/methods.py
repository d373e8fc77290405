"""The methods that are compared: one table for networks, one for linear models.

Each name but ``none`` and ``batchnorm`` is one of :data:`evodrop.nn.zoo.ZOO`, and a network is converted to it. Of the
zoo's names ``data-dependent`` is missing: it follows the second moments of fixed data, and those of a hidden layer
change with every step. Nothing here needs torch, so a list of methods costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

LINEAR = "linear"  # the network of a run without one: logistic regression
PROPOSED = ("evolutional", "data-dependent")  # by the paper, for networks and for linear models


class Method(NamedTuple):
    """One line of help, and what a method takes: options that it ignores do not set its runs apart.

    A method that learns its noise starts from the rate. ``options`` go to its layers.
    """

    words: str
    uses_rate: bool = True
    uses_match: bool = False
    options: Mapping[str, Any] = {}


METHODS: dict[str, Method] = {
    "none": Method("no dropout at all", uses_rate=False),
    "standard": Method("standard dropout: every unit is dropped with the same chance"),
    "uniform": Method("multinomial dropout: k draws among the units, all equally likely", uses_match=True),
    "evolutional": Method("the paper's: k draws among the units, strong ones more likely", uses_match=True),
    "water-filling": Method("units are dropped independently, strong ones less often", uses_match=True),
    "batchnorm": Method("batch normalisation in the place of dropout", uses_rate=False),
    "weight-aware": Method("k draws, half by strength, half by strength times outgoing weight", uses_match=True),
    "gaussian": Method("units times normal noise with the variance of standard dropout's"),
    "fast": Method("standard dropout as a normal number for each sum over the units"),
    # A biased dropout shrinks the signal, and one step size would not suit it and the others: hence rescale.
    "standout": Method("a unit is kept the more often the larger its input is; rescaled", options={"rescale": True}),
    "dropconnect": Method("weights are dropped instead of units, others for every example"),
    "batchwise": Method("standard dropout with the same mask for all examples of a batch"),
    "variational": Method("units times normal noise; its variance is learned, from the rate on"),
    "variational-weights": Method("weights with normal noise; its variance is learned, from the rate on"),
    "adaptive-rate": Method("units times normal noise; its rate is inferred, from the rate on"),
}
USUAL = ("none", "standard", "uniform", "evolutional", "water-filling", "batchnorm")  # compared unless others are named

LINEAR_METHODS: dict[str, Method] = {  # names of evodrop.linear, which makes their noise
    "none": METHODS["none"],
    "standard": Method("standard dropout: every feature is dropped with the same chance"),
    "uniform": Method("multinomial dropout: k draws among the features, all equally likely", uses_match=True),
    "data-dependent": Method("the paper's: k draws among the features, strong ones more likely", uses_match=True),
    "water-filling": Method("features are dropped independently, strong ones less often", uses_match=True),
    "weight-aware": Method("k draws, half data-dependent, half by strength times weight", uses_match=True),
}


def methods_of(network: str) -> dict[str, Method]:
    """The methods that a network can be trained with; those of linear models if it is :data:`LINEAR`."""
    return LINEAR_METHODS if network == LINEAR else METHODS
