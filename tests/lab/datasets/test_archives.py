"""CIFAR's archives: members are read, whatever else is in them, and nothing is written, whatever they are called."""

from __future__ import annotations

import bz2
import gzip
import io
import tarfile

import pytest
from refusals import MB, memory_below, refused, written, zeros
from specimens import tar

from evodrop.lab.datasets.archives import read_members

MEMBERS = {"folder/a": b"A" * 700, "folder/b": b"B" * 10}


def tar_gz(members):
    return gzip.compress(tar(members))


def test_members_are_read(tmp_path):
    path = written(tmp_path, tar_gz({"other": b"x" * 5000, **MEMBERS}))
    assert read_members(path, list(MEMBERS), 1000) == MEMBERS
    assert read_members(path, ["folder/b"], 10) == {"folder/b": MEMBERS["folder/b"]}
    assert (
        read_members(written(tmp_path, tar_gz({f"./{k}": v for k, v in MEMBERS.items()})), list(MEMBERS), 1000)
        == MEMBERS
    )
    refused(read_members, path, ["folder/c"], 1000, match="has no file folder/c")
    refused(read_members, path, ["folder/a"], 699, match="more than 699 bytes")


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_dialects_of_tar(tmp_path, form):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz", format=form) as archive:
        info = tarfile.TarInfo("x" * 90 if form == tarfile.USTAR_FORMAT else "x" * 300)
        archive.addfile(info)
        info = tarfile.TarInfo("folder/a")
        info.size, info.mtime, info.pax_headers = 3, 1.5, {"comment": "a" * 700}
        archive.addfile(info, io.BytesIO(b"abc"))
    assert read_members(written(tmp_path, stream.getvalue()), ["folder/a"], 10) == {"folder/a": b"abc"}


def test_members_that_would_go_astray(tmp_path):
    """Links, devices and names that lead out are never followed; nothing is written, whatever they are called."""
    (tmp_path / "secret").write_bytes(b"secret")
    before = sorted(tmp_path.rglob("*"))
    for name, kind, target in (
        ("folder/a", tarfile.SYMTYPE, str(tmp_path / "secret")),
        ("folder/a", tarfile.LNKTYPE, "../secret"),
        ("folder/a", tarfile.CHRTYPE, ""),
        ("folder/a", tarfile.FIFOTYPE, ""),
        ("folder/a", tarfile.DIRTYPE, ""),
        ("../folder/a", tarfile.REGTYPE, ""),
        (str(tmp_path / "new"), tarfile.REGTYPE, ""),
        ("../../new", tarfile.REGTYPE, ""),
    ):
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w:gz") as archive:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, target
            archive.addfile(info)
        path = tmp_path / "file"
        path.write_bytes(stream.getvalue())
        refused(read_members, path, ["folder/a"], 1000, match="has no file folder/a")
        path.unlink()
        assert sorted(tmp_path.rglob("*")) == before


def header(name=b"folder/a", size=b"%011o" % 10, kind=b"0"):
    block = bytearray(512)
    block[: len(name)] = name
    block[124 : 124 + len(size)] = size
    block[148:156] = b" " * 8
    block[156:157] = kind
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


@pytest.mark.parametrize(
    "archive",
    [
        header(size=b"-0000000010"),
        header(size=b"\xff" * 12),  # a negative number in base 256
        header(size=b"\x80" + bytes(10) + b"\x0a"),
        header(size=b"77777777777"),  # 8 GB
        header(name=b"other", size=b"77777777777"),
        header(name=b"other", size=b"77777777777", kind=b"L"),
        header(name=b"other", size=b"77777777777", kind=b"x"),
        header(size=b"9"),
        header(size=b""),
        header()[:-1] + b"x",
        header() + bytes(512) + header() + bytes(512),
        header(),
        b"",
        b"x" * 511,
    ],
)
def test_hostile_headers(tmp_path, archive):
    path = written(tmp_path, gzip.compress(archive))
    with memory_below(3 * MB):
        refused(read_members, path, ["folder/a", "folder/b"], 1000)


@pytest.mark.parametrize("start", [b"", header(name=b"other", size=b"77777777777", kind=b"x")])
def test_an_archive_bomb(tmp_path, start):
    path = written(tmp_path, gzip.compress(start) + zeros(50))
    with memory_below(10 * MB):
        refused(read_members, path, ["folder/a"], 1000)


def test_many_empty_headers_end(tmp_path):
    path = written(tmp_path, gzip.compress(header(name=b"other", size=b"0") * 20_000))
    refused(read_members, path, ["folder/a"], 1000, match="more than such an archive holds")


def test_archives_that_are_none(tmp_path):
    for content in (b"", b"plain text", tar(MEMBERS), tar_gz(MEMBERS)[:-700], bz2.compress(tar(MEMBERS))):
        refused(read_members, written(tmp_path, content), ["folder/a"], 1000)
