"""DropoutSGDClassifier from outside: what goes in, what comes out, and that nothing else matters."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from evodrop._kernels.epoch import LOSSES
from evodrop.definitions import sampling_probabilities, second_moments
from evodrop.linear import AdaptiveRateLogisticRegression, DropoutLogisticRegression, DropoutSGDClassifier
from evodrop.linear._base import number_labels, split_rows
from evodrop.linear._fit import DROPOUTS

RNG = np.random.default_rng(2016)
DENSE = np.round(RNG.normal(size=(90, 12)), 2) * (RNG.random((90, 12)) < 0.4)  # two digits: float32 holds no more
DENSE[:, 11] = 0.0
SIDES = (DENSE @ RNG.normal(size=12) + 0.3 * RNG.normal(size=90) > 0).astype(int)
CLASSES = RNG.integers(0, 5, 90)
OUTCOMES = ("coef_", "intercept_", "probs_", "k_", "t_", "n_iter_")


def classifier(dropout="data-dependent", **options):
    settings = {"learning_rate": "constant", "eta0": 0.1, "average": False, "max_iter": 4, "tol": None}
    settings |= {"record_train_error": True}
    return DropoutSGDClassifier(dropout=dropout, **{**settings, "random_state": 0, **options})


def assert_same(model, other, names=OUTCOMES):
    for name in names:
        np.testing.assert_array_equal(getattr(model, name), getattr(other, name), err_msg=name)


# What goes in.


def unsorted(X):
    X = sparse.csr_array(X)
    for row in range(X.shape[0]):
        part = slice(X.indptr[row], X.indptr[row + 1])
        X.indices[part], X.data[part] = X.indices[part][::-1].copy(), X.data[part][::-1].copy()
    return sparse.csr_array((X.data, X.indices, X.indptr), shape=X.shape)


def duplicated(X):
    X = sparse.coo_array(X)
    half = X.data / 2
    return sparse.coo_array((np.r_[half, half], (np.r_[X.row, X.row], np.r_[X.col, X.col])), shape=X.shape)


def with_zeros(X):
    X = sparse.coo_array(X)
    rows, cols = np.r_[X.row, [0, 5, 7]], np.r_[X.col, [11, 11, 11]]
    return sparse.csr_array((np.r_[X.data, [0.0, 0.0, -0.0]], (rows, cols)), shape=X.shape)


def wide_indices(X):
    X = sparse.csr_array(X)
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return X


def read_only(X):
    X = sparse.csr_array(X)
    for array in (X.data, X.indices, X.indptr):
        array.flags.writeable = False
    return X


FORMS = {
    "csr_matrix": sparse.csr_matrix,
    "csc": sparse.csc_array,
    "coo": sparse.coo_array,
    "lil": sparse.lil_array,
    "dok": sparse.dok_array,
    "bsr": sparse.bsr_array,
    "dia": sparse.dia_array,
    "Fortran": np.asfortranarray,
    "list": lambda X: X.tolist(),
    "unsorted": unsorted,
    "duplicates": lambda X: duplicated(X).tocsr(),
    "duplicates in coo": duplicated,
    "stored zeros": with_zeros,
    "int64 indices": wide_indices,
    "read-only": read_only,
    "every second row": lambda X: np.repeat(X, 2, axis=0)[::2],
    "big-endian": lambda X: X.astype(">f8"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dropout", ["data-dependent", "standard"])
def test_any_form_of_a_matrix_gives_the_very_same_model(form, dropout):
    X = FORMS[form](DENSE)
    before = X.copy()
    model = classifier(dropout).fit(X, SIDES)
    assert_same(model, classifier(dropout).fit(DENSE, SIDES))
    assert_same(
        classifier(dropout).partial_fit(X, SIDES, classes=[0, 1]), classifier(dropout, max_iter=1).fit(X, SIDES)
    )
    np.testing.assert_array_equal(model.predict(X), model.predict(DENSE))
    if sparse.issparse(X):
        assert (before != X).nnz == 0
        assert X.nnz == before.nnz


def test_float32_gives_the_model_of_the_same_numbers_in_float64():
    single = DENSE.astype(np.float32)
    for X in (single, sparse.csr_array(single), sparse.csc_array(single)):
        model = classifier().fit(X, SIDES)
        double = classifier().fit(single.astype(np.float64), SIDES)
        assert (model.coef_.dtype, double.coef_.dtype) == (np.float32, np.float64)
        np.testing.assert_array_equal(model.coef_, double.coef_.astype(np.float32))
        np.testing.assert_array_equal(model.intercept_, double.intercept_)


def test_coefficients_too_large_for_single_precision_are_told():
    X = np.array([[1e-30], [-1e-30]], np.float32)
    with pytest.raises(ValueError, match="the weights overflowed"):
        classifier(dropout="none", eta0=1e75, max_iter=1).fit(X, [0, 1])


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["no", "yes"])[SIDES],
        np.array(["no", "yes"], object)[SIDES],
        SIDES.astype(bool),
        SIDES.astype(np.uint8),
        SIDES - 7,
        2.0 * SIDES - 1.0,
        2**62 + SIDES,
        SIDES.tolist(),
    ],
    ids=lambda labels: str(getattr(labels, "dtype", "list")),
)
def test_labels_of_any_type(labels):
    model = classifier().fit(DENSE, labels)
    assert_same(model, classifier().fit(DENSE, SIDES))
    np.testing.assert_array_equal(model.classes_, np.unique(labels))
    np.testing.assert_array_equal(
        model.predict(DENSE), model.classes_[(model.decision_function(DENSE) > 0).astype(int)]
    )
    parts = classifier().partial_fit(DENSE, labels, classes=np.unique(labels)[::-1]).partial_fit(DENSE, labels)
    assert_same(parts, classifier(max_iter=2).fit(DENSE, labels), ("coef_", "classes_"))


@pytest.mark.parametrize("dropout", DROPOUTS)
def test_small_and_odd_shapes(dropout):
    assert np.isfinite(classifier(dropout).fit(DENSE[:, :1], SIDES).coef_).all()
    assert classifier(dropout).fit([[1.0], [-1.0]], [1, 0]).score([[1.0], [-1.0]], [1, 0]) == 1.0
    one = classifier(dropout).partial_fit(DENSE[:1], SIDES[:1], classes=[0, 1])
    assert one.t_ == 2
    zeros = classifier(dropout).fit(np.zeros((4, 3)), [0, 1, 1, 1])
    assert (zeros.coef_ == 0).all()
    assert zeros.intercept_ > 0
    nothing_new = classifier(dropout).partial_fit(DENSE, SIDES, classes=[0, 1]).partial_fit(0 * DENSE, SIDES)
    assert np.isfinite(nothing_new.coef_).all()
    assert np.isfinite(classifier(dropout).fit(DENSE * 10.0 ** np.arange(0, -60, -5), SIDES).coef_).all()
    long = sparse.random_array((20, 30_000), density=0.2, rng=np.random.default_rng(0), format="csr")
    assert np.isfinite(classifier(dropout, max_iter=2, eta0=1e-3).fit(long, np.arange(20) % 2).coef_).all()


# What comes out: scikit-learn's model without noise, and a learner with it.


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("labels", [SIDES, CLASSES], ids=["two", "five"])
def test_without_noise_it_is_scikit_learns_sgd(loss, average, labels):
    for learning_rate in ("constant", "invscaling"):
        options = {
            "loss": loss,
            "alpha": 0.01,
            "learning_rate": learning_rate,
            "eta0": 0.05,
            "power_t": 0.3,
            "average": average,
            "shuffle": False,
            "max_iter": 4,
            "tol": None,
            "class_weight": {label: 0.5 + label for label in np.unique(labels)},
        }
        weight = np.linspace(0.5, 2.0, 90)
        model = DropoutSGDClassifier(dropout="none", **options).fit(DENSE, labels, sample_weight=weight)
        peer = SGDClassifier(**options).fit(DENSE, labels, sample_weight=weight)
        np.testing.assert_allclose(model.coef_, peer.coef_, rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(model.intercept_, peer.intercept_, rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(model.decision_function(DENSE), peer.decision_function(DENSE), atol=1e-12)
        np.testing.assert_array_equal(model.predict(DENSE), peer.predict(DENSE))
        assert model.t_ == peer.t_


def topics(number, rng):
    """Texts of 3 topics as word counts: each topic prefers some of 600 words, and many words are common to all."""
    words = rng.dirichlet(np.full(600, 0.1), 3) * 0.5 + rng.dirichlet(np.full(600, 0.5)) * 0.5
    return lambda size, rng: (
        lambda y: (sparse.csr_array(np.array([rng.multinomial(number, words[label]) for label in y]) / number**0.5), y)
    )(rng.integers(0, 3, size))


@pytest.mark.parametrize("dropout", DROPOUTS)
def test_it_learns(dropout):
    rng = np.random.default_rng(5)
    sample = topics(40, rng)
    (X, y), (unseen, truth) = sample(300, rng), sample(600, rng)
    model = DropoutSGDClassifier(dropout=dropout, random_state=0, record_train_error=True).fit(X, y)
    assert model.score(unseen, truth) > 0.9
    assert model.history_["train_error"][-1] < 0.05


@pytest.mark.parametrize("loss", ["log_loss", "modified_huber"])
@pytest.mark.parametrize("labels", [SIDES, CLASSES], ids=["two", "five"])
def test_probabilities(loss, labels):
    model = classifier(loss=loss).fit(DENSE, labels)
    chances = model.predict_proba(DENSE)
    assert chances.shape == (90, len(model.classes_))
    assert (chances >= 0).all()
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, rtol=1e-12)
    scores = model.decision_function(DENSE)
    sides = expit(scores) if loss == "log_loss" else (np.clip(scores, -1, 1) + 1) / 2
    if labels is SIDES:
        np.testing.assert_array_equal(chances[:, 1], sides)
    else:
        some = sides.sum(axis=1) > 0
        np.testing.assert_allclose(chances[some], sides[some] / sides[some].sum(axis=1, keepdims=True))
    with np.errstate(divide="ignore"):
        np.testing.assert_array_equal(model.predict_log_proba(DENSE), np.log(chances))


def test_probabilities_where_every_class_says_no_are_even():
    model = classifier(loss="modified_huber").fit(DENSE, CLASSES)
    model.intercept_ = np.full(5, -1e6)
    np.testing.assert_array_equal(model.predict_proba(DENSE), np.full((90, 5), 0.2))


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_other_losses_have_no_probabilities(loss):
    model = classifier(loss=loss).fit(DENSE, SIDES)
    assert not hasattr(model, "predict_proba")
    assert not hasattr(model, "predict_log_proba")
    with pytest.raises(AttributeError, match="predict_proba") as error:
        model.predict_proba(DENSE)
    assert "use loss='log_loss' or 'modified_huber'" in str(error.value.__cause__)


# Randomness.


@pytest.mark.parametrize("dropout", DROPOUTS)
@pytest.mark.parametrize("average", [False, "tail"])
def test_the_number_of_jobs_changes_nothing(dropout, average):
    models = [classifier(dropout, n_jobs=jobs, alpha=0.01, average=average).fit(DENSE, CLASSES) for jobs in (1, 2, -1)]
    for model in models[1:]:
        assert_same(model, models[0])
        assert model.history_["loss"] == models[0].history_["loss"]


def test_a_seed_repeats_and_none_differs():
    assert_same(classifier().fit(DENSE, SIDES), classifier().fit(DENSE, SIDES))
    seeds = [classifier(random_state=seed).fit(DENSE, SIDES).coef_ for seed in (0, 1, None, None)]
    assert len({coef.tobytes() for coef in seeds}) == 4
    generator = np.random.RandomState(3)
    first, second = (classifier(random_state=generator).fit(DENSE, SIDES).coef_ for _ in range(2))
    assert (first != second).any()
    assert_same(
        classifier(random_state=np.random.RandomState(3)).fit(DENSE, SIDES),
        classifier(random_state=np.random.RandomState(3)).fit(DENSE, SIDES),
    )


def test_nothing_touches_the_global_generator():
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    classifier().fit(DENSE, SIDES)
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


def test_without_shuffling_and_noise_nothing_is_random():
    models = [classifier("none", shuffle=False, random_state=seed).fit(DENSE, SIDES) for seed in (0, 1)]
    assert_same(*models)
    assert (classifier("none", random_state=1).fit(DENSE, SIDES).coef_ != models[0].coef_).any()


def test_fits_in_many_threads_do_not_meet():
    def fit(seed):
        return classifier(random_state=seed, n_jobs=2).fit(DENSE, CLASSES if seed % 2 else SIDES).coef_

    with ThreadPoolExecutor(6) as pool:
        for coef, alone in zip(pool.map(fit, range(18)), map(fit, range(18)), strict=True):
            np.testing.assert_array_equal(coef, alone)


def test_a_fit_in_a_forked_process_is_the_same():
    code = """
import multiprocessing, numpy as np
from evodrop.linear import DropoutSGDClassifier
def fit(_=None):
    X = np.random.default_rng(0).normal(size=(30, 6))
    return DropoutSGDClassifier(random_state=0, n_jobs=2).fit(X, np.arange(30) % 5).coef_
here = fit()
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(all((here == there).all() for there in pool.map(fit, range(4))))
"""
    assert fresh(code).stdout.splitlines() == ["True"]


# Weights.


@pytest.mark.parametrize("dropout", DROPOUTS)
@pytest.mark.parametrize("learning_rate", ["constant", "invscaling"])
def test_an_example_without_weight_is_absent(dropout, learning_rate):
    weight = np.where(np.arange(90) % 4 == 1, 0.0, 1.5)
    options = {"learning_rate": learning_rate, "average": True}
    X = DENSE.copy()
    X[weight == 0, 11] = 7.0  # a feature that no other example has
    model = classifier(dropout, **options).fit(X, SIDES, sample_weight=weight)
    rest = weight > 0
    without = classifier(dropout, **options).fit(X[rest], SIDES[rest], sample_weight=weight[rest])
    assert_same(model, without)
    assert model.history_["train_error"] == without.history_["train_error"]
    assert model.coef_[0, 11] == 0.0


def test_an_example_without_weight_may_be_too_large_to_square():
    X, weight = DENSE.copy(), np.ones(90)
    X[3], weight[3] = 1e200, 0.0
    rest = weight > 0
    assert_same(classifier().fit(X, SIDES, sample_weight=weight), classifier().fit(X[rest], SIDES[rest]))


def test_equal_weights_scale_the_step():
    doubled = classifier(eta0=0.1).fit(DENSE, SIDES, sample_weight=np.full(90, 2.0))
    np.testing.assert_allclose(doubled.coef_, classifier(eta0=0.2).fit(DENSE, SIDES).coef_, rtol=1e-12)
    assert_same(classifier().fit(DENSE, SIDES, sample_weight=np.ones(90)), classifier().fit(DENSE, SIDES))


def test_second_moments_are_weighted():
    weight = np.arange(90) % 3
    model = classifier().fit(DENSE, SIDES, sample_weight=weight)
    repeated = np.repeat(DENSE, weight, axis=0)
    np.testing.assert_allclose(model.probs_, sampling_probabilities(second_moments(repeated)), rtol=1e-12)


@pytest.mark.parametrize("dropout", ["none", "data-dependent", "standard", "water-filling"])
def test_a_weight_of_2_is_an_example_that_comes_twice_on_average(dropout):
    """Examples drawn at random, a small constant step, the last iterate: its mean is near the optimum of the weighted
    loss, whichever way an example is made to count more. Many seeds, and the standard error of their mean."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 3))
    y = (rng.random(60) < expit(X @ [1.0, -1.0, 0.5] + 0.3)).astype(int)
    weight = 1 + y + (np.arange(60) % 3 == 0)
    repeated = np.repeat(np.arange(60), weight)

    def mean_and_error(rows_of, weighted):
        fits = []
        for seed in range(40):
            rows = rows_of(np.random.default_rng((seed, weighted)))
            model = classifier(dropout, loss="log_loss", eta0=0.01, max_iter=1, rate=0.4, random_state=seed)
            model.fit(X[rows], y[rows], sample_weight=weight[rows] if weighted else None)
            fits.append(np.append(model.coef_, model.intercept_))
        return np.mean(fits, axis=0), np.std(fits, axis=0, ddof=1) / np.sqrt(40)

    mean, error = mean_and_error(lambda rng: rng.integers(60, size=4000), True)
    twice, twice_error = mean_and_error(lambda rng: rng.choice(repeated, 4000 * len(repeated) // 60), False)
    once, once_error = mean_and_error(lambda rng: rng.integers(60, size=4000), False)
    assert (np.abs(mean - twice) < 5 * np.hypot(error, twice_error)).all()
    assert (np.abs(mean - once) > 5 * np.hypot(error, once_error)).any()  # weights do matter


@pytest.mark.parametrize("labels", [SIDES, CLASSES], ids=["two", "five"])
def test_class_weights(labels):
    counts = np.bincount(labels)
    balanced = {label: 90 / (len(counts) * count) for label, count in enumerate(counts)}
    by_name = classifier("standard", class_weight="balanced").fit(DENSE, labels)
    assert_same(by_name, classifier("standard", class_weight=balanced).fit(DENSE, labels))
    if labels is SIDES:
        weight = np.array([balanced[label] for label in labels])
        assert_same(by_name, classifier("standard").fit(DENSE, labels, sample_weight=weight))
    same = classifier(class_weight=dict.fromkeys(range(5), 1.0)).fit(DENSE, labels)
    assert_same(same, classifier().fit(DENSE, labels))
    heavy = classifier(class_weight={**dict.fromkeys(range(5), 1.0), 1: 50.0}).fit(DENSE, labels)
    assert (heavy.predict(DENSE) == 1).sum() > (same.predict(DENSE) == 1).sum()


# Steps, epochs and their record.


def test_the_first_step_by_hand():
    """One example, no noise, hinge: w = eta y x and b = eta y."""
    X = np.array([[2.0, -1.0, 0.0]])
    for label, sign in ((0, -1.0), (1, 1.0)):
        model = classifier("none", eta0=0.3).partial_fit(X, [label], classes=[0, 1])
        np.testing.assert_allclose(model.coef_, sign * 0.3 * X)
        np.testing.assert_allclose(model.intercept_, [sign * 0.3])
    model = classifier("none", fit_intercept=False).fit(DENSE, SIDES)
    assert model.intercept_ == 0.0


@pytest.mark.parametrize("labels", [SIDES, CLASSES], ids=["two", "five"])
@pytest.mark.parametrize("average", [False, True])
def test_the_history(labels, average):
    model = classifier(max_iter=7, average=average).fit(DENSE, labels)
    history = model.history_
    assert set(history) == {"loss", "train_error", "validation_score", "seconds"}
    assert [len(values) for values in history.values()] == [7] * 4
    assert history["train_error"][-1] == pytest.approx(1.0 - model.score(DENSE, labels), abs=1e-12)
    assert np.isfinite(history["loss"]).all()
    unasked = classifier(max_iter=7, average=average, record_train_error=False).fit(DENSE, labels)
    assert np.isnan(unasked.history_["train_error"]).all()
    assert_same(unasked, model)
    assert np.isnan(history["validation_score"]).all()
    assert min(history["seconds"]) > 0
    assert model.t_ == 7 * 90 + 1
    assert model.n_iter_ == 7
    clean = classifier("none", max_iter=1, shuffle=False, eta0=1e-12).fit(DENSE, labels)
    assert clean.history_["loss"][0] == pytest.approx(1.0 if labels is SIDES else 5.0)  # hinge at weights of zero


def is_idle(costs, patience, tol):
    return np.mean(costs[-patience:]) > np.mean(costs[-2 * patience : -patience]) - tol


@pytest.mark.parametrize("early_stopping", [False, True])
def test_it_stops_when_the_epochs_bring_nothing_more(early_stopping):
    model = classifier(max_iter=500, tol=1e-3, n_iter_no_change=4, early_stopping=early_stopping).fit(DENSE, SIDES)
    assert 8 <= model.n_iter_ < 500
    costs = -np.array(model.history_["validation_score"]) if early_stopping else np.array(model.history_["loss"])
    assert len(costs) == model.n_iter_
    assert is_idle(costs, 4, 1e-3)
    assert not any(is_idle(costs[:epoch], 4, 1e-3) for epoch in range(8, len(costs)))


def test_it_says_when_it_did_not_converge():
    with pytest.warns(ConvergenceWarning, match="max_iter=3 epochs; increase max_iter or tol"):
        classifier(max_iter=3, tol=1e-3).fit(DENSE, SIDES)
    assert classifier(max_iter=3, tol=None).fit(DENSE, SIDES).n_iter_ == 3


@pytest.mark.parametrize("labels", [SIDES, CLASSES], ids=["two", "five"])
def test_early_stopping_learns_from_the_rest_only(labels):
    options = {"average": True, "alpha": 0.01, "dropout": "uniform"}
    model = classifier(early_stopping=True, validation_fraction=0.3, **options).fit(DENSE, labels)
    training, validation = split_rows(number_labels(labels, model.classes_), np.ones(90), 0.3, model._new_seed())
    assert sorted([*training, *validation]) == list(range(90))
    assert len(validation) == 27
    assert_same(model, classifier(**options).fit(DENSE[training], labels[training]))
    score = model.score(DENSE[validation], labels[validation])
    assert model.history_["validation_score"][-1] == pytest.approx(score)
    model = classifier(early_stopping=True, validation_fraction=0.3).fit(DENSE, labels)
    np.testing.assert_allclose(model.probs_, sampling_probabilities(second_moments(DENSE[training])))


def test_a_class_too_rare_to_be_split_is_split_all_the_same():
    labels = SIDES.copy()
    labels[0] = 2
    for class_weight in (None, {0: 1.0, 1: 2.0, 2: 3.0}):
        for seed in range(5):
            options = {"early_stopping": True, "validation_fraction": 0.5, "random_state": seed}
            assert classifier(class_weight=class_weight, **options).fit(DENSE, labels).coef_.shape == (3, 12)


@pytest.mark.parametrize(("epochs", "first"), [(1, 1), (2, 2), (3, 3), (4, 3), (5, 5), (8, 5), (9, 9), (12, 9)])
def test_the_average_of_the_tail_begins_anew_after_1_2_4_8_epochs(epochs, first):
    """The mean over all steps t is (T mean_T - t mean_t) / (T - t) of those after t."""
    for labels in (SIDES, CLASSES):
        tail = classifier(average="tail", max_iter=epochs, alpha=0.01).fit(DENSE, labels)
        ends = [epochs, first - 1] if first > 1 else [epochs]
        sums = [end * classifier(average=True, max_iter=end, alpha=0.01).fit(DENSE, labels).coef_ for end in ends]
        expected = (sums[0] - sum(sums[1:])) / (epochs - first + 1)
        np.testing.assert_allclose(tail.coef_, expected, rtol=1e-9, atol=1e-11)
    parts = classifier(average="tail", alpha=0.01)
    for _ in range(epochs):
        parts.partial_fit(DENSE, CLASSES, classes=range(5))
    np.testing.assert_allclose(parts.coef_, tail.coef_, rtol=1e-10, atol=1e-12)


def test_every_epoch_has_an_order_of_its_own():
    """Each example has a feature of its own, and a step that shrinks with time shows when it came."""

    def times(shuffle, epochs):
        options = {
            "fit_intercept": False,
            "learning_rate": "invscaling",
            "power_t": 1.0,
            "eta0": 0.1,
            "shuffle": shuffle,
        }
        model = classifier("none", max_iter=epochs, **options).fit(np.eye(20), np.arange(20) % 2)
        return np.abs(model.coef_[0]) / 0.1

    first = 1.0 / times(True, 1)
    second = 1.0 / (times(True, 2) - times(True, 1))
    np.testing.assert_allclose(np.sort(first), np.arange(1, 21))
    np.testing.assert_allclose(np.sort(second), np.arange(21, 41))
    assert (first.argsort() != np.arange(20)).any()
    assert (first.argsort() != second.argsort()).any()
    np.testing.assert_allclose(1.0 / times(False, 1), np.arange(1, 21))


# Going on.


def test_one_part_is_one_epoch():
    for dropout in DROPOUTS:
        part = classifier(dropout).partial_fit(DENSE, CLASSES, classes=range(5))
        assert_same(part, classifier(dropout, max_iter=1).fit(DENSE, CLASSES))
        np.testing.assert_array_equal(part.classes_, range(5))
    again = classifier().partial_fit(DENSE, SIDES, classes=[0, 1]).partial_fit(DENSE, SIDES)
    assert_same(again, classifier(max_iter=2).fit(DENSE, SIDES), ("coef_", "intercept_", "t_"))
    assert len(again.history_["loss"]) == 2
    assert again.n_iter_ == 1


def test_parts_share_their_second_moments():
    weight = RNG.uniform(0.0, 3.0, 90)
    model = classifier()
    for number, part in enumerate(np.array_split(np.arange(90), 7), 1):
        model.partial_fit(DENSE[part], SIDES[part], classes=[0, 1], sample_weight=weight[part])
        so_far = slice(0, part[-1] + 1)
        moments = np.average(DENSE[so_far] ** 2, axis=0, weights=weight[so_far])
        np.testing.assert_allclose(model.probs_, sampling_probabilities(moments), rtol=1e-12)
        assert len(model.history_["loss"]) == number
        assert model.t_ == part[-1] + 2


@pytest.mark.parametrize("dropout", DROPOUTS)
def test_a_new_feature_is_drawn_at_once(dropout):
    first, second = DENSE.copy(), DENSE.copy()
    first[:, 6:] = 0.0
    model = classifier(dropout).partial_fit(first, SIDES, classes=[0, 1])
    assert (model.coef_[0, 6:] == 0).all()
    assert np.isfinite(model.coef_).all()
    model.partial_fit(second, SIDES)
    assert (model.coef_[0, 6:11] != 0).all()
    assert np.isfinite(model.coef_).all()


def test_partial_fit_goes_on_from_fit_and_fit_begins_anew():
    model = classifier(max_iter=3).fit(DENSE, SIDES).partial_fit(DENSE, SIDES)
    assert_same(model, classifier(max_iter=4).fit(DENSE, SIDES), ("coef_", "t_"))
    assert_same(model.fit(DENSE, CLASSES), classifier(max_iter=3).fit(DENSE, CLASSES))
    assert len(model.history_["loss"]) == 3


def test_the_classes_of_the_parts():
    with pytest.raises(ValueError, match=r"classes is None, but the first call"):
        classifier().partial_fit(DENSE, SIDES)
    model = classifier().partial_fit(DENSE[:1], SIDES[:1], classes=[1, 0])
    model.partial_fit(DENSE, SIDES, classes=[0, 1])
    with pytest.raises(ValueError, match=r"classes are \[0, 1, 2\], but the first call"):
        model.partial_fit(DENSE, SIDES, classes=[0, 1, 2])
    with pytest.raises(ValueError, match=r"y holds the class [234], which is not among"):
        model.partial_fit(DENSE, CLASSES)
    with pytest.raises(ValueError, match="not among"):
        model.partial_fit(DENSE, np.array(["no", "yes"])[SIDES])
    for classes in ([0], []):
        with pytest.raises(ValueError, match="class"):
            classifier().partial_fit(DENSE[:1], [0], classes=classes)
    for option, name in (({"early_stopping": True}, "early_stopping=True"), ({"class_weight": "balanced"}, "balanced")):
        with pytest.raises(ValueError, match=f"{name}.*needs all data at once"):
            classifier(**option).partial_fit(DENSE, SIDES, classes=[0, 1])


CHANGES = {
    "dropout": "standard",
    "rate": 0.1,
    "k": 3,
    "match": "noise",
    "loss": "log_loss",
    "alpha": 0.5,
    "learning_rate": "invscaling",
    "eta0": 0.7,
    "power_t": 0.9,
    "average": "tail",
    "max_iter": 9,
    "tol": 0.1,
    "n_iter_no_change": 2,
    "validation_fraction": 0.4,
    "fit_intercept": False,
    "shuffle": False,
    "class_weight": {0: 2.0, 1: 1.0},
    "warm_start": True,
    "random_state": 9,
    "n_jobs": 2,
    "verbose": 0,
}
UNREAD = {
    "max_iter",
    "tol",
    "n_iter_no_change",
    "validation_fraction",
    "warm_start",
    "random_state",
    "n_jobs",
    "verbose",
}


def first_part(**options):
    return classifier(average=True, **options).partial_fit(DENSE, SIDES, classes=[0, 1])


@pytest.mark.parametrize("name", CHANGES)
def test_a_parameter_may_change_between_the_parts(name):
    model = first_part().set_params(**{name: CHANGES[name]}).partial_fit(DENSE, SIDES)
    assert np.isfinite(model.coef_).all()
    unchanged = first_part().partial_fit(DENSE, SIDES)
    of_no_effect = UNREAD | {"power_t"}  # the last, while the step is constant
    assert (model.coef_ == unchanged.coef_).all() == (name in of_no_effect)


def test_averaging_is_not_switched_on_or_off():
    for average in (False, True):
        model = classifier(average=average).partial_fit(DENSE, SIDES, classes=[0, 1])
        with pytest.raises(ValueError, match="cannot be switched on or off after the first call"):
            model.set_params(average=not average).partial_fit(DENSE, SIDES)


DRAWS = (0, -4, 2**40)
BAD_PARAMETERS = [
    *(("dropout", value) for value in ("gaussian", None, 1, ["none"])),
    *(("rate", value) for value in (1.0, 1.5, -0.1, math.nan, math.inf, "half", None)),
    *(("k", value) for value in (*DRAWS, 2.5, math.nan, "many")),
    *(("match", value) for value in ("bytes", None)),
    *(("loss", value) for value in ("squared_error", None, 2)),
    *(("alpha", value) for value in (-1.0, math.nan, math.inf, "l2", None)),
    *(("learning_rate", value) for value in ("optimal", "bound", None)),
    *(("eta0", value) for value in (0.0, -1.0, math.nan, math.inf, "small", None)),
    *(("power_t", value) for value in (-1.0, math.nan, math.inf, None)),
    *(("average", value) for value in (-3, 100, 2.5, math.nan, "all", None)),
    *(("max_iter", value) for value in (0, -1, 2.5, None)),
    *(("tol", value) for value in (-1.0, math.nan, "low")),
    *(("n_iter_no_change", value) for value in (0, 1.5, None)),
    *(("early_stopping", value) for value in (2, "yes", None)),
    *(("validation_fraction", value) for value in (0.0, 1.0, -0.5, math.nan, None)),
    *(("fit_intercept", value) for value in (2, "yes", None)),
    *(("shuffle", value) for value in (2, None)),
    *(("class_weight", value) for value in ("even", [1.0, 2.0], {7: 1.0}, {0: -1.0}, {0: math.nan}, {0: "heavy"})),
    *(("warm_start", value) for value in (2, None)),
    *(("random_state", value) for value in (-1, "now", 2.5)),
    *(("n_jobs", value) for value in (0, 1.5)),
    *(("verbose", value) for value in (-1, "much")),
]


@pytest.mark.parametrize(("name", "value"), BAD_PARAMETERS)
def test_a_bad_parameter_is_refused_by_fit(name, value):
    with pytest.raises(ValueError, match=r".+"):
        classifier(**{name: value}).fit(DENSE, SIDES)


@pytest.mark.parametrize(
    ("name", "value"),
    [bad for bad in BAD_PARAMETERS if bad[0] not in UNREAD and not (bad[0] == "k" and bad[1] in DRAWS)],
)
def test_a_bad_parameter_is_refused_between_the_parts_and_changes_nothing(name, value):
    model = first_part()
    good = model.get_params()[name]
    with pytest.raises(ValueError, match=r".+"):
        model.set_params(**{name: value}).partial_fit(DENSE, SIDES)
    model.set_params(**{name: good}).partial_fit(DENSE, SIDES)
    assert_same(model, first_part().partial_fit(DENSE, SIDES))


def test_a_bad_number_of_draws_is_refused_between_the_parts():
    """In a process of its own: a kernel that took one might never come back."""
    code = f"""
from evodrop.linear import DropoutSGDClassifier
X, y = [[1.0, 2.0], [2.0, 0.0]], [0, 1]
for k in {DRAWS}:
    try:
        DropoutSGDClassifier().partial_fit(X, y, classes=[0, 1]).set_params(k=k).partial_fit(X, y)
    except ValueError:
        print("refused")
"""
    assert fresh(code).stdout.splitlines() == ["refused"] * len(DRAWS)


@pytest.mark.parametrize("options", [{"k": 3, "match": "noise"}, {"k": 3, "dropout": "none"}])
def test_options_that_do_not_go_together_are_refused_and_change_nothing(options):
    with pytest.raises(ValueError, match="k is 3"):
        classifier(**options).fit(DENSE, SIDES)
    model = first_part()
    good = {name: model.get_params()[name] for name in options}
    with pytest.raises(ValueError, match="k is 3"):
        model.set_params(**options).partial_fit(DENSE, SIDES)
    assert_same(model.set_params(**good).partial_fit(DENSE, SIDES), first_part().partial_fit(DENSE, SIDES))


def test_a_part_that_is_refused_changes_nothing():
    model = first_part()
    for X, y in ((DENSE * 1e200, SIDES), (DENSE[:, :4], SIDES), (DENSE, SIDES + 5), (np.full((90, 12), np.nan), SIDES)):
        with pytest.raises(ValueError, match=r".+"):
            model.partial_fit(X, y)
    assert_same(model.partial_fit(DENSE, SIDES), first_part().partial_fit(DENSE, SIDES))


def test_parts_whose_squares_overflow_together_are_refused():
    """Each is finite by itself; infinite moments would make rates that no draw ever accepts."""
    model = classifier()
    part = [[1.2e154, 1.0], [0.0, 1.0]], [0, 1]
    model.partial_fit(*part, classes=[0, 1])
    with pytest.raises(ValueError, match="squares overflow"):
        model.partial_fit(*part)


def test_after_an_overflow_the_parts_go_on_from_where_all_was_well_or_not_at_all():
    model = first_part()
    with pytest.raises(ValueError, match="overflow"):
        model.set_params(eta0=1e300).partial_fit(DENSE * 1e20, SIDES)
    try:
        model.set_params(eta0=0.1).partial_fit(DENSE, SIDES)
    except ValueError:
        return
    assert_same(model, first_part().partial_fit(DENSE, SIDES))


def test_warm_start_begins_with_the_last_coefficients():
    model = classifier(warm_start=True).fit(DENSE, CLASSES)
    before = clone(model).set_params(warm_start=False).fit(DENSE, CLASSES)
    model.set_params(eta0=1e-300).fit(DENSE, CLASSES)  # a step of nothing
    np.testing.assert_allclose(model.coef_, before.coef_, rtol=1e-12)
    np.testing.assert_allclose(model.intercept_, before.intercept_, rtol=1e-12)
    assert model.t_ == 4 * 90 + 1
    model.set_params(eta0=0.1).fit(DENSE, CLASSES)
    assert (model.coef_ != before.coef_).any()
    assert_same(classifier(warm_start=False).fit(DENSE, CLASSES), before)


def test_warm_start_refuses_other_data_and_keeps_its_model():
    model = classifier(warm_start=True).fit(DENSE, SIDES)
    before = model.predict(DENSE)
    for labels in (CLASSES, np.array(["no", "yes"])[SIDES]):
        with pytest.raises(ValueError, match="set warm_start=False"):
            model.fit(DENSE, labels)
        np.testing.assert_array_equal(model.predict(DENSE), before)
    with pytest.raises(ValueError, match="features"):
        model.fit(DENSE[:, :5], SIDES)


# scikit-learn.


@pytest.mark.parametrize("average", [False, True])
def test_a_pickle_predicts_and_goes_on(average):
    model = classifier(average=average).fit(DENSE, CLASSES)
    copy = pickle.loads(pickle.dumps(model))
    assert_same(copy, model)
    np.testing.assert_array_equal(copy.predict(DENSE), model.predict(DENSE))
    assert_same(copy.partial_fit(DENSE, CLASSES), model.partial_fit(DENSE, CLASSES))


def test_a_pickle_after_a_fit_holds_what_prediction_needs():
    d = 20_000
    X = sparse.random_array((60, d), density=1e-3, rng=np.random.default_rng(0), format="csr")
    model = classifier(average=True).fit(X, SIDES[:60])
    assert len(pickle.dumps(model)) < 2 * 8 * d + 10_000  # coef_ and probs_
    begun = classifier(average=True).partial_fit(X, SIDES[:60], classes=[0, 1])
    copy = pickle.loads(pickle.dumps(begun))
    assert_same(copy.partial_fit(X, SIDES[:60]), begun.partial_fit(X, SIDES[:60]))


@pytest.mark.parametrize("labels", [SIDES, CLASSES], ids=["two", "five"])
def test_a_fit_begins_with_the_coefficients_it_is_given(labels):
    first = classifier(max_iter=2).fit(DENSE, labels)
    start = {"coef_init": first.coef_, "intercept_init": first.intercept_}
    again = classifier(max_iter=3, learning_rate="constant").fit(DENSE, labels, **start)
    warm = clone(first).set_params(warm_start=True, max_iter=2).fit(DENSE, labels)
    warm.set_params(max_iter=3, learning_rate="constant").fit(DENSE, labels)
    assert_same(again, warm)
    options = {"alpha": 0.01, "learning_rate": "constant", "eta0": 0.05, "shuffle": False, "max_iter": 2, "tol": None}
    model = DropoutSGDClassifier(dropout="none", loss="hinge", **options).fit(DENSE, labels, **start)
    peer = SGDClassifier(loss="hinge", **options).fit(DENSE, labels, **start)
    np.testing.assert_allclose(model.coef_, peer.coef_, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ({"coef_init": np.zeros(11)}, r"coef_init has the shape \(11,\), but for these data it takes \(1, 12\)"),
        ({"coef_init": np.full(12, np.nan)}, "coef_init holds values that are not finite"),
        ({"intercept_init": [1.0, 2.0]}, r"intercept_init has the shape \(2,\), but for these data it takes \(1,\)"),
    ],
)
def test_a_bad_start_is_refused(start, message):
    with pytest.raises(ValueError, match=message):
        classifier().fit(DENSE, SIDES, **start)


def test_an_adaptive_step_size_falls_by_fifths_when_nothing_more_is_gained():
    """Without noise: the loss falls further than that of a constant step, which hops about."""
    options = {
        "dropout": "none",
        "loss": "log_loss",
        "eta0": 20.0,
        "tol": 1e-4,
        "max_iter": 1000,
        "n_iter_no_change": 3,
    }
    still = classifier(**options, learning_rate="constant").fit(DENSE, SIDES)
    model = classifier(**options, learning_rate="adaptive").fit(DENSE, SIDES)
    assert model.n_iter_ > still.n_iter_ + 10 * 3  # 20 / 5^11 is the first step below 1e-6
    assert model.history_["loss"][-1] < 0.9 * still.history_["loss"][-1]
    np.testing.assert_array_equal(
        classifier(**{**options, "tol": None, "max_iter": 5}, learning_rate="adaptive").fit(DENSE, SIDES).coef_,
        classifier(**{**options, "tol": None, "max_iter": 5}, learning_rate="constant").fit(DENSE, SIDES).coef_,
    )


@pytest.mark.parametrize("labels", [SIDES, CLASSES], ids=["two", "five"])
def test_a_model_loaded_by_memory_map_goes_on(labels, tmp_path):
    model = classifier(average=True).partial_fit(DENSE, labels, classes=np.unique(labels))
    joblib.dump(model, tmp_path / "model")
    loaded = joblib.load(tmp_path / "model", mmap_mode="r")
    assert_same(loaded.partial_fit(DENSE, labels), model.partial_fit(DENSE, labels))


def test_a_clone_is_not_fitted():
    model = clone(classifier(k=4, loss="log_loss", class_weight={0: 2.0, 1: 1.0}).fit(DENSE, SIDES))
    assert model.get_params()["k"] == 4
    with pytest.raises(NotFittedError):
        model.predict(DENSE)


def test_a_search_over_a_pipeline_of_texts():
    words = {"sport": ["ball", "team", "goal", "match", "win"], "art": ["paint", "canvas", "colour", "brush", "museum"]}
    rng = np.random.default_rng(0)
    labels = np.array(["sport", "art"])[rng.integers(0, 2, 60)]
    texts = [" ".join(rng.choice(words[label] + ["the", "a", "of"], 12)) for label in labels]
    pipeline = make_pipeline(TfidfVectorizer(), classifier(max_iter=10))
    grid = {"dropoutsgdclassifier__rate": [0.2, 0.5], "dropoutsgdclassifier__dropout": ["standard", "data-dependent"]}
    search = GridSearchCV(pipeline, grid, cv=3, error_score="raise").fit(texts, labels)
    assert search.best_score_ > 0.95
    assert list(search.predict(["ball goal", "brush and canvas"])) == ["sport", "art"]


class Recorder:
    """A callback that writes down its calls, and may ask to stop."""

    def __init__(self, stop_at=None):
        self.stop_at, self.events, self.scores, self.given = stop_at, [], [], None

    def setup(self, **_):
        self.events.append("setup")

    def teardown(self, **_):
        self.events.append("teardown")

    def on_fit_task_begin(self, _, context):
        self.events.append(f"{context.task_name} {context.task_id} begins")

    def on_fit_task_end(self, _, context, *, X=None, y=None, metadata=None, fitted_estimator=None):
        self.events.append(f"{context.task_name} {context.task_id} ends")
        self.scores.append(fitted_estimator.score(X, y))
        self.given = (X, y, metadata)
        return context.task_id + 1 == self.stop_at


def test_a_callback_sees_every_epoch():
    pytest.importorskip("sklearn.callback")
    recorder, weight = Recorder(), np.linspace(1.0, 2.0, 90)
    model = classifier(max_iter=3).set_callbacks(recorder).fit(DENSE, SIDES, sample_weight=weight)
    epochs = [f"epoch {epoch} {what}" for epoch in range(3) for what in ("begins", "ends")]
    assert recorder.events == ["setup", "fit 0 begins", *epochs, "fit 0 ends", "teardown"]
    np.testing.assert_allclose(1.0 - np.array(recorder.scores[:3]), model.history_["train_error"], atol=1e-12)
    assert recorder.scores[3] == recorder.scores[2]
    np.testing.assert_array_equal(recorder.given[2]["sample_weight"], weight)
    assert_same(model, classifier(max_iter=3).fit(DENSE, SIDES, sample_weight=weight))
    model.partial_fit(DENSE, SIDES)
    assert recorder.events[-6:-1] == ["setup", "fit 0 begins", "epoch 0 begins", "epoch 0 ends", "fit 0 ends"]


def test_a_callback_may_stop_a_fit():
    pytest.importorskip("sklearn.callback")
    model = classifier(max_iter=50, tol=1e-9).set_callbacks(Recorder(stop_at=4)).fit(DENSE, SIDES)
    assert model.n_iter_ == 4
    assert_same(model, classifier(max_iter=4).fit(DENSE, SIDES))


def test_callbacks_are_torn_down_when_a_fit_fails():
    pytest.importorskip("sklearn.callback")
    recorder = Recorder()
    with pytest.raises(ValueError, match="overflow"):
        classifier(eta0=1e300).set_callbacks(recorder).fit(DENSE * 1e10, SIDES)
    assert (recorder.events[0], recorder.events[-1]) == ("setup", "teardown")


def test_the_progress_bar_of_scikit_learn(capsys):
    callback = pytest.importorskip("sklearn.callback")
    classifier().set_callbacks(callback.ProgressBar()).fit(DENSE, SIDES)
    assert "DropoutSGDClassifier - fit" in capsys.readouterr().out


def test_a_progress_bar_is_drawn_if_asked_for(capsys):
    shown = classifier(max_iter=3, verbose=1).fit(DENSE, SIDES)
    out, err = capsys.readouterr()
    assert "epochs" in out + err
    assert "3/3" in out + err
    assert f"error {shown.history_['train_error'][-1]:.2%}" in out + err
    assert_same(shown, classifier(max_iter=3, verbose=0).fit(DENSE, SIDES))
    assert capsys.readouterr() == ("", "")


def test_the_memory_of_a_fit_is_that_of_features_and_non_zeros():
    d = 10**6
    X = sparse.random_array((60, d), density=1e-4, rng=np.random.default_rng(0), format="csr")
    y = np.arange(60) % 2
    model = classifier(average=True, max_iter=2).fit(X, y)  # compiled
    tracemalloc.start()
    try:
        model.fit(X, y)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 14 * 8 * (d + X.nnz)  # of which coefficients, iterates and averages are 3


# What must not go in.


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (DENSE, np.zeros(90), "one class"),
        (np.where(DENSE > 1, np.nan, DENSE), SIDES, "NaN"),
        (np.where(DENSE > 1, np.inf, DENSE), SIDES, "infinity"),
        (sparse.csr_array(np.where(DENSE > 1, np.nan, DENSE)), SIDES, "NaN"),
        (np.empty((0, 12)), [], "0 sample"),
        (np.empty((90, 0)), SIDES, "0 feature"),
        (sparse.csr_array((0, 12)), [], "0 sample"),
        (DENSE[:, 0], SIDES, "2D array"),
        (DENSE + 1j, SIDES, "Complex"),
        (DENSE, SIDES[:-1], "inconsistent numbers of samples"),
        (DENSE, DENSE[:, 0] + 0.1, "continuous"),
        (DENSE, np.eye(90)[:, :3], "1d array"),
        (DENSE, np.where(SIDES, np.nan, 1.0), "NaN"),
        (DENSE, None, "requires y"),
        (DENSE * 1e200, SIDES, "squares overflow"),
        (DENSE * np.where(np.arange(12) == 3, 1e160, 1.0), SIDES, "squares overflow"),
        (sparse.coo_array(([1.5e308, 1.5e308], ([0, 0], [0, 0])), shape=(90, 12)), SIDES, "infinity"),
    ],
)
def test_data_that_are_refused(X, y, message):
    with pytest.raises(ValueError, match=message):
        classifier().fit(X, y)
    if y is not None and "class" not in message:
        with pytest.raises(ValueError, match=message):
            classifier().partial_fit(X, y, classes=[0, 1])


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.full(90, -1.0), "Negative values"),
        (np.zeros(90), "weight"),
        (np.full(90, np.nan), "NaN"),
        (np.full(90, np.inf), "infinity"),
        (np.ones(89), "sample_weight.shape"),
        (np.ones((90, 2)), "1D"),
    ],
)
def test_weights_that_are_refused(weight, message):
    with pytest.raises(ValueError, match=message):
        classifier().fit(DENSE, SIDES, sample_weight=weight)


def test_another_number_of_features_is_refused():
    model = classifier(loss="log_loss").fit(DENSE, SIDES)
    for X in (DENSE[:, :5], sparse.csr_array((3, 13))):
        for method in (model.predict, model.decision_function, model.predict_proba):
            with pytest.raises(ValueError, match="features, but DropoutSGDClassifier is expecting 12 features"):
                method(X)
    with pytest.raises(ValueError, match="NaN"):
        model.predict(np.full((1, 12), np.nan))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("average", [False, True])
def test_weights_that_overflow_are_told_even_at_the_last_step(loss, average):
    options = {"loss": loss, "average": average, "shuffle": False}
    with pytest.raises(ValueError, match=r"overflow.*choose eta0 smaller"):
        classifier("none", eta0=1e300, max_iter=20, **options).fit(DENSE * 1e20, SIDES)
    for X in ([[0.0], [5.0]], [[10.0], [-10.0]]):  # in the second, every later margin is infinitely right
        with pytest.raises(ValueError, match="overflow"):
            classifier("none", eta0=1e308, max_iter=1, fit_intercept=False, **options).fit(X, [1, 0])


def fresh(code, timeout=90):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=timeout, check=False)


BROKEN = """
import numpy as np
from scipy import sparse
from evodrop.linear import DropoutSGDClassifier

dense, y = np.random.default_rng(0).normal(size=(20, 6)), np.arange(20) % 2
good = DropoutSGDClassifier(max_iter=1, tol=None).fit(dense, y)
for form, change in {cases}:
    X = getattr(sparse, form)(dense)
    exec(change)
    for method in (lambda: DropoutSGDClassifier(max_iter=1, tol=None).fit(X, y), lambda: good.predict(X)):
        try:
            method()
        except ValueError:
            print("refused")
        else:
            print("accepted", form, change)
"""
COMPRESSED = [
    *(
        (form, change)
        for form in ("csr_array", "csc_array", "csr_matrix")
        for change in (
            "X.indices[0] = 10**8",
            "X.indices[5] = 20",
            "X.indices[0] = -1",
            "X.indptr[2] = 10**8",
            "X.indptr[-1] = 10**8",
            "X.indptr[0] = -5",
            "X.indptr[3] = 0",
            "X.indptr = X.indptr[:-1]",
            "X.indices = X.indices[:-1]",
            "X.data = X.data[:-1]",
        )
    ),
    ("csr_array", "X.indices = X.indices.astype(np.int64); X.indices[0] = 2**40"),
]
OTHERS = [
    ("coo_array", "X.coords[1][0] = 10**8"),
    ("coo_array", "X.coords[1][0] = -9"),
    ("coo_array", "X.coords[0][0] = 10**8"),
    ("coo_matrix", "X.col[0] = 10**8"),
    ("coo_matrix", "X.row[0] = -10**8"),
    ("lil_array", "X.rows[0] = [10**8] * 6"),
    ("bsr_array", "X.indices[0] = 10**8"),
]


@pytest.mark.parametrize("cases", [COMPRESSED, OTHERS], ids=["compressed", "others"])
def test_a_broken_matrix_is_refused_and_crashes_nothing(cases):
    run = fresh(BROKEN.format(cases=cases))
    assert (run.returncode, set(run.stdout.splitlines())) == (0, {"refused"}), run.stdout + run.stderr
    assert len(run.stdout.splitlines()) == 2 * len(cases)


def test_the_largest_number_of_draws():
    """One feature gets nearly all draws, so that its count is as large as the number of draws."""
    code = """
from evodrop.linear import DropoutSGDClassifier
from evodrop.noise import MOST_DRAWS
for X in ([[1.0], [2.0], [-1.0]], [[1.0, 1e-9], [2.0, 1e-9], [-1.0, 1e-9]]):
    options = {"k": MOST_DRAWS, "max_iter": 5, "tol": None, "shuffle": False, "random_state": 0}
    options |= {"learning_rate": "invscaling", "eta0": 1.0, "average": "tail"}
    noisy = DropoutSGDClassifier(dropout="data-dependent", **options).fit(X, [1, 1, 0])
    clean = DropoutSGDClassifier(dropout="none", **{**options, "k": None}).fit(X, [1, 1, 0])
    print(abs(noisy.coef_ - clean.coef_).max() < 1e-3)
"""
    assert fresh(code, timeout=60).stdout.splitlines() == ["True", "True"]


def test_weights_too_large_to_square_do_not_keep_the_draws_busy_for_ever():
    """Probabilities that follow such weights would be nan without a check, and no draw would ever be accepted."""
    code = """
from evodrop.linear import DropoutSGDClassifier
X, y = [[1.0, 2.0], [2.0, 0.0], [0.0, -1.0]], [0, 1, 2]
for eta0 in (1e150, 1e160, 1e307):
    options = {"learning_rate": "constant", "max_iter": 5, "tol": None, "random_state": 0}
    try:
        DropoutSGDClassifier(dropout="weight-aware", eta0=eta0, **options).fit(X, y)
    except ValueError:
        pass
    print("back")
"""
    assert fresh(code, timeout=60).stdout.splitlines() == ["back"] * 3


# A weight of 2 is not the same draw of noise, nor the same step, as an example that comes twice. These two checks ask
# for equal models; scikit-learn excuses its own SGDClassifier. A test above compares means over many seeds.
EXCUSED = {
    "check_sample_weight_equivalence_on_dense_data": "SGD is random in the order of the examples",
    "check_sample_weight_equivalence_on_sparse_data": "SGD is random in the order of the examples",
}


@parametrize_with_checks(
    [DropoutSGDClassifier()],
    expected_failed_checks=lambda estimator: EXCUSED if isinstance(estimator, DropoutSGDClassifier) else {},
)
def test_estimator_checks(estimator, check):
    check(estimator)


def test_a_falling_step_size_takes_all_epochs():
    """A tol of 10 stops any other schedule after twice ``n_iter_no_change`` epochs."""
    options = {"tol": 10.0, "max_iter": 15, "random_state": 0}
    epochs = {
        name: DropoutSGDClassifier(learning_rate=name, **options).fit(DENSE, SIDES).n_iter_
        for name in ("linear", "adagrad", "constant")
    }
    assert epochs == {"linear": 15, "adagrad": 15, "constant": 10}
    stopped = DropoutSGDClassifier(early_stopping=True, n_iter_no_change=2, max_iter=500, random_state=0).fit(
        DENSE, SIDES
    )
    assert stopped.n_iter_ < 500


def test_the_step_size_falls_on_a_line_to_zero_in_the_last_epoch():
    """From weights of zero, a hinge loss of slope 1 far from its corner moves the intercept by eta_t each step."""
    empty, labels = sparse.csr_array((8, 3)), np.array([0, 1] * 4)
    model = DropoutSGDClassifier(dropout="none", eta0=0.01, max_iter=2, shuffle=False).fit(empty, labels)
    steps = 0.01 * (1 - np.arange(16) / 16)
    assert model.intercept_[0] == pytest.approx(steps[1::2].sum() - steps[::2].sum(), rel=1e-12)


def test_parts_have_no_last_epoch_so_their_steps_do_not_fall():
    linear, constant = (
        DropoutSGDClassifier(learning_rate=name, random_state=0).partial_fit(DENSE, SIDES, classes=[0, 1])
        for name in ("linear", "constant")
    )
    np.testing.assert_array_equal(linear.coef_, constant.coef_)
    with pytest.raises(ValueError, match="adagrad is chosen or not in the first call"):
        linear.set_params(learning_rate="adagrad").partial_fit(DENSE, SIDES)


# Weights of examples and of classes.


@pytest.mark.parametrize("weights", [{0: 0.6, 1: 0.3}, {0: 0.0, 1: 2.0}, "balanced"], ids=["both", "one", "balanced"])
@pytest.mark.parametrize("dropout", DROPOUTS)
def test_weights_of_examples_and_of_classes_multiply(dropout, weights):
    """Both enter the second moments too, which the noise follows."""
    own = np.random.default_rng(0).random(90)
    by_class = len(SIDES) / (2 * np.bincount(SIDES)) if weights == "balanced" else np.array([weights[0], weights[1]])
    both = classifier(dropout, class_weight=weights).fit(DENSE, SIDES, sample_weight=own)
    assert_same(both, classifier(dropout).fit(DENSE, SIDES, sample_weight=own * by_class[SIDES]))


@pytest.mark.parametrize("dropout", ["uniform", "data-dependent", "water-filling"])
def test_weights_of_several_classes_enter_the_second_moments(dropout):
    weights = np.array([0.5, 3.0, 1.0, 0.0, 2.0])
    model = classifier(dropout, class_weight=dict(enumerate(weights)), match="noise").fit(DENSE, CLASSES)
    same = classifier(dropout, match="noise").fit(DENSE, CLASSES, sample_weight=weights[CLASSES])
    np.testing.assert_array_equal(model.probs_, same.probs_)
    assert model.k_ == same.k_


def test_class_weights_that_leave_nothing_are_refused():
    with pytest.raises(ValueError, match="leaves no example any weight"):
        classifier(class_weight={0: 0.0, 1: 0.0}).fit(DENSE, SIDES)


@pytest.mark.parametrize("labels", [SIDES, CLASSES], ids=["two", "five"])
@pytest.mark.parametrize("make", [DropoutSGDClassifier, DropoutLogisticRegression, AdaptiveRateLogisticRegression])
def test_weights_on_one_class_only_give_a_model_of_that_class(make, labels):
    """As SGDClassifier and LogisticRegression do: y decides which classes there are."""
    weight = (labels == 1) * 1.0
    for model in (make(), LogisticRegression()):
        model.fit(DENSE, labels, sample_weight=weight)
        assert model.classes_.tolist() == np.unique(labels).tolist()
        assert (model.predict(DENSE[labels == 1]) == 1).all()
    with pytest.raises(ValueError, match="class 0 has no example with weight, so class_weight='balanced' has none"):
        make(class_weight="balanced").fit(DENSE, labels, sample_weight=weight)
