"""The records of a run as arrays. Records come from outside, so every number is checked before it is believed."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from evodrop.lab.run import DIVERGED, RUNNING, STATUSES, LayerStatistics
from evodrop.lab.store import KEPT, RECORDS, RecordsError, read_kept, read_records, read_timings

Floats = npt.NDArray[np.float64]
LARGEST = 2.0**53  # an iteration beyond it would not be exact
HUGE = sys.float_info.max


@dataclass(frozen=True, eq=False)
class Curve:
    """What a run measured on its way. Errors are fractions, and nan where the run measured none."""

    folder: Path
    dataset: str
    network: str
    method: str
    match: str
    rate: float
    seed: int
    lr: float
    epochs: int
    status: str  # of the last record
    iterations: Floats  # (n,), ascending
    noisy: Floats  # (n,), training error with the noise on
    clean: Floats  # (n,), training error on clean data
    test: Floats  # (n,), test error
    layers: tuple[tuple[LayerStatistics, ...], ...]  # of each record; none for a linear model
    cpu_seconds: float | None  # per iteration, of the processor; None in early runs
    header: Mapping[str, Any]  # run, data, environment, git

    @property
    def origin(self) -> str:
        """What the data are, in a few words, if they are not those that were published."""
        return str(self.header.get("data", "")).partition(", ")[2]

    @property
    def diverged(self) -> bool:
        return self.status == DIVERGED


def read_curves(folders: Iterable[Path]) -> list[Curve]:
    """The curves of all runs in some folders, each once, in the order of their names.

    A folder is that of a run, or one of such folders, or of a kept experiment. A run without a record has no curve.
    """
    found: dict[Path, Curve] = {}
    for folder in folders:
        paths = [folder / RECORDS] if (folder / RECORDS).is_file() else sorted(folder.glob(f"*/{RECORDS}"))
        curves = [read_curve(path.parent) for path in paths]
        if (folder / KEPT).is_file():
            curves = [_curve(folder / name, *lines, lines[1]) for name, lines in read_kept(folder).items()] + curves
        elif not paths:
            raise RecordsError(
                f"there is no run in {str(folder)!r}: it holds no {KEPT}, and neither it nor a folder in it holds "
                f"{RECORDS}"
            )
        found |= {curve.folder.resolve(): curve for curve in curves}
    return [curve for curve in found.values() if len(curve.iterations)]


def read_curve(folder: Path) -> Curve:
    """The curve of one run, finished or not; a record that makes no sense is a RecordsError that names it."""
    timings = [line | {"cpu_seconds": line.get("median_cpu_seconds")} for line in read_timings(folder)]
    return _curve(folder, *read_records(folder), timings)


def _curve(folder: Path, header: Mapping[str, Any], records: Sequence[Any], timings: Sequence[Any]) -> Curve:
    run = {"match": "draws"} | _checked(folder, header, "run", dict, "an object with named fields")
    status = records[-1].get("status") if records else RUNNING
    if status not in STATUSES:
        raise RecordsError(f"{folder}: status is {status!r:.80}, but it is one of {', '.join(STATUSES)}")
    iterations = _column(folder, records, "iteration", 0.0, LARGEST)
    if not (np.diff(iterations) > 0).all():
        raise RecordsError(f"{folder}: the iterations of its records do not ascend; restore the file, or leave it out")
    timed = [line for line in timings if line.get("cpu_seconds") is not None]
    seconds = _column(f"{folder}: timings", timed, "cpu_seconds")
    return Curve(
        folder=folder,
        **{name: _checked(folder, run, name, str, "a word") for name in ("dataset", "network", "method", "match")},
        rate=_column(folder, [run], "rate", 0.0, 1.0).item(),
        seed=int(_column(folder, [run], "seed", 0.0, 2.0**63).item()),
        lr=_column(folder, [run], "lr").item(),
        epochs=int(_column(folder, [run], "epochs", 0.0, LARGEST).item()),
        status=status,
        iterations=iterations,
        noisy=_column(folder, records, "noisy_error", 0.0, 1.0, optional=True),
        clean=_column(folder, records, "clean_error", 0.0, 1.0, optional=True),
        test=_column(folder, records, "test_error", 0.0, 1.0, optional=True),
        layers=_checked_layers(folder, records),
        cpu_seconds=float(np.median(seconds)) if len(seconds) else None,
        header=header,
    )


def _column(
    where: Any, lines: Sequence[Any], name: str, low: float = 0.0, high: float = HUGE, *, optional: bool = False
) -> Floats:
    """One number of each line; nan where an optional one is missing."""
    values = [line.get(name) for line in lines]
    for value in values:
        if not (type(value) in (int, float) and low <= value <= high) and not (optional and value is None):
            raise RecordsError(f"{where}: {name} is {value!r:.80}, but it is a finite number from {low:g} to {high:g}")
    return np.array([math.nan if value is None else value for value in values], np.float64)


def _checked(where: Any, line: Mapping[str, Any], name: str, kind: type, rule: str) -> Any:
    """What a line holds under a name, if it is of this kind."""
    if not isinstance(line.get(name), kind):
        raise RecordsError(f"{where}: {name} is {line.get(name)!r:.80}, but it is {rule}")
    value = line[name]
    # JSON may hold half a character, which no page and no picture can show.
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


def _checked_layers(where: Any, records: Sequence[Any]) -> tuple[tuple[LayerStatistics, ...], ...]:
    found = [_checked(where, {"layers": []} | record, "layers", list, "a list of objects") for record in records]
    every = [_checked(where, {"layer": layer}, "layer", dict, "an object") for layers in found for layer in layers]
    for layer in every:
        _checked(where, layer, "name", str, "a word")
        _checked(where, layer, "probs", list, "a list of quantiles")
    for name, low in {"units": 1.0, "dead": 0.0, "effective": 0.0}.items():
        _column(where, every, name, low, LARGEST)
    for name in ("kept", "noise"):  # None where the law of a layer's noise is not known
        _column(where, every, name, optional=True)
    _column(where, [{"probs": prob} for layer in every for prob in layer["probs"]], "probs", 0.0, 1.0)
    return tuple(tuple({"kept": None, "noise": None} | layer for layer in layers) for layers in found)
