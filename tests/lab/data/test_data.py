"""Data sets by name: what is read is what was written, whatever form it lies in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import sparse_text
from helpers.specimens import SMALL, specimen, svmlight
from scipy import sparse
from sklearn.datasets import load_digits

from evodrop.lab import data
from evodrop.lab.data import (
    DATASETS,
    DataError,
    Documents,
    Images,
    check,
    data_folder,
    fetch,
    held_out,
    load,
    status,
)
from evodrop.lab.training.linear import LinearTraining
from evodrop.lab.training.network import prepare

IMAGES = ["mnist", "svhn", "cifar10", "cifar100"]
TEXTS = sorted(set(SMALL) - set(IMAGES))
FINGERPRINTS = {  # of the specimens, by the readers of the first records: those records stay readable
    "digits": "29328dc52494d113",
    "mnist": "43e75f4ac386414f",
    "svhn": "9be7632b9f918932",
    "cifar10": "6e316e5039ee1a24",
    "cifar100": "47df7de2245a63fd",
    "real-sim": "4edcaabfb4d91441",
    "news20": "4edcaabfb4d91441",
    "rcv1": "127e671c9fb84068",
    "20news": "3af09fc076855a92",
    "reuters52": "3af09fc076855a92",
}


@pytest.fixture
def small(monkeypatch):
    """The registry has the specimens for its entries."""
    for name in SMALL:
        monkeypatch.setitem(DATASETS, name, specimen(name).dataset)


def every_form(names):
    return [(name, form) for name in names for form in range(len(DATASETS[name].forms))]


@pytest.mark.parametrize(("name", "form"), every_form(IMAGES))
def test_images_are_read_as_they_were_written(small, tmp_path, name, form):
    made = specimen(name)
    found = load(name, made.write(tmp_path, form))
    assert isinstance(found, Images)
    assert (found.name, found.classes) == (name, made.dataset.classes)
    assert found.origin == made.dataset.forms[form].origin
    for array, written in zip(found[1:5], made.arrays, strict=True):
        np.testing.assert_array_equal(array, written)
        assert array.dtype == (np.uint8 if array.ndim == 4 else np.int64)
        assert array.flags.c_contiguous
        assert array.flags.writeable  # torch.from_numpy warns of those that are not
    assert prepare(found)[-1].partition(", ")[0] == FINGERPRINTS[name]


@pytest.mark.parametrize(("name", "form"), every_form(TEXTS))
def test_documents_are_read_as_they_were_written(small, tmp_path, name, form):
    made = specimen(name)
    found = load(name, made.write(tmp_path, form))
    assert isinstance(found, Documents)
    expected = made.arrays
    if len(expected) == 2:
        train, test = held_out(len(expected[1]))
        expected = tuple(array[rows] for rows in (train, test) for array in expected)
    for array, written in zip(found[1:], expected, strict=True):
        np.testing.assert_array_equal(array.toarray() if sparse.issparse(array) else array, written)
        assert array.dtype == np.float64
    assert isinstance(found.train_x, sparse.csr_array)
    assert found.train_x.indices.dtype == np.int32
    assert found.train_x.shape[1] == found.test_x.shape[1] == 40
    if name in FINGERPRINTS:
        assert LinearTraining(sparse_text.run(), found).fingerprint == FINGERPRINTS[name]


def test_digits_are_all_of_scikit_learns():
    digits, bundle = load("digits"), load_digits()
    assert len(digits.train_y) + len(digits.test_y) == len(bundle.target) == DATASETS["digits"].train
    train, test = held_out(len(bundle.target))
    np.testing.assert_array_equal(digits.train_x[:, 0], bundle.images[train])
    np.testing.assert_array_equal(digits.test_y, bundle.target[test])
    assert digits.test_x.dtype == np.uint8
    assert prepare(digits)[-1] == FINGERPRINTS["digits"]


@pytest.mark.parametrize("name", ["svhn", "real-sim"])
def test_validation_data_are_a_part_of_the_training_data(small, tmp_path, name):
    whole = load(name, specimen(name).write(tmp_path))
    part = load(f"validation:{name}", tmp_path)
    train, test = held_out(len(whole.train_y))
    assert (part.name, type(part)) == (f"validation:{name}", type(whole))
    np.testing.assert_array_equal(part.train_y, whole.train_y[train])
    np.testing.assert_array_equal(part.test_y, whole.train_y[test])
    assert part.test_x.shape == (len(test), *whole.train_x.shape[1:])
    assert check(part.name, tmp_path).startswith(f"validation:{name}: {len(train)} training and {len(test)} test ")


def test_any_pair_of_svmlight_files(tmp_path):
    X = np.eye(5)
    (tmp_path / "a").write_bytes(svmlight(X[:, :3], np.arange(5)))
    (tmp_path / "b").write_bytes(svmlight(X, np.arange(5)))
    name = f"svm:{tmp_path / 'a'},{tmp_path / 'b'}"
    pair = load(name)
    assert pair.name == name
    assert pair.train_x.shape == pair.test_x.shape == (5, 5)
    np.testing.assert_array_equal(pair.test_x.toarray(), X)
    assert status(name) == "present"
    assert check(name) == f"{name}: 5 training and 5 test documents of 5 features"
    assert status(f"svm:{tmp_path / 'a'},{tmp_path / 'c'}") == "missing"
    with pytest.raises(DataError, match="c is not there"):
        load(f"svm:{tmp_path / 'a'},{tmp_path / 'c'}")
    for wrong in ("svm:", "svm:a", "svm:a,b,c"):
        with pytest.raises(DataError, match="two svmlight files"):
            load(wrong)


@pytest.mark.parametrize("name", SMALL)
def test_status_looks_for_the_files(small, tmp_path, name):
    assert status(name, tmp_path) == ("downloadable" if DATASETS[name].download else "missing")
    specimen(name).write(tmp_path)
    assert status(name, tmp_path) == "present"


def test_check_says_which_files_it_read(small, tmp_path):
    found = {}
    for name, form in every_form(["svhn", "cifar100", "20news"]):
        folder = tmp_path / f"{name} {form}"
        found[name, form] = check(name, specimen(name).write(folder, form)).partition(", from ")[2]
    note = DATASETS["svhn"].forms[1].note
    assert found == {
        ("svhn", 0): "svhn/train_32x32.mat and 1 more: as published",
        ("svhn", 1): f"svhn/train_32x32.mat and 1 more: rebuilt from format 1. {note}",
        ("cifar100", 0): "cifar-100-binary/train.bin and 1 more",  # without a checksum nobody can say
        ("cifar100", 1): "cifar-100-binary.tar.gz: as published",
        ("cifar100", 2): "cifar-100-python.tar.gz: as published",
        ("cifar100", 3): "cifar-100-python/train and 1 more: as published",
        ("20news", 0): "20news/train.svm.bz2 and 1 more",
        ("20news", 1): "20news/train.svm and 1 more",
    }


def test_names_that_are_not_known():
    for function in (load, status, fetch, check):
        with pytest.raises(DataError, match=r"no data set 'imagenet'; there are digits, mnist.*svm:TRAIN,TEST"):
            function("imagenet")


def test_the_data_folder(small, monkeypatch, tmp_path):
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


def test_the_import_is_cheap():
    heavy = ["torch", "sklearn", "scipy", "numba", "pooch", "requests", "rich"]
    code = f"import sys, {data.__name__}; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_digits_come_with_scikit_learn(tmp_path):
    digits = load("digits", tmp_path)
    assert (digits.train_x.shape, digits.test_x.shape, digits.classes) == ((1438, 1, 8, 8), (359, 1, 8, 8), 10)
    assert check("digits") == "digits: 1438 training and 359 test images of shape (1, 8, 8) in 10 classes"
    fetch("digits", tmp_path / "no folder")  # there is nothing to fetch
    nowhere = [status(name, tmp_path / "no folder") for name in ("digits", "mnist", "20news")]
    assert nowhere == ["present", "downloadable", "missing"]
