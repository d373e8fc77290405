"""How fast does each dropout learn? The paper's protocol for linear models, on svmlight files.

    python benchmarks/learning.py NAME=TRAIN,TEST ...

For every dropout and for the averaged and the last iterate: the fixed step of fastest convergence on the training data
(the paper's grid, extended upward to 10), then the training and test error after 1, 3 and 10 epochs over some seeds.
"""

from __future__ import annotations

import argparse
import re

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.base import clone
from sklearn.datasets import load_svmlight_files

from evodrop.linear import PAPER_GRID, DropoutSGDClassifier, tune_step_size
from evodrop.linear._fit import DROPOUTS

GRID = (10.0, 5.0, 1.0, 0.5, *PAPER_GRID)
EPOCHS = (1, 3, 10)


def errors_at(model, train, test):
    """(2, len(EPOCHS)): training and test error after so many epochs; the noise and the order are those of one run."""
    runs = [clone(model).set_params(max_iter=epochs).fit(*train) for epochs in EPOCHS]
    return [[1 - run.score(*train) for run in runs], [1 - run.score(*test) for run in runs]]


def row(dropout, average, train, test, seeds):
    base = DropoutSGDClassifier(dropout=dropout, loss="log_loss", average=average, learning_rate="constant", tol=None)
    step = tune_step_size(base.set_params(random_state=0), *train, GRID).best_params_["eta0"]
    all_errors = np.array(
        [errors_at(clone(base).set_params(eta0=step, random_state=seed), train, test) for seed in range(seeds)]
    )
    spread = all_errors.std(axis=0, ddof=1) / np.sqrt(seeds)
    cells = [f"{m:.2%} ± {s:.2%}" for m, s in zip(all_errors.mean(axis=0).ravel(), spread.ravel(), strict=True)]
    return [dropout, "average" if average else "last", f"{step:g}", *cells]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="+", help="NAME=TRAIN,TEST: two svmlight files, plain, gz or bz2")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    if bad := [item for item in options.data if not re.fullmatch("[^=]+=[^,]+,[^,]+", item)]:
        parser.error(f"{bad[0]!r} is not of the form NAME=TRAIN,TEST")
    if options.seeds < 2:
        parser.error(f"--seeds is {options.seeds}, but a standard error takes at least 2")
    console = Console(width=170)
    for item in options.data:
        name, files = item.split("=", 1)
        X, y, X_test, y_test = load_svmlight_files(files.split(","))
        heads = [f"{part}, {epochs} ep." for part in ("train", "test") for epochs in EPOCHS]
        table = Table("dropout", "iterate", "step", *heads, title=f"{name}: error, mean ± standard error")
        for dropout, average in track([(d, a) for a in (True, False) for d in DROPOUTS], name):
            table.add_row(*row(dropout, average, (X, y), (X_test, y_test), options.seeds))
        console.print(table)


if __name__ == "__main__":
    main()
