"""The partitions of a fit as Dask has them: the blocks of arrays, or files that become such arrays."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from evodrop._checks import Array
from evodrop.linear.svmlight import LONGEST_LINE, iter_svmlight

__all__ = ["read_svmlight"]


def read_svmlight(
    paths: Sequence[str | os.PathLike[str]],
    *,
    n_features: int | None = None,
    zero_based: bool = False,
    dtype: npt.DTypeLike = np.float64,
    max_line_bytes: int = LONGEST_LINE,
) -> tuple[Any, Any]:
    """svmlight files as dask arrays: X of CSR blocks and y, a block for each file, read by workers when needed.

    It needs the extra ``dask``.

    Args:
        paths: the files, plain or packed by gzip or bzip2, as every worker sees them.
        n_features: how many columns X has. None lets the workers read the files once more, beforehand, to find the
            largest index.
        zero_based, dtype, max_line_bytes: as in :func:`iter_svmlight`.

    Examples:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     paths = [pathlib.Path(folder, name) for name in ("a.svm", "b.svm")]
        ...     sizes = [path.write_text(text) for path, text in zip(paths, ("+1 1:0.5 3:2\\n-1 2:1\\n", "+1 1:1\\n"))]
        ...     X, y = read_svmlight(paths)
        ...     print(X.numblocks, X.shape[1], y.compute().tolist())
        (2, 1) 3 [1.0, -1.0, 1.0]
    """
    from dask import array
    from dask.base import compute
    from dask.delayed import delayed

    if isinstance(paths, str | os.PathLike) or not len(paths):
        raise ValueError(f"paths is {paths!r}, but it takes a list of at least one svmlight file")
    paths = [os.fspath(path) for path in paths]
    options = {"zero_based": zero_based, "dtype": np.dtype(dtype), "max_line_bytes": max_line_bytes}
    if n_features is None:
        n_features = max(compute(*(delayed(_width)(path, options) for path in paths)))
    files = [delayed(_read, nout=2)(path, options | {"n_features": n_features}) for path in paths]
    wide = {"shape": (np.nan, n_features), "dtype": np.dtype(dtype), "meta": sparse.csr_array((0, 0), dtype=dtype)}
    X = [array.from_delayed(rows, **wide) for rows, _ in files]
    y = [array.from_delayed(labels, shape=(np.nan,), dtype=np.float64) for _, labels in files]
    join = {"axis": 0, "allow_unknown_chunksizes": True}
    return array.concatenate(X, **join), array.concatenate(y, **join)


def _width(path: str, options: dict[str, Any]) -> int:
    """How many features a file has: iter_svmlight counts them before the first row."""
    return int(next(iter_svmlight(_visible(path), 1, **options))[0].shape[1])


def _read(path: str, options: dict[str, Any]) -> tuple[sparse.csr_array, Array]:
    X, y = zip(*iter_svmlight(_visible(path), **options), strict=True)
    return sparse.vstack(X, format="csr"), np.concatenate(y)


def _visible(path: str) -> str:
    if not os.path.exists(path):
        raise FileNotFoundError(
            f"there is no file {path!r} for the worker in {os.getcwd()!r}; workers read the files themselves: put them "
            "where all workers see them, and give whole paths"
        )
    return path


def is_dask(X: Any) -> bool:
    """Whether X is a dask array; asked without importing Dask."""
    arrays = sys.modules.get("dask.array")
    return arrays is not None and isinstance(X, arrays.Array)


def as_arrays(X: Any, y: Any, n_features: int | None = None) -> tuple[Any, Any]:
    """X and y as dask arrays: they are, or X is a list of svmlight files, which hold the labels too."""
    if isinstance(X, list | tuple) and all(isinstance(path, str | os.PathLike) for path in X):
        if y is not None:
            raise ValueError("X is a list of files, which hold their labels, but y was given too; leave y out")
        return read_svmlight(X, n_features=n_features)
    if not is_dask(X):
        raise TypeError(
            f"X is a {type(X).__name__}, but a fit on a cluster takes a dask array or a list of svmlight files; "
            f"{_remedy(X) or 'use DropoutSGDClassifier for data in memory'}"
        )
    if y is None:
        raise ValueError("y is None, but an array X needs its labels: a dask array or an array in memory")
    return X, y


def paired_blocks(X: Any, y: Any, weight: Any) -> list[tuple[Any, Any, Any]]:
    """For each partition its blocks of X, y and weight, not computed yet; the weight may be None.

    What is in memory is cut as X is. Arrays of Dask with known chunks are cut so, too; if chunks are unknown there have
    to be equally many, and the workers compare the lengths.
    """
    check_rows(X)
    columns = [_blocks(X), _blocks(_cut(y, X, "y"))]
    columns.append([None] * len(columns[0]) if weight is None else _blocks(_cut(weight, X, "sample_weight")))
    return list(zip(*columns, strict=True))


def check_rows(X: Any) -> None:
    """Raise a ValueError if the blocks of X do not hold whole rows."""
    if X.ndim != 2:
        raise ValueError(f"X has the shape {X.shape}, but it takes a row for each example: two dimensions")
    if X.numblocks[1] != 1:
        raise ValueError(
            f"X has the shape {X.shape} in {X.numblocks} blocks, but a block holds whole rows: X.rechunk({{1: -1}})"
        )


def _blocks(values: Any) -> list[Any]:
    # Not optimised: it would give X and y of a file their own tasks, and the file would be read twice.
    return list(values.to_delayed(optimize_graph=False).ravel())


def _cut(values: Any, X: Any, name: str) -> Any:
    from dask import array

    in_memory, n = not is_dask(values), X.shape[0]
    if in_memory:
        if remedy := _remedy(values):
            raise TypeError(f"{name} is a {type(values).__name__}, but it takes an array; {remedy}")
        values = np.asarray(values)
    known = not np.isnan([n, *values.shape]).any()
    if values.ndim != 1 or (known and values.shape != (n,)) or (in_memory and not known):
        size = "chunks of unknown size (X.compute_chunk_sizes() finds them)" if np.isnan(n) else f"{n} rows"
        raise ValueError(f"{name} has the shape {values.shape}, but X has {size}")
    if known:
        return array.from_array(values, chunks=X.chunks[:1]) if in_memory else values.rechunk(X.chunks[:1])
    if values.numblocks[0] != X.numblocks[0]:
        raise ValueError(
            f"{name} has {values.numblocks[0]} chunks of unknown size and X {X.numblocks[0]}; make them of equal chunks"
        )
    return values


def _remedy(values: Any) -> str | None:
    """How to make an array of what else Dask has: tables and delayed values."""
    if not hasattr(type(values), "__dask_graph__"):
        return None
    table = hasattr(type(values), "to_dask_array")
    return "values.to_dask_array(lengths=True) makes one" if table else "dask.array.from_delayed makes one"
