"""From what a layer has seen to the chances of its units: rate, match and mixture become arrays for a sampler.

One code for NumPy (the CPU path) and torch (every other device). No value is read back, so a device never waits.
"""

from __future__ import annotations

from math import ceil
from typing import Any, NamedTuple

from evodrop.definitions import LEAST_RATE, fill_to_level, n_draws, namespace
from evodrop.matching import draws_for_kept, draws_for_noise, keep_for_noise, most_draws

__all__ = ["Chances", "Law", "find_chances"]

Array = Any


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

    chances: Array  # (d,): sampling probabilities if there is a k, else independent keep probabilities
    k: Array | None  # number of draws: an int, or a tensor on the device where the match depends on the data
    most: int  # an int that k does not exceed
    scale: Array  # (d,): 1 / (k p_i) or 1 / pi_i; 0 where a unit is never kept
    passes: Array  # (d,): units that pass through unchanged


def find_chances(law: Law, rms: Array, given: Array | None) -> Chances:
    """The chances of d units with root mean squares ``rms``; ``given`` are the user's weights or keep probabilities."""
    xp = namespace(rms)
    sound = xp.isfinite(rms)
    if law.source == "keep":
        keep = xp.full_like(rms, 1.0 - law.p) if given is None else given
        return _independent(xp.where(sound, keep, 1.0), ~sound)
    weights = rms if law.source == "batch" else xp.ones_like(rms) if given is None else given
    weights = xp.where(sound, weights, 0.0)
    total = weights.sum()
    passes = ~sound | (total == 0)
    probs = weights / xp.where(total > 0, total, 1.0)
    if law.uniform_mix:  # among the units that can be drawn: a zero stays a zero
        drawable = weights > 0
        probs = drawable * ((1.0 - law.uniform_mix) * probs + law.uniform_mix / drawable.sum().clip(min=1))
    if law.scheme == "bernoulli":
        return _independent(xp.where(passes, 1.0, _water_filling(law, rms, probs)), passes)
    k, most = _number_of_draws(law, rms, probs)
    return Chances(probs, k, most, xp.where(passes, 1.0, _reciprocal(k * probs)), passes)


def _number_of_draws(law: Law, rms: Array, probs: Array) -> tuple[Array, int]:
    d = len(probs)
    if law.match == "draws":
        k = n_draws(d, law.p) if law.k is None else law.k
        return k, k
    most = most_draws(d, law.p)
    if law.match == "distinct":
        return draws_for_kept(probs, (probs > 0).sum() * (1.0 - law.p), most), most
    if law.source == "batch":  # never more, since (sum s)^2 <= d sum s^2: a device need not draw to the ceiling
        most = min(most, ceil(d * (1.0 - law.p) / law.p))
    return draws_for_noise(_squares(rms), probs, law.p, most), most


def _water_filling(law: Law, rms: Array, probs: Array) -> Array:
    if law.match == "noise":
        return keep_for_noise(_squares(rms), probs, law.p)
    if law.match == "distinct":  # independent units do not repeat: the sum of the keep probabilities is the number kept
        return fill_to_level(probs, (probs > 0).sum() * (1.0 - law.p))
    return fill_to_level(probs, n_draws(len(probs), law.p) if law.k is None else law.k)


def _independent(keep: Array, passes: Array) -> Chances:
    return Chances(keep, None, 1, _reciprocal(keep), passes)


def _squares(rms: Array) -> Array:
    """Second moments in units of the largest, so that none overflows."""
    xp = namespace(rms)
    finite = xp.where(xp.isfinite(rms), rms, 0.0)
    return (finite / finite.max().clip(min=LEAST_RATE)) ** 2


def _reciprocal(rates: Array) -> Array:
    """1 / rates, 0 where a rate is 0."""
    xp = namespace(rates)
    return xp.where(rates > 0, 1.0 / rates.clip(min=LEAST_RATE), 0.0)
