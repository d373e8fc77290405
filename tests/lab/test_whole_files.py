from __future__ import annotations

import errno
import os
import stat

import pytest

from evodrop.lab.store import write_whole


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_whole(path, b"old")

    def full(_):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for shared in (False, True):
        with pytest.raises(OSError, match="no space"):
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


def failing_for_folders(number):
    def fsync(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))

    return fsync


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_that_cannot_flush_a_folder(tmp_path, monkeypatch, number):
    monkeypatch.setattr(os, "fsync", failing_for_folders(number))
    write_whole(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"


def test_a_disk_that_fails_is_told_of(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", failing_for_folders(errno.EIO))
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        write_whole(tmp_path / "file", b"new")


def test_two_who_write_the_same_file_do_not_mix(tmp_path, monkeypatch):
    """Another writes all of it while we wait for the disk."""
    path = tmp_path / "file"
    flush = os.fsync

    def overtaken(descriptor):
        flush(descriptor)
        monkeypatch.setattr(os, "fsync", flush)
        write_whole(path, b"theirs", shared=True)
        assert path.read_bytes() == b"theirs"

    monkeypatch.setattr(os, "fsync", overtaken)
    write_whole(path, b"ours", shared=True)
    assert path.read_bytes() == b"ours"
    assert os.listdir(tmp_path) == ["file"]
