"""A fit on a cluster, as the driver sees it: it sends tasks, and gets back a few numbers a round and the model.

No example ever comes here. Everything is a task that Dask can run again, and whatever is added up is added in the order
of the partitions: so the model depends on the seed and the partitions, neither on the workers nor on their deaths.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from evodrop.linear.callbacks import progress_bar
from evodrop.linear.descent import is_idle, overflow, warn_of_no_convergence
from evodrop.linear.local_epochs import State, add, count_hits, first_state, next_state, run_epochs
from evodrop.linear.model import Model, finite_sum, make_examples
from evodrop.linear.partitions import Moments, Recipe, prepare, squares_of
from evodrop.linear.plans import Plan, make_plan
from evodrop.linear.surveys import Survey, at_home

__all__ = ["Rounds", "Schedule", "coefficients"]

Floats = npt.NDArray[np.float64]
Future = Any

CHECKPOINT = 10  # rounds from one copy of the model with the driver to the next: so many are lost at most


class Schedule(NamedTuple):
    """How many epochs, and when to stop: as of :meth:`Descent.run`, with rounds in the place of epochs."""

    epochs: int
    local_epochs: int
    tail: bool
    tol: float | None
    patience: int


class Rounds:
    """A model on its way down on a cluster: what a :class:`Descent` is on one machine. Between fits, it is in memory.

    Args:
        d: number of features.
        problems, averages: as of a :class:`Model`.
        seed: of the noise and of the order of the examples.
    """

    def __init__(self, d: int, problems: int, averages: bool, seed: int) -> None:
        self.averages, self.seed = averages, seed
        self.state = first_state(problems, d)
        self.squares, self.total_weight = np.zeros(d), 0.0
        self.history: dict[str, list[float]] = {"loss": [], "train_error": [], "validation_score": [], "seconds": []}

    def run(
        self,
        client: Any,
        found: Survey,
        recipe: Recipe,
        schedule: Schedule,
        watch: Callable[[Callable[[], State]], bool],
        verbose: bool,
    ) -> tuple[int, Plan]:
        """Rounds until they bring no gain, or ``watch`` says stop; how many epochs they had, and the last plan.

        Args:
            watch: called after each round with a function that gives the state.
        """
        moments = self._second_moments(client, found)
        held = _hold(client, moments)
        ready = at_home(client, prepare, found.parts, held, recipe)
        spare = held if recipe.dropout["dropout"] == "weight-aware" else None
        longest = max(facts.training for facts in found.facts.values())
        before = state = _hold(client, self.state)
        costs: list[float] = []
        done, stops = 0, False
        with progress_bar("epochs", schedule.epochs, verbose and schedule.epochs > schedule.local_epochs) as bar:
            while done < schedule.epochs and not stops:
                start, own = perf_counter(), min(schedule.local_epochs, schedule.epochs - done)
                before = _hold(client, state.result()) if costs and len(costs) % CHECKPOINT == 0 else state
                tasks = at_home(client, run_epochs, ready, before, spare, recipe, own)
                restart = schedule.tail and len(self.history["loss"]).bit_count() == 1
                sums = _tree_sum(client, list(tasks.values()))
                state = client.submit(next_state, before, sums, own * longest, restart, pure=False)
                del tasks, sums
                costs.append(self._record(client, found, ready, state, start))
                done += own
                bar(done, f"loss {self.history['loss'][-1]:.4g}  error {self.history['train_error'][-1]:.2%}")
                stops = watch(state.result) or is_idle(costs, schedule.patience, schedule.tol)
        if schedule.tol is not None and not stops:
            warn_of_no_convergence(schedule.epochs, stacklevel=6)
        self.state = state.result()
        return done, _plan(moments, recipe, None if spare is None else before.result())

    def _second_moments(self, client: Any, found: Survey) -> Moments:
        """E[x_i^2] of all examples so far, these included: added up on the cluster."""
        squares = _tree_sum(client, list(at_home(client, squares_of, found.parts).values()))
        self.squares = finite_sum(self.squares, squares.result())
        self.total_weight += found.total("weight")
        return Moments(self.squares / self.total_weight, found.classes)

    def _record(self, client: Any, found: Survey, ready: dict[int, Future], state: Future, start: float) -> float:
        """Write down how a round did; gives what it should make small."""
        loss = client.submit(_loss_of, state, pure=False)
        hits = client.gather(list(at_home(client, count_hits, ready, state).values()))
        training, validation = np.sum(hits, axis=0)
        rows = found.total("validation")
        score = float(validation / rows) if rows else math.nan
        self.history["loss"].append(loss.result() / found.total("weight"))
        self.history["train_error"].append(1.0 - float(training / found.total("training")))
        self.history["validation_score"].append(score)
        self.history["seconds"].append(perf_counter() - start)
        return -score if rows else self.history["loss"][-1]


def coefficients(state: State) -> tuple[Floats, Floats]:
    """The coefficients and intercepts of a state, which are finite."""
    coef, intercept = state.model()
    if not (np.isfinite(coef).all() and np.isfinite(intercept).all()):
        raise overflow(state.step)
    return coef, intercept


def _hold(client: Any, value: Any) -> Future:
    """A value on the cluster that outlives any worker: a task of the scheduler's, unlike what is scattered."""
    from dask import config

    with config.set({"distributed.admin.large-graph-warning-threshold": sys.maxsize}):  # large, but once in ten rounds
        return client.submit(_held, value, pure=False)


def _held(value: Any) -> Any:
    return value


def _tree_sum(client: Any, terms: Sequence[Future]) -> Future:
    """The sum of neighbours, then of their sums, and so on: the same however many workers there are."""
    while len(terms) > 1:
        pairs = [client.submit(add, *terms[i : i + 2], pure=False) for i in range(0, len(terms) - 1, 2)]
        terms = [*pairs, *terms[2 * len(pairs) :]]
    return terms[0]


def _loss_of(state: State) -> float:
    return state.loss


def _plan(moments: Moments, recipe: Recipe, state: State | None) -> Plan:
    """The law of the noise, for no examples: what it costs a partition to spread it over its own is done there."""
    d = len(moments.moments)
    nobody = make_examples(sparse.csr_array((0, d)), np.zeros(0), np.zeros(0))
    norms = None
    if state is not None:
        model = Model(d, len(state.intercept), False, 1)
        model.start_at(state.coef, state.intercept)
        norms = model.weight_norms
    seen = np.zeros(d, np.bool_)
    return make_plan(moments=moments.moments, examples=nobody, seen=seen, weight_norms=norms, **recipe.dropout)
