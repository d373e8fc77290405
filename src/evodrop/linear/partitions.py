"""One partition of the examples of a fit on a cluster, made ready for steps by a worker. It knows arrays, and no Dask.

A partition is checked and described, :func:`make_part` and :func:`describe`; then it gets its noise, :func:`prepare`,
from the second moments of all partitions. :mod:`evodrop.linear.local_epochs` goes on from there.

Results are tuples of arrays, so that Dask knows how large they are. Nothing here changes what it is given: after a
worker has died a task is run again, and has to find the same.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from evodrop._kernels.rows import ROW_STEP
from evodrop.linear.kernels import Examples, Settings
from evodrop.linear.model import Model, make_examples, sum_squares
from evodrop.linear.plans import Plan, make_plan
from evodrop.linear.problems import Rows, split_rows

__all__ = [
    "Facts",
    "Moments",
    "Part",
    "Ready",
    "Recipe",
    "describe",
    "make_part",
    "plan_for",
    "prepare",
    "squares_of",
    "stream_of",
    "with_weight",
]

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

STREAM_BITS = 40  # a partition takes fewer than 2^40 steps: its numbers of the random stream are its own
NO_WEIGHT = np.ones(0)


class Part(NamedTuple):
    """A partition, checked. Labels are places among its own classes."""

    number: int
    examples: Examples
    d: int
    rows: Rows
    classes: Array


class Facts(NamedTuple):
    """What the driver has to know of a partition: a few numbers, whatever its size."""

    d: int
    training: int
    validation: int
    weight: float  # of the training examples
    classes: Array
    counts: Array  # of the training examples, for each of the classes


class Moments(NamedTuple):
    """E[x_i^2] over all partitions, and all classes."""

    moments: Floats
    classes: Array


class Recipe(NamedTuple):
    """How to take steps: what all partitions and rounds have in common."""

    settings: Settings
    dropout: dict[str, Any]  # arguments of make_plan
    class_weights: Floats
    radius: float | None
    shuffle: bool
    averages: bool
    seed: int
    jobs: int
    training: int  # examples of all partitions


class Ready(NamedTuple):
    """A partition with its noise, ready for steps. The plan of "weight-aware" is made anew for each round."""

    number: int
    examples: Examples
    d: int
    rows: Rows
    plan: Plan | None


def make_part(number: int, X: Any, y: Any, weight: Any, fraction: float | None, seed: int) -> Part:
    """Check a partition as :meth:`DropoutSGDClassifier.fit` would check its data; one without examples may be.

    Args:
        number: of the partition.
        X, y, weight: its block of each; the weight may be None.
        fraction: of the examples to set aside for validation, or None.
        seed: of the fit.
    """
    from evodrop.linear.estimators import DropoutSGDClassifier  # whose checks these are
    from evodrop.linear.validation import checked_examples

    try:
        X, y, weight = with_weight(X, y, weight)
        if X.shape[0] == 0:
            return _no_examples(number, X.shape[1])
        X, y, weight = checked_examples(DropoutSGDClassifier(), X, y, weight)
    except ValueError as error:
        raise ValueError(f"partition {number}: {error}") from error
    classes, labels = np.unique(y, return_inverse=True)
    if fraction is not None and math.ceil(fraction * len(y)) >= len(y):
        fraction = None  # too few to set any aside
    rows = split_rows(labels, weight, fraction, stream_of(seed, number) % 2**32)
    return Part(number, make_examples(X, labels, weight), X.shape[1], rows, classes)


def describe(part: Part) -> Facts:
    """The facts of a partition."""
    counts = np.bincount(part.examples.labels[part.rows.training], minlength=len(part.classes))
    weight = float(part.examples.weights[part.rows.training].sum())
    return Facts(part.d, len(part.rows.training), len(part.rows.validation), weight, part.classes, counts)


def squares_of(part: Part) -> Floats:
    """(d,): the sum of weight x_i^2 over the training examples of a partition."""
    return sum_squares(part.examples, part.rows.training, part.d)[0]


def prepare(part: Part, moments: Moments, recipe: Recipe) -> Ready:
    """A partition with the labels that all partitions share, and with its noise."""
    labels = np.searchsorted(moments.classes, part.classes).astype(np.int64)[part.examples.labels]
    ready = Ready(part.number, part.examples._replace(labels=labels), part.d, part.rows, None)
    if recipe.dropout["dropout"] == "weight-aware":
        return ready
    return ready._replace(plan=plan_for(ready, moments, recipe))


def with_weight(X: Any, y: Any, weight: Any) -> tuple[Any, Any, Any]:
    """Without the examples of weight 0: a partition of them alone is an empty one."""
    if len(y) != X.shape[0] or (weight is not None and len(weight) != len(y)):
        lengths = f"{X.shape[0]} rows, {len(y)} labels" + ("" if weight is None else f", {len(weight)} weights")
        raise ValueError(f"there are {lengths}, but there is one for each example; give X, y and weights equal chunks")
    if weight is None or (kept := np.asarray(weight) != 0).all():
        return X, y, weight
    return X.tocsr()[kept] if sparse.issparse(X) else X[kept], np.asarray(y)[kept], np.asarray(weight)[kept]


def _no_examples(number: int, d: int) -> Part:
    none = np.zeros(0, np.int64)
    return Part(number, make_examples(sparse.csr_array((0, d)), none, NO_WEIGHT), d, Rows(none, none), none)


def stream_of(seed: int, number: int) -> int:
    """The seed of a partition: its step t has the random words of step t + number 2^40 of the fit's own stream, so no
    two partitions share any, and partition 0 is what a single machine would draw."""
    return (seed + (number << STREAM_BITS) * int(ROW_STEP)) % 2**64


def plan_for(ready: Ready, moments: Moments | None, recipe: Recipe, model: Model | None = None) -> Plan:
    """The noise of a partition: its law comes from all partitions, and "weight-aware" asks the model too."""
    assert moments is not None
    seen = sum_squares(ready.examples, ready.rows.training, ready.d)[1]
    norms = None if model is None else model.weight_norms
    return make_plan(moments=moments.moments, examples=ready.examples, seen=seen, weight_norms=norms, **recipe.dropout)
