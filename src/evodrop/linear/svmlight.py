"""Files of examples larger than memory: svmlight text, plain or packed, read a chunk of rows at a time."""

from __future__ import annotations

import bz2
import gzip
import io
import os
import re
import stat
import zlib
from collections.abc import Generator, Iterator
from contextlib import closing
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.datasets import load_svmlight_file

from evodrop._checks import Floats, checked_integer

__all__ = ["iter_svmlight"]

PLAIN = b"0123456789+-.eE: \t\r\n"  # scikit-learn's parser reads a line of these rightly, or refuses it
LARGEST_INDEX = 2**31 - 1
LONGEST_LINE = 2**24  # bytes: a million features, and far less than memory
Chunk = tuple[sparse.csr_array, Floats]


def iter_svmlight(
    path: str | os.PathLike[str],
    chunk_rows: int = 10_000,
    *,
    n_features: int | None = None,
    zero_based: bool = False,
    dtype: npt.DTypeLike = np.float64,
    max_line_bytes: int = LONGEST_LINE,
) -> Iterator[Chunk]:
    """The examples of an svmlight (LIBSVM) file as pairs (X, y) of chunk_rows rows, the last pair perhaps of fewer.

    The memory taken depends on chunk_rows and on the length of the lines, not on the size of the file. A line that is
    not an example is never skipped or guessed: it raises a ValueError with the file and the number of the line.
    Comments after ``#``, blank lines and ``qid:`` are passed over. That a plain file was cut off in its last line
    cannot be seen if what is left is an example.

    Args:
        path: the file, plain or packed by gzip or bzip2; its first bytes decide, not its name. A device is refused.
        chunk_rows: how many rows a chunk has.
        n_features: how many columns X has. None reads the file once more, beforehand, to find its largest index.
        zero_based: whether the first feature has index 0; LIBSVM's has 1.
        dtype: of X, float64 or float32. y is of float64.
        max_line_bytes: a longer line raises a ValueError before it takes memory: a few packed kilobytes can hold a line
            of many gigabytes. The default, 16 MiB, is about a million features.

    Examples:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "train.svm")
        ...     _ = path.write_text("+1 1:0.5 3:2\\n-1 2:1\\n+1\\n")
        ...     for X, y in iter_svmlight(path, 2):
        ...         print(X.toarray().tolist(), y.tolist())
        [[0.5, 0.0, 2.0], [0.0, 1.0, 0.0]] [1.0, -1.0]
        [[0.0, 0.0, 0.0]] [1.0]
    """
    chunk_rows = checked_integer(chunk_rows, "chunk_rows")
    if n_features is not None:
        n_features = checked_integer(n_features, "n_features")
    if not isinstance(zero_based, bool | np.bool_):
        raise ValueError(f"zero_based is {zero_based!r}, but it takes True or False: a chunk does not show which")
    if np.dtype(dtype) not in (np.float32, np.float64):
        raise ValueError(f"dtype is {dtype!r}, but it takes float64 or float32")
    mode = os.stat(path).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISDIR(mode)):  # to open a folder is an error by itself
        raise ValueError(f"{os.fspath(path)} is a device or a socket, which may never end; give a file or a pipe")
    if stat.S_ISFIFO(mode) and n_features is None:
        raise ValueError(f"{os.fspath(path)} is a pipe, which can be read only once: give n_features")
    options = {"zero_based": bool(zero_based), "dtype": np.dtype(dtype)}
    longest = checked_integer(max_line_bytes, "max_line_bytes")
    return _chunks(os.fspath(path), chunk_rows, n_features, longest, options)


def _chunks(
    path: str, chunk_rows: int, n_features: int | None, longest: int, options: dict[str, Any]
) -> Iterator[Chunk]:
    if n_features is None:
        n_features = max(X.shape[1] for X, _ in _chunks(path, chunk_rows, 0, longest, options))
    options = options | {"n_features": n_features or None}
    with closing(_rows(path, longest)) as rows:
        for first in rows:
            yield _chunk(path, [first, *islice(rows, chunk_rows - 1)], options)


def _chunk(path: str, rows: list[tuple[int, bytes]], options: dict[str, Any]) -> Chunk:
    try:
        return _parse([line for _, line in rows], options)
    except ValueError as error:
        for number, line in rows:  # one by one, to name the first bad one: it happens once
            try:
                _parse([line], options)
            except ValueError as fault:
                shown = repr(line[:60])[1:]  # as text, with what is no ASCII escaped
                raise ValueError(
                    f"{path}, line {number}: {str(fault)[:100]}; the line is {shown}, but one reads like "
                    "'+1 3:0.5 7:2', with indices that ascend from 1, or from 0 with zero_based=True"
                ) from fault
        raise ValueError(f"{path}, lines {rows[0][0]} to {rows[-1][0]}: {error}") from error


def _parse(lines: list[bytes], options: dict[str, Any]) -> Chunk:
    """Some rows, or a ValueError. The parser alone would take 1_0 for 10, and pass over qidx:y."""
    for line in lines:
        if line.translate(None, PLAIN) and (
            strange := re.sub(rb"\sqid:-?\d+\s|#.*", b" ", line, flags=re.DOTALL).translate(None, PLAIN)
        ):
            raise ValueError(f"the character {repr(strange[:1])[1:]} has no place in a number")
    try:
        with np.errstate(over="ignore"):
            X, y = load_svmlight_file(io.BytesIO(b"".join(lines)), **options)
    except OverflowError as error:
        raise ValueError(f"an index is larger than {LARGEST_INDEX}") from error
    if not (len(y) == len(lines) and np.isfinite(X.data).all() and np.isfinite(y).all()):
        raise ValueError(f"a number is not finite in {X.dtype}")
    # 64-bit indices, which the parser leaves, take twice the memory, and some estimators refuse them.
    width = np.int32 if max(X.nnz, X.shape[1]) <= LARGEST_INDEX else np.int64
    return sparse.csr_array((X.data, X.indices.astype(width), X.indptr.astype(width)), shape=X.shape), y


def _rows(path: str, longest: int) -> Generator[tuple[int, bytes]]:
    """The lines that hold an example, with their numbers in the file, from 1."""
    number = found = 0
    with open(path, "rb") as packed:
        start = packed.peek(3)[:3]
        text: Any = gzip.GzipFile(fileobj=packed) if start.startswith(b"\x1f\x8b") else packed
        text = bz2.BZ2File(packed) if start == b"BZh" else text
        try:
            lines = iter(partial(text.readline, longest + 1), b"")
            for number, line in enumerate(lines, 1):
                if len(line) > longest:
                    raise ValueError(
                        f"{path}, line {number}: it is longer than {longest:,} bytes; if it is an example, raise "
                        "max_line_bytes"
                    )
                if line.partition(b"#")[0].strip():
                    found += 1
                    yield number, line
            if text is not packed and packed.read(1):  # bz2 stops without a word where a later stream is damaged
                raise EOFError("what follows is not packed data")
        except (EOFError, OSError, zlib.error) as error:
            if isinstance(error, OSError) and error.errno:  # the disk's fault, not the file's
                raise
            raise ValueError(
                f"{path} is cut off or damaged after {number} lines were read: {error}. Fetch or pack it anew"
            ) from error
    if not found:
        raise ValueError(f"{path} holds no example in {number} lines; a line reads like '+1 3:0.5 7:2'")
