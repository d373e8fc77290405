"""The panels of the paper's figures as data: what was compared, on which data, by which protocol.

What the paper says is taken from it; what it leaves open is a choice of ours, and :data:`CHOICES` says which.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from evodrop.experiments.curves import Curve
from evodrop.experiments.datasets import DATASETS
from evodrop.experiments.figures.contenders import Contender, key_of
from evodrop.experiments.methods import LINEAR

__all__ = ["CHOICES", "DEEP_GRID", "LINEAR_GRID", "PANELS", "Panel", "find_panel", "shortened", "split_sizes"]

LINEAR_GRID = (0.1, 0.05, 0.01, 0.005, 0.001, 0.0005, 0.0001)  # Section 5.1
WIDE_GRID = (0.1, 0.5, 1.0, 5.0, 10.0, 50.0)  # rows of norm 1 need larger steps than the paper's
PAPER_GRID = "papergrid"  # ends the id of a panel that reads other data by the paper's grid
DEEP_GRID = (0.001, 0.005, 0.01, 0.1)  # Section 5.2
LEFT_OPEN = {"20news": (11_293, 7_528), "reuters52": (6_532, 2_568)}  # sizes that the registry does not fix
OTHER_DATA = {  # on which the paper's claims are asked too
    "20news": "20 Newsgroups",
    "reuters52": "Reuters-52",
    "rcv1-part": "a part of RCV1",
}

CHOICES = {
    "epochs": "The paper does not say for how long it trained; only SVHN's 12,000 iterations are known.",
    "decay": "The paper's step falls 'after a number of epochs': here by ten after 2/3 and after 5/6 of all.",
    "seeds": "The paper does not say how often it repeated a run: here every contender is run with several seeds.",
    "tuning": "'Fastest convergence' is here the least training error on clean data, averaged over the run.",
    "steps": "Text has rows of norm 1, which need steps of 0.1 to 50; the paper's grid is a panel beside it.",
    "momentum": "The paper names no momentum for the panel on batch normalisation; Caffe's files have 0.9.",
}


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One panel of a figure. Its fields are the protocol; :mod:`evodrop.experiments.figures.plans` makes runs of them.

    Attributes:
        id: its name on the command line.
        place: where it is in the paper, or what of the paper it follows.
        title: in plain words.
        dataset, network: their names; the network is :data:`LINEAR` for logistic regression.
        examples: for training, to know how many iterations there will be.
        contenders: what is compared.
        baseline: label of the contender that the others are measured against.
        challenger: label of the paper's proposal.
        grid: initial step sizes, tuned for each contender apart.
        good_step: the step size that a quick look takes instead.
        epochs, seeds, quick_epochs: how long, how often, and how long for a quick look.
        decay: the step falls to a tenth after these shares of the epochs.
        batch_size, momentum, weight_std: of the training; a linear model takes one example at a time.
        least_spacing: iterations between two records, at least: an evaluation costs as much as some thirty of them.
    """

    id: str
    place: str
    title: str
    dataset: str
    network: str
    examples: int
    contenders: tuple[Contender, ...]
    baseline: str
    challenger: str
    grid: tuple[float, ...]
    good_step: float
    epochs: int
    quick_epochs: int = 2
    seeds: int = 3
    decay: tuple[float, ...] = (2 / 3, 5 / 6)
    batch_size: int = 128
    momentum: float = 0.9
    weight_std: float = 0.01
    least_spacing: int = 100

    @property
    def is_linear(self) -> bool:
        return self.network == LINEAR

    def owns(self, curve: Curve) -> bool:
        """Whether a run is one of this panel's, at whatever step and length."""
        keys = {contender.key for contender in self.contenders}
        return curve.dataset == self.dataset and key_of(curve) in keys


def split_sizes(dataset: str) -> tuple[int, int]:
    """How many examples of a data set train, and how many test.

    Examples:
        >>> split_sizes("mnist"), split_sizes("news20")  # a fifth of the latter's 19,996 is set aside
        ((60000, 10000), (15997, 3999))
    """
    train, test = DATASETS[dataset].train, DATASETS[dataset].test
    if train is None or test is None:
        return LEFT_OPEN[dataset]
    return (train, test) if test else (train - train // 5, train // 5)


def _linear(dataset: str, name: str, place: str, grid: tuple[float, ...] = LINEAR_GRID, suffix: str = "") -> Panel:
    def contender(label: str, method: str, match: str = "draws", added: bool = False, short: str = "") -> Contender:
        return Contender(label, LINEAR, method, match, added=added, short=short)

    by_papers_grid = ", steps of the paper" if suffix else ""
    return Panel(
        id=f"fig1-{dataset}{suffix}",
        place=place,
        title=f"data-dependent against standard dropout: logistic regression on {name}{by_papers_grid}",
        dataset=dataset,
        network=LINEAR,
        examples=split_sizes(dataset)[0],
        contenders=(
            contender("standard", "standard"),
            contender("data-dependent", "data-dependent"),
            contender("data-dependent, matched noise", "data-dependent", "noise", True, "data-dependent-noise"),
            contender("water-filling", "water-filling", added=True),
            contender("none", "none", added=True),
        ),
        baseline="standard",
        challenger="data-dependent",
        grid=grid,
        good_step=0.1 if grid == LINEAR_GRID else 1.0,
        epochs=30,
        quick_epochs=3,
        seeds=10,
        decay=(),
        batch_size=1,
        momentum=0.0,
    )


def _matched_noise(network: str) -> Contender:
    label, short = "evolutional, matched noise", "evolutional-noise"
    return Contender(label, network, "evolutional", "noise", added=True, short=short)


def _deep(dataset: str, name: str, place: str, epochs: int, good_step: float) -> Panel:
    return Panel(
        id=f"fig2-{dataset}",
        place=place,
        title=f"evolutional against standard dropout: the paper's network for {name}",
        dataset=dataset,
        network=dataset,
        examples=split_sizes(dataset)[0],
        contenders=(
            Contender("standard", dataset, "standard"),
            Contender("evolutional", dataset, "evolutional"),
            _matched_noise(dataset),
            Contender("none", dataset, "none", added=True),
        ),
        baseline="standard",
        challenger="evolutional",
        grid=DEEP_GRID,
        good_step=good_step,
        epochs=epochs,
    )


_BATCH_NORMALISATION = Panel(
    id="fig1-bn",
    place="Figure 1, right",
    title="evolutional dropout against batch normalisation: Caffe's network for CIFAR-10",
    dataset="cifar10",
    network="cifar10-bn",
    examples=split_sizes("cifar10")[0],
    contenders=(
        Contender("no BN, no dropout", "cifar10-nobn", "none", short="plain"),
        Contender("BN", "cifar10-bn", "none", short="bn"),
        Contender("BN + standard", "cifar10-bn", "standard", short="bn-standard"),
        Contender("BN, sigmoid units", "cifar10-bn-sigmoid", "none", short="bn-sigmoid"),
        Contender("evolutional", "cifar10-nobn", "evolutional"),
        _matched_noise("cifar10-nobn"),
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
    """The panel of a name, or an error that lists them.

    Examples:
        >>> find_panel("fig2-mnist").place
        'Figure 2(a)'
    """
    if name not in PANELS:
        raise ValueError(f"there is no panel {name!r}; the panels are {', '.join(PANELS)}")
    return PANELS[name]


def shortened(panel: Panel, epochs: int, seeds: int, grid: Iterable[float], tuning_epochs: int) -> tuple[str, ...]:
    """In words, what of a panel's protocol runs of so many epochs and seeds, tuned over a grid, leave out or change."""
    words = []
    if epochs < panel.epochs:
        words.append(f"{epochs} epoch{'s' * (epochs > 1)} a run, not {panel.epochs}")
    if seeds < panel.seeds:
        words.append(f"{seeds} seed{'s' * (seeds > 1)} a contender, not {panel.seeds}")
    if set(grid) != set(panel.grid):
        steps, all_steps = (", ".join(f"{step:g}" for step in sorted(some)) for some in (set(grid), panel.grid))
        words.append(f"step sizes tried: {steps}, not {all_steps}")
    if tuning_epochs < epochs:
        words.append(f"step sizes chosen by runs of {tuning_epochs} epoch{'s' * (tuning_epochs > 1)}, not {epochs}")
    return tuple(words)
