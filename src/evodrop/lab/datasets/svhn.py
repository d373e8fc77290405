"""SVHN's files: MATLAB's format, level 5, with the two variables X (pixels) and y (digits).

SciPy's reader believes what a file says of itself; this one knows beforehand what must be there.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from evodrop.lab.datasets.arrays import Bytes, DataError, Labels
from evodrop.lab.datasets.packing import read_whole

__all__ = ["read_mat"]

HEADER = 128
INT8, UINT8, INT32, UINT32, MATRIX, COMPRESSED = 1, 2, 5, 6, 14, 15  # types of elements
DOUBLE_CLASS, UINT8_CLASS = 6, 9  # of a variable; y may be declared double and stored in bytes
COMPLEX = 0x800
SPARE = 1 << 16


class Element(NamedTuple):
    """A piece of the file: its type and its content."""

    kind: int
    content: memoryview


class Variable(NamedTuple):
    """A variable: its name, its shape, its bytes."""

    name: bytes
    shape: tuple[int, ...]
    content: memoryview


def read_mat(path: Path, count: int, shape: tuple[int, ...]) -> tuple[Bytes, Labels]:
    """Images (count, channels, height, width) and labels of one file; the digit 0, which SVHN calls 10, is 0."""
    most = count * (math.prod(shape) + 1) + SPARE
    data = memoryview(read_whole(path, most))
    try:
        variables = {variable.name: variable for variable in _variables(data, most)}
    except (struct.error, zlib.error, ValueError) as error:
        raise DataError(f"{path} is damaged, or is no MATLAB file of level 5: {error}. Fetch it anew") from error
    channels, height, width = shape
    expected = {b"X": (height, width, channels, count), b"y": (count, 1)}
    found = {name: variable.shape for name, variable in variables.items()}
    if found != expected:
        raise DataError(f"{path} should hold the variables {expected}, but it holds {found}: it is another file")
    # MATLAB stores by columns: the first index runs fastest.
    pixels = np.frombuffer(variables[b"X"].content, np.uint8).reshape(count, channels, width, height)
    digits = np.frombuffer(variables[b"y"].content, np.uint8)
    if digits.min() < 1 or digits.max() > 10:
        raise DataError(f"{path} holds a label outside 1 to 10: it is damaged. Fetch it anew")
    return np.ascontiguousarray(pixels.swapaxes(2, 3)), digits.astype(np.int64) % 10


def _variables(data: memoryview, most: int) -> Iterator[Variable]:
    if len(data) < HEADER or bytes(data[124:128]) != b"\x00\x01IM":
        raise ValueError("its header is another")
    at = HEADER
    for _ in range(2):
        element, at = _element(data, at)
        if element.kind == COMPRESSED:
            element, _ = _element(_inflated(element.content, most), 0)
        if element.kind != MATRIX:
            raise ValueError(f"an element of type {element.kind} stands where a variable should")
        yield _variable(element.content)
    if at != len(data):
        raise ValueError("something follows the two variables")


def _element(data: memoryview, at: int) -> tuple[Element, int]:
    """The element that begins there, and where the next one does."""
    kind, size = struct.unpack_from("<II", data, at)
    if kind >> 16:  # a small one: type and size share a word, and the content follows in the next
        kind, size, start, end = kind & 0xFFFF, kind >> 16, at + 4, at + 8
    else:
        start = at + 8
        end = start + size + (0 if kind in (MATRIX, COMPRESSED) else -size % 8)
    if start + size > min(len(data), max(end, start)):
        raise ValueError(f"an element of {size} bytes does not fit")
    return Element(kind, data[start : start + size]), end


def _inflated(packed: memoryview, most: int) -> memoryview:
    inflater = zlib.decompressobj()
    content = inflater.decompress(packed, most + 1)
    if len(content) > most or not inflater.eof:
        raise ValueError("a packed variable is cut off, or too large")
    return memoryview(content)


def _variable(matrix: memoryview) -> Variable:
    flags, at = _element(matrix, 0)
    shape, at = _element(matrix, at)
    name, at = _element(matrix, at)
    content, _ = _element(matrix, at)
    if [flags.kind, shape.kind, name.kind, content.kind] != [UINT32, INT32, INT8, UINT8] or len(flags.content) != 8:
        raise ValueError("a variable is not an array of bytes")
    (declared,) = struct.unpack_from("<I", flags.content)
    if declared & COMPLEX or declared & 0xFF not in (DOUBLE_CLASS, UINT8_CLASS):
        raise ValueError("a variable is not an array of bytes")
    lengths = struct.unpack(f"<{len(shape.content) // 4}i", shape.content[:16])
    if min(lengths) < 1 or math.prod(lengths) != len(content.content):
        raise ValueError(f"a variable of shape {lengths} has {len(content.content)} bytes")
    return Variable(bytes(name.content[:8]), lengths, content.content)
