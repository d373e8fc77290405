"""Coverage and power of the verdicts on speed: experiments of three seeds, drawn again and again from a known law."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from helpers.synthetic import SPACING, curve

from evodrop.lab.claims import CLAIMS
from evodrop.lab.summary import summarise
from evodrop.lab.verdicts import judge

SEEDS, RECORDS = 3, 100
SPEED, FLOOR = 8.0, 0.03  # of the mean curve: how fast it falls, and to which error
SHARED, OWN = 0.2, 0.1  # relative spread of both: of a seed, which all variants share, and of each run
WITHIN_A_RUN = 0.003  # spread of a record


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    return curve(tmp_path_factory.mktemp("runs"), [0.5])


def drawn(template, rng, speed, common):
    """The curves of a variant, one per seed."""
    way = np.arange(1, RECORDS + 1) / RECORDS
    spread = common * np.exp(OWN * rng.normal(size=(SEEDS, 2)))
    falling = FLOOR * spread[:, 1:] + 0.8 * np.exp(-speed * spread[:, :1] * way)
    clean, test = np.clip(falling + WITHIN_A_RUN * rng.normal(size=(2, SEEDS, RECORDS)), 0, 1)
    fields = {"iterations": np.arange(1.0, RECORDS + 1) * SPACING}
    return [
        dataclasses.replace(template, seed=seed, clean=clean[seed], test=test[seed], **fields) for seed in range(SEEDS)
    ]


PACE = [claim for claim in CLAIMS if claim.panel == "fig2-mnist"]  # both are on the pace
SPEED_UP = [claim for claim in CLAIMS if claim.metric in ("to_training", "to_test")]  # by more than half


def shares(template, claims, times_as_fast, experiments):
    """The shares of experiments that say of each claim that it holds, and that it does not."""
    rng = np.random.default_rng(0)
    said = []
    for _ in range(experiments):
        common = np.exp(SHARED * rng.normal(size=(SEEDS, 2)))
        standard, other = (drawn(template, rng, speed, common) for speed in (SPEED, times_as_fast * SPEED))
        baseline, challenger = summarise({"standard": standard, "other": other}, "standard")
        said.append([judge(claim, challenger, baseline).verdict for claim in claims])
    verdicts = np.array(said)
    return (verdicts == "holds").mean(0), (verdicts == "does not hold").mean(0)


def test_of_equals_chance_decides_one_time_in_twenty(template):
    experiments = 1000
    holds, fails = shares(template, PACE, 1.0, experiments)
    error = (0.05 * 0.95 / experiments) ** 0.5
    assert np.abs(holds + fails - 0.05).max() < 3 * error
    error = (0.025 * 0.975 / experiments) ** 0.5
    assert np.abs([holds - 0.025, fails - 0.025]).max() < 3 * error


def test_three_seeds_find_a_method_that_is_twice_as_fast(template):
    experiments = 200
    holds, fails = shares(template, PACE, 2.0, experiments)
    error = (0.9 * 0.1 / experiments) ** 0.5
    assert holds.min() > 0.9 + 3 * error
    assert fails.max() == 0.0


@pytest.mark.parametrize("times_as_fast", [1.0, 1.5])
def test_half_as_fast_again_is_not_more_than_that(template, times_as_fast):
    """Chance confirms the paper's speed-up one time in forty at most; in some seeds the target is never reached."""
    experiments = 300
    holds, _ = shares(template, SPEED_UP, times_as_fast, experiments)
    assert len(holds) == 2
    assert holds.max() < 0.025 + 3 * (0.025 * 0.975 / experiments) ** 0.5
