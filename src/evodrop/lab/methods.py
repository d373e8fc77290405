"""The methods that are compared: one table for networks, one for linear models.

Each name but ``none`` and ``batchnorm`` is one of :data:`evodrop.nn.zoo.ZOO`, and a network is converted to it. Of the
zoo's names ``data-dependent`` is missing: it follows the second moments of fixed data, and those of a hidden layer
change with every step. Nothing here needs torch, so a list of methods costs nothing.

A name with a colon is a dropout of the user's own, ``my_module:MyDropout``: a class that takes the rate. Its runs
carry a digest of its file, ``my_module:MyDropout@1f2e3d4c``, so runs of another state of the code are other runs.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
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
OWN = Method("a dropout of your own")
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


def find_method(network: str, name: str) -> Method | None:
    """What a method of a network takes, one of the user's own too; None if there is no such method."""
    return OWN if is_own(name) and network != LINEAR else methods_of(network).get(name)


def is_own(name: str) -> bool:
    """Whether a name is that of a dropout of the user's own."""
    return ":" in name


def plain_name(name: str) -> str:
    """A name as it was typed, without the digest of a file."""
    return name.partition("@")[0]


def stamped(name: str) -> str:
    """The name of a dropout of the user's own with the digest of its file."""
    return f"{plain_name(name)}@{_import(plain_name(name))[1]}"


def import_own(name: str) -> Callable[[float], Any]:
    """The class of a name, or of a stamped name if the file is still the same."""
    own, digest = _import(plain_name(name))
    if "@" in name and name != stamped(name):
        raise ValueError(
            f"--methods names {plain_name(name)!r}, whose file had the digest {name.partition('@')[2]} "
            f"and has {digest} here; give the command again, or the workers the same file"
        )
    return own


@cache  # once per process, like the import itself
def _import(name: str) -> tuple[Callable[[float], Any], str]:
    """The class that ``module:Class`` names, and the digest of its file. The working folder is searched as well."""
    module_name, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # python -m evodrop has it there, the command evodrop has not
    rule = "but it takes module:Class, a class that takes the rate, in a module that Python finds"
    try:
        module = importlib.import_module(module_name)
        own = getattr(module, attribute)
        digest = hashlib.sha256(Path(str(module.__file__)).read_bytes()).hexdigest()[:8]
    except Exception as error:  # the module may raise anything
        found = f"importing it gave {type(error).__name__}: {error}".partition("\n")[0]
        raise ValueError(
            f"--methods names {name!r}, {rule}; {found}. Give the command in the folder of the module, "
            "or set PYTHONPATH"
        ) from error
    if not callable(own):
        raise ValueError(f"--methods names {name!r}, {rule}; it is {own!r:.100}")
    return own, digest
