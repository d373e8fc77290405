"""CIFAR-10 and CIFAR-100: an archive, or the folder that was extracted from it, of pickled batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evodrop.lab.datasets.archives import read_members
from evodrop.lab.datasets.arrays import Bytes, DataError, Labels
from evodrop.lab.datasets.packing import read_whole
from evodrop.lab.datasets.pickles import Pixels, unpickle

__all__ = ["read_archive", "read_batches", "read_folder"]

BYTES_A_NAME = 256  # of a row: its file name and its labels take fewer
STEPS_A_ROW = 8  # of the pickle: a file name and two labels take 4
SPARE = 1 << 16
LABELS = ("fine_labels", "labels")  # of CIFAR-100, which has coarse ones too, and of CIFAR-10


def read_archive(path: Path, members: Sequence[str], rows: int, columns: int) -> Iterator[tuple[str, bytes]]:
    """Where each batch comes from, and the batch, of no more than so many rows."""
    batches = read_members(path, members, _most_bytes(rows, columns))
    return ((f"{path}: {member}", batches.pop(member)) for member in members)


def read_folder(paths: Sequence[Path], rows: int, columns: int) -> Iterator[tuple[str, bytes]]:
    """The same of a folder."""
    return ((str(path), read_whole(path, _most_bytes(rows, columns))) for path in paths)


def _most_bytes(rows: int, columns: int) -> int:
    return rows * (columns + BYTES_A_NAME) + SPARE


def read_batches(
    batches: Iterator[tuple[str, bytes]], rows: Sequence[int], shape: tuple[int, ...], classes: int
) -> tuple[Bytes, Labels]:
    """Images and labels of several batches with so many rows each."""
    images = np.empty((sum(rows), *shape), np.uint8)
    labels = np.empty(sum(rows), np.int64)
    start = 0
    for count, (where, data) in zip(rows, batches, strict=False):  # batches for others may follow
        batch = _checked_dict(unpickle(data, STEPS_A_ROW * count + SPARE, where), where)
        images[start : start + count] = _pixels(batch, (count, *shape), where)
        labels[start : start + count] = _labels(batch, count, classes, where)
        start += count
    if start != sum(rows):  # the rest of the arrays is whatever lay in memory
        raise DataError(f"{start} images are there and {sum(rows)} are expected: batches are missing; fetch them anew")
    return images, labels


def _checked_dict(batch: Any, where: str) -> dict[str, Any]:
    if not isinstance(batch, dict):
        raise DataError(f"{where} holds no dict, as a CIFAR batch does: it is another file")
    return {key.decode("latin-1") if isinstance(key, bytes) else key: value for key, value in batch.items()}


def _pixels(batch: dict[str, Any], shape: tuple[int, ...], where: str) -> Bytes:
    pixels = batch.get("data")
    table = (shape[0], int(np.prod(shape[1:])))
    if not isinstance(pixels, Pixels) or pixels.array.shape != table:
        found = pixels.array.shape if isinstance(pixels, Pixels) else "nothing of the kind"
        raise DataError(f"{where} should hold pixels of shape {table} under 'data', but there is {found}")
    return pixels.array.reshape(shape)


def _labels(batch: dict[str, Any], count: int, classes: int, where: str) -> Labels:
    labels = next((batch[key] for key in LABELS if key in batch), None)
    if not isinstance(labels, list) or len(labels) != count:
        found = f"{len(labels)} of them" if isinstance(labels, list) else "no list"
        raise DataError(f"{where} should hold {count} labels under 'labels' or 'fine_labels', but there is {found}")
    if not all(type(label) is int and 0 <= label < classes for label in labels):
        raise DataError(f"{where} holds a label that is no integer from 0 to {classes - 1}: it is damaged")
    return np.array(labels, np.int64)
