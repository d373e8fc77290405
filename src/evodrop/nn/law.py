"""From what a layer has seen to the chances of its units: rate, match and mixture become arrays for a sampler.

One code for NumPy (the CPU path) and torch (every other device). No value is read back, so a device never waits.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from evodrop._checks import ArrayOrTensor, namespace
from evodrop.definitions import n_draws
from evodrop.noise import Noise, make_noise, most_draws, normalised

__all__ = ["Chances", "Law", "find_chances"]


class Law(NamedTuple):
    """What the user asked for; see :func:`evodrop.nn.functional.multinomial_dropout` for the words."""

    source: str  # of the weights: "batch" (moments of rows, or given), "probs" (given or uniform), "keep" (independent)
    p: float
    k: int | None = None
    scheme: str = "multinomial"
    match: str = "draws"
    uniform_mix: float = 0.0


class Chances(NamedTuple):
    """What a sampler needs. A unit's noise is its count times its scale."""

    chances: ArrayOrTensor  # (d,): sampling probabilities if there is a k, else independent keep probabilities
    k: ArrayOrTensor | None  # number of draws: an int, or a tensor on the device where the match depends on the data
    most: int  # an int that k does not exceed
    scale: ArrayOrTensor  # (d,): 1 / (k p_i) or 1 / pi_i; 0 where a unit is never kept
    passes: ArrayOrTensor  # (d,): units that pass through unchanged


def find_chances(law: Law, rms: ArrayOrTensor, given: ArrayOrTensor | None) -> Chances:
    """The chances of d units with root mean squares ``rms``; ``given`` are the user's weights or keep probabilities."""
    xp = namespace(rms)
    sound = xp.isfinite(rms)
    finite = xp.where(sound, rms, 0.0)
    if law.source == "keep":
        keep = xp.full_like(rms, 1.0 - law.p) if given is None else given
        found = Noise(xp.where(sound, keep, 1.0), None)
        return Chances(*found, 1, found.scale, ~sound)
    weights = rms if law.source == "batch" else xp.ones_like(rms) if given is None else given
    weights = xp.where(sound, weights, 0.0)
    noise = make_noise(
        weights,
        normalised(finite) ** 2,
        law.p,
        k=n_draws(len(rms), law.p) if law.k is None and law.match == "draws" else law.k,
        match=law.match,
        uniform_mix=law.uniform_mix,
        independent=law.scheme == "bernoulli",
    )
    passes = ~sound | (weights.sum() == 0)
    if noise.k is None:
        noise = Noise(xp.where(passes, 1.0, noise.chances), None)
        return Chances(*noise, 1, noise.scale, passes)
    most = _most(law, len(rms)) if law.k is None else law.k
    return Chances(*noise, most, xp.where(passes, 1.0, noise.scale), passes)


def _most(law: Law, d: int) -> int:
    if law.match == "draws":
        return n_draws(d, law.p)
    most = most_draws(d, law.p)
    if law.match == "noise" and law.source == "batch":  # never more, since (sum s)^2 <= d sum s^2
        return min(most, ceil(d * (1.0 - law.p) / law.p))
    return most
