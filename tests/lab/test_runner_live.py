"""What is shown while runs go on, read from files that others write."""

from __future__ import annotations

import io
import json
from contextlib import nullcontext

import pytest
from helpers import tiny
from rich.console import Console

from evodrop.lab import runner
from evodrop.lab.run import Run, RunResult
from evodrop.lab.runner import label, last_record, watching

RUNS = [tiny.run(seed=seed) for seed in range(3)]


def write(out, run, epoch, status="running", error=0.25, torn=""):
    folder = out / run.id
    folder.mkdir(exist_ok=True)
    record = {"epoch": epoch, "status": status, "clean_error": error, "test_error": 2 * error}
    (folder / "records.jsonl").write_text(f'{{"run": {{}}}}\n{json.dumps(record)}\n{torn}')


class Screen:
    """A terminal whose clock stands still, and which shows the table when it is asked, not in a thread."""

    def __init__(self, monkeypatch):
        self.now, self.look = 100.0, None
        self.console = self.page(30)
        monkeypatch.setattr(runner, "Live", self.live)

    def page(self, height):
        return Console(
            file=io.StringIO(),
            width=120,
            height=height,
            force_terminal=True,
            color_system=None,
            get_time=lambda: self.now,
        )

    def live(self, get_renderable, **_):
        self.look = get_renderable
        return nullcontext()

    def text(self):
        """The table as it is now."""
        page = self.page(30)
        page.print(self.look())
        return page.file.getvalue()


@pytest.fixture
def screen(monkeypatch):
    return Screen(monkeypatch)


def row(text, run):
    return next(line for line in text.splitlines() if label(run) in line)


def cells(text, run):
    return row(text, run).split()[-3:]


def test_the_table_follows_the_records(tmp_path, screen):
    with watching(RUNS, tmp_path, "three runs", screen.console):
        assert cells(screen.text(), RUNS[0]) == ["-", "-", "waiting"]
        write(tmp_path, RUNS[0], epoch=1.0)
        screen.now += 10
        assert cells(screen.text(), RUNS[0]) == ["25.00%", "50.00%", "?"]
        write(tmp_path, RUNS[0], epoch=2.0, error=0.125)
        screen.now += 20
        text = screen.text()
    assert cells(text, RUNS[0]) == ["12.50%", "25.00%", "0:00:40"]
    assert "0 of 3 runs done; 0:03:20 left" in text  # a quarter of a run took 20 seconds
    assert "training error" in text


def test_runs_that_were_begun_before_count_from_where_they_were(tmp_path, screen):
    write(tmp_path, RUNS[0], epoch=3.0)
    with watching(RUNS[:1], tmp_path, "one run", screen.console):
        assert cells(screen.text(), RUNS[0])[2] == "waiting"
        for epoch in (3.25, 3.5):
            write(tmp_path, RUNS[0], epoch=epoch)
            screen.now += 7
            text = screen.text()
    assert cells(text, RUNS[0])[2] == "0:00:14"
    assert "0 of 1 runs done; 0:00:14 left" in text


def test_endings_are_told_in_a_line_and_in_the_table(tmp_path, screen):
    record = {"epoch": 4.0, "status": "diverged", "clean_error": None, "test_error": None}
    endings = [
        RunResult(RUNS[1], "diverged", record, seconds=2.0),
        RunResult(RUNS[2], "failed", error="OSError: no room", remarks=("began again",)),
    ]
    page = Console(file=io.StringIO(), width=100)
    with watching(RUNS, tmp_path, "three runs", page) as take, watching(RUNS, tmp_path, "", screen.console) as show:
        for ending in endings:
            take(ending)
            show(ending)
        text = screen.text()
    assert page.file.getvalue().splitlines() == [
        "[1/3] tiny evolutional, step 0.05, seed 1: diverged, training error -, test error - (2.0 s)",
        "[2/3] tiny evolutional, step 0.05, seed 2: failed, OSError: no room (0.0 s)",
        "    began again",
    ]
    assert "seed 1: diverged" not in screen.console.file.getvalue()  # its row says it
    assert "seed 2: failed" in screen.console.file.getvalue()
    assert cells(text, RUNS[1])[2] == "diverged"
    assert cells(text, RUNS[2])[2] == "failed"
    assert "2 of 3 runs done, 1 failed" in text


def test_runs_that_choose_a_rate_have_a_validation_error(tmp_path, screen):
    trial = tiny.run(dataset="validation:spots")
    record = {"epoch": 4.0, "status": "finished", "clean_error": 0.5, "test_error": 0.25}
    page = Console(file=io.StringIO(), width=140)
    with watching([trial], tmp_path, "a trial", page) as take:
        take(RunResult(trial, "finished", record))
    assert "training error 50.00%, validation error 25.00%" in page.file.getvalue()
    with watching([trial], tmp_path, "a trial", screen.console):
        assert "validation error" in screen.text()
        assert "test error" not in screen.text()


def test_when_all_is_done_no_time_is_left(tmp_path, screen):
    """Runs that were done before take no time, so that nobody could say how fast they were."""
    for run in RUNS:
        write(tmp_path, run, epoch=4.0, status="finished")
    with watching(RUNS, tmp_path, "three runs", screen.console) as take:
        for run in RUNS:
            assert "; 0:00:00 left" in screen.text()
            take(RunResult(run, "finished", {"epoch": 4.0, "status": "finished"}))
        text = screen.text()
    assert "3 of 3 runs done" in text
    assert " left" not in text.replace("time left", "")


def test_a_run_that_ends_while_its_records_are_read_is_shown_as_ended(tmp_path, screen, monkeypatch):
    """The table is made in another thread than the one that hears of endings: the next look has it right."""
    last = {"epoch": 4.0, "status": "finished", "clean_error": 0.0, "test_error": 0.125}
    with watching(RUNS[:1], tmp_path, "one run", screen.console) as take:

        def read_meanwhile(_):
            take(RunResult(RUNS[0], "finished", last))
            return {"epoch": 3.0, "status": "running", "clean_error": 0.5, "test_error": 0.5}

        monkeypatch.setattr(runner, "last_record", read_meanwhile)
        screen.text()
        assert cells(screen.text(), RUNS[0]) == ["0.00%", "12.50%", "done"]


def test_a_small_screen_shows_what_is_under_way(tmp_path, screen):
    with watching(RUNS, tmp_path, "three runs", screen.page(runner.FRAME + 1)) as take:
        write(tmp_path, RUNS[2], epoch=1.0)
        take(RunResult(RUNS[0], "finished", {"epoch": 4.0, "status": "finished"}))
        text = screen.text()
    assert label(RUNS[2]) in text
    assert label(RUNS[0]) not in text
    assert len(text.splitlines()) <= runner.FRAME


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
