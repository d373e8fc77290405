"""SGD under noise (Eq. 6) on a distribution that is known, many runs at a time, and the least risk it could reach."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import hadamard
from scipy.optimize import minimize
from scipy.special import expit

from evodrop.noise import Noise
from evodrop.theory import outcomes
from evodrop.theory.regularizers import sample_noise

# 16 points, equally likely: 8 uncorrelated units, the i-th of scale i^-1.25, and labels that follow them.
POINTS = hadamard(16)[:, 1:9] * np.arange(1.0, 9.0) ** -1.25
CHANCES = expit(3.0 * POINTS.sum(axis=1))  # of the label 1
MOMENTS = (POINTS**2).mean(axis=0)
SLOPE = (POINTS * (CHANCES - 0.5)[:, None]).mean(axis=0)  # of the risk at w = 0, with its sign turned


class Runs(NamedTuple):
    """(runs, d) or (runs,) each."""

    average: np.ndarray  # of the n iterates
    last: np.ndarray  # w_{n+1}
    gradients: np.ndarray  # sum_t g_t
    products: np.ndarray  # sum_t g_t . w_t
    squares: np.ndarray  # sum_t ||g_t||^2


def descend(noise: Noise, step: float, n: int, seed: int, runs: int = 1000) -> Runs:
    """n steps from w_1 = 0, for all runs at once. Two noises with one seed see the same examples."""
    examples, draws = (np.random.default_rng([seed, stream]) for stream in range(2))
    w, total, gradients = np.zeros((3, runs, POINTS.shape[1]))
    products, squares = np.zeros((2, runs))
    for _ in range(n):
        rows = examples.integers(len(POINTS), size=runs)
        y = np.where(examples.random(runs) < CHANCES[rows], 1.0, -1.0)
        x = POINTS[rows] * sample_noise(noise, runs, draws)
        g = (-y * expit(-y * (x * w).sum(axis=1)))[:, None] * x
        total, gradients = total + w, gradients + g
        products, squares = products + (g * w).sum(axis=1), squares + (g * g).sum(axis=1)
        w = w - step * g
    return Runs(total / n, w, gradients, products, squares)


def noisy_risk(weights: np.ndarray, noise: Noise) -> np.ndarray:
    """L + R of each row of weights, less the log 2 of w = 0: the exact mean loss over points, labels and noise."""
    X, mass = _noisy_points(noise)
    return np.logaddexp(0.0, weights @ X.T) @ mass - weights @ (CHANCES @ POINTS / len(POINTS)) - np.log(2.0)


def least_risk(noise: Noise, r: float) -> tuple[np.ndarray, float]:
    """The weights of least L + R within ||w|| <= r, and by how much they miss it at most: Frank and Wolfe's gap."""
    X, mass = _noisy_points(noise)

    def gradient(u):
        return expit(r * (X @ u)) @ (X * mass[:, None]) - CHANCES @ POINTS / len(POINTS)

    found = minimize(
        lambda u: noisy_risk(r * u, noise) / r,
        np.zeros(POINTS.shape[1]),
        jac=gradient,
        method="SLSQP",
        constraints={"type": "ineq", "fun": lambda u: 1.0 - u @ u, "jac": lambda u: -2.0 * u},
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    u = found.x / max(1.0, np.linalg.norm(found.x))
    return r * u, r * float(gradient(u) @ u + np.linalg.norm(gradient(u)))


def _noisy_points(noise: Noise) -> tuple[np.ndarray, np.ndarray]:
    values, chances = outcomes(noise)
    X = (POINTS[:, None, :] * values).reshape(-1, POINTS.shape[1])
    return X, np.tile(chances, len(POINTS)) / len(POINTS)
