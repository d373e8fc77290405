"""Sparse text that can be learned in a moment, and short linear runs on it."""

from __future__ import annotations

import bz2

import numpy as np
from scipy import sparse

from evodrop.lab.data import Documents
from evodrop.lab.run import Run
from helpers.specimens import svmlight

WORDS = 40


def documents(n=90, classes=2, seed=0):
    """A few words of each document tell its class, the others nothing; rows have norm 1."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    X = (rng.random((n, WORDS)) < 0.15) * rng.exponential(1.0, (n, WORDS))
    X[np.arange(n), labels] += 1.0
    X /= np.sqrt((X**2).sum(1, keepdims=True))
    y = np.where(labels == 1, 1.0, -1.0) if classes == 2 else labels.astype(float)
    train = n * 2 // 3
    return Documents("words", sparse.csr_array(X[:train]), y[:train], sparse.csr_array(X[train:]), y[train:])


def run(**fields):
    usual = {"method": "data-dependent", "seed": 0, "lr": 0.5, "epochs": 3, "eval_every": 17}
    return Run(**{"dataset": "words", "network": "linear"} | usual | fields)


def write_pair(folder, n=90):
    """Two files of svmlight, and the name of the data set that they make."""
    data, paths = documents(n), (folder / "train.svm", folder / "test.svm")
    for path, part in zip(paths, ((data.train_x, data.train_y), (data.test_x, data.test_y)), strict=True):
        path.write_bytes(svmlight(*part))
    return f"svm:{paths[0]},{paths[1]}"


def write_packed(folder, n=90):
    """The same pair as a named data set is laid out: packed, in a folder of its own."""
    folder.mkdir()
    write_pair(folder, n)
    for name in ("train.svm", "test.svm"):
        (folder / f"{name}.bz2").write_bytes(bz2.compress((folder / name).read_bytes()))
        (folder / name).unlink()
