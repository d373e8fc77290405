"""From runs to what is compared: which runs belong together, which step size counts, and what to call them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from evodrop.lab.curves import Curve, Floats
from evodrop.lab.methods import find_method, methods_of, plain_name

MATCHED = {"draws": "", "distinct": ", matched units", "noise": ", matched noise"}
MATCHED_WORDS = {
    "distinct": ", as often as lets as many units survive as standard dropout does",
    "noise": ", as often as gives the noise level of standard dropout",
}
Key = tuple[str, str, str, float]


class Variant(NamedTuple):
    """A method in a network, at a rate: one of the things that are compared."""

    label: str  # in tables and legends
    network: str
    method: str
    match: str = "draws"
    rate: float = 0.5
    added: bool = False  # by us, not the paper
    short: str = ""  # on the command line, where the label has a comma or space

    @property
    def name(self) -> str:
        """What ``--methods`` calls it."""
        return self.short or self.label

    @property
    def words(self) -> str:
        """One plain line on it."""
        method = find_method(self.network, self.method)
        words = self.method if method is None else method.words
        return f"{words}{MATCHED_WORDS.get(key_of(self)[2], '')}{'; not in the paper' if self.added else ''}"


def key_of(item: Variant | Curve) -> Key:
    """What sets the runs of a variant apart: options that change nothing for its method do not count."""
    method = find_method(item.network, item.method)
    match = item.match if method is None or method.uses_match else "draws"
    return item.network, item.method, match, item.rate if method is None or method.uses_rate else 0.5


def variants_of(curves: Iterable[Curve], known: Sequence[Variant] = ()) -> list[Variant]:
    """The variants that have runs: known ones in their order, then all others by the names of their methods."""
    keys = dict.fromkeys(map(key_of, curves))
    found = [variant for variant in known if key_of(variant) in keys]
    rest = [key for key in keys if key not in map(key_of, found)]
    order = {(key[0], method): at for key in rest for at, method in enumerate(methods_of(key[0]))}
    rest.sort(key=lambda key: (order.get(key[:2], len(order)), *key[1:], key[0]))
    several_networks = len({network for network, *_ in keys}) > 1
    rates = {key: key[3] for key in keys if (known_as := find_method(*key[:2])) is None or known_as.uses_rate}
    several_rates = len(set(rates.values())) > 1
    names = [plain_name(method) for method in dict.fromkeys(key[1] for key in keys)]
    for key in rest:
        network, method, match, rate = key
        name = plain_name(method)
        label = (name if names.count(name) == 1 else method) + MATCHED.get(match, f", matched {match}")
        label += f", rate {rate:g}" if several_rates and key in rates else ""
        label += f" in {network}" if several_networks else ""
        found.append(Variant(label, network, method, match, rate))
    return found


def final_curves(curves: Iterable[Curve], variant: Variant) -> list[Curve]:
    """The runs of a variant that its results are made of, one per seed: those at the step size that was chosen.

    The choice is :func:`choose_step` among the runs of the least seed; where these differ in length, among those of the
    length that most step sizes have. Results are those of the longest runs at that step.
    """
    own = [curve for curve in curves if key_of(curve) == key_of(variant)]
    if not own:
        return []
    step = choose_step(tuning_curves(own))
    chosen = [curve for curve in own if curve.lr == step]
    longest = max(curve.epochs for curve in chosen)
    by_seed: dict[int, Curve] = {}
    for curve in chosen:
        if curve.epochs == longest and (other := by_seed.setdefault(curve.seed, curve)) is not curve:
            raise ValueError(
                f"{other.folder} and {curve.folder} are runs of the same method, step size and seed; "
                "their other options differ, so report them apart"
            )
    return [by_seed[seed] for seed in sorted(by_seed)]


def tuning_curves(own: Sequence[Curve]) -> list[Curve]:
    """The runs of a variant that its step size is chosen from."""
    least = min(curve.seed for curve in own)
    first = [curve for curve in own if curve.seed == least]
    lengths = {curve.epochs: {other.lr for other in first if other.epochs == curve.epochs} for curve in first}
    epochs = max(lengths, key=lambda length: (len(lengths[length]), length))
    return [curve for curve in first if curve.epochs == epochs]


def choose_step(curves: Sequence[Curve]) -> float:
    """The step size of fastest convergence on the training data, among runs that differ in it alone.

    The paper tunes so (Sections 5.1 and 5.2) and leaves the measure open. Ours is the training error on clean data,
    averaged over the iterations that all runs have reached: it rewards a fast descent. Of equals, the larger step is
    taken. A run that diverged is the last choice; if all did, it is the smallest step.
    """
    sound = [curve for curve in curves if not curve.diverged]
    if not sound:
        return min(curve.lr for curve in curves)
    reached = min(curve.iterations[-1] for curve in sound)
    return min(sound, key=lambda curve: (average_error(curve, reached), -curve.lr)).lr


def average_error(curve: Curve, reached: float = math.inf, kind: str = "clean") -> float:
    """An error, that on clean training data or "test", averaged over the records up to an iteration.

    It is small if the error fell fast, and infinite if the run diverged or a record lacks it.
    """
    errors: Floats = getattr(curve, kind)[curve.iterations <= reached]
    return float(np.mean(errors)) if len(errors) and np.isfinite(errors).all() and not curve.diverged else math.inf


def counted(number: int, noun: str) -> str:
    """A number of things in words: ``1 seed``, ``3 seeds``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
