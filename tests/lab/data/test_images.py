"""The readers of images: checksums guard those that could run code, sizes and heads the others."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import struct

import numpy as np
import pytest
from helpers.refusals import MB, memory_below, zeros
from helpers.specimens import Python2Pickler, batch, idx, specimen

from evodrop.lab.data import DataError
from evodrop.lab.data.files import find
from evodrop.lab.data.images import _Unpickler, read_images


def read(made, folder):
    return read_images(made.dataset, find(made.dataset, folder), folder)


def test_an_idx_file_has_the_head_and_the_length_that_it_must_have(tmp_path):
    made = specimen("mnist")
    path = made.write(tmp_path, 1) / "mnist/t10k-labels-idx1-ubyte"
    whole = path.read_bytes()
    other = bytearray(whole)
    other[2] = 9
    for wrong in (*(whole[:end] for end in range(len(whole))), whole + b"\0", bytes(other), idx(np.zeros((2, 5)))):
        path.write_bytes(wrong)
        with pytest.raises(
            DataError, match=r"mnist/t10k-labels-idx1-ubyte has \d+ bytes and begins with .* or another"
        ):
            read(made, tmp_path)
    path.write_bytes(idx(np.full(10, 10)))
    with pytest.raises(DataError, match="has labels from 10 to 10, but mnist has labels from 0 to 9"):
        read(made, tmp_path)


def test_packed_files_are_not_unpacked_before_their_checksum_is_right(tmp_path):
    """Neither a packed bomb with the right size nor packed content where plain content belongs."""
    bomb = zeros(50)
    made = specimen("mnist")
    file, *others = made.dataset.forms[0].files
    form = made.dataset.forms[0]._replace(files=(file._replace(size=len(bomb)), *others))
    dataset = made.dataset._replace(forms=(form, made.dataset.forms[1]))
    made.write(tmp_path, 0)
    (tmp_path / file.path).write_bytes(bomb)
    with memory_below(5 * MB), pytest.raises(DataError, match="but it should have"):
        read(made._replace(dataset=dataset), tmp_path)
    (tmp_path / file.path).unlink()
    made.write(tmp_path, 1)
    (tmp_path / "mnist/train-images-idx3-ubyte").write_bytes(bomb)
    with memory_below(5 * MB), pytest.raises(DataError, match="begins with 1f8b"):
        read(made, tmp_path)


def test_records_without_a_checksum_have_labels_in_their_range(tmp_path):
    made = specimen("cifar100")
    path = made.write(tmp_path, 0) / "cifar-100-binary/train.bin"
    content = bytearray(path.read_bytes())
    content[0] = 255  # the coarse label of the first image, which is not used
    path.write_bytes(content)
    np.testing.assert_array_equal(read(made, tmp_path).train_y, made.arrays[1])
    content[1] = 100
    path.write_bytes(content)
    with pytest.raises(
        DataError, match=r"cifar-100-binary/train\.bin or a file beside it has labels from 0 to 100, but"
    ):
        read(made, tmp_path)


def test_a_pickle_of_python_2_is_read():
    pixels = np.random.default_rng(0).integers(0, 256, (300, 12), np.uint8)
    content = Python2Pickler().dumps(batch(pixels, np.arange(300) % 100, fine=True))
    assert b"r" + struct.pack("<I", 256) in content  # the memo outgrows a byte, as in the published files
    found = _Unpickler(io.BytesIO(content), encoding="latin-1").load()
    np.testing.assert_array_equal(found["data"], pixels)
    assert found["fine_labels"] == [label % 100 for label in range(300)]


@pytest.mark.parametrize("value", [os.system, print, np.float64(1.0), np.random.default_rng])
def test_a_pickle_names_nothing_but_arrays(value):
    """Even one whose checksum is right."""
    with pytest.raises(DataError, match=r"a batch asks for .*, which no published one does"):
        _Unpickler(io.BytesIO(pickle.dumps({"data": value}, 2)), encoding="latin-1").load()


def test_an_archive_is_read_from_the_bytes_that_were_checked(tmp_path):
    made = specimen("cifar10")
    made.write(tmp_path, 2)
    before = sorted(tmp_path.rglob("*"))
    np.testing.assert_array_equal(read(made, tmp_path).test_x, made.arrays[2])
    assert sorted(tmp_path.rglob("*")) == before  # nothing is unpacked to the disk
    (path,) = before
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()), 1, mtime=1)[: path.stat().st_size])
    with pytest.raises(DataError):
        read_images(made.dataset, made.dataset.forms[2], tmp_path)
