"""Keep an experiment in three files: its records, its verdicts with the headers of its runs, and its figure.

    python tools/keep.py FOLDER...    a folder of runs becomes results/NAME, NAME being its own name

``evodrop report results/NAME`` opens what is kept. ``runs.jsonl.gz`` has a line per record, for pandas or DuckDB.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from evodrop.lab.curves import Curve, read_curves
from evodrop.lab.experiment import read_description
from evodrop.lab.figures import draw
from evodrop.lab.panels import PANELS
from evodrop.lab.run import FINAL
from evodrop.lab.store import KEPT, VERDICTS, read_records, read_timings, write_whole
from evodrop.lab.verdicts import Outcome, outcomes_of, write_verdicts

RESULTS = Path(__file__).parents[1] / "results"
QUANTILES = 16  # of a layer's probabilities: early runs have more than any picture shows
DIGITS = 6


def keep(source: Path, target: Path) -> Outcome:
    """Write what is kept of a folder of runs; of a panel all finished runs count."""
    runs, command, name = read_description(source)
    panel = PANELS.get(name or source.name)
    curves = read_curves(runs)
    if panel is not None:
        curves = [curve for curve in curves if panel.owns(curve)]
    if open_runs := [curve.folder.name for curve in curves if curve.status not in FINAL]:
        raise SystemExit(f"{open_runs[0]} has not come to its end; keep {source} when all of its runs have")
    (outcome,) = outcomes_of(curves, panel)
    target.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for curve in curves for line in lines_of(curve))
    write_whole(target / KEPT, gzip.compress(text.encode(), mtime=0))
    write_verdicts([outcome], target / VERDICTS, command or commands_of(source), panel)
    (kept,) = outcomes_of(read_curves([target]), panel)
    renew_figure(target / "figure.png", partial(draw, kept), [target / KEPT])
    return kept


def lines_of(curve: Curve) -> Iterator[dict[str, Any]]:
    """A line for each record: its run, the fields of the run, what was measured, and the price of an iteration."""
    header, records = read_records(curve.folder)
    timings = [line for line in read_timings(curve.folder) if "steps" in line]
    seconds = {line["iteration"]: line.get("median_cpu_seconds") for line in timings}
    for record in records:
        layers = [layer | {"probs": thinned(layer["probs"])} for layer in record["layers"]]
        measured = record | {"lr_now": record["lr"], "layers": layers}
        price = {"cpu_seconds": seconds.get(record["iteration"])}
        yield {"run": curve.folder.name} | measured | header["run"] | price


def thinned(probs: list[float]) -> list[float]:
    if len(probs) <= QUANTILES:
        return probs
    return [float(f"{q:.{DIGITS}g}") for q in np.quantile(probs, np.linspace(0, 1, QUANTILES))]


def commands_of(source: Path) -> str:
    """The commands of runs that went through a queue."""
    queue = source.parent / "queue"
    lines = queue.read_text(encoding="utf-8").splitlines() if queue.is_file() else []
    own = [f"evodrop {line}" for line in lines if line.split()[:2] == ["reproduce", source.name]]
    return "\n".join(own) or f"evodrop reproduce {source.name}"


def renew_figure(path: Path, draw: Callable[[], Any], records: Sequence[Path], check: bool = False) -> bool:
    """Whether a picture was drawn from other records than these; then it is drawn again, unless only checked.

    It holds a digest of its records.
    """
    digest = "records " + hashlib.sha256(b"".join(path.read_bytes() for path in records)).hexdigest()[:16]
    if path.is_file() and digest.encode() in path.read_bytes():
        return False
    if check:
        print(f"{path} was drawn from other records")
    else:
        draw().savefig(path, dpi=110, metadata={"Software": None, "Description": digest})
    return True


def main() -> int:
    for folder in map(Path, sys.argv[1:]):
        outcome = keep(folder, RESULTS / folder.name)
        print(f"{folder.name}: {len(outcome.runs)} runs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
