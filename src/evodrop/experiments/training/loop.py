"""One training loop for every network, data set and method. It knows nothing of figures, and nothing of files.

All that is random is fixed by the run: the order of the batches is a function of seed and iteration, and the noise
comes from torch's global generator, which belongs to the training while it works and to the caller between two records.
Everything happens on one thread of the CPU in float32, so that the same run has the same records to the last bit.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from evodrop.experiments.records.record import DIVERGED, FINAL, FINISHED, RUNNING, LayerStatistics, Record
from evodrop.experiments.records.runs import Run
from evodrop.experiments.training.batches import Batches
from evodrop.experiments.training.evaluation import Evaluation, evaluate
from evodrop.experiments.training.observation import watch_dropout
from evodrop.experiments.training.pixels import Pixels, as_input
from evodrop.nn.zoo import penalties

__all__ = ["NOISE", "Training", "channels_last"]

NOISE = 2  # sets the noise's random numbers apart from those of the order
PROBE_SEED = 0  # the probe is the same for all runs on a data set
OPEN = {"examples": 0.0, "wrong": 0.0, "loss": 0.0}  # sums over the batches since the last record


class Training:
    """A network in training: it advances from record to record, and its state can be saved and loaded in between.

    Args:
        run: what to do.
        network: built, initialised and on the CPU; it is trained in place.
        pixels: the data.
        batches: a stream of indices; by default that of the run's seed.
    """

    def __init__(self, run: Run, network: nn.Module, pixels: Pixels, batches: Batches | None = None) -> None:
        self.run, self.network, self.pixels = run, channels_last(network), pixels
        self.model = self.network  # what is called; a subclass may wrap it
        self.batches = batches or Batches(len(pixels.train_x), run.batch_size, run.seed)
        self.optimizer = torch.optim.SGD(network.parameters(), lr=run.lr, momentum=run.momentum)
        self.penalised = penalties(network).requires_grad
        self.iterations, self.ranks = run.epochs * len(self.batches), self.batches.ranks
        self.iteration, self.status, self.open = 0, RUNNING, dict(OPEN)
        noise_seed = int(np.random.SeedSequence([run.seed, NOISE]).generate_state(1)[0])
        self.noise = torch.Generator().manual_seed(noise_seed).get_state()
        probe = np.random.default_rng(PROBE_SEED).permutation(len(pixels.train_x))[: run.probe]
        self.probe_x, self.probe_y = pixels.train_x[probe], pixels.train_y[probe]
        self.stream = self.batches.starting_at(0)
        self.step_seconds = list[tuple[float, float]]()  # by the clock, and of the processor

    def state(self) -> dict[str, Any]:
        """All that the rest of the run depends on: tensors, numbers and strings. They are not copied."""
        velocities = [self.optimizer.state[weights].get("momentum_buffer") for weights in self.network.parameters()]
        return {
            "run": self.run.id,
            "iteration": self.iteration,
            "open": self.open,
            "noise": self.noise,
            "network": self.network.state_dict(),
            "velocities": velocities,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from a state of the same run. One that does not fit raises, and leaves the training in between."""
        iteration, velocities = state["iteration"], state["velocities"]
        if state["run"] != self.run.id or not (type(iteration) is int and 0 <= iteration < self.iterations):
            raise ValueError(f"the state is that of {state['run']!r:.200} at iteration {iteration!r:.50}")
        self.network.load_state_dict(state["network"])
        for weights, velocity in zip(self.network.parameters(), velocities, strict=True):
            if velocity is not None and (velocity.shape, velocity.dtype) != (weights.shape, weights.dtype):
                raise ValueError(f"a velocity has shape {tuple(velocity.shape)}, its weights {tuple(weights.shape)}")
            self.optimizer.state[weights] = {"momentum_buffer": velocity}
        torch.Generator().set_state(state["noise"])  # raises if it is not the state of a generator
        self.noise, self.iteration = state["noise"], iteration
        self.open = {name: float(state["open"][name]) for name in OPEN}
        self.stream = self.batches.starting_at(iteration)

    def records(self) -> Iterator[Record]:
        """All records from here to the end of the run."""
        while self.status not in FINAL:
            record = self.advance()
            if record is not None:
                yield record

    def advance(self, deadline: float = math.inf) -> Record | None:
        """Train until the next record, or until the clock passes ``deadline``: then there is none yet.

        Args:
            deadline: by ``time.perf_counter``; at least one step is made.
        """
        with self._alone():
            self.network.train()
            while self.status == RUNNING:
                layers = self._step()
                if layers is not None:
                    return self._record(layers)
                if perf_counter() >= deadline:
                    return None
        raise RuntimeError(f"the run has {self.status} at iteration {self.iteration}; there is no further record")

    def timing(self) -> dict[str, Any]:
        """Seconds of the steps since this was last asked. No part of a record: they are never the same."""
        steps, self.step_seconds = self.step_seconds, []
        seconds, cpu_seconds = zip(*steps, strict=True) if steps else ((), ())
        return {
            "iteration": self.iteration,
            "steps": len(steps),
            "seconds": sum(seconds),
            "median_seconds": statistics.median(seconds) if steps else None,
            "median_cpu_seconds": statistics.median(cpu_seconds) if steps else None,
        }

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One thread, and the global generator in our state; the caller finds both as they were."""
        threads = torch.get_num_threads()
        with torch.random.fork_rng(devices=[]):
            torch.set_num_threads(1)
            torch.set_rng_state(self.noise)
            try:
                yield
            finally:
                self.noise = torch.get_rng_state()
                torch.set_num_threads(threads)

    def _step(self) -> list[LayerStatistics] | None:
        """One step of SGD. If a record is due, what the dropout layers saw."""
        start, cpu_start, index = perf_counter(), process_time(), next(self.stream)
        due = (self.iteration + 1) % self.run.eval_every == 0 or self.iteration + 1 == self.iterations
        x, y = as_input(self.pixels.train_x.index_select(0, index)), self.pixels.train_y[index]
        with watch_dropout(self.network) if due else nullcontext(list[LayerStatistics]()) as seen:
            logits = self.model(x)
        loss = cross_entropy(logits, y)
        sound = self._count(logits.detach(), y, loss.detach())
        self.iteration += 1
        if not sound:
            self.status = DIVERGED
            return []
        self._descend(self._objective(loss))
        self.step_seconds.append((perf_counter() - start, process_time() - cpu_start))
        return seen if due else None

    def _objective(self, loss: Tensor) -> Tensor:
        """The mean loss and, where the noise is learned, its price for each example. Records tell the loss alone."""
        return loss + penalties(self.network) / self.batches.n if self.penalised else loss

    def _descend(self, loss: Tensor) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self._lr()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()

    def _lr(self) -> float:
        return self.run.lr_at((self.iteration - 1) // len(self.batches))

    def _count(self, logits: Tensor, y: Tensor, loss: Tensor) -> bool:
        """Add a batch to the open sums; False if its loss is not finite."""
        sums = [float(len(y)), float((logits.argmax(1) != y).sum()), float(loss) * len(y)]
        for name, value in zip(OPEN, self._whole(sums), strict=True):
            self.open[name] += value
        return math.isfinite(self.open["loss"])

    def _whole(self, sums: list[float]) -> list[float]:
        """From the sums over this process's share of a batch to those over the batch; here it is the same."""
        return sums

    def _evaluate(self, x: Tensor, y: Tensor) -> Evaluation:
        return evaluate(self.network, x, y)

    def _record(self, layers: list[LayerStatistics]) -> Record:
        clean = test = Evaluation(None, None)
        if self.status == RUNNING:
            clean = self._evaluate(self.probe_x, self.probe_y)
            test = self._evaluate(self.pixels.test_x, self.pixels.test_y)
            self.status = self._status(clean, test)
        examples, wrong, loss = self.open.values()
        self.open = dict(OPEN)
        return Record(
            iteration=self.iteration,
            epoch=self.iteration / len(self.batches),
            status=self.status,
            lr=self._lr(),
            noisy_error=wrong / examples,
            noisy_loss=loss / examples if math.isfinite(loss) else None,
            clean_error=clean.error,
            clean_loss=clean.loss,
            test_error=test.error,
            test_loss=test.loss,
            layers=layers,
        )

    def _status(self, *evaluations: Evaluation) -> str:
        if any(evaluation.loss is None for evaluation in evaluations):
            return DIVERGED
        return FINISHED if self.iteration == self.iterations else RUNNING


def channels_last(network: nn.Module) -> nn.Module:
    """Lay out the weights of convolutions for images with the channels last, as the data are; return the network."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network
