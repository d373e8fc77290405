"""Files that are whole or not there, whenever the process is killed or the power fails."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

__all__ = ["flush_to_disk", "part_of", "write_whole"]


def write_whole(path: Path, data: bytes) -> None:
    """Write to a temporary file beside ``path``, wait for the disk, and rename: readers see the old file or the new."""
    part = part_of(path)
    try:
        with open(part, "wb") as file:
            file.write(data)
            flush_to_disk(file.fileno())
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    _flush_folder(path.parent)


def part_of(path: Path) -> Path:
    """Where :func:`write_whole` writes first. Always the same name: what a killed process left is written over."""
    return path.with_name(f".{path.name}.part")


def flush_to_disk(descriptor: int) -> None:
    """Return when all that was written is on the disk."""
    os.fsync(descriptor)


def _flush_folder(folder: Path) -> None:
    """A rename is on the disk when its folder is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        flush_to_disk(descriptor)
    finally:
        os.close(descriptor)
