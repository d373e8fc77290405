"""The minima of several functions at once by L-BFGS, for functions that are cheaper together than one by one.

Every function has a step size and a curvature of its own, so each takes the steps that it would take alone, to the last
bit if its values and gradients do not depend on the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from evodrop._checks import Array, Floats
from evodrop._kernels.expected_loss import dots

# Points (D, c) and the numbers of their c functions in; values (c,) and gradients (D, c) out.
Functions: TypeAlias = Callable[[Floats, Array], tuple[Floats, Floats]]

MEMORY = 10  # steps that the curvature is known from
LEAST_DECREASE, LEAST_FLATTENING = 1e-4, 0.9  # of a step, as shares of what the slope at its start promises
MOST_TRIALS = 50  # of a step size
ROUNDING = 4 * np.finfo(np.float64).eps  # relative to a value: what may be rounding and no difference


class Minima(NamedTuple):
    """Where the searches ended."""

    points: Floats  # (D, C)
    values: Floats  # (C,)
    n_iter: Array  # (C,)
    converged: Array  # (C,): the gradient is small enough, or rounding keeps the search from any progress


def minima(
    functions: Functions,
    start: Floats,
    scale: Floats,
    tol: float,
    max_iter: int,
    callback: Callable[[Floats, int], bool] = lambda *_: False,
) -> Minima:
    """Search from the columns of ``start`` until no entry of a gradient is larger than ``tol``.

    Args:
        functions: the values and gradients.
        start: (D, C) points.
        scale: (D, 1), about the inverse of the second derivatives: the first step is ``-scale * gradient``.
        tol, max_iter: when to end.
        callback: gets the points and how many searches go on after each iteration; True ends all of them.

    Examples:
        >>> centres, sizes = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0], [100.0]])
        >>> def bowls(x, which):
        ...     away = x - centres[:, which]
        ...     return 0.5 * (sizes * away * away).sum(axis=0), sizes * away
        >>> found = minima(bowls, np.zeros((2, 2)), 1 / sizes, 1e-9, 100)
        >>> found.points, found.n_iter
        (array([[1., 2.],
               [3., 4.]]), array([1, 1], dtype=int32))
    """
    x, live, past = start.copy(), np.arange(start.shape[1]), Past(scale)
    values, gradient = functions(x, live)
    found = Minima(x, values.copy(), np.zeros(len(live), np.int32), np.zeros(len(live), np.bool_))
    point, ends = x, abs(gradient).max(axis=0) <= tol
    while True:
        found.converged[live[ends]] = True
        if ends.any():
            live, values, point, gradient = live[~ends], values[~ends], point[:, ~ends], gradient[:, ~ends]
            past.leave_out(ends)
        if not len(live) or found.n_iter.max() >= max_iter:
            return found
        before = values, point, gradient
        values, point, gradient = take_step(functions, live, *before, past.direction(gradient))
        past.add(point - before[1], gradient - before[2])
        x[:, live], found.values[live] = point, values
        found.n_iter[live] += 1
        largest = abs(gradient).max(axis=0)
        idle = (before[0] - values <= ROUNDING * abs(values)) & (largest >= abs(before[2]).max(axis=0))
        ends = (largest <= tol) | idle
        if callback(x, int((~ends).sum())):
            found.converged[live[ends]] = True
            return found


class Past:
    """The last steps of c functions, and the inverse of the curvature that they show."""

    def __init__(self, scale: Floats) -> None:
        self.scale, self.factor = scale, np.ones(1)
        self.pairs: list[tuple[Floats, Floats, Floats]] = []  # steps, changes of the gradient, one over their products

    def add(self, step: Floats, change: Floats) -> None:
        """A step, and what it did to the gradient; where the curvature is not positive, it shows nothing."""
        product, size = products(step, change), products(change, self.scale * change)
        curved = product > 0
        self.factor = np.where(curved, product / np.where(curved, size, 1.0), self.factor)
        self.pairs.append((step, change, np.where(curved, 1.0 / np.where(curved, product, 1.0), 0.0)))
        del self.pairs[:-MEMORY]

    def direction(self, gradient: Floats) -> Floats:
        """(D, c): minus the inverse curvature times the gradient."""
        result, shares = gradient.copy(), []
        for step, change, weight in reversed(self.pairs):
            shares.append(weight * products(step, result))
            result -= shares[-1] * change
        result *= self.factor * self.scale
        for step, change, weight in self.pairs:
            result += (shares.pop() - weight * products(change, result)) * step
        return -result

    def leave_out(self, ends: Array) -> None:
        """Forget some of the functions."""
        self.pairs = [(step[:, ~ends], change[:, ~ends], weight[~ends]) for step, change, weight in self.pairs]
        self.factor = np.broadcast_to(self.factor, ends.shape)[~ends]


def take_step(
    functions: Functions, live: Array, values: Floats, point: Floats, gradient: Floats, direction: Floats
) -> tuple[Floats, Floats, Floats]:
    """Values, points and gradients after a step of each function that lowers it and flattens its slope enough, found by
    bisection; where there is none, the best that was met."""
    slope = products(gradient, direction)
    low, high, size = np.zeros(len(live)), np.full(len(live), np.inf), np.ones(len(live))
    best = values.copy(), point.copy(), gradient.copy()
    rest = np.arange(len(live))  # the functions that still search
    for _ in range(MOST_TRIALS):
        trial = point[:, rest] + size[rest] * direction[:, rest]
        value, change = functions(trial, live[rest])
        lower = value <= values[rest] + LEAST_DECREASE * size[rest] * slope[rest] + ROUNDING * abs(values[rest])
        steep = products(change, direction[:, rest]) < LEAST_FLATTENING * slope[rest]
        better = rest[lower]
        best[0][better], best[1][:, better], best[2][:, better] = value[lower], trial[:, lower], change[:, lower]
        low[better], high[rest[~lower]] = size[better], size[rest[~lower]]
        rest = rest[~lower | steep]
        if not len(rest):
            break
        bounded = np.isfinite(high[rest])
        size[rest] = np.where(bounded, 0.5 * (low[rest] + np.where(bounded, high[rest], 0.0)), 2.0 * low[rest])
    return best


def products(first: Floats, second: Floats) -> Floats:
    """The scalar products of the columns."""
    found = np.empty(first.shape[1])
    dots(np.ascontiguousarray(first), np.ascontiguousarray(second), found)
    return found
