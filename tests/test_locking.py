from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import signal
import socket

import pytest

from evodrop.experiments.store import RunFolder
from evodrop.locking import FolderLock, LockedError

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
            pytest.raises(
                LockedError, match=f"is being written by process {process.pid} on {socket.gethostname()}; wait"
            ),
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


def test_a_lock_removed_while_it_was_being_opened_is_not_taken_for_held(tmp_path, monkeypatch):
    """The holder unlinks the file between our open and our flock: we would hold a file that nobody else can see."""
    flock, taken = fcntl.flock, []

    def lose_and_lock(descriptor, how):
        if not taken:
            (tmp_path / "lock").unlink()
        taken.append(descriptor)
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", lose_and_lock)
    with FolderLock(tmp_path):
        assert len(taken) == 2
        with pytest.raises(LockedError):
            FolderLock(tmp_path).__enter__()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks(tmp_path, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    before = descriptors()
    with pytest.raises(OSError, match=rf"{os.strerror(number)}\): this file system has no locks; name an --out"):
        FolderLock(tmp_path).__enter__()
    assert descriptors() == before


def test_a_lock_whose_holder_cannot_be_written_is_given_back(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = descriptors()
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", refuse)
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            FolderLock(tmp_path).__enter__()
    assert descriptors() == before
    with FolderLock(tmp_path):
        pass


def descriptors():
    return sorted(os.listdir("/dev/fd"))
