"""The expected logistic loss of noisy rows, and its gradient, in one pass over a CSR matrix, as machine code.

The score of a row is random, of mean z and variance V. Three losses say what it costs on average: see
:func:`expected_loss`. The problems of several classes share the pass.
"""

from __future__ import annotations

import math

import numpy as np

from evodrop._checks import Array, Floats
from evodrop._kernels.compile import compiled
from evodrop._kernels.rows import U

QUADRATIC, GAUSSIAN, BOUND = range(3)
ROOT_TAU = math.sqrt(2.0 * math.pi)
HALVINGS = 10  # exp(-y) is exp(-y / 2^10) squared ten times: no branch and no table, so the loop over scales vectorises
LARGEST_POWER = 350.0  # exp of less is 0 for all that it is added to
EXPONENTIAL = np.array([1.0 / math.factorial(n) for n in range(14)])
MIDDLE = 3.0  # the ratio that is mapped to 0


# Numbers in the source are constants to the compiler, which unrolls the loops over them, and cost no import; the tests
# derive them. A logistic variable is a normal one of random scale t, and t / 2 has Kolmogorov's distribution: these are
# the nodes of the trapezoidal rule in log t and their weights. It converges geometrically, as the density vanishes
# faster than any power at both ends.
# fmt: off
SCALES = np.array([
    0.38, 0.44363215048955684, 0.5179196972315494, 0.6046469185887695, 0.7058968757379468, 0.8241014447565389,
    0.9620997267339318, 1.123206238832603, 1.3112905241489325, 1.5308700924862344, 1.7872189243416177,
    2.086494144213959, 2.435883905740806, 2.8437800406491958, 3.3199796182960055, 3.875920256963566,
    4.524954838744163, 5.28267222626368, 6.1672716843916096, 7.2,
])
SCALE_WEIGHTS = np.array([
    1.98047919872337e-13, 1.1090217480733509e-09, 5.493239155500305e-07, 4.5845763126609965e-05,
    0.0010339879397772136, 0.008905875656684603, 0.0377132809333291, 0.09434352188070494, 0.15908542187935032,
    0.1982552447035924, 0.19362790414698638, 0.15199216783514763, 0.09451399168940491, 0.04391006448860029,
    0.013793865114601596, 0.0025437174306730467, 0.00022696630533159347, 7.528875886013261e-06, 6.483482541997472e-08,
    8.884267729526707e-11,
])
# Coefficients in (r - 3) / (r + 3) of (1 + r) times Mills' ratio, P(Z > r) / density(r) for a normal Z.
TAIL = np.array([
    1.2183611948388846, -0.24195670060250418, -0.04118936839075216, 0.11320908284304296, -0.056974631025491655,
    0.002909683424394208, 0.007543194297897219, -0.0008891494401409055, -0.0013030143222112537,
    4.3956347262535104e-05, 0.0002620329436655383, 4.2906386868029066e-05, -4.819442742667727e-05,
    -2.200394625565389e-05, 6.199250529845728e-06, 5.916585374041617e-06, -3.4450619088510973e-07,
    -7.602562974207852e-07,
])
# fmt: on


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
