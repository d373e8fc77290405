"""From runs to what is compared: which runs belong together, which step size counts, and what to call them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from evodrop.experiments.curves import Curve, Floats
from evodrop.experiments.methods import methods_of

__all__ = ["Contender", "choose_step", "contenders_of", "convergence", "final_curves", "key_of", "tuning_curves"]

MATCHED = {"draws": "", "distinct": ", matched units", "noise": ", matched noise"}
MATCHED_WORDS = {
    "distinct": ", as often as lets as many units survive as standard dropout does",
    "noise": ", as often as makes the noise as loud as standard dropout's",
}
Key = tuple[str, str, str, float]


class Contender(NamedTuple):
    """One of the things that are compared, under the name that tables and legends give it.

    Attributes:
        label: its name.
        network, method, match, rate: of its runs.
        added: whether it is ours, not the paper's.
        short: its name on the command line, without comma or space; its label if that has none.
    """

    label: str
    network: str
    method: str
    match: str = "draws"
    rate: float = 0.5
    added: bool = False
    short: str = ""

    @property
    def name(self) -> str:
        """What ``--methods`` calls it."""
        return self.short or self.label

    @property
    def key(self) -> Key:
        """What tells its runs from those of others: options that change nothing for its method do not count."""
        method = methods_of(self.network).get(self.method)
        match = self.match if method is None or method.uses_match else "draws"
        return (self.network, self.method, match, self.rate if method is None or method.uses_rate else 0.5)

    @property
    def words(self) -> str:
        """One plain line on it."""
        method = methods_of(self.network).get(self.method)
        words = self.method if method is None else method.words
        return f"{words}{MATCHED_WORDS.get(self.key[2], '')}{'; not in the paper' * self.added}"


def key_of(curve: Curve) -> Key:
    """The :attr:`Contender.key` of the contender that a run belongs to."""
    return Contender("", curve.network, curve.method, curve.match, curve.rate).key


def contenders_of(curves: Iterable[Curve], known: Sequence[Contender] = ()) -> list[Contender]:
    """The contenders that have runs: known ones in their order, then all others by the names of their methods."""
    keys = dict.fromkeys(map(key_of, curves))
    found = [contender for contender in known if contender.key in keys]
    rest = [key for key in keys if key not in {contender.key for contender in found}]
    rest.sort(key=lambda key: (_rank(*key[:2]), *key[1:], key[0]))
    several_networks = len({network for network, *_ in keys}) > 1
    several_rates = len({rate for *_, rate in keys}) > 1
    return found + [Contender(_label(*key, several_networks, several_rates), *key) for key in rest]


def _rank(network: str, method: str) -> int:
    names = list(methods_of(network))
    return names.index(method) if method in names else len(names)


def _label(network: str, method: str, match: str, rate: float, show_network: bool, show_rate: bool) -> str:
    known = methods_of(network).get(method)
    matched = MATCHED.get(match, f", matched {match}")
    rated = f", rate {rate:g}" if show_rate and (known is None or known.uses_rate) else ""
    return f"{method}{matched}{rated}{f' in {network}' if show_network else ''}"


def final_curves(curves: Iterable[Curve], contender: Contender) -> list[Curve]:
    """The runs of a contender that its results are made of, one a seed: those at the step size that was chosen.

    The choice is :func:`choose_step` among the runs of the least seed; where these differ in length, among those of the
    length that most step sizes have. Results are those of the longest runs at that step.
    """
    own = [curve for curve in curves if key_of(curve) == contender.key]
    if not own:
        return []
    step = choose_step(tuning_curves(own))
    chosen = [curve for curve in own if curve.lr == step]
    longest = max(curve.epochs for curve in chosen)
    return _one_a_seed([curve for curve in chosen if curve.epochs == longest])


def _one_a_seed(curves: Sequence[Curve]) -> list[Curve]:
    by_seed: dict[int, Curve] = {}
    for curve in curves:
        other = by_seed.setdefault(curve.seed, curve)
        if other is not curve:
            raise ValueError(
                f"{other.folder} and {curve.folder} are runs of the same method, step size and seed; "
                "their other options differ, so compare them apart"
            )
    return [by_seed[seed] for seed in sorted(by_seed)]


def tuning_curves(own: Sequence[Curve]) -> list[Curve]:
    """The runs of a contender that its step size is chosen from."""
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

    Args:
        curves: at least one.
    """
    if not curves:
        raise ValueError("there are no runs to choose a step size from; at least one is needed")
    sound = [curve for curve in curves if not curve.diverged]
    if not sound:
        return min(curve.lr for curve in curves)
    reached = min(curve.iterations[-1] for curve in sound)
    return min(sound, key=lambda curve: (convergence(curve, reached), -curve.lr)).lr


def convergence(curve: Curve, reached: float = math.inf, kind: str = "clean") -> float:
    """An error, that on clean training data or "test", averaged over the records up to an iteration.

    It is small if the error fell fast, and infinite if a record could not tell it.
    """
    errors: Floats = getattr(curve, kind)[curve.iterations <= reached]
    return float(np.mean(errors)) if len(errors) and np.isfinite(errors).all() else math.inf
