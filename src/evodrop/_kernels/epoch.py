"""One epoch of SGD over the rows of a CSR matrix, as machine code for one thread.

A step (Eq. 6 of the paper) corrupts a row, w_{t+1} = w_t - eta_t grad loss(w_t . (x_t * noise_t), y_t), and costs the
row's non-zeros, whatever the number of features:

* **decay**: w = scale v, so that the L2 penalty multiplies one number;
* **average**: the sum of all iterates so far is clock v - lag, where the clock has added up the scales; a step that
  moves v by delta adds clock delta to the lag, and all other features stay untouched.

Weights are an array (d, C) of v for C one-against-the-rest problems, or (d, 2C) of v and lag, which share a cache line.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from evodrop._checks import Array, Floats
from evodrop._kernels.compile import compiled, inlined, prefetch
from evodrop._kernels.rows import ROW_STEP, U, hashed
from evodrop._kernels.sparse_rows import CLEAN, DRAWN, EQUAL, RowNoise, draw_row, keep_some

SCALE, CLOCK, AVERAGED, STEP = range(4)  # what the state array holds
FIRST_STATE = (1.0, 0.0, 0.0, 1.0)  # and how it begins
AHEAD = 64  # so many non-zeros are fetched early; then the hardware sees the pattern
SMALLEST_SCALE = 1e-9  # far from underflow, and seldom reached
LOSSES = ("log_loss", "hinge", "squared_hinge", "modified_huber")
LOG_LOSS, HINGE, SQUARED_HINGE = range(3)


class Examples(NamedTuple):
    """The rows of a CSR matrix with their labels, 0 to C - 1, and weights."""

    indptr: Array
    indices: Array
    data: Array
    labels: Array
    weights: Floats
    longest: int  # non-zeros of the longest row


class StepOptions(NamedTuple):
    """What a step does, beside the noise."""

    loss: int  # its place in LOSSES
    eta0: float
    power: float  # eta_t = eta0 / t^power
    alpha: float
    fit_intercept: bool
    steps: float = math.inf  # after so many, eta has fallen to 0 on a straight line


@compiled
def loss_and_slope(loss: int, margin: float) -> tuple[float, float]:
    """The loss number ``loss`` of ``LOSSES`` at a margin m = y f(x), and its derivative.

    One function for all losses, chosen by number: numba cannot cache a kernel that takes functions as arguments.
    """
    if loss == LOG_LOSS:
        small = math.exp(-abs(margin))  # never overflows
        value = math.log1p(small) + max(-margin, 0.0)
        return value, -(small if margin > 0.0 else 1.0) / (1.0 + small)
    short = 1.0 - margin
    if not short > 0.0:
        return 0.0 * short, 0.0  # nan stays nan
    if loss == HINGE:
        return short, -1.0
    if loss == SQUARED_HINGE or margin >= -1.0:
        return short * short, -2.0 * short
    return -4.0 * margin, -4.0


@inlined
def fetch(array: Array, start: int, stop: int) -> None:
    """Have the beginning of a row brought to the cache."""
    for j in range(start, min(stop, start + AHEAD), 8):
        prefetch(array, np.int64(j))


@inlined
def add_scores(
    weights: Floats, indices: Array, start: int, stop: int, values: Array, first: int, scores: Floats
) -> None:
    """scores = v . x for each problem, where the values of x begin at ``first``."""
    if len(scores) == 1:
        total = 0.0  # a number, since an array might be anywhere, and the loop would wait for its memory
        for j in range(stop - start):
            total += weights[U(indices[U(start + j)]), 0] * values[U(first + j)]
        scores[0] = total
    else:
        scores[:] = 0.0
        for j in range(stop - start):
            value, i = values[U(first + j)], U(indices[U(start + j)])
            if value != 0.0:
                for c in range(len(scores)):
                    scores[c] += weights[i, c] * value


@inlined
def move(
    weights: Floats, indices: Array, start: int, stop: int, values: Array, first: int, steps: Floats, clock: float
) -> None:
    """v += steps x, and lag += clock steps x."""
    classes = len(steps)
    if classes == 1:
        step = steps[0]
        for j in range(stop - start):
            change, i = step * values[U(first + j)], U(indices[U(start + j)])
            weights[i, 0] += change
            if clock > 0.0:
                weights[i, 1] += clock * change
    else:
        for j in range(stop - start):
            value, i = values[U(first + j)], U(indices[U(start + j)])
            if value != 0.0:
                for c in range(classes):
                    weights[i, c] += steps[c] * value
                if clock > 0.0:
                    for c in range(classes):
                        weights[i, classes + c] += clock * (steps[c] * value)


@inlined
def move_adagrad(
    weights: Floats,
    indices: Array,
    start: int,
    stop: int,
    values: Array,
    first: int,
    steps: Floats,
    clock: float,
    slopes: Floats,
    squares: Floats,
) -> None:
    """As :func:`move`, with the step of each weight over the root of the sum of its squared gradients."""
    classes = len(steps)
    for j in range(stop - start):
        value, i = values[U(first + j)], U(indices[U(start + j)])
        for c in range(classes):
            gradient = slopes[c] * value
            if gradient != 0.0:
                squares[i, c] += gradient * gradient
                change = steps[c] * value / math.sqrt(squares[i, c])
                weights[i, c] += change
                if clock > 0.0:
                    weights[i, classes + c] += clock * change


@compiled
def decay(weights: Floats, classes: int, clock: float, factor: float) -> None:
    """v *= factor; the lag takes the sum of the iterates so far, so that the clock can begin anew."""
    for i in range(len(weights)):
        for c in range(classes):
            if clock > 0.0:
                weights[i, classes + c] -= clock * weights[i, c]
            weights[i, c] *= factor


@compiled
def run_epoch(
    examples: Examples,
    order: Array,
    noise: RowNoise,
    options: StepOptions,
    seed: np.uint64,
    first_label: int,
    class_weights: Floats,
    weights: Floats,
    intercepts: Floats,
    state: Floats,
    squares: Floats,
    losses: Floats,
) -> None:
    """A step for each row of ``order``; adds up the losses at the corrupted rows, before each step.

    Problem c has the label first_label + c on its positive side, and class_weights[c] are the weights of its two sides.
    Row 0 of the intercepts is the present ones, row 1 the sum of those averaged. Iterates are averaged if the weights
    have columns for the lag. Steps are those of Adagrad if there are sums of squared gradients, the last row of which
    belongs to the intercepts.
    """
    classes = intercepts.shape[1]
    averages = weights.shape[1] > classes
    words, counts = np.empty(examples.longest, np.uint64), np.empty(examples.longest, np.int32)
    places, large = np.empty(examples.longest, np.int32), noise.large
    values = np.empty(examples.longest)
    scores, steps, slopes = np.empty(classes), np.empty(classes), np.empty(classes)
    adagrad, last = len(squares) > 0, len(squares) - 1
    scale, clock, averaged, step = state[SCALE], state[CLOCK], state[AVERAGED], state[STEP]
    # Out of their tuples once, not for every row: see the remark in sparse_rows.py.
    indptr, indices, data, units = examples.indptr, examples.indices, examples.data, words.view(np.uint16)
    labels, row_weights = examples.labels, examples.weights
    rates, tables, slots, scaled = noise.rates, noise.tables, noise.slots, noise.scaled
    scheme, row_rates, k = noise.scheme, noise.row_rates, noise.k
    for t in range(len(order)):
        row = order[t]
        start, stop = indptr[row], indptr[row + 1]
        if t + 1 < len(order):  # rows come in random order: the next one would be waited for
            ahead, end = indptr[order[t + 1]], indptr[order[t + 1] + 1]
            fetch(indices, ahead, end)
            if scheme == CLEAN:
                fetch(data, ahead, end)
            else:
                fetch(scaled, ahead, end)
            if scheme == DRAWN:
                fetch(slots, ahead, end)
        key = hashed(seed + U(step) * ROW_STEP)
        if scheme == DRAWN:
            rate = row_rates[row]
            # numba inlines no call with a star
            draw_row(
                indices,
                start,
                stop,
                rates,
                tables,
                slots,
                scaled,
                k,
                rate,
                key,
                large,
                words,
                units,
                counts,
                places,
                values,
            )
        elif scheme != CLEAN:
            keep_some(indices, start, stop, scheme == EQUAL, rates, scaled, key, words, values)
        if scheme == CLEAN:
            add_scores(weights, indices, start, stop, data, start, scores)
        else:
            add_scores(weights, indices, start, stop, values, 0, scores)
        eta = options.eta0
        if options.power != 0.0:
            eta /= step**options.power
        eta *= max(0.0, 1.0 - (step - 1.0) / options.steps)
        shrunk = scale * max(0.0, 1.0 - eta * options.alpha)
        new_scale = shrunk if shrunk >= SMALLEST_SCALE else 1.0
        moves = False
        for c in range(classes):
            side = 1 if labels[row] == first_label + c else 0
            sign, weight = 2.0 * side - 1.0, row_weights[row] * class_weights[c, side]
            loss, slope = loss_and_slope(options.loss, sign * (scale * scores[c] + intercepts[0, c]))
            losses[c] += weight * loss
            change = -eta * weight * sign * slope
            steps[c] = change / new_scale
            moves |= change != 0.0
            slopes[c] = weight * slope
            if adagrad and change != 0.0:
                squares[last, c] += slopes[c] * slopes[c]
                change /= math.sqrt(squares[last, c])
            if options.fit_intercept:
                intercepts[0, c] += change
        if shrunk < SMALLEST_SCALE:
            decay(weights, classes, clock, shrunk)
            clock = 0.0
        scale = new_scale
        if moves and adagrad and scheme == CLEAN:
            move_adagrad(weights, indices, start, stop, data, start, steps, clock, slopes, squares)
        elif moves and adagrad:
            move_adagrad(weights, indices, start, stop, values, 0, steps, clock, slopes, squares)
        elif moves and scheme == CLEAN:
            move(weights, indices, start, stop, data, start, steps, clock)
        elif moves:
            move(weights, indices, start, stop, values, 0, steps, clock)
        if averages:
            clock += scale
            averaged += 1.0
            for c in range(classes):
                intercepts[1, c] += intercepts[0, c]
        step += 1.0
    state[SCALE], state[CLOCK], state[AVERAGED], state[STEP] = scale, clock, averaged, step


@compiled
def add_squares(examples: Examples, row_weights: Floats, squares: Floats) -> None:
    """Add weight x_i^2 of every row that has weight to ``squares``."""
    indptr, indices, data = examples.indptr, examples.indices, examples.data
    for row in range(len(row_weights)):
        if row_weights[row] > 0.0:
            for j in range(indptr[row], indptr[row + 1]):
                i, x = U(indices[U(j)]), np.float64(data[U(j)])
                squares[i] += row_weights[row] * (x * x)
