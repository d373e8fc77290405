"""The blocks of docs/scaling.md: formulas, and rates from scaling_rates.json. One function gives one block.

A rate that nobody has measured yet is null there. A number that depends on it then reads ``<name of the rate>``.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import NamedTuple

from theory_table import table

__all__ = ["rates", "resnet_bytes", "resnet_share", "text_bytes", "text_share"]

RATES = Path(__file__).with_name("scaling_rates.json")
MEANING = {
    "linear_nonzeros_per_second": "non-zeros of an epoch of `DropoutSGDClassifier`, data-dependent, one process",
    "dask_seconds_per_round": "a round of `DaskDropoutSGDClassifier` on a tiny problem: schedulers and messages",
    "all_reduce_seconds": "an all_reduce of a few numbers by gloo, 2 processes on one machine",
}
NETWORKS = {"1 Gbit/s": 1e9 / 8, "10 Gbit/s": 1e10 / 8, "100 Gbit/s": 1e11 / 8}  # bytes a second of each machine


class Text(NamedTuple):
    """RCV1 in two classes as LIBSVM has it, training and test rows, a hundred times over."""

    rows: int = 100 * (20_242 + 677_399)
    nonzeros: int = 74  # of a row, on average
    features: int = 47_236
    problems: int = 1
    workers: int = 16

    def model_bytes(self) -> int:
        """The common iterate and the mean of the iterates, float64."""
        return 2 * 8 * self.problems * (self.features + 1)

    def messages(self) -> int:
        """Models that follow one another in a round: up a tree of sums, then from one worker to each of the others."""
        return math.ceil(math.log2(self.workers)) + self.workers - 1

    def compute(self, nonzeros_per_second: float, workers: int) -> float:
        """Seconds of one epoch."""
        return self.rows * self.nonzeros / (workers * nonzeros_per_second)


class Layer(NamedTuple):
    """A convolution, with its batch normalisation."""

    inputs: int
    outputs: int
    kernel: int
    size: int  # of a side of its output

    def weights(self) -> int:
        return self.inputs * self.outputs * self.kernel**2 + 2 * self.outputs

    def products(self) -> int:
        return self.inputs * self.outputs * self.kernel**2 * self.size**2


GPUS, BATCH, CLASSES = 64, 256, 1000  # BATCH pictures of 224 x 224 on each GPU
STAGES = ((64, 3, 56), (128, 4, 28), (256, 6, 14), (512, 3, 7))  # width, blocks, side of the output of ResNet-50
SPEEDS = (20e12, 100e12, 400e12)  # operations a second that a GPU sustains: assumed
LINKS = {"100 Gbit/s": 1e11 / 8, "400 Gbit/s": 4e11 / 8}  # of each GPU: assumed
LATENCY = 60e-6  # seconds of a small all_reduce on 64 GPUs: assumed, 12 messages of 5 microseconds


def measured() -> dict[str, float | None]:
    found = json.loads(RATES.read_text(encoding="utf-8"))
    if found.keys() != MEANING.keys() or not all(
        v is None or (type(v) in (int, float) and v > 0) for v in found.values()
    ):
        raise SystemExit(
            f"{RATES.name} holds {found}, but it takes a positive number or null for each of {list(MEANING)}"
        )
    return found


def missing(*names: str) -> str | None:
    """The placeholder for a number that needs these rates, if one of them is not measured yet."""
    lacking = [name for name in names if measured()[name] is None]
    return " ".join(f"`<{name}>`" for name in lacking) or None


def rates() -> str:
    found = measured()
    cells = {name: f"`<{name}>`" if found[name] is None else f"{found[name]:.3g}" for name in MEANING}
    return table(["rate", "what", "value"], [[f"`{name}`", what, cells[name]] for name, what in MEANING.items()])


def text_bytes() -> str:
    """What is held and sent, whatever the rates."""
    text = Text()
    held = text.rows * text.nonzeros * 24  # value and index, and for the noise a scaled value and a slot
    moments, model = 8 * text.features * (text.workers - 1), text.model_bytes()
    rows = [
        ["rows", f"{text.rows:,}"],
        ["non-zeros", f"{text.rows * text.nonzeros:.2e}"],
        ["data on each worker", f"{held / text.workers / 1e9:.1f} GB"],
        ["second moments, once, between the workers", f"{moments / 1e6:.1f} MB"],
        ["model (iterate and mean)", f"{model / 1e6:.2f} MB"],
        ["sent in all in a round", f"{2 * (text.workers - 1) * model / 1e6:.1f} MB"],
        ["models sent one after another in a round", text.messages()],
        [
            "bytes sent for each non-zero that is read",
            f"{2 * (text.workers - 1) * model / text.rows / text.nonzeros:.4f}",
        ],
    ]
    return table([f"{text.workers} workers", ""], rows)


def text_share() -> str:
    """Seconds of a round with one local epoch, and the share of communication."""
    text, found, rows = Text(), measured(), []
    lack = missing("linear_nonzeros_per_second", "dask_seconds_per_round")
    for name, speed in NETWORKS.items():
        wire = text.messages() * text.model_bytes() / speed
        rate, overhead = found["linear_nonzeros_per_second"], found["dask_seconds_per_round"]
        if rate is None or overhead is None:
            rows.append([name, f"{wire:.3f}", *[lack] * 3])
            continue
        compute, talk = text.compute(rate, text.workers), wire + overhead
        speedup = text.compute(rate, 1) / (compute + talk)
        rows.append([name, f"{wire:.3f}", f"{compute:.1f}", f"{talk / (compute + talk):.2%}", f"{speedup:.1f}"])
    head = ["network", "models on the wire, s", "epoch, s", "communication share", "speed-up over one worker"]
    return table(head, rows)


def resnet_layers() -> list[Layer]:
    """The convolutions of ResNet-50: three to a block, and one more where the shape changes."""
    layers, inputs = [Layer(3, 64, 7, 112)], 64
    for width, blocks, size in STAGES:
        for block in range(blocks):
            # The stride is in the middle of the block: its first convolution still sees the larger picture.
            before = size * 2 if block == 0 and width > STAGES[0][0] else size
            layers += [Layer(inputs, width, 1, before), Layer(width, width, 3, size), Layer(width, 4 * width, 1, size)]
            layers += [Layer(inputs, 4 * width, 1, size)] if block == 0 else []
            inputs = 4 * width
    return layers


def resnet_units(whole_channels: bool) -> list[int]:
    """The units of a dropout after each block, and of one before the classifier."""
    units = [4 * width * (1 if whole_channels else size**2) for width, blocks, size in STAGES for _ in range(blocks)]
    return [*units, 4 * STAGES[-1][0]]


def resnet_weights() -> int:
    return sum(layer.weights() for layer in resnet_layers()) + (4 * STAGES[-1][0] + 1) * CLASSES


def resnet_operations() -> int:
    """Of a picture, forward and backward: a multiplication and an addition each, and backward twice of forward."""
    return 3 * 2 * (sum(layer.products() for layer in resnet_layers()) + 4 * STAGES[-1][0] * CLASSES)


def ring(numbers: float, width: int) -> float:
    """Bytes that each GPU sends when a ring adds up so many numbers of a width in bytes."""
    return 2 * (GPUS - 1) / GPUS * numbers * width


def resnet_bytes() -> str:
    """What each GPU sends in a step."""
    gradient = ring(resnet_weights(), 4)
    rows = [["gradients, float32", 1, f"{resnet_weights():,}", f"{gradient / 1e6:.3f}", ""]]
    for name, whole in (("sync, whole channels", True), ("sync, every unit", False)):
        units = resnet_units(whole)
        sent = ring(sum(units) + len(units), 8)
        rows.append([name, len(units), f"{sum(units) + len(units):,}", f"{sent / 1e6:.3f}", f"{sent / gradient:.2%}"])
    return table(["all_reduce", "how many", "numbers", "MB sent by each GPU", "of the gradients"], rows)


def resnet_share() -> str:
    """A step with nothing hidden behind the computation: the worst case."""
    slow, rows = measured()["all_reduce_seconds"], []
    units = resnet_units(True)
    for speed in SPEEDS:
        for name, link in LINKS.items():
            compute, gradient = BATCH * resnet_operations() / speed, ring(resnet_weights(), 4) / link
            wire = ring(sum(units) + len(units), 8) / link
            sync = [wire + len(units) * latency for latency in (LATENCY, slow) if latency is not None]
            shares = [f"{extra / (compute + gradient + extra):.2%}" for extra in sync]
            shares += [] if slow else [str(missing("all_reduce_seconds"))]
            both = f"{(gradient + sync[0]) / (compute + gradient + sync[0]):.1%}"
            rows.append([f"{speed / 1e12:.0f}", name, f"{compute * 1e3:.0f}", f"{gradient * 1e3:.1f}", both, *shares])
    head = ["10¹² operations/s", "network of a GPU", "compute, ms", "gradients, ms", "all communication"]
    assumed = (
        f"{GPUS} GPUs, {BATCH} pictures of 224 x 224 on each, "
        f"{resnet_operations() / 1e9:.1f} 10⁹ operations a picture, "
        f"{LATENCY * 1e6:.0f} microseconds for a small all_reduce."
    )
    return f"{assumed}\n\n{table([*head, 'sync alone', 'sync alone, latency of gloo'], rows)}"
