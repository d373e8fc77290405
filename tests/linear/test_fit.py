"""The noise of each dropout against the definitions and all outcomes; steps that stop and go on; rounds."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import multinomial

from evodrop._kernels.poisson import build_tables
from evodrop._kernels.sparse_rows import CLEAN, DRAWN, EQUAL, KEPT, LEAST, row_noise
from evodrop.definitions import expected_kept, keep_probabilities, n_draws, sampling_probabilities, second_moments
from evodrop.linear import DropoutSGDClassifier
from evodrop.linear._fit import DROPOUTS, Descent, Model, descend, make_examples, noise_of, step_options
from evodrop.noise import MOST_DRAWS, Noise

DRAWN_FROM = ("uniform", "data-dependent", "weight-aware")
ROWS = np.array([[4.0, 0.0, 1.0, 0.0, 0.5], [0.0, 2.0, -1.0, 0.0, 0.5], [5.0, 0.0, 0.0, 0.0, 1.0]])
WEIGHTS = np.array([0.5, 3.0, 0.0, 0.0, 1.0])


def law_of(dropout, rows=ROWS, weight_norms=None, **options):
    norms = np.zeros(rows.shape[1]) if weight_norms is None else weight_norms
    return noise_of(DropoutSGDClassifier(dropout=dropout, **options), second_moments(rows), norms)


def rows_of(law, rows=ROWS):
    X = sparse.csr_array(rows)
    return row_noise(law, X.indptr, X.indices, X.data)


def all_noise(law):
    """Every noise of a law, and its probability."""
    probs, k = law
    drawable = np.where(probs > 0, probs, 1.0)
    if k is None:
        cells = np.array(list(product((0, 1), repeat=len(probs))))
        return cells / drawable, np.where(cells, probs, 1.0 - probs).prod(axis=1)
    cells = np.array([cell for cell in product(range(k + 1), repeat=len(probs)) if sum(cell) == k])
    return cells / (k * drawable), multinomial.pmf(cells, k, probs)


def squared_norm(law, rows):
    """E||x * noise||^2, Proposition 2."""
    return float(second_moments(rows) @ law.mean_square)


@pytest.mark.parametrize("rate", [0.5, 0.2, 0.95])
def test_probabilities_and_draws_are_those_of_the_definitions(rate):
    moments, k = second_moments(ROWS), n_draws(5, rate)
    uniform, data = law_of("uniform", rate=rate), law_of("data-dependent", rate=rate)
    np.testing.assert_allclose(uniform.chances, np.full(5, 0.2))
    np.testing.assert_allclose(data.chances, sampling_probabilities(moments))
    filled = law_of("water-filling", rate=rate)
    np.testing.assert_allclose(filled.chances, keep_probabilities(moments, k))
    assert (uniform.k, data.k, filled.k) == (k, k, None)
    assert [rows_of(law).scheme for law in (uniform, data, filled)] == [DRAWN, DRAWN, KEPT]
    np.testing.assert_allclose(rows_of(data).rates, np.maximum(k * data.chances, LEAST))


@pytest.mark.parametrize("rate", [0.5, 0.2])
def test_standard_dropout_keeps_every_feature_alike(rate):
    law = law_of("standard", rate=rate)
    np.testing.assert_array_equal(law.chances, np.full(5, 1.0 - rate))
    assert law.k is None
    assert rows_of(law).scheme == EQUAL


@pytest.mark.parametrize("match", ["draws", "distinct", "noise"])
@pytest.mark.parametrize("dropout", DROPOUTS[1:])
@pytest.mark.parametrize("rate", [0.5, 0.3])
def test_the_squared_norm_is_the_mean_over_all_outcomes(dropout, match, rate):
    law = law_of(dropout, rate=rate, match=match, weight_norms=WEIGHTS)
    noises, chances = all_noise(law)
    assert chances.sum() == pytest.approx(1.0)
    norms = ((ROWS[None] * noises[:, None]) ** 2).sum(axis=2).mean(axis=1)  # of all noises, over the rows
    assert squared_norm(law, ROWS) == pytest.approx(chances @ norms)
    np.testing.assert_allclose(chances @ noises, law.chances > 0)  # noise of mean 1


@pytest.mark.parametrize("dropout", DROPOUTS[1:])
def test_a_match_of_noise_has_the_norm_of_standard_dropout(dropout):
    """A row of 400 features: k is large enough that rounding it changes little."""
    rows = np.random.default_rng(0).gamma(0.5, size=(20, 400))
    target = squared_norm(law_of("standard", rows, rate=0.4), rows)
    law = law_of(dropout, rows, rate=0.4, match="noise", weight_norms=np.ones(400))
    assert squared_norm(law, rows) == pytest.approx(target, rel=0.6 / (law.k or law.chances.sum()))


@pytest.mark.parametrize("dropout", DROPOUTS[1:])
def test_a_match_of_distinct_features_keeps_as_many_as_standard_dropout(dropout):
    rows = np.random.default_rng(1).gamma(0.5, size=(20, 400)) * (np.arange(400) < 300)
    law = law_of(dropout, rows, rate=0.4, match="distinct", weight_norms=np.ones(400))
    kept = law.chances.sum() if law.k is None else expected_kept(*law)
    features = 400 if dropout in ("uniform", "standard") else 300  # those that can be drawn
    assert kept == pytest.approx(0.6 * features, abs=0.5)


@pytest.mark.parametrize("dropout", [*DRAWN_FROM, "water-filling"])
def test_a_given_k_is_taken(dropout):
    for k in (3, np.int32(1), 2):
        law = law_of(dropout, k=k, weight_norms=WEIGHTS)
        assert (law.chances.sum() if law.k is None else law.k) == pytest.approx(k)
    assert law_of("data-dependent", k=MOST_DRAWS).k == MOST_DRAWS


def test_water_filling_keeps_all_if_k_is_more_than_all():
    law = law_of("water-filling", k=50)
    np.testing.assert_array_equal(law.chances, ROWS.any(axis=0))
    assert squared_norm(law, ROWS) == pytest.approx(second_moments(ROWS).sum())


def test_weight_aware_is_half_weights_and_half_data():
    root = np.sqrt(second_moments(ROWS))
    law = law_of("weight-aware", weight_norms=WEIGHTS)
    np.testing.assert_allclose(law.chances, 0.5 * WEIGHTS * root / (WEIGHTS @ root) + 0.5 * root / root.sum())
    assert law.chances.sum() == pytest.approx(1.0)
    assert (law.chances[root > 0] > 0).all()  # also features without weight, which could else never get any
    assert law.chances[3] == 0.0


@pytest.mark.parametrize("norms", [np.zeros(5), np.array([0.0, 0.0, 0.0, 7.0, 0.0])])
def test_weight_aware_without_weights_is_data_dependent(norms):
    law = law_of("weight-aware", weight_norms=norms)
    np.testing.assert_array_equal(law.chances, law_of("data-dependent").chances)


@pytest.mark.parametrize("dropout", DROPOUTS)
@pytest.mark.parametrize("options", [{}, {"rate": 0.0}, {"match": "noise"}, {"match": "distinct"}])
def test_data_of_zeros_get_no_noise(dropout, options):
    assert law_of(dropout, np.zeros((3, 5)), **options) is None


@pytest.mark.parametrize("dropout", DROPOUTS)
@pytest.mark.parametrize("match", ["draws", "distinct", "noise"])
def test_a_rate_of_0_is_no_noise(dropout, match):
    assert law_of(dropout, rate=0.0, match=match) is None
    assert rows_of(None).scheme == CLEAN


def test_what_lies_beside_a_non_zero_belongs_to_its_feature():
    X = sparse.csr_array(ROWS)
    for dropout in ("data-dependent", "water-filling", "uniform", "standard"):
        noise = rows_of(law_of(dropout))
        np.testing.assert_allclose(noise.scaled, X.data / noise.rates[X.indices])
        np.testing.assert_allclose(noise.row_rates, (ROWS != 0) @ np.where(ROWS.any(axis=0), noise.rates, 0.0))


def test_features_that_are_not_seen_get_no_table():
    rates = np.linspace(0.1, 3.0, 1000)
    where, tables = build_tables(rates, np.array([17, 17, 3]))
    assert len(tables) == sum(len(build_tables(rates[[i]], np.zeros(1, int))[1]) for i in (3, 17))
    assert np.flatnonzero(where).tolist() == [3, 17]
    assert len(rows_of(law_of("uniform")).tables) == len(build_tables(np.array([0.6]), np.zeros(1, int))[1])


@pytest.mark.parametrize("dropout", DROPOUTS)
def test_a_square_that_vanishes_does_no_harm(dropout):
    rows = ROWS.copy()
    rows[0, 3] = 1e-200  # its square is 0 in floating point
    assert np.isfinite(rows_of(law_of(dropout, rows), rows).scaled).all()


def test_probabilities_that_are_not_finite_are_refused():
    with pytest.raises(ValueError, match="probabilities of the dropout are not finite; divide X"):
        rows_of(Noise(np.array([0.5, np.nan, 0.0, 0.0, 0.5]), 3))


# Steps.


def descent(dropout="data-dependent", **options):
    rng = np.random.default_rng(1)
    X = sparse.random_array((30, 12), density=0.4, rng=rng, format="csr")
    examples = make_examples(X, rng.integers(0, 3, 30), np.ones(30))
    estimator = DropoutSGDClassifier(dropout=dropout, loss="log_loss", average=True, **options)
    how = second_moments(X), estimator, step_options(estimator), np.ones((3, 2)), 5
    return Descent(Model(12, 3, True), examples, np.arange(0, 30, 2), *how)


@pytest.mark.parametrize("dropout", ["data-dependent", "weight-aware", "none"])
@pytest.mark.parametrize("shuffle", [True, False])
def test_steps_may_be_cut_anywhere(dropout, shuffle):
    whole, pieces = descent(dropout, shuffle=shuffle), descent(dropout, shuffle=shuffle)
    total = whole.run(40)
    parts = []
    for steps in (1, 6, 8, 20, 5):
        again = descent(dropout, shuffle=shuffle)  # a new process, which gets a state
        again.load_state([array.copy() for array in pieces.state()])
        parts.append(again.run(steps))
        pieces = again
    assert sum(parts) == pytest.approx(total, rel=1e-12)
    for one, other in zip(whole.state(), pieces.state(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert whole.model.step == 41


def test_epochs_are_steps():
    epochs, steps = descent(), descent()
    losses = [epochs.epoch() for _ in range(3)]
    assert steps.run(45) / 15 == pytest.approx(sum(losses))
    np.testing.assert_array_equal(epochs.model.coefficients()[0], steps.model.coefficients()[0])


def test_a_state_of_another_shape_is_refused():
    state = descent().state()
    with pytest.raises(ValueError, match=r"an array of the state is float64 of shape \(1, 6\), not \(12, 6\)"):
        descent().load_state([state[0][:1], *state[1:]])


def test_steps_that_overflow_end_with_their_epoch_and_nobody_goes_on():
    diverging = descent("none", eta0=1e300, learning_rate="constant")
    diverging.examples.data[:] *= 1e10
    assert not math.isfinite(diverging.run(100))
    assert diverging.model.step < 100
    with pytest.raises(ValueError, match="overflowed before step"):
        diverging.epoch()


# Rounds.


def rounds_of(losses, epochs, local_epochs=1, stop=math.inf, **options):
    """Which rounds begin the average anew, and how many epochs there were."""
    restarts, history = [], {"loss": [], "train_error": [], "validation_score": [], "seconds": []}

    def take_round(_own, restart, _eta0):
        restarts.append(restart)
        return losses[len(restarts) - 1], 0.5, math.nan

    estimator = DropoutSGDClassifier(**{"tol": None, "average": "tail", "learning_rate": "constant", **options})

    def watch(*_):
        return len(restarts) >= stop

    done = descend(take_round, history, estimator, epochs, watch, local_epochs=local_epochs)
    assert history["loss"] == losses[: len(restarts)]
    return np.flatnonzero(restarts).tolist(), done, len(restarts)


def test_the_average_of_the_tail_begins_anew_after_1_2_4_8_rounds():
    assert rounds_of([1.0] * 20, 20) == ([1, 2, 4, 8, 16], 20, 20)
    assert rounds_of([1.0] * 20, 20, average=True) == ([], 20, 20)


def test_a_round_may_have_several_epochs_and_the_last_one_fewer():
    assert rounds_of([1.0] * 3, 7, 3)[1:] == (7, 3)


def test_rounds_end_when_they_bring_no_gain_or_the_watch_says_so():
    assert rounds_of([4.0, 2.0, 1.0, 1.0, 1.0, 1.0], 6, tol=1e-3, n_iter_no_change=2)[1] == 6
    assert rounds_of([1.0] * 9, 9, tol=1e-3, n_iter_no_change=2)[1] == 4
    assert rounds_of([1.0] * 9, 9, stop=3)[1] == 3
