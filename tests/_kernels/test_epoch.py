"""The fast epoch against plain NumPy on the same noise, and the noise against the loss that it stands for."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from helpers.chi_square import LEVEL, bernoulli_p_value, none_rejected
from scipy import sparse
from scipy.special import expit
from scipy.stats import multinomial

from evodrop._kernels.epoch import (
    LOSSES,
    SCALE,
    SMALLEST_SCALE,
    STEP,
    StepOptions,
    add_squares,
)
from evodrop._kernels.sparse_rows import CLEAN, row_noise
from evodrop.linear import DropoutSGDClassifier
from evodrop.linear._fit import Model, make_examples, noise_of

SEED = 20160208
SLOPES = {
    "log_loss": (lambda m: np.logaddexp(0.0, -m), lambda m: -expit(-m)),
    "hinge": (lambda m: np.maximum(0.0, 1.0 - m), lambda m: -1.0 * (m < 1.0)),
    "squared_hinge": (lambda m: np.maximum(0.0, 1.0 - m) ** 2, lambda m: -2.0 * np.maximum(0.0, 1.0 - m)),
    "modified_huber": (
        lambda m: np.where(m >= -1.0, np.maximum(0.0, 1.0 - m) ** 2, -4.0 * m),
        lambda m: np.where(m >= -1.0, -2.0 * np.maximum(0.0, 1.0 - m), -4.0),
    ),
}


def corrupted(examples, row, noise, step, d):
    """A row as step number ``step`` sees it: from weights of zero, a step of 1 down the hinge loss goes there."""
    model = Model(d, 1, False, 1)
    model.blocks[0].state[STEP] = step
    alike = examples._replace(labels=np.ones_like(examples.labels), weights=np.ones_like(examples.weights))
    options = StepOptions(LOSSES.index("hinge"), 1.0, 0.0, 0.0, False)
    model.run(alike, np.array([row]), noise, options, SEED, np.ones((1, 2)))
    return model.coefficients()[0][0]


def plain_epochs(X, examples, orders, noise, options, averages, class_weights, coef, intercept, adagrad=False):
    """SGD by its definition, one dense vector after the other. Gives coefficients, intercepts and the sum of losses."""
    value, slope = SLOPES[LOSSES[options.loss]]
    coef, intercept = coef.copy(), intercept.copy()
    sums, shifts, averaged, total = np.zeros_like(coef), np.zeros_like(intercept), 0, 0.0
    squares, intercept_squares = np.zeros_like(coef), np.zeros_like(intercept)
    for step, row in enumerate(np.concatenate(orders), 1):
        x = corrupted(examples, row, noise, step, X.shape[1])
        positive = np.arange(len(coef)) + (len(coef) == 1) == examples.labels[row]
        signs = np.where(positive, 1.0, -1.0)
        weights = examples.weights[row] * np.where(positive, class_weights[:, 1], class_weights[:, 0])
        margins = signs * (coef @ x + intercept)
        eta = options.eta0 / step**options.power * max(0.0, 1.0 - (step - 1) / options.steps)
        gradient = weights * signs * slope(margins)
        total += (weights * value(margins)).sum()
        move, shift = np.outer(gradient, x), gradient
        if adagrad:
            squares, intercept_squares = squares + move**2, intercept_squares + shift**2
            move, shift = (
                np.divide(one, np.sqrt(of), out=np.zeros_like(one), where=of > 0)
                for one, of in ((move, squares), (shift, intercept_squares))
            )
        coef = max(0.0, 1.0 - eta * options.alpha) * coef - eta * move
        intercept = intercept - eta * shift * options.fit_intercept
        if averages:
            sums, shifts, averaged = sums + coef, shifts + intercept, averaged + 1
    return (sums / averaged, shifts / averaged, total) if averaged else (coef, intercept, total)


def random_examples(problems, rows=40, d=12, dtype=np.float64, index=np.int32, weighted=True):
    """Sparse rows with weights, among them an empty one."""
    rng = np.random.default_rng(problems)
    dense = rng.normal(size=(rows, d)) * (rng.random((rows, d)) < 0.4)
    dense[3] = 0.0
    X = sparse.csr_array(dense.astype(dtype))
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    labels = rng.integers(0, max(2, problems), rows)
    return X, make_examples(X, labels, rng.uniform(0.1, 2.0, rows) if weighted else np.ones(rows))


def law_of(dropout, moments, weight_norms=None, **options):
    estimator = DropoutSGDClassifier(dropout=dropout, **options)
    return noise_of(estimator, moments, np.zeros(len(moments)) if weight_norms is None else weight_norms)


def law_for(dropout, X, **options):
    return law_of(dropout, (X.toarray().astype(np.float64) ** 2).mean(axis=0), **options)


def noise_for(dropout, X, examples, **options):
    return row_noise(law_for(dropout, X, **options), *examples[:3])


CLEAR = {
    "problems": 1,
    "dropout": "none",
    "loss": "log_loss",
    "eta0": 0.1,
    "power": 0.0,
    "alpha": 0.0,
    "intercept": True,
    "averages": False,
    "dtype": np.float64,
    "index": np.int32,
    "steps": np.inf,
    "adagrad": False,
}
CASES = [
    *({"loss": loss} for loss in LOSSES),
    {"problems": 3},
    {"problems": 5, "jobs": 2},
    *({"dropout": name} for name in ("standard", "uniform", "data-dependent", "water-filling", "weight-aware")),
    {"dropout": "data-dependent", "problems": 4, "jobs": 2, "loss": "hinge"},
    {"dropout": "standard", "problems": 3, "averages": True, "alpha": 0.01},
    {"averages": True},
    {"averages": True, "problems": 3},
    {"averages": True, "dropout": "uniform", "alpha": 0.02, "power": 0.5},
    {"power": 0.25, "loss": "hinge", "alpha": 0.001},
    {"intercept": False, "dropout": "data-dependent"},
    {"intercept": False, "problems": 3, "averages": True},
    {"dtype": np.float32, "dropout": "data-dependent"},
    {"dtype": np.float32, "index": np.int64, "dropout": "water-filling", "problems": 3},
    {"index": np.int64, "dropout": "uniform", "averages": True},
    {"steps": 200.0, "dropout": "data-dependent", "alpha": 0.01},
    {"steps": 50.0, "problems": 3, "averages": True},  # the steps after the last are 0
    {"adagrad": True, "loss": "hinge"},
    {"adagrad": True, "dropout": "data-dependent", "averages": True, "alpha": 0.01, "steps": 100.0},
    {"adagrad": True, "dropout": "standard", "problems": 5, "jobs": 2, "averages": True},
    {"adagrad": True, "intercept": False, "problems": 3, "dtype": np.float32},
]


def run_both(case, alpha=None, epochs=3):
    case = {**CLEAR, **case}
    X, examples = random_examples(case["problems"], dtype=case["dtype"], index=case["index"])
    rng = np.random.default_rng(7)
    rates = case["eta0"], case["power"], case["alpha"] if alpha is None else alpha
    options = StepOptions(LOSSES.index(case["loss"]), *rates, case["intercept"], case["steps"])
    coef, intercept = rng.normal(size=(case["problems"], X.shape[1])), rng.normal(size=case["problems"])
    sides = rng.uniform(0.5, 2.0, (case["problems"], 2))
    noise = noise_for(case["dropout"], X, examples, weight_norms=np.linalg.norm(coef, axis=0))
    model = Model(X.shape[1], case["problems"], case["averages"], case.get("jobs", 1), case["adagrad"])
    model.start_at(coef, intercept)
    orders = [rng.permutation(X.shape[0])[: 30 + epoch] for epoch in range(epochs)]
    losses = sum(model.run(examples, order, noise, options, SEED, sides) for order in orders)
    assert model.step == 1 + sum(map(len, orders))
    begin = sides, coef, intercept, case["adagrad"]
    expected = plain_epochs(X, examples, orders, noise, options, case["averages"], *begin)
    return X, model, losses, expected


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(f"{name}={value}" for name, value in case.items()))
def test_an_epoch_is_plain_sgd_on_the_same_noise(case):
    X, model, losses, (coef, intercept, total) = run_both(case)
    fast_coef, fast_intercept = model.coefficients()
    np.testing.assert_allclose(fast_coef, coef, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(fast_intercept, intercept, rtol=1e-10, atol=1e-12)
    assert losses == pytest.approx(total, rel=1e-10)
    assert case.get("intercept", True) or (fast_intercept == intercept).all()
    rows = np.array([5, 0, 3, 3])
    np.testing.assert_allclose(model.scores(X, rows), (X @ coef.T)[rows] + intercept, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("problems", [1, 3])
@pytest.mark.parametrize("averages", [True, False])
@pytest.mark.parametrize("dropout", ["none", "data-dependent"])
def test_decay_below_the_smallest_scale_starts_a_new_one(problems, averages, dropout):
    """0.6^n is below 1e-9 after 41 steps, so 93 steps decay all weights twice, in the midst of the average."""
    case = {"problems": problems, "averages": averages, "dropout": dropout, "eta0": 0.4}
    _, model, losses, (coef, intercept, total) = run_both(case, alpha=1.0)
    assert model.blocks[0].state[SCALE] > 0.6**50
    fast_coef, fast_intercept = model.coefficients()
    cancelled = 1e-15 / SMALLEST_SCALE  # digits that the average loses while the scale is small
    np.testing.assert_allclose(fast_coef, coef, rtol=cancelled, atol=cancelled * np.abs(coef).max())
    np.testing.assert_allclose(fast_intercept, intercept, rtol=1e-10)
    assert losses == pytest.approx(total, rel=1e-10)


@pytest.mark.parametrize("averages", [True, False])
@pytest.mark.parametrize("problems", [1, 3])
def test_a_decay_of_all_forgets_all_but_the_last_step(problems, averages):
    case = {"problems": problems, "eta0": 0.5, "averages": averages, "dropout": "uniform"}
    for alpha in (2.0, 50.0):  # eta alpha of 1 and more
        _, model, losses, (coef, intercept, total) = run_both(case, alpha=alpha)
        np.testing.assert_allclose(model.coefficients()[0], coef, rtol=1e-10, atol=1e-14)
        np.testing.assert_allclose(model.coefficients()[1], intercept, rtol=1e-10)
        assert losses == pytest.approx(total, rel=1e-10)


def test_the_number_of_jobs_changes_nothing():
    models = [
        run_both({"problems": 9, "jobs": jobs, "dropout": "data-dependent", "alpha": 0.1})[1] for jobs in (1, 2, 4)
    ]
    for model in models[1:]:
        np.testing.assert_array_equal(model.coefficients()[0], models[0].coefficients()[0])
        np.testing.assert_array_equal(model.weight_norms(), models[0].weight_norms())


@pytest.mark.parametrize("averages", [True, False])
def test_scores_are_the_same_for_few_features_and_for_many(averages):
    X, examples = random_examples(3)
    many = sparse.csr_array((X.data, X.indices, X.indptr), shape=(40, 5000))
    rows = np.array([7, 3, 0, 39])
    scores = []
    for matrix in (X, many):
        model = Model(matrix.shape[1], 3, averages)
        noise = noise_for("none", X, examples)
        model.run(examples, np.arange(40), noise, StepOptions(1, 0.3, 0.0, 0.05, True), SEED, np.ones((3, 2)))
        scores.append(model.scores(matrix, rows))
    np.testing.assert_allclose(*scores, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_squares_add_up_by_weight(dtype, index):
    X, examples = random_examples(1, dtype=dtype, index=index)
    squares = np.ones(12)
    add_squares(examples, examples.weights, squares)
    np.testing.assert_allclose(squares, 1.0 + examples.weights @ X.toarray().astype(np.float64) ** 2, rtol=1e-12)


def many_kept(keep, rows=300_000):
    """Which of three features are kept, in many rows. Every row has features of its own, and the weights after an epoch
    of steps as in ``corrupted`` are the rows."""
    data = np.tile([2.0, -3.0, 0.5], rows)
    X = sparse.csr_array((data, np.arange(3 * rows), np.arange(0, 3 * rows + 1, 3)), shape=(rows, 3 * rows))
    examples = make_examples(X, np.ones(rows, int), np.ones(rows))
    if len(keep) == 1:
        law = law_of("standard", data**2, rate=1.0 - keep[0])
    else:  # moments such that water-filling finds these
        moments, k = np.tile(np.square(keep), rows), round(rows * sum(keep))
        law = law_of("water-filling", moments, k=k)
    np.testing.assert_allclose(law[0].reshape(rows, 3), np.broadcast_to(keep, (rows, 3)), rtol=1e-6)
    model = Model(3 * rows, 1, False, 1)
    options = StepOptions(LOSSES.index("hinge"), 1.0, 0.0, 0.0, False)
    model.run(examples, np.arange(rows), row_noise(law, *examples[:3]), options, SEED, np.ones((1, 2)))
    values = model.coefficients()[0].reshape(rows, 3)
    mask = values != 0.0
    np.testing.assert_allclose(values, np.where(mask, data.reshape(rows, 3) / keep, 0.0), rtol=1e-6)
    return mask


def test_features_are_kept_independently():
    cases = [[0.5], [0.75], [0.02], [0.1, 0.9, 0.37], [1.0, 0.02, 0.6], [0.999, 0.25, 0.5]]
    assert none_rejected([bernoulli_p_value(many_kept(keep), np.broadcast_to(keep, 3)) for keep in cases])


def test_the_test_of_independence_can_fail():
    assert bernoulli_p_value(many_kept([0.3]), np.full(3, 0.305)) < LEVEL


# The noisy gradient. A small problem: every noise that a row can get, with its probability, can be written down.

ROWS = np.array(
    [
        [2.0, 0.0, 1.0, -0.5, 0.0],
        [0.0, 1.0, 0.5, 0.0, 3.0],
        [1.0, -1.0, 0.0, 0.2, 1.0],
        [0.0, 0.0, 0.0, 0.0, 1.5],
        [-1.0, 0.7, 0.3, 1.0, 0.4],
    ]
)
LABELS = np.array([1, 0, 1, 0, 0])
COEF, INTERCEPT = np.array([0.8, -0.5, 1.2, 0.1, -0.3]), 0.2


def all_noise(probs, k):
    """(cells, d) noises and (cells,) probabilities of a law for 5 features."""
    if k is None:
        cells = np.array(list(product((0, 1), repeat=5)))
        return cells / probs, np.where(cells, probs, 1.0 - probs).prod(axis=1)
    cells = np.array([cell for cell in product(range(k + 1), repeat=5) if sum(cell) == k])
    return cells / (k * probs), multinomial.pmf(cells, k, probs)


def marginal_loss(noises, chances, coef, intercept):
    """E over rows and noise of log(1 + exp(-y (w . (x * noise) + b)))."""
    signs = 2 * LABELS - 1
    return (chances @ np.logaddexp(0.0, -signs * ((ROWS[None] * noises[:, None]) @ coef + intercept))).mean()


@pytest.mark.parametrize("dropout", ["uniform", "data-dependent", "standard", "water-filling"])
@pytest.mark.parametrize("rate", [0.5, 0.3])
def test_the_noisy_gradient_is_that_of_the_marginal_loss_on_average(dropout, rate):
    X = sparse.csr_array(ROWS)
    examples = make_examples(X, LABELS, np.ones(5))
    law = law_for(dropout, X, rate=rate)
    noises, chances = all_noise(*law)
    assert chances.sum() == pytest.approx(1.0)
    signs = 2 * LABELS - 1
    inputs = np.concatenate([ROWS[None] * noises[:, None], np.ones((len(noises), 5, 1))], axis=2)
    margins = signs * (inputs @ np.append(COEF, INTERCEPT))
    gradients = (-signs * expit(-margins))[:, :, None] * inputs
    means = np.einsum("c,crd->rd", chances, gradients)
    variances = np.einsum("c,crd->rd", chances, gradients**2) - means**2
    expected = means.mean(axis=0)
    for j, step in enumerate(1e-5 * np.eye(6)):
        above = marginal_loss(noises, chances, COEF + step[:5], INTERCEPT + step[5])
        below = marginal_loss(noises, chances, COEF - step[:5], INTERCEPT - step[5])
        assert expected[j] == pytest.approx((above - below) / 2e-5, abs=1e-9)

    draws, eta = 400_000, 1e-11  # so small a step that the weights all but stay: the steps add up to the mean gradient
    model = Model(5, 1, False, 1)
    model.start_at(COEF[None], np.array([INTERCEPT]))
    options, noise = StepOptions(LOSSES.index("log_loss"), eta, 0.0, 0.0, True), row_noise(law, *examples[:3])
    order = np.tile(np.arange(5), draws // 5)
    loss = model.run(examples, order, noise, options, SEED, np.ones((1, 2)))
    coef, intercept = model.coefficients()
    mean = (np.append(COEF, INTERCEPT) - np.append(coef, intercept)) / (eta * draws)
    errors = np.sqrt(variances.mean(axis=0) / draws)
    assert (np.abs(mean - expected) < 5 * errors).all()
    losses = np.logaddexp(0.0, -margins)
    spread = (chances @ losses**2 - (chances @ losses) ** 2).mean()
    assert abs(loss / draws - marginal_loss(noises, chances, COEF, INTERCEPT)) < 5 * np.sqrt(spread / draws)
    assert (np.abs(mean - clean_gradient()) > 5 * errors).any()  # it is not the gradient without noise


def clean_gradient():
    signs, inputs = 2 * LABELS - 1, np.column_stack([ROWS, np.ones(5)])
    return (-(signs * expit(-signs * (inputs @ np.append(COEF, INTERCEPT))))[:, None] * inputs).mean(axis=0)


def test_without_noise_nothing_is_drawn():
    X, examples = random_examples(1)
    noise = noise_for("none", X, examples)
    assert noise.scheme == CLEAN
    np.testing.assert_array_equal(corrupted(examples, 0, noise, 1, 12), X.toarray()[0])
