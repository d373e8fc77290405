"""The data sets: the forms in which each may lie in the data folder, where it is published, its counts and licence.

To add one, add an entry; a new file format needs a reader in ``images`` too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

VALIDATION = "validation:"  # before the name of a data set: its training data alone, split in two


class File(NamedTuple):
    """One file."""

    path: str  # where it lies in the data folder
    size: int = 0  # its bytes, exactly; 0: not known
    checksum: str = ""  # "md5:..." or "sha256:..."; empty: none was published
    addresses: tuple[str, ...] = ()  # where it is published, https before http; empty: nowhere in this form
    about: int = 0  # bytes of the download, rounded, where the size is not known


class Form(NamedTuple):
    """One form in which a data set may lie in the data folder."""

    reader: str  # its name in ``images``, or "svmlight"
    files: tuple[File, ...] = ()  # training data first
    members: tuple[str, ...] = ()  # the files to read, if ``files`` is an archive of them
    origin: str = ""  # what the data are in a few words, if not the published ones; shown beside every result
    note: str = ""  # the same in a sentence


class Dataset(NamedTuple):
    """One data set."""

    name: str
    title: str  # in a line, for the reader
    home: str  # the page that describes it
    licence: str  # in a line, as its publisher states it
    forms: tuple[Form, ...]  # the first that is in the data folder is read
    train: int | None = None  # examples; None: not fixed
    test: int | None = None  # 0: a fifth of the examples is set aside
    shape: tuple[int, ...] = ()  # of one example; empty: not fixed
    classes: int = 2

    @property
    def download(self) -> Form | None:
        """The form that can be downloaded, if there is one."""
        return next((form for form in self.forms if form.files and all(file.addresses for file in form.files)), None)

    @property
    def download_size(self) -> int:
        """Bytes to download, or 0."""
        return sum(file.size or file.about for file in self.download.files) if self.download else 0


def held_out(n: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The rows to train on and the fifth to test on, both ascending, where the publisher set no test data aside.

    Each row gets a random word, and the fifth of the rows with the smallest words tests. NumPy promises the stream of
    words of a bit generator for good, unlike its shuffles: the split is the same in every version.

    Examples:
        >>> train, test = held_out(10)
        >>> train, test
        (array([0, 1, 4, 5, 6, 7, 8, 9]), array([2, 3]))
    """
    order = np.argsort(np.random.PCG64(0).random_raw(n), kind="stable")
    return np.sort(order[n // 5 :]), np.sort(order[: n // 5])


CIFAR_HOSTS = ("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/")
LIBSVM_HOST = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary"


def _files(folder: str, *rows: tuple[str, int, str], hosts: tuple[str, ...] = ()) -> tuple[File, ...]:
    """Files of a folder by name, size and checksum."""
    return tuple(File(folder + name, size, check, tuple(host + name for host in hosts)) for name, size, check in rows)


def _texts(folder: str, *names: str, host: str = "", about: tuple[int, ...] = ()) -> tuple[Form, ...]:
    """svmlight files, packed or plain; nobody published checksums of them."""
    sizes = about or (0,) * len(names)
    packed = (
        File(f"{folder}/{name}.bz2", addresses=(f"{host}/{name}.bz2",) if host else (), about=size)
        for name, size in zip(names, sizes, strict=True)
    )
    return Form("svmlight", tuple(packed)), Form("svmlight", tuple(File(f"{folder}/{name}") for name in names))


MNIST_PACKED = _files(
    "mnist/",
    ("train-images-idx3-ubyte.gz", 9_912_422, "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873"),
    ("train-labels-idx1-ubyte.gz", 28_881, "md5:d53e105ee54ea40749a09fcbcd1e9432"),
    ("t10k-images-idx3-ubyte.gz", 1_648_877, "md5:9fb629c4189551a2d022fa330f9573f3"),
    ("t10k-labels-idx1-ubyte.gz", 4_542, "md5:ec29112dd5afa0611ce80d1b7f02629c"),
    hosts=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "http://yann.lecun.com/exdb/mnist/",  # the official one
    ),
)
MNIST_PLAIN = tuple(File(file.path.removesuffix(".gz")) for file in MNIST_PACKED)
SVHN_PUBLISHED = _files(
    "svhn/",
    ("train_32x32.mat", 182_040_794, "md5:e26dedcc434d2e4c54c9b2d4a06d8373"),
    ("test_32x32.mat", 64_275_384, "md5:eb5a983be6a315427106f1b164d9cef3"),
    hosts=("http://ufldl.stanford.edu/housenumbers/",),
)
SVHN_REBUILT = _files(
    "svhn/",
    ("train_32x32.mat", 225_119_016, "sha256:4867b4b65a6f908df89405af61df27304d60c5fce7b843ac35d845b01ff05998"),
    ("test_32x32.mat", 79_996_584, "sha256:3549b4718c495228e035cacb235278abec883693f42d2827f88a901cd576c7fa"),
)
CIFAR10_BINARY = _files(
    "cifar-10-batches-bin/",
    ("data_batch_1.bin", 30_730_000, "md5:5dd7e06a14cb22eb9f671a540d1b7c25"),
    ("data_batch_2.bin", 30_730_000, "md5:5ea93a67294ea407fff1d09f752e9692"),
    ("data_batch_3.bin", 30_730_000, "md5:942cd6a4bcdd0dd3c604fbe906cb4421"),
    ("data_batch_4.bin", 30_730_000, "md5:ae636b3ba5c66a11e91e8cb52e771fcb"),
    ("data_batch_5.bin", 30_730_000, "md5:53f37980c15c3d472c316c40844f3f0d"),
    ("test_batch.bin", 30_730_000, "md5:803d5f7f4d78ea53de84dbe85f74fb6d"),
)
CIFAR10_PYTHON = _files(
    "cifar-10-batches-py/",
    ("data_batch_1", 31_035_704, "md5:c99cafc152244af753f735de768cd75f"),
    ("data_batch_2", 31_035_320, "md5:d4bba439e000b95fd0a9bffe97cbabec"),
    ("data_batch_3", 31_035_999, "md5:54ebc095f3ab1f0389bbae665268c751"),
    ("data_batch_4", 31_035_696, "md5:634d18415352ddfa80567beed471001a"),
    ("data_batch_5", 31_035_623, "md5:482c414d41f54cd18b22e5b47cb7c3cb"),
    ("test_batch", 31_035_526, "md5:40351d587109b95175f43aff81a1287e"),
)
CIFAR100_BINARY = _files("cifar-100-binary/", ("train.bin", 153_700_000, ""), ("test.bin", 30_740_000, ""))
CIFAR100_PYTHON = _files(
    "cifar-100-python/",
    ("train", 155_249_918, "md5:16019d7e3df5f24257cddd939b257f8d"),
    ("test", 0, "md5:f0ef6b0ae62326f3e7ffdfab6717acfc"),
)


def _cifar(
    classes: int,
    binary: tuple[File, ...],
    python: tuple[File, ...],
    binary_archive: tuple[int, str],
    python_archive: tuple[int, str],
) -> Dataset:
    """Fixed records come first, which hold nothing but numbers; then pickles, in the published files alone."""
    packed = _files("", (f"cifar-{classes}-binary.tar.gz", *binary_archive), hosts=CIFAR_HOSTS)
    pickled = _files("", (f"cifar-{classes}-python.tar.gz", *python_archive))
    return Dataset(
        name=f"cifar{classes}",
        title=f"32x32 photographs in {classes} classes",
        home="https://www.cs.toronto.edu/~kriz/cifar.html",
        licence="no licence stated; cite A. Krizhevsky, 2009",
        forms=(
            Form("records", binary),
            Form("records", packed, members=tuple(file.path for file in binary)),
            Form("pickles", pickled, members=tuple(file.path for file in python)),
            Form("pickles", python),
        ),
        train=50_000,
        test=10_000,
        shape=(3, 32, 32),
        classes=classes,
    )


_ALL = (
    Dataset(
        name="digits",
        title="8x8 handwritten digits, bundled with scikit-learn",
        home="https://archive.ics.uci.edu/dataset/80",
        licence="CC BY 4.0 (E. Alpaydin, C. Kaynak; UCI)",
        forms=(Form("digits"),),
        train=1_797,
        test=0,
        shape=(1, 8, 8),
        classes=10,
    ),
    Dataset(
        name="mnist",
        title="28x28 handwritten digits",
        home="https://yann.lecun.com/exdb/mnist/",
        licence="CC BY-SA 3.0 (Y. LeCun, C. Cortes)",
        forms=(Form("idx", MNIST_PACKED), Form("idx", MNIST_PLAIN)),
        train=60_000,
        test=10_000,
        shape=(1, 28, 28),
        classes=10,
    ),
    Dataset(
        name="svhn",
        title="32x32 house numbers, cropped digits",
        home="http://ufldl.stanford.edu/housenumbers/",
        licence="for non-commercial use only (Y. Netzer and others, 2011)",
        forms=(
            Form("mat", SVHN_PUBLISHED),
            Form(
                "mat",
                SVHN_REBUILT,
                origin="rebuilt from format 1",
                note="Not the published files: made from the original pictures and boxes of format 1, resized as "
                "MATLAB does; the five published digits that were at hand are equal byte for byte",
            ),
        ),
        train=73_257,
        test=26_032,
        shape=(3, 32, 32),
        classes=10,
    ),
    _cifar(
        10,
        CIFAR10_BINARY,
        CIFAR10_PYTHON,
        (170_052_171, "md5:c32a1d4ab5d03f1284b67883e8d87530"),
        (170_498_071, "md5:c58f30108f718f92721af3b95e74349a"),
    ),
    _cifar(
        100,
        CIFAR100_BINARY,
        CIFAR100_PYTHON,
        (168_513_733, "md5:03b5dce01913d631647c71ecec9e9cb8"),
        (169_001_437, "md5:eb9058c3a382ffc7106e4002c42a8d85"),
    ),
    Dataset(
        name="real-sim",
        title="newsgroups: real against simulated",
        home=f"{LIBSVM_HOST}.html#real-sim",
        licence="no licence stated (A. McCallum; LIBSVM)",
        forms=_texts("real-sim", "real-sim", host=LIBSVM_HOST, about=(34_000_000,)),
        train=72_309,
        test=0,
        shape=(20_958,),
    ),
    Dataset(
        name="news20",
        title="20 Newsgroups in two classes (news20.binary)",
        home=f"{LIBSVM_HOST}.html#news20.binary",
        licence="no licence stated (S. Keerthi, D. DeCoste, 2005; LIBSVM)",
        forms=_texts("news20", "news20.binary", host=LIBSVM_HOST, about=(34_000_000,)),
        train=19_996,
        test=0,
        shape=(1_355_191,),
    ),
    Dataset(
        name="rcv1",
        title="Reuters news in two classes (rcv1.binary)",
        home=f"{LIBSVM_HOST}.html#rcv1.binary",
        licence="Reuters' corpus, for research only (D. Lewis and others, 2004; LIBSVM)",
        forms=_texts(
            "rcv1", "rcv1_train.binary", "rcv1_test.binary", host=LIBSVM_HOST, about=(14_000_000, 450_000_000)
        ),
        train=20_242,
        test=677_399,
        shape=(47_236,),
    ),
    Dataset(
        name="20news",
        title="20 Newsgroups by date, TF-IDF, every second class against the others",
        home="http://qwone.com/~jason/20Newsgroups/",
        licence="no licence stated (K. Lang, 1995)",
        forms=_texts("20news", "train.svm", "test.svm"),
    ),
    Dataset(
        name="reuters52",
        title="Reuters-21578 R52, TF-IDF, 'earn' against the others",
        home="https://www.daviddlewis.com/resources/testcollections/reuters21578/",
        licence="for research only (Reuters, D. Lewis, 1997)",
        forms=_texts("reuters52", "train.svm", "test.svm"),
    ),
    Dataset(
        name="rcv1-part",
        title="a part of RCV1-v2, unit rows, CCAT or ECAT against GCAT or MCAT; not LIBSVM's rcv1.binary",
        home="https://www.jmlr.org/papers/v5/lewis04a.html",
        licence="Reuters' corpus, for research only (D. Lewis and others, 2004)",
        forms=_texts("rcv1-part", "train.svm", "test.svm"),
        train=12_337,
        test=11_413,
        shape=(47_236,),
    ),
    Dataset(
        name="athr",
        title="newsgroups: atheism against christian, binary features; fast dropout's published example",
        home="https://github.com/sidaw/fastdropout",
        licence="MIT (S. Wang, C. Manning, 2013)",
        forms=_texts("athr", "all.svm"),
        train=1_427,
        test=0,
        shape=(22_178,),
    ),
)
DATASETS = {dataset.name: dataset for dataset in _ALL}
