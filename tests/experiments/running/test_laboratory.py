"""Many runs side by side: the same records, whoever makes them, and whatever happens to the others."""

from __future__ import annotations

import os
import warnings

import joblib
import pytest
import sparse_text

from evodrop.experiments.data import load
from evodrop.experiments.methods import METHODS
from evodrop.experiments.records.runs import Run
from evodrop.experiments.running import laboratory
from evodrop.experiments.running.laboratory import check_fit, load_once, network_for, records_of, run_all
from evodrop.locking import FolderLock, LockedError


def digits(**fields):
    usual = {"method": "evolutional", "seed": 0, "lr": 0.01, "epochs": 2, "eval_every": 5}
    return Run(**{"dataset": "digits", "network": "digits"} | usual | fields)


def records(out, run):
    return (out / run.id / "records.jsonl").read_bytes()


def test_processes_threads_and_one_after_the_other_make_the_same_records(tmp_path):
    runs = [digits(method=method, seed=seed) for method in ("standard", "evolutional") for seed in (0, 1)]
    endings = run_all(runs, tmp_path / "one", jobs=1)
    assert [(ending.run, ending.status) for ending in endings] == [(run, "finished") for run in runs]
    with joblib.parallel_config(backend="threading"):
        run_all(runs, tmp_path / "threading", jobs=2)
    told = []
    run_all(runs, tmp_path / "processes", jobs=2, on_ending=told.append)
    assert {ending.run for ending in told} == set(runs)
    for run in runs:
        for folder in ("threading", "processes"):
            assert records(tmp_path / "one", run) == records(tmp_path / folder, run)
    assert sorted(os.listdir(tmp_path / "processes")) == sorted(run.id for run in runs)


def test_a_backend_that_forks_is_refused(tmp_path):
    with joblib.parallel_config(backend="multiprocessing"), pytest.raises(ValueError, match="use loky"):
        run_all([digits()], tmp_path, jobs=2)


def test_what_is_finished_is_not_repeated_and_needs_no_data(tmp_path, monkeypatch):
    first = run_all([digits(), digits()], tmp_path, jobs=1)
    assert len(first) == 1
    monkeypatch.setattr(laboratory, "load_once", None)
    again = run_all([digits()], tmp_path, jobs=1)
    assert again[0].record == first[0].record
    assert again[0].seconds == 0.0


def test_a_run_that_fails_is_told_and_the_others_go_on(tmp_path):
    bad = digits(network="mnist")
    endings = run_all([bad, digits()], tmp_path, jobs=1)
    assert [ending.status for ending in endings] == ["failed", "finished"]
    assert endings[0].error.startswith("ValueError: the network 'mnist' takes 1 channels of 24 x 24 and tells 10")
    assert endings[0].record is None


def test_a_warning_of_a_run_is_a_remark(tmp_path):
    folder = tmp_path / digits().id
    next(stream := records_of(digits(), load("digits"), folder))
    stream.close()
    (folder / "checkpoint.bin").write_bytes(b"nonsense")
    (ending,) = run_all([digits()], tmp_path, jobs=1)
    assert ending.status == "finished"
    assert "begins anew, since its checkpoint is of no use" in ending.remarks[0]


def test_linear_runs_go_side_by_side_too_and_notice_other_data(tmp_path):
    name = sparse_text.write_pair(tmp_path)
    runs = [sparse_text.run(dataset=name, seed=seed) for seed in (0, 1)]
    endings = run_all(runs, tmp_path / "out", jobs=1)
    assert [ending.status for ending in endings] == ["finished"] * 2
    sparse_text.write_pair(tmp_path, n=120)
    load_once.cache_clear()
    assert "holds another run: its data is" in run_all(runs, tmp_path / "out", jobs=1)[0].error


def test_one_laboratory_a_folder(tmp_path):
    with FolderLock(tmp_path), pytest.raises(LockedError, match=f"is being written by process {os.getpid()}"):
        run_all([digits()], tmp_path, jobs=1)


def test_a_run_that_another_process_holds_is_waited_for_and_then_told(tmp_path, monkeypatch):
    monkeypatch.setattr(laboratory, "PATIENCE", 0.3)
    (tmp_path / digits().id).mkdir()
    with FolderLock(tmp_path / digits().id):
        (ending,) = run_all([digits()], tmp_path, jobs=1)
    assert ending.status == "failed"
    assert "is being written by process" in ending.error


def test_what_a_killed_laboratory_left_to_share_is_cleared_away(tmp_path):
    (tmp_path / ".shared").mkdir()
    (tmp_path / ".shared/data.pkl").write_bytes(b"x")
    run_all([digits()], tmp_path, jobs=1)
    assert os.listdir(tmp_path) == [digits().id]


def test_a_run_killed_before_all_was_put_away_is_put_away(tmp_path):
    (first,) = run_all([digits()], tmp_path, jobs=1)
    for name in ("checkpoint.bin", "lock"):
        (tmp_path / digits().id / name).write_bytes(b"left")
        (again,) = run_all([digits()], tmp_path, jobs=1)
        assert again.record == first.record
        assert sorted(os.listdir(tmp_path / digits().id)) == ["records.jsonl", "timings.jsonl"]


def test_finished_linear_runs_on_named_data_need_no_data(tmp_path, monkeypatch):
    sparse_text.write_packed(tmp_path / "20news")
    run = sparse_text.run(dataset="20news")
    (first,) = run_all([run], tmp_path / "out", tmp_path, jobs=1)
    monkeypatch.setattr(laboratory, "load_once", None)
    assert run_all([run], tmp_path / "out", tmp_path, jobs=1)[0].record == first.record


def test_a_warning_is_one_remark_however_often_it_comes(tmp_path, monkeypatch):
    whole = laboratory.records_of

    def records_of(*given):
        for _ in range(3):
            warnings.warn("hot", RuntimeWarning, 1)
        return whole(*given)

    monkeypatch.setattr(laboratory, "records_of", records_of)
    assert run_all([digits()], tmp_path, jobs=1)[0].remarks == ("hot",)


def test_a_network_is_built_once_however_long_its_folder_is_waited_for(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(laboratory, "records_of", lambda *given: calls.append(given))
    monkeypatch.setattr(laboratory, "PATIENCE", 0.5)
    (tmp_path / digits().id).mkdir()
    with FolderLock(tmp_path / digits().id):
        assert run_all([digits()], tmp_path, jobs=1)[0].status == "failed"
    assert calls == []


def test_at_least_one_job(tmp_path):
    with pytest.raises(ValueError, match="jobs is 0, but there is at least 1 run at a time"):
        run_all([], tmp_path, jobs=0)


def test_every_method_of_a_seed_begins_with_the_same_weights():
    networks = {method: dict(network_for(digits(method=method)).named_parameters()) for method in METHODS}
    for weights in networks.values():
        for name, parameter in networks["none"].items():
            assert (weights[name] == parameter).all()
    assert (dict(network_for(digits(seed=1)).named_parameters())["fc1.weight"] != networks["none"]["fc1.weight"]).any()


def test_data_and_network_have_to_fit():
    with pytest.raises(ValueError, match="network is 'nonsense', but it is one of 'digits'"):
        check_fit("nonsense", load("digits"))
    with pytest.raises(ValueError, match="tells 10 classes apart, but digits has 1 of 8 x 8 and 11"):
        check_fit("digits", load("digits")._replace(classes=11))
    with pytest.raises(ValueError, match="words holds text, which the network 'digits' cannot learn"):
        records_of(digits(dataset="words"), sparse_text.documents())
    with pytest.raises(ValueError, match="digits holds images, which the network 'linear' cannot learn"):
        records_of(sparse_text.run(dataset="digits"), load("digits"))
