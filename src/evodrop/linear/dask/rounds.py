"""A fit on a cluster: every partition takes epochs from the common iterate, and their models are averaged.

With n_p of the n examples in partition p, the next common iterate is sum_p n_p / n w_p; the mean of the iterates, as
Theorem 1 wants it, runs over those of all partitions. One partition alone is the fit of one machine.

First come the tasks of the workers. They take and give tuples of arrays, so that Dask can see how large they are, and
change nothing that they are given: after a worker has died a task is run again, and has to find the same. Then comes
:class:`Rounds`, which sends them, and gets back a few numbers a round and the model; no example ever comes there.
Whatever is added up is added in the order of the partitions: so the model depends on the seed and the partitions,
neither on the workers nor on their deaths.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from joblib import effective_n_jobs
from scipy import sparse
from sklearn.base import clone
from sklearn.utils.multiclass import check_classification_targets

from evodrop._checks import Array, Floats
from evodrop._kernels.epoch import Examples, StepOptions
from evodrop._kernels.rows import ROW_STEP
from evodrop._kernels.sparse_rows import RowNoise, row_noise
from evodrop.linear._base import checked_examples, class_weights, labels_of, multiplied, side_weights, split_rows
from evodrop.linear._fit import (
    Descent,
    Model,
    descend,
    make_examples,
    noise_of,
    step_options,
    sum_squares,
)
from evodrop.linear.sgd import DropoutSGDClassifier
from evodrop.noise import Noise

__all__ = ["Rounds", "State", "count_weight_of_hits", "sortedness"]

Future = Any

STREAM_BITS = 40  # a partition takes fewer than 2^40 steps: its numbers of the random stream are its own
CHECKPOINT = 10  # rounds from one copy of the model with the driver to the next: so many are lost at most
# How far labels may depend on the partition. Measured with 2 and 4 partitions on three data sets: up to 0.2 the model
# lost 1.5 points of accuracy at most, at 0.4 up to 4, at 0.6 up to 9; sorted by label, it learned next to nothing.
SUSPICIOUS, HOPELESS = 0.2, 0.5
REMEDY = "shuffle the rows over the partitions, or use fewer of them"


class Part(NamedTuple):
    """A partition, checked. Labels are places among its own classes, and once it is weighed among all classes."""

    number: int
    examples: Examples
    moment_weights: Floats  # of the examples in the second moments
    d: int
    training: Array  # the rows to learn from,
    validation: Array  # and those that only decide when to stop
    classes: Array
    noise: RowNoise | None  # None before it is prepared, and of "weight-aware", whose noise changes with every round


class Facts(NamedTuple):
    """What the driver needs of a partition: a few numbers, whatever its size."""

    d: int
    training: int
    validation: int
    weight: float  # of the training examples
    moment_weight: float  # the same in the second moments
    classes: Array
    counts: Array  # of the examples that have weight, for each of the classes


class State(NamedTuple):
    """The model between two rounds: the common iterate, and the mean of those averaged so far.

    What a partition adds to it has the same fields: its last iterate times its share of the examples, and sums instead
    of means.
    """

    last: Floats  # (C, d + 1): the weights and, in the last column, the intercepts
    mean: Any = None  # the same of the mean; None where nothing is averaged
    averaged: float = 0.0
    step: int = 1
    loss: float = 0.0  # sum over the examples, of the last round

    def coefficients(self, average: bool = True) -> tuple[Floats, Floats]:
        """(C, d) coefficients and (C,) intercepts: to predict with, or to go on from."""
        found = self.mean if average and self.averaged else self.last
        return np.ascontiguousarray(found[:, :-1]), found[:, -1].copy()


def make_part(number: int, X: Any, y: Any, weight: Any, fraction: float | None, seed: int) -> Part:
    """Check a partition as :meth:`DropoutSGDClassifier.fit` would check its data; one without examples may be. A
    fraction of the examples is set aside for validation, if it is not None."""
    try:
        check_lengths(X, y, weight)
        if X.shape[0] == 0 or (weight is not None and not np.any(weight)):
            check_classification_targets(y)
            none = np.zeros(0, np.int64)
            empty = make_examples(sparse.csr_array((0, X.shape[1])), none, np.ones(0))
            return Part(number, empty, np.ones(0), X.shape[1], none, none, np.unique(y), None)
        X, y, weight = checked_examples(DropoutSGDClassifier(), X, y, weight)
    except ValueError as error:
        raise ValueError(f"partition {number}: {error}") from error
    classes, labels = np.unique(y, return_inverse=True)
    if fraction is not None and math.ceil(fraction * (weight > 0).sum()) >= (weight > 0).sum():
        fraction = None  # too few to set any aside
    rows = split_rows(labels, weight, fraction, stream_of(seed, number) % 2**32)
    return Part(number, make_examples(X, labels, weight), weight, X.shape[1], *rows, classes, None)


def check_lengths(X: Any, y: Any, weight: Any) -> None:
    """Raise a ValueError unless there are as many labels and weights as rows."""
    if len(y) != X.shape[0] or (weight is not None and len(weight) != len(y)):
        lengths = f"{X.shape[0]} rows, {len(y)} labels" + ("" if weight is None else f", {len(weight)} weights")
        raise ValueError(f"there are {lengths}, but there is one for each example; give X, y and weights equal chunks")


def stream_of(seed: int, number: int) -> int:
    """The seed of a partition: its step t has the random words of step t + number 2^40 of the fit's own stream, so no
    two partitions share any, and partition 0 is what a single machine would draw."""
    return (seed + (number << STREAM_BITS) * int(ROW_STEP)) % 2**64


def describe(part: Part) -> Facts:
    """The facts of a partition."""
    counts = np.bincount(part.examples.labels[part.examples.weights > 0], minlength=len(part.classes))
    weight, moment_weight = (float(each[part.training].sum()) for each in (part.examples.weights, part.moment_weights))
    return Facts(part.d, len(part.training), len(part.validation), weight, moment_weight, part.classes, counts)


def weigh(part: Part, classes: Array, by_class: Floats) -> Part:
    """A partition with the labels that all partitions share, its weights times those of the classes."""
    labels = np.searchsorted(classes, part.classes).astype(np.int64)[part.examples.labels]
    in_moments, in_steps = multiplied(part.examples.weights, labels, by_class)
    training, validation = (rows[in_steps[rows] > 0] for rows in (part.training, part.validation))
    examples = part.examples._replace(labels=labels, weights=in_steps)
    return Part(part.number, examples, in_moments, part.d, training, validation, classes, None)


def squares_of(part: Part) -> Floats:
    """(d,): the sum of weight x_i^2 over the training examples of a partition."""
    return sum_squares(part.examples._replace(weights=part.moment_weights), part.training, part.d)


def prepare(part: Part, moments: Floats, estimator: DropoutSGDClassifier) -> Part:
    """A partition with its noise, whose law comes from all partitions."""
    if estimator.dropout == "weight-aware":
        return part
    law = noise_of(estimator, moments, np.zeros(part.d))
    return part._replace(noise=row_noise(law, *part.examples[:3]))


def run_epochs(
    part: Part,
    state: State,
    moments: Floats,
    estimator: Any,
    step: StepOptions,
    sides: Floats,
    seed: int,
    total: float,
    epochs: int,
) -> State:
    """Local epochs from the common iterate; gives what they add to the next state, as one of ``total`` examples."""
    part = _settled(part)
    model = Model(part.d, len(state.last), bool(estimator.average), estimator.n_jobs)
    model.start_at(*state.coefficients(average=False), state.step)
    how = moments, estimator, step, sides, stream_of(seed, part.number), part.noise
    descent = Descent(model, part.examples, part.training, *how)
    loss = float(np.mean([descent.epoch() for _ in range(epochs)])) * float(part.examples.weights[part.training].sum())
    share, averaged = len(part.training) / total, model.averaged
    mean = averaged * np.column_stack(model.coefficients()) if averaged else None
    return State(share * np.column_stack(model.coefficients(average=False)), mean, averaged, 0, loss)


def add(one: Any, other: Any) -> Any:
    """The sum of two tuples, place by place; None counts as nothing."""
    if isinstance(one, tuple):
        return type(one)(*map(add, one, other))
    return other if one is None else one if other is None else one + other


def next_state(state: State, sums: State, steps: int, restart: bool) -> State:
    """The state after a round of so many steps in the longest partition, from the sums of what all partitions add; the
    average may begin anew."""
    before = 0.0 if restart else state.averaged
    averaged, mean = before + sums.averaged, state.mean
    if sums.averaged:
        mean = add(before * mean if before else None, sums.mean) / averaged
    return State(sums.last, mean, averaged, state.step + steps, sums.loss)


def count_hits(part: Part, state: State) -> tuple[int, int]:
    """How many clean training and validation examples the model gets right."""
    part = _settled(part)
    model, examples = Model(part.d, len(state.last), averages=False), part.examples
    model.start_at(*state.coefficients())
    X = sparse.csr_array((examples.data, examples.indices, examples.indptr), shape=(len(examples.labels), part.d))
    right = labels_of(model.scores(X, np.arange(len(examples.labels)))) == examples.labels
    return int(right[part.training].sum()), int(right[part.validation].sum())


def count_weight_of_hits(model: DropoutSGDClassifier, X: Any, y: Any, weight: Any) -> tuple[float, float]:
    """The weight of the examples that a model gets right, and of all."""
    check_lengths(X, y, weight)
    if X.shape[0] == 0:
        return 0.0, 0.0
    weight = np.ones(X.shape[0]) if weight is None else np.asarray(weight, np.float64)
    return float(weight @ (model.predict(X) == np.asarray(y))), float(weight.sum())


def _settled(value: Any) -> Any:
    """A tuple whose arrays are aligned and writable, as they were before they travelled: for others numba would compile
    other code, which may round otherwise."""
    if isinstance(value, tuple):
        return type(value)(*map(_settled, value))
    return np.require(value, requirements=["A", "W"]) if isinstance(value, np.ndarray) else value


class Rounds:
    """The partitions of a fit on a cluster, checked where they stay. Those without training examples are left out.

    Args:
        client: of the cluster.
        blocks: delayed X, y and weight of each partition.
        fraction: of the examples to set aside for validation, or None.
        seed: of the fit.
    """

    def __init__(self, client: Any, blocks: Sequence[tuple[Any, Any, Any]], fraction: float | None, seed: int) -> None:
        from dask.delayed import delayed

        parts = client.compute([delayed(make_part)(i, *block, fraction, seed) for i, block in enumerate(blocks)])
        self.client = client
        facts = self._describe(dict(enumerate(parts)))
        widths = {fact.d: number for number, fact in reversed(facts.items())}
        if len(widths) > 1:
            found = ", ".join(f"{d} in partition {number}" for d, number in reversed(widths.items()))
            raise ValueError(f"partitions differ in their number of features: {found}; make all blocks of X as wide")
        labelled = {i: fact.classes for i, fact in facts.items() if len(fact.classes)}
        self.keep(facts)
        if fraction is not None and not self.total("validation"):
            raise ValueError("early_stopping finds no partition large enough to set examples aside; make larger ones")
        kinds = {classes.dtype.kind in "biuf": number for number, classes in labelled.items()}
        if len(kinds) > 1:
            raise ValueError(
                f"the labels of partition {kinds[True]} are numbers and those of partition {kinds[False]} are not; "
                "give all partitions labels of one kind"
            )
        self.parts, self.d = {i: parts[i] for i in self.facts}, next(iter(widths))
        self.classes = np.unique(np.concatenate(list(labelled.values())))
        self.state: Future = None
        # Local epochs learn the labels of their partition; the mean of such iterates is a poor model of all.
        sorted_by = sortedness(self.table())
        what = f"the labels depend on the partition (Cramer's V {sorted_by:.2f}, 0 if mixed, 1 if sorted)"
        if sorted_by > HOPELESS:
            raise ValueError(f"{what}, so the average of local epochs would be a poor model; {REMEDY}")
        if sorted_by > SUSPICIOUS:
            warnings.warn(f"{what}, which costs accuracy; {REMEDY}", UserWarning, stacklevel=2)

    def total(self, name: str) -> float:
        """The sum of one of the facts."""
        return float(sum(getattr(fact, name) for fact in self.facts.values()))

    def keep(self, facts: dict[int, Facts]) -> None:
        """Leave out the partitions that have nothing to learn from."""
        self.facts = {i: fact for i, fact in facts.items() if fact.training}
        if not self.total("moment_weight"):
            raise ValueError(f"none of the {len(facts)} partitions holds an example that has weight")

    def table(self) -> Array:
        """(P, C): how many examples each partition has of each class."""
        counts = np.zeros((len(self.facts), len(self.classes)), np.int64)
        for row, fact in zip(counts, self.facts.values(), strict=True):
            row[np.searchsorted(self.classes, fact.classes)] = fact.counts
        return counts

    def fit(
        self,
        estimator: DropoutSGDClassifier,
        epochs: int,
        local_epochs: int,
        watch: Callable[[int, str], bool],
        partial: bool,
    ) -> tuple[int, Noise | None]:
        """Rounds of an estimator from its progress, whose model is a :class:`State`; gives the number of epochs and the
        last noise. The other arguments are those of :func:`evodrop.linear._fit.descend`."""
        progress: Any = estimator._progress
        by_class = class_weights(estimator.class_weight, self.classes, self.table().sum(axis=0))
        parts = self._at_home(weigh, self.parts, self.classes, by_class)
        self.keep(self._describe(parts))
        parts = {number: parts[number] for number in self.facts}
        squares = self._tree_sum(list(self._at_home(squares_of, parts).values())).result()
        moments = progress.moments(squares, self.total("moment_weight"))
        held = self._hold(moments)
        plain = clone(estimator).set_params(n_jobs=effective_n_jobs(estimator.n_jobs))
        ready = self._at_home(prepare, parts, held, plain)
        longest = max(fact.training for fact in self.facts.values())
        step = step_options(plain, math.inf if partial else epochs * longest)
        common = side_weights(by_class), progress.seed, self.total("training")
        before = self.state = self._hold(progress.model)
        rounds = 0

        def take_round(own: int, restart: bool, eta0: float) -> tuple[float, float, float]:
            nonlocal before, rounds
            now = plain, step._replace(eta0=eta0), *common
            before = self._hold(self.state.result()) if rounds and rounds % CHECKPOINT == 0 else self.state
            sums = self._tree_sum(list(self._at_home(run_epochs, ready, before, held, *now, own).values()))
            self.state = self.client.submit(next_state, before, sums, own * longest, restart, pure=False)
            rounds += 1
            return self._measure(ready, plain.record_train_error)

        arguments = take_round, progress.history, plain, epochs, watch
        done = descend(*arguments, local_epochs=local_epochs, partial=partial)
        progress.model = self.state.result()
        start = before.result()  # of the last round
        model = Model(self.d, len(start.last), averages=False)
        model.start_at(*start.coefficients(average=False))
        return done, noise_of(plain, moments, model.weight_norms())

    def _describe(self, parts: dict[int, Future]) -> dict[int, Facts]:
        facts = self.client.gather([self.client.submit(describe, part, pure=False) for part in parts.values()])
        return dict(zip(parts, facts, strict=True))

    def _measure(self, ready: dict[int, Future], records_error: bool) -> tuple[float, float, float]:
        """Loss, training error and validation score of the state; the last two are nan if nobody needs them."""
        error = score = math.nan
        loss = self.client.submit(attrgetter("loss"), self.state, pure=False)
        if records_error or self.total("validation"):
            hits = self.client.gather(list(self._at_home(count_hits, ready, self.state).values()))
            training, validation = np.sum(hits, axis=0)
            error = 1.0 - float(training / self.total("training")) if records_error else math.nan
            score = float(validation / self.total("validation")) if self.total("validation") else math.nan
        return loss.result() / self.total("weight"), error, score

    def _at_home(self, task: Callable[..., Any], partitions: dict[int, Future], *arguments: Any) -> dict[int, Future]:
        """task(partition, *arguments) for each partition, by the worker that holds it; if that one is gone, by any.

        Left to itself, Dask copies small partitions to idle workers, until one of them holds all. Only tasks that need
        what a worker holds may be sent so: one that needs nothing would wait for ever if its worker were the last to
        die, since Dask does not offer it to workers that come later.
        """
        from distributed import wait

        wait(list(partitions.values()))  # before, no worker holds it
        holders = self.client.who_has(list(partitions.values()))
        tasks = {}
        for number, future in partitions.items():
            workers = list(holders.get(future.key, ()))[:1]
            home = {"workers": workers, "allow_other_workers": True} if workers else {}
            tasks[number] = self.client.submit(task, future, *arguments, pure=False, **home)
        return tasks

    def _hold(self, value: Any) -> Future:
        """A value on the cluster that outlives any worker: a task of the scheduler's, unlike what is scattered."""
        from dask import config

        with config.set({"distributed.admin.large-graph-warning-threshold": sys.maxsize}):  # once in ten rounds
            return self.client.submit(lambda value: value, value, pure=False)

    def _tree_sum(self, terms: Sequence[Future]) -> Future:
        """The sum of neighbours, then of their sums, and so on: the same however many workers there are."""
        while len(terms) > 1:
            pairs = [self.client.submit(add, *terms[i : i + 2], pure=False) for i in range(0, len(terms) - 1, 2)]
            terms = [*pairs, *terms[2 * len(pairs) :]]
        return terms[0]


def sortedness(table: Array) -> float:
    """How far labels depend on the partition: 0 if not at all, 1 if each label has its own partitions.

    Cramér's V of a table (P, C) of counts, less what chance alone would give (Bergsma 2013): so many small partitions
    do not count as sorted.

    Examples:
        >>> sortedness(np.array([[50, 50], [20, 20]])), sortedness(np.array([[50, 0], [0, 20]])) > 0.98
        (0.0, True)
        >>> sortedness(np.eye(2, dtype=int)[[0, 1, 0, 1]])  # four partitions of one example
        0.0
    """
    table = table[:, table.sum(axis=0) > 0]
    n, (partitions, classes) = int(table.sum()), table.shape
    if min(partitions, classes) < 2:
        return 0.0
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / n
    spread = float(((table - expected) ** 2 / expected).sum()) / n
    by_chance = (partitions - 1) * (classes - 1) / (n - 1)
    return math.sqrt(max(0.0, spread - by_chance) / (min(partitions, classes) - 1))
