"""Standard and evolutional dropout side by side, on the handwritten digits that come with scikit-learn.

For every seed the same network learns with each kind of dropout: same split of the data, same initial weights, same
batches; only the noise differs. Evolutional dropout makes the paper's number of draws or, with ``match="noise"``, the
number at which its noise is as strong as standard dropout's. All seeds share one data set of 1797 images, so the
intervals speak of these digits, not of data at large. Nothing is downloaded; it takes under a minute:

    python examples/digits.py [--seeds 5] [--epochs 100] [--target 2]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from time import perf_counter

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from scipy.stats import t as student_t
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from evodrop.nn import EvolutionalDropout

RATE = 0.5
METHODS: dict[str, Callable[[], nn.Module]] = {  # the others are compared with the first
    "nn.Dropout": lambda: nn.Dropout(RATE),
    "EvolutionalDropout": lambda: EvolutionalDropout(RATE),
    'EvolutionalDropout, match="noise"': lambda: EvolutionalDropout(RATE, match="noise"),
}
MEASURES = {"test error (%)": 2, "iterations to target": 0, "µs per iteration": 0}  # and the decimals worth printing
TARGET = 2.0  # the training error, in % and without dropout, at which a network counts as trained
CHECK_EVERY = 10  # iterations from one look at the training error to the next
BATCH_SIZE, MOMENTUM = 128, 0.9  # as in the paper
# Of the paper's grid (0.001, 0.005, 0.01, 0.1) the fastest to the target for all three, on other seeds (100 to 102).
LEARNING_RATE = 0.1


class Run:
    """A network in training, and what is measured on the way."""

    def __init__(self, make_dropout: Callable[[], nn.Module], seed: int) -> None:
        torch.manual_seed(seed)  # making a dropout layer draws nothing, so all methods get the same weights
        hidden = [nn.Linear(64, 150), nn.ReLU(), make_dropout(), nn.Linear(150, 150), nn.ReLU(), make_dropout()]
        self.network = nn.Sequential(*hidden, nn.Linear(150, 10))
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
        self.seconds: list[float] = []  # of each step; their median leaves out the first, which compiles kernels
        self.iterations_to_target = np.nan

    def step(self, X: Tensor, y: Tensor) -> None:
        self.network.train()
        start = perf_counter()
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.network(X), y).backward()
        self.optimizer.step()
        self.seconds.append(perf_counter() - start)

    @torch.no_grad()
    def error(self, X: Tensor, y: Tensor) -> float:
        """Wrong answers without dropout, in %."""
        self.network.eval()
        return 100 * (self.network(X).argmax(1) != y).double().mean().item()


def measure_methods(seed: int, epochs: int, target: float, on_epoch: Callable[[], None]) -> list[list[float]]:
    """A row of measures per method. They take turns on every batch, so that a busy machine slows all of them alike."""
    X, y = load_digits(return_X_y=True)
    parts = train_test_split(np.float32(X / 16), y, test_size=0.25, stratify=y, random_state=seed)
    train_X, test_X, train_y, test_y = map(torch.from_numpy, parts)
    runs = [Run(make_dropout, seed) for make_dropout in METHODS.values()]
    for _ in range(epochs):
        for batch in torch.randperm(len(train_X)).split(BATCH_SIZE):
            for run in runs:
                run.step(train_X[batch], train_y[batch])
                due = len(run.seconds) % CHECK_EVERY == 0 and np.isnan(run.iterations_to_target)
                if due and run.error(train_X, train_y) <= target:
                    run.iterations_to_target = len(run.seconds)
        on_epoch()
    return [[r.error(test_X, test_y), r.iterations_to_target, 1e6 * float(np.median(r.seconds))] for r in runs]


def margin(values: np.ndarray) -> float:
    """Half the width of the 95% interval of the mean, by Student's t."""
    return student_t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))


def summarise(values: np.ndarray, decimals: int, sign: str = "") -> str:
    known = values[~np.isnan(values)]
    note = "" if len(known) == len(values) else f"met in {len(known)} of {len(values)} seeds"
    if len(known) < 2:
        return note
    return f"{known.mean():{sign}.{decimals}f} ± {margin(known):.{decimals}f}{note and ', ' + note}"


def compare(measure: str, differences: np.ndarray) -> str:
    known = differences[~np.isnan(differences)]
    # Errors and iterations come in steps, so a few differences can be equal by chance: no width is no proof.
    clear = len(known) >= 2 and abs(known.mean()) > margin(known) > 1e-9
    unclear = "no clear difference" if len(known) >= 2 else "not compared"
    verdict = ("higher" if known.mean() > 0 else "lower") if clear else unclear
    return f"{measure} {verdict} ({summarise(differences, MEASURES[measure], '+')})"


def show(results: np.ndarray, target: float) -> None:
    """Print the table and its reading. ``results`` is indexed by seed, method and measure."""
    caption = f"mean ± 95% interval over {len(results)} seeds; target: {target:g}% training error, without dropout"
    table = Table("method", title=f"Dropout at rate {RATE} on the digits", caption=caption)
    for measure in MEASURES:
        table.add_column(measure, justify="right", max_width=11)  # the table fits 80 columns
    for method, values in zip(METHODS, results.transpose(1, 2, 0), strict=True):
        table.add_row(method, *map(summarise, values, MEASURES.values()))
    console = Console(highlight=False)
    console.print(table)
    base, *others = METHODS
    for index, method in enumerate(others, start=1):
        readings = map(compare, MEASURES, (results[:, index] - results[:, 0]).T)
        console.print(f"{method} minus {base}, paired by seed: {'; '.join(readings)}.")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare standard and evolutional dropout on scikit-learn's digits.")
    parser.add_argument("--seeds", type=int, default=5, help="runs per method (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=100, help="passes over the data (default: %(default)s)")
    parser.add_argument("--target", type=float, default=TARGET, help="training error in %% (default: %(default)s)")
    given = parser.parse_args()
    if given.seeds < 2:
        parser.error(f"--seeds is {given.seeds}, but an interval takes at least 2 seeds.")
    if given.epochs < 1:
        parser.error(f"--epochs is {given.epochs}, but training takes at least 1 pass over the data.")
    if not 0 <= given.target < 100:
        parser.error(f"--target is {given.target}, but a training error is at least 0 and below 100 percent.")
    return given


def main() -> None:
    given = parse_arguments()
    torch.set_num_threads(1)  # layers this small gain nothing from a second thread, and on a busy machine wait for it
    with Progress(console=Console(stderr=True)) as progress:  # the bar stays on the screen if the table goes to a file
        bar = progress.add_task("training", total=given.seeds * given.epochs)
        options = (given.epochs, given.target, lambda: progress.advance(bar))
        results = np.array([measure_methods(seed, *options) for seed in range(given.seeds)])
    show(results, given.target)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("interrupted: nothing to show, since a run counts only when it is complete") from None
