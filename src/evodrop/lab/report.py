"""What was found, in sentences and in the cells of tables: worded once, for the terminal and for the report.

The report is one page that opens in any browser without a network. TensorBoard's event files are made here too.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from evodrop.lab.curves import Curve
from evodrop.lab.data import DATASETS
from evodrop.lab.figures import ERRORS, TITLES, interactive, series
from evodrop.lab.methods import plain_name
from evodrop.lab.panels import CHOICES, counted
from evodrop.lab.run import DIVERGED, RUNNING
from evodrop.lab.summary import Interval, Summary, final_error
from evodrop.lab.verdicts import FAILS, HOLDS, OPEN, UNMEASURED, Outcome

NAME = "report.html"
EVENTS = "events.out.tfevents.*"
NO_BREAK = "\N{NO-BREAK SPACE}"  # a cell may be parted at its other spaces only
UNKNOWN = "-"
RANKED = "The least test error comes first; where intervals overlap, the order may be chance."
COLUMNS = ("method", "test error", "change", "time per step", "to training target", "to test target", "step")
WORDS = ("method", "claim", "verdict", "measured")  # columns of words, which wrap; numbers stay in one piece
NARROWEST = 120  # columns of a file or a pipe
FEW = 4  # names in a sentence
VERBS = {
    HOLDS: ("holds", "hold"),
    FAILS: ("does not hold", "do not hold"),
    OPEN: ("is inconclusive", "are inconclusive"),
    UNMEASURED: ("was not measured", "were not measured"),
}


def sentences(outcome: Outcome) -> list[str]:
    """The verdict: which methods differ from the baseline by more than chance, and by how much.

    At most three sentences, and for a panel one on its claims. A method differs if the 95% interval of its test error
    less the baseline's, seed by seed, leaves out 0.
    """
    rows = {row.label: row for row in outcome.ranking}
    numbers = sorted({len(row.seeds) for row in rows.values()})
    seeds = f"{numbers[0]} to {numbers[-1]} seeds each" if len(numbers) > 1 else f"{counted(numbers[0], 'seed')} each"
    ran, baseline = f"on {outcome.runs[0].dataset}, {seeds}.", rows.pop(outcome.baseline or "", None)
    if baseline is None or not rows:
        said = [
            f"{counted(len(outcome.summaries), 'method')} ran {ran} There is nothing to compare with standard dropout."
        ]
    else:
        reference = _prose(baseline.label).replace("standard", "standard dropout")
        were = "was" if len(rows) == 1 else "were"
        said = [f"{counted(len(rows), 'method')} {were} compared with {reference} {ran}"]
        said += _differences(list(rows.values()), baseline)
    if outcome.verdicts:
        counts = Counter(item.verdict for item in outcome.verdicts)
        became = [f"{counts[name]} {verbs[counts[name] > 1]}" for name, verbs in VERBS.items() if counts[name]]
        asked = _claims_title(outcome).removeprefix("claims ")
        said.append(f"Of {counted(len(outcome.verdicts), 'claim')} {asked}, {_and(became)}.")
    return said


def _differences(rows: Sequence[Summary], baseline: Summary) -> list[str]:
    """One sentence on the methods that differ from the baseline, and one on all others."""
    apart, alike, unjudged = list[str](), list[str](), dict[str, list[str]]()
    for row in rows:
        mean, low, high = row.test_difference
        label = _prose(row.label)
        if row.unfinished or baseline.unfinished:
            unjudged.setdefault("unfinished", []).append(label)
        elif math.isnan(low):
            why = DIVERGED if row.diverged or baseline.diverged else "fewer than two seeds"
            unjudged.setdefault(why, []).append(label)
        elif low <= 0 <= high:
            alike.append(label)
        else:
            way, near, far = ("lower", -high, -low) if mean < 0 else ("higher", low, high)
            begin, level = (f"that of {label}", "") if apart else (f"the test error of {label} is", "95% interval ")
            apart.append(f"{begin} {100 * abs(mean):.2f} points {way} ({level}{100 * near:.2f} to {100 * far:.2f})")
    if len(alike) == len(rows):
        return ["No method's test error differs from it by more than chance."]
    names = _and(alike) if len(alike) <= FEW else f"the other {len(alike)} methods"
    rest = [f"the test error of {names} does not differ by more than chance"] if alike else []
    rest += [f"not judged ({why}): {_and(labels)}" for why, labels in unjudged.items()]
    parts = [f"by more than chance, {_and(apart)}"] if apart else []
    parts += ["; ".join(rest)] if rest else []
    return [f"{part[0].upper()}{part[1:]}." for part in parts]


def _prose(label: str) -> str:
    """A label as words of a sentence, which has commas of its own."""
    return ("no dropout" + label[4:] if label.startswith("none") else label).replace(", ", " with ", 1)


def _and(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def cells(outcome: Outcome) -> list[dict[str, str]]:
    """The rows of an outcome's table, by column: in the order of the methods, or if these are many, by test error."""
    rows = []
    for row in outcome.ranking if outcome.is_ranked else outcome.summaries:
        is_baseline, counts = row.label == outcome.baseline, {DIVERGED: row.diverged, "unfinished": row.unfinished}
        states = [f"{count}{NO_BREAK}{state}" for state, count in counts.items() if count]
        rows.append(
            {
                "method": row.label,
                "step": f"{row.lr:g}",
                "test error": _error(row.test_error, row),
                "change": "baseline" if is_baseline else _change(row.test_change),
                "training error": _error(row.training_error, row),
                "to training target": _target(row, "to_training", is_baseline),
                "to test target": _target(row, "to_test", is_baseline),
                "time per step": UNKNOWN if row.seconds is None else duration(row.seconds).replace(" ", NO_BREAK),
                "runs": ", ".join([counted(len(row.seeds), "seed").replace(" ", NO_BREAK), *states]),
            }
        )
    return rows


def rate_cells(outcome: Outcome) -> list[dict[str, str]]:
    """The validation error of each rate that was tried, a row for each method."""
    rates = sorted({trial.rate for trials in outcome.rates.values() for trial in trials})
    rows = []
    for method, trials in outcome.rates.items():
        errors = {trial.rate: final_error(trial) for trial in trials}
        cells = {f"rate {rate:g}": percent(errors.get(rate, math.nan)) for rate in rates}
        rows.append({"method": plain_name(method)} | cells | {"chosen": f"{trials[0].rate:g}"})
    return rows


def _rate_in_words(method: str, trials: Sequence[Curve]) -> str:
    """How the rate of a method was chosen, among runs whose best comes first."""
    best, rates = trials[0], [trial.rate for trial in trials]
    error = final_error(best)
    found = "all of them diverged" if math.isnan(error) else f"validation error {percent(error)}"
    edge = ", at the edge" if len(rates) > 2 and best.rate in (min(rates), max(rates)) else ""
    length = f"for {counted(best.epochs, 'epoch')} with one seed"
    return f"rate of {method}: {best.rate:g}{edge}, of {len(rates)} tried {length}; {found}"


def _error(error: Interval, row: Summary) -> str:
    mean, low, high = error
    if math.isnan(mean) and row.diverged:
        return DIVERGED if row.diverged == len(row.seeds) else f"{row.diverged} of {len(row.seeds)} {DIVERGED}"
    return percent(mean) + ("" if math.isnan(high) else f"{NO_BREAK}±{NO_BREAK}{100 * (high - low) / 2:.2f}")


def _change(change: Interval) -> str:
    mean, low, high = change
    ends = "" if math.isnan(low) else f" ({100 * low:+.1f}{NO_BREAK}to{NO_BREAK}{100 * high:+.1f})"
    return UNKNOWN if math.isnan(mean) else f"{100 * mean:+.1f}%{ends}"


def _target(row: Summary, metric: str, is_baseline: bool) -> str:
    iterations, reached, asked = row.targets[metric]
    if asked == 0:
        return UNKNOWN
    if math.isnan(iterations):
        return f"{reached} of {asked} reach it".replace(" ", NO_BREAK)
    never = f", {asked - reached}{NO_BREAK}of{NO_BREAK}{asked}{NO_BREAK}never" if reached < asked else ""
    change = "" if is_baseline else f",{NO_BREAK}{_change(getattr(row, metric))}{never}"
    return f"{iterations:,.0f}{change}"


def percent(error: float) -> str:
    """An error, in percent."""
    return UNKNOWN if math.isnan(error) else f"{100 * error:.2f}%"


def duration(seconds: float) -> str:
    """A short time in the unit that suits it."""
    scale, unit = (1.0, "s") if seconds >= 1 else (1e3, "ms") if seconds >= 1e-3 else (1e6, "µs")
    return f"{seconds * scale:.3g} {unit}"


def legend(outcome: Outcome) -> str:
    """What the numbers of a table mean."""
    seeds = max(len(summary.seeds) for summary in outcome.summaries)
    parts = ["Errors: mean of the last records, up to five."]
    parts += [f"Means over {seeds} seeds; ± and brackets are 95% intervals." if seeds > 1 else "One seed: no interval."]
    if outcome.baseline is not None:
        parts += [f"Changes are relative to {outcome.baseline}, seed by seed."]
        parts += [f"Targets: {outcome.clock} until its training error on clean data, and its test error, at its end;"]
        parts += ["a run that never reaches one counts with its whole length."]
    parts += ["Time per step: CPU time."]
    return " ".join([*parts, RANKED] if outcome.is_ranked else parts)


def limits(outcome: Outcome) -> list[tuple[str, str]]:
    """What was cut short, tuned too narrowly or is not done yet: what kind of limit, and the words on it."""
    unfinished = sum(run.status == RUNNING for run in outcome.runs)
    return [
        *(("shorter than the protocol", words) for words in outcome.shortened),
        *(("at the edge of the grid", words) for words in outcome.edges),
        *([("not finished", f"{unfinished} of {counted(len(outcome.runs), 'run')}")] if unfinished else []),
    ]


def _claims_title(outcome: Outcome) -> str:
    in_paper = all(item.claim.in_paper for item in outcome.verdicts)
    return "claims of the paper" if in_paper else "claims of the paper, asked of other data"


def show(outcomes: Sequence[Outcome], console: Console | None = None) -> None:
    """Print the verdict on each outcome, its table, the claims, and what limits them."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, NARROWEST)
    for outcome in outcomes:
        console.print(Text(f"{' '.join(sentences(outcome))}\n"))
        console.print(_table(outcome.title, cells(outcome), COLUMNS, console.width))
        console.print(Text(f"{legend(outcome)}\n"))
        if outcome.verdicts:
            rows = [item._asdict() | {"claim": item.claim.words} for item in outcome.verdicts]
            console.print(_table(_claims_title(outcome), rows, ("claim", "verdict", "measured"), console.width))
        for method, trials in outcome.rates.items():
            console.print(Text(_rate_in_words(plain_name(method), trials)))
        for kind, words in limits(outcome):
            console.print(Text(f"{kind}: {words}"))


def _table(title: str, rows: Sequence[Mapping[str, str]], names: Sequence[str], room: int) -> Table:
    """A table of the first columns, as many as there is room for: no number is ever cut, and the report has all."""
    table, columns = Table(title=Text(title)), list[list[str]]()
    for name in names:
        column = [text if name in WORDS else text.replace(" ", "\n") for text in (name, *(row[name] for row in rows))]
        width = max(len(part) for text in column for part in text.replace("\n", " ").split(" "))
        room -= width + 3
        if room < 1 and columns:
            break
        look: dict[str, Any] = {} if name in WORDS else {"no_wrap": True, "justify": "right"}
        table.add_column(column[0], min_width=width, **look)
        columns.append(column[1:])
    for row in zip(*columns, strict=True):
        table.add_row(*map(Text, row))
    return table


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
        **{tool.__name__: tool for tool in (sentences, limits, cells, legend, rate_cells, counted)},
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
