"""Images: a file with a published checksum is read by a stock reader, but only after its checksum was found right.

Files without a published checksum hold nothing but bytes in a known number: MNIST's unpacked and CIFAR's binary ones.
"""

from __future__ import annotations

import gzip
import io
import math
import pickle
import struct
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from evodrop.lab.data.files import DataError, contents
from evodrop.lab.data.registry import Dataset, Form, held_out

Parts = Mapping[str, bytes]  # path of a file: its content
Arrays = tuple[Any, Any, Any, Any]  # train_x, train_y, test_x, test_y


class Images(NamedTuple):
    """Labelled images. Pixels are of uint8 and shape (n, channels, height, width); labels count from 0."""

    name: str
    train_x: npt.NDArray[np.uint8]
    train_y: npt.NDArray[np.int64]
    test_x: npt.NDArray[np.uint8]
    test_y: npt.NDArray[np.int64]
    classes: int
    origin: str = ""  # what the data are in a few words, if they are not those that were published


def read_images(dataset: Dataset, form: Form, folder: Path) -> Images:
    """The images of a data set that lies in the folder in this form."""
    parts = contents(dataset, form, folder)
    if form.members:  # of an archive whose checksum was right
        with tarfile.open(fileobj=io.BytesIO(*parts.values())) as archive:
            parts = {member: cast(IO[bytes], archive.extractfile(member)).read() for member in form.members}
    parts = {path: gzip.decompress(part) if path.endswith(".gz") else part for path, part in parts.items()}
    arrays = READERS[form.reader](dataset, parts)
    for y in (arrays[1], arrays[3]):
        if not 0 <= y.min() <= y.max() < dataset.classes:
            raise DataError(
                f"{folder / form.files[0].path} or a file beside it has labels from {y.min()} to {y.max()}, but "
                f"{dataset.name} has labels from 0 to {dataset.classes - 1}: it is damaged, or another file"
            )
    return Images(dataset.name, *arrays, dataset.classes, form.origin)


def _digits(dataset: Dataset, _: Parts) -> Arrays:
    """scikit-learn's own."""
    from sklearn.datasets import load_digits

    bundle = load_digits()
    x, y = bundle.images.astype(np.uint8).reshape(-1, *dataset.shape), bundle.target.astype(np.int64)
    train, test = held_out(len(y))
    return x[train], y[train], x[test], y[test]


def _idx(dataset: Dataset, parts: Parts) -> Arrays:
    """MNIST's format: two zeros, the type of the numbers, the number of dimensions, each dimension, the numbers."""
    arrays = []
    for at, (path, part) in enumerate(parts.items()):
        shape = ((dataset.train if at < 2 else dataset.test) or 0, *(() if at % 2 else dataset.shape[1:]))
        head = struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape)
        size = len(head) + math.prod(shape)
        if len(part) != size or not part.startswith(head):
            raise DataError(
                f"{path} has {len(part)} bytes and begins with {part[: len(head)].hex(' ', 4)}, but an idx file of "
                f"shape {shape} has {size} and begins with {head.hex(' ', 4)}: it is cut off, or another file"
            )
        arrays.append(np.frombuffer(bytearray(part), np.uint8, offset=len(head)).reshape(shape))
    x, y, test_x, test_y = arrays
    return x[:, None], y.astype(np.int64), test_x[:, None], test_y.astype(np.int64)


def _mat(_: Dataset, parts: Parts) -> Arrays:
    """SVHN's MATLAB files: X of shape (height, width, channels, n), and y, which calls the digit 0 10."""
    from scipy.io import loadmat

    tables = [loadmat(io.BytesIO(part)) for part in parts.values()]
    x, test_x = (np.ascontiguousarray(table["X"].transpose(3, 2, 0, 1)) for table in tables)
    y, test_y = (table["y"].ravel().astype(np.int64) % 10 for table in tables)
    return x, y, test_x, test_y


def _records(dataset: Dataset, parts: Parts) -> Arrays:
    """CIFAR's binary version: of each image its label, or the coarse and the fine one, and then its pixels."""
    size, labels = math.prod(dataset.shape), 2 if dataset.classes == 100 else 1
    tables = [np.frombuffer(part, np.uint8).reshape(-1, labels + size) for part in parts.values()]
    return _batches(dataset, [(table[:, labels:], table[:, labels - 1]) for table in tables])


def _pickles(dataset: Dataset, parts: Parts) -> Arrays:
    """CIFAR's python version."""
    batches = [_Unpickler(io.BytesIO(part), encoding="latin-1").load() for part in parts.values()]
    return _batches(dataset, [(batch["data"], batch.get("fine_labels") or batch["labels"]) for batch in batches])


def _batches(dataset: Dataset, batches: list[tuple[Any, Any]]) -> Arrays:
    """The last batch is the test data."""
    x = np.concatenate([pixels for pixels, _ in batches]).reshape(-1, *dataset.shape)
    y = np.concatenate([np.asarray(labels, np.int64) for _, labels in batches])
    return x[: dataset.train], y[: dataset.train], x[dataset.train :], y[dataset.train :]


class _Unpickler(pickle.Unpickler):
    """The checksum was right; besides, a batch can name nothing but NumPy's arrays."""

    def find_class(self, module: str, name: str) -> Any:
        if f"{module}.{name}" not in ("numpy.core.multiarray._reconstruct", "numpy.ndarray", "numpy.dtype"):
            raise DataError(f"a batch asks for {module}.{name}, which no published one does; get it again")
        return super().find_class(module, name)


READERS = {"digits": _digits, "idx": _idx, "mat": _mat, "records": _records, "pickles": _pickles}
