"""A cluster that is not there is an error; one that is there does what joblib asks."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading

import numpy as np
import pytest
from helpers.dask_blocks import classifier, cut, examples
from joblib import parallel_config
from sklearn.model_selection import GridSearchCV

from evodrop.linear import DaskDropoutSGDClassifier, DropoutSGDClassifier, tune_rate, tune_step_size
from evodrop.linear.dask import connected, estimator, joblib_on

X, Y = examples()
ESTIMATOR = DropoutSGDClassifier(random_state=0, max_iter=3, tol=None)


@pytest.fixture
def silent_address():
    """The address of a port at which no process listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"tcp://127.0.0.1:{taken.getsockname()[1]}"


def test_a_scheduler_that_cannot_be_reached(silent_address, monkeypatch):
    monkeypatch.setattr(estimator, "ANSWER", 1)
    with pytest.raises(ConnectionError, match=rf"no Dask scheduler answers at '{silent_address}' within 1 seconds"):
        DaskDropoutSGDClassifier(cluster=silent_address).fit(cut(X), Y)
    with pytest.raises(ConnectionError, match="start one with 'dask scheduler'"), joblib_on(silent_address):
        pass


def test_no_client_and_no_address():
    with pytest.raises(ValueError, match=r"there is no Dask client; make one first, client = distributed.Client\(\)"):
        DaskDropoutSGDClassifier().fit(cut(X), Y)
    with pytest.raises(ValueError, match="an address has a port"), connected("tcp://host"):
        pass
    with pytest.raises(TypeError, match="cluster is a int"), connected(5):
        pass


def test_a_scheduler_without_workers(monkeypatch):
    from distributed import Client

    monkeypatch.setattr(estimator, "WORKERS", 0.5)
    with (
        Client(processes=False, n_workers=0, dashboard_address=":0", set_as_default=False) as empty,
        pytest.raises(TimeoutError, match=r"has no free worker after 0.5 seconds; start some with 'dask worker inproc"),
        connected(empty),
    ):
        pass


def test_without_dask_the_door_says_what_it_needs(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(ImportError, match=r"pip install 'evodrop\[dask\]'"), connected():
        pass


def test_an_address_is_enough(client):
    model = classifier(cluster=client.scheduler.address, random_state=0, max_iter=2, tol=None)
    with client.as_current():
        same = classifier(random_state=0, max_iter=2, tol=None).fit(cut(X, 100), Y)
    np.testing.assert_array_equal(model.fit(cut(X, 100), Y).coef_, same.coef_)


def test_tuning_on_a_cluster_finds_the_same(client):
    grid = [0.01, 0.1, 0.9]
    for tune in (tune_step_size, tune_rate):
        found = []
        for cluster in (None, client, client.scheduler.address):
            with joblib_on(cluster):
                found.append(tune(ESTIMATOR, X, Y, grid))
        for other in found[1:]:
            scores = [search.cv_results_["mean_test_score"] for search in (found[0], other)]
            np.testing.assert_array_equal(*scores)
            np.testing.assert_array_equal(other.best_estimator_.coef_, found[0].best_estimator_.coef_)


def test_fits_in_tasks_of_every_worker_do_not_wait_for_one_another(client, monkeypatch):
    """Each task holds the only thread of its worker, and the fits need those threads."""
    monkeypatch.setattr(estimator, "WORKERS", 5)

    def fit(seed):
        return classifier(random_state=seed, max_iter=2, tol=None).fit(cut(X, 100), Y).coef_

    with client.as_current():
        here = [fit(seed) for seed in range(3)]
    for there, coef in zip(client.gather(client.map(fit, range(3), pure=False)), here, strict=True):
        np.testing.assert_array_equal(there, coef)


def test_a_search_of_scikit_learn_on_a_cluster(client):
    model = classifier(random_state=0, max_iter=2, tol=None)
    found = []
    for backend in ("sequential", "dask"):
        with client.as_current(), parallel_config(backend=backend):
            search = GridSearchCV(model, {"estimator__rate": [0.3, 0.6]}, cv=2, error_score="raise", n_jobs=-1)
            found.append(search.fit(cut(X, 100), Y).cv_results_["mean_test_score"])
    np.testing.assert_array_equal(*found)


def test_a_client_that_is_closed_is_told(client):
    from distributed import Client

    with Client(client.scheduler.address, set_as_default=False) as closed:
        pass
    with pytest.raises(ConnectionError, match=f"the client {closed.id} is closed; make another"), connected(closed):
        pass


def test_an_error_on_a_worker_comes_back(client):
    with pytest.raises(ValueError, match="one class"), joblib_on(client):
        tune_step_size(ESTIMATOR, X, np.zeros(300))


CLUSTER = """
from time import sleep
from distributed import LocalCluster
cluster = LocalCluster(processes=False, n_workers=1, dashboard_address=":0", host="127.0.0.1", protocol="tcp")
print(cluster.scheduler_address, flush=True)
sleep(600)
"""


def test_a_scheduler_that_is_killed_in_the_middle_of_a_fit():
    with subprocess.Popen([sys.executable, "-c", CLUSTER], stdout=subprocess.PIPE, text=True) as process:
        address = process.stdout.readline().strip()
        killer = threading.Timer(5.0, process.kill)
        killer.start()
        endless = DropoutSGDClassifier(max_iter=10**6, tol=None, learning_rate="constant")
        with pytest.raises(ConnectionError, match=f"the Dask scheduler at {address} went away .* start it anew"):
            DaskDropoutSGDClassifier(endless, cluster=address).fit(cut(X), Y)
        killer.join()
