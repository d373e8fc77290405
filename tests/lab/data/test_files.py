"""The data folder: the first form that is whole is read; what is missing or wrong is a sentence with its remedy."""

from __future__ import annotations

import os

import numpy as np
import pytest
from helpers.refusals import refused
from helpers.specimens import SMALL, specimen

from evodrop.lab.data import DATASETS, DataError, load, status
from evodrop.lab.data.files import contents, find, opened


@pytest.fixture
def small(monkeypatch):
    for name in SMALL:
        monkeypatch.setitem(DATASETS, name, specimen(name).dataset)


def changed(path):
    """The file with its last bit flipped: of the same size, with another checksum."""
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def refusal(name, folder):
    with pytest.raises(DataError) as caught:
        load(name, folder)
    return str(caught.value)


@pytest.mark.parametrize("name", SMALL)
def test_what_is_missing_is_named_with_its_remedy(small, tmp_path, name):
    made = specimen(name)
    last = made.dataset.forms[0].files[-1]
    made.write(tmp_path)
    (tmp_path / last.path).unlink()
    said = refusal(name, tmp_path)
    for words in (f"{name} is not in {tmp_path}: there is no {last.path}", "EVODROP_DATA", "--data"):
        assert words in said
    assert (f"evodrop data get {name}" in said) == bool(made.dataset.download)
    assert (made.dataset.home in said) != bool(made.dataset.download)
    for form in made.dataset.forms[1:]:
        assert f"there is no {form.files[0].path}" in said or form.files[0].path == last.path or form.origin


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_forms_come_in_their_order(small, tmp_path, name):
    made = specimen(name)
    for form in (3, 2, 1, 0):
        made.write(tmp_path, form)
        assert find(made.dataset, tmp_path) == made.dataset.forms[form]
    for form in (0, 1, 2):  # a file that is missing or cut off
        path = tmp_path / made.dataset.forms[form].files[-1].path
        path.write_bytes(path.read_bytes()[:-1])
        assert find(made.dataset, tmp_path) == made.dataset.forms[form + 1]
        path.unlink()
        assert find(made.dataset, tmp_path) == made.dataset.forms[form + 1]
    np.testing.assert_array_equal(load(name, tmp_path).train_x, made.arrays[0])


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("mnist", 0),
        ("svhn", 0),
        ("svhn", 1),
        ("cifar10", 0),
        *((name, n) for name in ("cifar10", "cifar100") for n in (1, 2)),
    ],
)
def test_a_wrong_checksum_names_the_file_the_accepted_sums_and_the_remedy(small, tmp_path, name, form):
    made = specimen(name)
    made.write(tmp_path, form)
    for file in made.dataset.forms[form].files:
        changed(tmp_path / file.path)
        assert status(name, tmp_path) == "present"  # it looks at names and sizes only
        said = refusal(name, tmp_path)
        accepted = [one for other in made.dataset.forms for one in other.files if one.path == file.path]
        for one in accepted:
            assert f"{one.size} bytes with {one.checksum}" in said
        for words in (
            f"{tmp_path / file.path} has {file.size} bytes with ",
            f"Delete it, then: evodrop data get {name}",
        ):
            assert words in said
        changed(tmp_path / file.path)
    assert load(name, tmp_path).name == name
    assert len(accepted) == (2 if name == "svhn" else 1)


@pytest.mark.parametrize(
    ("name", "form"), [("mnist", 0), ("svhn", 0), *((name, n) for name in ("cifar10", "cifar100") for n in range(4))]
)
def test_a_wrong_size_names_what_would_be_accepted(tmp_path, name, form):
    """The specimens do not have the sizes of the registry, which are those of the published files."""
    specimen(name).write(tmp_path, form)
    assert status(name, tmp_path) == "downloadable"
    said, file = refusal(name, tmp_path), DATASETS[name].forms[form].files[0]
    assert f"{tmp_path / file.path} has {(tmp_path / file.path).stat().st_size} bytes, but it should have " in said
    assert f"{file.size} bytes" + f" with {file.checksum}" * bool(file.checksum) in said
    assert f"evodrop data get {name}" in said


def test_pickles_that_were_not_published_are_passed_over_for_the_binary_files(small, tmp_path):
    made = specimen("cifar10")
    made.write(tmp_path, 3)
    path = tmp_path / "cifar-10-batches-py/data_batch_3"
    passed = "cifar-10-batches-py/ is passed over, since only published pickles are read. Use the binary files, in cif"
    changed(path)
    assert passed in refusal("cifar10", tmp_path)  # its checksum is wrong
    path.write_bytes(path.read_bytes() + b"more")
    said = refusal("cifar10", tmp_path)  # its size is wrong
    assert passed in said
    assert "evodrop data get cifar10" in said
    assert status("cifar10", tmp_path) == "downloadable"
    made.write(tmp_path, 0)
    np.testing.assert_array_equal(load("cifar10", tmp_path).train_x, made.arrays[0])


def test_no_more_is_read_than_a_file_can_have(tmp_path, monkeypatch):
    made = specimen("cifar100")
    *_, pickles = made.dataset.forms
    path = made.write(tmp_path, 3) / "cifar-100-python/test"
    assert pickles.files[1].size == 0  # not known: the checksum decides
    assert list(contents(made.dataset, pickles, tmp_path)) == [file.path for file in pickles.files]
    monkeypatch.setattr("evodrop.lab.data.files.LARGEST", path.stat().st_size - 1)
    with pytest.raises(DataError, match=r"cifar-100-python/test has [0-9]+ bytes, but it should have md5:"):
        contents(made.dataset, pickles, tmp_path)


def test_what_is_no_file_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="is not a file"):
        load(f"svm:{tmp_path / 'pipe'},{tmp_path / 'pipe'}")

    def read(path):
        with opened(path) as stream:
            stream.read()
            raise OSError("the disk is gone")

    refused(read, tmp_path, match="is not a file")
    (tmp_path / "file").write_bytes(b"")
    refused(read, tmp_path / "file", match="cannot be read: the disk is gone. Get it again")
