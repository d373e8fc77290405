"""What dropout costs in shapes and uses of today's models: sequences, many draws, per-sample gradients, a whole step.

Contestants take turns in random order, and the tables hold medians and their ratios to ``nn.Dropout``. A training step
is forward, backward and AdamW of four pre-norm transformer blocks with three dropouts each; the cost of dropout is the
time with it less the time without. Leave the machine alone meanwhile.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from dropout import Row, claim, claims_table, machine, write
from numpy import median
from rich.console import Console
from rich.progress import Progress
from torch import Tensor, nn

from evodrop.nn import BernoulliDropout, EvolutionalDropout

Task = Callable[[], Any]
PLAIN = "nn.Dropout"
NOISE: dict[str, Any] = {"match": "noise", "unit_dims": -1}


def seconds_of(tasks: dict[str, Task], rounds: int, progress: Progress, description: str) -> dict[str, float]:
    """The median time of each task; all take turns."""
    for task in tasks.values():
        task()
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in progress.track(range(rounds), description=description):
        for name in random.sample(list(tasks), len(tasks)):
            start = time.perf_counter()
            tasks[name]()
            times[name].append(time.perf_counter() - start)
    return {name: float(median(seconds)) for name, seconds in times.items()}


def call_of(layer: nn.Module, shape: tuple[int, ...]) -> Task:
    x, upstream = torch.randn(shape).relu().requires_grad_(), torch.ones(shape)

    def call() -> None:
        x.grad = None
        layer(x).backward(upstream)

    return call


def layer_claims(rounds: int, progress: Progress) -> list[Row]:
    claims = []
    for shape, p, ours, bound in [
        ((8, 512, 768), 0.5, {"unit_dims": -1}, 0.12),
        ((128, 768), 0.1, NOISE, 0.4),
        ((4096, 768), 0.1, NOISE, 0.3),
        ((128, 768), 0.5, NOISE, 0.2),
        ((4096, 768), 0.5, NOISE, 0.15),
    ]:
        text = f"{shape}, p = {p}, " + ", ".join(f"{name}={value!r}" for name, value in ours.items())
        tasks = {PLAIN: call_of(nn.Dropout(p), shape), "ours": call_of(EvolutionalDropout(p, **ours), shape)}
        found = seconds_of(tasks, rounds if shape == (128, 768) else max(3, rounds // 4), progress, text)
        claims.append(claim(f"EvolutionalDropout / {PLAIN}, {text}", found["ours"] / found[PLAIN], "<=", bound))
    return claims


def per_sample_claim(rounds: int, progress: Progress) -> Row:
    """Gradients of 256 examples one by one, by ``vmap`` with a mask for each."""
    inputs, target = torch.randn(256, 64), torch.randn(256, 1)
    tasks = {}
    for name, layer in ((PLAIN, nn.Dropout(0.5)), ("ours", EvolutionalDropout(0.5))):
        model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), layer, nn.Linear(128, 1))
        parameters = {key: value.detach() for key, value in model.named_parameters()}

        def loss(weights: dict[str, Tensor], x: Tensor, y: Tensor, model: nn.Module = model) -> Tensor:
            return (torch.func.functional_call(model, weights, (x[None],)) - y).square().sum()

        gradient = torch.func.vmap(torch.func.grad(loss), (None, 0, 0), randomness="different")
        tasks[name] = lambda gradient=gradient, weights=parameters: gradient(weights, inputs, target)
    found = seconds_of(tasks, rounds, progress, "per-sample gradients")
    return claim(f"vmap, 256 gradients / {PLAIN}", found["ours"] / found[PLAIN], "<=", 4)


class Block(nn.Module):
    """Attention and a perceptron, each after a layer norm, with three dropouts."""

    def __init__(self, width: int, make: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drops = nn.ModuleList(make() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        n, t, width = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(n, t, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, width)
        x = x + self.drops[0](self.out(mixed))
        hidden = self.drops[1](nn.functional.gelu(self.up(self.norms[1](x))))
        return x + self.drops[2](self.down(hidden))


def step_claims(rounds: int, progress: Progress) -> list[Row]:
    layers: dict[str, Callable[[], nn.Module]] = {
        "none": nn.Identity,
        PLAIN: lambda: nn.Dropout(0.1),
        "BernoulliDropout": lambda: BernoulliDropout(0.1),
        "evolutional, match='noise'": lambda: EvolutionalDropout(0.1, **NOISE),
    }
    x, tasks = torch.randn(16, 128, 256), {}
    for name, make in layers.items():
        torch.manual_seed(0)
        model = nn.Sequential(*(Block(256, make) for _ in range(4)))
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

        def step(model: nn.Module = model, optimizer: torch.optim.Optimizer = optimizer) -> None:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

        tasks[name] = step
    found = seconds_of(tasks, rounds, progress, "training steps")
    cost = found[PLAIN] - found["none"]
    claims = [claim(f"step with {PLAIN} / without dropout", found[PLAIN] / found["none"], ">=", 1)]
    for name, bound in (("BernoulliDropout", 0.2), ("evolutional, match='noise'", 0.5)):
        claims.append(claim(f"cost of {name} in a step / {PLAIN}'s", (found[name] - found["none"]) / cost, "<=", bound))
    return claims


def main() -> None:
    parser = argparse.ArgumentParser(description="dropout in shapes and uses of today's models, in about two minutes")
    parser.add_argument("--quick", action="store_true", help="few rounds: whether it works, not how fast")
    parser.add_argument("--json", type=Path, default=Path("build/bench/transformer.json"), help="default: %(default)s")
    asked, about = parser.parse_args(), machine()
    torch.set_num_threads(1)
    with Progress(console=Console(stderr=True)) as progress:
        claims = layer_claims(3 if asked.quick else 80, progress)
        claims.append(per_sample_claim(3 if asked.quick else 30, progress))
        claims += step_claims(3 if asked.quick else 30, progress)
    heading = ", ".join(f"{name} {value}" for name, value in about.items())
    Console(width=120, highlight=False).print(heading, claims_table(claims, "1 thread, medians"))
    write(asked.json, {"machine": about, "claims": claims})


if __name__ == "__main__":
    main()
