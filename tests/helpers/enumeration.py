"""The slow truth: every outcome of a noise by plain loops and exact fractions, and random problems to try it on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product
from math import comb, fsum, prod
from typing import NamedTuple

import numpy as np

from evodrop.noise import Noise


class Case(NamedTuple):
    w: np.ndarray
    X: np.ndarray
    noise: Noise


def random_cases(number: int) -> list[Case]:
    """Drawn and independent noise in turn, up to 4 units: uneven scales, values of 0, and at times a unit of zeros."""
    rng = np.random.default_rng(2016)
    return [_random_case(rng, drawn=i % 2 == 0) for i in range(number)]


def outcomes(noise: Noise) -> Iterator[tuple[np.ndarray, float]]:
    """Every value of the noise with its probability."""
    return _masked(noise.chances) if noise.k is None else _counted(noise.chances, noise.k)


def mean_over(noise: Noise, function: Callable[[np.ndarray], float]) -> float:
    return fsum(chance * function(value) for value, chance in outcomes(noise))


def _counted(probs: np.ndarray, k: int) -> Iterator[tuple[np.ndarray, float]]:
    exact = [Fraction(float(p)) for p in probs]
    for counts in product(range(k + 1), repeat=len(probs)):
        if sum(counts) == k and all(p > 0 for p, m in zip(probs, counts, strict=True) if m):
            ways = prod(comb(sum(counts[: i + 1]), m) for i, m in enumerate(counts))
            chance = ways * prod(p**m for p, m in zip(exact, counts, strict=True))
            yield np.array([m / (k * p) if m else 0.0 for p, m in zip(probs, counts, strict=True)]), float(chance)


def _masked(keep: np.ndarray) -> Iterator[tuple[np.ndarray, float]]:
    exact = [Fraction(float(p)) for p in keep]
    for mask in product((0, 1), repeat=len(keep)):
        chance = prod(p if b else 1 - p for p, b in zip(exact, mask, strict=True))
        if chance:
            yield np.array([1 / p if b else 0.0 for p, b in zip(keep, mask, strict=True)]), float(chance)


def _random_case(rng: np.random.Generator, drawn: bool) -> Case:
    d, n = int(rng.integers(2, 5)), int(rng.integers(1, 7))
    X = rng.normal(size=(n, d)) * np.exp(rng.normal(size=d)) * (rng.random((n, d)) < 0.8)
    weights = rng.dirichlet(np.full(d, rng.choice([0.5, 2.0]))) + 0.02  # the slow loop has no large exponents
    if d > 2 and rng.random() < 0.4:
        X[:, 1] = weights[1] = 0.0
    X[0, 0] += 1.0  # so that not all is zero
    w = rng.normal(size=d) * 2.0
    if drawn:
        return Case(w, X, Noise(weights / weights.sum(), int(rng.integers(1, 6))))
    return Case(w, X, Noise(weights / weights.max() * rng.choice([0.9, 1.0])))
