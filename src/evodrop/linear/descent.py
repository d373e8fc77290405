"""A fit: epochs over the examples, a record of each, and the rule when to stop. It knows no scikit-learn estimator."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from time import perf_counter
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from evodrop.linear.callbacks import progress_bar
from evodrop.linear.kernels import Examples, Settings
from evodrop.linear.model import Model, sum_squares
from evodrop.linear.plans import Plan, make_plan
from evodrop.linear.problems import Rows, guesses_of

__all__ = ["Descent", "DivergedError"]

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
History = dict[str, list[float]]


class DivergedError(ValueError):
    """The weights left the range of floating-point numbers."""


class Descent:
    """A model on its way down, with what it has seen of the data: it can be continued with other examples.

    Args:
        model: the iterates.
        d: number of features.
        seed: of the noise and of the order of the examples.
    """

    def __init__(self, model: Model, d: int, seed: int) -> None:
        self.model, self.seed = model, seed
        self.squares, self.total_weight = np.zeros(d), 0.0
        self.diverged = False
        self.history: History = {"loss": [], "train_error": [], "validation_score": [], "seconds": []}

    def run(
        self,
        X: sparse.csr_array,
        examples: Examples,
        rows: Rows,
        class_weights: Floats,
        settings: Settings,
        dropout: dict[str, Any],
        *,
        radius: float | None,
        shuffle: bool,
        tail: bool,
        epochs: int,
        tol: float | None,
        patience: int,
        watch: Callable[[], bool],
        verbose: bool,
    ) -> tuple[int, Plan]:
        """Epochs until ``patience`` of them brought no gain of ``tol``, or ``watch`` says stop; how many they were, and
        the last plan.

        Args:
            X: the matrix of the examples.
            dropout: arguments of :func:`evodrop.linear.plans.make_plan`.
            radius: r / G of Theorem 1, whose step r / (G B sqrt(n)) then takes the place of eta0.
            tail: begin the average anew after 1, 2, 4, 8 and so on epochs.
        """
        if self.diverged:
            self._diverge()
        history = self.history
        moments, seen = self._second_moments(examples, rows.training)
        plan: Plan | None = None
        costs: list[float] = []
        with progress_bar("epochs", epochs, verbose and epochs > 1) as bar:
            for epoch in range(1, epochs + 1):
                start = perf_counter()
                if tail and len(history["loss"]).bit_count() == 1:
                    self.model.restart_average()
                if plan is None or dropout["dropout"] == "weight-aware":
                    plan = make_plan(
                        moments=moments, examples=examples, seen=seen, weight_norms=self.model.weight_norms, **dropout
                    )
                step = settings if radius is None else settings._replace(eta0=_bound_step(radius, plan, settings, rows))
                history["loss"].append(self._epoch(examples, rows.training, plan, step, class_weights, shuffle))
                history["train_error"].append(1.0 - self._accuracy(X, examples.labels, rows.training))
                history["validation_score"].append(self._accuracy(X, examples.labels, rows.validation))
                history["seconds"].append(perf_counter() - start)
                bar(epoch, f"loss {history['loss'][-1]:.4g}  error {history['train_error'][-1]:.2%}")
                costs.append(-history["validation_score"][-1] if len(rows.validation) else history["loss"][-1])
                if watch() or _is_idle(costs, patience, tol):
                    return epoch, plan
        if tol is not None:
            warnings.warn(
                f"no convergence in max_iter={epochs} epochs; increase max_iter or tol",
                ConvergenceWarning,
                stacklevel=5,
            )
        assert plan is not None  # there is at least one epoch
        return epochs, plan

    def coefficients(self) -> tuple[Floats, Floats]:
        """The coefficients and intercepts of the model, which are finite."""
        coef, intercept = self.model.coefficients()
        if not (np.isfinite(coef).all() and np.isfinite(intercept).all()):
            self._diverge()
        return coef, intercept

    def _diverge(self) -> NoReturn:
        self.diverged = True
        raise DivergedError(
            f"the weights overflowed before step {self.model.step}; fit anew: "
            "choose eta0 smaller, or divide X by its largest value"
        )

    def _second_moments(self, examples: Examples, rows: Array) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """E[x_i^2] of all examples so far, these included, and which features these have."""
        weights = np.zeros_like(examples.weights)
        weights[rows] = examples.weights[rows]
        self.squares, seen = sum_squares(examples, weights, self.squares)
        self.total_weight += float(weights.sum())
        return self.squares / self.total_weight, seen

    def _epoch(
        self, examples: Examples, rows: Array, plan: Plan, settings: Settings, class_weights: Floats, shuffle: bool
    ) -> float:
        """One step for each row; gives the mean loss."""
        if shuffle:  # by the seed and the step, so that no generator has to be kept
            rows = np.random.default_rng((self.seed, self.model.step)).permutation(rows)
        total = self.model.run(examples, rows, plan.noise, settings, self.seed, class_weights)
        if not math.isfinite(total):
            self._diverge()
        return total / float(examples.weights[rows].sum())

    def _accuracy(self, X: sparse.csr_array, labels: Array, rows: Array) -> float:
        """The share of clean rows that the model gets right; nan if there is none."""
        if len(rows) == 0:
            return math.nan
        scores = self.model.scores(X, rows)
        return float((guesses_of(scores) == labels[rows]).mean())


def _is_idle(costs: list[float], patience: int, tol: float | None) -> bool:
    """Whether the last ``patience`` epochs were not better, by ``tol`` and on average, than as many before them.

    Single epochs would mislead: noise makes one of them look so good that those after it look idle.
    """
    if tol is None or len(costs) < 2 * patience:
        return False
    return sum(costs[-patience:]) > sum(costs[-2 * patience : -patience]) - tol * patience


def _bound_step(radius: float, plan: Plan, settings: Settings, rows: Rows) -> float:
    norm = math.sqrt(plan.squared_norm + settings.fit_intercept)  # an intercept is a feature that is always 1
    return radius / max(norm * math.sqrt(len(rows.training)), 1e-150)
