"""``evodrop compare``: the same network, or the same linear model, with each dropout, on one data set."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import NamedTuple

from evodrop.experiments.datasets import Documents, Images
from evodrop.experiments.figures.contenders import Contender
from evodrop.experiments.figures.panels import DEEP_GRID, LINEAR_GRID, PANELS, Panel
from evodrop.experiments.figures.plans import Plan
from evodrop.experiments.methods import CHALLENGERS, LINEAR, USUAL, Method, methods_of
from evodrop.experiments.running.experiment import Experiment, Findings
from evodrop.experiments.running.laboratory import check_fit, check_method, load_once
from evodrop.experiments.running.rates import tune_rates

__all__ = ["Question", "compare", "panel_of"]

ALL = "all"  # in the place of methods: every one that the network can have
TEXT_METHODS = ("none", "standard", "uniform", "data-dependent", "water-filling")
# Of the paper's grid, the step of fastest descent for all six methods on other seeds (100 and 101).
DIGITS = {"epochs": 100, "step": 0.01}
EPOCHS, TEXT_EPOCHS, IMAGE_STEP = 5, 10, 0.01
SPACING = {"digits": 10}  # iterations between two records of small networks, whose evaluation is cheap


class Question(NamedTuple):
    """What is to be compared. None leaves a choice to the data set.

    Attributes:
        dataset: a name, or "svm:TRAIN,TEST".
        methods: names, or "all" among them; by default the usual ones of a network, or of linear models for text.
        network: "auto" is the one that the paper has for the data set.
        rate: fraction to drop, or "tune": chosen for each method on a part of the training data.
        match: what the number of draws is matched to, see :mod:`evodrop.noise`.
        seeds, epochs: how many.
        lr: the step size, or "grid": chosen for each method from the paper's grid on the training data.
    """

    dataset: str = "digits"
    methods: tuple[str, ...] | None = None
    network: str = "auto"
    rate: float | str = 0.5
    match: str = "draws"
    seeds: int = 3
    epochs: int | None = None
    lr: float | str | None = None


def compare(question: Question, out: Path, *, data: Path | None = None, jobs: int = 2, command: str = "") -> Findings:
    """Run a comparison and write its report. What is done already is not done again.

    Args:
        question: what to compare.
        out: folder of the results.
        data: the data folder.
        jobs: runs at once.
        command: what the report says that it was made by.
    """
    panel = panel_of(question, load_once(question.dataset, data))
    experiment = Experiment(out, data, jobs, command, panel.title)
    if question.rate == "tune":
        panel = tune_rates(panel, experiment)
    return experiment.carry_out(Plan(panel, panel.epochs))


def panel_of(question: Question, data: Images | Documents) -> Panel:
    """The question as a panel: contenders, step sizes, epochs. What does not go together is an error.

    Examples:
        >>> panel = panel_of(Question(methods=("standard", "evolutional")), load_once("digits"))
        >>> [contender.label for contender in panel.contenders], panel.grid, panel.epochs
        (['standard', 'evolutional'], (0.01,), 100)
    """
    is_text = isinstance(data, Documents)
    network = _network(question, data)
    step, epochs = _protocol(question, network)
    contenders = _contenders(question, network)
    return Panel(
        id=f"compare-{question.dataset}",
        place="",
        title=f"dropout on {question.dataset}",
        dataset=question.dataset,
        network=network,
        examples=len(data.train_y),
        contenders=contenders,
        baseline="standard",
        challenger=CHALLENGERS[is_text],
        grid=(LINEAR_GRID if is_text else DEEP_GRID) if step is None else (step,),
        good_step=(0.1 if is_text else IMAGE_STEP) if step is None else step,
        epochs=epochs,
        seeds=question.seeds,
        decay=(),
        batch_size=1 if is_text else 128,
        least_spacing=SPACING.get(question.dataset, 100),
    )


def _network(question: Question, data: Images | Documents) -> str:
    name = question.network
    if isinstance(data, Documents):
        if name not in ("auto", LINEAR):
            raise ValueError(f"network is {name!r}, but text is learned by a linear model; leave it out")
        return LINEAR
    name = question.dataset if name == "auto" else name
    check_fit(name, data)
    return name


def _protocol(question: Question, network: str) -> tuple[float | None, int]:
    """The step size, None for the grid, and the epochs."""
    own = question.dataset == "digits"
    usual = int(DIGITS["epochs"]) if own else TEXT_EPOCHS if network == LINEAR else EPOCHS
    epochs = usual if question.epochs is None else question.epochs
    if question.lr is not None:
        return _step(question.lr), epochs
    known = {(panel.dataset, item.network): panel.good_step for panel in PANELS.values() for item in panel.contenders}
    return DIGITS["step"] if own else known.get((question.dataset, network)), epochs


def _step(given: float | str) -> float | None:
    if given == "grid":
        return None
    try:
        step = float(given)
    except ValueError:
        step = math.nan
    if not 0 < step < math.inf:
        raise ValueError(f"lr is {given!r}, but it is a positive number, or 'grid' to choose from the paper's grid")
    return step


def _contenders(question: Question, network: str) -> tuple[Contender, ...]:
    known = methods_of(network)
    if question.methods == ():
        raise ValueError(f"methods names none; name some of {', '.join(known)}, or leave it out for the usual ones")
    methods = question.methods or (TEXT_METHODS if network == LINEAR else USUAL)
    methods = _fitting(network) if ALL in methods else methods
    if network == LINEAR:  # the paper's method goes by two names
        methods = tuple("data-dependent" if method == "evolutional" else method for method in methods)
    if question.rate == "tune" and question.match != "draws":
        raise ValueError(
            f"match is {question.match!r} and rate is 'tune', but a match sets methods equal at one rate, and tuning "
            "gives each its own; name a rate, or leave the match out"
        )
    rate = 0.5 if question.rate == "tune" else _rate(question.rate)
    return tuple(_contender(method, known, network, question.match, rate) for method in dict.fromkeys(methods))


def _fitting(network: str) -> tuple[str, ...]:
    """Every method that the network can have; those that find no place in it are told."""
    fitting = []
    for method in methods_of(network):
        try:
            _check_place(method, network)
        except ValueError as error:
            print(f"evodrop: {method} is left out. {error}", file=sys.stderr)
        else:
            fitting.append(method)
    return tuple(fitting)


def _check_place(method: str, network: str) -> None:
    if network != LINEAR:
        check_method(method, network)


def _contender(method: str, known: dict[str, Method], network: str, match: str, rate: float) -> Contender:
    if method not in known:
        kind = "linear models" if network == LINEAR else "networks"
        raise ValueError(f"method is {method!r}, but those of {kind} are {', '.join(known)}")
    _check_place(method, network)
    return Contender(method, *Contender(method, network, method, match, rate).key)


def _rate(given: float | str) -> float:
    try:
        return float(given)
    except ValueError:
        raise ValueError(f"rate is {given!r}, but it is a number in [0, 1), or 'tune'") from None
