"""MNIST's files: idx, plain or packed by gzip."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np

from evodrop.lab.datasets.arrays import Bytes, DataError
from evodrop.lab.datasets.packing import read_exactly

__all__ = ["read_idx"]

UNSIGNED_BYTE = 8


def read_idx(path: Path, shape: tuple[int, ...]) -> Bytes:
    """The array of bytes in an idx file, which must have this shape.

    The file begins with two zeros, the type of its numbers, the number of its dimensions, and each dimension as four
    bytes, the highest first. All of that is known beforehand, so it is compared, not believed.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "labels-idx1-ubyte")
        ...     _ = path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 2, 1]))
        ...     read_idx(path, (3,))
        array([7, 2, 1], dtype=uint8)
    """
    head = struct.pack(f">HBB{len(shape)}I", 0, UNSIGNED_BYTE, len(shape), *shape)
    content = read_exactly(path, len(head) + math.prod(shape))
    if not content.startswith(head):
        found = content[: len(head)].hex(" ", 4)
        raise DataError(f"{path} begins with {found}, but an idx file of shape {shape} with {head.hex(' ', 4)}")
    return np.frombuffer(content, np.uint8, offset=len(head)).reshape(shape)
