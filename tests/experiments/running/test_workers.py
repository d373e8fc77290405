"""Workers and their laboratory: either may be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from evodrop.experiments.run import Run
from evodrop.experiments.running import laboratory
from evodrop.locking import FolderLock

MORTAL = """
import os, signal, sys
from pathlib import Path
from evodrop.experiments.running import laboratory
from evodrop.experiments.run import Run

deaths, times = Path("deaths"), int(sys.argv[1])
fields = {"dataset": "digits", "network": "digits", "seed": 0, "lr": 0.01, "epochs": 2, "eval_every": 5}

def execute(run, *rest):
    if run.method == "uniform" and len(os.listdir(deaths)) < times:
        (deaths / str(os.getpid())).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return laboratory._execute(run, *rest)  # in a worker, which has imported the true one

def main():
    laboratory._execute = execute
    runs = [Run(method=method, **fields) for method in ("standard", "uniform")]
    for ending in laboratory.run_all(runs, "out", jobs=2):
        print(ending.run.method, ending.status, ending.error)
"""


@pytest.mark.parametrize(("times", "told"), [(1, "finished None"), (2, f"failed {laboratory.KILLED}")])
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
        laboratory.run_all([run], tmp_path / "alone", jobs=1)
        killed, alone = ((tmp_path / out / run.id / "records.jsonl").read_bytes() for out in ("out", "alone"))
        assert killed == alone
    assert ".shared" not in os.listdir(tmp_path / "out")


IN_A_THREAD = """
import os, signal, threading
from evodrop.experiments.running.workers import end_with
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
errors = []
threading.excepthook = lambda found: errors.append(found.exc_value)
thread = threading.Thread(target=end_with, args=(os.getppid(),))
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
from evodrop.experiments.running.workers import end_with
multiprocessing.current_process().name = sys.argv[1]
end_with(1 << 30)  # no process has this number, so the laboratory is gone, or on another machine
print("goes on")
"""


@pytest.mark.parametrize(("name", "said", "code"), [("LokyProcess-1", "", 1), ("Dask Worker", "goes on\n", 0)])
def test_a_worker_that_begins_when_its_laboratory_has_ended_ends_too(name, said, code):
    """Only a child of the laboratory knows that it has ended; a worker of a cluster never was one."""
    answer = subprocess.run([sys.executable, "-c", LATE, name], capture_output=True, text=True, check=False)
    assert (answer.stdout, answer.returncode) == (said, code)


LABORATORY = """
import signal, sys
from evodrop.experiments.runner import run_all
from evodrop.experiments.run import Run
fields = {"dataset": "digits", "network": "digits", "method": "evolutional", "lr": 0.01, "epochs": 3000}
runs = [Run(seed=seed, **fields) for seed in (0, 1)]
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
    try:
        run_all(runs, sys.argv[1], jobs=2)
    except KeyboardInterrupt:
        sys.exit("stopped")
"""


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_laboratory(tmp_path, blow):
    """Killed, it cannot tell them; stopped by Ctrl-C it does. Either way their folders are free soon."""
    script, out = tmp_path / "script.py", tmp_path / "out"
    script.write_text(LABORATORY)
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
        with FolderLock(path.parent):
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
