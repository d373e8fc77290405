"""The words on the terminal."""

from __future__ import annotations

import io

import pytest
from helpers.synthetic import write_errors, write_realistic
from rich.console import Console

from evodrop.lab.curves import read_curves
from evodrop.lab.panels import find_panel
from evodrop.lab.report import COLUMNS, cells, duration, legend, limits, rate_cells, sentences, show
from evodrop.lab.verdicts import outcomes_of


def printed(outcomes, width=130, force_terminal=None):
    console = Console(file=io.StringIO(), width=width, color_system=None, force_terminal=force_terminal)
    show(outcomes, console)
    return console.file.getvalue()


@pytest.fixture
def outcome(tmp_path):
    for seed in range(3):
        write_errors(tmp_path, [0.4] * 4 + [0.2] * 5, method="standard", seed=seed)
        write_errors(tmp_path, [0.3] * 2 + [0.05] * 7, method="evolutional", seed=seed, cpu_seconds=0.002)
        write_errors(tmp_path, [0.5] * 9, method="uniform", seed=seed)
    write_errors(tmp_path, [0.5, None], "diverged", method="none")
    return outcomes_of(read_curves([tmp_path]))[0]


def test_cells_say_what_the_summary_found(outcome):
    none, standard, uniform, evolutional = cells(outcome)
    assert (none["test error"], none["change"], none["runs"]) == ("diverged", "-", "1\xa0seed, 1\xa0diverged")
    assert (standard["test error"], standard["change"]) == ("20.00%\xa0±\xa00.00", "baseline")
    assert [standard[name] for name in COLUMNS[3:6]] == ["10\xa0ms", "500", "500"]
    assert uniform["to test target"] == "900,\xa0+80.0% (+80.0\xa0to\xa0+80.0), 3\xa0of\xa03\xa0never"
    assert evolutional["change"] == "-75.0% (-75.0\xa0to\xa0-75.0)"
    assert evolutional["to training target"].startswith("300,\xa0-40.0% (")
    assert evolutional["time per step"] == "2\xa0ms"


def test_the_verdict_names_what_differs_by_more_than_chance(outcome):
    assert sentences(outcome) == [
        "3 methods were compared with standard dropout on mnist, 1 to 3 seeds each.",
        "By more than chance, the test error of evolutional is 15.00 points lower (95% interval 15.00 to 15.00) "
        "and that of uniform 30.00 points higher (30.00 to 30.00).",
        "Not judged (diverged): no dropout.",
    ]


def compared(tmp_path, **errors):
    """The sentences on methods with these errors, one for each seed."""
    for method, own in errors.items():
        for seed, error in enumerate(own):
            write_errors(tmp_path, [error], method=method.replace("_", "-"), seed=seed)
    return sentences(outcomes_of(read_curves([tmp_path]))[0])


def test_what_may_be_chance_is_not_called_a_difference(tmp_path):
    assert compared(tmp_path, standard=[0.25, 0.5], uniform=[0.5, 0.25]) == [
        "1 method was compared with standard dropout on mnist, 2 seeds each.",
        "No method's test error differs from it by more than chance.",
    ]


def test_the_verdict_has_three_sentences_whatever_the_methods(tmp_path):
    apart, alike = [0.125, 0.375], [0.5, 0.25]
    few = compared(tmp_path, standard=[0.25, 0.5], uniform=apart, none=alike, evolutional=alike, batchnorm=[0.5])
    assert few[1].startswith("By more than chance, the test error of uniform is 12.50 points lower (95% interval 12.50")
    assert few[2] == (
        "The test error of no dropout and evolutional does not differ by more than chance; "
        "not judged (fewer than two seeds): batchnorm."
    )
    many = compared(tmp_path, batchnorm=alike, gaussian=alike, fast=alike, standout=alike)
    assert many[2:] == ["The test error of the other 6 methods does not differ by more than chance."]


def test_runs_on_their_way_are_not_judged(tmp_path):
    for seed in range(2):
        write_errors(tmp_path, [0.5], seed=seed)
        write_errors(tmp_path, [0.25], "running" if seed else "finished", method="uniform", rate=0.2, seed=seed)
    (outcome,) = outcomes_of(read_curves([tmp_path]))
    assert sentences(outcome) == [
        "1 method was compared with standard dropout with rate 0.5 on mnist, 2 seeds each.",
        "Not judged (unfinished): uniform with rate 0.2.",
    ]
    assert ("not finished", "1 of 4 runs") in limits(outcome)


def test_the_verdict_counts_the_claims_of_a_panel(tmp_path):
    for seed in range(3):
        write_errors(tmp_path, [0.5, 0.25], seed=seed, dataset="20news", network="linear")
        write_errors(
            tmp_path, [0.4, 0.25 - 0.01 * seed], seed=seed, dataset="20news", network="linear", method="data-dependent"
        )
    (outcome,) = outcomes_of(read_curves([tmp_path]), find_panel("fig1-20news"))
    assert [item.verdict for item in outcome.verdicts] == ["holds", "holds", "inconclusive"]
    assert sentences(outcome)[-1] == ("Of 3 claims of the paper, asked of other data, 2 hold and 1 is inconclusive.")


def test_the_summary_is_printed_with_its_verdict_before_and_its_legend_after(outcome):
    text = printed([outcome])
    before, after = text.split("\n\n", 1)
    assert " ".join(before.split()) == " ".join(sentences(outcome))
    assert "dropout on mnist" in after
    for row in cells(outcome):
        assert any(line.startswith(f"│ {row['method']} ") and row["test error"] in line for line in after.splitlines())
    assert legend(outcome) in " ".join(after.split())
    assert "Changes are relative to standard" in legend(outcome)
    assert "claims of the paper" not in text


def test_without_standard_dropout_there_is_nothing_to_compare_with(tmp_path):
    write_errors(tmp_path, [0.4], method="uniform")
    text = printed(outcomes_of(read_curves([tmp_path])))
    assert "One seed: no interval." in text
    assert "1 method ran on mnist, 1 seed each. There is nothing to compare with standard dropout." in text


def test_the_claims_of_a_panel_are_printed_with_their_verdicts(tmp_path):
    for seed in range(2):
        write_realistic(tmp_path, "standard", seed, 6, 0.02)
        write_realistic(tmp_path, "evolutional", seed, 9, 0.02)
    (outcome,) = outcomes_of(read_curves([tmp_path]), find_panel("fig2-mnist"))
    text = " ".join(printed([outcome], width=400).split())
    for verdict in outcome.verdicts:
        assert f"│ {verdict.claim.words} │ {verdict.verdict} │ {verdict.measured} │" in text
    assert "shorter than the protocol: 2 seeds per method, not 3" in text


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
    shown = COLUMNS[: 1 + text.split("┓")[0].count("┳")]
    assert len(shown) >= (len(COLUMNS) if width >= 110 else 4 if width >= 70 else 2)
    for row in cells(outcome):
        assert {word for name in shown for word in row[name].split()} <= words
    for verdict in outcome.verdicts:
        assert set(verdict.verdict.split()) <= words
        assert width < 60 or set(verdict.measured.split()) <= words


def test_the_chosen_rate_is_printed_whatever_it_is(tmp_path):
    write_errors(tmp_path, [0.25])
    for rate, errors in ((0.2, [0.5]), (0.5, [0.25]), (0.9, [None])):
        status = "finished" if errors[0] else "diverged"
        write_errors(tmp_path, errors, status, dataset="validation:mnist", rate=rate)
    write_errors(tmp_path, [None], "diverged", dataset="validation:mnist", rate=0.9, method="gaussian")
    for rate, error in ((0.1, 0.25), (0.2, 0.5), (0.5, 0.6)):
        write_errors(tmp_path, [error], dataset="validation:mnist", rate=rate, method="uniform", epochs=1)
    text = printed(outcomes_of(read_curves([tmp_path])))
    assert [line for line in text.splitlines() if line.startswith("rate of ")] == [
        "rate of gaussian: 0.9, of 1 tried for 20 epochs with one seed; all of them diverged",
        "rate of standard: 0.5, of 3 tried for 20 epochs with one seed; validation error 25.00%",
        "rate of uniform: 0.1, at the edge, of 3 tried for 1 epoch with one seed; validation error 25.00%",
    ]


def test_some_runs_that_diverged_are_not_all(tmp_path):
    write_errors(tmp_path, [0.5, 0.25])
    write_errors(tmp_path, [0.5, None], "diverged", seed=1)
    (row,) = cells(outcomes_of(read_curves([tmp_path]))[0])
    assert (row["test error"], row["training error"]) == ("1 of 2 diverged", "1 of 2 diverged")


def test_a_step_is_timed_by_the_processor_alone(tmp_path):
    write_errors(tmp_path, [0.5], seconds=0.03, cpu_seconds=None)
    (outcome,) = outcomes_of(read_curves([tmp_path]))
    assert (outcome.summaries[0].seconds, cells(outcome)[0]["time per step"]) == (None, "-")
    write_errors(tmp_path, [0.5], seconds=0.03, cpu_seconds=0.01, seed=1)
    (outcome,) = outcomes_of(read_curves([tmp_path]))
    assert (outcome.summaries[0].seconds, cells(outcome)[0]["time per step"]) == (0.01, "10\xa0ms")
    assert legend(outcome).endswith("Time per step: CPU time.")


def test_short_times_have_a_unit_that_suits_them():
    assert [duration(seconds) for seconds in (2.5, 0.0213, 3e-7)] == ["2.5 s", "21.3 ms", "0.3 µs"]


def test_rates_that_were_tried_are_a_table(tmp_path):
    write_errors(tmp_path, [0.25])
    for rate, error in ((0.2, 0.5), (0.5, 0.25)):
        write_errors(tmp_path, [error], dataset="validation:mnist", rate=rate)
    write_errors(tmp_path, [0.125], dataset="validation:mnist", rate=0.2, method="uniform")
    (outcome,) = outcomes_of(read_curves([tmp_path]))
    assert rate_cells(outcome) == [
        {"method": "standard", "rate 0.2": "50.00%", "rate 0.5": "25.00%", "chosen": "0.5"},
        {"method": "uniform", "rate 0.2": "12.50%", "rate 0.5": "-", "chosen": "0.2"},
    ]


def test_a_narrow_terminal_gets_the_first_columns(tmp_path):
    names = ["standard", *(f"method {number}, rate 0.35" for number in range(9))]
    for at, name in enumerate(names):
        for seed in range(3):
            write_errors(tmp_path, [0.4, 0.3 - 0.01 * at - 0.002 * seed], method=name, seed=seed)
    outcome = outcomes_of(read_curves([tmp_path]))[0]
    wide, narrow = (printed([outcome], width, force_terminal=True).split("└")[0] for width in (130, 70))
    assert "target" in wide
    assert "target" not in narrow
    for row in cells(outcome):
        assert sum(row["test error"] in line and line.startswith("│") for line in narrow.splitlines()) >= 1
