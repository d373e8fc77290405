"""The form of an entry in the registry: a data set and its files."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Accepted", "Dataset", "File"]


class Accepted(NamedTuple):
    """A file that is accepted in the place of the published one.

    Attributes:
        size: in bytes; it tells which file lies there, so no two of them share it.
        checksum: "sha256:...".
        origin: in a few words, shown wherever results of this data are.
        words: the same in a sentence.
    """

    size: int
    checksum: str
    origin: str
    words: str


class File(NamedTuple):
    """One file as it is published.

    Attributes:
        path: where it lies in the data folder.
        addresses: where it is published: those of https first, the official one before public mirrors. Empty: nowhere.
        checksum: "md5:..." as published. None: nobody published one, so the sha256 of the first download is kept.
        size: in bytes; exact with a checksum, else rounded.
        unpacked: files that hold the same unpacked; they serve in its stead if the file itself is not there.
        accepted: further files that are accepted in its place.
    """

    path: str
    addresses: tuple[str, ...] = ()
    checksum: str | None = None
    size: int = 0
    unpacked: tuple[str, ...] = ()
    accepted: tuple[Accepted, ...] = ()

    def accepted_of(self, size: int) -> Accepted | None:
        """The accepted file of that size, or None: then it is the published one, if any."""
        return next((other for other in self.accepted if other.size == size), None)

    @property
    def sums(self) -> str:
        """In words, the sizes and checksums of all files that are accepted."""
        others = (f", or {other.size} bytes with {other.checksum} ({other.origin})" for other in self.accepted)
        return f"{self.size} bytes with {self.checksum}{''.join(others)}"


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
