"""The search for a step size or a rate finds what a loop by hand would."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit

from evodrop.linear import PAPER_GRID, DropoutLogisticRegression, DropoutSGDClassifier, tune_rate, tune_step_size
from evodrop.linear.tuning import RATES, Tuning

RNG = np.random.default_rng(7)
X = sparse.csr_array(RNG.normal(size=(120, 10)) * (RNG.random((120, 10)) < 0.5))
Y = (X @ RNG.normal(size=10) + 0.5 * RNG.normal(size=120) > 0).astype(int)
ESTIMATOR = DropoutSGDClassifier(average=True, random_state=0)


def by_hand(step, epochs=6, weight=None, **options):
    model = clone(ESTIMATOR).set_params(learning_rate="constant", eta0=step, max_iter=epochs, tol=None, **options)
    return model.fit(X, Y, sample_weight=weight)


def test_the_step_size_of_least_mean_training_error():
    grid = [0.001, 0.1, 3.0, 0.03]
    tuning = tune_step_size(ESTIMATOR, X, Y, grid, epochs=6, verbose=0)
    expected = {step: np.mean(by_hand(step).history_["train_error"]) for step in grid}
    assert tuning.errors == pytest.approx(expected)
    assert list(tuning.errors) == grid
    assert tuning.best == min(expected, key=expected.get)
    assert tuning.name == "eta0"
    np.testing.assert_array_equal(tuning.estimator.coef_, by_hand(tuning.best).coef_)
    assert tuning.estimator.eta0 == tuning.best
    assert not hasattr(ESTIMATOR, "coef_")


def test_the_protocol_overrules_the_schedule_of_the_estimator():
    scheduled = clone(ESTIMATOR).set_params(learning_rate="bound", max_iter=999, tol=0.1, early_stopping=True)
    tuning = tune_step_size(scheduled, X, Y, [0.1], epochs=6, verbose=0)
    np.testing.assert_array_equal(tuning.estimator.coef_, by_hand(0.1).coef_)
    assert scheduled.learning_rate == "bound"


def test_weights_are_passed_on():
    weight = RNG.uniform(0.0, 2.0, 120)
    tuning = tune_step_size(ESTIMATOR, X, Y, [0.1], epochs=6, sample_weight=weight, verbose=0)
    np.testing.assert_array_equal(tuning.estimator.coef_, by_hand(0.1, weight=weight).coef_)


def test_steps_that_diverge_have_an_infinite_error():
    diverging = clone(ESTIMATOR).set_params(loss="squared_hinge")
    tuning = tune_step_size(diverging, X, Y, [1e200, 0.01, 1e300], epochs=6, verbose=0)
    assert tuning.errors[1e200] == tuning.errors[1e300] == math.inf
    assert tuning.best == 0.01
    assert "inf" in str(tuning)
    with pytest.raises(ValueError, match=r"overflowed for every eta0 of \[1e\+200, 1e\+300\]; try smaller"):
        tune_step_size(diverging, X, Y, [1e200, 1e300], epochs=6, verbose=0)


def test_other_errors_are_not_swallowed():
    with pytest.raises(ValueError, match="one class"):
        tune_step_size(ESTIMATOR, X, np.zeros(120), verbose=0)
    with pytest.raises(ValueError, match="eta0"):
        tune_step_size(ESTIMATOR, X, Y, [-1.0], verbose=0)
    with pytest.raises(ValueError, match="rate"):
        tune_rate(ESTIMATOR, X, Y, [1.5], verbose=0)


def test_the_rate_of_least_validation_error():
    grid = [0.2, 0.95]
    estimator = clone(ESTIMATOR).set_params(max_iter=5, tol=None)
    training, validation = next(StratifiedShuffleSplit(1, test_size=0.2, random_state=0).split(X, Y))
    expected = {}
    for rate in grid:
        model = clone(estimator).set_params(rate=rate).fit(X[training], Y[training])
        expected[rate] = 1.0 - model.score(X[validation], Y[validation])
    tuning = tune_rate(estimator, X, Y, grid, verbose=0)
    assert tuning.errors == pytest.approx(expected)
    assert tuning.name == "rate"
    assert tuning.best == min(expected, key=expected.get)
    np.testing.assert_array_equal(tuning.estimator.coef_, clone(estimator).set_params(rate=tuning.best).fit(X, Y).coef_)


@pytest.mark.parametrize("cv", [3, StratifiedKFold(4, shuffle=True, random_state=1)])
def test_the_rate_by_folds(cv):
    estimator = clone(ESTIMATOR).set_params(max_iter=5, tol=None)
    splits = list((StratifiedKFold(cv) if cv == 3 else cv).split(X, Y))
    scores = [clone(estimator).fit(X[train], Y[train]).score(X[test], Y[test]) for train, test in splits]
    tuning = tune_rate(estimator, X, Y, [0.5], cv=cv, verbose=0)
    assert tuning.errors[0.5] == pytest.approx(1.0 - np.mean(scores))


def test_the_rate_of_another_estimator():
    tuning = tune_rate(DropoutLogisticRegression(), X, Y, [0.3, 0.6], verbose=0)
    assert isinstance(tuning.estimator, DropoutLogisticRegression)
    assert tuning.estimator.rate == tuning.best


@pytest.mark.parametrize("form", ["coo_array", "csc_array", "bsr_array", "lil_array"])
def test_any_form_of_a_matrix(form):
    same = getattr(sparse, form)(X)
    estimator = clone(ESTIMATOR).set_params(max_iter=2, tol=None)
    for tune in (tune_rate, tune_step_size):
        assert tune(estimator, same, Y, [0.5], verbose=0).errors == tune(estimator, X, Y, [0.5], verbose=0).errors
        assert tune(estimator, X.toarray().tolist(), Y.tolist(), [0.5], verbose=0).best == 0.5


def test_two_processes_find_the_same():
    alone = tune_step_size(ESTIMATOR, X, Y, [0.01, 0.1, 1.0], epochs=3, verbose=0)
    together = tune_step_size(ESTIMATOR, X, Y, [0.01, 0.1, 1.0], epochs=3, n_jobs=2, verbose=0)
    assert (together.best, together.errors) == (alone.best, alone.errors)
    np.testing.assert_array_equal(together.estimator.coef_, alone.estimator.coef_)
    estimator = clone(ESTIMATOR).set_params(max_iter=3, tol=None)
    rates = [tune_rate(estimator, X, Y, [0.3, 0.6], n_jobs=jobs, verbose=0).errors for jobs in (1, 2)]
    assert rates[0] == rates[1]


def test_a_grid_may_be_anything_that_counts():
    tuning = tune_step_size(ESTIMATOR, X, Y, (2.0**-power for power in (3, 4, 3)), epochs=2, verbose=0)
    assert list(tuning.errors) == [0.125, 0.0625]
    assert list(tune_step_size(ESTIMATOR, X, Y, np.array([1, 2]), epochs=2, verbose=0).errors) == [1.0, 2.0]
    assert len(tune_step_size(ESTIMATOR, X, Y, epochs=1, verbose=0).errors) == len(PAPER_GRID)
    assert all(0.0 < rate < 1.0 for rate in RATES)


@pytest.mark.parametrize("tune", [tune_step_size, tune_rate])
def test_an_empty_grid_is_refused(tune):
    with pytest.raises(ValueError, match="grid is empty"):
        tune(ESTIMATOR, X, Y, [], verbose=0)


def test_a_tuning_prints_as_a_table():
    lines = str(Tuning("eta0", 0.1, {1.0: math.inf, 0.1: 0.125, 0.01: 0.3}, None)).splitlines()
    assert lines[0].split() == ["eta0", "error"]
    assert [line.split() for line in lines[1:]] == [["1", "inf%"], ["0.1", "12.5000%", "best"], ["0.01", "30.0000%"]]


@pytest.mark.parametrize(("tune", "title"), [(tune_step_size, "step sizes"), (tune_rate, "dropout rates")])
def test_a_bar_is_drawn_unless_asked_not_to(tune, title, capsys):
    estimator = clone(ESTIMATOR).set_params(max_iter=2, tol=None)
    tune(estimator, X, Y, [0.5], verbose=0)
    assert capsys.readouterr() == ("", "")
    tune(estimator, X, Y, [0.5, 0.25], verbose=1)
    out, err = capsys.readouterr()
    assert title in out + err
    assert "2/2" in out + err
