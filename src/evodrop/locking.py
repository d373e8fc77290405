"""One writer per file. The system drops a lock when its process ends, in whatever way."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["LockedError", "locked"]


class LockedError(OSError):
    """Another process holds this file."""


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """Hold a file, which is made if need be, within a ``with`` block; another holder is a :class:`LockedError`.

    A holder may remove or rename the file. Who opened it just before that must not take it for the file of that name:
    it may be a finished download by now.

    Returns:
        A descriptor of the file, to read and to append.
    """
    descriptor = _take(path)
    while not _still_stands(path, descriptor):
        os.close(descriptor)
        descriptor = _take(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _take(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        _lock(path, descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _lock(path: Path, descriptor: int) -> None:
    try:
        import fcntl  # here, because data sets can be read where it is missing

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise LockedError(f"{path} is another process's") from error
    except (ImportError, OSError) as error:
        raise OSError(
            f"{path} cannot be locked ({error}): this file system has no locks; name an --out, or a data folder, "
            "on a local disk"
        ) from error


def _still_stands(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
