"""Get a data set: each file from the first of its addresses that serves, by pooch, which checks the checksum."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

from evodrop.lab.datasets.arrays import DataError
from evodrop.lab.datasets.checksums import known_checksum, record, verify
from evodrop.lab.datasets.documents import read_svmlight
from evodrop.lab.datasets.download import Downloader, progress_bar
from evodrop.lab.datasets.entries import Dataset, File
from evodrop.lab.datasets.places import find, find_all

__all__ = ["fetch_dataset"]

ROOM = 4  # a file whose size is not published may have so many times the size that is expected
Check = Callable[[Path], Any]


def fetch_dataset(dataset: Dataset, folder: Path, *, progress: bool = True, pause: float = 1.0) -> None:
    """Download what is missing or wrong, and keep the checksums of files that nobody published any for.

    Args:
        dataset: of the registry.
        folder: the data folder; it is made if it is not there.
        progress: whether to draw a bar.
        pause: seconds before a second try.
    """
    if not dataset.downloadable:
        find_all(dataset, folder)  # or say what is missing
        return
    for file, rows in zip(dataset.files, cycle((dataset.train, dataset.test)), strict=False):
        check: Check | None = None  # a published checksum says it all
        if file.checksum is None:
            check = partial(read_svmlight, rows=rows or dataset.train, n_features=dataset.shape[0])
        try:
            _get(file, folder, check, progress, pause)
        except OSError as error:
            raise DataError(f"{folder} cannot be written: {error}. Name another folder, or make room") from error


def _get(file: File, folder: Path, check: Check | None, progress: bool, pause: float) -> None:
    path = folder / file.path
    if not _is_right(file, folder):
        path.parent.mkdir(parents=True, exist_ok=True)
        _fetch_file(file, path, known_checksum(file, folder), check, progress, pause)
    elif check and path.is_file() and known_checksum(file, folder) is None:
        check(path)
    if path.is_file() and known_checksum(file, folder) is None:
        record(path)


def _is_right(file: File, folder: Path) -> bool:
    """Whether the file, or what was unpacked from it, is there, and not known to be wrong."""
    place = find(file, folder)
    if place is None or not place.packed:
        return place is not None
    try:
        verify(file, folder)
    except DataError:
        return False
    return True


def _fetch_file(
    file: File, path: Path, checksum: str | None, check: Check | None, progress: bool, pause: float
) -> None:
    exact = file.checksum is not None
    part = path.with_name(f".{path.name}.part")
    faults = []
    for address in file.addresses:
        with progress_bar(path.name, file.size, progress) as tell:
            size = file.size if exact else ROOM * file.size
            known = checksum is not None
            downloader = Downloader(part, size, exact=exact, known=known, check=check, tell=tell, pause=pause)
            try:
                _retrieve(address, path, checksum, downloader)
                return
            except ValueError as error:  # ours, or pooch's if the checksum is wrong
                faults.append(" ".join(str(error).split()).rstrip("."))
    told = "; ".join(faults)
    raise DataError(f"{file.path} could not be fetched: {told}. Try again later, or put the file itself at {path}")


def _retrieve(address: str, path: Path, checksum: str | None, downloader: Downloader) -> None:
    try:
        import pooch
    except ImportError as error:
        raise ImportError("downloads need pooch: pip install 'evodrop[lab]'") from error
    with _quiet(pooch.get_logger()):
        pooch.retrieve(address, checksum, fname=path.name, path=path.parent, downloader=downloader)


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Without pooch's advice on how to call pooch."""
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
