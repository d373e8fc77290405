"""One file from one address, for pooch to check and put in its place: with a bar, again after a fault, and resumed.

What has arrived lies in ``.NAME.part`` and gets its name only when all of it is there and right.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from evodrop.lab.datasets.arrays import DataError
from evodrop.locking import LockedError, locked

__all__ = ["Downloader", "progress_bar"]

TRIES = 4  # in a row that bring nothing; one that brings something counts from anew
TIMEOUT = 30.0
CHUNK = 1 << 18
PASSING = (408, 416, 425, 429, 500, 502, 503, 504)  # answers that may be others in a moment
Tell = Callable[[int, int | None], None]


class Downloader:
    """A downloader as pooch calls it.

    Args:
        part: where to keep what has arrived.
        size: of the file in bytes, if ``exact``; else what it may have at most.
        exact: whether the file must have that size.
        known: whether pooch has a checksum to hold it against. If not, no redirect may lead away from https.
        check: called with the whole file before it gets its name; raises DataError if it is no good.
        tell: called with the bytes that have arrived and the bytes that there are, if known.
        pause: seconds after the first fault; twice as many after the next, and so on.
    """

    def __init__(
        self,
        part: Path,
        size: int,
        *,
        exact: bool,
        known: bool,
        check: Callable[[Path], Any] | None,
        tell: Tell,
        pause: float,
    ) -> None:
        self.part, self.size, self.exact, self.known = part, size, exact, known
        self.check, self.tell, self.pause = check, tell, pause

    def __call__(self, url: str, output_file: Any, pooch: Any, check_only: bool = False) -> None:  # noqa: ARG002
        """Fetch the file from the address to ``output_file``."""
        with _opened(self.part) as stream:
            self._fill(url, stream)
            try:
                if self.check is not None:
                    self.check(self.part)
            except DataError:
                self.part.unlink()
                raise
            os.replace(self.part, output_file)

    def _fill(self, url: str, stream: IO[bytes]) -> None:
        import requests
        from urllib3.exceptions import HTTPError

        faults, before = 0, _end(stream)
        while True:
            try:
                return self._more(url, stream)
            except (requests.RequestException, HTTPError, ConnectionError, TimeoutError) as error:  # no full disk
                faults = 0 if _end(stream) > before else faults + 1
                before = _end(stream)
                if not _is_passing(error) or faults >= TRIES:
                    raise DataError(f"{url}: {_in_short(error)}") from error
                time.sleep(self.pause * 2.0 ** (faults - 1))

    def _more(self, url: str, stream: IO[bytes]) -> None:
        """Ask for what is still missing, and append it."""
        import requests

        start = _end(stream)
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
        with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
            if not self.known:
                _check_way(url, response)
            if start and response.status_code == 416 and response.headers.get("Content-Range") == f"bytes */{start}":
                return  # all of it was there
            if not _continues(response, start):
                stream.truncate(0)
            response.raise_for_status()
            total = self._append(url, stream, response)
        if _end(stream) < (self.size if self.exact else total or 0):
            raise requests.ConnectionError("the connection was cut")

    def _append(self, url: str, stream: IO[bytes], response: Any) -> int | None:
        """Write down the answer, and say how long the file is by the server's word."""
        length = response.headers.get("Content-Length", "")
        total = _end(stream) + int(length) if length.isdigit() else None
        self._check_size(url, stream, total)
        for chunk in response.raw.stream(CHUNK, decode_content=False):
            stream.write(chunk)
            self._check_size(url, stream, None)
            self.tell(_end(stream), total)
        stream.flush()
        return total

    def _check_size(self, url: str, stream: IO[bytes], total: int | None) -> None:
        """Give up early on what is another file: a page that says sorry, or a stream without end."""
        size = max(_end(stream), total or 0)
        if size > self.size or (self.exact and total is not None and total != self.size):
            self.part.unlink()
            raise DataError(f"{url} sends {size} bytes, but the file has {'' if self.exact else 'at most '}{self.size}")


def _end(stream: IO[bytes]) -> int:
    return stream.seek(0, os.SEEK_END)


def _check_way(url: str, response: Any) -> None:
    """Refuse what came over plain http after all: anyone on the way may have changed it, and nothing would tell."""
    for answer in (*response.history, response):
        if url.startswith("https://") and not answer.url.startswith("https://"):
            raise DataError(f"{url} leads to {answer.url}, which is not https, and there is no checksum to check it by")


def _continues(response: Any, start: int) -> bool:
    """Whether the server answers with the part that was asked for. One that ignores the question sends everything."""
    told = response.headers.get("Content-Range", "")
    if response.status_code == 416:  # what is there is longer than the file
        return False
    return not response.ok or not start or (response.status_code == 206 and told.startswith(f"bytes {start}-"))


def _is_passing(error: Exception) -> bool:
    import requests

    if isinstance(error, requests.exceptions.SSLError):
        return False
    return getattr(error.response, "status_code", None) in PASSING if isinstance(error, requests.HTTPError) else True


def _in_short(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else "... " + text[-200:]  # the cause stands at the end


@contextmanager
def _opened(part: Path) -> Iterator[IO[bytes]]:
    """The part, open to append to, and no other process's."""
    with ExitStack() as stack:
        try:
            descriptor = stack.enter_context(locked(part))
        except LockedError as error:
            raise DataError(f"another process is downloading {part}; wait for it, or end it") from error
        yield stack.enter_context(open(descriptor, "ab", closefd=False))


@contextmanager
def progress_bar(title: str, size: int, shown: bool) -> Iterator[Tell]:
    """A function that moves a bar on the terminal; on stderr, for stdout may go to a file."""
    if not shown:
        yield lambda *_: None
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=size)
        yield lambda done, total: bar.update(task, completed=done, total=total or size)
