"""Data sets by name: what is read is what was written, and what is missing or wrong is told."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits
from specimens import SMALL, mat, specimen, svmlight

from evodrop.experiments import datasets
from evodrop.experiments.datasets import DATASETS, DataError, Documents, Images, data_folder, load, status
from evodrop.experiments.datasets.entries import Accepted
from evodrop.experiments.datasets.loading import load_dataset
from evodrop.experiments.datasets.splits import held_out

IMAGES = ["mnist", "cifar10", "cifar100", "svhn"]  # the last is published unpacked


def dense(array):
    return array.toarray() if sparse.issparse(array) else array


@pytest.mark.parametrize(("name", "packed"), [(name, packed) for name in IMAGES for packed in (True, False)][:-1])
def test_images_are_read_as_they_were_written(tmp_path, name, packed):
    made = specimen(name)
    data = load_dataset(made.dataset, made.write(tmp_path, packed))
    assert isinstance(data, Images)
    assert (data.name, data.classes) == (name, made.dataset.classes)
    for found, written in zip(data[1:5], made.arrays, strict=True):
        np.testing.assert_array_equal(found, written)
        assert found.dtype == (np.uint8 if found.ndim == 4 else np.int64)
        assert found.flags.c_contiguous
        assert found.flags.writeable  # torch.from_numpy warns of those that are not


@pytest.mark.parametrize("name", sorted(set(SMALL) - set(IMAGES)))
@pytest.mark.parametrize("packed", [True, False])
def test_documents_are_read_as_they_were_written(tmp_path, name, packed):
    made = specimen(name)
    data = load_dataset(made.dataset, made.write(tmp_path, packed))
    assert isinstance(data, Documents)
    expected = made.arrays
    if len(expected) == 2:
        train, test = held_out(len(expected[1]))
        expected = tuple(array[rows] for rows in (train, test) for array in expected)
    for found, written in zip(data[1:], expected, strict=True):
        np.testing.assert_array_equal(dense(found), written)
        assert found.dtype == np.float64
    assert isinstance(data.train_x, sparse.csr_array)
    assert data.train_x.indices.dtype == np.int32
    assert data.train_x.shape[1] == data.test_x.shape[1] == 40


def test_svhn_may_be_stored_without_packing(tmp_path):
    made = specimen("svhn")
    made.write(tmp_path)
    (tmp_path / "svhn/train_32x32.mat").write_bytes(mat(*made.arrays[:2], compressed=False))
    np.testing.assert_array_equal(load_dataset(made.dataset, tmp_path).train_x, made.arrays[0])


@pytest.fixture
def rebuilt(tmp_path, monkeypatch):
    """SVHN as the registry would have it if the file to train on were rebuilt, and that to test on published."""
    made = specimen("svhn")
    made.write(tmp_path)
    content = mat(*made.arrays[:2], compressed=False)
    other = Accepted(len(content), f"sha256:{hashlib.sha256(content).hexdigest()}", "made again", "Not published")
    files = [
        file._replace(checksum=f"md5:{hashlib.md5(one).hexdigest()}", size=len(one), accepted=(other,))
        for file, one in zip(made.dataset.files, made.files.values(), strict=True)
    ]
    (tmp_path / files[0].path).write_bytes(content)
    monkeypatch.setitem(DATASETS, "svhn", made.dataset._replace(files=tuple(files)))
    return tmp_path, content


def test_a_further_file_is_accepted_and_named(rebuilt):
    folder, _ = rebuilt
    assert status("svhn", folder) == "present"
    data = load("svhn", folder)
    np.testing.assert_array_equal(data.train_x, specimen("svhn").arrays[0])
    assert data.origin == "made again"
    said = datasets.check("svhn", folder)
    assert said.endswith("; svhn/train_32x32.mat: made again. Not published; svhn/test_32x32.mat: as published")
    datasets.fetch("svhn", folder, progress=False)  # there is nothing to download
    (folder / "svhn/train_32x32.mat").write_bytes(specimen("svhn").files["svhn/train_32x32.mat"])
    assert load("svhn", folder).origin == ""
    assert datasets.check("svhn", folder).endswith("; svhn/train_32x32.mat and svhn/test_32x32.mat: as published")


def test_a_wrong_checksum_names_the_sums_that_are_accepted(rebuilt):
    folder, content = rebuilt
    path, (file, _) = folder / "svhn/train_32x32.mat", DATASETS["svhn"].files
    for right in (content, specimen("svhn").files[file.path]):
        path.write_bytes(right[:-1] + bytes([right[-1] ^ 1]))
        with pytest.raises(DataError) as caught:
            load("svhn", folder)
        for words in (str(path), file.checksum, file.accepted[0].checksum, "(made again)", "Delete it and fetch it"):
            assert words in str(caught.value)
    path.write_bytes(content + b"1")
    with pytest.raises(
        DataError, match=f"{len(content) + 1} bytes, but the published file has {file.size} bytes"
    ) as no:
        load("svhn", folder)
    for words in (str(path), file.checksum, file.accepted[0].checksum, "evodrop data get svhn"):
        assert words in str(no.value)


def test_digits_are_all_of_scikit_learns():
    data = load("digits")
    bundle = load_digits()
    assert len(data.train_y) + len(data.test_y) == len(bundle.target) == DATASETS["digits"].train
    train, test = held_out(len(bundle.target))
    np.testing.assert_array_equal(data.train_x[:, 0], bundle.images[train])
    np.testing.assert_array_equal(data.test_y, bundle.target[test])
    assert data.test_x.dtype == np.uint8


def test_the_split_is_the_same_for_ever():
    train, test = held_out(72_309)
    assert (len(train), len(test)) == (57_848, 14_461)
    np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(72_309))
    assert test[:6].tolist() == [2, 3, 11, 13, 15, 20]
    assert int(test.sum()) == 522_737_194


def test_any_pair_of_svmlight_files(tmp_path):
    X = np.eye(5)
    (tmp_path / "a").write_bytes(svmlight(X[:, :3], np.arange(5)))
    (tmp_path / "b").write_bytes(svmlight(X, np.arange(5)))
    name = f"svm:{tmp_path / 'a'},{tmp_path / 'b'}"
    data = load(name)
    assert data.name == name
    assert data.train_x.shape == data.test_x.shape == (5, 5)
    np.testing.assert_array_equal(data.test_x.toarray(), X)
    assert status(name) == "present"
    assert datasets.check(name) == f"{name}: 5 training and 5 test documents of 5 features"
    assert status(f"svm:{tmp_path / 'a'},{tmp_path / 'c'}") == "missing"
    with pytest.raises(DataError, match="c is not there"):
        load(f"svm:{tmp_path / 'a'},{tmp_path / 'c'}")
    for wrong in ("svm:", "svm:a", "svm:a,b,c"):
        with pytest.raises(DataError, match="two svmlight files"):
            load(wrong)


@pytest.mark.parametrize("name", SMALL)
def test_what_is_missing_is_told(tmp_path, name):
    made = specimen(name)
    last = made.dataset.files[-1]
    made.write(tmp_path)
    (tmp_path / last.path).unlink()
    with pytest.raises(DataError) as caught:
        load_dataset(made.dataset, tmp_path)
    for words in (name, str(tmp_path), last.path, "EVODROP_DATA", "--data"):
        assert words in str(caught.value)
    assert (f"evodrop data get {name}" in str(caught.value)) == DATASETS[name].downloadable


@pytest.mark.parametrize("name", SMALL)
def test_status_looks_for_the_files(tmp_path, name):
    downloadable = DATASETS[name].downloadable
    assert status(name, tmp_path) == ("downloadable" if downloadable else "missing")
    made = specimen(name)
    if made.unpacked:
        made.write(tmp_path, packed=False)
        assert status(name, tmp_path) == "present"


@pytest.mark.parametrize("name", ["mnist", "svhn", "cifar10"])
def test_an_archive_of_another_size_is_not_present(tmp_path, name):
    specimen(name).write(tmp_path)
    assert status(name, tmp_path) == "downloadable"
    with pytest.raises(DataError, match=f"but the published file has {DATASETS[name].files[0].size}"):
        load(name, tmp_path)


def test_an_extracted_folder_serves_where_the_archive_is_cut_off(tmp_path):
    made = specimen("cifar10")
    made.write(tmp_path, packed=False)
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"\x1f\x8b")
    whole = made.dataset._replace(files=(made.dataset.files[0]._replace(checksum="md5:0", size=9),))
    np.testing.assert_array_equal(load_dataset(whole, tmp_path).train_x, made.arrays[0])


def test_names_that_are_not_known():
    for function in (load, status, datasets.fetch, datasets.check):
        with pytest.raises(DataError, match=r"no data set 'imagenet'; there are digits, mnist.*svm:TRAIN,TEST"):
            function("imagenet")


def test_the_data_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("EVODROP_DATA", "~/numbers")
    assert data_folder() == Path("~/numbers").expanduser()
    assert data_folder(tmp_path) == tmp_path
    monkeypatch.setenv("EVODROP_DATA", "")
    assert data_folder().name == "evodrop"
    monkeypatch.delenv("EVODROP_DATA")
    assert data_folder().name == "evodrop"
    monkeypatch.setenv("EVODROP_DATA", str(tmp_path))
    specimen("20news").write(tmp_path)
    assert len(load("20news").train_y) == 25


def test_a_pipe_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="is not a file"):
        load(f"svm:{tmp_path / 'pipe'},{tmp_path / 'pipe'}")


def test_entering_the_room_is_cheap():
    heavy = ["torch", "sklearn", "scipy", "numba", "pooch", "requests", "rich"]
    code = f"import sys, evodrop.experiments.datasets; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
