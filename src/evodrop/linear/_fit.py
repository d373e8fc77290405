"""SGD on corrupted examples: the one driver of the local fit, of the cluster and of the laboratory.

A :class:`Model` takes steps, a :class:`Descent` has the examples for them, and :func:`descend` counts rounds and stops.
The options of a fit are the parameters of its estimator, a :class:`evodrop.linear.DropoutSGDClassifier`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from evodrop._checks import Array, Floats
from evodrop._kernels.epoch import (
    AVERAGED,
    CLOCK,
    FIRST_STATE,
    LOSSES,
    SCALE,
    STEP,
    Examples,
    StepOptions,
    add_squares,
    run_epoch,
)
from evodrop._kernels.sparse_rows import RowNoise, row_noise
from evodrop.linear._base import labels_of
from evodrop.noise import Noise, make_noise

DROPOUTS = ("none", "standard", "uniform", "data-dependent", "water-filling", "weight-aware")
FALLING = ("linear", "adagrad")  # schedules whose step size falls to 0 by the end of a fit
SLOWER, LEAST_STEP = 5.0, 1e-6  # what "adaptive" divides the step size by, and where it ends
HISTORY = ("loss", "train_error", "validation_score", "seconds")  # of each round
WEIGHT_SHARE = 0.5  # of the weight-aware probabilities; the rest is data-dependent, so that every seen feature has some


def overflow(step: int) -> ValueError:
    """The error to raise when weights are no longer finite."""
    return ValueError(
        f"the weights overflowed before step {step}; fit anew: choose eta0 smaller, or divide X by its largest value"
    )


def step_options(estimator: Any, steps: float = math.inf) -> StepOptions:
    """What a step does in a fit of so many steps, the last of them known or not."""
    power = estimator.power_t if estimator.learning_rate == "invscaling" else 0.0
    sizes = float(estimator.eta0), float(power), float(estimator.alpha)
    falls = estimator.learning_rate in FALLING
    loss = LOSSES.index(estimator.loss)
    return StepOptions(loss, *sizes, bool(estimator.fit_intercept), float(steps) if falls else math.inf)


def noise_of(estimator: Any, moments: Floats, weight_norms: Floats) -> Noise | None:
    """The noise on features with second moments ``moments``, (d,); None if there is none.

    ``weight_norms``, (d,), is how large the weights of each feature are; only "weight-aware" reads it.
    """
    dropout = estimator.dropout
    if dropout == "none" or not moments.any() or (estimator.rate == 0.0 and estimator.k is None):
        return None
    weights, mixed = np.sqrt(moments), None
    if dropout == "weight-aware":
        tight = weight_norms * weights  # |w_i| sqrt(E x_i^2), the supplement's tighter bound
        if tight.any() and np.isfinite(tight).all():
            tight /= tight.max()  # so that the sum is finite
            mixed = WEIGHT_SHARE * (tight / tight.sum()) + (1.0 - WEIGHT_SHARE) * (weights / weights.sum())
    noise = make_noise(
        None if dropout in ("standard", "uniform") else weights if mixed is None else mixed,
        moments,
        float(estimator.rate),
        k=estimator.k,
        match=estimator.match,
        independent=dropout in ("standard", "water-filling"),
    )
    # A mixture sums to 1 already; divided by its sum it would differ from stored records in the last bit.
    return noise if mixed is None else noise._replace(chances=mixed)


def make_examples(X: sparse.csr_array, labels: Array, weights: Floats) -> Examples:
    """The rows of X as a kernel takes them."""
    longest = int(np.diff(X.indptr).max(initial=0))
    return Examples(X.indptr, X.indices, X.data, labels.astype(np.int64), weights, longest)


def sum_squares(examples: Examples, rows: Array, d: int) -> Floats:
    """(d,): the sums of weight x_i^2 over these rows."""
    weights, squares = np.zeros_like(examples.weights), np.zeros(d)
    weights[rows] = examples.weights[rows]
    add_squares(examples, weights, squares)
    return squares


class Block(NamedTuple):
    """Some neighbouring problems; see :mod:`evodrop._kernels.epoch` for the arrays."""

    first: int  # the number of its first problem
    weights: Floats
    intercepts: Floats
    state: Floats
    squares: Floats  # of the gradients, summed up; empty but for Adagrad

    @property
    def part(self) -> slice:
        """Its places among all problems."""
        return slice(self.first, self.first + self.intercepts.shape[1])

    def mixture(self, average: bool = True) -> tuple[float, float, Floats]:
        """Factors of v and lag, and the intercepts: of the average (clock v - lag) / averaged, if there is one and it
        is asked for, or of the last iterate."""
        scale, clock, averaged, _ = self.state
        if average and averaged > 0:
            return clock / averaged, -1.0 / averaged, self.intercepts[1] / averaged
        return scale, 0.0, self.intercepts[0].copy()

    def mixed(self, columns: Floats, average: bool = True) -> Floats:
        """The mixture of columns as those of the weights: (d, problems) of the weights themselves."""
        problems, (of_v, of_lag, _) = self.intercepts.shape[1], self.mixture(average)
        with np.errstate(over="ignore", invalid="ignore"):  # whether all is finite is asked later
            mixed = of_v * columns[:, :problems]
            if of_lag != 0.0:
                mixed += of_lag * columns[:, problems:]
        return np.asarray(mixed)


class Model:
    """The iterates of C problems with d weights each, all zero at first.

    One problem has label 1 on its positive side; of several, problem c has label c. All problems of a row share its
    noise, which is drawn once. With several jobs the problems are split into blocks, one for each thread; a block draws
    the same noise again, so the result does not depend on the number of jobs. The average of the iterates is kept
    beside the last one if ``averages``; ``adagrad`` says whether the steps are those of Adagrad.
    """

    def __init__(self, d: int, problems: int, averages: bool, jobs: int = 1, adagrad: bool = False) -> None:
        self.problems = problems
        # No block of one problem, unless it is the only one: a single problem has a faster way to add up, and rounding
        # errors would then depend on the number of jobs.
        edges = np.linspace(0, problems, max(1, min(jobs, problems // 2)) + 1).astype(int).tolist()
        self.blocks = []
        for first, last in pairwise(edges):
            size = last - first
            weights, squares = np.zeros((d, size * (2 if averages else 1))), np.zeros((d + 1 if adagrad else 0, size))
            self.blocks.append(Block(first, weights, np.zeros((2, size)), np.array(FIRST_STATE), squares))

    def own_memory(self) -> None:
        """Copy what may not be written: a model loaded by memory map has arrays that a step could not move."""
        self.blocks = [
            Block(block.first, *(np.require(np.asarray(array), requirements="W") for array in block[1:]))
            for block in self.blocks
        ]

    @property
    def step(self) -> int:
        """The number of the next step, from 1."""
        return int(self.blocks[0].state[STEP])

    @property
    def averaged(self) -> float:
        """How many iterates the average is of."""
        return float(self.blocks[0].state[AVERAGED])

    def start_at(self, coef: Floats, intercept: Floats, step: int = 1) -> None:
        """Begin with these coefficients, and this step, instead of zeros."""
        for block in self.blocks:
            block.weights[:, : block.intercepts.shape[1]] = coef[block.part].T
            block.intercepts[0] = intercept[block.part]
            block.state[STEP] = step

    def restart_average(self) -> None:
        """Forget the iterates so far: the average is of those to come."""
        for block in self.blocks:
            block.weights[:, block.intercepts.shape[1] :] = 0.0
            block.intercepts[1] = 0.0
            block.state[[CLOCK, AVERAGED]] = 0.0

    def run(
        self, examples: Examples, order: Array, noise: RowNoise, options: StepOptions, seed: int, class_weights: Floats
    ) -> float:
        """One step for each row of ``order``; gives the sum of the losses at the corrupted rows."""
        losses = np.zeros(self.problems)

        def run_block(block: Block) -> None:
            label = block.first + (self.problems == 1)
            arrays = (class_weights[block.part], *block[1:], losses[block.part])
            run_epoch(examples, order, noise, options, np.uint64(seed), label, *arrays)

        self._for_each_block(run_block)
        return float(losses.sum())

    def scores(self, X: sparse.csr_array, rows: Array) -> Floats:
        """(len(rows), C): what the model says of clean rows, by the average if there is one."""

        def score_block(block: Block) -> Floats:
            if X.shape[1] > X.nnz:  # touch no feature that no row has
                products = block.mixed(X @ block.weights)
            else:
                mixed = block.mixed(block.weights)  # SciPy is twice as fast for a vector as for a matrix of one column
                products = X @ mixed if mixed.shape[1] > 1 else (X @ mixed.ravel())[:, None]
            return np.asarray(products[rows] + block.mixture()[2])

        return np.concatenate(self._for_each_block(score_block), axis=1)

    def accuracy(self, X: sparse.csr_array, labels: Array, rows: Array) -> float:
        """The share of clean rows that the model gets right; nan if there is none."""
        return float((labels_of(self.scores(X, rows)) == labels[rows]).mean()) if len(rows) else math.nan

    def coefficients(self, average: bool = True) -> tuple[Floats, Floats]:
        """(C, d) weights and (C,) intercepts, of the average if there is one and it is asked for, or of now."""
        coef = np.concatenate([block.mixed(block.weights, average).T for block in self.blocks])
        return np.ascontiguousarray(coef), np.concatenate([block.mixture(average)[2] for block in self.blocks])

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


@dataclass
class Descent:
    """Steps of SGD over some examples, epoch after epoch, which may be interrupted anywhere.

    The order of an epoch is a function of the seed and of its first step, and the noise of a step one of the seed and
    the step. So :meth:`state` is all that the rest depends on. An epoch begins at the present step of the model.
    """

    model: Model
    examples: Examples
    rows: Array  # to learn from
    moments: Floats  # (d,), E[x_i^2], which the noise follows
    estimator: Any  # whose noise it is, and whether it shuffles
    step: StepOptions
    class_weights: Floats  # (C, 2), of the negative and the positive side of each problem
    seed: int  # of the noise and of the order
    noise: RowNoise | None = None  # of these examples, if it was made before
    law: Noise | None = None  # of the noise, if it is made here

    def __post_init__(self) -> None:
        self.first, self.weight_norms = self.model.step, np.zeros(len(self.moments))

    def run(self, steps: int) -> float:
        """So many steps; gives the sum of the losses at the corrupted examples. If that is not finite, the weights have
        overflowed, and the steps end with the epoch."""
        total = 0.0
        while steps > 0 and math.isfinite(total):
            done = (self.model.step - self.first) % len(self.rows)
            if done == 0 and self.estimator.dropout == "weight-aware":
                self.weight_norms, self.noise = self.model.weight_norms(), None
            if self.noise is None:
                self.law = noise_of(self.estimator, self.moments, self.weight_norms)
                self.noise = row_noise(self.law, *self.examples[:3])
            order = self.rows
            if self.estimator.shuffle:  # by the seed and the step, so that no generator has to be kept
                order = np.random.default_rng((self.seed, self.model.step - done)).permutation(order)
            order = order[done : done + steps]
            total += self.model.run(self.examples, order, self.noise, self.step, self.seed, self.class_weights)
            steps -= len(order)
        return total

    def epoch(self) -> float:
        """A step for each row; gives the mean loss."""
        total = self.run(len(self.rows))
        if not math.isfinite(total):
            self.model.blocks[0].state[SCALE] = math.nan  # every later loss is nan too
            raise overflow(self.model.step)
        return total / float(self.examples.weights[self.rows].sum())

    def state(self) -> list[Floats]:
        """All that the rest of the steps depends on, beside the arguments; the arrays share our memory."""
        return [*(array for block in self.model.blocks for array in block[1:]), self.weight_norms]

    def load_state(self, arrays: list[Floats]) -> None:
        """Go on from a state of the same arguments."""
        for own, kept in zip(self.state(), arrays, strict=True):
            if (kept.shape, kept.dtype) != (own.shape, own.dtype):
                raise ValueError(f"an array of the state is {kept.dtype} of shape {kept.shape}, not {own.shape}")
            own[...] = kept
        self.noise = None


@dataclass
class Progress:
    """What a fit leaves behind: with it, another fit can go on."""

    model: Any  # the iterates
    seed: int  # of the noise and of the order of the examples
    averages: bool  # whether the average of the iterates is kept
    adagrad: bool = False  # whether the steps are those of Adagrad
    squares: Any = 0.0  # (d,): the weighted sums of x_i^2
    total_weight: float = 0.0
    dtype: Any = np.float64  # of the coefficients
    checked: Sequence[Any] = ()  # the parameters of the estimator that were found good
    history: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in HISTORY})

    def moments(self, squares: Floats, weight: float) -> Floats:
        """(d,): E[x_i^2] of all examples so far, with further ones whose weighted squares have these sums."""
        with np.errstate(over="ignore"):  # the error below names it
            total = self.squares + squares
            if not math.isfinite(total.sum()):
                raise ValueError("X holds values whose squares overflow float64; divide X by its largest value")
        self.squares, self.total_weight = total, self.total_weight + weight
        return np.asarray(total / self.total_weight)


def descend(
    take_round: Callable[[int, bool, float], tuple[float, float, float]],
    history: dict[str, list[float]],
    estimator: Any,
    epochs: int,
    watch: Callable[[int, str], bool],
    *,
    local_epochs: int = 1,
    partial: bool = False,
) -> int:
    """Rounds until ``watch`` says stop, or the last ``n_iter_no_change`` are not better by ``tol``, on average, than as
    many before them; gives the number of their epochs.

    Args:
        take_round: takes some epochs, whether to begin the average anew, and the step size eta0; gives loss, training
            error and validation score, which is nan if there is none.
        history: gets a number of each kind for each round.
        estimator: when to stop, and what is averaged.
        epochs, local_epochs: how many at most, and in a round.
        watch: is called after each round, with the epochs so far and a note.
        partial: it is one round of ``partial_fit``, after which nobody asks whether it converged.
    """
    costs: list[float] = []
    done, eta0, patience = 0, float(estimator.eta0), estimator.n_iter_no_change
    falls = estimator.learning_rate in FALLING
    tol = None if partial or (falls and not estimator.early_stopping) else estimator.tol
    while done < epochs:
        start, own = perf_counter(), min(local_epochs, epochs - done)
        restart = estimator.average == "tail" and len(history["loss"]).bit_count() == 1  # after 1, 2, 4, 8 rounds
        loss, error, score = take_round(own, restart, eta0)
        done += own
        for name, value in zip(HISTORY, (loss, error, score, perf_counter() - start), strict=True):
            history[name].append(value)
        costs.append(loss if math.isnan(score) else -score)
        stopped = watch(done, f"loss {loss:.4g}" + (f"  error {error:.2%}" if not math.isnan(error) else ""))
        # Single epochs would mislead: noise makes one of them look so good that those after it look idle.
        before, now = sum(costs[-2 * patience : -patience]), sum(costs[-patience:])
        idle = tol is not None and len(costs) >= 2 * patience and now > before - tol * patience
        if stopped or (idle and not (estimator.learning_rate == "adaptive" and eta0 > LEAST_STEP)):
            return done
        if idle:
            eta0 /= SLOWER
            costs.clear()
    if tol is not None and not falls:
        message = f"no convergence in max_iter={epochs} epochs; increase max_iter or tol"
        warnings.warn(message, ConvergenceWarning, stacklevel=2)
    return done
