"""Many runs side by side: the same records, whoever makes them, and whatever happens to the others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from functools import lru_cache
from pathlib import Path

import joblib
import pytest
from helpers import sparse_text

from evodrop.lab import runner, store, training
from evodrop.lab.data import DataError, load
from evodrop.lab.run import Run
from evodrop.lab.store import keep_records, locked
from evodrop.lab.training import load_once, training_for, whole_paths


def run_all(*given, **options):
    """The results as a list, when all runs have ended."""
    return list(runner.run_all(*given, **options))


def digits(**fields):
    usual = {"method": "evolutional", "seed": 0, "lr": 0.01, "epochs": 2, "eval_every": 5}
    return Run(**{"dataset": "digits", "network": "digits"} | usual | fields)


def records(out, run):
    return (out / run.id / "records.jsonl").read_bytes()


def test_processes_threads_and_one_after_the_other_make_the_same_records(tmp_path):
    runs = [digits(method=method, seed=seed) for method in ("standard", "evolutional") for seed in (0, 1)]
    results = run_all(runs, tmp_path / "one", jobs=1)
    assert [(result.run, result.status) for result in results] == [(run, "finished") for run in runs]
    with joblib.parallel_config(backend="threading"):
        run_all(runs, tmp_path / "threading", jobs=2)
    results = run_all(runs, tmp_path / "processes", jobs=2)
    assert {result.run for result in results} == set(runs)
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
    monkeypatch.setattr(runner, "load_once", None)
    again = run_all([digits()], tmp_path, jobs=1)
    assert again[0].record == first[0].record
    assert again[0].seconds == 0.0


def test_a_run_that_fails_is_told_and_the_others_go_on(tmp_path):
    bad = digits(network="mnist")
    results = run_all([bad, digits()], tmp_path, jobs=1)
    assert [result.status for result in results] == ["failed", "finished"]
    assert results[0].error.startswith("ValueError: the network 'mnist' takes 1 channels of 24 x 24 in 10 classes")
    assert results[0].record is None


def test_a_warning_of_a_run_is_a_remark(tmp_path):
    folder = tmp_path / digits().id
    next(stream := keep_records(training_for(digits(), load("digits")), folder))
    stream.close()
    (folder / "checkpoint.bin").write_bytes(b"nonsense")
    (result,) = run_all([digits()], tmp_path, jobs=1)
    assert result.status == "finished"
    assert "begins again, since its checkpoint is of no use" in result.remarks[0]


def test_linear_runs_go_side_by_side_too_and_notice_other_data(tmp_path):
    name = sparse_text.write_pair(tmp_path)
    runs = [sparse_text.run(dataset=name, seed=seed) for seed in (0, 1)]
    results = run_all(runs, tmp_path / "out", jobs=1)
    assert [result.status for result in results] == ["finished"] * 2
    sparse_text.write_pair(tmp_path, n=120)
    training._load.cache_clear()
    assert "holds another run: its data is" in run_all(runs, tmp_path / "out", jobs=1)[0].error


def test_a_run_that_another_process_holds_is_waited_for_and_then_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "PATIENCE", 0.3)
    (tmp_path / digits().id).mkdir()
    with locked(tmp_path / digits().id):
        (result,) = run_all([digits()], tmp_path, jobs=1)
    assert result.status == "failed"
    assert "is being written by process" in result.error


def test_data_reach_a_worker_by_name_and_are_loaded_once(tmp_path, monkeypatch):
    loaded = []
    monkeypatch.setattr(training, "_load", lru_cache(1)(lambda *given: loaded.append(given) or load(*given)))
    run_all([digits(seed=seed) for seed in (0, 1, 2)], tmp_path, "some/where", jobs=1)
    assert loaded == [("digits", Path("some/where").absolute())]


def test_files_are_found_from_any_working_folder(tmp_path, monkeypatch):
    """A worker of a cluster has one of its own."""
    sparse_text.write_pair(tmp_path)
    monkeypatch.chdir(tmp_path)
    name, folder = whole_paths("validation:svm:train.svm,test.svm", "data")
    assert name == f"validation:svm:{tmp_path}/train.svm,{tmp_path}/test.svm"
    assert folder == tmp_path / "data"
    monkeypatch.chdir("/")
    assert load_once(name, folder).train_x.shape == (48, 40)
    assert whole_paths("mnist", folder) == ("mnist", folder)


def test_data_that_cannot_be_read_end_all_runs(tmp_path):
    with pytest.raises(DataError, match="Get it by: evodrop data get mnist"):
        run_all([digits(dataset="mnist", seed=seed) for seed in (0, 1)], tmp_path / "out", tmp_path, jobs=1)


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
    monkeypatch.setattr(runner, "load_once", None)
    assert run_all([run], tmp_path / "out", tmp_path, jobs=1)[0].record == first.record


def test_a_warning_is_one_remark_however_often_it_comes(tmp_path, monkeypatch):
    whole = runner.training_for

    def training_for(*given):
        for _ in range(3):
            warnings.warn("hot", RuntimeWarning, 1)
        return whole(*given)

    monkeypatch.setattr(runner, "training_for", training_for)
    assert run_all([digits()], tmp_path, jobs=1)[0].remarks == ("hot",)


# Workers and their parent: either may be killed

MORTAL = """
import os, signal, sys
from pathlib import Path
from evodrop.lab import runner
from evodrop.lab.run import Run

deaths, times = Path("deaths"), int(sys.argv[1])
fields = {"dataset": "digits", "network": "digits", "seed": 0, "lr": 0.01, "epochs": 2, "eval_every": 5}

def execute(run, *rest):
    if run.method == "uniform" and len(os.listdir(deaths)) < times:
        (deaths / str(os.getpid())).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return runner._execute(run, *rest)  # in a worker, which has imported the true one

def main():
    runner._execute = execute
    runs = [Run(method=method, **fields) for method in ("standard", "uniform")]
    for result in runner.run_all(runs, Path("out"), jobs=2):
        print(result.run.method, result.status, result.error)
"""


@pytest.mark.parametrize(("times", "told"), [(1, "finished None"), (2, f"failed {runner.KILLED}")])
def test_a_worker_that_is_killed_costs_its_run_a_second_try(tmp_path, times, told):
    (tmp_path / "mortal.py").write_text(MORTAL)
    (tmp_path / "deaths").mkdir()
    command = [sys.executable, "-c", "import mortal; mortal.main()", str(times)]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert answer.returncode == 0, answer.stderr
    assert f"uniform {told}" in answer.stdout.splitlines()
    assert len(os.listdir(tmp_path / "deaths")) == times
    if times == 1:
        assert "standard finished None" in answer.stdout.splitlines()
        fields = {"dataset": "digits", "network": "digits", "seed": 0, "lr": 0.01, "epochs": 2, "eval_every": 5}
        run = Run(method="uniform", **fields)
        run_all([run], tmp_path / "alone", jobs=1)
        killed, alone = ((tmp_path / out / run.id / "records.jsonl").read_bytes() for out in ("out", "alone"))
        assert killed == alone


IN_A_THREAD = """
import os, signal, threading
from evodrop.lab.runner import _end_with
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
errors = []
threading.excepthook = lambda found: errors.append(found.exc_value)
thread = threading.Thread(target=_end_with, args=(os.getppid(),))
thread.start()
thread.join()
print(errors, signal.getsignal(signal.SIGINT) is signal.default_int_handler, threading.active_count())
"""


def test_a_worker_may_be_a_thread_of_its_process():
    """Of which only the main one may say what a signal does."""
    answer = subprocess.run([sys.executable, "-c", IN_A_THREAD], capture_output=True, text=True, check=True)
    assert answer.stdout == "[] True 2\n"  # the second one watches


LATE = """
import multiprocessing, sys
from evodrop.lab.runner import _end_with
multiprocessing.current_process().name = sys.argv[1]
_end_with(1 << 30)  # no process has this number, so its parent is gone, or on another machine
print("goes on")
"""


@pytest.mark.parametrize(("name", "said", "code"), [("LokyProcess-1", "", 1), ("Dask Worker", "goes on\n", 0)])
def test_a_worker_that_begins_when_its_parent_has_ended_ends_too(name, said, code):
    """Only a child of the parent knows that it has ended; a worker of a cluster never was one."""
    answer = subprocess.run([sys.executable, "-c", LATE, name], capture_output=True, text=True, check=False)
    assert (answer.stdout, answer.returncode) == (said, code)


PARENT = """
import signal, sys
from pathlib import Path
from evodrop.lab.runner import run_all
from evodrop.lab.run import Run
fields = {"dataset": "digits", "network": "digits", "method": "evolutional", "lr": 0.01, "epochs": 3000}
runs = [Run(seed=seed, **fields) for seed in (0, 1)]
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
    try:
        list(run_all(runs, Path(sys.argv[1]), jobs=2))
    except KeyboardInterrupt:
        sys.exit("stopped")
"""


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_parent(tmp_path, blow):
    """Killed, it cannot tell them; stopped by Ctrl-C it does. Either way their folders are free soon."""
    script, out = tmp_path / "script.py", tmp_path / "out"
    script.write_text(PARENT)
    command = [sys.executable, script, out]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            locks = _wait_for(lambda: [path for path in out.glob("*/lock") if path.read_text()], 2)
            workers = [int(path.read_text().split()[0]) for path in locks]
            assert process.pid not in workers
            if blow == signal.SIGINT:
                os.killpg(process.pid, blow)  # as a terminal does, to the whole group
            else:
                process.send_signal(blow)
            told = process.communicate(timeout=60)[1]
        finally:
            process.kill()  # else a test that failed would wait for the end of the runs
    if blow == signal.SIGINT:
        assert (process.returncode, told) == (1, "stopped\n")
    _wait_for(lambda: [pid for pid in workers if not _is_alive(pid)], 2)
    for path in locks:
        with locked(path.parent):
            pass


def _wait_for(find, n, seconds=180):  # others may use the machine
    deadline = time.monotonic() + seconds
    while len(found := find()) < n:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def _is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
