"""The iterates of SGD for C one-against-the-rest problems: they take steps, score rows and become coefficients.

All problems of a row share its noise, which is drawn once. With several jobs the problems are split into blocks, one
for each thread; a block draws the same noise again, so the result does not depend on the number of jobs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from evodrop.linear.draws import Noise
from evodrop.linear.kernels import (
    AVERAGED,
    CLOCK,
    FIRST_STATE,
    SCALE,
    STEP,
    Examples,
    Settings,
    add_squares,
    run_epoch,
    score_rows,
)

__all__ = ["Model", "make_examples", "sum_squares"]

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


def make_examples(X: sparse.csr_array, labels: Array, weights: Floats) -> Examples:
    """The rows of X as a kernel takes them."""
    longest = int(np.diff(X.indptr).max(initial=0))
    return Examples(X.indptr, X.indices, X.data, labels.astype(np.int64), weights, longest)


class Block(NamedTuple):
    """Some neighbouring problems; see :mod:`evodrop.linear.kernels` for the arrays."""

    first: int  # the number of its first problem
    weights: Floats
    intercepts: Floats
    state: Floats


class Model:
    """C problems with d weights each, all zero at first.

    Args:
        d: number of features.
        problems: C. One problem has label 1 on its positive side; of several, problem c has label c.
        averages: whether the average of the iterates is kept beside the last one.
        jobs: number of threads.
    """

    def __init__(self, d: int, problems: int, averages: bool, jobs: int) -> None:
        self.problems, self.averages = problems, averages
        # No block of one problem, unless it is the only one: a single problem has a faster way to add up, and rounding
        # errors would then depend on the number of jobs.
        edges = np.linspace(0, problems, max(1, min(jobs, problems // 2)) + 1).astype(int)
        self.blocks = [
            Block(
                int(first),
                np.zeros((d, int(last - first) * (2 if averages else 1))),
                np.zeros((2, int(last - first))),
                np.array(FIRST_STATE),
            )
            for first, last in pairwise(edges)
        ]

    @property
    def step(self) -> int:
        """The number of the next step, from 1."""
        return int(self.blocks[0].state[STEP])

    def start_at(self, coef: Floats, intercept: Floats) -> None:
        """Begin with these coefficients instead of zeros."""
        for block in self.blocks:
            part = slice(block.first, block.first + block.intercepts.shape[1])
            block.weights[:, : block.intercepts.shape[1]] = coef[part].T
            block.intercepts[0] = intercept[part]

    def restart_average(self) -> None:
        """Forget the iterates so far: the average is of those to come."""
        for block in self.blocks:
            block.weights[:, block.intercepts.shape[1] :] = 0.0
            block.intercepts[1] = 0.0
            block.state[[CLOCK, AVERAGED]] = 0.0

    def run(
        self, examples: Examples, order: Array, noise: Noise, settings: Settings, seed: int, class_weights: Floats
    ) -> float:
        """One step for each row of ``order``; gives the sum of the losses at the corrupted rows."""
        losses = np.zeros(self.problems)

        def run_block(block: Block) -> None:
            part = slice(block.first, block.first + block.intercepts.shape[1])
            label = block.first + (self.problems == 1)
            arrays = (class_weights[part], block.weights, block.intercepts, block.state, losses[part])
            run_epoch(examples, order, noise, settings, np.uint64(seed), label, *arrays)

        self._for_each_block(run_block)
        return float(losses.sum())

    def scores(self, X: sparse.csr_array, rows: Array) -> Floats:
        """(len(rows), C): what the model says of clean rows, by the average if there is one."""

        def score_block(block: Block) -> Floats:
            if X.shape[1] <= X.nnz:
                mixed = _mixed(block)  # SciPy is twice as fast for a vector as for a matrix of one column
                products = X @ mixed if mixed.shape[1] > 1 else (X @ mixed.ravel())[:, None]
                return np.asarray(products[rows] + _shifts(block))
            scores = np.empty((len(rows), block.intercepts.shape[1]))  # more features than non-zeros: touch no others
            arrays = (X.indptr, X.indices, X.data, rows, block.weights)
            score_rows(*arrays, *_mixture(block.state), _shifts(block), scores)
            return scores

        return np.concatenate(self._for_each_block(score_block), axis=1)

    def coefficients(self) -> tuple[Floats, Floats]:
        """(C, d) weights and (C,) intercepts, of the average if there is one."""
        coef = np.concatenate([_mixed(block).T for block in self.blocks])
        return np.ascontiguousarray(coef), np.concatenate([_shifts(block) for block in self.blocks])

    def weight_norms(self) -> Floats:
        """(d,): the norm of each feature's weights over the problems, of the last iterate, in units of the largest."""
        squares = np.zeros(len(self.blocks[0].weights))
        columns = [block.weights[:, c] for block in self.blocks for c in range(block.intercepts.shape[1])]
        peak = max(np.abs(column).max() for column in columns)
        for column in columns:  # one problem after the other: the sum does not depend on the blocks
            squares += (column / (peak or 1.0)) ** 2
        return np.sqrt(squares)

    def _for_each_block(self, task: Callable[[Block], Any]) -> list[Any]:
        if len(self.blocks) == 1:
            return [task(self.blocks[0])]
        with ThreadPoolExecutor(len(self.blocks)) as threads:
            return list(threads.map(task, self.blocks))


def sum_squares(examples: Examples, weights: Floats, before: Floats) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """(d,) weighted sums of the squares of each feature, with those before, and which features the examples have."""
    squares, seen = np.zeros_like(before), np.zeros(len(before), np.bool_)
    add_squares(examples, weights, squares, seen)
    with np.errstate(over="ignore"):  # told by the error below
        squares += before
        total = squares.sum()
    if not math.isfinite(total):
        raise ValueError("X holds values whose squares overflow float64; divide X by its largest value")
    return squares, seen


def _mixture(state: Floats) -> tuple[float, float]:
    """Factors of v and lag: the average (clock v - lag) / averaged, or the last iterate scale v."""
    if state[AVERAGED] > 0:
        return state[CLOCK] / state[AVERAGED], -1.0 / state[AVERAGED]
    return state[SCALE], 0.0


def _mixed(block: Block) -> Floats:
    """(d, problems): the average, or the last iterate."""
    problems = block.intercepts.shape[1]
    now, lag = _mixture(block.state)
    with np.errstate(over="ignore", invalid="ignore"):  # whether all is finite is asked later
        mixed = now * block.weights[:, :problems]
        if lag != 0.0:
            mixed += lag * block.weights[:, problems:]
    return np.asarray(mixed)


def _shifts(block: Block) -> Floats:
    averaged = block.state[AVERAGED]
    return np.asarray(block.intercepts[1] / averaged if averaged > 0 else block.intercepts[0].copy())
