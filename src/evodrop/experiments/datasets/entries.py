"""The form of an entry in the registry: a data set and its files."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Dataset", "File"]


class File(NamedTuple):
    """One file as it is published.

    Attributes:
        path: where it lies in the data folder.
        addresses: where it is published: those of https first, the official one before public mirrors. Empty: nowhere.
        checksum: "md5:..." as published. None: nobody published one, so the sha256 of the first download is kept.
        size: in bytes; exact with a checksum, else rounded.
        unpacked: files that hold the same unpacked; they serve in its stead if the file itself is not there.
    """

    path: str
    addresses: tuple[str, ...] = ()
    checksum: str | None = None
    size: int = 0
    unpacked: tuple[str, ...] = ()


class Dataset(NamedTuple):
    """One data set.

    Attributes:
        name, title: for the machine and for the reader.
        format: which reader its files need: "idx", "mat", "cifar", "svmlight" or "bundled".
        home: the page that tells of it.
        licence: in a line, as its publisher states it.
        files: training data first.
        train, test: numbers of examples; test is 0 where a fifth of the training data is set aside. None: not fixed.
        shape: of one example. Empty: not fixed.
        classes: number of labels.
    """

    name: str
    title: str
    format: str
    home: str
    licence: str
    files: tuple[File, ...]
    train: int | None
    test: int | None
    shape: tuple[int, ...]
    classes: int

    @property
    def size(self) -> int:
        """Bytes to download."""
        return sum(file.size for file in self.files)

    @property
    def downloadable(self) -> bool:
        """Whether every file has an address."""
        return bool(self.files) and all(file.addresses for file in self.files)
