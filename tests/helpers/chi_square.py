"""The test of a law: does the full joint distribution of many draws fit its probability mass function?"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.stats import chisquare, multinomial

DRAWS = 10**6
LEVEL = 0.001


class Case(NamedTuple):
    probs: np.ndarray
    k: int
    seed: int


def random_cases(number: int = 60) -> Iterator[Case]:
    """d <= 5 units, k <= 6 draws, probabilities from even to very uneven, some exactly zero."""
    rng = np.random.default_rng(2016)
    for seed in range(number):
        d, k = int(rng.integers(1, 6)), int(rng.integers(1, 7))
        probs = rng.dirichlet(np.full(d, rng.choice([0.3, 1.0, 5.0])))
        if d > 2 and rng.random() < 0.3:
            probs[rng.integers(d)] = 0.0
        yield Case(probs / probs.sum(), k, seed)


def multinomial_p_value(counts: np.ndarray, probs: np.ndarray, k: int) -> float:
    """p-value of the joint distribution of the rows of ``counts`` against Mult(probs; k)."""
    assert (counts.sum(axis=1) == k).all()
    assert (counts[:, probs == 0] == 0).all()
    cells = np.array([cell for cell in product(range(k + 1), repeat=len(probs)) if sum(cell) == k])
    return _p_value(counts, cells, multinomial.pmf(cells, k, probs))


def bernoulli_p_value(mask: np.ndarray, keep: np.ndarray) -> float:
    """p-value of the joint distribution of the rows of ``mask`` against independent units."""
    cells = np.array(list(product((0, 1), repeat=len(keep))))
    return _p_value(mask, cells, np.where(cells, keep, 1 - keep).prod(axis=1))


def none_rejected(p_values: list[float]) -> bool:
    """Holm's procedure at LEVEL rejects nothing exactly if the smallest p-value survives Bonferroni."""
    return min(p_values) * len(p_values) >= LEVEL


def _p_value(draws: np.ndarray, cells: np.ndarray, chances: np.ndarray) -> float:
    base = int(cells.max()) + 1
    place = base ** np.arange(cells.shape[1])
    seen = np.bincount(draws.astype(np.int64) @ place, minlength=base ** cells.shape[1])[cells @ place]
    assert seen.sum() == len(draws)
    expected = chances / chances.sum() * len(draws)
    rare = expected < 5  # too few for the chi-square approximation: counted as one cell
    if 0 < expected[rare].sum() < 5:  # still too few: with the rarest of the others, which has 5 or more
        rare[np.where(rare, np.inf, expected).argmin()] = True
    seen = np.append(seen[~rare], seen[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    possible = expected > 0
    assert seen[~possible].sum() == 0
    return float(chisquare(seen[possible], expected[possible]).pvalue) if possible.sum() > 1 else 1.0
