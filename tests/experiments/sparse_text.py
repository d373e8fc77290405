"""Sparse text that can be learned in a moment, and short linear runs on it."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from evodrop.experiments.datasets import Documents
from evodrop.experiments.runs import LinearRun

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
    return LinearRun(**{"dataset": "words"} | usual | fields)


def write_svmlight(path, X, y):
    rows = (zip(row.indices + 1, row.data, strict=True) for row in (X[[at]] for at in range(X.shape[0])))
    lines = (f"{label:g} " + " ".join(f"{i}:{float(v)!r}" for i, v in row) for label, row in zip(y, rows, strict=True))
    path.write_text("\n".join(lines) + "\n")
    return path


def write_pair(folder, n=90):
    """Two files of svmlight, and the name of the data set that they make."""
    data = documents(n)
    train = write_svmlight(folder / "train.svm", data.train_x, data.train_y)
    test = write_svmlight(folder / "test.svm", data.test_x, data.test_y)
    return f"svm:{train},{test}"
