"""From the files of a data set to its arrays: check, read, check again."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from evodrop.experiments.datasets.arrays import Bytes, DataError, Documents, Images, Labels
from evodrop.experiments.datasets.checksums import verify
from evodrop.experiments.datasets.cifar import read_archive, read_batches, read_folder
from evodrop.experiments.datasets.documents import as_documents, n_used, read_pair, read_svmlight
from evodrop.experiments.datasets.entries import Dataset
from evodrop.experiments.datasets.idx import read_idx
from evodrop.experiments.datasets.places import Place, find_all
from evodrop.experiments.datasets.splits import held_out
from evodrop.experiments.datasets.svhn import read_mat

__all__ = ["PAIR", "load_dataset", "load_pair", "pair_paths"]

PAIR = "svm:"  # before the names of two files


def load_dataset(dataset: Dataset, folder: Path) -> Images | Documents:
    """Read a data set whose files lie in the folder. Archives must have the right checksum."""
    places = find_all(dataset, folder)
    verified = [verify(place.file, folder) if place.packed else False for place in places]
    if dataset.format == "svmlight":
        return _read_documents(dataset, places, trusted=all(verified))
    read = {"bundled": _read_digits, "idx": _read_mnist, "mat": _read_svhn, "cifar": _read_cifar}[dataset.format]
    others = (place.file.accepted_of(place.paths[0].stat().st_size) for place in places if place.packed)
    origins = dict.fromkeys(other.origin for other in others if other)
    return Images(dataset.name, *read(dataset, places), dataset.classes, ", ".join(origins))


def load_pair(name: str) -> Documents:
    """Read "svm:TRAIN,TEST", two svmlight files."""
    return as_documents(name, *read_pair(*pair_paths(name)))


def pair_paths(name: str) -> tuple[Path, Path]:
    """The two files that "svm:TRAIN,TEST" names."""
    paths = [Path(part).expanduser() for part in name.removeprefix(PAIR).split(",") if part]
    if len(paths) != 2:
        raise DataError(f"{name!r} should name two svmlight files: svm:TRAIN,TEST, with one comma")
    return paths[0], paths[1]


Arrays = tuple[Bytes, Labels, Bytes, Labels]


def _read_digits(dataset: Dataset, _: list[Place]) -> Arrays:
    from sklearn.datasets import load_digits

    bundle = load_digits()
    images = bundle.images.astype(np.uint8).reshape(-1, *dataset.shape)
    labels = bundle.target.astype(np.int64)
    train, test = held_out(len(labels))
    return images[train], labels[train], images[test], labels[test]


def _read_mnist(dataset: Dataset, places: list[Place]) -> Arrays:
    train, test = _counts(dataset)
    shapes = [(train, *dataset.shape[1:]), (train,), (test, *dataset.shape[1:]), (test,)]
    paths = [place.paths[0] for place in places]
    train_x, train_y, test_x, test_y = (read_idx(path, shape) for path, shape in zip(paths, shapes, strict=True))
    for path, labels in zip(paths[1::2], (train_y, test_y), strict=True):
        if labels.max() >= dataset.classes:
            raise DataError(f"{path} holds the label {labels.max()}, but labels go from 0 to {dataset.classes - 1}")
    return train_x[:, None], train_y.astype(np.int64), test_x[:, None], test_y.astype(np.int64)


def _read_svhn(dataset: Dataset, places: list[Place]) -> Arrays:
    (train,), (test,) = (place.paths for place in places)
    counts = _counts(dataset)
    return *read_mat(train, counts[0], dataset.shape), *read_mat(test, counts[1], dataset.shape)


def _read_cifar(dataset: Dataset, places: list[Place]) -> Arrays:
    (place,), (train, test), columns = places, _counts(dataset), int(np.prod(dataset.shape))
    n_batches = len(place.file.unpacked) - 1  # the last one tests
    rows = [train // n_batches] * n_batches
    if place.packed:
        batches = read_archive(place.paths[0], place.file.unpacked, max(*rows, test), columns)
    else:
        batches = read_folder(place.paths, max(*rows, test), columns)
    kind = (dataset.shape, dataset.classes)
    return *read_batches(batches, rows, *kind), *read_batches(batches, [test], *kind)


def _read_documents(dataset: Dataset, places: list[Place], *, trusted: bool) -> Documents:
    paths = [place.paths[0] for place in places]
    if dataset.shape:
        tables = [
            read_svmlight(path, rows, *dataset.shape, trusted=trusted)
            for path, rows in zip(paths, _counts(dataset), strict=False)
        ]
        if (used := max(n_used(X) for X, _ in tables)) != dataset.shape[0]:
            raise DataError(f"{paths[0].parent} holds {used} features, but the published files {dataset.shape[0]}")
    else:
        tables = list(read_pair(*paths, trusted=trusted))
    documents = as_documents(dataset.name, *tables)
    for labels in (documents.train_y, documents.test_y):
        if set(np.unique(labels)) != {-1.0, 1.0}:
            raise DataError(
                f"{paths[0].parent} should hold the labels -1 and +1, but there are {np.unique(labels)[:5]}"
            )
    return documents


def _counts(dataset: Dataset) -> tuple[int, int]:
    if dataset.train is None or dataset.test is None:
        raise DataError(f"the registry does not say how many examples {dataset.name} has")
    return dataset.train, dataset.test
