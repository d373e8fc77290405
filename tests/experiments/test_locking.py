from __future__ import annotations

import multiprocessing
import os
import signal

import pytest

from evodrop.experiments.locking import FolderLock, LockedError
from evodrop.experiments.records import RunFolder

HEADER = {"run": {"seed": 0}, "data": "abc"}


def hold(path, connection):
    with FolderLock(path):
        connection.send(os.getpid())
        signal.pause()


def holder(path):
    """A process that holds the lock until it is killed."""
    here, there = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=hold, args=(path, there), daemon=True)
    process.start()
    assert here.poll(60)
    assert here.recv() == process.pid
    return process


def test_a_second_process_is_told_who_writes_and_a_killed_one_leaves_no_lock(tmp_path):
    process = holder(tmp_path)
    try:
        with (
            pytest.raises(LockedError, match=f"is being written by process {process.pid}; wait"),
            RunFolder(tmp_path, HEADER),
        ):
            pass
        assert not (tmp_path / "records.jsonl").exists()
    finally:
        process.kill()
        process.join()
    assert (tmp_path / "lock").exists()
    with RunFolder(tmp_path, HEADER):
        pass
    assert os.listdir(tmp_path) == ["records.jsonl"]


def test_the_same_process_cannot_write_twice_either(tmp_path):
    with RunFolder(tmp_path, HEADER), pytest.raises(LockedError, match=f"process {os.getpid()}"):
        RunFolder(tmp_path, HEADER).__enter__()
    with RunFolder(tmp_path, HEADER):
        pass


def test_a_lock_removed_while_it_was_being_opened_is_not_taken_for_held(tmp_path):
    """The holder unlinks the file between our open and our flock: we would hold a file that nobody else can see."""
    lock = FolderLock(tmp_path)
    take, taken = lock._take, []

    def take_and_lose():
        descriptor = take()
        if not taken:
            (tmp_path / "lock").unlink()
        taken.append(descriptor)
        return descriptor

    lock._take = take_and_lose
    with lock, pytest.raises(LockedError):
        FolderLock(tmp_path).__enter__()
    assert len(taken) == 2
