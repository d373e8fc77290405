from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from evodrop.experiments.records.folder import (
    RecordsError,
    RunFolder,
    read_records,
    read_timings,
    seconds_per_iteration,
)

HEADER = {"run": {"seed": 0}, "data": "abc", "environment": {"torch": "2"}}
LINES = [{"iteration": 1, "status": "running"}, {"iteration": 2, "status": "running"}]


def filled(path):
    with RunFolder(path, HEADER) as folder:
        for line in LINES:
            folder.append(line)
    return path / "records.jsonl"


def test_a_header_and_a_line_for_each_record(tmp_path):
    path = filled(tmp_path)
    assert [json.loads(line) for line in path.read_text().splitlines()] == [HEADER, *LINES]
    assert read_records(tmp_path) == (HEADER, LINES)
    assert os.listdir(tmp_path) == ["records.jsonl"]


def test_a_folder_is_made_if_it_is_missing(tmp_path):
    filled(tmp_path / "a" / "b")
    assert read_records(tmp_path / "a" / "b")[1] == LINES


def test_a_line_torn_anywhere_is_repaired(tmp_path):
    path = filled(tmp_path)
    whole = path.read_bytes()
    second, third = whole.index(b"\n") + 1, whole[:-1].rindex(b"\n") + 1
    for length in range(second, len(whole)):
        path.write_bytes(whole[:length])
        kept = LINES[: (length >= third)]
        assert read_records(tmp_path)[1] == kept
        assert path.stat().st_size == length  # who only reads repairs nothing
        with RunFolder(tmp_path, HEADER) as folder:
            assert folder.records == kept
            folder.append(LINES[1])
        assert read_records(tmp_path)[1] == [*kept, LINES[1]]


@pytest.mark.parametrize("damage", [b"\0" * 40 + b"\n", b'{"iteration": \xff\n', b"[" * 100_000 + b"\n", b"[1]\n"])
def test_a_last_line_of_garbage_is_cut_off(tmp_path, damage):
    path = filled(tmp_path)
    path.write_bytes(path.read_bytes() + damage)
    assert read_records(tmp_path)[1] == LINES
    with RunFolder(tmp_path, HEADER) as folder:
        assert folder.records == LINES
    assert len(path.read_bytes().splitlines()) == 3


def test_a_torn_header_is_a_fresh_start(tmp_path):
    path = filled(tmp_path)
    path.write_bytes(path.read_bytes()[:10])
    with RunFolder(tmp_path, HEADER) as folder:
        assert folder.records == []
    assert read_records(tmp_path) == (HEADER, [])


def test_damage_in_the_middle_is_told(tmp_path):
    path = filled(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"garbage\n" + lines[2])
    with pytest.raises(RecordsError, match=r"line 2 of .*records\.jsonl is not a JSON object; restore"):
        read_records(tmp_path)
    with pytest.raises(RecordsError, match="line 2"), RunFolder(tmp_path, HEADER):
        pass
    assert os.listdir(tmp_path) == ["records.jsonl"]  # the lock is gone


def test_every_record_is_on_the_disk_before_the_next(tmp_path, monkeypatch):
    """So a failure of the power cannot tear two lines."""
    flushed, whole = [], os.fsync

    def fsync(descriptor):
        flushed.append((os.fstat(descriptor).st_ino, os.fstat(descriptor).st_size))
        whole(descriptor)

    with RunFolder(tmp_path, HEADER) as folder:
        monkeypatch.setattr(os, "fsync", fsync)
        for line in LINES:
            folder.append(line)
            found = (tmp_path / "records.jsonl").stat()
            assert flushed[-1:] == [(found.st_ino, found.st_size)]


@pytest.mark.parametrize("damage", [b"\0\0\n{}\n", b"\0\n\0\n", b"\0\n{"])
def test_damaged_timings_are_cut_off_and_stop_no_run(tmp_path, damage):
    with RunFolder(tmp_path, HEADER) as folder:
        folder.remark({"iteration": 1, "median_seconds": 0.5})
    with open(tmp_path / "timings.jsonl", "ab") as file:
        file.write(damage)
    assert seconds_per_iteration(tmp_path) == 0.5
    with RunFolder(tmp_path, HEADER) as folder:
        folder.remark({"iteration": 2, "median_seconds": 1.5})
    assert [line["iteration"] for line in read_timings(tmp_path)] == [1, 2]


@pytest.mark.parametrize(("part", "value"), [("run", {"seed": 1}), ("data", "abd")])
def test_the_folder_of_another_run_is_left_alone(tmp_path, part, value):
    before = filled(tmp_path).read_bytes()
    with (
        pytest.raises(RecordsError, match=f"holds another run: its {part} is "),
        RunFolder(tmp_path, HEADER | {part: value}),
    ):
        pass
    assert (tmp_path / "records.jsonl").read_bytes() == before


def test_a_file_that_is_no_record_is_left_alone(tmp_path):
    (tmp_path / "records.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(RecordsError, match="does not begin with the header"), RunFolder(tmp_path, HEADER):
        pass
    with pytest.raises(RecordsError, match="does not begin with the header"):
        read_records(tmp_path)
    with pytest.raises(RecordsError, match=r"there is no records\.jsonl in"):
        read_records(tmp_path / "nowhere")


def test_another_environment_may_go_on_and_the_header_stays(tmp_path):
    filled(tmp_path)
    with RunFolder(tmp_path, HEADER | {"environment": {"torch": "3"}}) as folder:
        assert folder.header == HEADER
        assert folder.records == LINES


def test_going_back_to_a_mark(tmp_path):
    with RunFolder(tmp_path, HEADER) as folder:
        folder.append(LINES[0])
        mark = folder.mark()
        folder.append(LINES[1])
        folder.go_back(mark)
        assert folder.records == LINES[:1]
    assert read_records(tmp_path)[1] == LINES[:1]


@pytest.mark.parametrize("change", [{"bytes": 10**6}, {"bytes": -5}, {"digest": "0" * 64}, {"bytes": 0}])
def test_a_mark_that_does_not_fit_changes_nothing(tmp_path, change):
    path = filled(tmp_path)
    before = path.read_bytes()
    with RunFolder(tmp_path, HEADER) as folder, pytest.raises(RecordsError, match="have changed"):
        folder.go_back(folder.mark() | change)
    assert path.read_bytes() == before


def test_beginning_anew_forgets_records_and_checkpoint(tmp_path):
    filled(tmp_path)
    with RunFolder(tmp_path, HEADER | {"environment": {"torch": "3"}}) as folder:
        folder.checkpoint.write_bytes(b"old")
        folder.restart()
        assert folder.records == []
    assert read_records(tmp_path) == (HEADER | {"environment": {"torch": "3"}}, [])
    assert os.listdir(tmp_path) == ["records.jsonl"]


def test_a_full_disk_is_an_error_and_leaves_what_can_be_repaired(tmp_path):
    """Run under a limit on the size of files, in a process of its own, since the limit cannot be lifted."""
    code = f"""
import resource, signal
from evodrop.experiments.records.folder import RunFolder
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with RunFolder({str(tmp_path)!r}, {HEADER!r}) as folder:
    folder.append({LINES[0]!r})
    size = (folder.path / "records.jsonl").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 5, size + 5))
    folder.append({LINES[1]!r})
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "OSError: [Errno 27] File too large" in answer.stderr
    assert (tmp_path / "records.jsonl").read_bytes()[-5:] == b'{"ite'
    with RunFolder(tmp_path, HEADER) as folder:
        folder.append(LINES[1])
    assert read_records(tmp_path)[1] == LINES


def test_numbers_that_json_does_not_know_are_refused(tmp_path):
    with RunFolder(tmp_path, HEADER) as folder, pytest.raises(ValueError, match="not JSON compliant"):
        folder.append({"loss": float("nan")})
    assert read_records(tmp_path)[1] == []


def test_seconds_per_iteration_are_the_median_of_the_stretches(tmp_path):
    assert seconds_per_iteration(tmp_path) is None
    with RunFolder(tmp_path, HEADER) as folder:
        for seconds in (9.0, 0.5, 0.1):
            folder.remark({"iteration": 1, "median_seconds": seconds})
        folder.remark({"event": "start"})
        folder.remark({"iteration": 4, "median_seconds": None})
    assert seconds_per_iteration(tmp_path) == 0.5
    with open(tmp_path / "timings.jsonl", "ab") as file:
        file.write(b'{"event"')
    assert len(read_timings(tmp_path)) == 5
