"""What came out of an experiment: runs on one data set, grouped, summed up and judged.

Does a claim hold? The answer comes from the interval over the seeds, and may be that it is open.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from evodrop.lab.claims import CLAIMS, METRICS, Claim
from evodrop.lab.curves import Curve
from evodrop.lab.data import VALIDATION
from evodrop.lab.methods import LINEAR, PROPOSED, find_method, methods_of, plain_name
from evodrop.lab.panels import Key, Panel, Variant, key_of
from evodrop.lab.store import write_whole
from evodrop.lab.summary import Summary, final_curves, final_error, summarise, tuning_curves

HOLDS, FAILS, OPEN, UNMEASURED = ANSWERS = ("holds", "does not hold", "inconclusive", "not measured")
MATCHED = {"draws": "", "distinct": ", matched units", "noise": ", matched noise"}
MANY = 9  # variants: from so many on the best come first, since nobody finds them in another order


class Verdict(NamedTuple):
    """A verdict and what it rests on, in words; beside it what the same measure says of variants that we added."""

    claim: Claim
    verdict: str
    measured: str
    beside: tuple[tuple[str, str], ...] = ()  # label and words


@dataclass(frozen=True, eq=False)
class Outcome:
    """The results on one data set."""

    title: str
    panel: Panel | None  # of the paper, if the runs are those of one
    variants: tuple[Variant, ...]  # in the order of the table
    runs: tuple[Curve, ...]  # all of them, tuning of steps included
    curves: dict[str, list[Curve]]  # for each label those that count, one per seed
    baseline: str | None  # label of the variant that the others are measured against, if there is one
    summaries: list[Summary]
    verdicts: list[Verdict]  # on the claims of the panel
    shortened: tuple[str, ...]  # what is less than the panel's protocol, in words
    edges: tuple[str, ...]  # whose step size is at the edge of those tried, in words: a better one may lie beyond
    rates: dict[str, list[Curve]]  # the short runs that tried rates for each method, see rates_tried

    @property
    def challenger(self) -> str | None:
        """Label of the paper's proposal, if there is one."""
        if self.panel is not None:
            return self.panel.challenger
        return next((variant.label for variant in self.variants if variant.method in PROPOSED), None)

    @property
    def is_ranked(self) -> bool:
        """Whether the best come first; a panel keeps the order of the paper."""
        return self.panel is None and len(self.summaries) >= MANY

    @property
    def ranking(self) -> list[Summary]:
        """The summaries, the least test error first and those without one last."""
        return sorted(self.summaries, key=lambda row: (math.isnan(row.test_error[0]), row.test_error[0]))

    @property
    def clock(self) -> str:
        """What the runs count: a linear model takes one example at a time."""
        return "examples seen" if all(run.network == LINEAR for run in self.runs) else "iterations"


def outcomes_of(curves: Iterable[Curve], panel: Panel | None = None) -> list[Outcome]:
    """The outcome on each data set, by name. Runs on the data of the panel belong to it; "validation:" chose rates."""
    by_dataset: dict[str, list[Curve]] = {}
    for curve in curves:
        by_dataset.setdefault(curve.dataset, []).append(curve)
    trials = {name: by_dataset.pop(name) for name in list(by_dataset) if name.startswith(VALIDATION)}
    outcomes = []
    for name, runs in sorted(by_dataset.items()):
        own = panel if panel is not None and panel.dataset == name else None
        outcomes.append(_outcome(runs, own, trials.get(VALIDATION + name, [])))
    return outcomes


def _outcome(runs: Sequence[Curve], panel: Panel | None, trials: Sequence[Curve]) -> Outcome:
    variants = variants_of(runs, () if panel is None else panel.variants)
    curves = {variant.label: final_curves(own) for variant, own in variants.items()}
    tuning = {variant.label: tuning_curves(own) for variant, own in variants.items()}
    if panel is None:  # standard dropout, if there is one and only one
        standard = [variant.label for variant in variants if variant.method == "standard"]
        baseline = standard[0] if len(standard) == 1 else None
    else:
        baseline = panel.baseline if panel.baseline in curves else None
    summaries, shortened, edges = summarise(curves, baseline), list[str](), list[str]()
    for row in summaries:
        steps = sorted({curve.lr for curve in tuning[row.label]})
        if len(steps) > 1 and row.lr in (steps[0], steps[-1]):
            which, beyond = ("smallest", "smaller") if row.lr == steps[0] else ("largest", "larger")
            edges.append(
                f"{row.label}: step {row.lr:g} is the {which} of {len(steps)} tried; a {beyond} one may be faster"
            )
    if panel is not None:  # by what the variant with the least of each has
        tried = min((sorted({curve.lr for curve in own}) for own in tuning.values()), key=len)
        shortened = panel.shortened(
            epochs=min(curve.epochs for own in curves.values() for curve in own),
            seeds=min((len(curves[item.label]) for item in variants if not item.added), default=panel.seeds),
            grid=tried,
            tuning_epochs=min(own[0].epochs for own in tuning.values()),
        )
        missing = [variant.label for variant in panel.variants if variant not in variants]
        shortened += [f"not run: {', '.join(missing)}"] if missing else []
    origins = dict.fromkeys(run.origin for run in runs if run.origin)
    return Outcome(
        title=", ".join([f"dropout on {runs[0].dataset}" if panel is None else panel.title, *origins]),
        panel=panel,
        variants=tuple(variants),
        runs=tuple(runs),
        curves=curves,
        baseline=baseline,
        summaries=summaries,
        verdicts=[] if panel is None else judge_panel(panel, curves),
        shortened=tuple(shortened),
        edges=tuple(edges),
        rates=rates_tried(trials),
    )


def variants_of(curves: Iterable[Curve], known: Sequence[Variant] = ()) -> dict[Variant, list[Curve]]:
    """The runs of each variant: known variants in their order, then all others by the names of their methods."""
    own: dict[Key, list[Curve]] = {}
    for curve in curves:
        own.setdefault(key_of(curve), []).append(curve)
    found = {variant: own[key] for variant in known if (key := key_of(variant)) in own}
    rest = [key for key in own if key not in map(key_of, found)]
    order = {(key[0], method): at for key in rest for at, method in enumerate(methods_of(key[0]))}
    rest.sort(key=lambda key: (order.get(key[:2], len(order)), *key[1:], key[0]))
    several_networks = len({network for network, *_ in own}) > 1
    rates = {key: key[3] for key in own if (known_as := find_method(*key[:2])) is None or known_as.uses_rate}
    several_rates = len(set(rates.values())) > 1
    names = [plain_name(method) for method in dict.fromkeys(key[1] for key in own)]
    for key in rest:
        network, method, match, rate = key
        name = plain_name(method)
        label = (name if names.count(name) == 1 else method) + MATCHED.get(match, f", matched {match}")
        label += f", rate {rate:g}" if several_rates and key in rates else ""
        label += f" in {network}" if several_networks else ""
        found[Variant(label, network, method, match, rate)] = own[key]
    return found


def rates_tried(trials: Iterable[Curve]) -> dict[str, list[Curve]]:
    """The short runs that tried rates, method by method: the one of least error first, of equals the lower rate."""
    found: dict[str, list[Curve]] = {}
    for trial in trials:
        found.setdefault(trial.method, []).append(trial)

    def cost(trial: Curve) -> tuple[float, float]:
        error = final_error(trial)
        return math.inf if math.isnan(error) else error, trial.rate

    return {method: sorted(own, key=cost) for method, own in found.items()}


def judge_panel(panel: Panel, curves: Mapping[str, Sequence[Curve]]) -> list[Verdict]:
    """The verdicts on all claims about a panel, from the curves of each label."""
    verdicts = []
    for claim in (claim for claim in CLAIMS if claim.panel == panel.id):
        against = claim.against or panel.baseline
        rows = {row.label: row for row in summarise(curves, against)}
        verdict = judge(claim, rows.get(claim.method or panel.challenger), rows.get(against))
        if claim.against is None:
            added = [rows[variant.label] for variant in panel.variants if variant.added and variant.label in rows]
            beside = tuple((row.label, judge(claim, row, rows.get(against)).measured) for row in added)
            verdict = verdict._replace(beside=beside)
        verdicts.append(verdict)
    return verdicts


def judge(claim: Claim, challenger: Summary | None, baseline: Summary | None) -> Verdict:
    """The verdict on one claim.

    It holds, or does not, if the whole 95% interval says so. One seed has no interval, so it decides nothing; nor does
    a run that is not finished or has diverged. "Faster" is less error on average over the run, or fewer iterations to
    what the baseline has at its end: every run that did not diverge has both numbers.
    """
    if challenger is None or baseline is None:
        return Verdict(claim, UNMEASURED, "nothing was measured")
    if unfinished := challenger.unfinished + baseline.unfinished:
        return Verdict(claim, OPEN, f"{unfinished} {'run is' if unfinished == 1 else 'runs are'} not finished")
    _, low, high = getattr(challenger, claim.metric)
    words = f"{METRICS[claim.metric]}: {_in_words(challenger, claim.metric)}"
    _, reached, asked = challenger.targets.get(claim.metric, (math.nan, 0, 0))
    if reached < asked:
        words += f"; {asked - reached} of {asked} seeds never reached it"
    if claim.within is None:
        holds, fails = high < claim.below, low >= claim.below
    else:
        holds, fails = -claim.within <= low <= high <= claim.within, low > claim.within or high < -claim.within
    return Verdict(claim, HOLDS if holds else FAILS if fails else OPEN, words)  # an end that is nan decides nothing


def _in_words(row: Summary, metric: str) -> str:
    mean, low, high = getattr(row, metric)
    if math.isnan(mean):
        return f"unknown, since {'a run diverged, or the baseline is 0' if row.pairs else 'no seed was run with both'}"
    words = f"{100 * mean:+.1f}{' percentage points' if metric == 'test_difference' else '%'}"
    if row.pairs == 1:
        return f"{words} in one seed, which has no interval"
    return f"{words} (95% interval {100 * low:+.1f} to {100 * high:+.1f}, {row.pairs} seeds)"


def no_longer_held(verdicts: Iterable[Verdict], kept: Mapping[str, str]) -> list[str]:
    """In words, the claims that hold by kept verdicts, by id, and not by these. What was not measured says nothing."""
    words = []
    for item in verdicts:
        if kept.get(item.claim.id) == HOLDS and item.verdict not in (HOLDS, UNMEASURED):
            lost = "no longer holds" if item.verdict == FAILS else "can no longer be confirmed"
            words.append(f"{lost}: {item.claim.words} Now: {item.verdict}; {item.measured}")
    return words


def write_verdicts(outcomes: Sequence[Outcome], path: Path, command: str, panel: Panel | None) -> None:
    """Keep as JSON all of an experiment but its records: the command, the verdicts, and the headers of its runs."""
    verdicts = [item for outcome in outcomes for item in outcome.verdicts]
    headers: dict[str, Any] = {}
    for run in (run for outcome in outcomes for run in chain(outcome.runs, *outcome.rates.values())):
        header = {name: run.header.get(name) for name in ("data", "environment", "git")}
        headers.setdefault(json.dumps(header), header | {"runs": []})["runs"].append(run.folder.name)
    known = {
        "command": command,
        "panel": panel.id if panel else None,
        "verdicts": {item.claim.id: {"verdict": item.verdict, "measured": item.measured} for item in verdicts},
        "headers": list(headers.values()),
    }
    write_whole(path, json.dumps(known, indent=1).encode() + b"\n", shared=True)


def read_verdicts(path: Path) -> dict[str, str]:
    """The verdicts in a file of :func:`write_verdicts`, by the claims' ids."""
    try:
        kept = json.loads(path.read_bytes())["verdicts"]
        verdicts = {str(name): entry["verdict"] for name, entry in kept.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} holds no verdicts: {type(error).__name__}; write it again") from error
    for name, verdict in verdicts.items():
        if verdict not in ANSWERS:
            raise ValueError(f"{path}: the verdict on {name!r} is {verdict!r:.80}, but it is one of {ANSWERS}")
    return verdicts
