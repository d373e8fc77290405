"""Files gone wrong by accident or on purpose, and what must hold of every one of them.

A mutation damages the file as it is published or, so that checksums of gzip, bzip2, zlib and tar do not stop it at the
door, what is packed in it. Besides bit flips, cuts and transplants there are commands for an unpickler, numbers that
are too large, and names that lead out of a folder.
"""

from __future__ import annotations

import bz2
import functools
import gzip
import pickle
import pickletools
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from specimens import mat, specimen, tar

from evodrop.lab.datasets import DataError, Documents
from evodrop.lab.datasets.loading import load_dataset

NUMBERS = [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1]
NAMES = [b"../escaped", b"../../escaped", b"cifar-10-batches-py/../../escaped", b"mnist/\0x", b"\xff\xfe"]
TEXTS = [b"nan", b"1e999", b":", b"-1", b" 99999999999:1", b"#", b"\0", b"\n", b"qid:1", b"1_0", b"0x10", b"\xc3\xa4"]


class Target(NamedTuple):
    """A format: which file of which data set is mutated, and the layers at which it can be."""

    name: str
    packed: bool
    path: str
    layers: list  # functions (content, mutate) -> content


def outer(content, mutate):
    return mutate(content)


def in_gzip(content, mutate):
    return gzip.compress(mutate(gzip.decompress(content)), 1, mtime=0)


def in_bz2(content, mutate):
    return bz2.compress(mutate(bz2.decompress(content)), 1)


def in_tar_headers(content, mutate):
    """A header is mutated, and its checksum set right, so that it is believed."""
    archive = bytearray(gzip.decompress(content))
    starts = [at for at in range(0, len(archive), 512) if archive[at + 257 : at + 262] == b"ustar"]
    at = starts[mutate.choose(len(starts))]
    header = bytearray(mutate(bytes(archive[at : at + 512])).ljust(512, b"\0")[:512])
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    archive[at : at + 512] = header
    return gzip.compress(archive, 1, mtime=0)


def plain_mat(_, mutate):
    return mutate(mat(*specimen("svhn").arrays[:2], compressed=False))


def in_packed_variable(_, mutate):
    content = mat(*specimen("svhn").arrays[:2], compressed=False)
    end = 136 + struct.unpack_from("<I", content, 132)[0]
    variables = zlib.compress(mutate(content[128:end])), zlib.compress(content[end:])
    return content[:128] + b"".join(struct.pack("<II", 15, len(v)) + v for v in variables)


@functools.cache
def operations(content):
    """Where the operations of a pickle begin."""
    return [at for _, _, at in pickletools.genops(content)]


def between_operations(content, mutate):
    """Something that a pickle can ask for stands where an unpickler would heed it."""
    at = operations(content)[mutate.choose(len(operations(content)))]
    return content[:at] + mutate.command() + content[at:]


def in_member(name, _, mutate):
    """The same in a batch of an archive of a data set that is otherwise whole."""
    members = dict(specimen(name).unpacked)
    first = next(iter(members))
    members[first] = between_operations(members[first], mutate)
    return gzip.compress(tar(members), 1, mtime=0)


def archive_of(name, path):
    return Target(name, True, path, [outer, in_gzip, in_tar_headers, functools.partial(in_member, name)])


TARGETS = {
    "idx": Target("mnist", False, "mnist/train-images-idx3-ubyte", [outer]),
    "idx.gz": Target("mnist", True, "mnist/train-labels-idx1-ubyte.gz", [outer, in_gzip]),
    "mat": Target("svhn", True, "svhn/train_32x32.mat", [outer, plain_mat, in_packed_variable]),
    "cifar10 batch": Target("cifar10", False, "cifar-10-batches-py/data_batch_1", [outer, between_operations]),
    "cifar100 batch": Target("cifar100", False, "cifar-100-python/train", [outer, between_operations]),
    "cifar10 tar.gz": archive_of("cifar10", "cifar-10-python.tar.gz"),
    "cifar100 tar.gz": archive_of("cifar100", "cifar-100-python.tar.gz"),
    "svmlight": Target("rcv1", False, "rcv1/rcv1_train.binary", [outer]),
    "svmlight.bz2": Target("20news", True, "20news/train.svm.bz2", [outer, in_bz2, in_bz2]),
}


class Mutator:
    """Mutates bytes; the same seed does the same."""

    def __init__(self, seed: int, marker: Path) -> None:
        self.rng = np.random.default_rng(seed)
        command = b"touch " + str(marker).encode()
        self.commands = [
            b"cos\nsystem\n(U" + bytes([len(command)]) + command + b"tR0",
            b"cposix\nsystem\n(X" + struct.pack("<I", len(command)) + command + b"tR0",
            b"\x8c\x02os\x8c\x06system\x93(C" + bytes([len(command)]) + command + b"tR0",
            b"(U" + bytes([len(command)]) + command + b"ios\nsystem\n0",
            b"c__builtin__\nopen\n(U" + bytes([len(str(marker))]) + str(marker).encode() + b"U\x01wtR0",
            *(pickle.dumps(value, 2)[2:-1] + b"0" for value in (print, np.float64(1), np.zeros(2), {1, 2}, 1.5)),
        ]
        self.pieces = [
            *self.commands,
            *NAMES,
            str(marker).encode(),
            *TEXTS,
            *(struct.pack(form, number & mask) for number in NUMBERS for form, mask in FORMS),
            *(code + struct.pack("<Q", number)[:width] for code, width in SIZED for number in NUMBERS),
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

    def command(self) -> bytes:
        return self.commands[self.choose(len(self.commands))]

    def piece(self) -> bytes:
        return self.pieces[self.choose(len(self.pieces))]


class Unchanged(Mutator):
    """Mutates nothing."""

    def __call__(self, content: bytes) -> bytes:
        return content

    def command(self) -> bytes:
        return b""


FORMS = [("<I", 2**32 - 1), (">I", 2**32 - 1), ("<Q", 2**64 - 1), ("<H", 2**16 - 1)]
SIZED = [(b"T", 4), (b"X", 4), (b"B", 4), (b"r", 4), (b"j", 4), (b"\x8e", 8), (b"\x96", 8), (b"\x8a", 1), (b"\x8b", 4)]


class Trial:
    """A data set in a folder, one of whose files is mutated again and again."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.target = TARGETS[kind]
        self.made = specimen(self.target.name)
        self.folder = folder / "data"
        self.marker = folder / "marker"
        self.made.write(self.folder, self.target.packed)
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
        data, made = load_dataset(self.made.dataset, self.folder), self.made
        if isinstance(data, Documents):
            assert data.train_x.shape == (len(data.train_y), data.test_x.shape[1])
            assert {*data.train_y, *data.test_y} == {-1.0, 1.0}
            assert np.isfinite(data.train_x.data).all()
        else:
            for found, written in zip(data[1:5], made.arrays, strict=True):
                assert found.shape == written.shape
            assert 0 <= data.train_y.min() <= data.train_y.max() < data.classes
