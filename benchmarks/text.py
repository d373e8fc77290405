"""Whole fits on sparse text: ours beside those of scikit-learn, by test error, CPU time and epochs; one thread.

The models are fitted in turn, once for each seed, with their defaults; then each again with its parameters chosen by
cross-validation on the training data. The folds are contiguous blocks of each class, since neighbours in a newsgroup
quote each other and random folds flatter every model. 20news is sorted by its 20 newsgroups, so that with two classes
the blocks are of each newsgroup, too; else a fold would hold out whole newsgroups. athr has no split and no order: its
seeds are random halves, and its folds are random too. CPU time is that of the fit alone; that of choosing a parameter
is not in it.

NBSVM scales every feature by its log-count ratio before a linear SVM (Wang and Manning, 2012). Adagrad without dropout
is the baseline that every claim about dropout must beat.
"""

from __future__ import annotations

import argparse
import json
import random
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from linear import machine
from rich.console import Console
from rich.progress import Progress
from rich.table import Column, Table
from scipy import sparse, stats
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from evodrop.linear import DropoutLogisticRegression, DropoutSGDClassifier, iter_svmlight

Row = dict[str, Any]
Split = tuple[sparse.csr_array, np.ndarray, sparse.csr_array, np.ndarray]

PEER, OURS = "SGDClassifier", "DropoutSGDClassifier"


class NBSVM(ClassifierMixin, BaseEstimator):
    """A linear SVM on features times their log-count ratios, its weights drawn towards their mean size; two classes."""

    def __init__(self, C: float = 1.0, smoothing: float = 1.0, interpolation: float = 0.25) -> None:
        self.C, self.smoothing, self.interpolation = C, smoothing, interpolation

    def fit(self, X: sparse.csr_array, y: np.ndarray) -> NBSVM:
        self.classes_ = np.unique(y)
        positive = y == self.classes_[1]
        shares = [self.smoothing + X[side].sum(axis=0) for side in (positive, ~positive)]
        self.ratio_ = np.log(shares[0] / shares[0].sum()) - np.log(shares[1] / shares[1].sum())
        svm = LinearSVC(C=self.C).fit(X * self.ratio_, y)
        size = np.abs(svm.coef_[0]).mean()
        self.coef_ = self.ratio_ * ((1 - self.interpolation) * size + self.interpolation * svm.coef_[0])
        self.intercept_ = float(svm.intercept_[0])
        return self

    def decision_function(self, X: sparse.csr_array) -> np.ndarray:
        return X @ self.coef_ + self.intercept_

    def predict(self, X: sparse.csr_array) -> np.ndarray:
        return self.classes_[(self.decision_function(X) > 0).astype(int)]


class Entry(NamedTuple):
    model: Any
    grid: dict[str, Sequence[float]]


ALPHAS, COSTS, RATES = (1e-6, 1e-5, 1e-4, 1e-3), (0.1, 0.3, 1, 3, 10, 30), (0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
INTEGRATED: dict[str, Sequence[float]] = {"rate": RATES, "alpha": (1e-7, 1e-6, 1e-5)}
STANDARD = "integrated, standard"
ENTRIES = {
    OURS: Entry(DropoutSGDClassifier(), {"rate": RATES}),
    "DropoutLogisticRegression": Entry(DropoutLogisticRegression(), INTEGRATED),
    "integrated, per-entry": Entry(DropoutLogisticRegression(dropout="per-entry"), INTEGRATED),
    STANDARD: Entry(DropoutLogisticRegression(dropout="standard"), INTEGRATED),
    "Adagrad without dropout": Entry(
        DropoutSGDClassifier(dropout="none", learning_rate="adagrad"), {"eta0": (0.03, 0.1, 0.3, 1)}
    ),
    PEER: Entry(SGDClassifier(), {"alpha": ALPHAS}),
    "SGDClassifier(average=True)": Entry(SGDClassifier(average=True), {"alpha": ALPHAS}),
    "LogisticRegression, liblinear": Entry(LogisticRegression(solver="liblinear"), {"C": COSTS}),
    "LinearSVC": Entry(LinearSVC(), {"C": COSTS}),
    "NBSVM": Entry(NBSVM(), {"C": COSTS}),
}
ONE_AGAINST_THE_REST = ("LogisticRegression, liblinear", "NBSVM")  # have no way of their own with several classes
FILES = {
    "rcv1-part": "{}.svm.bz2",
    "reuters52": "{}.multiclass.svm.bz2",
    "20news": "{}.svm.bz2",
    "20news, 20 classes": "{}.multiclass.svm.bz2",
    "athr": "all.svm.bz2",
}
GROUPS = {"20news": "20news, 20 classes"}  # whose labels say how the rows of the former are sorted


def load(folder: Path, name: str) -> Callable[[int], Split]:
    """The training and test data by seed: the same for all seeds where the data have a split."""
    where = folder / name.partition(",")[0]
    if name == "athr":
        X, y = next(iter_svmlight(where / FILES[name], 10**6))

        def halves(seed: int) -> Split:
            order = np.random.default_rng(seed).permutation(len(y))
            train, test = order[: len(y) // 2], order[len(y) // 2 :]
            return X[train], y[train], X[test], y[test]

        return halves
    (train_x, train_y), (test_x, test_y) = (
        next(iter_svmlight(where / FILES[name].format(part), 10**6)) for part in ("train", "test")
    )
    d = max(train_x.shape[1], test_x.shape[1])
    train_x.resize(len(train_y), d)
    test_x.resize(len(test_y), d)
    return lambda _: (train_x, train_y, test_x, test_y)


def make(name: str, several: bool, seed: int, value: dict[str, float] | None) -> Any:
    """A model that was never fitted; ``value`` is that of the parameters which are tuned, None the default."""
    entry = ENTRIES[name]
    model = clone(entry.model)
    if "random_state" in model.get_params():
        model.set_params(random_state=seed)
    if value is not None:
        model.set_params(**value)
    return OneVsRestClassifier(model) if several and name in ONE_AGAINST_THE_REST else model


def folds_of(folder: Path, data: str, X: sparse.csr_array, y: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Five folds of the training data: contiguous blocks of each group of rows, or random rows."""
    if data == "athr":
        return list(StratifiedKFold(5, shuffle=True, random_state=0).split(X, y))
    groups = y if data not in GROUPS else load(folder, GROUPS[data])(0)[1]
    return list(StratifiedKFold(5).split(X, groups))


def choose(name: str, X: sparse.csr_array, y: np.ndarray, folds: Any) -> dict[str, float]:
    """The values with the best accuracy in the folds."""
    several = len(np.unique(y)) > 2
    model = make(name, several, 0, None)
    prefix = "estimator__" if isinstance(model, OneVsRestClassifier) else ""
    grid = {prefix + parameter: list(values) for parameter, values in ENTRIES[name].grid.items()}
    best = GridSearchCV(model, grid, cv=folds, refit=False).fit(X, y).best_params_
    return {parameter.removeprefix(prefix): float(value) for parameter, value in best.items()}


def epochs_of(model: Any) -> int | None:
    models = model.estimators_ if isinstance(model, OneVsRestClassifier) else [model]
    passes = [np.max(one.n_iter_) for one in models if hasattr(one, "n_iter_")]
    return int(max(passes)) if passes else None


def turn(row: Row, split: Split, seed: int) -> None:
    """Fit one model once and write down what it cost and how often it is wrong."""
    train_x, train_y, test_x, test_y = split
    model = make(row["model"], len(np.unique(train_y)) > 2, seed, row["value"])
    start = time.process_time()
    model.fit(train_x, train_y)
    row["seconds"].append(time.process_time() - start)
    wrong = model.predict(test_x) != test_y
    row["error"].append(float(wrong.mean()))
    row["wrong"].append(wrong.tolist())
    row["epochs"].append(epochs_of(model))


def measure(folder: Path, data: str, names: Sequence[str], tuned: bool, seeds: int, progress: Progress) -> list[Row]:
    """A row for each model by default and, if asked for, one with a tuned parameter; all take turns in random order."""
    splits = load(folder, data)
    train_x, train_y, *_ = splits(0)
    folds = folds_of(folder, data, train_x, train_y) if tuned else None
    rows = [{"data": data, "model": name, "value": None} for name in names]
    for name in progress.track(names if tuned else (), description=f"{data}: choosing a parameter"):
        value = choose(name, train_x, train_y, folds)
        rows.append({"data": data, "model": name, "value": value})
    for row in rows:
        row |= {"seconds": [], "error": [], "wrong": [], "epochs": []}
    few = (train_x[::50], train_y[::50], train_x[:9], train_y[:9])
    for row in rows[: len(names)]:  # the first fit of ours compiles
        turn(row | {"seconds": [], "error": [], "wrong": [], "epochs": []}, few, 0)
    for seed in progress.track(range(seeds), description=f"{data}: fits"):
        for row in random.sample(rows, len(rows)):
            turn(row, splits(seed), seed)
    return rows


def difference(row: Row, other: Row) -> tuple[float, float, float]:
    """Mean of the paired differences of the test error, and its 95 % interval over the seeds."""
    gaps = np.subtract(row["error"], other["error"])
    half = 0.0
    if len(gaps) > 1:
        half = float(stats.t.ppf(0.975, len(gaps) - 1) * gaps.std(ddof=1) / np.sqrt(len(gaps)))
    return float(gaps.mean()), float(gaps.mean()) - half, float(gaps.mean()) + half


def against_standard(rows: Sequence[Row]) -> str:
    """What tuned noise per entry brings beside tuned standard dropout, with a 95 % interval over the test documents, or
    for athr over the halves."""
    own, other = (
        next((row for row in rows if row["model"] == name and row["value"]), None)
        for name in ("integrated, per-entry", STANDARD)
    )
    if own is None or other is None:
        return ""
    gaps = np.subtract(own["wrong"][0], other["wrong"][0], dtype=float)
    if rows[0]["data"] == "athr":
        gaps = np.subtract(own["error"], other["error"])
    half = float(stats.norm.ppf(0.975) * gaps.std(ddof=1) / np.sqrt(len(gaps)))
    shown = f"{100 * gaps.mean():+.2f} [{100 * (gaps.mean() - half):+.2f}, {100 * (gaps.mean() + half):+.2f}]"
    return f"tuned per-entry less tuned standard dropout, points of test error [95 %]: {shown}"


def table_of(rows: Sequence[Row]) -> Table:
    numbers = ("tuned", "test error %", f"less {PEER}'s [95 %]", "CPU s", f"/ {PEER}", "epochs")
    table = Table("model", *(Column(name, justify="right") for name in numbers), title=f"\n{rows[0]['data']}")
    for row in rows:
        peer = next(
            other for other in rows if other["model"] == PEER and (other["value"] is None) == (row["value"] is None)
        )
        mean, low, high = (100 * value for value in difference(row, peer))
        ratio = np.median(np.divide(row["seconds"], peer["seconds"]))
        tuned = ", ".join(f"{parameter} = {value:g}" for parameter, value in (row["value"] or {}).items())
        epochs = "" if None in row["epochs"] else f"{np.median(row['epochs']):.0f}"
        gap = "" if row is peer else f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]"
        error = f"{100 * np.mean(row['error']):.2f}"
        table.add_row(row["model"], tuned, error, gap, f"{np.median(row['seconds']):.2f}", f"{ratio:.1f}", epochs)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path, help="folder with 20news, reuters52, rcv1-part and athr in svmlight format")
    parser.add_argument("--sets", nargs="+", choices=FILES, default=list(FILES), help="default: all")
    parser.add_argument("--models", nargs="+", choices=ENTRIES, default=list(ENTRIES), help="default: all")
    parser.add_argument("--seeds", type=int, default=5, help="default: %(default)s; athr has twice as many halves")
    parser.add_argument("--untuned", action="store_true", help="defaults only")
    parser.add_argument("--json", type=Path, default=Path("build/bench/text.json"), help="default: %(default)s")
    asked = parser.parse_args()
    names = list(dict.fromkeys([PEER, *asked.models]))
    warnings.simplefilter("ignore", ConvergenceWarning)  # of liblinear; the table shows what it reached
    warnings.filterwarnings("ignore", "The least populated class")  # Reuters-52 has classes of one document
    console, found = Console(width=140, highlight=False), []
    with Progress(console=Console(stderr=True)) as progress, threadpool_limits(1):
        for data in asked.sets:
            seeds = asked.seeds * (2 if data == "athr" else 1)
            rows = measure(asked.data, data, names, not asked.untuned, seeds, progress)
            console.print(table_of(rows), against_standard(rows))
            found += [{name: value for name, value in row.items() if name != "wrong"} for row in rows]
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    unfinished = asked.json.with_suffix(".unfinished")
    unfinished.write_text(json.dumps({"machine": machine(), "rows": found}, indent=1))
    unfinished.replace(asked.json)


if __name__ == "__main__":
    main()
