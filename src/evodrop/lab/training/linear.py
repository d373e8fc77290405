"""A linear model in training: logistic regression on sparse text by SGD with a fixed step, in records like a network's.

A run is :class:`evodrop.linear.DropoutSGDClassifier` with ``loss="log_loss"``, ``learning_rate="constant"``,
``average=True`` and the run's seed as ``random_state``, to the last bit; here its epochs are cut into pieces, with a
record after each.
"""

from __future__ import annotations

import math
from time import perf_counter, process_time
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from evodrop.lab.data import Documents
from evodrop.lab.run import Record, Run
from evodrop.lab.training import Evaluation, Training, fingerprint
from evodrop.linear.kernels import Settings
from evodrop.linear.losses import LOSSES
from evodrop.linear.model import Model, finite_sum, make_examples, sum_squares
from evodrop.linear.plans import Plan, make_plan
from evodrop.linear.problems import check_classes, guesses_of, number_labels, side_weights

__all__ = ["LinearTraining"]


class LinearTraining(Training):
    """A linear model in training.

    The training error is on all training data, without noise. What a network's record has and a linear model has not,
    the training error with the noise on and the layers, is None and empty.

    Args:
        run: what to do.
        documents: the data; several classes are learned one against the rest.

    Examples:
        >>> from scipy.sparse import csr_array
        >>> X, y = csr_array([[1.0, 0.0], [0.0, 2.0]]), np.array([1.0, -1.0])
        >>> fields = {"method": "data-dependent", "seed": 0, "lr": 0.5, "epochs": 2, "eval_every": 2}
        >>> training = LinearTraining(Run(dataset="two", network="linear", **fields), Documents("two", X, y, X, y))
        >>> [record["clean_error"] for record in training.records()]
        [0.0, 0.0]
    """

    def __init__(self, run: Run, documents: Documents) -> None:
        parts = ((documents.train_x, documents.train_y), (documents.test_x, documents.test_y))
        digest = fingerprint(*(part for X, y in parts for part in (X.shape, X.indptr, X.indices, X.data, y)))
        self.n, d = documents.train_x.shape
        super().__init__(run, digest, int(self.n))
        classes = np.unique(documents.train_y)
        check_classes(classes)
        self.train_x, self.train_y = documents.train_x, number_labels(documents.train_y, classes)
        self.test_x, self.test_y = documents.test_x, number_labels(documents.test_y, classes)
        self.examples = make_examples(self.train_x, self.train_y, np.ones(self.n))
        self.sides = side_weights(None, classes, documents.train_y)
        self.settings = Settings(LOSSES.index("log_loss"), run.lr, 0.0, 0.0, True, 1.0)
        self.model = Model(d, 1 if len(classes) == 2 else len(classes), averages=True, jobs=1)
        self.seed = int(np.random.RandomState(run.seed).randint(2**31 - 1))  # as the estimator takes a random_state
        squares, self.seen = sum_squares(self.examples, slice(None), d)
        self.moments = finite_sum(squares, np.zeros(d)) / self.n
        self.weight_norms = np.zeros(d)
        self.plan: Plan | None = None  # of the noise; made when a step needs it

    def state(self) -> dict[str, Any]:
        arrays = [torch.from_numpy(array) for array in (*self.model.blocks[0][1:], self.weight_norms)]
        return super().state() | {"arrays": arrays}

    def load_state(self, state: dict[str, Any]) -> None:
        super().load_state(state)
        for own, kept in zip((*self.model.blocks[0][1:], self.weight_norms), state["arrays"], strict=True):
            if (tuple(kept.shape), kept.dtype) != (own.shape, torch.float64):
                raise ValueError(f"an array of the state is {kept.dtype} of shape {tuple(kept.shape)}, not {own.shape}")
            own[...] = kept.numpy()
        self.plan = None

    def step(self) -> Record:
        """Train until the next record, which is never far: it takes a second at most."""
        begun, loss, due = self.iteration, 0.0, self.next_record()
        while self.iteration < due and math.isfinite(loss):
            loss += self._piece(min(due, self.iteration - self.iteration % self.n + self.n))
        clean, test = self._evaluate(self.train_x, self.train_y), self._evaluate(self.test_x, self.test_y)
        return self.make_record(self.run.lr, (None, loss / (self.iteration - begun)), clean, test, [])

    def _piece(self, stop: int) -> float:
        """Steps from here to ``stop``, within one epoch; the sum of the losses at the corrupted examples."""
        first = self.iteration - self.iteration % self.n  # the step before the epoch began
        if self.iteration == first and self.run.method == "weight-aware":
            self.weight_norms[...], self.plan = self.model.weight_norms(), None
        if self.plan is None:
            arrays = (self.moments, self.examples, self.seen)
            options: dict[str, Any] = {"rate": self.run.rate, "match": self.run.match}
            self.plan = make_plan(self.run.method, *arrays, weight_norms=lambda: self.weight_norms, **options)
        order = np.random.default_rng((self.seed, first + 1)).permutation(self.n)[self.iteration - first : stop - first]
        start, cpu_start = perf_counter(), process_time()
        loss = self.model.run(self.examples, order, self.plan.noise, self.settings, self.seed, self.sides)
        self.timed.append((len(order), perf_counter() - start, process_time() - cpu_start))
        self.iteration = stop
        return loss

    def _evaluate(self, X: Any, labels: npt.NDArray[Any]) -> Evaluation:
        """By the average of all iterates so far, on clean examples."""
        scores = self.model.scores(X, np.arange(len(labels)))
        if not np.isfinite(scores).all():
            return Evaluation()
        sides = (labels[:, None] == (np.arange(scores.shape[1]) if scores.shape[1] > 1 else 1)) * 2.0 - 1.0
        loss = np.logaddexp(0.0, -sides * scores).sum(axis=1).mean()
        return Evaluation(float((guesses_of(scores) != labels).mean()), float(loss))
