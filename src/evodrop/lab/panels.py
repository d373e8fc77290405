"""The panels of the paper's figures: what is compared, on which data, by which protocol, and which runs that takes.

A panel runs in two stages: every step size with the first seed, then the chosen one with all seeds. The choice is a
function of the records alone, so an interrupted reproduction chooses the same again. What the paper says is taken from
it; what it leaves open is a choice of ours, and :data:`CHOICES` says which.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from evodrop.lab.curves import Curve
from evodrop.lab.data import DATASETS
from evodrop.lab.methods import LINEAR, find_method
from evodrop.lab.run import Run
from evodrop.lab.summary import choose_step

LINEAR_GRID = (0.1, 0.05, 0.01, 0.005, 0.001, 0.0005, 0.0001)  # Section 5.1
WIDE_GRID = (0.1, 0.5, 1.0, 5.0, 10.0, 50.0)  # rows of norm 1 need larger steps than the paper's
PAPER_GRID = "papergrid"  # ends the id of a panel that reads other data by the paper's grid
DEEP_GRID = (0.001, 0.005, 0.01, 0.1)  # Section 5.2
SIZES = {"20news": 11_293, "reuters52": 6_532}  # training examples that the registry does not fix
OTHER_DATA = {  # on which the paper's claims are asked too
    "20news": "20 Newsgroups",
    "reuters52": "Reuters-52",
    "rcv1-part": "a part of RCV1",
}
MOST_RECORDS = 100  # of a run
QUICK_SEEDS = 2  # the least that have an interval
MATCHED_WORDS = {
    "distinct": ", as often as lets as many units survive as standard dropout does",
    "noise": ", as often as gives the noise level of standard dropout",
}
Key = tuple[str, str, str, float]  # network, method, match, rate

CHOICES = {
    "epochs": "The paper does not say for how long it trained; only SVHN's 12,000 iterations are known.",
    "decay": "The paper's step falls 'after a number of epochs': here by ten after 2/3 and after 5/6 of all.",
    "seeds": "The paper does not say how often it repeated a run: here every method is run with several seeds.",
    "tuning": "'Fastest convergence' is here the least training error on clean data, averaged over the run.",
    "steps": "Text has rows of norm 1, which need steps of 0.1 to 50; the paper's grid is a panel beside it.",
    "momentum": "The paper names no momentum for the panel on batch normalisation; Caffe's files have 0.9.",
}


class Variant(NamedTuple):
    """A method in a network, at a rate: one of the things that are compared."""

    label: str  # in tables and legends
    network: str
    method: str
    match: str = "draws"
    rate: float = 0.5
    added: bool = False  # by us, not the paper
    short: str = ""  # on the command line, where the label has a comma or space

    @property
    def name(self) -> str:
        """What ``--methods`` calls it."""
        return self.short or self.label

    @property
    def words(self) -> str:
        """One plain line on it."""
        method = find_method(self.network, self.method)
        words = self.method if method is None else method.words
        return f"{words}{MATCHED_WORDS.get(key_of(self)[2], '')}{'; not in the paper' if self.added else ''}"


def key_of(item: Variant | Curve) -> Key:
    """What sets the runs of a variant apart: options that change nothing for its method do not count."""
    method = find_method(item.network, item.method)
    match = item.match if method is None or method.uses_match else "draws"
    return item.network, item.method, match, item.rate if method is None or method.uses_rate else 0.5


@dataclass(frozen=True, kw_only=True)
class Panel:
    """What is compared and how: a panel of a figure, or the question of ``evodrop compare``.

    Examples:
        >>> panel = find_panel("fig2-mnist").cut(methods=("standard", "evolutional"), seeds=2)
        >>> [run.id[:-10] for run in panel.tuning_runs()][:2]
        ['mnist-standard-lr0.001-seed0-', 'mnist-evolutional-lr0.001-seed0-']
        >>> [run.seed for run in panel.final_runs({"standard": 0.005, "evolutional": 0.005})]
        [0, 0, 1, 1]
    """

    id: str  # on the command line
    place: str  # in the paper, or what of the paper it follows
    title: str  # in plain words
    dataset: str
    network: str  # LINEAR for logistic regression
    examples: int  # for training: how many iterations will there be?
    variants: tuple[Variant, ...]
    baseline: str  # label of the variant that the others are measured against
    challenger: str  # label of the paper's proposal
    grid: tuple[float, ...]  # initial step sizes, tuned for each variant apart
    good_step: float  # what a quick look takes instead
    epochs: int
    quick_epochs: int = 2
    seeds: int = 3
    tuning_epochs: int | None = None  # of the runs that only choose the step; None is as many as all, as in the paper
    decay: tuple[float, ...] = (2 / 3, 5 / 6)  # the step falls to a tenth after these shares of the epochs
    batch_size: int = 128  # a linear model takes one example at a time
    momentum: float = 0.9
    weight_std: float = 0.01
    least_spacing: int = 100  # iterations between two records: an evaluation costs as much as some thirty of them

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise ValueError(f"seeds is {self.seeds}, but it takes an integer of at least 1")

    def cut(
        self,
        *,
        methods: Sequence[str] | None = None,
        epochs: int | None = None,
        seeds: int | None = None,
        grid: Iterable[float] | None = None,
        tuning_epochs: int | None = None,
        quick: bool = False,
    ) -> Panel:
        """The panel with some of its methods, by name, and other epochs, seeds and step sizes; decays move with them.

        Quick is a few epochs, two seeds and one step size, where nothing else is given.
        """
        short = {"epochs": self.quick_epochs, "seeds": QUICK_SEEDS, "grid": (self.good_step,)}
        changes: dict[str, Any] = short if quick else {}
        given = {"epochs": epochs, "seeds": seeds, "tuning_epochs": tuning_epochs}
        changes |= {name: value for name, value in given.items() if value is not None}
        if methods is not None:
            known = [variant.name for variant in self.variants]
            unknown = [name for name in methods if name not in known]
            if unknown or not methods:
                words = ", ".join(map(repr, unknown)) or "none"
                raise ValueError(f"--methods names {words}, but those of {self.id} are {', '.join(known)}")
            changes["variants"] = tuple(variant for variant in self.variants if variant.name in methods)
        if grid is not None:
            changes["grid"] = tuple(dict.fromkeys(map(float, grid)))
            if not changes["grid"] or not all(step > 0 for step in changes["grid"]):
                raise ValueError(f"the steps are {changes['grid']}, but they are numbers above 0, at least one")
        return dataclasses.replace(self, **changes)

    def tuning_runs(self) -> list[Run]:
        """The first stage: each variant with each step size, first seed. Variants take turns, to share the machine."""
        epochs = self.tuning_epochs or self.epochs
        return [self._run(variant, 0, step, epochs) for step in self.grid for variant in self.variants]

    def choose_steps(self, curves: Sequence[Curve]) -> dict[str, float]:
        """The step size of each variant, by label, from the curves of the first stage; others do no harm."""
        chosen = {}
        for variant in self.variants:
            wanted = (self.dataset, key_of(variant), 0, self.tuning_epochs or self.epochs)
            first = [one for one in curves if (one.dataset, key_of(one), one.seed, one.epochs) == wanted]
            own = [curve for curve in first if curve.lr in self.grid]
            if not own:
                raise ValueError(f"there is no run of {variant.label!r} to choose its step size from; run them first")
            chosen[variant.label] = choose_step(own)
        return chosen

    def final_runs(self, steps: Mapping[str, float]) -> list[Run]:
        """The second stage: each variant at its step size, all seeds."""
        return [
            self._run(variant, seed, steps[variant.label], self.epochs)
            for seed in range(self.seeds)
            for variant in self.variants
        ]

    def owns(self, curve: Curve) -> bool:
        """Whether a run is one of this panel's, at whatever step and length."""
        return curve.dataset == self.dataset and key_of(curve) in map(key_of, self.variants)

    def shortened(self, epochs: int, seeds: int, grid: Iterable[float], tuning_epochs: int) -> list[str]:
        """In words, what runs of so many epochs and seeds, tuned over a grid, leave out of the protocol or change."""
        words, steps = [], set(grid)
        if epochs < self.epochs:
            words.append(f"{counted(epochs, 'epoch')} per run, not {self.epochs}")
        if seeds < self.seeds:
            words.append(f"{counted(seeds, 'seed')} per method, not {self.seeds}")
        if steps != set(self.grid):
            tried, all_steps = (", ".join(f"{step:g}" for step in sorted(some)) for some in (steps, set(self.grid)))
            words.append(f"step sizes tried: {tried}, not {all_steps}")
        if tuning_epochs < epochs:
            words.append(f"step sizes chosen by runs of {counted(tuning_epochs, 'epoch')}, not {epochs}")
        return words

    def _run(self, variant: Variant, seed: int, step: float, epochs: int) -> Run:
        iterations = epochs * (self.examples // self.batch_size)
        fields: dict[str, Any] = {
            "dataset": self.dataset,
            "network": variant.network,
            "method": variant.method,
            "match": variant.match,
            "rate": variant.rate,
            "seed": seed,
            "lr": step,
            "epochs": epochs,
            "eval_every": max(self.least_spacing, iterations // MOST_RECORDS),
        }
        if self.network != LINEAR:
            decay = dict.fromkeys(round(share * epochs) for share in self.decay)
            fields |= {name: getattr(self, name) for name in ("batch_size", "momentum", "weight_std")}
            fields["decay"] = tuple(epoch for epoch in decay if 1 <= epoch < epochs)  # a short run has no room for all
        return Run(**fields)


def _examples(dataset: str) -> int:
    """How many examples train. Where the publisher set no test data aside, a fifth is."""
    entry = DATASETS[dataset]
    if entry.train is None:
        return SIZES[dataset]
    return entry.train if entry.test else entry.train - entry.train // 5


def _panel(dataset: str, network: str, challenger: str, added: Sequence[str], **fields: Any) -> Panel:
    """Standard dropout against the paper's proposal; what is added is also run, and not in the paper."""
    return Panel(
        dataset=dataset,
        network=network,
        examples=_examples(dataset),
        variants=(
            Variant("standard", network, "standard"),
            Variant(challenger, network, challenger),
            _matched_noise(network, challenger),
            *(Variant(method, network, method, added=True) for method in added),
        ),
        baseline="standard",
        challenger=challenger,
        **fields,
    )


def _matched_noise(network: str, method: str) -> Variant:
    return Variant(f"{method}, matched noise", network, method, "noise", added=True, short=f"{method}-noise")


def _linear(dataset: str, name: str, place: str, grid: tuple[float, ...] = LINEAR_GRID, suffix: str = "") -> Panel:
    by_paper = ", steps of the paper" if suffix else ""
    return _panel(
        dataset,
        LINEAR,
        "data-dependent",
        added=("water-filling", "none"),
        id=f"fig1-{dataset}{suffix}",
        place=place,
        title=f"data-dependent against standard dropout: logistic regression on {name}{by_paper}",
        grid=grid,
        good_step=0.1 if grid == LINEAR_GRID else 1.0,
        epochs=30,
        quick_epochs=3,
        seeds=10,
        decay=(),
        batch_size=1,
        momentum=0.0,
    )


def _deep(dataset: str, name: str, place: str, **fields: Any) -> Panel:
    title = f"evolutional against standard dropout: the paper's network for {name}"
    fields |= {"id": f"fig2-{dataset}", "place": place, "title": title, "grid": DEEP_GRID}
    return _panel(dataset, dataset, "evolutional", added=("none",), **fields)


_BATCH_NORMALISATION = Panel(
    id="fig1-bn",
    place="Figure 1, right",
    title="evolutional dropout against batch normalisation: Caffe's network for CIFAR-10",
    dataset="cifar10",
    network="cifar10-bn",
    examples=_examples("cifar10"),
    variants=(
        Variant("no BN, no dropout", "cifar10-nobn", "none", short="plain"),
        Variant("BN", "cifar10-bn", "none", short="bn"),
        Variant("BN + standard", "cifar10-bn", "standard", short="bn-standard"),
        Variant("BN, sigmoid units", "cifar10-bn-sigmoid", "none", short="bn-sigmoid"),
        Variant("evolutional", "cifar10-nobn", "evolutional"),
        _matched_noise("cifar10-nobn", "evolutional"),
    ),
    baseline="BN + standard",
    challenger="evolutional",
    grid=(0.001,),
    good_step=0.001,
    epochs=130,  # 60,000 iterations, then 5,000 at a tenth of the step, as Caffe's file has it
    decay=(120 / 130,),
    batch_size=100,
)

ELSEWHERE = "as Figure 1, left three, on other data"
_ALL = (
    _linear("real-sim", "real-sim", "Figure 1, left"),
    _linear("news20", "news20", "Figure 1, second"),
    _linear("rcv1", "RCV1", "Figure 1, third"),
    _BATCH_NORMALISATION,
    _deep("mnist", "MNIST", "Figure 2(a)", epochs=20, good_step=0.005),
    _deep("svhn", "SVHN", "Figure 2(b)", epochs=21, good_step=0.01),  # 21 epochs are 12,012 iterations
    _deep("cifar10", "CIFAR-10", "Figure 2(c)", epochs=60, good_step=0.01),
    _deep("cifar100", "CIFAR-100", "Figure 2(d)", epochs=60, good_step=0.01),
    *(_linear(dataset, name, ELSEWHERE, WIDE_GRID) for dataset, name in OTHER_DATA.items()),
    *(_linear(dataset, name, ELSEWHERE, suffix=f"-{PAPER_GRID}") for dataset, name in OTHER_DATA.items()),
)
PANELS = {panel.id: panel for panel in _ALL}


def find_panel(name: str) -> Panel:
    """The panel of a name, or an error that lists them."""
    if name not in PANELS:
        raise ValueError(f"there is no panel {name!r}; the panels are {', '.join(PANELS)}")
    return PANELS[name]


def counted(number: int, noun: str) -> str:
    """A number of things in words: ``1 seed``, ``3 seeds``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
