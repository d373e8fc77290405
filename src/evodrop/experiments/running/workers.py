"""Tasks side by side, in workers of whatever backend joblib is set to; processes among them end with the laboratory."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import cache
from multiprocessing import current_process
from pathlib import Path
from typing import Any

__all__ = ["PULSE", "BrokenProcessPool", "end_with", "in_parallel", "shared_folder"]

PULSE = 0.2  # seconds between two looks whether the laboratory is still there
SHARED = ".shared"


def in_parallel(tasks: Iterable[Any], jobs: int, shared: Path) -> Iterator[Any]:
    """The results of ``joblib.delayed`` calls, in the order in which they come.

    A worker that the system kills is a :class:`BrokenProcessPool`; results that had come before were given. The backend
    "multiprocessing" is refused: it forks, and a fork of a process with threads may wait for ever for one that it lost.

    Args:
        tasks: the calls.
        jobs: how many at once.
        shared: a folder for arrays, which workers share as maps of one file, private where written to: no kernel meets
            a read-only array.
    """
    from joblib import Parallel
    from joblib.parallel import get_active_backend

    backend = get_active_backend()[0]
    if not getattr(backend, "supports_return_generator", False):
        raise ValueError(
            f"joblib's backend is a {type(backend).__name__}, but runs need one that gives results as they come and "
            "does not fork; use loky (the default), threading or a cluster's"
        )
    yield from Parallel(n_jobs=jobs, return_as="generator_unordered", mmap_mode="c", temp_folder=shared)(tasks)


@contextmanager
def shared_folder(out: Path) -> Iterator[Path]:
    """A folder for the data that workers share. One that a killed laboratory has left is cleared away."""
    folder = out / SHARED
    shutil.rmtree(folder, ignore_errors=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@cache
def end_with(laboratory: int) -> None:
    """In a worker process: leave Ctrl-C to the laboratory, and end when it has ended, even by a kill.

    Args:
        laboratory: its process id.
    """
    if os.getpid() == laboratory:
        return
    if os.getppid() != laboratory:
        if current_process().name.startswith("LokyProcess"):  # a child that began when its laboratory had ended
            os._exit(1)
        return  # a cluster looks after its workers
    if threading.current_thread() is threading.main_thread():  # no other may say what a signal does
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == laboratory:
            time.sleep(PULSE)
        os._exit(1)  # a folder survives it at any moment

    threading.Thread(target=watch, daemon=True).start()
