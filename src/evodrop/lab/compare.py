"""The question of ``evodrop compare`` as a panel: every word of the user is checked here, once."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path

from evodrop.lab.data import Documents
from evodrop.lab.groups import Variant, key_of
from evodrop.lab.methods import LINEAR, PROPOSED, USUAL, is_own, methods_of, stamped
from evodrop.lab.panels import DEEP_GRID, LINEAR_GRID, PANELS, Panel
from evodrop.noise import MATCHES

ALL = "all"  # in the place of methods: every one that the network can have
USUAL_TEXT = ("none", "standard", "uniform", "data-dependent", "water-filling")
# Of the paper's grid, the step of fastest descent for all six methods on other seeds (100 and 101).
DIGITS_STEP, DIGITS_EPOCHS, DIGITS_SPACING = 0.01, 100, 10
EPOCHS, TEXT_EPOCHS, IMAGE_STEP, TEXT_STEP = 5, 10, 0.01, 1.0


def panel_for(
    dataset: str,
    methods: Sequence[str] | None = None,
    *,
    network: str = "auto",
    rate: str = "0.5",
    match: str = "draws",
    seeds: int = 3,
    epochs: int | None = None,
    lr: str | None = None,
    data: Path | None = None,
) -> Panel:
    """The panel that compares methods on a data set: arguments are the options of the command, as they were typed.

    None leaves a choice to the data set.

    Examples:
        >>> panel = panel_for("digits", ["standard", "evolutional"])
        >>> [variant.label for variant in panel.variants], panel.grid, panel.epochs
        (['standard', 'evolutional'], (0.01,), 100)
    """
    from evodrop.lab.training import load_once
    from evodrop.lab.training.network import check_fit

    loaded = load_once(dataset, data)
    is_digits = dataset == "digits"
    if is_text := isinstance(loaded, Documents):
        if network not in ("auto", LINEAR):
            raise ValueError(f"--network is {network!r}, but text is learned by a linear model; leave it out")
        network = LINEAR
    else:
        network = dataset if network == "auto" else network
        check_fit(network, loaded)
    if match not in MATCHES:
        raise ValueError(f"--match is {match!r}, but it is one of {', '.join(MATCHES)}")
    if rate == "tune" and match != "draws":
        raise ValueError(
            f"--match is {match!r} and --rate is 'tune', but a match sets methods equal at one rate, and tuning gives "
            "each its own; name a rate, or leave the match out"
        )
    fraction = 0.5 if rate == "tune" else _number(rate)
    if not 0 <= fraction < 1:
        raise ValueError(f"--rate is {rate!r}, but it is a number in [0, 1), or 'tune'")
    known = {  # of two panels on the same data, the first is the main one
        (panel.dataset, item.network): panel.good_step for panel in reversed(PANELS.values()) for item in panel.variants
    }
    step = DIGITS_STEP if is_digits else known.get((dataset, network))
    if lr is not None:
        step = None if lr == "grid" else _number(lr)
        if step is not None and not 0 < step < math.inf:
            raise ValueError(f"--lr is {lr!r}, but it is a number above 0, or 'grid' to choose from the paper's grid")
    usual = DIGITS_EPOCHS if is_digits else TEXT_EPOCHS if is_text else EPOCHS
    return Panel(
        id=f"compare-{dataset}",
        place="",
        title=f"dropout on {dataset}",
        dataset=dataset,
        network=network,
        examples=len(loaded.train_y),
        variants=_variants(methods, network, match, fraction),
        baseline="standard",
        challenger=PROPOSED[is_text],
        grid=(LINEAR_GRID if is_text else DEEP_GRID) if step is None else (step,),
        good_step=(TEXT_STEP if is_text else IMAGE_STEP) if step is None else step,
        epochs=usual if epochs is None else epochs,
        seeds=seeds,
        decay=(),
        batch_size=1 if is_text else 128,
        least_spacing=DIGITS_SPACING if is_digits else 100,
    )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan  # in no range


def _variants(methods: Sequence[str] | None, network: str, match: str, rate: float) -> tuple[Variant, ...]:
    from evodrop.lab.training.network import check_method

    known = methods_of(network)
    if methods is not None and not methods:
        raise ValueError(f"--methods names none; name some of {', '.join(known)}, or leave it out for the usual ones")
    names = tuple(methods or (USUAL_TEXT if network == LINEAR else USUAL))
    if network == LINEAR:  # the paper's method goes by two names
        names = tuple("data-dependent" if name == "evolutional" else name for name in names)
    variants = []
    for name in dict.fromkeys([*known, *filter(is_own, names)] if ALL in names else names):
        if name not in known and (network == LINEAR or not is_own(name)):
            kind, own = ("linear models", "") if network == LINEAR else ("networks", ", or module:Class of your own")
            raise ValueError(f"--methods names {name!r}, but those of {kind} are {', '.join(known)}{own}")
        method = stamped(name) if is_own(name) else name
        try:
            if network != LINEAR:
                check_method(method, network)
        except ValueError as error:
            if ALL not in names:
                raise
            print(f"evodrop: {name} is left out. {error}", file=sys.stderr)
            continue
        variants.append(Variant(name, *key_of(Variant(name, network, method, match, rate))))
    return tuple(variants)
