"""What happens to a model in a round of a fit on a cluster: local epochs, the average, the score. It knows no Dask.

Every partition starts at the common iterate w and takes its epochs. With n_p of the n examples, the next common iterate
is sum_p n_p / n w_p; the mean of the iterates, as Theorem 1 wants it, runs over those of all partitions. One partition
alone is the fit of one machine.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from evodrop.linear.descent import Descent, bound_step
from evodrop.linear.model import Model
from evodrop.linear.partitions import Moments, Ready, Recipe, plan_for, stream_of

__all__ = ["Iterates", "State", "add", "count_hits", "first_state", "next_state", "run_epochs"]

Floats = npt.NDArray[np.float64]


class State(NamedTuple):
    """The model between two rounds: the common iterate, and the mean of those averaged so far."""

    coef: Floats
    intercept: Floats
    mean_coef: Floats | None
    mean_intercept: Floats | None
    averaged: float
    step: int
    loss: float  # sum over the examples, of the last round

    def model(self) -> tuple[Floats, Floats]:
        """The coefficients and intercepts to predict with."""
        if self.averaged and self.mean_coef is not None and self.mean_intercept is not None:
            return self.mean_coef, self.mean_intercept
        return self.coef, self.intercept


class Iterates(NamedTuple):
    """What a partition adds to the next state: its last iterate times its share of the examples, and its sums."""

    coef: Floats
    intercept: Floats
    sum_coef: Floats | None
    sum_intercept: Floats | None
    averaged: float
    loss: float


def first_state(problems: int, d: int) -> State:
    """All weights zero."""
    return State(np.zeros((problems, d)), np.zeros(problems), None, None, 0.0, 1, 0.0)


def run_epochs(ready: Ready, state: State, moments: Moments | None, recipe: Recipe, epochs: int) -> Iterates:
    """Local epochs from the common iterate, with the kernels of one machine; "weight-aware" needs the moments."""
    ready = _settled(ready)
    model = Model(ready.d, len(state.intercept), recipe.averages, recipe.jobs)
    model.start_at(state.coef, state.intercept, state.step)
    plan = ready.plan or plan_for(ready, moments, recipe, model)
    descent = Descent(model, ready.d, stream_of(recipe.seed, ready.number))
    settings = bound_step(recipe.radius, plan, recipe.settings, recipe.training)
    training, weights = ready.rows.training, recipe.class_weights
    losses = [descent.epoch(ready.examples, training, plan, settings, weights, recipe.shuffle) for _ in range(epochs)]
    loss = float(np.mean(losses)) * float(ready.examples.weights[training].sum())
    share, averaged = len(training) / recipe.training, model.averaged
    coef, intercept = model.last_iterate()
    if not averaged:
        return Iterates(share * coef, share * intercept, None, None, 0.0, loss)
    mean_coef, mean_intercept = model.coefficients()
    return Iterates(share * coef, share * intercept, averaged * mean_coef, averaged * mean_intercept, averaged, loss)


def add(one: Any, other: Any) -> Any:
    """The sum of two tuples, place by place; None counts as nothing."""
    if isinstance(one, tuple):
        return type(one)(*map(add, one, other))
    return other if one is None else one if other is None else one + other


def next_state(state: State, sums: Iterates, steps: int, restart: bool) -> State:
    """The state after a round.

    Args:
        state: before it.
        sums: of all partitions.
        steps: of the longest partition.
        restart: the average begins anew.
    """
    before = 0.0 if restart else state.averaged
    averaged, means = before + sums.averaged, (state.mean_coef, state.mean_intercept)
    if sums.averaged:
        old = (before * mean if before and mean is not None else None for mean in means)
        means = tuple(add(a, b) / averaged for a, b in zip(old, (sums.sum_coef, sums.sum_intercept), strict=True))
    return State(sums.coef, sums.intercept, *means, averaged, state.step + steps, sums.loss)


def count_hits(ready: Ready, state: State) -> tuple[int, int]:
    """How many clean training and validation examples the model gets right."""
    ready = _settled(ready)
    model = Model(ready.d, len(state.intercept), False, 1)
    model.start_at(*state.model())
    examples = ready.examples
    X = sparse.csr_array((examples.data, examples.indices, examples.indptr), shape=(len(examples.labels), ready.d))
    scorer = Descent(model, ready.d, 0)
    hits = [round(scorer.accuracy(X, examples.labels, rows) * len(rows)) if len(rows) else 0 for rows in ready.rows]
    return hits[0], hits[1]


def _settled(value: Any) -> Any:
    """A tuple whose arrays are aligned and writable, as they were before they travelled: for others numba would compile
    other code, which may round otherwise."""
    if isinstance(value, tuple):
        return type(value)(*map(_settled, value))
    return np.require(value, requirements=["A", "W"]) if isinstance(value, np.ndarray) else value
