"""The fit on a cluster: the fit of one machine for one partition, the weighted mean for several, the same on any."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time

import numpy as np
import pytest
from helpers.dask_blocks import FIXED, classifier, cut, examples, fitted
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from evodrop.linear import DaskDropoutSGDClassifier, DropoutSGDClassifier, read_svmlight
from evodrop.linear.dask.rounds import Rounds

pytestmark = pytest.mark.usefixtures("current_client")
X, Y = examples()


def assert_same(one, other):
    """To the last bit."""
    for name in ("classes_", "coef_", "intercept_", "probs_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    for name in ("loss", "train_error", "validation_score"):
        np.testing.assert_array_equal(one.history_[name], other.history_[name])


@pytest.mark.parametrize(
    "options",
    [
        {"average": False},
        {"average": True, "alpha": 1e-3, "loss": "log_loss"},
        {"average": True, "shuffle": False},
        {"dropout": "weight-aware", "match": "noise"},
        {"dropout": "water-filling", "early_stopping": True},
        {"dropout": "standard", "class_weight": "balanced", "learning_rate": "constant"},
        {"class_weight": {"art": 0.6, "science": 2.0, "sport": 0.3}, "match": "noise"},
        {"class_weight": {"art": 0.0}},
        {"max_iter": 200, "tol": 1e-2},
    ],
    ids=str,
)
def test_one_partition_is_the_fit_of_one_machine(options):
    weight = np.random.default_rng(1).integers(0, 3, len(Y)).astype(float)
    ours = fitted(cut(X), cut(Y), weight, **options)
    theirs = DropoutSGDClassifier(**{**FIXED, **options}).fit(X, Y, weight)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(ours.probs_, theirs.probs_)
    assert (ours.k_, ours.n_iter_, ours.t_) == (theirs.k_, theirs.n_iter_, theirs.t_)
    for name in ("loss", "train_error", "validation_score"):
        np.testing.assert_allclose(ours.history_[name], theirs.history_[name], rtol=1e-9)


@pytest.mark.parametrize("art", [0.6, 0.0])
def test_weights_of_examples_and_of_two_classes_multiply(art):
    labels, own = np.where(Y == "art", "art", "other"), np.random.default_rng(1).random(len(Y))
    both = own * np.where(labels == "art", art, 0.3)
    ours = fitted(cut(X), cut(labels), own, class_weight={"art": art, "other": 0.3})
    assert_same(ours, fitted(cut(X), cut(labels), both))


def test_weights_on_one_class_only_give_a_model_of_that_class():
    weight = (Y[0] == Y) * 1.0
    ours, theirs = fitted(cut(X), cut(Y), weight), DropoutSGDClassifier(**FIXED).fit(X, Y, weight)
    assert ours.classes_.tolist() == theirs.classes_.tolist() == np.unique(Y).tolist()
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-9, atol=1e-12)


def test_the_next_iterate_is_the_mean_of_the_partitions_weighted_by_their_examples():
    plain = {"dropout": "none", "shuffle": False, "average": False, "max_iter": 1, "learning_rate": "constant"}
    parts = [DropoutSGDClassifier(**{**FIXED, **plain}).fit(X[rows], Y[rows]) for rows in (slice(70), slice(70, 300))]
    ours = fitted(cut(X, 70), cut(Y, 70), **plain)
    np.testing.assert_allclose(ours.coef_, (70 * parts[0].coef_ + 230 * parts[1].coef_) / 300, rtol=1e-12)
    np.testing.assert_allclose(ours.intercept_, (70 * parts[0].intercept_ + 230 * parts[1].intercept_) / 300)
    assert ours.t_ == 1 + 230
    assert ours.history_["train_error"][0] == pytest.approx(1 - ours.score(X, Y))


def test_the_mean_runs_over_the_iterates_of_all_partitions():
    plain = {"dropout": "none", "shuffle": False, "average": True, "max_iter": 1, "learning_rate": "constant"}
    parts = [DropoutSGDClassifier(**{**FIXED, **plain}).fit(X[rows], Y[rows]) for rows in (slice(70), slice(70, 300))]
    ours = fitted(cut(X, 70), cut(Y, 70), **plain)
    np.testing.assert_allclose(ours.coef_, (70 * parts[0].coef_ + 230 * parts[1].coef_) / 300, rtol=1e-12)


def test_moments_are_those_of_all_partitions_and_their_noise_differs():
    ours = fitted(cut(X, 50, 120), cut(Y, 50, 120))
    np.testing.assert_allclose(ours.probs_, DropoutSGDClassifier(**FIXED).fit(X, Y).probs_, rtol=1e-12)
    twice = sparse.vstack([X, X]).tocsr(), np.concatenate([Y, Y])
    both = fitted(cut(twice[0], 300), cut(twice[1], 300), average=False, shuffle=False, max_iter=1)
    alone = DropoutSGDClassifier(**{**FIXED, "average": False, "shuffle": False, "max_iter": 1}).fit(X, Y)
    assert np.abs(both.coef_ - alone.coef_).max() > 1e-3  # equal noise would give equal iterates, and their mean


def test_the_model_does_not_depend_on_the_workers(client):
    from distributed import Client

    data = cut(X, 50, 120, 200), cut(Y, 50, 120, 200)
    models = [fitted(*data), fitted(*data, n_jobs=2)]
    with client.as_current():
        address = next(iter(client.scheduler_info()["workers"]))
        here = client.persist(data, workers=[address])  # the data on one worker, in reverse order of need
        models.append(fitted(*here))
    options = {"processes": False, "n_workers": 1, "threads_per_worker": 3, "dashboard_address": ":0"}
    with Client(**options, set_as_default=False) as alone, alone.as_current():
        models.append(fitted(*data))
    for model in models[1:]:
        assert_same(models[0], model)
    assert not np.array_equal(fitted(*data, random_state=4).coef_, models[0].coef_)


def kill_one_that_learns(client, killed):
    """Kill the first worker that is seen in its local epochs, from outside, as a machine would go down."""
    pids = client.run(os.getpid)
    while not killed.is_set():
        busy = [worker for worker, keys in client.processing().items() if any("run_epochs" in str(key) for key in keys)]
        if busy:
            os.kill(pids[busy[0]], signal.SIGKILL)
            killed.set()
        time.sleep(0.01)


@pytest.mark.parametrize(("workers", "average"), [(2, "tail"), (1, False)])
def test_a_worker_that_dies_costs_a_retry(workers, average):
    """Also if it was the last one: the fit goes on with the one that comes in its place."""
    from distributed import Client

    many = sparse.vstack([X] * 40).tocsr(), np.tile(Y, 40)
    data = cut(many[0], 4000, 8000), cut(many[1], 4000, 8000)
    options = {"local_epochs": 15, "max_iter": 60, "average": average}
    undisturbed = fitted(*data, **options)
    killed = threading.Event()
    cluster = {"n_workers": workers, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with Client(**cluster, set_as_default=False) as own, own.as_current():
        killer = threading.Thread(target=kill_one_that_learns, args=(own, killed), daemon=True)
        killer.start()
        try:
            disturbed = fitted(*data, **options)
            assert killed.is_set()
        finally:
            killed.set()
            killer.join(timeout=10)
    assert_same(undisturbed, disturbed)


def test_no_process_holds_all_partitions(client, monkeypatch):
    held, gathered, measure, gather = [], [], Rounds._measure, type(client).gather

    def watched(self, ready, records_error):
        held.append(client.has_what())
        return measure(self, ready, records_error)

    def weighed(self, futures, *arguments, **options):
        gathered.append(len(pickle.dumps(results := gather(self, futures, *arguments, **options))))
        return results

    monkeypatch.setattr(Rounds, "_measure", watched)
    monkeypatch.setattr(type(client), "gather", weighed)
    edges = range(50, 300, 50)
    fitted(cut(X, *edges), cut(Y, *edges))
    for workers in held:
        for keys in workers.values():
            assert len({key for key in keys if "prepare" in str(key)}) < 6
    assert held
    assert max(gathered) < 5000 < X.data.nbytes / 2  # facts and hits alone


def test_files_are_partitions(tmp_path):
    names = {label: number for number, label in enumerate(np.unique(Y))}
    paths = [tmp_path / "one.svm", tmp_path / "two.svm"]
    for path, rows in zip(paths, (range(100), range(100, 300)), strict=True):
        lines = []
        for row in rows:
            pairs = zip(X[[row]].indices + 1, X[[row]].data, strict=True)
            lines.append(" ".join([str(names[Y[row]]), *(f"{i}:{value!r}" for i, value in pairs if row != 3)]))
        path.write_text("\n".join(lines).replace("np.float64(", "").replace(")", "") + "\n")
    short = tmp_path / "three.svm"  # of fewer features than the others
    short.write_text("1 2:0.5\n0 1:1\n")
    model = classifier(**FIXED).fit([*map(str, paths), short])
    assert model.n_features_in_ == 40
    assert model.classes_.tolist() == [0.0, 1.0]
    again = classifier(**FIXED).fit(*read_svmlight([*paths, short]))
    assert_same(model, again)
    assert model.score([*paths, short]) > 0.8
    first, y = read_svmlight(paths[:1], n_features=40)
    assert model.score(first, y) == model.score(first.compute(), y.compute())
    with pytest.raises(ValueError, match="files, which hold their labels"):
        model.fit(paths, Y)
    with pytest.raises(FileNotFoundError, match=r"no file 'nowhere\.svm' for the worker in .*give whole paths"):
        model.fit(["nowhere.svm"])


def test_parts_come_one_after_the_other():
    halves = slice(0, 120), slice(120, 300)
    ours, theirs = classifier(**FIXED), DropoutSGDClassifier(**FIXED)
    for rows in halves:
        ours.partial_fit(cut(X[rows]), cut(Y[rows]), classes=["art", "science"])
        theirs.partial_fit(X[rows], Y[rows], classes=["art", "science"])
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-9, atol=1e-12)
    assert ours.t_ == theirs.t_
    with pytest.raises(ValueError, match="classes is None"):
        DaskDropoutSGDClassifier().partial_fit(cut(X), cut(Y))
    with pytest.raises(ValueError, match="39 features, but the model was fitted on 40"):
        ours.partial_fit(cut(X[:, :39]), cut(Y))


def test_adagrad_is_refused():
    with pytest.raises(ValueError, match=r"'adagrad' keeps sums .* use 'linear'"):
        fitted(cut(X, 100), cut(Y, 100), learning_rate="adagrad")


def test_a_warm_start_goes_on():
    data = cut(X, 100), cut(Y, 100)
    model = fitted(*data, average=False, warm_start=True, dropout="none", shuffle=False, learning_rate="constant")
    model.fit(*data)
    longer = fitted(*data, average=False, max_iter=8, dropout="none", shuffle=False, learning_rate="constant")
    np.testing.assert_allclose(model.coef_, longer.coef_, rtol=1e-12)


def test_several_local_epochs_are_one_round():
    model = fitted(cut(X, 100), cut(Y, 100), local_epochs=3, max_iter=7)
    assert model.n_iter_ == 7
    assert len(model.history_["loss"]) == 3
    assert model.t_ == 1 + 7 * 200


def test_it_is_an_estimator():
    model = classifier(dropout="uniform", rate=0.3, cluster="tcp://host:1", local_epochs=2)
    assert set(model.get_params(deep=False)) == {"estimator", "cluster", "local_epochs"}
    assert clone(model).set_params(estimator__rate=0.4).estimator.rate == 0.4
    assert model.estimator.rate == 0.3
    trained = fitted(cut(X, 100), cut(Y, 100))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(trained)).predict(X), trained.predict(X))
    assert not hasattr(model.estimator, "coef_")
    assert isinstance(trained.estimator_, DropoutSGDClassifier)
    np.testing.assert_array_equal(trained.estimator_.predict(X), trained.predict(X))
    with pytest.raises(ValueError, match="'estimator' parameter"):
        DaskDropoutSGDClassifier("uniform").fit(cut(X), cut(Y))
    with pytest.raises(ValueError, match="'rate' parameter of DropoutSGDClassifier"):
        fitted(cut(X), cut(Y), rate=2.0)
    with pytest.raises(ValueError, match="'local_epochs' parameter"):
        fitted(cut(X), cut(Y), local_epochs=0)


def test_overflow_and_no_convergence_are_told():
    with pytest.raises(ValueError, match="choose eta0 smaller"):
        fitted(cut(X, 100), cut(Y, 100), eta0=1e200, loss="squared_hinge")
    with pytest.warns(ConvergenceWarning, match="max_iter=2 epochs"):
        fitted(cut(X, 100), cut(Y, 100), max_iter=2, tol=1e-3, learning_rate="constant")
