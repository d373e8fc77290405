"""Files of examples larger than memory: svmlight text, plain or packed, read a chunk of rows at a time."""

from __future__ import annotations

import bz2
import gzip
import io
import numbers
import os
import re
import stat
import zlib
from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.datasets import load_svmlight_file

__all__ = ["iter_svmlight"]

LARGEST_INDEX = 2**31 - 1  # scikit-learn's parser keeps an index in a C int
PLAIN = b"0123456789+-.eE: \t\r\n"  # a line of these bytes alone is either parsed rightly or refused by that parser
NUMBER = rb"[+-]?+(?:[0-9]++\.?+[0-9]*+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+"
INTEGER = rb"[+-]?+[0-9]++"
is_number = re.compile(NUMBER).fullmatch
is_integer = re.compile(INTEGER).fullmatch
is_query = re.compile(rb"qid:" + INTEGER).fullmatch
# The last alternative refuses a file that ends in a point with no newline after it: a number cut in two.
is_row = re.compile(
    rb"[ \t\r]*+%b(?:[ \t\r]++qid:%b)?+(?:[ \t\r]++%b:%b)*+[ \t\r\n]*+(?:#.*+|(?<!\.))"
    % (NUMBER, INTEGER, INTEGER, NUMBER),
    re.DOTALL,
).fullmatch

Chunk = tuple[sparse.csr_array, npt.NDArray[np.float64]]
Row = tuple[int, bytes]  # the number of a line in its file, from 1, and the line


class Format(NamedTuple):
    """What the text does not tell of itself."""

    path: str
    n_features: int
    zero_based: bool
    dtype: np.dtype[Any]


def iter_svmlight(
    path: str | os.PathLike[str],
    chunk_rows: int = 10_000,
    *,
    n_features: int | None = None,
    zero_based: bool = False,
    dtype: npt.DTypeLike = np.float64,
) -> Iterator[Chunk]:
    """The examples of an svmlight (LIBSVM) file as pairs (X, y) of chunk_rows rows, the last pair perhaps of fewer.

    The memory taken depends on chunk_rows and on the length of the lines, not on the size of the file. A line that is
    not an example is never skipped or guessed: it raises a ValueError with the file, the number of the line and the
    reason. Comments after ``#``, blank lines and ``qid:`` are passed over. One thing cannot be seen:
    that a plain file was cut off, if the cut left its last line a valid example.

    Args:
        path: the file, plain or packed by gzip or bzip2; its first bytes tell which, not its name.
        chunk_rows: how many rows a chunk has.
        n_features: how many columns X has. None reads the file once more, beforehand, to find its largest index; giving
            the number spares that pass.
        zero_based: whether the first feature has index 0; LIBSVM's has 1.
        dtype: of X, float64 or float32. y is of float64.

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
    _check_count(chunk_rows, "chunk_rows")
    if n_features is not None:
        _check_count(n_features, "n_features")
    if not isinstance(zero_based, bool | np.bool_):
        raise ValueError(
            f"iter_svmlight: zero_based is {zero_based!r}, but it takes True or False: a chunk cannot tell"
        )
    if np.dtype(dtype) not in (np.float32, np.float64):
        raise ValueError(f"iter_svmlight: dtype is {dtype!r}, but it takes float64 or float32")
    if stat.S_ISFIFO(os.stat(path).st_mode) and n_features is None:
        raise ValueError(f"{os.fspath(path)} is a pipe, which can be read only once: give n_features")
    return _chunks(Format(os.fspath(path), n_features or 0, bool(zero_based), np.dtype(dtype)), chunk_rows)


def _check_count(count: Any, name: str) -> None:
    if not (isinstance(count, numbers.Integral) and int(count) >= 1):
        raise ValueError(f"iter_svmlight: {name} is {count!r}, but it takes an integer of at least 1")


def _chunks(form: Format, chunk_rows: int) -> Iterator[Chunk]:
    if not form.n_features:
        form = form._replace(n_features=_count_features(form))
    with closing(_rows(form.path)) as rows:
        for first in rows:
            yield _parsed([first, *islice(rows, int(chunk_rows) - 1)], form)


def _rows(path: str) -> Generator[Row]:
    """The lines that hold an example."""
    number = found = 0
    with open(path, "rb") as packed, _unpacked(packed) as text:
        try:
            for number, line in enumerate(text, 1):
                if line.partition(b"#")[0].strip():
                    found += 1
                    yield number, line
            if packed is not text and packed.read(1):  # bz2 stops without a word where a later stream is damaged
                raise EOFError("what follows is not packed data")
        except (EOFError, OSError, zlib.error) as error:
            if isinstance(error, OSError) and error.errno:  # the disk's fault, not the file's
                raise
            raise ValueError(
                f"{path} is cut off or damaged after {number} lines were read: {error}. Fetch or pack it anew"
            ) from error
    if not found:
        raise ValueError(f"{path} holds no example in {number} lines; a line reads like '+1 3:0.5 7:2'")


def _unpacked(packed: io.BufferedReader) -> io.BufferedIOBase:
    start = packed.peek(3)[:3]
    if start.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=packed)
    return bz2.BZ2File(packed) if start == b"BZh" else packed


def _count_features(form: Format) -> int:
    """By the last pair of each line. What is garbled or unsorted does not count here: parsing names it."""
    largest = 0.0
    for _, line in _rows(form.path):
        last = b"".join(line.partition(b"#")[0].rpartition(b":")[0].rsplit(None, 1)[-1:])
        if is_integer(last) and largest < float(last) <= LARGEST_INDEX:
            largest = float(last)
    return max(1, int(largest) + form.zero_based)


def _parsed(rows: list[Row], form: Format) -> Chunk:
    lines = [line for _, line in rows]
    try:
        X, y = load_svmlight_file(
            io.BytesIO(b"".join(lines)), n_features=form.n_features, zero_based=form.zero_based, dtype=form.dtype
        )
    except (ValueError, OverflowError) as error:
        raise _refusal(rows, form, str(error)) from error
    if not (all(map(_is_sound, lines)) and len(y) == len(lines) and np.isfinite(X.data).all() and np.isfinite(y).all()):
        raise _refusal(rows, form, "the numbers are not those of the text")
    # 64-bit indices, which the parser leaves, take twice the memory, and some estimators refuse them.
    width = np.int32 if max(X.nnz, form.n_features) <= LARGEST_INDEX else np.int64
    return sparse.csr_array((X.data, X.indices.astype(width), X.indptr.astype(width)), shape=X.shape), y


def _is_sound(line: bytes) -> bool:
    """Whether scikit-learn's parser may be believed: it takes 1_0 for 10, nan for a number, qidx:y for a query."""
    return not (line.translate(None, PLAIN) or line.endswith(b".")) or is_row(line) is not None


def _refusal(rows: list[Row], form: Format, cause: str) -> ValueError:
    """The error that names the first bad line, found slowly, for it happens once."""
    for number, line in rows:
        if fault := _line_fault(line, form):
            return ValueError(f"{form.path}, line {number}: {fault}")
    return ValueError(f"{form.path}, lines {rows[0][0]} to {rows[-1][0]}: {cause}")


def _line_fault(line: bytes, form: Format) -> str | None:
    label, *pairs = line.partition(b"#")[0].split()
    if not _is_finite(label, np.dtype(np.float64)):
        hint = " (several labels are not supported)" if b"," in label else ""
        return f"the line begins with {_shown(label)}, but a label is one finite number{hint}"
    previous = -1.0
    for pair in pairs[1:] if pairs and is_query(pairs[0]) else pairs:
        if fault := _pair_fault(pair, previous, form):
            return fault
        previous = float(pair.partition(b":")[0])
    if previous >= form.n_features + (not form.zero_based):
        return f"index {previous:.0f} is beyond n_features={form.n_features}; give a larger n_features, or None"
    if is_row(line):
        return None
    if line.endswith(b"."):
        return "the file ends in a point, as if cut off in a number; end the line with a newline if it is whole"
    return "a control character parts its pairs; spaces or tabs must"


def _pair_fault(pair: bytes, previous: float, form: Format) -> str | None:
    index, colon, value = pair.partition(b":")
    if not (colon and is_integer(index)):
        return f"{_shown(pair)} is not a pair index:value whose index is an integer, nor qid:integer after the label"
    if float(index) > LARGEST_INDEX:
        return f"index {_shown(index)} is larger than {LARGEST_INDEX}, the largest that is read"
    if float(index) < (not form.zero_based):
        hint = "zero_based=True" if float(index) == 0 else "indices that are not negative"
        return f"index {_shown(index)} is less than {int(not form.zero_based)}, the first feature's; give {hint}"
    if float(index) <= previous:
        return f"index {_shown(index)} follows {previous:.0f}, but indices ascend and are unique; sort the line's pairs"
    if not _is_finite(value, form.dtype):
        return f"the value {_shown(value)} of index {_shown(index)} is not a finite number of {form.dtype}"
    return None


def _is_finite(text: bytes, dtype: np.dtype[Any]) -> bool:
    with np.errstate(over="ignore"):
        return is_number(text) is not None and bool(np.isfinite(dtype.type(float(text))))


def _shown(token: bytes) -> str:
    return repr(token[:40])[1:]  # as text, with what is no ASCII escaped
