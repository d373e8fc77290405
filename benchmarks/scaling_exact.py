"""Part of scaling.py: what processes with unequal shares of a batch follow, learn and draw, against one process."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from dropout import Row, claim
from gloo import on_ranks
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from evodrop._kernels.rows import RANK_STEP
from evodrop.definitions import sampling_probabilities, second_moments
from evodrop.nn import EvolutionalDropout, convert_sync_dropout
from evodrop.nn._noise import Options, draw_seed, noise
from evodrop.nn.distributed import global_moments

SHARES = {2: (37, 0), 3: (40, 0, 88)}  # examples of each rank
LEARNED, STEPS = (10, 6), 50
UNITS, ROWS = 150, 1000


class Replayed(nn.Module):
    """In one process, the noise that each rank draws for its share of the batch."""

    def forward(self, x: Tensor) -> Tensor:
        seed, probs = draw_seed(x.device), sampling_probabilities(second_moments(x.detach()))
        drawn = [
            noise(share, probs, *Options(0.5), [1], [], seed + rank * RANK_STEP % 2**63, None)
            for rank, share in enumerate(x.detach().split(LEARNED))
        ]
        return x * torch.cat(drawn)


def whole_batch(shares: tuple[int, ...]) -> Tensor:
    random = torch.Generator().manual_seed(5)
    return torch.randn(sum(shares), UNITS, generator=random) * torch.rand(UNITS, generator=random)


def probabilities(shares: tuple[int, ...]) -> Tensor:
    return sampling_probabilities(global_moments(whole_batch(shares).split(shares)[dist.get_rank()]))


def losses(dropout: type[nn.Module]) -> Tensor:
    """Of 50 steps, of one process or of two that each have a share of every batch; on each rank those of the batch."""
    torch.manual_seed(1)
    network: nn.Module = nn.Sequential(nn.Linear(UNITS, 64), nn.ReLU(), dropout(), nn.Linear(64, 5))
    rank = dist.get_rank() if dist.is_initialized() else None
    model = network if rank is None else DistributedDataParallel(convert_sync_dropout(network))
    optimizer, seen = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), []
    batch, labels = whole_batch(LEARNED), torch.arange(sum(LEARNED)) % 5
    x, y = (batch, labels) if rank is None else (part.split(LEARNED)[rank] for part in (batch, labels))
    weight = 1.0 if rank is None else len(x) * len(LEARNED) / len(batch)  # DDP takes the mean over the ranks
    for _ in range(STEPS):
        loss = nn.functional.cross_entropy(model(x), y) * weight
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen.append(loss.detach())
    return torch.stack(seen)


def mask() -> Tensor:
    torch.manual_seed(0)  # on every rank
    return EvolutionalDropout(0.5, sync=True)(torch.ones(ROWS, UNITS)) > 0


def found_by_a_rank(ranks: int) -> dict[str, Tensor]:
    found = {"probabilities": probabilities(SHARES[ranks]), "mask": mask()}
    return found | ({"losses": losses(EvolutionalDropout)} if ranks == len(LEARNED) else {})


def measure(asked: argparse.Namespace) -> tuple[Row, list[Row], list[Any]]:  # noqa: ARG001  it is quick
    answers = {ranks: on_ranks(ranks, found_by_a_rank, ranks) for ranks in SHARES}
    found: Row = {"probabilities": {}}
    for ranks, shares in SHARES.items():
        alone = sampling_probabilities(second_moments(whole_batch(shares)))
        found["probabilities"][ranks] = max(
            float((own["probabilities"] / alone - 1).abs().max()) for own in answers[ranks]
        )
    together = torch.stack([own["losses"] for own in answers[len(LEARNED)]]).mean(0)
    found["losses"] = float((together - losses(Replayed)).abs().max())
    masks = torch.stack([own["mask"] for own in answers[3]]).flatten(1).double().numpy()
    found["masks"] = float(np.abs(np.corrcoef(masks)[np.triu_indices(3, 1)]).max() * masks.shape[1] ** 0.5)
    return found, claims_of(found), []


def claims_of(found: Row) -> list[Row]:
    equal = [
        claim(f"probabilities, ranks with {SHARES[ranks]} examples / one process, less 1", worst, "<=", 1e-6)
        for ranks, worst in found["probabilities"].items()
    ]
    return [
        *equal,
        claim(f"losses of {STEPS} steps, 2 ranks less one process with their noise", found["losses"], "<=", 1e-4),
        claim("correlation of masks, 3 ranks seeded alike, in standard errors", found["masks"], "<=", 4),
    ]
