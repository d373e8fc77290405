"""The expected logistic loss of noisy rows, and its gradient, in one pass over a CSR matrix, as machine code.

The score of a row is random, of mean z and variance V. Three losses say what it costs on average: see
:func:`expected_loss`. The problems of several classes share the pass.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import erfcx

from evodrop._checks import Array, Floats
from evodrop._kernels.compile import compiled
from evodrop._kernels.rows import U

QUADRATIC, GAUSSIAN, BOUND = range(3)
ROOT_TAU = math.sqrt(2.0 * math.pi)
HALVINGS = 10  # exp(-y) is exp(-y / 2^10) squared ten times: no branch and no table, so the loop over scales vectorises
LARGEST_POWER = 350.0  # exp of less is 0 for all that it is added to
EXPONENTIAL = np.array([1.0 / math.factorial(n) for n in range(14)])
MIDDLE = 3.0  # the ratio that is mapped to 0


def logistic_scales() -> tuple[Floats, Floats]:
    """Scales t and their weights: a logistic variable is a normal one of random scale t, and t / 2 has Kolmogorov's
    distribution, 8 x sum_k (-1)^(k-1) k^2 exp(-2 k^2 x^2).

    The trapezoidal rule in log x converges geometrically: the density vanishes faster than any power at both ends.
    """
    x = np.geomspace(0.19, 3.6, 20)
    k = np.arange(1, 60)[:, None]
    mass = x * x * ((-1.0) ** (k - 1) * k**2 * np.exp(-2.0 * k**2 * x**2)).sum(axis=0)
    return 2.0 * x, mass / mass.sum()


def tail_polynomial(degree: int = 17) -> Floats:
    """Coefficients in t = (r - 3) / (r + 3) of (1 + r) times Mills' ratio, P(Z > r) / density(r) for a normal Z."""
    t = np.cos(np.pi * (np.arange(64) + 0.5) / 64)
    ratio = MIDDLE * (1.0 + t) / (1.0 - t)
    values = (1.0 + ratio) * math.sqrt(0.5 * math.pi) * erfcx(ratio / math.sqrt(2.0))
    fitted = np.polynomial.chebyshev.chebfit(t, values, degree)
    return np.asarray(np.polynomial.chebyshev.cheb2poly(fitted))


SCALES, SCALE_WEIGHTS = logistic_scales()
TAIL = tail_polynomial()


@compiled
def expected_loss(loss: int, margin: float, variance: float, work: Floats) -> tuple[float, float, float]:
    """The loss number ``loss`` of a margin of mean m and variance V, and its derivatives by m and by V.

    QUADRATIC: log(1 + exp(-m)) + V s(m) (1 - s(m)) / 2, Eq. (4) with the second derivative of the logistic loss
    itself: s is the logistic function, without the paper's half. Not convex.
    GAUSSIAN: E log(1 + exp(-M)) for M ~ N(m, V) (Wang and Manning, 2013). log(1 + exp(-m)) is the mean over t of
    E max(0, -M) for M ~ N(m, t^2), which has a closed form, and noise of variance V makes it N(m, t^2 + V). The sum
    over 20 scales is within 2e-11 for every m and V, and convex in m and sqrt(V) as the integral is.
    BOUND: log 2 cosh(x / 2) - m / 2 with x = sqrt(m^2 + V) (Jaakkola and Jordan, 2000). The logistic loss of a random
    margin is never more on average, whatever its law. Convex in m and sqrt(V), concave in V.

    ``work`` is (3, scales), to write to.
    """
    size = abs(margin)
    if loss == GAUSSIAN:
        for n in range(len(SCALES)):
            deviation = math.sqrt(SCALES[n] * SCALES[n] + variance)
            ratio = size / deviation
            place = (ratio - MIDDLE) / (ratio + MIDDLE)
            tail = 0.0
            for power in range(len(TAIL)):
                tail = tail * place + TAIL[len(TAIL) - 1 - power]
            small = -min(0.5 * ratio * ratio, LARGEST_POWER) * 2.0**-HALVINGS
            exponential = 0.0
            for power in range(len(EXPONENTIAL)):
                exponential = exponential * small + EXPONENTIAL[len(EXPONENTIAL) - 1 - power]
            for _ in range(HALVINGS):
                exponential *= exponential
            density = SCALE_WEIGHTS[n] * exponential / ROOT_TAU
            below = density * tail / (1.0 + ratio)
            work[0, n], work[1, n], work[2, n] = deviation * density - size * below, below, density / deviation
        value, below, bend = 0.0, 0.0, 0.0
        for n in range(len(SCALES)):
            value += work[0, n]
            below += work[1, n]
            bend += work[2, n]
        return value + max(-margin, 0.0), below - 1.0 if margin < 0.0 else -below, 0.5 * bend
    if loss == QUADRATIC:
        small = math.exp(-size)
        likely = 1.0 / (1.0 + small)
        unlikely = small * likely
        half = 0.5 * likely * unlikely
        value = math.log1p(small) + max(-margin, 0.0)
        if margin < 0.0:
            likely, unlikely = unlikely, likely
        return value + half * variance, half * variance * (unlikely - likely) - unlikely, half
    x = math.sqrt(margin * margin + variance)
    excess = variance / (x + margin) if margin > 0.0 else x - margin  # x - m
    ratio = math.tanh(0.5 * x) / (2.0 * x) if x > 0.0 else 0.25
    return 0.5 * excess + math.log1p(math.exp(-x)), margin * ratio - 0.5, 0.5 * ratio


@compiled
def add_losses(
    indptr: Array,
    indices: Array,
    data: Array,
    row_factors: Floats,
    codes: Array,
    noisy: Floats,
    clean: Floats,
    positives: Array,
    loss: int,
    shared: float,
    weights: Floats,
    intercepts: Floats,
    values: Floats,
    pulls: Floats,
    slopes: Floats,
) -> None:
    """Add up the losses of all rows for C problems.

    Args:
        indptr, indices, data: the matrix.
        row_factors: empty: an entry x adds x^2 a to the variance; else it adds |x| a times the factor of its row.
        codes, positives: a row is on the positive side of problem c if its code is positives[c].
        noisy, clean: how much the expected loss of a row counts, and how much its loss without noise.
        loss: see :func:`expected_loss`.
        shared: what times z^2 is taken off the variance.
        weights: (d, 2C): the weights, then for each the a of the variance.
        intercepts, values: (C,) and (C,), to which the losses are added.
        pulls: (d, 2C), to which the sums of dloss/dz x are added, and of dloss/dV times what a is multiplied by.
        slopes: (C,) the same of dloss/dz alone.
    """
    classes = len(positives)
    scores, variances, steps = np.empty(classes), np.empty(classes), np.empty(2 * classes)
    work = np.empty((3, len(SCALES)))
    for row in range(len(codes)):
        start, stop = indptr[row], indptr[row + 1]
        scores[:] = 0.0
        variances[:] = 0.0
        for j in range(start, stop):
            i, x = U(indices[U(j)]), np.float64(data[U(j)])
            spread = abs(x) * row_factors[row] if len(row_factors) else x * x
            for c in range(classes):
                scores[c] += weights[i, c] * x
                variances[c] += weights[i, classes + c] * spread
        for c in range(classes):
            sign = 1.0 if codes[row] == positives[c] else -1.0
            margin = sign * (scores[c] + intercepts[c])
            variance = max(variances[c] - shared * scores[c] * scores[c], 0.0)
            value, slope, bend = expected_loss(loss, margin, variance, work)
            values[c] += noisy[row] * value
            pull, push = noisy[row] * sign * slope, noisy[row] * bend
            if clean[row] != 0.0:
                value, slope, _ = expected_loss(QUADRATIC, margin, 0.0, work)
                values[c] += clean[row] * value
                pull += clean[row] * sign * slope
            slopes[c] += pull
            steps[c], steps[classes + c] = pull - 2.0 * shared * push * scores[c], push
        for j in range(start, stop):
            i, x = U(indices[U(j)]), np.float64(data[U(j)])
            spread = abs(x) * row_factors[row] if len(row_factors) else x * x
            for c in range(classes):
                pulls[i, c] += steps[c] * x
                pulls[i, classes + c] += steps[classes + c] * spread


@compiled
def dots(first: Floats, second: Floats, products: Floats) -> None:
    """products = the scalar products of the columns, added up in one order however many columns there are."""
    products[:] = 0.0
    for i in range(len(first)):
        for c in range(len(products)):
            products[c] += first[i, c] * second[i, c]
