"""Files that are whole or not there, whenever the process is killed or the power fails."""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import suppress
from pathlib import Path

__all__ = ["flush_to_disk", "part_of", "write_whole"]

UNASKED = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EACCES)  # of systems that cannot flush a folder


def write_whole(path: Path, data: bytes, *, shared: bool = False) -> None:
    """Write to a temporary file beside ``path``, wait for the disk, and rename: readers see the old file or the new.

    Args:
        path: of the file; its folder must be there.
        data: what it is to hold.
        shared: whether others may write the same file at the same time, because no lock keeps them out.
    """
    part = path.with_name(f".evodrop-{secrets.token_hex(8)}.part") if shared else part_of(path)
    try:
        with open(part, "wb") as file:
            file.write(data)
            file.flush()
            flush_to_disk(file.fileno())
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    _flush_folder(path.parent)


def part_of(path: Path) -> Path:
    """Where the one writer of a file writes first. Always the same name: what a killed one left is written over."""
    return path.with_name(f".{path.name}.part")


def flush_to_disk(descriptor: int) -> None:
    """Return when all that was written is on the disk."""
    os.fsync(descriptor)


def _flush_folder(folder: Path) -> None:
    """A rename is on the disk when its folder is. Not every file system can be asked to wait for that."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            flush_to_disk(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:  # the file has its name already: it is whole in any case
        if error.errno not in UNASKED:
            raise
