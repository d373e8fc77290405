"""Data sets: files become arrays, and what a stranger wrote is checked before it is believed.

===============  =====================================================================================
``load``         :class:`Images` or :class:`Documents` by name; ``svm:TRAIN,TEST`` takes any svmlight pair
``fetch``        downloads: resumed, checked, from a mirror if need be
``check``        reads all of a data set and tells what was found
``status``       "present", "downloadable" or "missing"
``names``        of the data sets; :data:`DATASETS` has what is known of each
``data_folder``  where data lie: the folder given, else ``EVODROP_DATA``, else the user's cache
===============  =====================================================================================

The rooms: ``arrays`` (what comes out), ``entries`` and ``registry`` (what is known), ``places`` and ``checksums`` (what
is there), ``loading``, and one reader a format: ``idx``, ``svhn``, ``cifar`` (with ``archives``, ``pickles`` and
``machine``), ``documents``; ``packing`` unpacks within bounds, ``splits`` sets test data aside; ``fetching`` and
``download`` are the only ones that write, and the only ones that use the network.
"""

from __future__ import annotations

import os
from typing import Literal

from evodrop.experiments.datasets.arrays import DataError, Documents, Images
from evodrop.experiments.datasets.entries import Dataset
from evodrop.experiments.datasets.fetching import fetch_dataset
from evodrop.experiments.datasets.loading import PAIR, load_dataset, load_pair, pair_paths
from evodrop.experiments.datasets.places import data_folder, find
from evodrop.experiments.datasets.registry import DATASETS
from evodrop.experiments.datasets.splits import SPLIT

__all__ = [
    "DATASETS",
    "PAIR",
    "SPLIT",
    "DataError",
    "Documents",
    "Images",
    "check",
    "data_folder",
    "fetch",
    "load",
    "names",
    "status",
]

Folder = str | os.PathLike[str] | None


def names() -> list[str]:
    """The names that :func:`load` knows, besides ``svm:TRAIN,TEST``.

    Examples:
        >>> names()  # doctest: +NORMALIZE_WHITESPACE
        ['digits', 'mnist', 'svhn', 'cifar10', 'cifar100', 'real-sim', 'news20', 'rcv1', '20news', 'reuters52',
         'rcv1-part', 'athr']
    """
    return list(DATASETS)


def load(name: str, folder: Folder = None) -> Images | Documents:
    """The data set of that name, from files that are there; nothing is downloaded.

    Args:
        name: one of :func:`names`, or ``svm:TRAIN,TEST`` for two svmlight files, plain or packed.
        folder: the data folder, see :func:`data_folder`.

    Raises:
        DataError: if files are missing, damaged or not what they should be.

    Examples:
        >>> digits = load("digits")
        >>> digits.train_x.shape, digits.test_x.shape, digits.classes
        ((1438, 1, 8, 8), (359, 1, 8, 8), 10)
    """
    if name.startswith(PAIR):
        return load_pair(name)
    return load_dataset(_dataset(name), data_folder(folder))


def status(name: str, folder: Folder = None) -> Literal["present", "downloadable", "missing"]:
    """Whether the files are there, or can be downloaded; a look at names and sizes, not at contents.

    Examples:
        >>> status("digits"), status("mnist", "no/such/folder"), status("20news", "no/such/folder")
        ('present', 'downloadable', 'missing')
    """
    if name.startswith(PAIR):
        return "present" if all(path.is_file() for path in pair_paths(name)) else "missing"
    dataset = _dataset(name)
    if all(find(file, data_folder(folder)) for file in dataset.files):
        return "present"
    return "downloadable" if dataset.downloadable else "missing"


def fetch(name: str, folder: Folder = None, *, progress: bool = True) -> None:
    """Download what is missing or wrong of a data set; what is there and right is left alone.

    Args:
        name: one of :func:`names`.
        folder: the data folder, see :func:`data_folder`; it is made if it is not there.
        progress: whether to draw a bar.

    Examples:
        >>> fetch("digits")  # comes with scikit-learn
    """
    fetch_dataset(_dataset(name), data_folder(folder), progress=progress)


def check(name: str, folder: Folder = None) -> str:
    """Read all of a data set, with every check there is, and say in a line what was found; or raise a DataError.

    Examples:
        >>> check("digits")
        'digits: 1438 training and 359 test images of shape (1, 8, 8) in 10 classes'
    """
    data = load(name, folder)
    counts = f"{name}: {len(data.train_y)} training and {len(data.test_y)} test"
    if isinstance(data, Images):
        return f"{counts} images of shape {data.train_x.shape[1:]} in {data.classes} classes{_origins(name, folder)}"
    return f"{counts} documents of {data.train_x.shape[1]} features"


def _origins(name: str, folder: Folder) -> str:
    """Which file was found, where several are accepted."""
    found: dict[str, list[str]] = {}
    for file in DATASETS[name].files:
        if file.accepted:
            other = file.accepted_of((data_folder(folder) / file.path).stat().st_size)
            found.setdefault(f"{other.origin}. {other.words}" if other else "as published", []).append(file.path)
    return "".join(f"; {' and '.join(paths)}: {words}" for words, paths in found.items())


def _dataset(name: str) -> Dataset:
    if name not in DATASETS:
        raise DataError(f"there is no data set {name!r}; there are {', '.join(DATASETS)}, and svm:TRAIN,TEST")
    return DATASETS[name]
