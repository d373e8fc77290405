"""The report of a set of runs: one page that opens in any browser without a network, and TensorBoard's event files."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evodrop.lab import tables
from evodrop.lab.curves import Curve
from evodrop.lab.data import DATASETS
from evodrop.lab.figures import ERRORS, TITLES, interactive, series
from evodrop.lab.panels import CHOICES
from evodrop.lab.verdicts import Outcome

NAME = "report.html"
EVENTS = "events.out.tfevents.*"


def make_page(outcomes: Sequence[Outcome], command: str) -> str:
    """The page of outcomes, as HTML. Whatever comes from records is text in it."""
    if not outcomes:
        raise ValueError("there is nothing to report yet: none of the runs has a record")
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from plotly.offline import get_plotlyjs

    words = Environment(loader=PackageLoader("evodrop.lab"), autoescape=True, undefined=StrictUndefined)
    runs = [run for outcome in outcomes for run in outcome.runs]
    data = dict.fromkeys((run.dataset, str(run.header.get("data", ""))) for run in runs)
    return words.get_template(NAME).render(
        title=outcomes[0].title if len(outcomes) == 1 else f"dropout on {len(outcomes)} data sets",
        outcomes=[(outcome, _drawn(outcome, at)) for at, outcome in enumerate(outcomes)],
        tables=tables,
        plotly=get_plotlyjs(),
        command=command,
        data=[(name, DATASETS.get(name), digest) for name, digest in data],
        versions=Counter(f"{_listed(run, 'environment')}, {_listed(run, 'git')}".strip(", ") for run in runs),
        choices=CHOICES if any(outcome.panel for outcome in outcomes) else {},
        runs=[
            {"run": run.folder.name}
            | {name: getattr(run, name) for name in ("dataset", "method", "lr", "seed", "epochs", "status")}
            | {outcomes[0].clock: f"{run.iterations[-1]:,.0f}"}
            for run in runs
        ],
    )


def _drawn(outcome: Outcome, at: int) -> dict[str, list[dict[str, Any]]]:
    """For each layer its plots; those of no layer under an empty name."""
    groups: dict[str, list[dict[str, Any]]] = {"": []}
    for (layer, kind), lines in series(outcome).items():
        own = groups.setdefault(layer, [])
        number = list(groups).index(layer)
        drawn = interactive(kind, lines, f"{kind}-{at}-{number}", outcome)
        own.append({"kind": kind, "title": TITLES[kind], "lines": lines, "drawn": drawn})
    return groups


def _listed(run: Curve, part: str) -> str:
    """A part of a run's header in a line; what is false, as that nothing has changed, is left out."""
    found = run.header.get(part) or {}
    pairs = found.items() if isinstance(found, Mapping) else [(part, found)]
    return ", ".join(f"{name} {value}" for name, value in pairs if value)


def event_writer() -> Any:
    """TensorBoard's writer, or an error that says how to get it: ask before what takes long."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("event files need TensorBoard; install tensorboard") from error
    return SummaryWriter


def write_events(outcomes: Iterable[Outcome], folder: Path) -> Path:
    """Write the errors of all runs, tuning included, to ``folder/<run>``; return the folder.

    Event files that are there are replaced: TensorBoard would draw the curves of both.
    """
    make_writer = event_writer()
    for run in (run for outcome in outcomes for run in outcome.runs):
        own = folder / run.folder.resolve().name
        for old in own.glob(EVENTS):
            old.unlink()
        with make_writer(str(own)) as writer:
            for kind, tag in ERRORS.items():
                for iteration, value in zip(run.iterations, getattr(run, kind), strict=True):
                    if math.isfinite(value):
                        writer.add_scalar(tag, value, int(iteration))
    return folder
