"""The data folder: which form of a data set lies there, and its bytes, compared with their checksum before use."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from evodrop.lab.data.registry import Dataset, File, Form

VARIABLE = "EVODROP_DATA"
LARGEST = 1 << 28  # bytes of a file with a checksum whose size is not known


class DataError(ValueError):
    """Data that are missing, damaged or hostile, or cannot be downloaded: which file, what is wrong, and what helps."""


def data_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """The folder given, else the one that the variable EVODROP_DATA names, else the user's cache."""
    chosen = folder if folder is not None else os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    import pooch

    return Path(pooch.os_cache("evodrop"))


def find(dataset: Dataset, folder: Path) -> Form:
    """The first form all of whose files are there, with the right sizes; or a DataError that says how to get it."""
    faults = []
    for form in dataset.forms:
        for file in form.files:
            path = folder / file.path
            if not path.is_file():
                faults.append(f"there is no {file.path}")
                break
            if file.size and (size := path.stat().st_size) != file.size:
                faults.append(_wrong(dataset, form, file, folder, f"{size} bytes"))
                break
        else:
            return form
    where = f"if you have it, name its folder by --data or {VARIABLE}"
    if dataset.download:
        remedy = f"Get it by: evodrop data get {dataset.name} ({dataset.download_size / 1e6:.0f} MB); or, {where}"
    else:
        remedy = (
            f"It cannot be downloaded in this form (see {dataset.home}): put its svmlight files there, or, {where}. "
            "Any such pair of files can be read as svm:TRAIN,TEST"
        )
    raise DataError(f"{dataset.name} is not in {folder}: {'; '.join(dict.fromkeys(faults))}. {remedy}")


def contents(dataset: Dataset, form: Form, folder: Path) -> dict[str, bytes]:
    """The files of a form by their paths, once their sizes and, where published, their checksums are found right."""
    found = {}
    for file in form.files:
        content, digest, algorithm = b"", "", file.checksum.partition(":")[0]
        with opened(folder / file.path) as stream:
            size = os.fstat(stream.fileno()).st_size
            if size == (file.size or min(size, LARGEST)):
                content = stream.read(size)
        if content and algorithm:
            digest = f"{algorithm}:{hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()}"
        if len(content) != size or digest != file.checksum:
            measured = f"{size} bytes" + (f" with {digest}" if digest else "")
            raise DataError(_wrong(dataset, form, file, folder, measured))
        found[file.path] = content
    return found


@contextmanager
def opened(path: Path) -> Iterator[BufferedReader]:
    """The file as it lies on the disk. What goes wrong while it is read becomes a :class:`DataError`."""
    if not path.is_file():  # a pipe or a device could be read for ever
        raise DataError(f"{path} is not there, or is not a file")
    try:
        with path.open("rb") as stream:
            yield stream
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}. Get it again") from error


def _wrong(dataset: Dataset, form: Form, file: File, folder: Path, found: str) -> str:
    """That a file is not one of those accepted, which these are, and what to do."""
    accepted = []
    for other in dataset.forms:
        for one in other.files:
            if one.path == file.path:
                marks = [f"{one.size} bytes"] * (one.size > 0) + [one.checksum] * (one.checksum != "")
                accepted.append(f"{' with '.join(marks)} ({other.origin or 'as published'})")
    words = f"{folder / file.path} has {found}, but it should have {' or '.join(accepted)}"
    if form.reader == "pickles" and not form.members:
        own, binary = (Path(other.files[0].path).parent for other in (form, dataset.forms[0]))
        return (
            f"{words}: {own}/ is passed over, since only published pickles are read. Use the binary files, in {binary}/"
        )
    return f"{words}: it is damaged, or another file. Delete it, then: evodrop data get {dataset.name}"
