from __future__ import annotations

import os

import pytest

from evodrop import durable
from evodrop.durable import write_whole


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_whole(path, b"old")

    def full(_):
        raise OSError("no space left on device")

    monkeypatch.setattr(durable, "flush_to_disk", full)
    with pytest.raises(OSError, match="no space"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]
