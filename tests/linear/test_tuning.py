"""The search for a step size or a rate finds what a loop by hand would."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection import GridSearchCV, StratifiedKFold, StratifiedShuffleSplit

from evodrop.linear import PAPER_GRID, DropoutLogisticRegression, DropoutSGDClassifier, tune_rate, tune_step_size
from evodrop.linear.tuning import RATES

RNG = np.random.default_rng(7)
X = sparse.csr_array(RNG.normal(size=(120, 10)) * (RNG.random((120, 10)) < 0.5))
Y = (X @ RNG.normal(size=10) + 0.5 * RNG.normal(size=120) > 0).astype(int)
ESTIMATOR = DropoutSGDClassifier(record_train_error=True, average=True, random_state=0)


def by_hand(step, epochs=6, weight=None, **options):
    model = clone(ESTIMATOR).set_params(learning_rate="constant", eta0=step, max_iter=epochs, tol=None, **options)
    return model.fit(X, Y, sample_weight=weight)


def scores_of(search):
    (name,) = search.param_grid
    return dict(zip(search.cv_results_[f"param_{name}"], search.cv_results_["mean_test_score"], strict=True))


def test_the_step_size_of_least_mean_training_error():
    grid = [0.001, 0.1, 3.0, 0.03]
    search = tune_step_size(ESTIMATOR, X, Y, grid, epochs=6)
    expected = {step: -np.mean(by_hand(step).history_["train_error"]) for step in grid}
    assert isinstance(search, GridSearchCV)
    assert scores_of(search) == pytest.approx(expected)
    best = max(expected, key=expected.get)
    assert search.best_params_ == {"eta0": best}
    np.testing.assert_array_equal(search.best_estimator_.coef_, by_hand(best).coef_)
    assert not hasattr(ESTIMATOR, "coef_")


def test_the_protocol_overrules_the_schedule_of_the_estimator():
    scheduled = clone(ESTIMATOR).set_params(learning_rate="invscaling", max_iter=999, tol=0.1, early_stopping=True)
    search = tune_step_size(scheduled, X, Y, [0.1], epochs=6)
    np.testing.assert_array_equal(search.best_estimator_.coef_, by_hand(0.1).coef_)
    assert scheduled.learning_rate == "invscaling"


def test_weights_are_passed_on():
    weight = RNG.uniform(0.0, 2.0, 120)
    search = tune_step_size(ESTIMATOR, X, Y, [0.1], epochs=6, sample_weight=weight)
    np.testing.assert_array_equal(search.best_estimator_.coef_, by_hand(0.1, weight=weight).coef_)
    assert search.best_score_ == -np.mean(by_hand(0.1, weight=weight).history_["train_error"])


@pytest.mark.filterwarnings("ignore:One or more of the test scores are non-finite")
def test_steps_that_diverge_have_no_score():
    diverging = clone(ESTIMATOR).set_params(loss="squared_hinge")
    with pytest.warns(FitFailedWarning, match="the weights overflowed"):
        search = tune_step_size(diverging, X, Y, [1e200, 0.01, 1e300], epochs=6)
    assert np.isnan([scores_of(search)[step] for step in (1e200, 1e300)]).all()
    assert search.best_params_ == {"eta0": 0.01}
    with pytest.raises(ValueError, match="the weights overflowed"):
        tune_step_size(diverging, X, Y, [1e200, 1e300], epochs=6)


def test_errors_of_every_fit_are_raised():
    with pytest.raises(ValueError, match="one class"):
        tune_step_size(ESTIMATOR, X, np.zeros(120))
    with pytest.raises(ValueError, match="eta0"):
        tune_step_size(ESTIMATOR, X, Y, [-1.0])
    with pytest.raises(ValueError, match="rate"):
        tune_rate(ESTIMATOR, X, Y, [1.5])


def test_the_rate_of_least_validation_error():
    grid = [0.2, 0.95]
    estimator = clone(ESTIMATOR).set_params(max_iter=5, tol=None)
    training, validation = next(StratifiedShuffleSplit(1, test_size=0.2, random_state=0).split(X, Y))
    expected = {}
    for rate in grid:
        model = clone(estimator).set_params(rate=rate).fit(X[training], Y[training])
        expected[rate] = model.score(X[validation], Y[validation])
    search = tune_rate(estimator, X, Y, grid)
    assert scores_of(search) == pytest.approx(expected)
    best = max(expected, key=expected.get)
    assert search.best_params_ == {"rate": best}
    np.testing.assert_array_equal(search.best_estimator_.coef_, clone(estimator).set_params(rate=best).fit(X, Y).coef_)


@pytest.mark.parametrize("cv", [3, StratifiedKFold(4, shuffle=True, random_state=1)])
def test_the_rate_by_folds(cv):
    estimator = clone(ESTIMATOR).set_params(max_iter=5, tol=None)
    splits = list((StratifiedKFold(cv) if cv == 3 else cv).split(X, Y))
    scores = [clone(estimator).fit(X[train], Y[train]).score(X[test], Y[test]) for train, test in splits]
    assert tune_rate(estimator, X, Y, [0.5], cv=cv).best_score_ == pytest.approx(np.mean(scores))


def test_the_rate_of_another_estimator():
    search = tune_rate(DropoutLogisticRegression(), X, Y, [0.3, 0.6])
    assert isinstance(search.best_estimator_, DropoutLogisticRegression)
    assert search.best_estimator_.rate == search.best_params_["rate"]


def test_a_rate_of_no_effect_is_refused():
    for options in ({"k": 3}, {"dropout": "none"}):
        with pytest.raises(ValueError, match="the rate has no effect on"):
            tune_rate(clone(ESTIMATOR).set_params(**options), X, Y)


@pytest.mark.parametrize("form", ["coo_array", "csc_array", "bsr_array", "lil_array"])
def test_any_form_of_a_matrix(form):
    same = getattr(sparse, form)(X)
    estimator = clone(ESTIMATOR).set_params(max_iter=2, tol=None)
    for tune in (tune_rate, tune_step_size):
        assert scores_of(tune(estimator, same, Y, [0.5])) == scores_of(tune(estimator, X, Y, [0.5]))
        assert tune(estimator, X.toarray().tolist(), Y.tolist(), [0.5]).best_estimator_.n_features_in_ == 10


def test_two_processes_find_the_same():
    alone = tune_step_size(ESTIMATOR, X, Y, [0.01, 0.1, 1.0], epochs=3)
    together = tune_step_size(ESTIMATOR, X, Y, [0.01, 0.1, 1.0], epochs=3, n_jobs=2)
    assert scores_of(together) == scores_of(alone)
    np.testing.assert_array_equal(together.best_estimator_.coef_, alone.best_estimator_.coef_)


def test_a_grid_may_be_anything_that_counts():
    search = tune_step_size(ESTIMATOR, X, Y, (2.0**-power for power in (3, 4, 3)), epochs=2)
    assert list(scores_of(search)) == [0.125, 0.0625]
    assert list(scores_of(tune_step_size(ESTIMATOR, X, Y, np.array([1, 2]), epochs=2))) == [1.0, 2.0]
    assert len(scores_of(tune_step_size(ESTIMATOR, X, Y, epochs=1))) == len(PAPER_GRID)
    assert all(0.0 < rate < 1.0 for rate in RATES)


@pytest.mark.parametrize("tune", [tune_step_size, tune_rate])
def test_an_empty_grid_is_refused(tune):
    with pytest.raises(ValueError, match="need to be a non-empty sequence"):
        tune(ESTIMATOR, X, Y, [])
