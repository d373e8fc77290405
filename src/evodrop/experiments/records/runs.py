"""One training run as frozen data: what is trained, how, and under which name it is kept."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import numbers
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

from evodrop._checks import checked_rate
from evodrop.experiments.methods import LINEAR, LINEAR_METHODS, METHODS
from evodrop.noise import MATCHES

__all__ = ["AnyRun", "LinearRun", "Run"]

LARGEST = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class AnyRun:
    """What every run has, of a network or of a linear model: see :class:`Run` and :class:`LinearRun`."""

    dataset: str
    network: str
    method: str
    seed: int
    lr: float
    epochs: int
    rate: float = 0.5
    match: str = "draws"
    eval_every: int = 100

    methods: ClassVar[Collection[str]] = ()
    largest_seed: ClassVar[int] = LARGEST

    def __post_init__(self) -> None:
        self._keep("dataset", _checked_name("dataset", self.dataset))
        self._keep("network", _checked_name("network", self.network))
        _check_choice("method", self.method, self.methods)
        _check_choice("match", self.match, MATCHES)
        rule = "it starts the random numbers"
        self._keep("seed", _checked_integer("seed", self.seed, 0, rule, self.largest_seed))
        for field in dataclasses.fields(self):
            if field.name in COUNTS:
                value = getattr(self, field.name)
                self._keep(field.name, _checked_integer(field.name, value, 1, COUNTS[field.name]))
        self._keep("lr", _checked_number("lr", self.lr, 0.0, math.inf))
        self._keep("rate", checked_rate(self.rate))

    def _keep(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)  # 1 and 1.0, [5] and (5,) are the same run, so they get the same id

    @property
    def id(self) -> str:
        """A readable name, safe as that of a folder, that ends in a digest of all fields."""
        names = [self.dataset] if self.network == self.dataset else [self.dataset, self.network]
        digest = hashlib.sha256(self.to_json().encode()).hexdigest()[:10]
        words = "-".join([*names, self.method, f"lr{self.lr:g}", f"seed{self.seed}"])
        return f"{re.sub('[^A-Za-z0-9.]+', '-', words)[-100:].strip('-.')}-{digest}"

    def to_dict(self) -> dict[str, Any]:
        """The fields in JSON's own types."""
        return dataclasses.asdict(self)

    def to_json(self) -> str:
        """The fields as JSON, always in the same form, so that its digest is stable."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True, kw_only=True)
class Run(AnyRun):
    """All that decides the records of a run. Two runs with equal fields have equal records on the same machine.

    Defaults are the paper's protocol: rate 0.5, k = d / 2, batches of 128, momentum 0.9, weights N(0, 0.01).

    Args:
        dataset, network: their names.
        method: a key of :data:`evodrop.experiments.methods.METHODS`.
        seed: of the weights, of the order of the batches and of the noise. The first two are the same for every method.
        lr: the step size at the start.
        epochs: passes over the training data.
        rate: fraction of the units to drop.
        match: what the number of draws is matched to, see :mod:`evodrop.noise`.
        batch_size: examples a step; an epoch leaves out what does not fill a batch.
        momentum: of SGD.
        weight_std: standard deviation of the initial weights.
        decay: after so many epochs each, the step size is divided by ten.
        eval_every: iterations from one record to the next.
        probe: how many training examples, always the same, measure the training error without noise.

    Examples:
        >>> run = Run(dataset="mnist", network="mnist", method="evolutional", seed=0, lr=0.005, epochs=10)
        >>> run.id
        'mnist-evolutional-lr0.005-seed0-da9d5b7194'
    """

    batch_size: int = 128
    momentum: float = 0.9
    weight_std: float = 0.01
    decay: tuple[int, ...] = ()
    probe: int = 2000

    methods: ClassVar[Collection[str]] = METHODS

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep("weight_std", _checked_number("weight_std", self.weight_std, 0.0, math.inf))
        self._keep("momentum", _checked_number("momentum", self.momentum, -math.ulp(0.0), 1.0))
        self._keep("decay", _checked_decay(self.decay))
        if self.method == "batchnorm" and self.batch_size == 1:
            raise ValueError("batch_size is 1, but batch normalisation needs at least 2 examples to have a variance")

    def lr_at(self, epoch: int) -> float:
        """The step size in an epoch, counted from 0.

        Examples:
            >>> run = Run(dataset="d", network="n", method="none", seed=0, lr=0.5, epochs=9, decay=(3, 6))
            >>> [run.lr_at(epoch) for epoch in (2, 3, 6)]
            [0.5, 0.05, 0.005]
        """
        return float(self.lr / 10 ** sum(epoch >= after for after in self.decay))

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {"decay": list(self.decay)}


@dataclass(frozen=True, kw_only=True)
class LinearRun(AnyRun):
    """A run of logistic regression by SGD with a fixed step, one example at a time: the paper's shallow learning.

    Args:
        dataset: its name.
        method: a key of :data:`evodrop.experiments.methods.LINEAR_METHODS`.
        seed: of the order of the examples, the same for every method, and of the noise.
        lr, epochs, rate, match: as for a network.
        eval_every: examples from one record to the next.

    Examples:
        >>> LinearRun(dataset="20news", method="data-dependent", seed=0, lr=0.1, epochs=10).id
        '20news-linear-data-dependent-lr0.1-seed0-3cb5ac400e'
    """

    network: str = LINEAR
    eval_every: int = 1000

    methods: ClassVar[Collection[str]] = LINEAR_METHODS
    largest_seed: ClassVar[int] = 2**32 - 1  # of scikit-learn's random_state

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_choice("network", self.network, (LINEAR,))


COUNTS = {
    "epochs": "training takes at least one pass over the data",
    "batch_size": "a step takes at least one example",
    "eval_every": "records are at least one iteration apart",
    "probe": "an error is measured on at least one example",
}


def _checked_name(field: str, name: str) -> str:
    if not (isinstance(name, str) and name.strip() and name.isprintable()):
        raise ValueError(f"{field} is {name!r}, but it takes a name of printable letters, such as 'mnist'")
    return name


def _check_choice(field: str, value: str, choices: Any) -> None:
    if value not in choices:
        raise ValueError(f"{field} is {value!r}, but it is one of {', '.join(map(repr, choices))}")


def _checked_integer(field: str, value: int, least: int, rule: str, most: int = LARGEST) -> int:
    sound = isinstance(value, numbers.Integral) and not isinstance(value, bool) and least <= value <= most
    if not sound:
        bounds = f"of at least {least}" if most == LARGEST else f"from {least} to {most}"
        raise ValueError(f"{field} is {value!r}, but it takes an integer {bounds}: {rule}")
    return int(value)


def _checked_number(field: str, value: float, above: float, below: float) -> float:
    if not (isinstance(value, numbers.Real) and not isinstance(value, bool) and above < value < below):
        bounds = "positive and finite" if below == math.inf else f"at least 0 and below {below:g}"
        raise ValueError(f"{field} is {value!r}, but it takes a number that is {bounds}")
    return float(value)


def _checked_decay(decay: Any) -> tuple[int, ...]:
    if isinstance(decay, str | bytes | Mapping) or not hasattr(decay, "__iter__"):
        raise ValueError(f"decay is {decay!r}, but it takes a list of epochs, such as (10, 20); () for none")
    rule = "the step size falls after a whole number of epochs"
    epochs = tuple(_checked_integer("an epoch in decay", epoch, 1, rule) for epoch in decay)
    if any(late <= early for early, late in pairwise(epochs)):
        raise ValueError(f"decay is {epochs}, but its epochs ascend, each one later than the one before")
    return epochs
