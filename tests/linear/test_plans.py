"""Each dropout's probabilities, number of draws and squared norm, against the definitions and against all outcomes."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import multinomial

from evodrop.definitions import expected_kept, keep_probabilities, n_draws, sampling_probabilities, second_moments
from evodrop.linear.kernels import BERNOULLI, CLEAN, MULTINOMIAL
from evodrop.linear.model import make_examples
from evodrop.linear.plans import DROPOUTS, LEAST, MOST_DRAWS, check_options, make_plan

DRAWN = ("uniform", "data-dependent", "weight-aware")
ROWS = np.array([[4.0, 0.0, 1.0, 0.0, 0.5], [0.0, 2.0, -1.0, 0.0, 0.5], [5.0, 0.0, 0.0, 0.0, 1.0]])
WEIGHTS = np.array([0.5, 3.0, 0.0, 0.0, 1.0])


def plan_of(dropout, rows=ROWS, **options):
    X = sparse.csr_array(rows)
    examples = make_examples(X, np.zeros(len(rows), int), np.ones(len(rows)))
    return make_plan(dropout, second_moments(X), examples, rows.any(axis=0), **options)


def all_noise(plan):
    """Every noise of a plan, and its probability."""
    d = len(plan.probs)
    drawable = np.where(plan.probs > 0, plan.probs, 1.0)
    if plan.noise.scheme == BERNOULLI:
        cells = np.array(list(product((0, 1), repeat=d)))
        return cells / drawable, np.where(cells, plan.probs, 1.0 - plan.probs).prod(axis=1)
    cells = np.array([cell for cell in product(range(plan.k + 1), repeat=d) if sum(cell) == plan.k])
    return cells / (plan.k * drawable), multinomial.pmf(cells, plan.k, plan.probs)


@pytest.mark.parametrize("rate", [0.5, 0.2, 0.0, 0.95])
def test_probabilities_and_draws_are_those_of_the_definitions(rate):
    moments, k = second_moments(ROWS), n_draws(5, rate)
    uniform, data = plan_of("uniform", rate=rate), plan_of("data-dependent", rate=rate)
    np.testing.assert_allclose(uniform.probs, np.full(5, 0.2))
    np.testing.assert_allclose(data.probs, sampling_probabilities(moments))
    filled = plan_of("water-filling", rate=rate)
    np.testing.assert_allclose(filled.probs, keep_probabilities(moments, k))
    assert (uniform.k, data.k, filled.k) == (k, k, pytest.approx(min(k, 4)))
    assert [plan.noise.scheme for plan in (uniform, data, filled)] == [MULTINOMIAL, MULTINOMIAL, BERNOULLI]
    np.testing.assert_allclose(data.noise.rates, np.maximum(k * data.probs, LEAST))


@pytest.mark.parametrize("rate", [0.5, 0.2])
def test_standard_dropout_keeps_every_feature_alike(rate):
    plan = plan_of("standard", rate=rate)
    np.testing.assert_array_equal(plan.probs, np.full(5, 1.0 - rate))
    assert plan.k == pytest.approx(5 * (1.0 - rate))
    assert (plan.noise.scheme, plan.noise.mask, len(plan.noise.rates)) == (BERNOULLI, 0, 1)


@pytest.mark.parametrize("match", ["draws", "distinct", "noise"])
@pytest.mark.parametrize("dropout", DROPOUTS[1:])
@pytest.mark.parametrize("rate", [0.5, 0.3])
def test_the_squared_norm_is_the_mean_over_all_outcomes(dropout, match, rate):
    plan = plan_of(dropout, rate=rate, match=match, weight_norms=lambda: WEIGHTS)
    noises, chances = all_noise(plan)
    assert chances.sum() == pytest.approx(1.0)
    norms = ((ROWS[None] * noises[:, None]) ** 2).sum(axis=2).mean(axis=1)  # of all noises, over the rows
    assert plan.squared_norm == pytest.approx(chances @ norms)
    np.testing.assert_allclose(chances @ noises, plan.probs > 0)  # noise of mean 1


@pytest.mark.parametrize("dropout", DROPOUTS[1:])
def test_a_match_of_noise_has_the_norm_of_standard_dropout(dropout):
    """A row of 400 features: k is large enough that rounding it changes little."""
    rows = np.random.default_rng(0).gamma(0.5, size=(20, 400))
    target = plan_of("standard", rows, rate=0.4).squared_norm
    plan = plan_of(dropout, rows, rate=0.4, match="noise", weight_norms=lambda: np.ones(400))
    assert plan.squared_norm == pytest.approx(target, rel=0.6 / plan.k)


@pytest.mark.parametrize("dropout", DROPOUTS[1:])
def test_a_match_of_distinct_features_keeps_as_many_as_standard_dropout(dropout):
    rows = np.random.default_rng(1).gamma(0.5, size=(20, 400)) * (np.arange(400) < 300)
    plan = plan_of(dropout, rows, rate=0.4, match="distinct", weight_norms=lambda: np.ones(400))
    kept = plan.probs.sum() if plan.noise.scheme == BERNOULLI else expected_kept(plan.probs, plan.k)
    features = 400 if dropout in ("uniform", "standard") else 300  # those that can be drawn
    assert kept == pytest.approx(0.6 * features, abs=0.5)


@pytest.mark.parametrize("dropout", [*DRAWN, "water-filling"])
def test_a_given_k_is_taken(dropout):
    plan = plan_of(dropout, k=3, weight_norms=lambda: WEIGHTS)
    assert plan.k == pytest.approx(3)
    assert plan_of(dropout, k=np.int32(1)).k == 1
    assert plan_of("data-dependent", k=MOST_DRAWS).k == MOST_DRAWS


def test_water_filling_keeps_all_if_k_is_more_than_all():
    plan = plan_of("water-filling", k=50)
    np.testing.assert_array_equal(plan.probs, ROWS.any(axis=0))
    assert plan.squared_norm == pytest.approx(second_moments(ROWS).sum())


def test_weight_aware_is_half_weights_and_half_data():
    root = np.sqrt(second_moments(ROWS))
    plan = plan_of("weight-aware", weight_norms=lambda: WEIGHTS)
    np.testing.assert_allclose(plan.probs, 0.5 * WEIGHTS * root / (WEIGHTS @ root) + 0.5 * root / root.sum())
    assert plan.probs.sum() == pytest.approx(1.0)
    assert (plan.probs[root > 0] > 0).all()  # also features without weight, which could else never get any
    assert plan.probs[3] == 0.0


@pytest.mark.parametrize("norms", [None, lambda: np.zeros(5), lambda: np.array([0.0, 0.0, 0.0, 7.0, 0.0])])
def test_weight_aware_without_weights_is_data_dependent(norms):
    plan = plan_of("weight-aware", weight_norms=norms)
    np.testing.assert_array_equal(plan.probs, plan_of("data-dependent").probs)


def test_only_weight_aware_asks_for_the_weights():
    for dropout in set(DROPOUTS) - {"weight-aware"}:
        plan_of(dropout, weight_norms=lambda: pytest.fail("asked"))


@pytest.mark.parametrize("dropout", DROPOUTS)
@pytest.mark.parametrize("options", [{}, {"rate": 0.0}, {"match": "noise"}, {"match": "distinct"}])
def test_data_of_zeros_get_no_noise(dropout, options):
    plan = plan_of(dropout, np.zeros((3, 5)), **options)
    assert (plan.noise.scheme, plan.probs, plan.k, plan.squared_norm) == (CLEAN, None, None, 0.0)


@pytest.mark.parametrize("dropout", DROPOUTS)
def test_what_a_match_approaches_at_rate_0_is_no_noise(dropout):
    for match in ("distinct", "noise"):
        plan = plan_of(dropout, rate=0.0, match=match)
        assert plan.noise.scheme == CLEAN
        assert plan.squared_norm == pytest.approx(second_moments(ROWS).sum())
    assert plan_of("standard", rate=0.0).noise.scheme == CLEAN
    np.testing.assert_array_equal(plan_of("water-filling", rate=0.0).probs, ROWS.any(axis=0))
    assert plan_of("uniform", rate=0.0).k == 5  # draws repeat: the paper's k = d is noise all the same


def test_what_lies_beside_a_non_zero_belongs_to_its_feature():
    X = sparse.csr_array(ROWS)
    for dropout in ("data-dependent", "water-filling", "uniform", "standard"):
        noise = plan_of(dropout).noise
        rates = np.broadcast_to(noise.rates, 5)
        np.testing.assert_allclose(noise.scaled, X.data / rates[X.indices])
        np.testing.assert_allclose(noise.row_rates, (ROWS != 0) @ np.where(ROWS.any(axis=0), rates, 0.0))


def test_features_that_are_not_seen_get_no_table():
    wide, narrow = np.zeros((1, 10_000)), np.ones((1, 1))
    wide[0, 17] = 1.0
    assert len(plan_of("data-dependent", wide, k=1).noise.tables) == len(plan_of("uniform", narrow, k=1).noise.tables)


@pytest.mark.parametrize("dropout", DROPOUTS)
def test_a_square_that_vanishes_does_no_harm(dropout):
    rows = ROWS.copy()
    rows[0, 3] = 1e-200  # its square is 0 in floating point
    plan = plan_of(dropout, rows)
    assert np.isfinite(plan.noise.scaled).all()
    assert np.isfinite(plan.squared_norm)


def test_options_that_do_not_go_together():
    with pytest.raises(ValueError, match="k is 3 and match is 'noise', but a match chooses k"):
        plan_of("uniform", k=3, match="noise")
    for dropout in ("none", "standard"):
        with pytest.raises(ValueError, match=f"k is 3, but dropout='{dropout}' draws nothing; set rate"):
            check_options(dropout, 3, "draws")
    with pytest.raises(ValueError, match=r"dropout rate is 1\.0"):
        plan_of("uniform", rate=1.0)
