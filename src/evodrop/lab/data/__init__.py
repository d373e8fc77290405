"""Data sets: files become arrays, and what others wrote is checked before it is used.

``registry`` has the entries, ``files`` what lies in the data folder, ``images`` and ``text`` the readers. Only
``download`` writes, and only it uses the network.
"""

from __future__ import annotations

import os
from typing import Any, Literal, cast

from evodrop.lab.data.download import fetch_dataset
from evodrop.lab.data.files import DataError, data_folder, find
from evodrop.lab.data.images import Images, read_images
from evodrop.lab.data.registry import DATASETS, VALIDATION, Dataset, held_out
from evodrop.lab.data.text import PAIR, Documents, pair_paths, read_documents, read_pair

__all__ = ["DATASETS", "PAIR", "VALIDATION", "DataError", "Documents", "Images", "check", "data_folder", "fetch"]
__all__ += ["held_out", "load", "status"]  # what the laboratory takes from here

Folder = str | os.PathLike[str] | None


def load(name: str, folder: Folder = None) -> Images | Documents:
    """The data set of that name, from files that are there; nothing is downloaded.

    Args:
        name: of :data:`DATASETS`, or ``svm:TRAIN,TEST`` for two svmlight files, plain or packed. ``validation:NAME`` is
            the training data of NAME alone, a fifth of them set aside as test data.
        folder: the data folder, see :func:`data_folder`.

    Raises:
        DataError: if files are missing, damaged or not what they should be.
    """
    if name.startswith(VALIDATION):
        whole: Any = load(name.removeprefix(VALIDATION), folder)
        x, y, (train, test) = whole.train_x, whole.train_y, held_out(len(whole.train_y))
        part = {"train_x": x[train], "train_y": y[train], "test_x": x[test], "test_y": y[test]}
        return cast(Images | Documents, whole._replace(name=name, **part))
    if name.startswith(PAIR):
        return read_pair(name, *pair_paths(name))
    dataset, where = _dataset(name), data_folder(folder)
    form = find(dataset, where)
    return (read_documents if form.reader == "svmlight" else read_images)(dataset, form, where)


def status(name: str, folder: Folder = None) -> Literal["present", "downloadable", "missing"]:
    """Whether the files are there, or can be downloaded; a look at names and sizes, not at contents."""
    if name.startswith(PAIR):
        return "present" if all(path.is_file() for path in pair_paths(name)) else "missing"
    dataset = _dataset(name)
    try:
        find(dataset, data_folder(folder))
    except DataError:
        return "downloadable" if dataset.download else "missing"
    return "present"


def fetch(name: str, folder: Folder = None, *, progress: bool = True) -> None:
    """Download what is missing or wrong of a data set; what is there and right is left alone."""
    fetch_dataset(_dataset(name), data_folder(folder), progress=progress)


def check(name: str, folder: Folder = None) -> str:
    """Read all of a data set, with every check there is, and say in a line what was found; or raise a DataError."""
    data = load(name, folder)
    found = f"{name}: {len(data.train_y)} training and {len(data.test_y)} test "
    if isinstance(data, Images):
        found += f"images of shape {data.train_x.shape[1:]} in {data.classes} classes"
    else:
        found += f"documents of {data.train_x.shape[1]} features"
    form = find(DATASETS[name], data_folder(folder)) if name in DATASETS else None
    if form is None or not form.files:
        return found
    published = ": as published" if all(file.checksum for file in form.files) else ""
    origin = f": {form.origin}. {form.note}" if form.origin else published
    return f"{found}, from {form.files[0].path}{f' and {len(form.files) - 1} more' * (len(form.files) > 1)}{origin}"


def _dataset(name: str) -> Dataset:
    if name not in DATASETS:
        raise DataError(f"there is no data set {name!r}; there are {', '.join(DATASETS)}, and svm:TRAIN,TEST")
    return DATASETS[name]
