"""The words on the terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from synthetic import write_errors, write_realistic

from evodrop.experiments.claims.outcomes import outcomes_of
from evodrop.experiments.figures.panels import find_panel
from evodrop.experiments.records.curves import read_curves
from evodrop.experiments.report.cells import cells_of, duration
from evodrop.experiments.report.tables import print_findings


def printed(outcomes, width=130):
    console = Console(file=io.StringIO(), width=width, color_system=None)
    print_findings(outcomes, console)
    return console.file.getvalue()


@pytest.fixture
def outcome(tmp_path):
    for seed in range(3):
        write_errors(tmp_path, [0.4] * 4 + [0.2] * 5, method="standard", seed=seed)
        write_errors(tmp_path, [0.3] * 2 + [0.05] * 7, method="evolutional", seed=seed, seconds=0.002)
        write_errors(tmp_path, [0.5] * 9, method="uniform", seed=seed)
    write_errors(tmp_path, [0.5, None], "diverged", method="none")
    return outcomes_of(read_curves([tmp_path]))[0]


def test_cells_say_what_the_summary_found(outcome):
    none, standard, uniform, evolutional = cells_of(outcome)
    assert (none.test_error, none.test_change, none.runs) == ("-", "-", "1\xa0seed, 1 diverged")
    assert (standard.test_error, standard.test_change) == ("20.00%\xa0±\xa00.00", "baseline")
    assert (standard.to_training, standard.to_test, standard.seconds) == ("500", "500", "10 ms")
    assert uniform.to_test == "reached in 0 of 3 seeds"
    assert evolutional.test_change == "-75.0% (-75.0\xa0to\xa0-75.0)"
    assert evolutional.to_training.startswith("300, -40.0%")
    assert evolutional.seconds == "2 ms"


def test_the_summary_is_printed_with_its_legend(outcome):
    text = printed([outcome])
    assert "dropout on mnist" in text
    for row in cells_of(outcome):
        assert any(line.startswith(f"│ {row.label} ") and row.test_error in line for line in text.splitlines())
    assert "Errors: mean of the last records, up to five.\nMeans over 3 seeds" in text
    assert "Changes are relative to standard" in text
    assert "claims of the paper" not in text


def test_without_standard_dropout_there_is_nothing_to_compare_with(tmp_path):
    write_errors(tmp_path, [0.4], method="uniform")
    text = printed(outcomes_of(read_curves([tmp_path])))
    assert "One seed: no interval." in text
    assert "There is no run of standard dropout to compare with." in text


def test_the_claims_of_a_panel_are_printed_with_their_verdicts(tmp_path):
    for seed in range(2):
        write_realistic(tmp_path, "standard", seed, 6, 0.02)
        write_realistic(tmp_path, "evolutional", seed, 9, 0.02)
    (outcome,) = outcomes_of(read_curves([tmp_path]), find_panel("fig2-mnist"))
    text = " ".join(printed([outcome], width=400).split())
    for judgement in outcome.judgements:
        assert f"│ {judgement.claim.words} │ {judgement.verdict} │ {judgement.measured} │" in text
    assert "shorter than the protocol: 2 seeds a contender, not 3" in text


def test_a_step_at_the_edge_of_the_grid_is_printed(tmp_path):
    for lr, error in ((0.1, 0.2), (0.01, 0.5)):
        write_errors(tmp_path, [error], lr=lr)
    text = " ".join(printed(outcomes_of(read_curves([tmp_path]))).split())
    assert "at the edge of the grid: standard: step 0.1 is the largest of 2 tried; a larger one may be faster" in text


def test_short_times_have_a_unit_that_suits_them():
    assert [duration(seconds) for seconds in (2.5, 0.0213, 3e-7)] == ["2.5 s", "21.3 ms", "0.3 µs"]
