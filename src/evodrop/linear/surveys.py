"""The partitions of a fit before its first step: where they are, what they hold, and whether they fit together."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from evodrop.linear.partitions import Facts, describe, make_part

__all__ = ["Survey", "at_home", "sortedness", "survey"]

Array = npt.NDArray[Any]
Future = Any

# How far labels may depend on the partition. Measured with 2 and 4 partitions on three data sets: up to 0.2 the model
# lost 1.5 points of accuracy at most, at 0.4 up to 4, at 0.6 up to 9; sorted by label, it learned next to nothing.
SUSPICIOUS, HOPELESS = 0.2, 0.5
REMEDY = "shuffle the rows over the partitions, or use fewer of them"


class Survey(NamedTuple):
    """What is known of the partitions. Those without training examples are left out."""

    parts: dict[int, Future]
    facts: dict[int, Facts]
    d: int
    classes: Array

    def total(self, name: str) -> float:
        """The sum of one of the facts."""
        return float(sum(getattr(facts, name) for facts in self.facts.values()))

    def table(self) -> Array:
        """(P, C): how many training examples each partition has of each class."""
        counts = np.zeros((len(self.facts), len(self.classes)), np.int64)
        for row, facts in zip(counts, self.facts.values(), strict=True):
            row[np.searchsorted(self.classes, facts.classes)] = facts.counts
        return counts


def survey(client: Any, blocks: Sequence[tuple[Any, Any, Any]], fraction: float | None, seed: int) -> Survey:
    """Have every partition checked on the cluster, where it stays, and compare what they hold.

    Args:
        client: of the cluster.
        blocks: delayed X, y and weight of each partition.
        fraction: of the examples to set aside for validation, or None.
        seed: of the fit.
    """
    from dask.delayed import delayed

    parts = client.compute([delayed(make_part)(i, *block, fraction, seed) for i, block in enumerate(blocks)])
    facts = dict(enumerate(client.gather([client.submit(describe, part, pure=False) for part in parts])))
    d = _common_width(facts)
    used = {i: fact for i, fact in facts.items() if fact.training}
    if not used:
        raise ValueError(f"none of the {len(facts)} partitions holds an example that has weight")
    if fraction is not None and not any(fact.validation for fact in used.values()):
        raise ValueError("early_stopping finds no partition large enough to set examples aside; make larger ones")
    found = Survey({i: parts[i] for i in used}, used, d, _all_classes(used))
    _check_mixture(found.table())
    return found


def sortedness(table: Array) -> float:
    """How far labels depend on the partition: 0 if not at all, 1 if each label has its own partitions.

    Cramér's V of a table (P, C) of counts, less what chance alone would give (Bergsma 2013): so many small partitions
    do not count as sorted.

    Examples:
        >>> sortedness(np.array([[50, 50], [20, 20]])), sortedness(np.array([[50, 0], [0, 20]])) > 0.98
        (0.0, True)
        >>> sortedness(np.eye(2, dtype=int)[[0, 1, 0, 1]])  # four partitions of one example
        0.0
    """
    table = table[:, table.sum(axis=0) > 0]
    n, (partitions, classes) = int(table.sum()), table.shape
    if min(partitions, classes) < 2:
        return 0.0
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / n
    spread = float(((table - expected) ** 2 / expected).sum()) / n
    by_chance = (partitions - 1) * (classes - 1) / (n - 1)
    return math.sqrt(max(0.0, spread - by_chance) / (min(partitions, classes) - 1))


def at_home(client: Any, task: Callable[..., Any], partitions: dict[int, Future], *arguments: Any) -> dict[int, Future]:
    """task(partition, *arguments) for each partition, by the worker that holds it; if that one is gone, by any.

    Left to itself, Dask copies small partitions to idle workers, until one of them holds all. Only tasks that need what
    a worker holds may be sent so: one that needs nothing would wait for ever if its worker were the last to die, since
    Dask does not offer it to workers that come later.
    """
    from distributed import wait

    wait(list(partitions.values()))  # before, nobody holds it
    holders = client.who_has(list(partitions.values()))
    return {
        number: client.submit(task, future, *arguments, pure=False, **_preferring(holders.get(future.key, ())))
        for number, future in partitions.items()
    }


def _preferring(workers: Sequence[str]) -> dict[str, Any]:
    return {"workers": list(workers)[:1], "allow_other_workers": True} if workers else {}


def _check_mixture(table: Array) -> None:
    """Local epochs learn what the labels of their partition are; the mean of such iterates knows little else."""
    found = sortedness(table)
    what = f"the labels depend on the partition (Cramer's V {found:.2f}, 0 if mixed, 1 if sorted)"
    if found > HOPELESS:
        raise ValueError(f"{what}, so the average of local epochs would be a poor model; {REMEDY}")
    if found > SUSPICIOUS:
        warnings.warn(f"{what}, which costs accuracy; {REMEDY}", UserWarning, stacklevel=6)


def _common_width(facts: dict[int, Facts]) -> int:
    widths: dict[int, int] = {}
    for number, fact in facts.items():
        widths.setdefault(fact.d, number)
    if len(widths) > 1:
        found = ", ".join(f"{d} in partition {number}" for d, number in widths.items())
        raise ValueError(f"partitions differ in their number of features: {found}; make all blocks of X equally wide")
    return next(iter(widths))


def _all_classes(facts: dict[int, Facts]) -> Array:
    """The classes of all partitions, each of which may lack some."""
    kinds: dict[bool, int] = {}
    for number, fact in facts.items():
        kinds.setdefault(fact.classes.dtype.kind in "biuf", number)
    if len(kinds) > 1:
        raise ValueError(
            f"the labels of partition {kinds[True]} are numbers and those of partition {kinds[False]} are not; "
            "give all partitions labels of one kind"
        )
    return np.unique(np.concatenate([fact.classes for fact in facts.values()]))
