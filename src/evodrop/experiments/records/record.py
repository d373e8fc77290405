"""What is known of a run: after an iteration, and in the end."""

from __future__ import annotations

from typing import NamedTuple, TypedDict

from evodrop.experiments.records.runs import AnyRun

__all__ = ["DIVERGED", "FAILED", "FINAL", "FINISHED", "RUNNING", "STATUSES", "Ending", "LayerStatistics", "Record"]

STATUSES = RUNNING, FINISHED, DIVERGED = ("running", "finished", "diverged")  # of a record
FINAL = (FINISHED, DIVERGED)  # the last record of a run has one of these
FAILED = "failed"  # of a run that came to no end


class LayerStatistics(TypedDict):
    """One dropout layer on one batch. With s_i the root of the second moment of unit i over the batch:"""

    name: str
    units: int  # d
    dead: int  # units that are zero on the whole batch
    effective: float  # (sum s)^2 / sum s^2, the effective number of units: d if all are equally strong
    kept: float | None  # live units that survive the noise, on average; None if the layer's law is not known
    noise: float | None  # E||x * noise||^2 over standard dropout's at the same rate; None if x is zero, or as above
    probs: list[float]  # quantiles, least to largest, of s_i / sum s: evolutional dropout draws with them, or would


class Record(TypedDict):
    """What is known after an iteration. Errors are fractions; what a diverged network cannot tell is None."""

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


class Ending(NamedTuple):
    """How a run ended.

    Attributes:
        run: which one.
        status: one of :data:`FINAL`, or :data:`FAILED`.
        record: its last one; None if it failed.
        error: why it failed, in a line.
        remarks: what the run warned of.
        seconds: that it took; 0 if it had been done before.
    """

    run: AnyRun
    status: str
    record: Record | None = None
    error: str | None = None
    remarks: tuple[str, ...] = ()
    seconds: float = 0.0
