"""One training loop for every network, data set and method. It has no part in figures, and none in files.

All that is random is fixed by the run: the order of the batches is a function of seed and iteration, and the noise
comes from torch's global generator, which belongs to the training during a step and to the caller between two steps.
Everything happens on one thread of the CPU in float32, so that the same run has the same records to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.modules.dropout import _DropoutNd

from evodrop.definitions import second_moments
from evodrop.lab.data import Images
from evodrop.lab.networks import NETWORKS, Network, build_network, initialize
from evodrop.lab.run import LayerStatistics, Record, Run
from evodrop.lab.training import UNKNOWN, Score, Training, fingerprint
from evodrop.nn.zoo import penalties
from evodrop.noise import make_noise

Pixels = tuple[Tensor, Tensor, Tensor, Tensor, str]  # train_x, train_y, test_x, test_y, digest

ORDER, NOISE = 1, 2  # set the random numbers of the order and of the noise apart
PROBE_SEED = 0  # the probe is the same for all runs on a data set
AT_ONCE = 500  # images of an evaluation
QUANTILES = 16  # of the probabilities of a layer
DIGITS = 6  # as many as a figure can show: records stay small
OPEN = {"examples": 0.0, "wrong": 0.0, "loss": 0.0}  # sums over the batches since the last record


class NetworkTraining(Training):
    """A network in training, in place. A rank of a process group takes its share of every batch."""

    def __init__(self, run: Run, network: nn.Module, pixels: Pixels, rank: int = 0, ranks: int = 1) -> None:
        self.train_x, self.train_y, self.test_x, self.test_y, digest = pixels
        n = len(self.train_y)
        self.size = min(n, run.batch_size)  # few examples are one batch
        super().__init__(run, digest, n // self.size, ranks)
        self.rank = rank
        for module in network.modules():
            if isinstance(module, nn.Conv2d):  # its weights are laid out as the data are
                module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.network = self.model = network  # the model is what is called; a subclass may wrap it
        self.optimizer = torch.optim.SGD(network.parameters(), lr=run.lr, momentum=run.momentum)
        self.penalised = penalties(network).requires_grad
        self.open, self.stream = dict(OPEN), batches(n, self.size, run.seed)
        noise_seed = int(np.random.SeedSequence([run.seed, NOISE]).generate_state(1)[0])
        self.noise = torch.Generator().manual_seed(noise_seed).get_state()
        probe = np.random.default_rng(PROBE_SEED).permutation(n)[: run.probe]
        self.probe_x, self.probe_y = self.train_x[probe], self.train_y[probe]

    def state(self) -> dict[str, Any]:
        velocities = [self.optimizer.state[weights].get("momentum_buffer") for weights in self.network.parameters()]
        more = {"open": self.open, "noise": self.noise, "network": self.network.state_dict(), "velocities": velocities}
        return super().state() | more

    def load_state(self, state: dict[str, Any]) -> None:
        super().load_state(state)
        self.network.load_state_dict(state["network"])
        for weights, velocity in zip(self.network.parameters(), state["velocities"], strict=True):
            if velocity is not None and (velocity.shape, velocity.dtype) != (weights.shape, weights.dtype):
                raise ValueError(f"a velocity has shape {tuple(velocity.shape)}, its weights {tuple(weights.shape)}")
            self.optimizer.state[weights] = {"momentum_buffer": velocity}
        torch.Generator().set_state(state["noise"])  # raises if it is not the state of a generator
        self.noise, self.open = state["noise"], {name: float(state["open"][name]) for name in OPEN}
        self.stream = batches(len(self.train_y), self.size, self.run.seed, self.iteration)

    def step(self) -> Record | None:
        """One step of SGD, and the record if one is due."""
        due = self.iteration + 1 == self.next_record()
        with self._alone():
            start, cpu_start = perf_counter(), process_time()
            index = next(self.stream)[self.rank :: self.ranks]
            x, y = as_input(self.train_x.index_select(0, index)), self.train_y[index]
            self.network.train()
            with watch_dropout(self.network) if due else nullcontext(list[LayerStatistics]()) as seen:
                logits = self.model(x)
            loss = cross_entropy(logits, y)
            wrong = float((logits.detach().argmax(1) != y).sum())
            for name, value in zip(OPEN, self.sum_over_ranks([len(y), wrong, loss.item() * len(y)]), strict=True):
                self.open[name] += value
            lr = self.run.lr_at(self.iteration // self.per_epoch)
            self.iteration += 1
            sound = math.isfinite(self.open["loss"])
            if sound:
                if self.penalised:  # noise that is learned has a price per example; records hold the loss alone
                    loss = loss + penalties(self.network) / len(self.train_y)
                for group in self.optimizer.param_groups:
                    group["lr"] = lr
                self.optimizer.zero_grad(set_to_none=True)
                loss = loss * (len(y) * self.ranks / self.size)  # ranks average their gradients
                loss.backward()  # type: ignore[no-untyped-call]
                self.optimizer.step()
                self.timed.append((1, perf_counter() - start, process_time() - cpu_start))
                if not due:
                    return None
            clean = self.evaluate(self.probe_x, self.probe_y) if sound else UNKNOWN
            test = self.evaluate(self.test_x, self.test_y) if sound else UNKNOWN
        (examples, wrong, total), self.open = self.open.values(), dict(OPEN)
        return self.make_record(lr, (wrong / examples, total / examples), clean, test, seen if sound else [])

    def sum_over_ranks(self, sums: list[float]) -> list[float]:
        """Sums over a batch from those over this process's share of it: here the same."""
        return sums

    @torch.no_grad()
    def evaluate(self, x: Tensor, y: Tensor) -> Score:
        """The network without noise, on images (n, height, width, channels). It draws no random number."""
        self.network.eval()
        wrong, loss = 0, 0.0
        for images, labels in zip(torch.split(x, AT_ONCE), torch.split(y, AT_ONCE), strict=True):
            logits = self.network(as_input(images))
            wrong += int((logits.argmax(1) != labels).sum())
            loss += float(cross_entropy(logits.double(), labels, reduction="sum"))
        return (wrong / len(y), loss / len(y)) if math.isfinite(loss) else UNKNOWN

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


@contextmanager
def watch_dropout(network: nn.Module) -> Iterator[list[LayerStatistics]]:
    """A list that fills, within the ``with`` block, when data pass through dropout layers in training mode.

    The layers, their noise and its gradient stay as they are. Where the noise has moved into the weights of a
    neighbour, an ``nn.Identity`` marks the place, and is watched as well. Units that batchwise dropout spares the layer
    before it are zero on the whole batch, and count as dead.
    """
    seen = list[LayerStatistics]()

    def note(name: str, layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if layer.training:
            seen.append(layer_statistics(name, layer, inputs[0]))

    with ExitStack() as hooks:
        for name, layer in network.named_modules():
            if isinstance(layer, _DropoutNd | nn.Identity):
                hooks.enter_context(layer.register_forward_pre_hook(partial(note, name)))
        yield seen


def layer_statistics(name: str, layer: nn.Module, input: Tensor) -> LayerStatistics:
    """The statistics of a layer whose units are all dimensions of its input but the first.

    What the noise does is known of standard dropout, and of layers that give their noise for second moments.
    """
    moments = second_moments(input.detach().flatten(1)).numpy()
    moments = np.where(np.isfinite(moments), moments, 0.0)
    strengths, live = np.sqrt(moments), moments > 0
    total, noise = strengths.sum(), None
    if type(layer) is nn.Dropout:  # a subclass may have another noise
        noise = make_noise(None, moments, layer.p, independent=True)
    elif all(getattr(layer, name, None) is None for name in ("unit_dims", "shared_dims")):
        noise_for: Any = getattr(layer, "noise_for", None)  # with those options it depends on more, or on other units
        noise = None if noise_for is None else noise_for(moments)
    seen = LayerStatistics(
        name=name,
        units=len(moments),
        dead=int((~live).sum()),
        effective=0.0,
        kept=None if noise is None else 0.0,
        noise=None,
        probs=[_rounded(q) for q in np.quantile(strengths / (total or 1.0), np.linspace(0, 1, QUANTILES))],
    )
    if live.any():
        seen["effective"] = _rounded(total**2 / moments.sum())
    if live.any() and noise is not None:
        standard = moments.sum() / (1.0 - float(layer.p))  # type: ignore[arg-type]
        seen["kept"] = _rounded(noise.survival[live].sum())
        seen["noise"] = _rounded(moments @ noise.mean_square / standard)
    return seen


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def batches(n: int, size: int, seed: int, iteration: int = 0) -> Iterator[Tensor]:
    """Batches of indices from an iteration on, without end: every epoch a new permutation, cut into equal parts.

    They are a function of seed and iteration, so a run can resume anywhere. What does not fill a batch is left out,
    since layers take their statistics from it; the next epoch leaves out others.
    """
    epoch, skipped = divmod(iteration, n // size)
    while True:
        order = torch.from_numpy(np.random.default_rng([seed, ORDER, epoch]).permutation(n))
        yield from order[: n // size * size].view(-1, size)[skipped:]
        epoch, skipped = epoch + 1, 0


def as_input(x: Tensor) -> Tensor:
    """(n, height, width, channels) seen as torch's (n, channels, height, width); nothing is copied."""
    return x.permute(0, 3, 1, 2)


def prepare(images: Images, size: int | None = None, scale: float = 1.0) -> Pixels:
    """Crop the centre, take off the mean image of the training data and multiply by ``scale``.

    The paper's networks, with their weights from N(0, 0.01), learn from raw pixels of 0 to 255 less the mean image, as
    cuda-convnet fed them: scale 1. A size of None takes the whole image. Convolutions are fastest with the channels
    last, so images of float32 have shape (n, height, width, channels). The digest is one of the images and of how they
    were fed; where they are not the published ones, it says what they are besides.
    """
    _, _, height, width = images.train_x.shape
    size_y, size_x = (height, width) if size is None else (size, size)
    top, left = (height - size_y) // 2, (width - size_x) // 2
    cut = np.s_[:, :, top : top + size_y, left : left + size_x]
    mean = images.train_x[cut].mean(0, dtype=np.float64).astype(np.float32)
    parts = list[Tensor]()
    for x, y in ((images.train_x, images.train_y), (images.test_x, images.test_y)):
        fed = np.ascontiguousarray(x[cut].transpose(0, 2, 3, 1), np.float32)
        fed -= mean.transpose(1, 2, 0)
        fed *= np.float32(scale)
        parts += [torch.from_numpy(fed), torch.from_numpy(np.asarray(y, np.int64))]
    train_x, train_y, test_x, test_y = parts
    digest = fingerprint((size, scale, images.classes), *images[1:5])
    return train_x, train_y, test_x, test_y, digest + (f", {images.origin}" if images.origin else "")


def check_fit(network: str, images: Images) -> Network:
    """The entry of a network that can learn these images; of any other, a ValueError."""
    if network not in NETWORKS:
        build_network(network)  # its error lists the networks
    entry, (channels, height, width) = NETWORKS[network], images.train_x.shape[1:]
    if (entry.channels, entry.classes) != (channels, images.classes) or entry.size > min(height, width):
        raise ValueError(
            f"the network {network!r} takes {entry.channels} channels of {entry.size} x {entry.size} in "
            f"{entry.classes} classes, but {images.name} has {channels} of {height} x {width} in {images.classes}; "
            "name a network that fits"
        )
    return entry


def check_method(method: str, network: str) -> None:
    """Raise a ValueError if a method does not find the layers that it needs in a network, or makes none itself."""
    try:
        with torch.device("meta"):  # no memory, and no random number
            build_network(network, method)
    except TypeError as error:
        raise ValueError(str(error)) from error


def network_for(run: Run) -> nn.Module:
    """The network of a run, with its initial weights: the same for every method of a seed."""
    return initialize(build_network(run.network, run.method, run.rate, run.match), run.seed, run.weight_std)
