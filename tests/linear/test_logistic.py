from __future__ import annotations

import pickle
from time import sleep

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from evodrop.definitions import n_draws, sampling_probabilities, second_moments
from evodrop.linear import DropoutLogisticRegression
from evodrop.noise import MATCHES

try:
    import sklearn.callback
except ImportError:  # before 1.9
    sklearn = None

NOISES = {
    "multinomial": {"dropout": "data-dependent", "approximation": "quadratic"},
    "bernoulli": {"dropout": "standard", "approximation": "quadratic"},
    "gaussian": {"dropout": "standard"},
    "filled": {"dropout": "water-filling", "approximation": "quadratic"},
    "even": {"dropout": "uniform"},
    "own": {"dropout": "per-entry"},
}
X, Y = make_classification(
    120, 8, n_informative=6, n_redundant=0, flip_y=0.2, random_state=0
)  # one minimum without alpha
needs_callbacks = pytest.mark.skipif(sklearn is None, reason="scikit-learn has callbacks since 1.9")
X3, Y3 = make_classification(n_samples=150, n_features=8, n_informative=5, n_classes=3, flip_y=0.1, random_state=0)


@parametrize_with_checks(
    [
        DropoutLogisticRegression(),
        DropoutLogisticRegression(match="noise", alpha=0.01),
        DropoutLogisticRegression(dropout="standard", class_weight="balanced"),
        DropoutLogisticRegression(dropout="per-entry", rate=0.8),
        DropoutLogisticRegression(dropout="water-filling"),
    ]
)
def test_scikit_learn_has_nothing_to_object(estimator, check):
    check(estimator)


@pytest.mark.parametrize("noise", NOISES)
def test_dense_and_sparse_give_the_same_model(noise):
    cut = np.where(abs(X) > 0.5, X, 0.0)
    models = [DropoutLogisticRegression(**NOISES[noise]).fit(form(cut), Y) for form in (np.array, sparse.csc_matrix)]
    np.testing.assert_array_equal(*[model.coef_ for model in models])
    np.testing.assert_array_equal(*[model.intercept_ for model in models])
    scores = [models[0].decision_function(form(cut)) for form in (np.array, sparse.coo_array)]
    np.testing.assert_allclose(*scores, atol=1e-14)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("alpha", [0.0, 0.05])
@pytest.mark.parametrize("quiet", [{"k": 2**30}, {"rate": 0.0}])
def test_without_noise_it_is_plain_logistic_regression(quiet, alpha, fit_intercept):
    plain = LogisticRegression(C=1 / (alpha * len(X)) if alpha else np.inf, tol=1e-9, fit_intercept=fit_intercept)
    plain.fit(X, Y)
    kinds = [quiet, *({**NOISES[name], "rate": rate} for name in ("bernoulli", "gaussian") for rate in (0.0, 1e-12))]
    for kind in kinds:
        model = DropoutLogisticRegression(**kind, alpha=alpha, tol=1e-9, fit_intercept=fit_intercept).fit(X, Y)
        np.testing.assert_allclose(model.coef_, plain.coef_, atol=1e-6)
        np.testing.assert_allclose(model.intercept_, plain.intercept_, atol=1e-6)
        np.testing.assert_allclose(model.predict_proba(X), plain.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("noise", NOISES)
def test_noise_shrinks_the_weights(noise):
    norms = [
        np.linalg.norm(DropoutLogisticRegression(**NOISES[noise], rate=rate).fit(X, Y).coef_) for rate in (0.1, 0.8)
    ]
    assert norms[1] < 0.8 * norms[0]


@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 2.0, 1: 0.5, 2: 1.0}])
@pytest.mark.parametrize("noise", NOISES)
def test_a_weight_of_two_is_an_example_twice(noise, class_weight):
    weight = np.random.default_rng(0).integers(0, 4, size=len(Y3))
    model = DropoutLogisticRegression(**NOISES[noise], alpha=1e-3, tol=1e-9, class_weight=class_weight)
    weighted = clone(model).fit(X3, Y3, sample_weight=weight)
    repeated = clone(model).fit(np.repeat(X3, weight, axis=0), np.repeat(Y3, weight))
    np.testing.assert_allclose(np.float64(weighted.probs_), np.float64(repeated.probs_), rtol=1e-12)  # None is nan
    np.testing.assert_allclose(np.float64(weighted.k_), np.float64(repeated.k_), rtol=1e-12)
    np.testing.assert_allclose(weighted.objective_, repeated.objective_, rtol=1e-12)
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-6)


def test_class_weights_are_sample_weights():
    model = DropoutLogisticRegression(alpha=1e-3, tol=1e-9)
    by_class = clone(model).set_params(class_weight={0: 3.0, 1: 1.0}).fit(X, Y)
    by_example = clone(model).fit(X, Y, sample_weight=np.where(Y == 0, 3.0, 1.0))
    np.testing.assert_allclose(by_class.coef_, by_example.coef_, rtol=1e-12)


def test_probs_and_k_follow_the_data():
    probs = sampling_probabilities(second_moments(X))
    model = DropoutLogisticRegression(rate=0.3).fit(X, Y)
    np.testing.assert_allclose(model.probs_, probs, rtol=1e-12)
    assert model.k_ == n_draws(8, 0.3)
    assert DropoutLogisticRegression(k=5).fit(X, Y).k_ == 5
    draws = {match: DropoutLogisticRegression(match=match).fit(X, Y).k_ for match in MATCHES}
    assert draws["draws"] == 4
    assert draws["distinct"] > 4
    assert draws["noise"] == round((np.sqrt(second_moments(X)).sum() ** 2 / second_moments(X).sum()) - 1)
    standard = DropoutLogisticRegression(dropout="standard", rate=0.3).fit(X, Y)
    assert standard.k_ is None
    np.testing.assert_array_equal(standard.probs_, np.full(8, 0.7))


@pytest.mark.parametrize("noise", NOISES)
def test_zeros_everywhere_leave_the_intercept_to_learn(noise):
    model = DropoutLogisticRegression(**NOISES[noise], tol=1e-9).fit(np.zeros((4, 3)), ["a", "b", "b", "b"])
    assert not model.coef_.any()
    np.testing.assert_allclose(model.predict_proba(np.ones((1, 3))), [[0.25, 0.75]], atol=1e-6)


def test_squares_of_single_precision_do_not_overflow():
    model = DropoutLogisticRegression(tol=1e31).fit(np.array([[1e30, 0], [0, 1e30]], np.float32), [0, 1])
    np.testing.assert_array_equal(model.probs_, [0.5, 0.5])


def test_several_classes_are_each_against_the_rest():
    model = DropoutLogisticRegression(alpha=0.01, tol=1e-8).fit(X3, Y3)
    for label in range(3):
        alone = DropoutLogisticRegression(alpha=0.01, tol=1e-8).fit(X3, label == Y3)
        np.testing.assert_array_equal(alone.coef_[0], model.coef_[label])
        assert alone.n_iter_[0] == model.n_iter_[label]
    assert model.coef_.shape == (3, 8)
    assert model.n_iter_.shape == model.objective_.shape == model.intercept_.shape == (3,)
    chances = model.predict_proba(X3)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.classes_[chances.argmax(axis=1)], model.predict(X3))


def test_probabilities_that_underflow():
    model = DropoutLogisticRegression(alpha=0.01).fit(X3, Y3)
    model.intercept_ = np.full(3, -1e6)
    np.testing.assert_allclose(model.predict_proba(X3[:1]), np.full((1, 3), 1 / 3))
    model.intercept_ = np.array([-1e6, 0.0, 0.0])
    assert model.predict_log_proba(X3[:1])[0, 0] == -np.inf


def test_a_warm_start_has_nothing_left_to_do():
    model = DropoutLogisticRegression(alpha=0.01, warm_start=True).fit(X, Y)
    first = model.coef_
    assert model.fit(X, Y).n_iter_[0] <= 1
    np.testing.assert_allclose(model.coef_, first, atol=1e-5)
    assert model.set_params(fit_intercept=False).fit(X, Y).intercept_ == 0
    with pytest.raises(
        ValueError, match=r"warm_start has a model of classes \[0 1\] and 8 features, but the data have"
    ):
        model.fit(X[:, :4], Y)
    with pytest.raises(ValueError, match=r"classes \[0 1 2\] and 8 features; set warm_start=False"):
        model.fit(X3, Y3)


def test_pickle_clone_grid_search_and_pipeline():
    search = GridSearchCV(
        make_pipeline(TfidfTransformer(), DropoutLogisticRegression(alpha=1e-3)),
        {
            "dropoutlogisticregression__rate": [0.2, 0.8],
            "dropoutlogisticregression__dropout": ["standard", "data-dependent"],
            "dropoutlogisticregression__approximation": ["quadratic", "gaussian"],
        },
        cv=2,
    )
    counts, y = bags(400, 100, np.random.default_rng(0))
    search.fit(counts, y)
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    np.testing.assert_array_equal(again.predict_proba(counts), search.predict_proba(counts))


def bags(size, words, rng):
    """Which words a document holds: 30 draws of a long-tailed law. All but the 50 commonest lean on one class."""
    common = 1.0 / np.arange(5, words + 5)
    lean = 0.5 * np.random.default_rng(7).choice([-1.0, 1.0], size=words) * (np.arange(words) >= 50)
    laws = np.stack([common * np.exp(lean), common * np.exp(-lean)])
    y = rng.integers(0, 2, size=size)
    counts = np.stack([rng.multinomial(30, law / law.sum()) for law in laws[y]])
    return sparse.csr_array((counts > 0).astype(float)), y


@pytest.mark.parametrize("noise", ["multinomial", "bernoulli", "gaussian", "even"])
def test_it_beats_plain_logistic_regression_on_text(noise):
    rng = np.random.default_rng(1)
    (train, labels), (test, truth) = bags(400, 1500, rng), bags(4000, 1500, rng)
    plain = LogisticRegression(C=np.inf, max_iter=10_000).fit(train, labels)
    model = DropoutLogisticRegression(**NOISES[noise], rate=0.8, alpha=0.0).fit(train, labels)
    assert 1 - model.score(test, truth) < 0.95 * (1 - plain.score(test, truth))


def test_too_few_iterations_warn():
    with pytest.warns(
        ConvergenceWarning, match=r"L-BFGS did not converge in 2 iterations for the classes \[1\]; raise max_iter"
    ):
        DropoutLogisticRegression(max_iter=2).fit(X, Y)


def test_verbose_draws_a_progress_bar(capsys):
    DropoutLogisticRegression(verbose=1, alpha=0.01).fit(X3, Y3)
    drawn = capsys.readouterr().out
    assert "iterations" in drawn
    assert "0 of 3 problems left" in drawn


def entry_variances(model, x, moments):
    """sum_i v_i x_i^2 w_i^2 of each row with v_i = 1 / (kappa p_i), and the sum of v_i x_i^2, by their definition."""
    total, noise = np.zeros(len(x)), np.zeros(len(x))
    for row, values in enumerate(x):
        probs = np.sqrt(moments) * abs(values) / (np.sqrt(moments) @ abs(values))
        v = 1 / (model.k_ * probs)
        total[row], noise[row] = (v * values**2) @ model.coef_[0] ** 2, v @ values**2
    return total, noise


def expected(model, x, variances):
    """log(1 + exp(-z)) at the scores z, and what noise adds to it: Eq. (4)."""
    z = model.decision_function(x)
    return np.logaddexp(0, -z), expit(z) * expit(-z) * variances / 2


def test_per_entry_noise_is_that_of_its_definition():
    model = DropoutLogisticRegression(dropout="per-entry", approximation="quadratic", rate=0.7, alpha=0.01).fit(X, Y)
    variances, noise = entry_variances(model, X, second_moments(X))
    assert noise.sum() == pytest.approx(0.7 / 0.3 * (X**2).sum(), rel=1e-12)
    losses, added = expected(model, X, variances)
    losses += np.where(Y == 1, 0.0, model.decision_function(X))
    value = (losses + added).mean() + 0.005 * (model.coef_**2).sum()
    assert model.objective_[0] == pytest.approx(value, rel=1e-12)
    assert model.probs_ is None


@pytest.mark.parametrize("form", [np.asarray, sparse.csc_matrix])
def test_unlabelled_examples_count_in_the_moments_and_in_the_noise(form):
    more, share = 2.0 * np.random.default_rng(0).normal(size=(50, 8)), 0.3
    model = DropoutLogisticRegression(dropout="per-entry", approximation="quadratic", alpha=0.01, unlabeled_share=share)
    model.fit(X, Y, X_unlabeled=form(more))
    moments = (1 - share) * second_moments(X) + share * second_moments(more)
    losses, added = expected(model, X, entry_variances(model, X, moments)[0])
    losses += np.where(Y == 1, 0.0, model.decision_function(X))
    _, apart = expected(model, more, entry_variances(model, more, moments)[0])
    value = losses.mean() + (1 - share) * added.mean() + share * apart.mean() + 0.005 * (model.coef_**2).sum()
    assert model.objective_[0] == pytest.approx(value, rel=1e-12)
    plain = DropoutLogisticRegression(dropout="per-entry", alpha=0.01).fit(X, Y)
    none = clone(plain).set_params(unlabeled_share=0.0).fit(X, Y, X_unlabeled=more)
    np.testing.assert_allclose(none.coef_, plain.coef_, atol=1e-4)


def topics(labels, rng):
    """Documents of two topics, which use the same words, more or less often."""
    frequency, tilt = 1 / np.arange(1, 1001), np.exp(0.35 * np.random.default_rng(0).normal(size=1000))
    words = np.array([frequency * tilt, frequency / tilt])
    counts = np.array([rng.multinomial(60, words[label] / words[label].sum()) for label in labels])
    return TfidfTransformer().fit_transform(counts)


@pytest.mark.parametrize("size", [40, 80, 400])
def test_the_share_of_unlabelled_documents_follows_the_labels(size):
    """A half does harm where labels are few: it makes one class of all documents."""
    rng = np.random.default_rng(4)
    labels, truth, hidden = (rng.integers(0, 2, n) for n in (size, 1000, 1500))
    train, test, more = (topics(y, rng) for y in (labels, truth, hidden))

    def fitted(share):
        return DropoutLogisticRegression(unlabeled_share=share).fit(train, labels, X_unlabeled=more)

    auto, half, alone = (1 - fitted(share).score(test, truth) for share in ("auto", 0.5, 0.0))
    if size < 100:
        assert auto < 1.05 * alone < 0.6 * half
    else:
        assert half < auto < 0.9 * alone
    share = (np.bincount(labels).min() / 500) ** 2
    np.testing.assert_array_equal(fitted("auto").coef_, fitted(share).coef_)


@pytest.mark.parametrize("dropout", ["per-entry", "data-dependent"])
def test_unlabelled_documents_sharpen_a_model_of_few(dropout):
    rng = np.random.default_rng(2)
    (train, labels), (test, truth), (more, _) = bags(150, 1500, rng), bags(4000, 1500, rng), bags(3000, 1500, rng)
    model = DropoutLogisticRegression(dropout=dropout, rate=0.8, unlabeled_share=0.8)
    alone = 1 - clone(model).fit(train, labels).score(test, truth)
    assert 1 - model.fit(train, labels, X_unlabeled=more).score(test, truth) < 0.95 * alone


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (np.ones((3, 7)), "X_unlabeled has 7 features, but X has 8; make both with the same vectorizer"),
        (np.full((3, 8), np.nan), "X_unlabeled: Input X_unlabeled contains NaN"),
        (sparse.csr_array((0, 8)), "X_unlabeled: Found array with 0 sample"),
        (["some text"], "X_unlabeled: "),
    ],
)
def test_bad_unlabelled_data_are_named(more, message):
    with pytest.raises(ValueError, match=message):
        DropoutLogisticRegression().fit(X, Y, X_unlabeled=more)


def test_a_grid_search_on_contiguous_blocks():
    search = GridSearchCV(
        DropoutLogisticRegression(), {"dropout": ["standard", "per-entry"], "rate": [0.5, 0.8, 0.95]}, cv=KFold(3)
    )
    assert search.fit(X, Y).best_score_ > 0.6


def test_single_precision_gives_single_precision():
    model = DropoutLogisticRegression(alpha=0.01).fit(X.astype(np.float32), Y)
    assert model.coef_.dtype == np.float32
    np.testing.assert_allclose(model.coef_, DropoutLogisticRegression(alpha=0.01).fit(X, Y).coef_, atol=1e-4)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"rate": 1.0}, "'rate' parameter"),
        ({"dropout": "weight-aware"}, "'dropout' parameter"),
        ({"approximation": "exact"}, "'approximation' parameter"),
        ({"match": "kept"}, "'match' parameter"),
        ({"k": 0}, "'k' parameter"),
        ({"k": 2, "match": "noise"}, "k is 2 and match is 'noise', but a match chooses k"),
        ({"k": 2, "dropout": "standard"}, "k is 2, but dropout='standard' draws nothing; set rate"),
        ({"class_weight": {0: -1.0}}, "class_weight is {0: -1.0}, but the weights of classes are finite and not"),
        ({"class_weight": {0: 0.0, 1: 0.0}}, "leaves no example any weight"),
    ],
)
def test_bad_parameters_are_named(params, message):
    with pytest.raises(ValueError, match=message):
        DropoutLogisticRegression(**params).fit(X, Y)


def test_bad_data_are_named():
    with pytest.raises(ValueError, match="there is one class, 'a', but a classifier needs at least 2"):
        DropoutLogisticRegression().fit(X[:2], ["a", "a"])
    with pytest.raises(ValueError, match=r"X has a value of size 1e\+200, but 1e\+150 is the largest; scale"):
        DropoutLogisticRegression().fit([[1e200], [1.0]], [0, 1])


class Recorder:
    """A callback that notes what it hears, and may ask to stop."""

    def __init__(self, stops=(), pause=0.0):
        self.heard, self.stops, self.pause = [], stops, pause

    def setup(self, estimator, context):
        self.estimator = estimator
        self.heard.append(("setup", context.task_name))

    def teardown(self, estimator, context):
        assert estimator is self.estimator
        self.heard.append(("teardown", context.task_name))

    def on_fit_task_begin(self, _estimator, context):
        self.heard.append(("begin", context.task_name))
        sleep(self.pause)

    def on_fit_task_end(self, _estimator, context, *, X=None, y=None, fitted_estimator=None):
        self.heard.append(("end", context.task_name, fitted_estimator.score(X, y)))
        return context.task_name == "iteration" and context.task_id in self.stops


@needs_callbacks
@pytest.mark.parametrize(("x", "y"), [(X, Y), (X3, Y3)])
def test_callbacks_hear_of_every_iteration(x, y):
    recorder = Recorder()
    model = DropoutLogisticRegression(alpha=0.01).set_callbacks(recorder).fit(x, y)
    plain = DropoutLogisticRegression(alpha=0.01).fit(x, y)
    np.testing.assert_array_equal(model.coef_, plain.coef_)
    first, begin, *iterations, end, last = recorder.heard
    assert (first, begin, last) == (("setup", "fit"), ("begin", "fit"), ("teardown", "fit"))
    assert [event[:2] for event in iterations] == [("begin", "iteration"), ("end", "iteration")] * model.n_iter_.max()
    assert end == ("end", "fit", model.score(x, y))
    assert iterations[-1][2] == end[2]


@needs_callbacks
def test_a_callback_may_stop_the_search():
    model = DropoutLogisticRegression().set_callbacks(Recorder(stops=[2])).fit(X, Y)  # and nothing warns
    assert model.n_iter_ == 3


@needs_callbacks
def test_a_callback_may_stop_every_class():
    model = DropoutLogisticRegression().set_callbacks(Recorder(stops=range(1000))).fit(X3, Y3)
    np.testing.assert_array_equal(model.n_iter_, [1, 1, 1])
    assert model.score(X3, Y3) > 0.4


@needs_callbacks
def test_scikit_learns_own_callbacks():
    monitor = sklearn.callback.ScoringMonitor(scoring="accuracy")
    model = DropoutLogisticRegression(alpha=0.01).set_callbacks(monitor).fit(X, Y, sample_weight=np.ones(len(Y)))
    scores = [row["accuracy"] for row in monitor.get_logs().data if row["task_name"] == "iteration"]
    assert len(scores) == model.n_iter_[0]
    assert scores[-1] == model.score(X, Y)
