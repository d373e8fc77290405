"""Shallow learning: logistic regression on sparse text by SGD with a fixed step, in records like those of a network.

A run is :class:`evodrop.linear.DropoutSGDClassifier` with ``loss="log_loss"``, ``learning_rate="constant"``,
``average=True`` and the run's seed as ``random_state``, to the last bit; here its epochs are cut into pieces, with a
record after each. A piece costs a second at most, so a state is saved between records only.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator
from time import perf_counter, process_time
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from evodrop.experiments.datasets import Documents
from evodrop.experiments.records.record import DIVERGED, FINAL, FINISHED, RUNNING, Record
from evodrop.experiments.records.runs import LinearRun
from evodrop.experiments.training.evaluation import Evaluation
from evodrop.experiments.training.keeping import keep_records
from evodrop.linear import DropoutSGDClassifier
from evodrop.linear._base import check_classes, labels_of, number_labels, side_weights
from evodrop.linear._fit import FitOptions, Model, Progress

__all__ = ["LinearTraining", "train_linear"]


def train_linear(
    run: LinearRun, documents: Documents, folder: str | os.PathLike[str] | None = None, **options: Any
) -> Iterator[Record]:
    """Yield all records of a linear run; folder and options are those of :func:`evodrop.experiments.training.train`.

    The training error is on all training data, without noise. What a network's record has and a linear model has not,
    the training error with the noise on and the layers, is None and empty.

    Examples:
        >>> from scipy.sparse import csr_array
        >>> X, y = csr_array([[1.0, 0.0], [0.0, 2.0]]), np.array([1.0, -1.0])
        >>> run = LinearRun(dataset="two", method="data-dependent", seed=0, lr=0.5, epochs=2, eval_every=2)
        >>> [record["clean_error"] for record in train_linear(run, Documents("two", X, y, X, y))]
        [0.0, 0.0]
    """
    yield from keep_records(LinearTraining(run, documents), _fingerprint(documents), folder, **options)


class LinearTraining:
    """A linear model in training: it advances from record to record.

    Args:
        run: what to do.
        documents: the data; several classes are learned one against the rest.
    """

    ranks = 1  # every process learns on its own

    def __init__(self, run: LinearRun, documents: Documents) -> None:
        self.run = run
        classes = np.unique(documents.train_y)
        check_classes(classes)
        self.train_x, self.train_y = documents.train_x, number_labels(documents.train_y, classes)
        self.test_x, self.test_y = documents.test_x, number_labels(documents.test_y, classes)
        self.n, d = self.train_x.shape
        estimator = DropoutSGDClassifier(
            dropout=run.method,
            rate=run.rate,
            match=run.match,
            loss="log_loss",
            learning_rate="constant",
            eta0=run.lr,
            average=True,
            random_state=run.seed,
        )
        self.model = Model(d, 1 if len(classes) == 2 else len(classes), averages=True)
        progress = Progress(self.model, True, d, estimator._new_seed())
        examples = (self.train_x, self.train_y, np.ones(self.n), np.arange(self.n))
        sides = side_weights(None, classes, documents.train_y)
        self.descent = progress.descent(*examples, FitOptions.of(estimator), sides)
        self.iteration, self.iterations, self.status = 0, run.epochs * int(self.n), RUNNING
        self.timed = np.zeros(3)  # steps, and their seconds by the clock and of the processor

    def state(self) -> dict[str, Any]:
        """All that the rest of the run depends on, as tensors and numbers; the tensors share our memory."""
        arrays = [torch.from_numpy(array) for array in self.descent.state()]
        return {"run": self.run.id, "iteration": self.iteration, "arrays": arrays}

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from a state of the same run. One that does not fit raises, and leaves the training in between."""
        iteration, arrays = state["iteration"], state["arrays"]
        if state["run"] != self.run.id or not (type(iteration) is int and 0 <= iteration < self.iterations):
            raise ValueError(f"the state is that of {state['run']!r:.200} at iteration {iteration!r:.50}")
        self.descent.load_state([kept.numpy() for kept in arrays])
        self.iteration = iteration

    def records(self) -> Iterator[Record]:
        """All records from here to the end of the run."""
        while self.status not in FINAL:
            yield self.advance()

    def advance(self, deadline: float = math.inf) -> Record:  # noqa: ARG002
        """Train until the next record, which is never far."""
        if self.status in FINAL:
            raise RuntimeError(f"the run has {self.status} at iteration {self.iteration}; there is no further record")
        begun, every = self.iteration, self.run.eval_every
        start, cpu_start = perf_counter(), process_time()
        loss = self.descent.run(min(self.iterations, begun - begun % every + every) - begun)
        self.iteration = self.model.step - 1
        self.timed += (self.iteration - begun, perf_counter() - start, process_time() - cpu_start)
        return self._record(loss / (self.iteration - begun))

    def timing(self) -> dict[str, Any]:
        """Seconds of the steps since this was last asked."""
        (steps, seconds, cpu_seconds), self.timed = self.timed.tolist(), np.zeros(3)
        return {
            "iteration": self.iteration,
            "steps": int(steps),
            "seconds": seconds,
            "median_seconds": seconds / steps if steps else None,
            "median_cpu_seconds": cpu_seconds / steps if steps else None,
        }

    def _record(self, noisy_loss: float) -> Record:
        clean = self._evaluate(self.train_x, self.train_y)
        test = self._evaluate(self.test_x, self.test_y)
        sound = math.isfinite(noisy_loss) and clean.loss is not None and test.loss is not None
        self.status = DIVERGED if not sound else FINISHED if self.iteration == self.iterations else RUNNING
        return Record(
            iteration=self.iteration,
            epoch=self.iteration / self.n,
            status=self.status,
            lr=self.run.lr,
            noisy_error=None,
            noisy_loss=noisy_loss if math.isfinite(noisy_loss) else None,
            clean_error=clean.error,
            clean_loss=clean.loss,
            test_error=test.error,
            test_loss=test.loss,
            layers=[],
        )

    def _evaluate(self, X: Any, labels: npt.NDArray[Any]) -> Evaluation:
        """By the average of all iterates so far, on clean examples."""
        scores = self.model.scores(X, np.arange(len(labels)))
        if not np.isfinite(scores).all():
            return Evaluation(None, None)
        sides = (labels[:, None] == (np.arange(scores.shape[1]) if scores.shape[1] > 1 else 1)) * 2.0 - 1.0
        loss = np.logaddexp(0.0, -sides * scores).sum(axis=1).mean()
        return Evaluation(float((labels_of(scores) != labels).mean()), float(loss))


def _fingerprint(documents: Documents) -> str:
    digest = hashlib.sha256()
    for X, y in ((documents.train_x, documents.train_y), (documents.test_x, documents.test_y)):
        digest.update(repr(X.shape).encode())
        for array in (X.indptr, X.indices, X.data, y):
            digest.update(repr((array.shape, array.dtype.str)).encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:16]
