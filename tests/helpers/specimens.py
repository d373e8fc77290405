"""Small data sets in the true formats, made on the spot: same files, same structure, fewer and smaller examples."""

from __future__ import annotations

import bz2
import functools
import gzip
import hashlib
import io
import struct
import tarfile
from typing import NamedTuple

import numpy as np
from scipy import io as scipy_io
from sklearn.datasets import dump_svmlight_file

from evodrop.lab.data import DATASETS

SMALL = {  # name: training examples, test examples, shape of one
    "mnist": (30, 10, (1, 28, 28)),
    "svhn": (20, 10, (3, 8, 8)),
    "cifar10": (50, 10, (3, 8, 8)),
    "cifar100": (120, 20, (3, 8, 8)),
    "real-sim": (60, 0, (40,)),
    "news20": (60, 0, (40,)),
    "rcv1": (30, 50, (40,)),
    "20news": (None, None, ()),
    "reuters52": (None, None, ()),
    "rcv1-part": (30, 50, (40,)),
    "athr": (60, 0, (40,)),
}


class Specimen(NamedTuple):
    """A data set as the registry would have it, with the sizes and checksums of the files made here."""

    dataset: object
    forms: list  # for each form of the data set: path in the data folder -> content
    arrays: tuple  # train_x, train_y, test_x, test_y

    def write(self, folder, form=0):
        for name, content in self.forms[form].items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        return folder


@functools.cache
def specimen(name):
    train, test, shape = SMALL[name]
    dataset = DATASETS[name]._replace(train=train, test=test, shape=shape)
    make = {"mnist": _mnist, "svhn": _svhn, "cifar10": _cifar, "cifar100": _cifar}.get(name, _documents)
    contents, arrays = make(dataset, np.random.default_rng(0))
    forms = [
        form._replace(files=tuple(_described(file, content) for file, content in zip(form.files, own, strict=True)))
        for form, own in zip(dataset.forms, contents, strict=True)
    ]
    named = [
        {file.path: content for file, content in zip(form.files, own, strict=True)}
        for form, own in zip(forms, contents, strict=True)
    ]
    return Specimen(dataset._replace(forms=tuple(forms)), named, arrays)


def _described(file, content):
    """The file with the size and the checksum of this content, where it had some."""
    algorithm = file.checksum.partition(":")[0]
    checksum = algorithm and f"{algorithm}:{hashlib.new(algorithm, content).hexdigest()}"
    return file._replace(size=len(content) if file.size else 0, checksum=checksum)


def images(dataset, rng):
    sizes = (dataset.train, dataset.test)
    pixels = [rng.integers(0, 256, (n, *dataset.shape), np.uint8) for n in sizes]
    labels = [np.concatenate([[0, dataset.classes - 1], rng.integers(0, dataset.classes, n - 2)]) for n in sizes]
    return pixels[0], labels[0], pixels[1], labels[1]


def idx(array):
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def _mnist(dataset, rng):
    arrays = images(dataset, rng)
    contents = [idx(array[:, 0] if array.ndim == 4 else array) for array in arrays]
    return [[gzip.compress(content) for content in contents], contents], arrays


def mat(pixels, labels, compressed=True):
    stream = io.BytesIO()
    variables = {
        "X": np.ascontiguousarray(pixels.transpose(2, 3, 1, 0)),
        "y": np.where(labels == 0, 10, labels).astype(np.uint8)[:, None],
    }
    scipy_io.savemat(stream, variables, do_compression=compressed)
    return stream.getvalue()


def _svhn(dataset, rng):
    arrays = images(dataset, rng)
    return [[mat(*arrays[:2], packed), mat(*arrays[2:], packed)] for packed in (True, False)], arrays


class Python2Pickler:
    """Pickles as Python 2's cPickle wrote CIFAR's files by protocol 2, memo and all."""

    def __init__(self):
        self.n_kept = 0

    def dumps(self, value):
        return b"\x80\x02" + self.emit(value) + b"."

    def kept(self, code):
        self.n_kept += 1
        index = self.n_kept
        return code + (b"q" + bytes([index]) if index < 256 else b"r" + struct.pack("<I", index))

    def emit(self, v):
        if isinstance(v, bytes):
            size = b"U" + bytes([len(v)]) if len(v) < 256 else b"T" + struct.pack("<I", len(v))
            return self.kept(size + v)
        if isinstance(v, list):
            return self.kept(b"]") + b"(" + b"".join(map(self.emit, v)) + b"e"
        if isinstance(v, dict):
            return self.kept(b"}") + b"(" + b"".join(self.emit(k) + self.emit(w) for k, w in v.items()) + b"u"
        if isinstance(v, tuple):
            short = {1: b"\x85", 2: b"\x86", 3: b"\x87"}.get(len(v))
            return self.kept((b"" if short else b"(") + b"".join(map(self.emit, v)) + (short or b"t"))
        return self.array(v) if isinstance(v, np.ndarray) else number(v)

    def name(self, module, name):
        return self.kept(b"c" + module + b"\n" + name + b"\n")

    def array(self, v):
        make = self.name(b"numpy.core.multiarray", b"_reconstruct") + self.name(b"numpy", b"ndarray")
        empty = make + self.kept(self.emit((0,)) + self.emit(b"b") + b"\x87") + self.kept(b"R")
        shape = self.emit(v.shape)
        dtype = self.name(b"numpy", b"dtype") + self.emit((b"u1", 0, 1)) + self.kept(b"R")
        dtype += b"(" + self.emit(3) + self.emit(b"|") + b"NNN" + self.emit(-1) + self.emit(-1) + self.emit(0) + b"tb"
        return empty + b"(" + self.emit(1) + shape + dtype + b"\x89" + self.emit(v.tobytes()) + b"tb"


def number(v):
    if 0 <= v < 256:
        return b"K" + bytes([v])
    return b"M" + struct.pack("<H", v) if 0 <= v < 65536 else b"J" + struct.pack("<i", v)


def batch(pixels, labels, fine=False):
    names = [b"leptodactylus_pentadactylus_s_%06d.png" % i for i in range(len(labels))]
    contents = {b"batch_label": b"training batch 1 of 5", b"data": pixels.reshape(len(pixels), -1), b"filenames": names}
    labels = [int(label) for label in labels]
    return contents | ({b"fine_labels": labels, b"coarse_labels": labels} if fine else {b"labels": labels})


def tar(members):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def _cifar(dataset, rng):
    arrays = train_x, train_y, test_x, test_y = images(dataset, rng)
    binary, binary_archive, python_archive, _ = dataset.forms
    n_batches, fine = len(binary.files) - 1, dataset.classes == 100
    parts = [*zip(np.split(train_x, n_batches), np.split(train_y, n_batches), strict=True), (test_x, test_y)]
    records = [
        np.hstack([*[y[:, None] // 5] * fine, y[:, None], x.reshape(len(y), -1)]).astype(np.uint8).tobytes()
        for x, y in parts
    ]
    pickles = [Python2Pickler().dumps(batch(*part, fine=fine)) for part in parts]

    def archive(form, contents):
        page = {f"{form.members[0].split('/')[0]}/readme.html": b"<p>CIFAR</p>"}
        return [gzip.compress(tar(page | dict(zip(form.members, contents, strict=True))), mtime=0)]

    return [records, archive(binary_archive, records), archive(python_archive, pickles), pickles], arrays


def svmlight(X, y):
    stream = io.BytesIO()
    dump_svmlight_file(X, y, stream, zero_based=False)
    return stream.getvalue()


def _documents(dataset, rng):
    tables = []
    for n in (dataset.train or 25, dataset.test or 35)[: len(dataset.forms[0].files)]:
        X = rng.random((n, 40)).round(3) * (rng.random((n, 40)) < 0.2)
        X[0, -1] = 0.5
        tables.append((X, np.where(np.arange(n) % 3 == 0, 1.0, -1.0)))
    contents = [svmlight(*table) for table in tables]
    return [[bz2.compress(content) for content in contents], contents], tuple(a for table in tables for a in table)
