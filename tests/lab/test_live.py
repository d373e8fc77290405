"""What is shown while runs go on, read from files that others write."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace

import pytest
from helpers import tiny
from rich.console import Console

from evodrop.lab import live
from evodrop.lab.live import Progress, label, last_record, watching
from evodrop.lab.run import Run, RunResult

RUNS = [tiny.run(seed=seed) for seed in range(3)]


def write(out, run, epoch, status="running", error=0.25, torn=""):
    folder = out / run.id
    folder.mkdir(exist_ok=True)
    record = {"epoch": epoch, "status": status, "clean_error": error, "test_error": 2 * error}
    (folder / "records.jsonl").write_text(f'{{"run": {{}}}}\n{json.dumps(record)}\n{torn}')


def shown(progress, rows=20, width=100):
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(progress.table(rows))
    return console.file.getvalue()


@pytest.fixture
def clock(monkeypatch):
    """Time that stands still until it is told otherwise."""
    hands = SimpleNamespace(now=100.0)
    monkeypatch.setattr(live, "time", SimpleNamespace(monotonic=lambda: hands.now))
    return hands


def row(text, run):
    return next(line for line in text.splitlines() if label(run) in line)


def cells(text, run):
    return [cell.strip() for cell in row(text, run).split("│")[3:6]]


def test_the_table_follows_the_records(tmp_path, clock):
    progress = Progress(RUNS, tmp_path, "three runs")
    assert cells(shown(progress), RUNS[0]) == ["-", "-", "waiting"]
    write(tmp_path, RUNS[0], epoch=1.0)
    clock.now += 10
    shown(progress)
    write(tmp_path, RUNS[0], epoch=2.0, error=0.125)
    clock.now += 20
    text = shown(progress)
    assert cells(text, RUNS[0]) == ["12.50%", "25.00%", "0:40"]
    assert "0 of 3 runs done; 2:30 left" in text  # half a run took 30 seconds


def test_runs_that_were_begun_before_count_from_where_they_were(tmp_path, clock):
    write(tmp_path, RUNS[0], epoch=3.0)
    progress = Progress(RUNS[:1], tmp_path, "one run")
    assert "waiting" in row(shown(progress), RUNS[0])
    write(tmp_path, RUNS[0], epoch=3.5)
    clock.now += 7
    assert "0 of 1 runs done; 0:07 left" in shown(progress)


def test_endings_are_told_in_a_line_and_in_the_table(tmp_path):
    progress = Progress(RUNS, tmp_path, "three runs")
    record = {"epoch": 4.0, "status": "diverged", "clean_error": None, "test_error": None}
    assert progress.note(RunResult(RUNS[1], "diverged", record, seconds=2.0)) == (
        "[1/3] tiny evolutional, step 0.05, seed 1: diverged, training error -, test error - (2.0 s)"
    )
    note = progress.note(RunResult(RUNS[2], "failed", error="OSError: no room", remarks=("began again",)))
    assert note.splitlines()[0].endswith("seed 2: failed, OSError: no room (0.0 s)")
    assert note.splitlines()[1] == "    began again"
    text = shown(progress)
    assert "diverged" in row(text, RUNS[1])
    assert "failed" in row(text, RUNS[2])
    assert "2 of 3 runs done, 1 failed" in text


def test_runs_that_choose_a_rate_have_a_validation_error(tmp_path):
    trial = tiny.run(dataset="validation:spots")
    progress = Progress([trial], tmp_path, "a trial")
    record = {"epoch": 4.0, "status": "finished", "clean_error": 0.5, "test_error": 0.25}
    told = progress.note(RunResult(trial, "finished", record))
    assert "training error 50.00%, validation error 25.00%" in told
    table = shown(progress, width=140)
    assert "validation error" in table
    assert "test error" not in told + table


def test_when_all_is_done_no_time_is_left(tmp_path):
    """Runs that were done before take no time, so that nobody could say how fast they were."""
    for run in RUNS:
        write(tmp_path, run, epoch=4.0, status="finished")
    progress = Progress(RUNS, tmp_path, "three runs")
    for run in RUNS:
        assert "? left" in shown(progress)
        progress.note(RunResult(run, "finished", {"epoch": 4.0, "status": "finished"}))
    assert "3 of 3 runs done" in shown(progress)
    assert " left" not in shown(progress).replace("time left", "")


def test_a_run_that_ends_while_its_records_are_read_stays_ended(tmp_path, monkeypatch):
    """The table is made in another thread than the one that hears of endings."""
    progress = Progress(RUNS[:1], tmp_path, "one run")
    last = {"epoch": 4.0, "status": "finished", "clean_error": 0.0, "test_error": 0.125}

    def read_meanwhile(_):
        progress.note(RunResult(RUNS[0], "finished", last))
        return {"epoch": 3.0, "status": "running", "clean_error": 0.5, "test_error": 0.5}

    monkeypatch.setattr(live, "last_record", read_meanwhile)
    assert cells(shown(progress), RUNS[0]) == ["0.00%", "12.50%", "done"]


def test_a_small_screen_shows_what_is_under_way(tmp_path):
    progress = Progress(RUNS, tmp_path, "three runs")
    write(tmp_path, RUNS[2], epoch=1.0)
    progress.note(RunResult(RUNS[0], "finished", {"epoch": 4.0, "status": "finished"}))
    text = shown(progress, rows=1)
    assert label(RUNS[2]) in text
    assert label(RUNS[0]) not in text


@pytest.mark.parametrize(
    "contents",
    [b"", b'{"run": {}}\n', b'{"run": {}}\n{"epoch": 1', b"nonsense\n", b"[" * 10**5 + b"\n", b"3\n", b"\xff\n"],
)
def test_what_is_no_record_is_none(tmp_path, contents):
    (tmp_path / "records.jsonl").write_bytes(contents)
    assert last_record(tmp_path) is None


def test_the_last_whole_record_counts(tmp_path):
    assert last_record(tmp_path) is None
    write(tmp_path, RUNS[0], epoch=1.0, torn='{"epoch": 2.0, "sta')
    assert last_record(tmp_path / RUNS[0].id)["epoch"] == 1.0


def test_a_row_says_what_is_not_as_usual():
    assert label(tiny.run(rate=0.2, match="noise", network="spots")) == (
        "evolutional, rate 0.2, match noise, step 0.05, seed 0"
    )
    assert (
        label(Run(dataset="words", network="linear", method="standard", seed=1, lr=0.1, epochs=1))
        == "standard, step 0.1, seed 1"
    )


def test_a_terminal_gets_a_table_and_a_file_gets_lines(tmp_path):
    ending = RunResult(RUNS[0], "failed", error="OSError: [bold]no room", seconds=1.0)
    for is_terminal in (False, True):
        console = Console(file=io.StringIO(), width=100, height=30, force_terminal=is_terminal, color_system=None)
        with watching(RUNS, tmp_path, "three runs [/of] svm", console) as tell:
            tell(ending)
        text = console.file.getvalue()
        assert "seed 0: failed, OSError: [bold]no room (1.0 s)" in text
        assert ("three runs [/of] svm" in text) == is_terminal
