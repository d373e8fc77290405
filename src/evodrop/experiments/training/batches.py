"""Which examples make up which batch: a function of seed and iteration alone, so that a run can go on anywhere."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

__all__ = ["Batches"]

ORDER = 1  # sets the order's random numbers apart from those of the noise


class Batches:
    """A stream of index tensors: every epoch a new permutation, cut into batches of the same size.

    What does not fill a batch is left out, since layers take their statistics from it; the next epoch leaves out
    others. Fewer examples than a batch are one batch.

    Args:
        n: number of examples.
        size: of a batch, over all ranks.
        seed: of the order.
        rank, ranks: a rank of a process group takes its share of every batch.

    Examples:
        >>> stream = Batches(10, 4, seed=0)
        >>> len(stream), [len(batch) for _, batch in zip(range(3), stream.starting_at(0))]
        (2, [4, 4, 4])
    """

    def __init__(self, n: int, size: int, seed: int, rank: int = 0, ranks: int = 1) -> None:
        if n < 1:
            raise ValueError(f"there are {n} training examples, but a batch takes at least 1")
        if not 0 <= rank < ranks <= min(n, size):
            raise ValueError(
                f"rank {rank} of {ranks} of batches of {min(n, size)}, but ranks count from 0 and each takes an example"
            )
        self.n, self.size, self.seed, self.rank, self.ranks = n, min(n, size), seed, rank, ranks

    def __len__(self) -> int:
        """Batches in an epoch."""
        return self.n // self.size

    def starting_at(self, iteration: int) -> Iterator[Tensor]:
        """The batches from an iteration on, without end."""
        epoch, skipped = divmod(iteration, len(self))
        while True:
            order = torch.from_numpy(np.random.default_rng([self.seed, ORDER, epoch]).permutation(self.n))
            for batch in order[: len(self) * self.size].view(-1, self.size)[skipped:]:
                yield batch[self.rank :: self.ranks]
            epoch, skipped = epoch + 1, 0
