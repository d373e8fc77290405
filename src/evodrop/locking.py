"""One writer a file, and one a folder. The system drops a lock when its process ends, in whatever way."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

__all__ = ["FolderLock", "LockedError", "locked"]


class LockedError(OSError):
    """Another process holds this file, or writes in this folder."""


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


class FolderLock:
    """Hold the file ``lock`` of a folder within a ``with`` block; another holder is a :class:`LockedError`.

    The file names its holder by process id and host. It is removed at the end; one that a killed process left is taken
    over.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, FolderLock(folder):
        ...     sorted(os.listdir(folder))
        ['lock']
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path = Path(folder) / "lock"

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            try:
                descriptor = stack.enter_context(locked(self.path))
            except LockedError as error:
                raise LockedError(
                    f"{self.path.parent} is being written by {self._holder()}; wait until it ends, or stop it: "
                    "what it has done is kept"
                ) from error
            stack.callback(self.path.unlink, missing_ok=True)  # while the lock is held: nobody else's file can be meant
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()} {socket.gethostname()}\n".encode())
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def _holder(self) -> str:
        with suppress(OSError), self.path.open("rb") as file:
            process, _, host = file.read(300).decode(errors="replace").strip().partition(" ")
            return f"process {process or 'unknown'}" + (f" on {host}" if host else "")
        return "a process that has just ended"


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
