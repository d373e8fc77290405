"""Event files: by a stand-in for TensorBoard's writer, which makes a file each time as it does, and by itself."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers.synthetic import curve

from evodrop.lab import cli
from evodrop.lab.report import write_events
from evodrop.lab.verdicts import outcomes_of


@pytest.fixture
def written(monkeypatch):
    """What the stand-in was given, by file."""
    contents, numbers = {}, itertools.count()

    class Writer:
        def __init__(self, folder):
            self.path = Path(folder) / f"events.out.tfevents.{next(numbers)}.host"
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.touch()
            self.lines = contents.setdefault(self.path, [])

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def add_scalar(self, *line):
            self.lines.append(line)

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=Writer))
    return contents


def test_event_files_written_twice_hold_each_curve_once(tmp_path, written):
    outcomes = outcomes_of([curve(tmp_path / "runs", [0.5, 0.25])])
    for _ in range(2):
        folder = write_events(outcomes, tmp_path / "events")
        (path,) = folder.glob("*/*")
        assert [line for line in written[path] if line[0] == "test error"] == [
            ("test error", 0.5, 100),
            ("test error", 0.25, 200),
        ]


def test_other_files_in_the_folder_stay(tmp_path, written):
    outcomes = outcomes_of([curve(tmp_path / "runs", [0.5])])
    folder = write_events(outcomes, tmp_path / "events")
    other = next(folder.iterdir()) / "notes.txt"
    other.write_text("mine")
    write_events(outcomes, folder)
    assert other.read_text() == "mine"


def test_without_tensorboard_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    run = curve(tmp_path / "runs", [0.5]).folder
    with pytest.raises(SystemExit, match="evodrop: event files need TensorBoard; install tensorboard"):
        cli.main(["report", str(run), "--out", str(tmp_path / "out"), "--tensorboard"])
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_tensorboard_reads_what_was_written(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = curve(tmp_path / "runs", [0.5, 0.25])
    folder = write_events(outcomes_of([run]), tmp_path / "events")
    events = accumulator.EventAccumulator(str(folder / run.folder.name)).Reload()
    assert events.Tags()["scalars"] == ["training error on clean data", "test error"]  # it has no other
    assert [(event.step, event.value) for event in events.Scalars("test error")] == [(100, 0.5), (200, 0.25)]
