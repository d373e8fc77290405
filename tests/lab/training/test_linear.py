"""Linear runs: the estimator itself, cut into records."""

from __future__ import annotations

import os
from itertools import islice

import numpy as np
import pytest
from helpers import sparse_text

from evodrop.lab.methods import LINEAR_METHODS
from evodrop.lab.store import RecordsError, keep_records, read_records, read_timings
from evodrop.lab.training.linear import LinearTraining
from evodrop.linear import DropoutSGDClassifier
from evodrop.linear._fit import DROPOUTS


def estimator(run):
    protocol = {"loss": "log_loss", "learning_rate": "constant", "average": True, "max_iter": run.epochs, "tol": None}
    options = {"rate": run.rate, "match": run.match, "eta0": run.lr, "random_state": run.seed}
    return DropoutSGDClassifier(dropout=run.method, **protocol, **options)


def test_there_is_a_method_for_every_dropout_of_linear_models():
    assert tuple(LINEAR_METHODS) == DROPOUTS


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("method", LINEAR_METHODS)
def test_a_run_is_the_estimator_to_the_last_bit(method, classes):
    data = sparse_text.documents(classes=classes)
    run = sparse_text.run(method=method, seed=7, match="noise" if method == "uniform" else "draws")
    training = LinearTraining(run, data)
    records = list(training.records())
    model = estimator(run).fit(data.train_x, data.train_y)
    coef, intercept = training.model.coefficients()
    np.testing.assert_array_equal(coef, model.coef_)
    np.testing.assert_array_equal(intercept, model.intercept_)
    assert records[-1]["clean_error"] == pytest.approx(1 - model.score(data.train_x, data.train_y), abs=1e-15)
    assert records[-1]["test_error"] == pytest.approx(1 - model.score(data.test_x, data.test_y), abs=1e-15)


def test_records_come_every_so_many_examples_and_at_the_end():
    records = list(LinearTraining(sparse_text.run(), sparse_text.documents()).records())
    assert [record["iteration"] for record in records] == [17, 34, 51, 68, 85, 102, 119, 136, 153, 170, 180]
    assert [record["status"] for record in records] == ["running"] * 10 + ["finished"]
    assert records[0]["epoch"] == pytest.approx(17 / 60)
    assert all(record["noisy_error"] is None and record["layers"] == [] for record in records)


def test_losses_are_those_of_the_clean_examples_and_of_the_corrupted_ones():
    data = sparse_text.documents()
    *_, record = LinearTraining(sparse_text.run(method="none"), data).records()
    model = estimator(sparse_text.run(method="none")).fit(data.train_x, data.train_y)
    margins = data.test_y * model.decision_function(data.test_x)
    assert record["test_loss"] == pytest.approx(np.log1p(np.exp(-margins)).mean(), rel=1e-12)
    whole = list(LinearTraining(sparse_text.run(epochs=1, eval_every=60), data).records())
    pieces = list(LinearTraining(sparse_text.run(epochs=1, eval_every=20), data).records())
    assert np.mean([piece["noisy_loss"] for piece in pieces]) == pytest.approx(whole[0]["noisy_loss"], rel=1e-12)


@pytest.mark.parametrize("method", ["data-dependent", "weight-aware"])
@pytest.mark.parametrize("stop", [1, 3, 4, 9])
def test_a_run_goes_on_from_any_record_as_if_nothing_had_happened(tmp_path, method, stop):
    run, data = sparse_text.run(method=method), sparse_text.documents()
    whole = list(keep_records(LinearTraining(run, data), tmp_path / "whole"))
    stream = keep_records(LinearTraining(run, data), tmp_path / "stopped", every=0)
    list(islice(stream, stop))
    stream.close()
    assert list(keep_records(LinearTraining(run, data), tmp_path / "stopped")) == whole
    begun = [line["iteration"] for line in read_timings(tmp_path / "stopped") if line.get("event") == "start"]
    assert begun == [0, 17 * (stop - 1)]  # a record is yielded before the checkpoint that follows it
    assert (tmp_path / "stopped/records.jsonl").read_bytes() == (tmp_path / "whole/records.jsonl").read_bytes()
    assert sorted(os.listdir(tmp_path / "stopped")) == ["records.jsonl", "timings.jsonl"]


def test_a_state_that_does_not_fit_is_refused():
    run, data = sparse_text.run(), sparse_text.documents()
    training = LinearTraining(run, data)
    training.step()
    state = training.state()
    with pytest.raises(ValueError, match="the state is that of"):
        LinearTraining(sparse_text.run(seed=1), data).load_state(state)
    with pytest.raises(ValueError, match="at iteration 180"):
        training.load_state(state | {"iteration": 180})
    with pytest.raises(ValueError, match="an array of the state"):
        training.load_state(state | {"arrays": [array[:1] for array in state["arrays"]]})


def test_records_of_other_data_are_refused(tmp_path):
    list(keep_records(LinearTraining(sparse_text.run(), sparse_text.documents()), tmp_path))
    with pytest.raises(RecordsError, match="holds another run: its data is"):
        list(keep_records(LinearTraining(sparse_text.run(), sparse_text.documents(seed=1)), tmp_path))
    assert len(read_records(tmp_path)[1]) == 11


def test_a_run_that_diverges_says_so():
    data = sparse_text.documents()
    training = LinearTraining(sparse_text.run(lr=1e308), data._replace(train_x=data.train_x * 1e10))
    records = list(training.records())
    assert records[-1]["status"] == "diverged"
    assert records[-1]["test_error"] is None
    assert records[-1]["iteration"] < 180


def test_the_order_of_the_examples_is_the_same_for_every_method(monkeypatch):
    orders = {}
    for method in LINEAR_METHODS:
        training = LinearTraining(sparse_text.run(method=method), sparse_text.documents())
        seen = orders.setdefault(method, [])
        run = training.model.run
        monkeypatch.setattr(
            training.model, "run", lambda e, order, *rest, s=seen, r=run: s.extend(order) or r(e, order, *rest)
        )
        list(training.records())
    assert len(orders["none"]) == 180
    assert sorted(orders["none"][:60]) == list(range(60))
    assert all(order == orders["none"] for order in orders.values())


def test_data_that_cannot_be_learned_are_refused():
    data = sparse_text.documents()
    with pytest.raises(ValueError, match="one class"):
        LinearTraining(sparse_text.run(), data._replace(train_y=np.ones(60)))
    with pytest.raises(ValueError, match=r"y holds the class 5\.0"):
        LinearTraining(sparse_text.run(), data._replace(test_y=np.full(30, 5.0)))
    with pytest.raises(ValueError, match="squares overflow"):
        LinearTraining(sparse_text.run(), data._replace(train_x=data.train_x * 1e200))
