"""The folder of a run through its whole life: begun, stopped, damaged, resumed, finished."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import json
import multiprocessing
import os
import pickle
import shutil
import signal
import socket
import stat
import subprocess
import sys
import warnings
import zipfile
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import tiny

from evodrop.lab import store
from evodrop.lab.methods import USUAL
from evodrop.lab.run import Run
from evodrop.lab.store import (
    LockedError,
    RecordsError,
    finished_records,
    keep_records,
    locked,
    read_records,
    read_timings,
    write_whole,
)

EARLIER = Path(__file__).parent / "earlier"  # folders that the first version of the store wrote
FILES = ["records.jsonl", "timings.jsonl"]


def live(folder, stop=None, **fields):
    """The records of a run in this folder, up to a number of them, with a checkpoint after every step."""
    stream = keep_records(tiny.training(**fields), folder, every=0)
    records = list(islice(stream, stop))
    stream.close()
    return records


def contents(folder):
    return (folder / "records.jsonl").read_bytes()


def starts(folder):
    return [line for line in read_timings(folder) if line.get("event") == "start"]


def snapshot(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def load(path):
    return torch.load(io.BytesIO(path.read_bytes()[32:]), weights_only=True)


def with_digest(data):
    return hashlib.sha256(data).digest() + data


# A life without trouble


def test_what_is_kept_is_what_is_yielded(tmp_path):
    records = live(tmp_path / "a" / "b")
    assert records == list(tiny.training().records())
    header, kept = read_records(tmp_path / "a" / "b")
    assert kept == records
    assert list(header) == ["run", "data", "environment", "git"]
    assert header["run"] == tiny.run().to_dict()
    assert header["data"] == tiny.pixels()[-1]
    assert sorted(os.listdir(tmp_path / "a" / "b")) == FILES


def test_no_seconds_in_the_records_but_in_the_timings(tmp_path):
    live(tmp_path)
    assert b"second" not in contents(tmp_path)
    start, *stretches, end = read_timings(tmp_path)
    assert (start["event"], start["iteration"], start["pid"], start["trouble"]) == ("start", 0, os.getpid(), None)
    assert [(line["iteration"], line["steps"]) for line in stretches] == [
        (3, 3),
        (6, 3),
        (9, 3),
        (12, 3),
        (15, 3),
        (16, 1),
    ]
    assert all(0 < line["median_seconds"] <= line["seconds"] for line in stretches)
    assert all(line["median_cpu_seconds"] > 0 for line in stretches)
    assert end == {"event": "end", "status": "finished"}


def test_every_line_is_strict_json(tmp_path):
    live(tmp_path, lr=1e30)

    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    for line in contents(tmp_path).splitlines():
        json.loads(line, parse_constant=refuse)


def test_every_record_is_on_the_disk_before_it_is_given(tmp_path, monkeypatch):
    """So a failure of the power cannot tear two lines."""
    flushed, whole = [], os.fsync

    def fsync(descriptor):
        flushed.append((os.fstat(descriptor).st_ino, os.fstat(descriptor).st_size))
        whole(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    for _ in keep_records(tiny.training(), tmp_path):
        found = (tmp_path / "records.jsonl").stat()
        assert flushed[-1:] == [(found.st_ino, found.st_size)]


def test_checkpoints_come_by_the_clock(tmp_path, monkeypatch):
    saved = []
    monkeypatch.setattr(store, "_save", lambda _, state: saved.append(state["training"]["iteration"]))
    list(keep_records(tiny.training(), tmp_path / "never", every=1000))
    assert saved == []
    list(keep_records(tiny.training(), tmp_path / "always", every=0))
    assert saved == list(range(1, 16))


# Stopped, and resumed


@pytest.mark.parametrize("method", USUAL)
def test_stopped_anywhere_it_resumes_to_the_same_records(tmp_path, method):
    whole = live(tmp_path / "whole", method=method)
    for stop in range(1, len(whole)):
        assert live(tmp_path / str(stop), stop, method=method) == whole[:stop]
        assert live(tmp_path / str(stop), method=method) == whole
        assert contents(tmp_path / str(stop)) == contents(tmp_path / "whole")
        assert starts(tmp_path / str(stop))[1]["iteration"] == 3 * stop - 1  # it did not begin again


def test_stopped_at_every_record_it_resumes_to_the_same_records(tmp_path):
    whole = live(tmp_path / "whole")
    for stop in range(1, len(whole) + 1):
        live(tmp_path / "often", stop)
    assert contents(tmp_path / "often") == contents(tmp_path / "whole")


def test_a_finished_run_is_not_repeated(tmp_path):
    records, before = live(tmp_path), contents(tmp_path)
    assert finished_records(tmp_path, tiny.run()) == records
    timings = read_timings(tmp_path)
    for name in ("checkpoint.bin", ".checkpoint.bin.part", ".records.jsonl.part", "lock"):
        (tmp_path / name).write_bytes(b"left by a kill after the last record")
    assert finished_records(tmp_path, tiny.run()) is None
    assert live(tmp_path) == records
    assert contents(tmp_path) == before
    assert read_timings(tmp_path) == timings
    assert sorted(os.listdir(tmp_path)) == FILES


def test_what_is_not_finished_is_not_called_so(tmp_path):
    assert finished_records(tmp_path, tiny.run()) is None
    live(tmp_path, 3)
    assert finished_records(tmp_path, tiny.run()) is None
    live(tmp_path)
    assert finished_records(tmp_path, tiny.run(seed=1)) is None


def test_a_diverged_run_is_finished(tmp_path):
    records = live(tmp_path, lr=1e30)
    assert records[-1]["status"] == "diverged"
    assert finished_records(tmp_path, tiny.run(lr=1e30)) == records
    assert live(tmp_path, lr=1e30) == records


def test_records_after_the_checkpoint_are_made_again(tmp_path):
    whole = live(tmp_path / "whole")
    run = tmp_path / "run"
    live(run, 3)
    checkpoint = (run / "checkpoint.bin").read_bytes()
    live(run, 5)
    (run / "checkpoint.bin").write_bytes(checkpoint)
    with open(run / "records.jsonl", "ab") as file:
        file.write(b'{"iteration": 1')
    assert live(run) == whole
    assert contents(run) == contents(tmp_path / "whole")


@pytest.mark.parametrize("keep", [0, 1, 2])
def test_records_that_were_lost_come_back_from_the_checkpoint(tmp_path, keep):
    whole = live(tmp_path / "whole")
    live(tmp_path / "run", 4)
    lines = contents(tmp_path / "run").splitlines(keepends=True)
    (tmp_path / "run" / "records.jsonl").write_bytes(b"".join(lines[:keep]))
    assert live(tmp_path / "run") == whole
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")
    assert starts(tmp_path / "run")[1]["iteration"] == 11


def test_without_a_checkpoint_it_begins_again_in_silence(tmp_path):
    """As after a kill before the first one."""
    whole = live(tmp_path / "whole")
    live(tmp_path / "run", 2)
    (tmp_path / "run" / "checkpoint.bin").unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert live(tmp_path / "run") == whole


def test_resuming_in_another_environment_is_a_warning_and_the_header_stays(tmp_path, monkeypatch):
    live(tmp_path, 2)
    monkeypatch.setattr(store, "describe_environment", lambda _ranks: {"torch": "9.9"})
    words = r"resumes in another environment, so its last digits may differ: .*became .*9\.9"
    with pytest.warns(RuntimeWarning, match=words):
        live(tmp_path)
    header, _ = read_records(tmp_path)
    assert header["environment"]["torch"] != "9.9"
    assert [start["environment"]["torch"] == "9.9" for start in starts(tmp_path)] == [False, True]


# Damaged checkpoints: the run begins again


def hostile(state):
    class Payload:
        def __reduce__(self):
            return os.system, ("touch executed",)

    return with_digest(pickle.dumps(state | {"payload": Payload()}))


def changed(path, **values):
    """The checkpoint with other values in its state, and a digest that fits."""
    state = load(path)
    store._save(path, state | {"training": state["training"] | values})


DAMAGES = {
    "empty": lambda path: path.write_bytes(b""),
    "torn": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "flipped": lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\1"),
    "hostile": lambda path: path.write_bytes(hostile({})),
    "bare": lambda path: store._save(path, {}),
    "no dict": lambda path: store._save(path, [1]),
    "a tensor": lambda path: store._save(path, torch.ones(2)),
    "records that are no text": lambda path: store._save(path, load(path) | {"records": 3}),
    "records that are no JSON": lambda path: store._save(path, load(path) | {"records": "{"}),
    "too late": lambda path: changed(path, iteration=16),
    "other network": lambda path: changed(path, network={"weight": torch.zeros(2)}),
    "half of a network": lambda path: changed(
        path, network=load(path)["training"]["network"] | {"7.bias": torch.zeros(9)}
    ),
    "other noise": lambda path: changed(path, noise=torch.zeros(2, dtype=torch.uint8)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_after_a_damaged_checkpoint_the_run_begins_again_with_a_warning(tmp_path, monkeypatch, damage):
    monkeypatch.chdir(tmp_path)
    whole = live(tmp_path / "whole")
    live(tmp_path / "run", 3)
    DAMAGES[damage](tmp_path / "run" / "checkpoint.bin")
    with pytest.warns(RuntimeWarning, match=r"run begins again, since its checkpoint is of no use: \w+"):
        assert live(tmp_path / "run") == whole
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")
    assert [start["trouble"] is None for start in starts(tmp_path / "run")] == [True, False]
    assert sorted(os.listdir(tmp_path)) == ["run", "whole"]  # nothing was executed


def test_a_checkpoint_has_all_bits_of_the_state(tmp_path):
    state = {"iteration": 7, "open": {"loss": 0.1 + 0.2}, "velocities": [torch.arange(6.0).view(2, 3).t(), None]}
    store._save(tmp_path / "c", state)
    loaded = load(tmp_path / "c")
    assert loaded["open"] == state["open"]
    assert torch.equal(loaded["velocities"][0], state["velocities"][0])
    assert loaded["velocities"][0].stride() == state["velocities"][0].stride()
    assert os.listdir(tmp_path) == ["c"]


@pytest.fixture
def checkpoint(tmp_path):
    """The checkpoint of a run, and a function that loads it into a training."""
    live(tmp_path, 3)
    header, path = read_records(tmp_path)[0], tmp_path / "checkpoint.bin"
    training = tiny.training()
    return path, lambda: store._load(path, training, header)


def test_damage_is_noticed_wherever_it_is(checkpoint):
    path, read = checkpoint
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    for _ in range(300):
        data = bytearray(whole)
        data[rng.integers(len(data))] ^= 1 << rng.integers(8)
        path.write_bytes(data)
        with pytest.raises(ValueError, match="its contents do not fit its digest"):
            read()
    for length in [0, 1, 31, 32, 33, *rng.integers(34, len(whole), 50)]:
        path.write_bytes(whole[:length])
        with pytest.raises((ValueError, EOFError)):
            read()
    path.write_bytes(whole)
    assert [line.get("iteration") for line in read()] == [None, 3, 6]


class Hostile:
    def __reduce__(self):
        return os.system, ("touch executed",)


def as_torch_file(pickled):
    """A file in torch's format around a pickle of our own."""
    buffer = io.BytesIO()
    torch.save({"a": 1}, buffer)
    repacked = io.BytesIO()
    with zipfile.ZipFile(buffer) as old, zipfile.ZipFile(repacked, "w", zipfile.ZIP_STORED) as new:
        for name in old.namelist():
            new.writestr(name, pickled if name.endswith("data.pkl") else old.read(name))
    return repacked.getvalue()


@pytest.mark.parametrize("pack", [as_torch_file, bytes], ids=["in torch's format", "bare"])
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_hostile_pickle_is_refused_and_not_run(checkpoint, monkeypatch, pack, protocol):
    path, read = checkpoint
    monkeypatch.chdir(path.parent)
    path.write_bytes(with_digest(pack(pickle.dumps({"a": Hostile()}, protocol))))
    with pytest.raises(pickle.UnpicklingError):
        read()
    assert "executed" not in os.listdir(path.parent)


# Sound checkpoints that are not this run's: nothing is touched


def with_records(path, change):
    state = load(path)
    lines = change(state["records"].splitlines(keepends=True))
    store._save(path, state | {"records": "".join(lines)})


def of_another_run(path):
    live(path.parent / "other", 3, seed=1)
    os.replace(path.parent / "other" / "checkpoint.bin", path)
    shutil.rmtree(path.parent / "other")


REFUSED = {
    "another run's": (of_another_run, "holds another run: its run is"),
    "other data": (
        lambda path: with_records(path, lambda lines: [lines[0].replace('"data":"', '"data":"x'), *lines[1:]]),
        "holds another run: its data is",
    ),
    "a record less": (lambda path: with_records(path, lambda lines: lines[:-1]), "of iteration 8 and holds 1 records"),
    "a record more": (lambda path: with_records(path, lambda lines: [*lines, lines[-1]]), "holds 3 records"),
    "no records": (lambda path: with_records(path, lambda _: []), "every 3 iterations makes 2; restore it"),
    "an older version's": (
        lambda path: store._save(path, {"training": load(path)["training"], "mark": {"bytes": 9, "digest": "0"}}),
        "is of an older evodrop; finish the run with that one",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_sound_checkpoint_that_is_not_this_runs_is_refused_and_all_files_stay(tmp_path, kind):
    live(tmp_path, 3)
    spoil, words = REFUSED[kind]
    spoil(tmp_path / "checkpoint.bin")
    before = snapshot(tmp_path)
    with pytest.raises(RecordsError, match=words):
        live(tmp_path)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("stop", [3, None])
def test_a_checkpoint_that_is_a_folder_is_named(tmp_path, stop):
    live(tmp_path, stop)
    (tmp_path / "checkpoint.bin").unlink(missing_ok=True)
    (tmp_path / "checkpoint.bin").mkdir()
    before = contents(tmp_path)
    with pytest.raises(RecordsError, match=r"checkpoint\.bin is a folder, but a checkpoint is a file; move it away"):
        live(tmp_path)
    assert contents(tmp_path) == before


# Records that are damaged, or somebody else's


def test_a_line_torn_anywhere_does_not_count(tmp_path):
    """Who only reads repairs nothing; the next start begins again, or writes the records from the checkpoint."""
    whole = live(tmp_path / "whole")
    path = tmp_path / "run" / "records.jsonl"
    path.parent.mkdir()
    text = contents(tmp_path / "whole")
    ends = [at + 1 for at in range(len(text)) if text[at : at + 1] == b"\n"]
    for length in range(ends[0], len(text), 37):
        path.write_bytes(text[:length])
        assert read_records(path.parent)[1] == whole[: sum(end <= length for end in ends) - 1]
        assert path.stat().st_size == length
    assert live(path.parent) == whole
    assert contents(path.parent) == text


@pytest.mark.parametrize("damage", [b"\0" * 40 + b"\n", b'{"iteration": \xff\n', b"[" * 100_000 + b"\n", b"[1]\n"])
def test_a_last_line_of_garbage_does_not_count(tmp_path, damage):
    whole = live(tmp_path / "whole")
    records = live(tmp_path / "run", 3)
    with open(tmp_path / "run" / "records.jsonl", "ab") as file:
        file.write(damage)
    assert read_records(tmp_path / "run")[1] == records
    assert live(tmp_path / "run") == whole
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_a_torn_header_is_a_fresh_start(tmp_path):
    live(tmp_path, 1)
    (tmp_path / "checkpoint.bin").unlink()
    (tmp_path / "records.jsonl").write_bytes(contents(tmp_path)[:10])
    assert len(live(tmp_path)) == 6


def test_damage_in_the_middle_is_named_and_left_alone(tmp_path):
    live(tmp_path, 3)
    lines = contents(tmp_path).splitlines(keepends=True)
    (tmp_path / "records.jsonl").write_bytes(lines[0] + b"garbage\n" + lines[2])
    before = snapshot(tmp_path)
    words = r"line 2 of .*records\.jsonl is not a JSON object; restore"
    with pytest.raises(RecordsError, match=words):
        read_records(tmp_path)
    with pytest.raises(RecordsError, match=words):
        live(tmp_path)
    assert snapshot(tmp_path) == before  # and the lock is gone


def test_other_data_or_another_run_in_the_folder_is_refused(tmp_path):
    live(tmp_path, 2)
    before = snapshot(tmp_path)
    other = tiny.training()
    other.fingerprint = "other"
    with pytest.raises(RecordsError, match="its data is"):
        next(keep_records(other, tmp_path))
    with pytest.raises(RecordsError, match="its run is"):
        live(tmp_path, seed=1)
    assert snapshot(tmp_path) == before


def test_a_file_that_is_no_record_is_left_alone(tmp_path):
    (tmp_path / "records.jsonl").write_text('{"a": 1}\n')
    for read in (live, read_records):
        with pytest.raises(RecordsError, match="does not begin with the header"):
            read(tmp_path)
    (tmp_path / "records.jsonl").write_text("")
    with pytest.raises(RecordsError, match="does not begin with the header"):
        read_records(tmp_path)
    with pytest.raises(RecordsError, match=r"there is no records\.jsonl in"):
        read_records(tmp_path / "nowhere")
    assert finished_records(tmp_path / "nowhere", tiny.run()) is None


@pytest.mark.parametrize("damage", [b"\0\0\n{}\n", b"\0\n\0\n", b'{"iter'])
def test_damaged_timings_are_passed_over_and_stop_no_run(tmp_path, damage):
    live(tmp_path, 2)
    with open(tmp_path / "timings.jsonl", "ab") as file:
        file.write(damage)
    live(tmp_path)
    assert len(starts(tmp_path)) == 2
    assert read_timings(tmp_path)[-1] == {"event": "end", "status": "finished"}


FULL = """
import pathlib, resource, signal, sys
sys.path[:0] = {path!r}
from helpers import tiny
from evodrop.lab.store import keep_records
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
stream = keep_records(tiny.training(), pathlib.Path({folder!r}))
next(stream)
size = len(open({folder!r} + "/records.jsonl", "rb").read())
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 5, size + 5))
next(stream)
"""


def test_a_full_disk_is_an_error_and_the_run_can_go_on(tmp_path):
    """Run under a limit on the size of files, in a process of its own, since the limit cannot be lifted."""
    code = FULL.format(path=[str(Path(__file__).parents[1])], folder=str(tmp_path / "run"))
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "records.jsonl cannot be written (File too large); make room on its disk" in answer.stderr
    assert contents(tmp_path / "run")[-5:] == b'{"ite'
    live(tmp_path / "whole")
    live(tmp_path / "run")
    assert read_records(tmp_path / "run")[1] == read_records(tmp_path / "whole")[1]


# Folders of the first version, whose checkpoints held no records


def test_a_finished_folder_of_the_first_version_is_read_and_not_repeated(tmp_path):
    (folder,) = EARLIER.glob("finished/*")
    shutil.copytree(folder, tmp_path / "run")
    before = snapshot(tmp_path / "run")
    header, records = read_records(tmp_path / "run")
    run = Run(**header["run"])
    assert run.id == folder.name
    assert finished_records(tmp_path / "run", run) == records
    assert [record["status"] for record in records][-1] == "finished"
    assert len(read_timings(tmp_path / "run")) == len(records) + 2
    assert snapshot(tmp_path / "run") == before


def test_a_checkpoint_of_the_first_version_is_refused_and_its_files_stay(tmp_path):
    (folder,) = EARLIER.glob("stopped/*")
    shutil.copytree(folder, tmp_path / "run")
    before = snapshot(tmp_path / "run")
    training = tiny.training()
    assert training.run.id == folder.name
    training.fingerprint = read_records(folder)[0]["data"]
    with pytest.raises(RecordsError, match="is of an older evodrop; finish the run with that one"):
        list(keep_records(training, tmp_path / "run"))
    assert snapshot(tmp_path / "run") == before


# Locks


def hold(path, connection):
    with locked(path):
        connection.send(os.getpid())
        signal.pause()


def holder(path):
    """A process that holds the lock until it is killed."""
    here, there = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=hold, args=(path, there), daemon=True)
    process.start()
    assert here.poll(120)
    assert here.recv() == process.pid
    return process


def test_the_holder_of_a_folder_is_named_and_a_killed_one_leaves_no_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "PATIENCE", 0.1)
    process = holder(tmp_path)
    try:
        words = f"is being written by process {process.pid} on {socket.gethostname()}; wait until it ends, or stop it"
        with pytest.raises(LockedError, match=words):
            live(tmp_path)
        assert (tmp_path / "lock").read_text() == f"{process.pid} {socket.gethostname()}\n"
        assert os.listdir(tmp_path) == ["lock"]
    finally:
        process.kill()
        process.join()
    assert (tmp_path / "lock").exists()
    live(tmp_path)
    assert sorted(os.listdir(tmp_path)) == FILES


def test_the_same_process_cannot_write_twice_either(tmp_path):
    with locked(tmp_path), pytest.raises(LockedError, match=f"process {os.getpid()}"), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass
    assert os.listdir(tmp_path) == []


def test_a_lock_removed_while_it_was_being_opened_is_not_taken_for_held(tmp_path, monkeypatch):
    """The holder unlinks the file between our open and our flock: we would hold a file that nobody else can see."""
    flock, taken = fcntl.flock, []

    def lose_and_lock(descriptor, how):
        if not taken:
            (tmp_path / "lock").unlink()
        taken.append(descriptor)
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", lose_and_lock)
    with locked(tmp_path, 1.0):
        assert len(taken) == 2
        with pytest.raises(LockedError), locked(tmp_path):
            pass


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks(tmp_path, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    before = descriptors()
    words = rf"{os.strerror(number)}\): this file system has no locks; name an --out on a local disk"
    with pytest.raises(OSError, match=words), locked(tmp_path):
        pass
    assert descriptors() == before


def test_a_lock_whose_holder_cannot_be_written_is_given_back(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = descriptors()
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", refuse)
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)), locked(tmp_path):
            pass
    assert descriptors() == before
    with locked(tmp_path):
        pass


def descriptors():
    return sorted(os.listdir("/dev/fd"))


# Files that are whole or not there


def failing_for(kind, number):
    def fsync(descriptor):
        if kind(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))

    return fsync


@pytest.mark.parametrize("shared", [False, True])
def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch, shared):
    path = tmp_path / "file"
    write_whole(path, b"old")
    monkeypatch.setattr(os, "fsync", failing_for(stat.S_ISREG, errno.ENOSPC))
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        write_whole(path, b"new", shared=shared)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_all_of_it_is_on_the_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    """A few bytes too: they must not wait in Python's own buffer while the disk is asked."""
    seen = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: seen.append((os.fstat(descriptor), os.listdir(tmp_path))))
    write_whole(tmp_path / "file", b"few")
    (file, before), (folder, after) = seen
    assert (file.st_size, before) == (3, [".file.part"])
    assert stat.S_ISDIR(folder.st_mode)
    assert after == ["file"]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_that_cannot_flush_a_folder(tmp_path, monkeypatch, number):
    monkeypatch.setattr(os, "fsync", failing_for(stat.S_ISDIR, number))
    write_whole(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"


def test_a_disk_that_fails_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", failing_for(stat.S_ISDIR, errno.EIO))
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        write_whole(tmp_path / "file", b"new")


def test_two_who_write_the_same_file_do_not_mix(tmp_path, monkeypatch):
    """Another writes all of it while we wait for the disk."""
    path, fsync = tmp_path / "file", os.fsync

    def overtaken(descriptor):
        fsync(descriptor)
        monkeypatch.setattr(os, "fsync", fsync)
        write_whole(path, b"theirs", shared=True)
        assert path.read_bytes() == b"theirs"

    monkeypatch.setattr(os, "fsync", overtaken)
    write_whole(path, b"ours", shared=True)
    assert path.read_bytes() == b"ours"
    assert os.listdir(tmp_path) == ["file"]
