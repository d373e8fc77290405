"""Files gone wrong by accident or on purpose, and what must hold of every one of them.

Only formats without a published checksum are here. A mutation damages the file itself or, so that the checksums of
bzip2 do not stop it, what is packed in it: bit flips, cuts, transplants, numbers that are too large, and commands for
an unpickler that would leave a marker.
"""

from __future__ import annotations

import bz2
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from evodrop.lab.data import DataError, Documents
from evodrop.lab.data.images import read_images
from evodrop.lab.data.text import read_documents
from helpers.specimens import specimen

NUMBERS = [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1]
TEXTS = [b"nan", b"1e999", b":", b"-1", b" 99999999999:1", b"#", b"\0", b"\n", b"qid:1", b"1_0", b"0x10", b"\xc3\xa4"]


class Target(NamedTuple):
    """A format: which file of which data set is mutated, and the layers at which it can be."""

    name: str
    form: int
    path: str
    layers: list  # functions (content, mutate) -> content


def outer(content, mutate):
    return mutate(content)


def in_bz2(content, mutate):
    return bz2.compress(mutate(bz2.decompress(content)), 1)


TARGETS = {
    "idx": Target("mnist", 1, "mnist/train-images-idx3-ubyte", [outer]),
    "records": Target("cifar100", 0, "cifar-100-binary/test.bin", [outer]),
    "svmlight": Target("rcv1", 1, "rcv1/rcv1_train.binary", [outer]),
    "svmlight.bz2": Target("20news", 0, "20news/train.svm.bz2", [outer, in_bz2, in_bz2]),
}


class Mutator:
    """Mutates bytes; the same seed does the same."""

    def __init__(self, seed: int, marker: Path) -> None:
        self.rng = np.random.default_rng(seed)
        command, name = b"touch " + str(marker).encode(), str(marker).encode()
        self.pieces = [
            b"cos\nsystem\n(U" + bytes([len(command)]) + command + b"tR0",
            b"cposix\nsystem\n(X" + struct.pack("<I", len(command)) + command + b"tR0",
            b"\x8c\x02os\x8c\x06system\x93(C" + bytes([len(command)]) + command + b"tR0",
            b"(U" + bytes([len(command)]) + command + b"ios\nsystem\n0",
            b"c__builtin__\nopen\n(U" + bytes([len(name)]) + name + b"U\x01wtR0",
            *TEXTS,
            *(struct.pack(form, number & mask) for number in NUMBERS for form, mask in FORMS),
        ]

    def __call__(self, content: bytes) -> bytes:
        kinds: list[Callable] = [
            self.flip,
            self.flip,
            self.cut,
            self.drop,
            self.repeat,
            self.put,
            self.put,
            self.overwrite,
        ]
        for _ in range(self.rng.integers(1, 4)):
            content = kinds[self.choose(len(kinds))](content)
        return content

    def choose(self, n: int) -> int:
        return int(self.rng.integers(n))

    def at(self, content: bytes) -> int:
        """A place, as often as not near the start, where the structure is."""
        end = len(content) if self.rng.random() < 0.5 else min(len(content), 300)
        return self.choose(end + 1)

    def flip(self, content: bytes) -> bytes:
        changed = bytearray(content)
        for _ in range(self.rng.integers(1, 9) if content else 0):
            changed[min(self.at(content), len(content) - 1)] ^= 1 << self.rng.integers(8)
        return bytes(changed)

    def cut(self, content: bytes) -> bytes:
        return content[: self.at(content)]

    def drop(self, content: bytes) -> bytes:
        at = self.at(content)
        return content[:at] + content[at + self.rng.integers(1, 20) :]

    def repeat(self, content: bytes) -> bytes:
        at, source = self.at(content), self.at(content)
        return content[:at] + content[source : source + self.rng.integers(1, 2000)] + content[at:]

    def put(self, content: bytes) -> bytes:
        at = self.at(content)
        return content[:at] + self.piece() + content[at:]

    def overwrite(self, content: bytes) -> bytes:
        at, piece = self.at(content), self.piece()
        return content[:at] + piece + content[at + len(piece) :]

    def piece(self) -> bytes:
        return self.pieces[self.choose(len(self.pieces))]


class Unchanged(Mutator):
    """Mutates nothing."""

    def __call__(self, content: bytes) -> bytes:
        return content


FORMS = [("<I", 2**32 - 1), (">I", 2**32 - 1), ("<Q", 2**64 - 1), ("<H", 2**16 - 1)]


class Trial:
    """A data set in a folder, one of whose files is mutated again and again."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.target = TARGETS[kind]
        self.made = specimen(self.target.name)
        self.folder = folder / "data"
        self.marker = folder / "marker"
        self.made.write(self.folder, self.target.form)
        self.path = self.folder / self.target.path
        self.content = self.path.read_bytes()
        self.around = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}

    def run(self, seed: int) -> str:
        """Read one mutated file: "read" or "refused". Anything that must not happen raises."""
        mutator = Mutator(seed, self.marker)
        layers = self.target.layers
        self.path.write_bytes(layers[seed % len(layers)](self.content, mutator))
        self.around[self.path] = self.path.stat().st_mtime_ns
        outcome = "read"
        try:
            self.read()
        except DataError:
            outcome = "refused"
        found = {path: path.stat().st_mtime_ns for path in self.folder.parent.rglob("*") if path.is_file()}
        assert found == self.around, "something was written"
        return outcome

    def read(self) -> None:
        """Read the data set; what comes out has the shapes and the labels that are promised."""
        made, form = self.made, self.made.dataset.forms[self.target.form]
        data = (read_documents if form.reader == "svmlight" else read_images)(made.dataset, form, self.folder)
        if isinstance(data, Documents):
            assert data.train_x.shape == (len(data.train_y), data.test_x.shape[1])
            assert {*data.train_y, *data.test_y} == {-1.0, 1.0}
            assert np.isfinite(data.train_x.data).all()
        else:
            for found, written in zip(data[1:5], made.arrays, strict=True):
                assert found.shape == written.shape
            assert 0 <= data.train_y.min() <= data.train_y.max() < data.classes
