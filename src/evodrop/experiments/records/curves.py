"""The records of a run as arrays. Records come from outside, so every number is checked before it is believed."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from evodrop.experiments.records.folder import RECORDS, RecordsError, read_records, seconds_per_iteration
from evodrop.experiments.records.record import DIVERGED, RUNNING, STATUSES, LayerStatistics

__all__ = ["Curve", "Floats", "read_curve", "read_curves", "run_folders"]

Floats = npt.NDArray[np.float64]
WORDS = ("dataset", "network", "method", "match")
LARGEST = 2.0**53  # an iteration beyond it would not be exact
HUGE = sys.float_info.max


@dataclass(frozen=True, eq=False)
class Curve:
    """What a run measured on its way. Errors are fractions, and nan where the run could not tell."""

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
    seconds: float | None  # per iteration, by the clock
    cpu_seconds: float | None  # per iteration, of the processor; None in early runs
    header: Mapping[str, Any]  # run, data, environment, git

    @property
    def origin(self) -> str:
        """What the data are, in a few words, if they are not those that were published."""
        return str(self.header.get("data", "")).partition(", ")[2]

    @property
    def diverged(self) -> bool:
        return self.status == DIVERGED


def read_curves(folders: Iterable[str | os.PathLike[str]]) -> list[Curve]:
    """The curves of all runs in some folders, each the folder of a run or a folder of such folders.

    A run that has no record yet has no curve.
    """
    curves = (read_curve(folder) for folder in run_folders(folders))
    return [curve for curve in curves if len(curve.iterations)]


def run_folders(folders: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """The folders of runs among and directly within these, each once, in the order of their names."""
    found: dict[Path, Path] = {}
    for folder in map(Path, folders):
        inner = (
            [folder] if (folder / RECORDS).is_file() else sorted(path.parent for path in folder.glob(f"*/{RECORDS}"))
        )
        if not inner:
            raise RecordsError(f"there is no run in {str(folder)!r}: neither it nor a folder in it holds {RECORDS}")
        found |= {path.resolve(): path for path in inner}
    return list(found.values())


def read_curve(folder: str | os.PathLike[str]) -> Curve:
    """The curve of one run, finished or not; a record that makes no sense is a RecordsError that names it."""
    header, records = read_records(folder)
    run = header["run"]
    if not isinstance(run, Mapping):
        raise RecordsError(f"{folder}: the header's run is {run!r:.80}, but it is an object with named fields")
    where = str(folder)
    iterations = [_number(where, record, "iteration", 0.0, LARGEST) for record in records]
    if any(late <= early for early, late in pairwise(iterations)):
        raise RecordsError(f"{where}: the iterations of its records do not ascend; restore the file, or leave it out")
    return Curve(
        folder=Path(folder),
        **{name: _word(where, run, name) for name in WORDS},
        rate=_number(where, run, "rate", 0.0, 1.0),
        seed=int(_number(where, run, "seed", 0.0, 2.0**63)),
        lr=_number(where, run, "lr", 0.0, math.inf),
        epochs=int(_number(where, run, "epochs", 0.0, LARGEST)),
        status=_status(where, records),
        iterations=np.array(iterations, np.float64),
        noisy=_errors(where, records, "noisy_error"),
        clean=_errors(where, records, "clean_error"),
        test=_errors(where, records, "test_error"),
        layers=tuple(_layers(where, record) for record in records),
        seconds=_seconds(where),
        cpu_seconds=_seconds(where, cpu=True),
        header=header,
    )


def _word(where: str, run: Mapping[str, Any], name: str) -> str:
    word = run.get(name, "draws" if name == "match" else None)
    if not isinstance(word, str):
        raise RecordsError(f"{where}: the {name} of its run is {word!r:.80}, but it is a name")
    return word


def _number(where: str, line: Mapping[str, Any], name: str, least: float, most: float) -> float:
    value = line.get(name)
    if not (isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= min(most, HUGE)):
        raise RecordsError(f"{where}: {name} is {value!r:.80}, but it is a finite number from {least:g} to {most:g}")
    return float(value)


def _errors(where: str, records: list[dict[str, Any]], name: str) -> Floats:
    errors = [math.nan if record.get(name) is None else _number(where, record, name, 0.0, 1.0) for record in records]
    return np.array(errors, np.float64)


def _status(where: str, records: list[dict[str, Any]]) -> str:
    status = records[-1].get("status", RUNNING) if records else RUNNING
    if status not in STATUSES:
        raise RecordsError(f"{where}: status is {status!r:.80}, but it is one of {', '.join(STATUSES)}")
    return str(status)


def _layers(where: str, record: Mapping[str, Any]) -> tuple[LayerStatistics, ...]:
    layers = record.get("layers", [])
    if not (isinstance(layers, list) and all(isinstance(layer, dict) for layer in layers)):
        raise RecordsError(f"{where}: layers are {layers!r:.80}, but they are a list of objects")
    return tuple(_layer(where, layer) for layer in layers)


def _layer(where: str, layer: dict[str, Any]) -> LayerStatistics:
    probs = layer.get("probs")
    if not isinstance(probs, list):
        raise RecordsError(f"{where}: probs of a layer are {probs!r:.80}, but they are a list of quantiles")
    return {
        "name": _word(where, layer, "name"),
        "units": int(_number(where, layer, "units", 1.0, LARGEST)),
        "dead": int(_number(where, layer, "dead", 0.0, LARGEST)),
        "effective": _number(where, layer, "effective", 0.0, LARGEST),
        "kept": None if layer.get("kept", "") is None else _number(where, layer, "kept", 0.0, LARGEST),
        "noise": None if layer.get("noise") is None else _number(where, layer, "noise", 0.0, math.inf),
        "probs": [_number(where, {"probs": prob}, "probs", 0.0, 1.0) for prob in probs],
    }


def _seconds(where: str, cpu: bool = False) -> float | None:
    try:
        seconds = seconds_per_iteration(where, cpu)
    except (TypeError, ValueError) as error:
        raise RecordsError(f"{where}: its timings cannot be read: {error}") from error
    return seconds if seconds is not None and math.isfinite(seconds) else None
