"""One writer a folder. The system drops the lock when its process ends, in whatever way."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["FolderLock", "LockedError"]


class LockedError(OSError):
    """Another process writes in this folder."""


class FolderLock:
    """Hold the file ``lock`` of a folder within a ``with`` block; another holder is a :class:`LockedError`.

    The file names its holder by process id. It is removed at the end; one that a killed process left is taken over.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, FolderLock(folder):
        ...     sorted(os.listdir(folder))
        ['lock']
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path = Path(folder) / "lock"

    def __enter__(self) -> Self:
        descriptor = self._take()
        while not self._still_stands(descriptor):  # its holder removed the file while we opened it
            os.close(descriptor)
            descriptor = self._take()
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        self.descriptor = descriptor
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.path.unlink(missing_ok=True)  # while the lock is held: nobody else's file can be meant
        os.close(self.descriptor)

    def _take(self) -> int:
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise LockedError(
                f"{self.path.parent} is being written by process {holder}; wait until it ends, or stop it: "
                "what it has done is kept"
            ) from error
        return descriptor

    def _still_stands(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(descriptor))
        except FileNotFoundError:
            return False
