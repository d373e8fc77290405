"""Sparse text: svmlight files, plain or packed by bzip2 or gzip; without published checksums, so read with bounds."""

from __future__ import annotations

import bz2
import gzip
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from evodrop.lab.data.files import DataError, opened
from evodrop.lab.data.registry import Dataset, Form, held_out

PAIR = "svm:"  # before the names of two files
CHUNK = 1 << 20
LARGEST_RATIO = 100  # text of numbers shrinks some 3 to 10 times; what shrinks more is a bomb,
SMALL = 1 << 26  # unless it is small
MOST_FEATURES = 1 << 27  # a linear model keeps several numbers per feature: this many take gigabytes
Table = tuple[Any, npt.NDArray[np.float64]]


class Documents(NamedTuple):
    """Labelled sparse text: ``scipy.sparse.csr_array`` of float64 and shape (n, d); labels as the files have them."""

    name: str
    train_x: Any
    train_y: npt.NDArray[np.float64]
    test_x: Any
    test_y: npt.NDArray[np.float64]


def pair_paths(name: str) -> tuple[Path, Path]:
    """The two files that "svm:TRAIN,TEST" names."""
    paths = [Path(part).expanduser() for part in name.removeprefix(PAIR).split(",") if part]
    if len(paths) != 2:
        raise DataError(f"{name!r} should name two svmlight files: svm:TRAIN,TEST, with one comma")
    return paths[0], paths[1]


def read_pair(name: str, train: Path, test: Path) -> Documents:
    """Two files, with the same number of features."""
    tables = [_read(path, None, MOST_FEATURES) for path in (train, test)]
    width = max(_n_used(X) for X, _ in tables)
    (X, y), (X_test, y_test) = ((type(X)((X.data, X.indices, X.indptr), shape=(len(y), width)), y) for X, y in tables)
    return Documents(name, X, y, X_test, y_test)


def read_documents(dataset: Dataset, form: Form, folder: Path) -> Documents:
    """A data set of the registry: its files have as many examples and features as it says, and labels -1 and +1."""
    paths = [folder / file.path for file in form.files]
    if dataset.train is None:
        documents = read_pair(dataset.name, *paths)
    else:
        (features,), counts = dataset.shape, (dataset.train, dataset.test)
        tables = [_read(path, rows, features) for path, rows in zip(paths, counts, strict=False)]
        if (used := max(_n_used(X) for X, _ in tables)) != features:
            raise DataError(f"{paths[0].parent} holds {used} features, but the published files {features}")
        if len(tables) == 1:
            tables = [(X[rows], y[rows]) for X, y in tables for rows in held_out(len(y))]
        documents = Documents(dataset.name, *tables[0], *tables[1])
    for labels in (documents.train_y, documents.test_y):
        if set(np.unique(labels)) != {-1.0, 1.0}:
            found = np.unique(labels)[:5]
            raise DataError(f"{paths[0].parent} should hold the labels -1 and +1, but there are {found}")
    return documents


def _read(path: Path, rows: int | None, n_features: int) -> Table:
    """The examples of a file, of which there must be so many, if that is known."""
    _refuse_bomb(path)
    from scipy import sparse

    from evodrop.linear import iter_svmlight

    tables, found = [], 0
    try:
        for table in iter_svmlight(path, n_features=n_features):
            tables.append(table)
            found += len(table[1])
            if rows is not None and found > rows:
                break
    except ValueError as error:  # which names the file and the line
        raise DataError(str(error)) from error
    if rows is not None and found != rows:
        count = f"{found} examples" if found < rows else f"more than {rows} examples"
        raise DataError(f"{path} has {count}, but the published file {rows}: it is cut off, or another file")
    return sparse.vstack([X for X, _ in tables], format="csr"), np.concatenate([y for _, y in tables])


def _refuse_bomb(path: Path) -> None:
    """Refuse packed text that unpacks out of all proportion: a few kilobytes can unpack to terabytes."""
    with opened(path) as packed:
        start = packed.peek(3)[:3]
        if not start.startswith((b"\x1f\x8b", b"BZh")):
            return
        most = max(SMALL, LARGEST_RATIO * path.stat().st_size)
        stream = bz2.BZ2File(packed) if start == b"BZh" else gzip.GzipFile(fileobj=packed)
        while stream.read(CHUNK):
            if stream.tell() > most:
                raise DataError(f"{path} unpacks to far more than text of numbers does; it is no data and not read")


def _n_used(X: Any) -> int:
    """How many columns X needs: one more than its largest index."""
    return int(X.indices.max(initial=0)) + 1
