"""The blocks of docs/theory.md on Lemma 1 and Theorem 1: the SGD of Eq. 6, run on a distribution known in full."""

from __future__ import annotations

import math
from functools import cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
from pages import table
from scipy.optimize import minimize
from scipy.special import expit

from evodrop._checks import Floats
from evodrop.definitions import second_moments
from evodrop.noise import Noise
from evodrop.theory import bound_step_size, noises_for, outcomes, risk_bound, squared_norm

__all__ = ["proof", "steps", "worlds"]

UNITS, POINTS, RATE = 6, 12, 0.5
RUNS = 1000
G = 1.0  # the logistic loss is 1-Lipschitz
WORLDS = 10
LENGTHS = (250, 1000, 4000)  # four times the steps halve the bound


class Corrupted(NamedTuple):
    """The distribution of (x * noise, y): finite, so that risks are sums and draws are exact."""

    rows: Floats  # (m, d)
    mass: Floats  # (m,), the probability of each row
    positive: Floats  # (m,), the probability that its label is 1

    def risk(self, weights: Floats) -> Floats:
        """The expected logistic loss of each row of the weights."""
        scores = self.rows @ np.atleast_2d(weights).T
        risks: Floats = self.mass @ (np.logaddexp(0.0, scores) - self.positive[:, None] * scores)
        return risks


class Descent(NamedTuple):
    """What RUNS runs of SGD come to: (RUNS,) each, divided by the number of steps."""

    bound: float  # Theorem 1
    lemma_right: Floats  # r^2 / (2 eta) + eta / 2 sum ||g||^2
    lemma_left: Floats  # sum g.(w_t - w*)
    regret: Floats  # sum loss(w_t) - loss(w*), each on the example of the step
    excess: Floats  # risk of the mean iterate under noise, less that of w*
    clean: Floats  # its risk without noise, less the least possible
    floor: float  # L(w*) + R(w*), less the least risk without noise: where the excess of this noise is counted from


def points(world: int) -> tuple[Floats, Floats, Floats]:
    """The examples, the chance of each to have label 1, and the weights of least risk: those that made the chances."""
    rng = np.random.default_rng(world)
    X = rng.normal(size=(POINTS, UNITS)) / np.arange(1, UNITS + 1)
    best = rng.choice([-1.0, 1.0], UNITS)
    return X, expit(X @ best), best


def noises(world: int = 0) -> dict[str, Noise]:
    return noises_for(second_moments(points(world)[0]), RATE)


def corrupted(name: str, world: int) -> Corrupted:
    X, positive, _ = points(world)
    factors, pmf = outcomes(noises(world)[name])
    rows = (X[:, None] * factors).reshape(-1, UNITS)
    return Corrupted(rows, np.tile(pmf, POINTS) / POINTS, np.repeat(positive, len(pmf)))


@cache
def targets(world: int) -> dict[str, Floats]:
    """For each noise w*, the weights of least risk under it."""
    risks = {name: corrupted(name, world).risk for name in noises()}
    return {
        name: minimize(lambda w, risk=risk: risk(w)[0], points(world)[2], tol=1e-10).x for name, risk in risks.items()
    }


@cache
def descent(name: str, n: int, world: int = 0) -> Descent:
    """RUNS runs of n steps under one noise, all at once, with the step of Theorem 1."""
    X, _, best = points(world)
    B = math.sqrt(squared_norm(second_moments(X), noises(world)[name]))
    r = max(float(np.linalg.norm(w)) for w in targets(world).values())  # one ball that holds the best of every noise
    noisy, clean, target = corrupted(name, world), corrupted("none", world), targets(world)[name]
    eta = bound_step_size(G, B, r, n)
    mean, left, squares, regret = run(noisy, target, eta, n)
    excess = noisy.risk(mean) - noisy.risk(target)
    right = r**2 / (2 * eta) + eta / 2 * squares
    floor = float(noisy.risk(target)[0] - clean.risk(best)[0])
    lost = clean.risk(mean) - clean.risk(best)
    return Descent(risk_bound(G, B, r, n), right / n, left / n, regret / n, excess, lost, floor)


def run(noisy: Corrupted, target: Floats, eta: float, n: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Eq. 6 from w = 0: the mean iterate, and the sums of g.(w_t - w*), of ||g||^2 and of loss(w_t) - loss(w*)."""
    rng = np.random.default_rng(n)
    heap = noisy.mass.cumsum() / noisy.mass.sum()
    best_scores = noisy.rows @ target
    weights, mean = np.zeros((2, RUNS, UNITS))
    left, squares, regret = np.zeros((3, RUNS))
    for _ in range(n):
        drawn = np.searchsorted(heap, rng.random(RUNS), side="right")
        x, label = noisy.rows[drawn], rng.random(RUNS) < noisy.positive[drawn]
        score, best = (weights * x).sum(axis=1), best_scores[drawn]
        slope = expit(score) - label
        left += slope * (score - best)
        squares += slope**2 * (x**2).sum(axis=1)
        regret += np.logaddexp(0.0, score) - np.logaddexp(0.0, best) - label * (score - best)
        mean += weights / n
        weights -= eta * slope[:, None] * x
    return mean, left, squares, regret


def proof() -> str:
    """The chain of inequalities that proves Theorem 1, each link measured."""
    head = ["noise", "bound", "Lemma 1, right", "Lemma 1, left", "iterates", "mean iterate", "bound / excess"]
    rows, fails = [], 0
    for name in noises():
        run = descent(name, 1000)
        links = [run.lemma_right, run.lemma_left, run.regret]
        excess, error = run.excess.mean(), run.excess.std(ddof=1) / math.sqrt(RUNS)
        cells = [f"{run.bound:.3f}", *(f"{link.mean():.4f}" for link in links), f"{excess:.5f} ± {error:.5f}"]
        rows.append([name, *cells, f"{run.bound / excess:.0f}"])
        fails += int((run.lemma_left > run.lemma_right).sum())
    return f"{table(head, rows, numbers=True)}\n\nLemma 1 fails in {fails} of {RUNS * len(rows):,} runs."


def steps() -> str:
    """How bound and excess fall with the number of steps, and what Theorem 1 does not compare."""
    head = ["noise", *(f"n = {n:,}" for n in LENGTHS), "floor", "clean excess, n = 1,000"]
    rows = []
    for name in noises():
        runs = [descent(name, n) for n in LENGTHS]
        pairs = [f"{run.bound:.3f} / {run.excess.mean():.4f}" for run in runs]
        rows.append([name, *pairs, f"{abs(runs[1].floor):.3f}", f"{runs[1].clean.mean():.4f}"])
    return table(head, rows, numbers=True)


def worlds() -> str:
    """Whether the tables show a law or the chance of one world: bounds against measurements, two noises at a time."""
    all_runs = [[descent(name, LENGTHS[0], world) for name in noises()] for world in range(WORLDS)]
    ratios = [run.bound / run.excess.mean() for runs in all_runs for run in runs]
    pairs = [sorted(pair, key=lambda run: run.bound) for runs in all_runs for pair in combinations(runs, 2)]
    excess = sum(low.excess.mean() < high.excess.mean() for low, high in pairs)
    against = [high.bound / low.bound - 1 for low, high in pairs if low.clean.mean() > high.clean.mean()]
    return (
        f"{WORLDS} worlds, n = {LENGTHS[0]}: the bound is {min(ratios):.0f} to {max(ratios):.0f} times the excess. Of "
        f"{len(pairs)} pairs of noises, the one with the smaller bound has the smaller excess in {excess}, and the "
        f"smaller clean excess in {len(pairs) - len(against)}; the bounds of the other {len(against)} differ by "
        f"{max(against, default=0.0):.0%} at most."
    )
