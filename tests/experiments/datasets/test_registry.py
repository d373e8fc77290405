"""What is known of each data set, held against what its publishers say."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from evodrop.experiments.datasets import DATASETS, names

PUBLISHED = {  # MD5, size in bytes
    "mnist/train-images-idx3-ubyte.gz": ("f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
    "mnist/train-labels-idx1-ubyte.gz": ("d53e105ee54ea40749a09fcbcd1e9432", 28_881),
    "mnist/t10k-images-idx3-ubyte.gz": ("9fb629c4189551a2d022fa330f9573f3", 1_648_877),
    "mnist/t10k-labels-idx1-ubyte.gz": ("ec29112dd5afa0611ce80d1b7f02629c", 4_542),
    "cifar-10-python.tar.gz": ("c58f30108f718f92721af3b95e74349a", 170_498_071),
    "cifar-100-python.tar.gz": ("eb9058c3a382ffc7106e4002c42a8d85", 169_001_437),
    "svhn/train_32x32.mat": ("e26dedcc434d2e4c54c9b2d4a06d8373", 182_040_794),
    "svhn/test_32x32.mat": ("eb5a983be6a315427106f1b164d9cef3", 64_275_384),
}
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


def test_checksums_and_sizes():
    files = [file for dataset in DATASETS.values() for file in dataset.files if file.checksum]
    assert {file.path: (file.checksum.removeprefix("md5:"), file.size) for file in files} == PUBLISHED


def test_the_files_that_are_accepted_beside_the_published_ones():
    accepted = {file.path: file.accepted for dataset in DATASETS.values() for file in dataset.files if file.accepted}
    assert list(accepted) == ["svhn/train_32x32.mat", "svhn/test_32x32.mat"]
    for path, size, sum_begins in [("train", 225_119_016, "4867b4b6"), ("test", 79_996_584, "3549b471")]:
        (other,) = accepted[f"svhn/{path}_32x32.mat"]
        assert (other.size, other.origin) == (size, "rebuilt from format 1")
        assert other.checksum.startswith(f"sha256:{sum_begins}")
        assert len(other.checksum) == len("sha256:") + 64
        assert "not the published file" in other.words.lower()


def test_counts():
    assert {name: (d.train, d.test, d.shape, d.classes) for name, d in DATASETS.items()} == COUNTS
    assert names() == list(COUNTS)


@pytest.mark.parametrize("dataset", DATASETS.values(), ids=DATASETS)
def test_an_entry_is_complete_and_stays_in_its_folder(dataset):
    assert dataset.title
    assert dataset.licence
    assert dataset.home.startswith("http")
    for file in dataset.files:
        for path in (file.path, *file.unpacked):
            assert not PurePosixPath(path).is_absolute()
            assert ".." not in PurePosixPath(path).parts
        for address in file.addresses:
            assert address.startswith(("https://", "http://"))
            assert address.endswith("/" + PurePosixPath(file.path).name)
        schemes = [address.partition(":")[0] for address in file.addresses]
        assert schemes == sorted(schemes, reverse=True)  # https comes first
        assert bool(file.addresses) == bool(file.size)
        assert file.checksum or all(address.startswith("https://") for address in file.addresses)
