"""Each sentence of the paper's Section 5 that says something about results, as data.

The words are ours, and so is the reading where the paper gives no number: ``reading`` says what was made of it. A claim
is about one panel. Where the paper speaks of several data sets, there is a claim for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from evodrop.experiments.claims.intervals import Interval
from evodrop.experiments.claims.summaries import Summary, Target
from evodrop.experiments.figures.panels import OTHER_DATA, PAPER_GRID

__all__ = ["CLAIMS", "METRICS", "Claim", "Metric", "claims_of"]


class Metric(NamedTuple):
    """What is measured: in words, and where a summary has it."""

    words: str
    change: Callable[[Summary], Interval]
    target: Callable[[Summary], Target] | None = None
    unit: str = "%"


ELSEWHERE = "not in the paper: its Section 5.1 on other data"
METRICS = {
    "training speed": Metric("training error averaged over the run", lambda row: row.training_pace),
    "test speed": Metric("test error averaged over the run", lambda row: row.test_pace),
    "training iterations": Metric(
        "iterations to the baseline's mean training error over its last fifth of records",
        lambda row: row.to_late_training.change,
        lambda row: row.to_late_training,
    ),
    "test error": Metric("test error at the end", lambda row: row.test_change),
    "test difference": Metric(
        "difference of the test errors at the end", lambda row: row.test_difference, unit=" percentage points"
    ),
}


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One statement.

    Attributes:
        id: its name in files.
        panel: the panel that can tell.
        place: where the paper says it; "not in the paper" for the same claim on other data.
        words: what it says, in our words.
        metric: a key of :data:`METRICS`.
        below: the metric is less than this if the claim holds; negative is an improvement.
        within: or else, it is at most this far from 0.
        reading: how words without a number became a number.
        method, against: labels of what is measured, and against what; the panel's challenger and baseline by default.
    """

    id: str
    panel: str
    place: str
    words: str
    metric: str
    below: float = 0.0
    within: float | None = None
    reading: str = ""
    method: str | None = None
    against: str | None = None

    @property
    def in_paper(self) -> bool:
        """Whether the paper makes it, and not we on other data."""
        return self.place != ELSEWHERE


PACE = "Lowers the error faster: less error on average over the run."
FASTER = f"{PACE} 'Much faster' has no number in the paper; here any gain counts."
SHALLOW = (  # of Section 5.1 on each data set: metric, words and our reading
    ("training speed", "lowers the training error much faster", FASTER),
    ("test speed", "lowers the test error much faster", FASTER),
    ("test error", "ends with a smaller test error", ""),
)


def _shallow() -> Iterator[Claim]:
    papers = {"real-sim": "real-sim", "news20": "news20", "rcv1": "RCV1"}
    by_papers_grid = {f"{dataset}-{PAPER_GRID}": name for dataset, name in OTHER_DATA.items()}
    for dataset, name in {**papers, **OTHER_DATA, **by_papers_grid}.items():
        place = "Section 5.1" if dataset in papers else ELSEWHERE
        for metric, words, reading in SHALLOW:
            panel, said = f"fig1-{dataset}", f"On {name}, data-dependent dropout {words} than standard dropout."
            name_in_files = f"{panel}-{metric.replace(' ', '-')}"
            yield Claim(id=name_in_files, panel=panel, place=place, words=said, metric=metric, reading=reading)


def _deep() -> Iterator[Claim]:
    for dataset, name in {"mnist": "MNIST", "svhn": "SVHN", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}.items():
        for kind in ("training", "test"):
            yield Claim(
                id=f"fig2-{dataset}-{kind}-speed",
                panel=f"fig2-{dataset}",
                place="Section 5.2",
                words=f"On {name}, the {kind} error falls faster with evolutional dropout than with standard dropout.",
                metric=f"{kind} speed",
                reading=f"{PACE} 'Generally faster' is asked of each data set alone.",
            )


CLAIMS = (
    *_shallow(),
    *_deep(),
    Claim(
        id="fig2-svhn-overlap",
        panel="fig2-svhn",
        place="Section 5.2",
        words="On SVHN, the two dropouts have all but the same error after 12,000 iterations.",
        metric="test difference",
        within=0.005,
        reading="'Almost overlap' is read as half a percentage point of test error.",
    ),
    Claim(
        id="fig2-cifar100-test-error",
        panel="fig2-cifar100",
        place="Section 5.2",
        words="On CIFAR-100, evolutional dropout lowers the test error by more than 10%.",
        metric="test error",
        below=-0.1,
        reading="'Testing performance' is read as test error, relative to that of standard dropout.",
    ),
    Claim(
        id="fig2-cifar100-speed-up",
        panel="fig2-cifar100",
        place="Section 5.2",
        words="On CIFAR-100, evolutional dropout converges more than 50% faster.",
        metric="training iterations",
        below=-1 / 3,
        reading="A speed of more than 1.5 times the baseline's: less than 2/3 of its iterations until the training "
        "error is the mean of the baseline's last fifth of records.",
    ),
    Claim(
        id="fig1-bn-comparable",
        panel="fig1-bn",
        place="Section 5.3",
        words="On CIFAR-10, evolutional dropout is about as good as batch normalisation with standard dropout.",
        metric="test difference",
        within=0.02,
        reading="'Comparable' is read as two percentage points of test error.",
    ),
    Claim(
        id="fig1-bn-sigmoid",
        panel="fig1-bn",
        place="Section 5.3",
        words="Batch normalisation does worse with sigmoid than with rectified linear units.",
        metric="test error",
        method="BN",
        against="BN, sigmoid units",
        reading="The paper shows no figure of it. Read as a larger test error at the end.",
    ),
)


def claims_of(panel: str) -> list[Claim]:
    """The claims that a panel can tell about."""
    return [claim for claim in CLAIMS if claim.panel == panel]
