"""CIFAR's archives, tar packed by gzip: members are read into memory, and nothing is ever written.

Python's tarfile reads headers of any size, follows chains of them and has looped for ever on negative sizes. Of the
format we need little: headers of 512 bytes, and regular files whose names and largest size are known beforehand.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Collection
from pathlib import Path
from typing import IO, NamedTuple

from evodrop.lab.datasets.arrays import DataError
from evodrop.lab.datasets.packing import CHUNK, opened

__all__ = ["read_members"]

BLOCK = 512
REGULAR = (b"0", b"\0")
WITHOUT_CONTENT = (b"1", b"2", b"3", b"4", b"5", b"6")  # links, devices, folders, pipes
SPARE = 1 << 22  # bytes for headers and for members that we do not need: a page that tells of the data
is_octal = re.compile(rb" *[0-7]+[ \0]*").fullmatch


class Member(NamedTuple):
    """What the header of a member says."""

    name: str
    kind: bytes
    size: int


class Unpacked:
    """The bytes of a packed archive, up to a bound."""

    def __init__(self, path: Path, packed: IO[bytes], most: int) -> None:
        self.path = path
        self.stream = gzip.GzipFile(fileobj=packed)
        self.left = most

    def read(self, size: int) -> bytes:
        self.left -= size
        if self.left < 0:
            raise DataError(f"{self.path} unpacks to more than such an archive holds; it is not the published file")
        content = self.stream.read(size)
        if len(content) < size:
            raise DataError(f"{self.path} is cut off: {size} bytes are announced and {len(content)} are there")
        return content

    def skip(self, size: int) -> None:
        for start in range(0, size, CHUNK):
            self.read(min(CHUNK, size - start))


def read_members(path: Path, wanted: Collection[str], most: int) -> dict[str, bytes]:
    """The content of the wanted members, none of which has more than ``most`` bytes."""
    found: dict[str, bytes] = {}
    with opened(path) as packed:
        archive = Unpacked(path, packed, len(wanted) * most + SPARE)
        while len(found) < len(wanted) and (member := _next_member(archive)):
            padding = -member.size % BLOCK
            if member.name not in wanted or member.kind not in REGULAR:
                archive.skip(member.size + padding)
            elif member.name in found or member.size > most:
                raise DataError(
                    f"{path} has {member.name} twice, or with more than {most} bytes: not the published file"
                )
            else:
                found[member.name] = archive.read(member.size)
                archive.skip(padding)
    if missing := sorted(set(wanted) - set(found)):
        raise DataError(f"{path} has no file {', '.join(missing)} in it; fetch the archive anew")
    return found


def _next_member(archive: Unpacked) -> Member | None:
    header = archive.read(BLOCK)
    if not any(header):
        return None
    size, checksum, kind = header[124:136], header[148:156], header[156:157]
    if not (is_octal(size) and is_octal(checksum)) or int(checksum.strip(b" \0"), 8) != _checksum(header):
        raise DataError(f"{archive.path} holds a damaged tar header; fetch the archive anew")
    name = header[:100].partition(b"\0")[0].decode("ascii", "replace").removeprefix("./")
    return Member(name, kind, 0 if kind in WITHOUT_CONTENT else int(size.strip(b" \0"), 8))


def _checksum(header: bytes) -> int:
    """The sum of the header's bytes, its own field counted as spaces."""
    return sum(header) - sum(header[148:156]) + 8 * ord(" ")
