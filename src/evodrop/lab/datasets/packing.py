"""Files of strangers, unpacked with a bound: nothing that is read takes more memory than the data that are expected."""

from __future__ import annotations

import bz2
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evodrop.lab.datasets.arrays import DataError

__all__ = ["check_text", "opened", "read_exactly", "read_whole", "unpacked"]

CHUNK = 1 << 20
LONGEST_LINE = 1 << 26
LARGEST_RATIO = 100  # text of numbers shrinks some 3 to 10 times; what shrinks more is a bomb,
SMALL = 1 << 26  # unless it is small


@contextmanager
def opened(path: Path) -> Iterator[io.BufferedReader]:
    """The file as it lies on the disk. What goes wrong while it is read becomes a :class:`DataError`."""
    if not path.is_file():  # a pipe or a device could be read for ever
        raise DataError(f"{path} is not there, or is not a file")
    try:
        with path.open("rb") as stream:
            yield stream
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}. Fetch it anew") from error


@contextmanager
def unpacked(path: Path) -> Iterator[io.BufferedIOBase]:
    """What the file holds: unpacked, if its first bytes are those of gzip or bzip2."""
    with opened(path) as stream:
        start = stream.read(3)
        stream.seek(0)
        if start.startswith(b"\x1f\x8b"):
            yield gzip.GzipFile(fileobj=stream)
        elif start == b"BZh":
            yield bz2.BZ2File(stream)
        else:
            yield stream


def read_exactly(path: Path, size: int) -> bytearray:
    """What the file holds, unpacked, if it is of that many bytes."""
    content = bytearray(size)
    view, filled = memoryview(content), 0
    with unpacked(path) as stream:
        while count := stream.readinto(view[filled : filled + CHUNK]):
            filled += count
        if filled < size:
            raise DataError(f"{path} holds {filled} bytes, but {size} are expected: it is cut off, or another file")
        if stream.read(1):
            raise DataError(f"{path} holds more than the {size} bytes that are expected: it is another file")
    return content


def read_whole(path: Path, most: int) -> bytes:
    """The file as it lies on the disk, if it has no more than so many bytes."""
    with opened(path) as stream:
        content = stream.read(most + 1)
    if len(content) > most:
        raise DataError(f"{path} has more than the {most} bytes that such a file can have: it is another file")
    return content


def check_text(path: Path) -> None:
    """Refuse packed text that unpacks out of all proportion or has a line too long for memory.

    A few kilobytes can unpack to terabytes, and the reader of svmlight files holds a line in memory.
    """
    total = line = 0
    with unpacked(path) as stream:
        if isinstance(stream, io.BufferedReader):  # not packed at all
            return
        most = max(SMALL, LARGEST_RATIO * path.stat().st_size)
        while chunk := stream.read(CHUNK):
            total += len(chunk)
            line = len(chunk) - 1 - chunk.rfind(b"\n") + (0 if b"\n" in chunk else line)
            if total > most or line > LONGEST_LINE:
                raise DataError(
                    f"{path} unpacks to far more than text of numbers does; it is no data, so it is not read"
                )
