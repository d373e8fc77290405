"""Sparse text: svmlight files, plain or packed by bzip2 or gzip."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from evodrop.lab.datasets.arrays import DataError, Documents
from evodrop.lab.datasets.packing import check_text, opened
from evodrop.lab.datasets.splits import held_out

__all__ = ["as_documents", "n_used", "read_pair", "read_svmlight"]

MOST_FEATURES = 1 << 27  # a linear model keeps several numbers a feature: this many take gigabytes
Table = tuple[Any, npt.NDArray[np.float64]]


def read_svmlight(path: Path, rows: int | None, n_features: int | None, *, trusted: bool = False) -> Table:
    """The examples (X, y) of a file.

    Args:
        path: the file.
        rows: how many examples it must have; None if that is not known.
        n_features: how many columns X has; None leaves room for any that is read.
        trusted: whether its checksum was right. If not, it is first made sure that it does not unpack beyond measure.
    """
    from scipy import sparse

    if not trusted:
        check_text(path)
    tables = list(_tables(path, rows, n_features or MOST_FEATURES))
    X, y = sparse.vstack([X for X, _ in tables], format="csr"), np.concatenate([y for _, y in tables])
    if rows is not None and len(y) < rows:
        raise DataError(f"{path} has {len(y)} examples, but the published file {rows}: it is cut off, or another one")
    return X, y


def _tables(path: Path, rows: int | None, n_features: int) -> Iterator[Table]:
    """The examples in parts, and no more of them than there should be."""
    from evodrop.linear import iter_svmlight

    found = 0
    with opened(path):  # or say that it cannot be
        try:
            for X, y in iter_svmlight(path, n_features=n_features):
                found += len(y)
                if rows is not None and found > rows:
                    raise DataError(
                        f"{path} has more than the {rows} examples of the published file: it is another one"
                    )
                yield X, y
        except DataError:
            raise
        except ValueError as error:  # which names the file and the line
            raise DataError(str(error)) from error


def read_pair(train: Path, test: Path, *, trusted: bool = False) -> tuple[Table, Table]:
    """The examples of two files, with the same number of features."""
    (X, y), (X_test, y_test) = (read_svmlight(path, None, None, trusted=trusted) for path in (train, test))
    width = max(n_used(X), n_used(X_test))
    return (_of_width(X, width), y), (_of_width(X_test, width), y_test)


def as_documents(name: str, train: Table, test: Table | None = None) -> Documents:
    """The data set; without test data a fifth of the examples is set aside."""
    if test is None:
        X, y = train
        rows, held = held_out(len(y))
        train, test = (X[rows], y[rows]), (X[held], y[held])
    return Documents(name, *train, *test)


def n_used(X: Any) -> int:
    """How many columns X needs: one more than its largest index."""
    return int(X.indices.max(initial=0)) + 1


def _of_width(X: Any, width: int) -> Any:
    return type(X)((X.data, X.indices, X.indptr), shape=(X.shape[0], width))
