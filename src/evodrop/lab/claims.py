"""Each sentence of the paper's Section 5 that says something about results, as data.

The words are ours, and so is the reading where the paper gives no number: ``reading`` says what was made of it. A claim
is about one panel. Where the paper speaks of several data sets, there is a claim for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from evodrop.lab.panels import OTHER_DATA, PAPER_GRID

ELSEWHERE = "not in the paper: its Section 5.1 on other data"
METRICS = {  # fields of a summary, in words
    "training_pace": "training error averaged over the run",
    "test_pace": "test error averaged over the run",
    "to_training": "iterations to the baseline's training error at its end",
    "to_test": "iterations to the baseline's test error at its end",
    "test_change": "test error at the end",
    "test_difference": "difference of the test errors at the end",
}


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One statement."""

    id: str  # in files
    panel: str  # that measures it
    place: str  # where the paper says it, or ELSEWHERE
    words: str  # what it says, in ours
    metric: str  # a key of METRICS
    below: float = 0.0  # the metric is less than this if the claim holds; negative is an improvement
    within: float | None = None  # or else, it is at most this far from 0
    reading: str = ""  # how words without a number became a number
    method: str | None = None  # label of what is measured, if not the panel's challenger
    against: str | None = None  # label of what it is measured against, if not the panel's baseline

    @property
    def in_paper(self) -> bool:
        return self.place != ELSEWHERE


PACE = "Lowers the error faster: less error on average over the run."
FASTER = f"{PACE} 'Much faster' has no number in the paper; here any gain counts."
SHALLOW = (  # of Section 5.1 on each data set: metric, name in files, words and our reading
    ("training_pace", "training-speed", "lowers the training error much faster", FASTER),
    ("test_pace", "test-speed", "lowers the test error much faster", FASTER),
    ("test_change", "test-error", "ends with a smaller test error", ""),
)


def _shallow() -> Iterator[Claim]:
    papers = {"real-sim": "real-sim", "news20": "news20", "rcv1": "RCV1"}
    by_papers_grid = {f"{dataset}-{PAPER_GRID}": name for dataset, name in OTHER_DATA.items()}
    for dataset, name in {**papers, **OTHER_DATA, **by_papers_grid}.items():
        for metric, file_name, words, reading in SHALLOW:
            yield Claim(
                id=f"fig1-{dataset}-{file_name}",
                panel=f"fig1-{dataset}",
                place="Section 5.1" if dataset in papers else ELSEWHERE,
                words=f"On {name}, data-dependent dropout {words} than standard dropout.",
                metric=metric,
                reading=reading,
            )


def _deep() -> Iterator[Claim]:
    for dataset, name in {"mnist": "MNIST", "svhn": "SVHN", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}.items():
        for kind in ("training", "test"):
            yield Claim(
                id=f"fig2-{dataset}-{kind}-speed",
                panel=f"fig2-{dataset}",
                place="Section 5.2",
                words=f"On {name}, the {kind} error falls faster with evolutional dropout than with standard dropout.",
                metric=f"{kind}_pace",
                reading=f"{PACE} 'Generally faster' is asked of each data set alone.",
            )


SPEED_UP = (
    "A speed of more than 1.5 times the baseline's: less than 2/3 of its iterations until the error is the one that "
    "the baseline ends with. A run that never reaches it counts with its whole length."
)
CLAIMS = (
    *_shallow(),
    *_deep(),
    Claim(
        id="fig2-svhn-overlap",
        panel="fig2-svhn",
        place="Section 5.2",
        words="On SVHN, the two dropouts have all but the same error after 12,000 iterations.",
        metric="test_difference",
        within=0.005,
        reading="'Almost overlap' is read as half a percentage point of test error.",
    ),
    Claim(
        id="fig2-cifar100-test-error",
        panel="fig2-cifar100",
        place="Section 5.2",
        words="On CIFAR-100, evolutional dropout lowers the test error by more than 10%.",
        metric="test_change",
        below=-0.1,
        reading="'Testing performance' is read as test error, relative to that of standard dropout.",
    ),
    *(
        Claim(
            id=f"fig2-cifar100{mark}-speed-up",
            panel="fig2-cifar100",
            place="Section 5.2",
            words=f"On CIFAR-100, evolutional dropout converges more than 50% faster, by the {kind} error.",
            metric=f"to_{kind}",
            below=-1 / 3,
            reading=SPEED_UP,
        )
        for kind, mark in {"training": "", "test": "-test"}.items()
    ),
    Claim(
        id="fig1-bn-comparable",
        panel="fig1-bn",
        place="Section 5.3",
        words="On CIFAR-10, evolutional dropout is about as good as batch normalisation with standard dropout.",
        metric="test_difference",
        within=0.02,
        reading="'Comparable' is read as two percentage points of test error.",
    ),
    Claim(
        id="fig1-bn-sigmoid",
        panel="fig1-bn",
        place="Section 5.3",
        words="Batch normalisation does worse with sigmoid than with rectified linear units.",
        metric="test_change",
        method="BN",
        against="BN, sigmoid units",
        reading="The paper shows no figure of it. Read as a larger test error at the end.",
    ),
)
