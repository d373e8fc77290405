"""One training run as frozen data, what is recorded on its way, and how it ended."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict

from evodrop.lab.methods import LINEAR

STATUSES = RUNNING, FINISHED, DIVERGED = ("running", "finished", "diverged")  # of a record
FINAL = (FINISHED, DIVERGED)  # the last record of a run has one of these
FAILED = "failed"  # of a run that was not completed
OF_NETWORKS = ("batch_size", "momentum", "weight_std", "decay", "probe")  # a linear model has none of these


@dataclass(frozen=True, kw_only=True)
class Run:
    """All that decides the records of a run. Two runs with equal fields have equal records on the same machine.

    Defaults are the paper's protocol: rate 0.5, k = d / 2, batches of 128, momentum 0.9, weights N(0, 0.01).

    Examples:
        >>> Run(dataset="mnist", network="mnist", method="evolutional", seed=0, lr=0.005, epochs=10).id
        'mnist-evolutional-lr0.005-seed0-da9d5b7194'
        >>> fields = {"network": "linear", "method": "data-dependent", "seed": 0, "lr": 0.1, "epochs": 10}
        >>> Run(dataset="20news", **fields, eval_every=1000).id
        '20news-linear-data-dependent-lr0.1-seed0-3cb5ac400e'
    """

    dataset: str
    network: str  # LINEAR is logistic regression by SGD with a fixed step, one example at a time
    method: str  # of `methods_of(network)`
    seed: int  # of weights, order of the batches and noise; the first two are the same for every method
    lr: float  # the step size at the start
    epochs: int  # passes over the training data
    rate: float = 0.5  # fraction of the units to drop
    match: str = "draws"  # what the number of draws is matched to, see evodrop.noise
    eval_every: int = 100  # iterations from one record to the next
    batch_size: int = 128  # an epoch leaves out what does not fill a batch
    momentum: float = 0.9
    weight_std: float = 0.01  # standard deviation of the initial weights
    decay: tuple[int, ...] = ()  # after each of these epochs, the step size is divided by ten
    probe: int = 2000  # training examples, always the same, that measure the training error without noise

    def __post_init__(self) -> None:
        """Make 1 and 1.0 the same run, and refuse one that cannot be named or has no end."""
        if not self.epochs >= 1:
            raise ValueError(f"epochs is {self.epochs!r}, but it takes an integer of at least 1")
        if not 0 < self.lr < math.inf:
            raise ValueError(f"lr is {self.lr!r}, but it takes a positive, finite number")
        for name in ("lr", "rate", "momentum", "weight_std"):
            object.__setattr__(self, name, float(getattr(self, name)))

    @property
    def id(self) -> str:
        """A readable name, safe as that of a folder, that ends in a digest of all fields."""
        names = [self.dataset] if self.network == self.dataset else [self.dataset, self.network]
        fields = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        words = "-".join([*names, self.method, f"lr{self.lr:g}", f"seed{self.seed}"])
        readable = re.sub("[^A-Za-z0-9.]+", "-", words)[-100:].strip("-.")
        return f"{readable}-{hashlib.sha256(fields.encode()).hexdigest()[:10]}"

    def lr_at(self, epoch: int) -> float:
        """The step size in an epoch, counted from 0.

        Examples:
            >>> run = Run(dataset="d", network="n", method="none", seed=0, lr=0.5, epochs=9, decay=(3, 6))
            >>> [run.lr_at(epoch) for epoch in (2, 3, 6)]
            [0.5, 0.05, 0.005]
        """
        return float(self.lr / 10 ** sum(epoch >= after for after in self.decay))

    def to_dict(self) -> dict[str, Any]:
        """The fields in JSON's own types; those that a linear run has not are left out."""
        fields = dataclasses.asdict(self) | {"decay": list(self.decay)}
        return {name: fields[name] for name in fields if self.network != LINEAR or name not in OF_NETWORKS}


class LayerStatistics(TypedDict):
    """One dropout layer on one batch. With s_i the root of the second moment of unit i over the batch:"""

    name: str
    units: int  # d
    dead: int  # units that are zero on the whole batch
    effective: float  # (sum s)^2 / sum s^2, the effective number of units: d if all are equally strong
    kept: float | None  # live units that survive the noise, on average; None if the law of the noise is not known
    noise: float | None  # E||x * noise||^2 over standard dropout's at the same rate; None if x is zero, or as above
    probs: list[float]  # quantiles, least to largest, of s_i / sum s: evolutional dropout draws with them, or would


class Record(TypedDict):
    """What is measured after an iteration. Errors are fractions; None where a diverged model gives none."""

    iteration: int  # batches seen
    epoch: float  # passes over the data
    status: str  # one of STATUSES
    lr: float  # the step size of this iteration
    noisy_error: float | None  # training error with the noise on, over the batches since the last record
    noisy_loss: float | None  # mean cross-entropy over the same
    clean_error: float | None  # training error without noise, on the probe: training examples that are always the same
    clean_loss: float | None
    test_error: float | None  # on all test data, without noise
    test_loss: float | None
    layers: list[LayerStatistics]  # the dropout layers on the batch of this iteration


class RunResult(NamedTuple):
    """How a run ended."""

    run: Run
    status: str  # one of FINAL, or FAILED
    record: Record | None = None  # its last one; None if it failed
    error: str | None = None  # why it failed, in a line
    remarks: tuple[str, ...] = ()  # what the run warned of
    seconds: float = 0.0  # that it took; 0 if it had been done before
