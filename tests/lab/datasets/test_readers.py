"""The readers of single files: bombs, cuts, and files that are not what they should be."""

from __future__ import annotations

import bz2
import gzip
import io
import struct
import zlib

import numpy as np
import pytest
from refusals import MB, memory_below, refused, written, zeros
from scipy import io as scipy_io
from specimens import idx, mat, specimen, svmlight

from evodrop.lab.datasets import DataError
from evodrop.lab.datasets.cifar import read_batches, read_folder
from evodrop.lab.datasets.documents import read_svmlight
from evodrop.lab.datasets.idx import read_idx
from evodrop.lab.datasets.loading import load_dataset
from evodrop.lab.datasets.packing import check_text
from evodrop.lab.datasets.svhn import read_mat


def test_cifar_batches_that_are_too_few(tmp_path):
    made = specimen("cifar10")
    paths = [made.write(tmp_path, packed=False) / name for name in made.unpacked]
    shape, rows = made.dataset.shape, [10] * 5

    def read(n):
        return read_batches(read_folder(paths[:n], 10, 3 * 8 * 8), rows, shape, 10)

    np.testing.assert_array_equal(read(6)[0], made.arrays[0])
    for n in range(5):
        with pytest.raises(DataError, match=f"^{10 * n} images are there and 50 are expected"):
            read(n)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_idx(tmp_path, pack):
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    content = idx(array)
    np.testing.assert_array_equal(read_idx(written(tmp_path, pack(content)), (2, 3, 4)), array)
    path = written(tmp_path, pack(content))
    refused(read_idx, path, (3, 2, 4), match="begins with 00000803 00000002 00000003 00000004, but an idx file of")
    refused(read_idx, path, (2, 3, 5), match="holds 40 bytes, but 46 are expected")
    refused(read_idx, path, (2, 3, 3), match="more than the 34 bytes")
    for end in range(len(pack(content))):
        refused(read_idx, written(tmp_path, pack(content)[:end]), (2, 3, 4))


def test_idx_of_other_numbers(tmp_path):
    content = bytearray(idx(np.arange(3)))
    content[2] = 9
    refused(read_idx, written(tmp_path, content), (3,), match="begins with 00000901")


def test_a_packed_idx_bomb(tmp_path):
    path = written(tmp_path, zeros(50))
    with memory_below(5 * MB):
        refused(read_idx, path, (60_000,), match="more than")


SVHN = specimen("svhn").arrays[:2]


def test_mat_agrees_with_scipy(tmp_path):
    path = written(tmp_path, mat(*SVHN))
    pixels, labels = read_mat(path, 20, (3, 8, 8))
    by_scipy = scipy_io.loadmat(str(path), appendmat=False)
    np.testing.assert_array_equal(pixels, by_scipy["X"].transpose(3, 2, 0, 1))
    np.testing.assert_array_equal(labels, by_scipy["y"][:, 0] % 10)


@pytest.mark.parametrize("compressed", [True, False])
def test_mats_that_are_others(tmp_path, compressed):
    def saved(**variables):
        stream = io.BytesIO()
        scipy_io.savemat(stream, variables, do_compression=compressed)
        return written(tmp_path, stream.getvalue())

    X, y = np.zeros((8, 8, 3, 20), np.uint8), np.ones((20, 1), np.uint8)
    assert read_mat(saved(X=X, y=y), 20, (3, 8, 8))[1].tolist() == [1] * 20
    assert read_mat(saved(y=y, X=X), 20, (3, 8, 8))[1].tolist() == [1] * 20
    for variables, told in (
        ({"X": X, "y": y * 0}, "label outside 1 to 10"),
        ({"X": X, "y": y * 11}, "label outside 1 to 10"),
        ({"X": X, "y": y[:-1]}, "should hold"),
        ({"X": X[..., :-1], "y": y}, "should hold"),
        ({"X": X, "z": y}, "should hold"),
        ({"X": X}, "damaged"),
        ({"X": X, "y": y, "z": y}, "something follows"),
        ({"X": X.astype(float)[:, :, :, :5], "y": y}, "not an array of bytes"),
        ({"X": X, "y": y * 1j}, "not an array of bytes"),
        ({"X": X, "y": [["text"]]}, "damaged"),
        ({"X": X, "y": {"a": 1}}, "damaged"),
    ):
        refused(read_mat, saved(**variables), 20, (3, 8, 8), match=told)


def test_every_cut_of_a_mat_is_noticed(tmp_path):
    for content in (mat(*SVHN), mat(*SVHN, compressed=False)):
        for end in range(0, len(content), 29):
            refused(read_mat, written(tmp_path, content[:end]), 20, (3, 8, 8))


def test_a_mat_bomb(tmp_path):
    start, packed = mat(*SVHN)[:128], zlib.compress(bytes(50 * MB))
    path = written(tmp_path, start + struct.pack("<II", 15, len(packed)) + packed)
    with memory_below(5 * MB):
        refused(read_mat, path, 200_000, (3, 1, 1), match="cut off, or too large")


def test_a_mat_that_declares_too_much(tmp_path):
    huge = struct.pack("<IIIIII", 14, 4000, 6, 8, 9, 0) + struct.pack("<IIii", 5, 8, 2**31 - 1, 2**31 - 1) + bytes(4000)
    path = written(tmp_path, mat(*SVHN)[:128] + huge)
    with memory_below(5 * MB):
        refused(read_mat, path, 20, (3, 8, 8))


@pytest.mark.parametrize("pack", [gzip, bz2])
@pytest.mark.parametrize("line", [b"1" * MB, b"1 1:1\n" * 1000], ids=["one line", "many lines"])
def test_a_text_bomb(tmp_path, pack, line):
    path = written(tmp_path, pack.compress(line) * (70 * MB // len(line)))
    with memory_below(20 * MB):
        refused(read_svmlight, path, None, None, match="unpacks to far more")


def test_text_that_shrinks_well_is_no_bomb(tmp_path):
    path = written(tmp_path, bz2.compress(b"1 1:1\n" * 200_000))
    check_text(path)
    assert read_svmlight(path, 200_000, 1)[0].shape == (200_000, 1)


def test_svmlight_counts(tmp_path):
    path = written(tmp_path, svmlight(np.eye(4), np.ones(4)))
    assert read_svmlight(path, 4, 4)[0].shape == (4, 4)
    refused(read_svmlight, path, 3, 4, match="more than the 3 examples")
    refused(read_svmlight, path, 5, 4, match="has 4 examples, but the published file 5")
    refused(read_svmlight, path, 4, 3, match="index 4 is beyond")
    refused(read_svmlight, written(tmp_path, b"1 2147483647:1\n"), None, None, match="beyond")
    refused(read_svmlight, written(tmp_path, b"1 x\n"), None, None, match="line 1")
    refused(read_svmlight, written(tmp_path, bz2.compress(b"1 1:1\n")[:-3]), None, None)


@pytest.mark.parametrize(
    ("name", "path", "content", "told"),
    [
        ("mnist", "mnist/t10k-labels-idx1-ubyte", idx(np.full(10, 10)), "label 10, but labels go from 0 to 9"),
        ("real-sim", "real-sim/real-sim", svmlight(np.eye(60)[:, :40], np.arange(60)), "labels -1 and"),
        ("real-sim", "real-sim/real-sim", svmlight(np.eye(60)[:, :39], np.ones(60)), "holds 39 features"),
    ],
)
def test_contents_are_checked(tmp_path, name, path, content, told):
    made = specimen(name)
    made.write(tmp_path, packed=False)
    (tmp_path / path).write_bytes(content)
    with pytest.raises(DataError, match=told):
        load_dataset(made.dataset, tmp_path)
