"""Does a claim hold? The answer comes from the interval over the seeds, and may be that nobody can tell."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from evodrop.experiments.claims.intervals import Interval
from evodrop.experiments.claims.statements import METRICS, Claim, Metric, claims_of
from evodrop.experiments.claims.summaries import Summary, Target, summarise
from evodrop.experiments.curves import Curve
from evodrop.experiments.figures.panels import Panel
from evodrop.experiments.store import write_whole

__all__ = [
    "VERDICTS",
    "VERDICTS_FILE",
    "Judgement",
    "check",
    "judge",
    "judge_panel",
    "loss_in_words",
    "read_verdicts",
    "write_verdicts",
]

HOLDS, FAILS, OPEN, UNMEASURED = VERDICTS = ("holds", "does not hold", "inconclusive", "not measured")
VERDICTS_FILE = "verdicts.json"  # in the folder of a panel
TAIL = 0.025  # what a 95% interval leaves out on either side


class Judgement(NamedTuple):
    """A verdict and what it rests on, in words; beside it what the same measure says of contenders that we added."""

    claim: Claim
    verdict: str
    measured: str
    beside: tuple[tuple[str, str], ...] = ()  # label and words


def judge_panel(panel: Panel, curves: Mapping[str, Sequence[Curve]]) -> list[Judgement]:
    """The verdicts on all claims that a panel can tell about, from the curves of each label."""
    judgements = []
    for claim in claims_of(panel.id):
        against = claim.against or panel.baseline
        rows = {row.label: row for row in summarise(curves, against)}
        judgement = judge(claim, rows.get(claim.method or panel.challenger), rows.get(against))
        if claim.against is None:
            added = [rows[item.label] for item in panel.contenders if item.added and item.label in rows]
            beside = tuple((row.label, judge(claim, row, rows.get(against)).measured) for row in added)
            judgement = judgement._replace(beside=beside)
        judgements.append(judgement)
    return judgements


def judge(claim: Claim, challenger: Summary | None, baseline: Summary | None) -> Judgement:
    """The verdict on one claim.

    It holds, or does not, if the whole 95% interval says so. One seed has no interval, so it decides nothing; nor does
    a run that is not finished or has diverged. "Faster" is less error on average over the run: every run has that
    number, so a few seeds can tell. A claim that counts iterations needs a target, and one that the challenger reaches
    in no seed is not reached faster, if there are enough seeds: were it reached as often as not, n of n misses would
    have a chance of 2^-n, and six seeds bring it below 2.5%.
    """
    if challenger is None or baseline is None:
        return Judgement(claim, UNMEASURED, "nothing was measured")
    unfinished = challenger.unfinished + baseline.unfinished
    if unfinished:
        return Judgement(claim, OPEN, f"{unfinished} runs are not finished")
    metric = METRICS[claim.metric]
    if metric.target is not None and (missed := _missed(claim, metric, metric.target(challenger))):
        return missed
    change = metric.change(challenger)
    return Judgement(claim, _verdict(claim, change), _in_words(metric, change))


def _missed(claim: Claim, metric: Metric, target: Target) -> Judgement | None:
    """The judgement if there are seeds that never came to the target."""
    if target.reached == target.asked:
        return None
    never = target.reached == 0 and 2.0**-target.asked <= TAIL
    words = f"{metric.words}: reached in {target.reached} of {target.asked} seeds"
    return Judgement(claim, FAILS if never else OPEN, words)


def _verdict(claim: Claim, change: Interval) -> str:
    if change.low is None or change.high is None:
        return OPEN
    if claim.within is None:
        return HOLDS if change.high < claim.below else FAILS if change.low >= claim.below else OPEN
    inside = -claim.within <= change.low and change.high <= claim.within
    outside = change.low > claim.within or change.high < -claim.within
    return HOLDS if inside else FAILS if outside else OPEN


def _in_words(metric: Metric, change: Interval) -> str:
    if change.mean is None:
        why = "a run diverged, or the baseline's is 0" if change.n else "no seed was run with both"
        return f"{metric.words}: unknown, since {why}"
    mean = f"{metric.words}: {100 * change.mean:+.1f}{metric.unit}"
    if change.low is None or change.high is None:
        return f"{mean} in one seed, which has no interval"
    return f"{mean} (95% interval {100 * change.low:+.1f} to {100 * change.high:+.1f}, {change.n} seeds)"


def check(judgements: Iterable[Judgement], committed: Mapping[str, str]) -> list[Judgement]:
    """The judgements that go back on what the repository's results support: it held there, and here it does not.

    An inconclusive verdict goes back on it too. What was not measured, here or there, says nothing.

    Args:
        judgements: on the runs at hand.
        committed: verdicts by the claims' ids, see :func:`read_verdicts`.
    """
    return [
        judgement
        for judgement in judgements
        if committed.get(judgement.claim.id) == HOLDS and judgement.verdict not in (HOLDS, UNMEASURED)
    ]


def loss_in_words(judgement: Judgement) -> str:
    """One line on a judgement that :func:`check` has found: failing is more than not being known."""
    lost = "no longer holds" if judgement.verdict == FAILS else "can no longer be confirmed"
    return f"{lost}: {judgement.claim.words} Now: {judgement.verdict}; {judgement.measured}"


def write_verdicts(judgements: Iterable[Judgement], path: str | os.PathLike[str]) -> None:
    """Keep verdicts as JSON, for :func:`read_verdicts`."""
    kept = {item.claim.id: {"verdict": item.verdict, "measured": item.measured} for item in judgements}
    write_whole(Path(path), json.dumps(kept, indent=2).encode() + b"\n", shared=True)


def read_verdicts(path: str | os.PathLike[str]) -> dict[str, str]:
    """The verdicts in a file of :func:`write_verdicts`, by the claims' ids."""
    try:
        kept = json.loads(Path(path).read_bytes())
        verdicts = {str(name): entry["verdict"] for name, entry in kept.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} holds no verdicts: {type(error).__name__}; write it anew") from error
    for name, verdict in verdicts.items():
        if verdict not in VERDICTS:
            raise ValueError(f"{path}: the verdict on {name!r} is {verdict!r:.80}, but it is one of {VERDICTS}")
    return verdicts
