"""Whether a file is the one that was published or, where no checksum was, the one that was first downloaded.

The sha256 of a first download lies beside the file, in a file that ``sha256sum --check`` understands.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from evodrop.durable import write_whole
from evodrop.experiments.datasets.arrays import DataError
from evodrop.experiments.datasets.entries import File
from evodrop.experiments.datasets.packing import opened

__all__ = ["digest", "known_checksum", "record", "record_path", "verify"]

is_record = re.compile(rb"([0-9a-f]{64})  [^\n/]+\n?").fullmatch


def digest(path: Path, algorithm: str) -> str:
    """The checksum as "algorithm:hexadecimal digits"."""
    with opened(path) as stream:
        return f"{algorithm}:{hashlib.file_digest(stream, algorithm).hexdigest()}"


def record_path(path: Path) -> Path:
    """Where the sha256 of the first download is kept."""
    return path.with_name(path.name + ".sha256")


def known_checksum(file: File, folder: Path) -> str | None:
    """The published checksum, or that of the first download, or None if there was none."""
    kept = record_path(folder / file.path)
    if file.checksum is not None or not kept.is_file():
        return file.checksum
    with opened(kept) as stream:
        match = is_record(stream.read(1000))
    if match is None:
        raise DataError(f"{kept} should hold the sha256 of {file.path}, but does not; delete it to start anew")
    return "sha256:" + match[1].decode()


def verify(file: File, folder: Path) -> bool:
    """Whether the checksum is known, and right. Raises DataError where it is wrong."""
    path = folder / file.path
    if not path.is_file():
        raise DataError(f"{path} is not there, or is not a file")
    other = file.accepted_of(path.stat().st_size)
    known = other.checksum if other else known_checksum(file, folder)
    if known is None:
        return False
    found = digest(path, known.partition(":")[0])
    if found != known:
        origin = (
            f"the published file has {file.sums}"
            if file.checksum
            else f"the first download had, by {record_path(path)}, {known}"
        )
        raise DataError(f"{path} has {found}, but {origin}: it is damaged or changed. Delete it and fetch it anew")
    return True


def record(path: Path) -> None:
    """Keep the sha256 of a first download."""
    line = f"{digest(path, 'sha256').removeprefix('sha256:')}  {path.name}\n"
    write_whole(record_path(path), line.encode(), shared=True)
