"""Where data lie: the data folder, and which files of a data set are in it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from evodrop.experiments.datasets.arrays import DataError
from evodrop.experiments.datasets.entries import Dataset, File

__all__ = ["VARIABLE", "Place", "data_folder", "find", "find_all"]

VARIABLE = "EVODROP_DATA"


class Place(NamedTuple):
    """Where a file was found: itself, or what was unpacked from it."""

    file: File
    paths: tuple[Path, ...]
    packed: bool


def data_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """The folder given, else the one that the variable EVODROP_DATA names, else the user's cache.

    Examples:
        >>> data_folder("my/data")
        PosixPath('my/data')
    """
    chosen = folder if folder is not None else os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    try:
        import pooch
    except ImportError as error:
        raise DataError(
            f"give a data folder, or set {VARIABLE}; the user's cache needs pip install 'evodrop[lab]'"
        ) from error
    return Path(pooch.os_cache("evodrop"))


def find(file: File, folder: Path) -> Place | None:
    """Where the file is, if it is there and has an accepted size, or else what was unpacked from it."""
    path = folder / file.path
    sizes = (file.size, *(other.size for other in file.accepted))
    if path.is_file() and (file.checksum is None or path.stat().st_size in sizes):
        return Place(file, (path,), packed=True)
    paths = tuple(folder / name for name in file.unpacked)
    return Place(file, paths, packed=False) if paths and all(path.is_file() for path in paths) else None


def find_all(dataset: Dataset, folder: Path) -> list[Place]:
    """Where all files of a data set are. Raises DataError that says what is missing and how to get it."""
    places = [find(file, folder) for file in dataset.files]
    found = [place for place in places if place is not None]
    if len(found) < len(places):
        file = dataset.files[places.index(None)]
        raise DataError(f"{dataset.name} is not in {folder}: {_looked_for(file, folder)}. {_remedy(dataset)}")
    return found


def _looked_for(file: File, folder: Path) -> str:
    path = folder / file.path
    if path.is_file():
        return f"{path} has {path.stat().st_size} bytes, but the published file has {file.sums}"
    folders = sorted({str(Path(name).parent) + "/" for name in file.unpacked})
    instead = file.unpacked[0] if len(file.unpacked) == 1 else " ".join(folders)
    return f"there is no {file.path}" + (f", nor, unpacked, {instead}" if file.unpacked else "")


def _remedy(dataset: Dataset) -> str:
    elsewhere = f"if you have it, name its folder by --data or {VARIABLE}"
    if dataset.downloadable:
        return f"Get it by: evodrop data get {dataset.name} ({dataset.size / 1e6:.0f} MB); or, {elsewhere}"
    return (
        f"It is not to be downloaded in this form: put its svmlight files there, or, {elsewhere}. "
        "Any such pair of files will do as svm:TRAIN,TEST"
    )
