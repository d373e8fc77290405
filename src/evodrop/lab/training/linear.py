"""A linear model in training: logistic regression on sparse text by SGD with a fixed step, in records like a network's.

A run is :class:`evodrop.linear.DropoutSGDClassifier` with ``loss="log_loss"``, ``learning_rate="constant"``,
``average=True`` and the run's seed as ``random_state``, to the last bit; here its epochs are cut into pieces, with a
record after each.
"""

from __future__ import annotations

from time import perf_counter, process_time
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from evodrop.lab.data import Documents
from evodrop.lab.run import Record, Run
from evodrop.lab.training import UNKNOWN, Score, Training, fingerprint
from evodrop.linear import DropoutSGDClassifier
from evodrop.linear._base import count_problems, labels_of, number_labels
from evodrop.linear._fit import Descent, Model, Progress, make_examples, step_options, sum_squares


class LinearTraining(Training):
    """A linear model in training; several classes are learned one against the rest.

    The training error is on all training data, without noise. What a network's record has and a linear model has not,
    the training error with the noise on and the layers, is None and empty.
    """

    def __init__(self, run: Run, documents: Documents) -> None:
        parts = ((documents.train_x, documents.train_y), (documents.test_x, documents.test_y))
        digest = fingerprint(*(part for X, y in parts for part in (X.shape, X.indptr, X.indices, X.data, y)))
        n, d = documents.train_x.shape
        super().__init__(run, digest, int(n))
        classes = np.unique(documents.train_y)
        problems = count_problems(classes)
        self.train_x, self.train_y = documents.train_x, number_labels(documents.train_y, classes)
        self.test_x, self.test_y = documents.test_x, number_labels(documents.test_y, classes)
        protocol: dict[str, Any] = {"loss": "log_loss", "learning_rate": "constant", "average": True}
        noise: dict[str, Any] = {"dropout": run.method, "rate": run.rate, "match": run.match}
        estimator = DropoutSGDClassifier(**noise, **protocol, eta0=run.lr, random_state=run.seed)
        self.model = Model(d, problems, averages=True)
        progress, rows = Progress(self.model, estimator._new_seed(), averages=True), np.arange(n)
        examples = make_examples(self.train_x, self.train_y, np.ones(n))
        moments = progress.moments(sum_squares(examples, rows, d), n)
        options = estimator, step_options(estimator), np.ones((problems, 2))
        self.descent = Descent(self.model, examples, rows, moments, *options, progress.seed)

    def state(self) -> dict[str, Any]:
        return super().state() | {"arrays": [torch.from_numpy(array) for array in self.descent.state()]}

    def load_state(self, state: dict[str, Any]) -> None:
        super().load_state(state)
        self.descent.load_state([array.numpy() for array in state["arrays"]])
        if self.model.step != self.iteration + 1:
            raise ValueError(f"the weights are those of iteration {self.model.step - 1}, not {self.iteration}")

    def step(self) -> Record:
        """Train until the next record, which is never far: it takes a second at most."""
        begun, start, cpu_start = self.iteration, perf_counter(), process_time()
        loss = self.descent.run(self.next_record() - begun)
        self.iteration = self.model.step - 1
        self.timed.append((self.iteration - begun, perf_counter() - start, process_time() - cpu_start))
        clean, test = self._evaluate(self.train_x, self.train_y), self._evaluate(self.test_x, self.test_y)
        return self.make_record(self.run.lr, (None, loss / (self.iteration - begun)), clean, test, [])

    def _evaluate(self, X: Any, labels: npt.NDArray[Any]) -> Score:
        """By the average of all iterates so far, on clean examples."""
        scores = self.model.scores(X, np.arange(len(labels)))
        if not np.isfinite(scores).all():
            return UNKNOWN
        sides = (labels[:, None] == (np.arange(scores.shape[1]) if scores.shape[1] > 1 else 1)) * 2.0 - 1.0
        loss = np.logaddexp(0.0, -sides * scores).sum(axis=1).mean()
        return float((labels_of(scores) != labels).mean()), float(loss)
