"""The entries of the registry, compared with what the publishers say."""

from __future__ import annotations

from pathlib import PurePosixPath

import numpy as np
import pytest

from evodrop.lab.data.registry import DATASETS, held_out

PUBLISHED = """
f68b3c2dcbeaaa9fbdd348bbdeb94873   9912422 mnist/train-images-idx3-ubyte.gz
d53e105ee54ea40749a09fcbcd1e9432     28881 mnist/train-labels-idx1-ubyte.gz
9fb629c4189551a2d022fa330f9573f3   1648877 mnist/t10k-images-idx3-ubyte.gz
ec29112dd5afa0611ce80d1b7f02629c      4542 mnist/t10k-labels-idx1-ubyte.gz
e26dedcc434d2e4c54c9b2d4a06d8373 182040794 svhn/train_32x32.mat
eb5a983be6a315427106f1b164d9cef3  64275384 svhn/test_32x32.mat
5dd7e06a14cb22eb9f671a540d1b7c25  30730000 cifar-10-batches-bin/data_batch_1.bin
5ea93a67294ea407fff1d09f752e9692  30730000 cifar-10-batches-bin/data_batch_2.bin
942cd6a4bcdd0dd3c604fbe906cb4421  30730000 cifar-10-batches-bin/data_batch_3.bin
ae636b3ba5c66a11e91e8cb52e771fcb  30730000 cifar-10-batches-bin/data_batch_4.bin
53f37980c15c3d472c316c40844f3f0d  30730000 cifar-10-batches-bin/data_batch_5.bin
803d5f7f4d78ea53de84dbe85f74fb6d  30730000 cifar-10-batches-bin/test_batch.bin
c32a1d4ab5d03f1284b67883e8d87530 170052171 cifar-10-binary.tar.gz
c58f30108f718f92721af3b95e74349a 170498071 cifar-10-python.tar.gz
c99cafc152244af753f735de768cd75f  31035704 cifar-10-batches-py/data_batch_1
d4bba439e000b95fd0a9bffe97cbabec  31035320 cifar-10-batches-py/data_batch_2
54ebc095f3ab1f0389bbae665268c751  31035999 cifar-10-batches-py/data_batch_3
634d18415352ddfa80567beed471001a  31035696 cifar-10-batches-py/data_batch_4
482c414d41f54cd18b22e5b47cb7c3cb  31035623 cifar-10-batches-py/data_batch_5
40351d587109b95175f43aff81a1287e  31035526 cifar-10-batches-py/test_batch
03b5dce01913d631647c71ecec9e9cb8 168513733 cifar-100-binary.tar.gz
eb9058c3a382ffc7106e4002c42a8d85 169001437 cifar-100-python.tar.gz
16019d7e3df5f24257cddd939b257f8d 155249918 cifar-100-python/train
f0ef6b0ae62326f3e7ffdfab6717acfc         0 cifar-100-python/test
"""
COUNTS = {  # training and test examples, pixels or features, classes
    "digits": (1_797, 0, (1, 8, 8), 10),
    "mnist": (60_000, 10_000, (1, 28, 28), 10),
    "svhn": (73_257, 26_032, (3, 32, 32), 10),
    "cifar10": (50_000, 10_000, (3, 32, 32), 10),
    "cifar100": (50_000, 10_000, (3, 32, 32), 100),
    "real-sim": (72_309, 0, (20_958,), 2),
    "news20": (19_996, 0, (1_355_191,), 2),
    "rcv1": (20_242, 677_399, (47_236,), 2),
    "20news": (None, None, (), 2),
    "reuters52": (None, None, (), 2),
    "rcv1-part": (12_337, 11_413, (47_236,), 2),
    "athr": (1_427, 0, (22_178,), 2),
}
FILES = [file for dataset in DATASETS.values() for form in dataset.forms for file in form.files]


def test_published_sizes_and_checksums():
    found = [f"{file.checksum[4:]} {file.size:9} {file.path}" for file in FILES if file.checksum.startswith("md5:")]
    assert found == PUBLISHED.strip().splitlines()


def test_svhn_rebuilt_is_accepted_by_size_and_sha256():
    _, rebuilt = DATASETS["svhn"].forms
    assert rebuilt.origin == "rebuilt from format 1"
    assert "Not the published files" in rebuilt.note
    assert [(file.size, file.checksum[:15], len(file.checksum)) for file in rebuilt.files] == [
        (225_119_016, "sha256:4867b4b6", 71),
        (79_996_584, "sha256:3549b471", 71),
    ]
    assert [form for dataset in DATASETS.values() for form in dataset.forms if form.origin or form.note] == [rebuilt]


def test_counts():
    assert {name: (d.train, d.test, d.shape, d.classes) for name, d in DATASETS.items()} == COUNTS


def test_what_is_downloaded():
    downloads = {name: d.download.files[0].path for name, d in DATASETS.items() if d.download}
    assert downloads == {
        "mnist": "mnist/train-images-idx3-ubyte.gz",
        "svhn": "svhn/train_32x32.mat",
        "cifar10": "cifar-10-binary.tar.gz",
        "cifar100": "cifar-100-binary.tar.gz",
        "real-sim": "real-sim/real-sim.bz2",
        "news20": "news20/news20.binary.bz2",
        "rcv1": "rcv1/rcv1_train.binary.bz2",
    }
    assert DATASETS["rcv1"].download_size == 464_000_000
    assert DATASETS["20news"].download_size == 0


@pytest.mark.parametrize("dataset", DATASETS.values(), ids=DATASETS)
def test_an_entry_is_complete_and_stays_in_its_folder(dataset):
    assert dataset.title
    assert dataset.licence
    assert dataset.home.startswith("http")
    for form in dataset.forms:
        for path in (*(file.path for file in form.files), *form.members):
            assert not PurePosixPath(path).is_absolute()
            assert ".." not in PurePosixPath(path).parts
        for file in form.files:
            for address in file.addresses:
                assert address.startswith(("https://", "http://"))
                assert address.endswith("/" + PurePosixPath(file.path).name)
                assert file.checksum or address.startswith("https://")
            schemes = [address.partition(":")[0] for address in file.addresses]
            assert schemes == sorted(schemes, reverse=True)  # https comes first
            assert bool(file.addresses) <= bool(file.size or file.about)


def test_what_can_run_code_or_unpack_beyond_measure_has_a_checksum():
    for dataset in DATASETS.values():
        for form in dataset.forms:
            if form.reader in ("mat", "pickles") or form.members or (form.reader == "idx" and form.files[0].size):
                assert all(file.checksum for file in form.files)


def test_the_split_is_the_same_for_ever():
    train, test = held_out(72_309)
    assert (len(train), len(test)) == (57_848, 14_461)
    np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(72_309))
    assert test[:6].tolist() == [2, 3, 11, 13, 15, 20]
    assert int(test.sum()) == 522_737_194
