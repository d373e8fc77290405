"""An experiment has its folder to itself."""

from __future__ import annotations

import os

import pytest

from evodrop.lab.running import experiment
from evodrop.lab.running.comparison import Question, compare
from evodrop.lab.store import LockedError, locked

SHORT = Question(methods=("standard",), seeds=1, epochs=1)


@pytest.mark.parametrize("question", [SHORT, SHORT._replace(rate="tune", epochs=4)])
def test_a_second_command_is_refused_before_it_has_written_anything(tmp_path, question):
    (tmp_path / "experiment.json").write_text("of the first command")
    with locked(tmp_path):
        with pytest.raises(LockedError, match="is being written by process"):
            compare(question, tmp_path, jobs=1)
        assert sorted(os.listdir(tmp_path)) == ["experiment.json", "lock"]
    assert (tmp_path / "experiment.json").read_text() == "of the first command"


def test_the_folder_is_held_until_the_report_is_written(tmp_path, monkeypatch):
    held, whole = [], experiment.conclude

    def conclude(folders, out, *rest):
        with pytest.raises(LockedError):
            locked(out).__enter__()
        held.append(out)
        return whole(folders, out, *rest)

    monkeypatch.setattr(experiment, "conclude", conclude)
    compare(SHORT._replace(rate="tune", epochs=4), tmp_path, jobs=1)
    assert held == [tmp_path]
    with locked(tmp_path):  # and free afterwards
        pass
