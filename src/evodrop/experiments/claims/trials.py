"""Which dropout rate a method got, and why: the validation error of each rate that was tried."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from evodrop.experiments.claims.summaries import final_error
from evodrop.experiments.curves import Curve

__all__ = ["RatesTried", "rates_tried"]


class RatesTried(NamedTuple):
    """The rates that were tried for a method, and the error of each; None if its run diverged."""

    method: str
    errors: dict[float, float | None]
    epochs: int  # of each trial: far fewer than those of a run, so its error is larger

    @property
    def chosen(self) -> float:
        """The rate of the least error, and of equals the lowest.

        Examples:
            >>> RatesTried("standard", {0.5: 0.25, 0.1: 0.25, 0.2: 0.5, 0.35: None}, 30).chosen
            0.1
        """
        return min(self.errors, key=lambda rate: (self._cost(rate), rate))

    @property
    def words(self) -> str:
        """The choice in a line."""
        best = self._cost(self.chosen)
        found = f"validation error {100 * best:.2f}%" if math.isfinite(best) else "all of them diverged"
        length = f"{self.epochs} epoch{'s' * (self.epochs != 1)}"
        edge = ", at the edge" if len(self.errors) > 2 and self.chosen in (min(self.errors), max(self.errors)) else ""
        return f"{self.method}: {self.chosen:g}{edge}, of {len(self.errors)} tried for {length} with one seed; {found}"

    def _cost(self, rate: float) -> float:
        error = self.errors[rate]
        return math.inf if error is None else error


def rates_tried(trials: Iterable[Curve]) -> tuple[RatesTried, ...]:
    """The rates that short runs have tried, method by method, with their smoothed errors at the end."""
    found: dict[str, list[Curve]] = {}
    for trial in trials:
        found.setdefault(trial.method, []).append(trial)
    return tuple(
        RatesTried(
            method, {trial.rate: final_error(trial) for trial in sorted(own, key=lambda one: one.rate)}, own[0].epochs
        )
        for method, own in found.items()
    )
