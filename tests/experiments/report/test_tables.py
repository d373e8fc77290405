"""The words on the terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from synthetic import write_errors, write_realistic

from evodrop.experiments.claims.outcomes import outcomes_of
from evodrop.experiments.claims.trials import RatesTried, rates_tried
from evodrop.experiments.curves import read_curves
from evodrop.experiments.figures.panels import find_panel
from evodrop.experiments.report.cells import cells_of, duration
from evodrop.experiments.report.tables import COLUMNS, print_findings


def printed(outcomes, width=130, force_terminal=None):
    console = Console(file=io.StringIO(), width=width, color_system=None, force_terminal=force_terminal)
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
    assert (none.test_error, none.test_change, none.runs) == ("diverged", "-", "1\xa0seed, 1 diverged")
    assert (standard.test_error, standard.test_change) == ("20.00%\xa0±\xa00.00", "baseline")
    assert (standard.to_training, standard.to_test, standard.seconds) == ("500", "500", "10\xa0ms")
    assert uniform.to_test == "reached in 0 of 3 seeds"
    assert evolutional.test_change == "-75.0% (-75.0\xa0to\xa0-75.0)"
    assert evolutional.to_training.startswith("300, -40.0%")
    assert evolutional.seconds == "2\xa0ms"


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


def test_no_width_cuts_a_number(tmp_path):
    for seed in range(3):
        write_realistic(tmp_path, "standard", seed, 6, 0.02)
        write_realistic(tmp_path, "evolutional", seed, 9, 0.02)
        write_realistic(tmp_path, "evolutional", seed, 3, 0.04, match="noise")
    (outcome,) = outcomes_of(read_curves([tmp_path]), find_panel("fig2-mnist"))
    for width in range(40, 140, 3):
        _check_whole(outcome, width, printed([outcome], width, force_terminal=True))


def _check_whole(outcome, width, text):
    assert max(map(len, text.splitlines())) <= width
    words = set(text.split())
    for row in cells_of(outcome):
        assert {word for field in ("label", *COLUMNS.values()) for word in getattr(row, field).split()} <= words
    for judgement in outcome.judgements:
        assert set(judgement.measured.split()) <= words


def test_the_chosen_rate_is_printed_whatever_it_is(tmp_path):
    write_errors(tmp_path / "runs", [0.25])
    for rate, errors in ((0.2, [0.5]), (0.5, [0.25]), (0.9, [None])):
        status = "finished" if errors[0] else "diverged"
        write_errors(tmp_path / "tuning", errors, status, dataset="validation:mnist", rate=rate)
    trials = read_curves([tmp_path / "tuning"])
    outcomes = outcomes_of(read_curves([tmp_path / "runs"]), None, trials)
    assert "rate of standard: 0.5, of 3 tried for 20 epochs with one seed; validation error 25.00%\n" in printed(
        outcomes
    )
    (diverged,) = rates_tried([trial for trial in trials if trial.diverged])
    assert diverged.words == "standard: 0.9, of 1 tried for 20 epochs with one seed; all of them diverged"
    at_edge = RatesTried("uniform", {0.1: 0.25, 0.2: 0.5, 0.5: 0.6}, 1)
    assert at_edge.words == "uniform: 0.1, at the edge, of 3 tried for 1 epoch with one seed; validation error 25.00%"


def test_some_runs_that_diverged_are_not_all(tmp_path):
    write_errors(tmp_path, [0.5, 0.25])
    write_errors(tmp_path, [0.5, None], "diverged", seed=1)
    (row,) = cells_of(outcomes_of(read_curves([tmp_path]))[0])
    assert (row.test_error, row.training_error) == ("1 of 2 diverged", "1 of 2 diverged")


def test_a_step_is_timed_by_the_processor_if_all_runs_know_it(tmp_path):
    write_errors(tmp_path, [0.5], seconds=0.03, cpu_seconds=0.01)
    (outcome,) = outcomes_of(read_curves([tmp_path]))
    assert (outcome.summaries[0].seconds, outcome.time_words) == (0.01, "CPU time")
    assert "Time a step: CPU time." in printed([outcome])
    write_errors(tmp_path, [0.5], seconds=0.03, seed=1)
    (outcome,) = outcomes_of(read_curves([tmp_path]))
    assert outcome.summaries[0].seconds == 0.03
    assert "Time a step: wall time, which depends on what else runs." in printed([outcome])


def test_short_times_have_a_unit_that_suits_them():
    assert [duration(seconds) for seconds in (2.5, 0.0213, 3e-7)] == ["2.5 s", "21.3 ms", "0.3 µs"]


def test_a_ranking_stays_a_table_on_a_narrow_terminal(tmp_path):
    names = ["standard", *(f"method {number}, rate 0.35" for number in range(9))]
    for at, name in enumerate(names):
        for seed in range(3):
            write_errors(tmp_path, [0.4, 0.3 - 0.01 * at - 0.002 * seed], method=name, seed=seed)
    outcome = outcomes_of(read_curves([tmp_path]))[0]
    wide, narrow, tiny = (printed([outcome], width, force_terminal=True) for width in (130, 80, 30))
    assert "target" in wide.split("Errors:")[0]
    assert "target" not in narrow.split("Errors:")[0]
    for row in cells_of(outcome):
        assert sum(row.test_error in line and line.startswith("│") for line in narrow.splitlines()) >= 1
    assert "│" not in tiny
    assert tiny.count("  test error: ") == len(names)
