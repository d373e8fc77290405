"""From a question to its report."""

from __future__ import annotations

import io
import json
import os

import numpy as np
import pytest
import sparse_text
from rich.console import Console

from evodrop.experiments.curves import read_curves
from evodrop.experiments.datasets import Images, load
from evodrop.experiments.figures.panels import DEEP_GRID, LINEAR_GRID
from evodrop.experiments.figures.plans import Plan
from evodrop.experiments.methods import LINEAR_METHODS, METHODS, USUAL
from evodrop.experiments.report.cells import RANKED_WORDS, cells_of
from evodrop.experiments.report.reopening import reopen_all
from evodrop.experiments.report.tables import print_findings
from evodrop.experiments.running import comparison, rates
from evodrop.experiments.running.comparison import Question, compare, panel_of
from evodrop.experiments.store import read_records

DIGITS = load("digits")
WORDS = sparse_text.documents()


def labels(panel):
    return [contender.label for contender in panel.contenders]


def test_the_default_is_the_usual_methods_on_the_digits_with_three_seeds():
    panel = panel_of(Question(), DIGITS)
    assert (panel.dataset, panel.network, panel.grid, panel.seeds) == ("digits", "digits", (0.01,), 3)
    assert labels(panel) == list(USUAL)
    runs = [trial.run for trial in Plan(panel, panel.epochs).final(dict.fromkeys(labels(panel), 0.01))]
    assert len({run.id for run in runs}) == 18
    assert {(run.rate, run.match, run.batch_size, run.momentum, run.eval_every) for run in runs} == {
        (0.5, "draws", 128, 0.9, 11)
    }


def test_all_is_every_method_that_finds_its_place(capsys):
    assert labels(panel_of(Question(methods=("all",)), DIGITS)) == list(METHODS)
    assert labels(panel_of(Question("words", methods=("all", "none")), WORDS)) == list(LINEAR_METHODS)
    assert capsys.readouterr().err == ""
    pictures, numbers = np.zeros((2, 3, 32, 32), np.uint8), np.array([0, 1])
    data = Images("cifar10", pictures, numbers, pictures, numbers, 10)
    assert labels(panel_of(Question("cifar10", methods=("all",)), data)) == [
        method for method in METHODS if method != "dropconnect"
    ]
    assert capsys.readouterr().err.startswith("evodrop: dropconnect is left out. convert_dropout: layer 'dropout'")
    with pytest.raises(ValueError, match=r"dropconnect drops the weights of the nn\.Linear or nn\.Conv2d before"):
        panel_of(Question("cifar10", methods=("standard", "dropconnect")), data)


def test_text_is_learned_by_linear_methods():
    panel = panel_of(Question("words", methods=("standard", "evolutional", "data-dependent")), WORDS)
    assert labels(panel) == ["standard", "data-dependent"]
    assert (panel.network, panel.grid, panel.epochs, panel.batch_size) == ("linear", LINEAR_GRID, 10, 1)
    assert labels(panel_of(Question("words"), WORDS)) == list(comparison.TEXT_METHODS)
    assert panel_of(Question("20news"), WORDS).grid == (1.0,)  # known to be good


@pytest.mark.parametrize(
    ("network", "grid"), [("auto", (0.01,)), ("cifar10-bn", (0.001,)), ("cifar10-nobn", (0.001,)), ("svhn", DEEP_GRID)]
)
def test_a_step_is_known_to_be_good_for_a_network_not_for_a_data_set(network, grid):
    pictures, labels = np.zeros((2, 3, 32, 32), np.uint8), np.array([0, 1])
    data = Images("cifar10", pictures, labels, pictures, labels, 10)
    assert panel_of(Question("cifar10", network=network), data).grid == grid


def test_no_epochs_are_not_the_usual_number(tmp_path):
    with pytest.raises(ValueError, match="epochs is 0, but it takes an integer of at least 1"):
        compare(Question(epochs=0), tmp_path / "out", jobs=1)
    assert list(tmp_path.iterdir()) == []


def test_a_match_and_a_rate_are_given_to_the_methods_that_have_them():
    panel = panel_of(Question(rate=0.2, match="noise", lr="grid", epochs=7), DIGITS)
    assert {item.label: (item.rate, item.match) for item in panel.contenders} == {
        "none": (0.5, "draws"),
        "standard": (0.2, "draws"),
        "uniform": (0.2, "noise"),
        "evolutional": (0.2, "noise"),
        "water-filling": (0.2, "noise"),
        "batchnorm": (0.5, "draws"),
    }
    assert (panel.grid, panel.epochs) == (DEEP_GRID, 7)


@pytest.mark.parametrize(
    ("question", "data", "words"),
    [
        (Question(methods=("dropout",)), DIGITS, "method is 'dropout', but those of networks are none, standard"),
        (Question("w", methods=("batchnorm",)), WORDS, "method is 'batchnorm', but those of linear models are none"),
        (Question(network="cifar10"), DIGITS, "the network 'cifar10' takes 3 channels of 24 x 24"),
        (Question(network="lenet"), DIGITS, "network is 'lenet', but it is one of 'digits'"),
        (Question("w", network="mnist"), WORDS, "network is 'mnist', but text is learned by a linear model"),
        (Question(rate="much"), DIGITS, r"rate is 'much', but it is a number in \[0, 1\), or 'tune'"),
        (Question(lr="fast"), DIGITS, "lr is 'fast', but it is a positive number, or 'grid'"),
        (Question(lr="-1"), DIGITS, "lr is '-1'"),
        (Question(lr="inf"), DIGITS, "lr is 'inf'"),
        (Question(rate="tune", match="noise"), DIGITS, "match is 'noise' and rate is 'tune', but a match sets methods"),
        (Question(rate="tune", match="distinct"), DIGITS, "name a rate, or leave the match out"),
    ],
)
def test_what_does_not_go_together_is_refused(question, data, words):
    with pytest.raises(ValueError, match=words):
        panel_of(question, data)


def test_a_comparison_from_end_to_end(tmp_path):
    question = Question(methods=("standard", "evolutional"), seeds=2, epochs=1)
    findings = compare(question, tmp_path / "out", jobs=1, command="evodrop compare [this]")
    (outcome,) = findings.outcomes
    assert [(row.label, row.seeds) for row in outcome.summaries] == [("standard", (0, 1)), ("evolutional", (0, 1))]
    assert outcome.baseline == "standard"
    assert findings.failed == []
    assert "evodrop compare [this]" in findings.report.read_text()
    names = {path.name for path in (tmp_path / "out").iterdir() if path.is_file()}
    assert names == {"experiment.json", "figure.pdf", "figure.png", "report.html"}
    before = findings.report.read_bytes()
    os.remove(findings.report)
    assert compare(question, tmp_path / "out", jobs=1, command="evodrop compare [this]").report.read_bytes() == before


def test_another_question_in_the_same_folder_is_answered_alone(tmp_path, capsys):
    short = Question(methods=("none",), seeds=1, epochs=1)
    for _ in range(2):
        compare(short, tmp_path, jobs=1, command="evodrop compare --methods none")
        assert "another protocol" not in capsys.readouterr().err
    (outcome,) = compare(short._replace(epochs=2, methods=("standard",)), tmp_path, jobs=1).outcomes
    assert [run.method for run in outcome.runs] == ["standard"]
    told = capsys.readouterr().err.splitlines()
    assert told[0] == f"evodrop: {tmp_path} holds runs of another protocol (1), by: evodrop compare --methods none"
    assert told[1].startswith("evodrop: they stay there, and are not in the report of this command")


def test_a_grid_is_searched_with_the_first_seed_alone(tmp_path):
    name = sparse_text.write_pair(tmp_path)
    findings = compare(Question(name, methods=("standard",), seeds=2, epochs=1), tmp_path / "out", jobs=1)
    curves = read_curves([tmp_path / "out"])
    assert sorted(curve.lr for curve in curves if curve.seed == 0) == sorted(LINEAR_GRID)
    (other,) = [curve for curve in curves if curve.seed == 1]
    assert findings.outcomes[0].summaries[0].lr == other.lr == 0.1


def test_a_rate_is_tuned_on_training_data_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(rates, "RATES", (0.2, 0.9))
    question = Question(methods=("none", "standard"), seeds=2, epochs=2, rate="tune")
    findings = compare(question, tmp_path, jobs=1)
    trials = [read_records(folder)[0]["run"] for folder in (tmp_path / "tuning").iterdir()]
    assert {run["dataset"] for run in trials} == {"validation:digits"}
    assert sorted((run["method"], run["rate"], run["epochs"]) for run in trials) == [
        ("standard", 0.2, 1),
        ("standard", 0.9, 1),
    ]
    best = min((curve.test[-5:].mean(), curve.rate) for curve in read_curves([tmp_path / "tuning"]))[1]
    assert {run.rate for run in findings.outcomes[0].runs if run.method == "standard"} == {best}
    assert [row.label for row in findings.outcomes[0].summaries] == [
        "none",
        f"standard{f', rate {best:g}' * (best != 0.5)}",
    ]
    described = json.loads((tmp_path / "experiment.json").read_text())
    assert (len(described["runs"]), len(described["trials"])) == (4, 2)
    (tried,) = findings.outcomes[0].rates
    assert (tried.method, list(tried.errors), tried.chosen) == ("standard", [0.2, 0.9], best)
    page = findings.report.read_text()
    assert all(f"{100 * error:.2f}%" in page for error in tried.errors.values())
    again = reopen_all([tmp_path], tmp_path / "again", "")
    assert again.outcomes[0].rates == findings.outcomes[0].rates


@pytest.mark.parametrize(("seeds", "epochs"), [(3, 100), (3, 5), (1, 10), (1, 9), (2, 2)])
def test_tuning_takes_half_of_the_epochs_at_most(seeds, epochs):
    panel = panel_of(Question(methods=("standard", "evolutional"), seeds=seeds, epochs=epochs, rate="tune"), DIGITS)
    trials = rates._trials(panel)
    for method in ("standard", "evolutional"):
        own = [run.epochs for run in trials if run.method == method]
        assert len(own) >= 2
        assert 0.5 * seeds * epochs - len(own) < sum(own) <= 0.5 * seeds * epochs


def test_tuning_that_cannot_compare_two_rates_is_refused_before_anything_is_written(tmp_path):
    question = Question(methods=("none", "standard"), seeds=1, epochs=3, rate="tune")
    with pytest.raises(ValueError, match="1 seeds of 3 epochs leave 1, and two rates need one each; give more epochs"):
        compare(question, tmp_path / "out", jobs=1)
    assert not (tmp_path / "out").exists()
    compare(question._replace(methods=("none",)), tmp_path / "out", jobs=1)  # which has no rate


def test_all_methods_are_tuned_alike_and_ranked(tmp_path, monkeypatch):
    monkeypatch.setattr(rates, "RATES", (0.2, 0.5))
    findings = compare(Question(methods=("all",), seeds=1, epochs=4, rate="tune"), tmp_path, jobs=1)
    (outcome,), rated = findings.outcomes, [method for method in METHODS if METHODS[method].uses_rate]
    assert findings.failed == []
    assert [tried.method for tried in outcome.rates] == rated
    assert all(list(tried.errors) == [0.2, 0.5] for tried in outcome.rates)
    assert {item.method: item.rate for item in outcome.contenders if item.method in rated} == {
        tried.method: tried.chosen for tried in outcome.rates
    }
    errors = {row.label: row.test_error.mean for row in outcome.summaries}
    ranked = [errors[row.label] for row in cells_of(outcome)]
    assert ranked == sorted(errors.values())
    assert len(ranked) == len(METHODS)
    page, printed = findings.report.read_text(), io.StringIO()
    print_findings(findings.outcomes, Console(file=printed))
    assert RANKED_WORDS in page
    assert "The least test error comes first" in printed.getvalue()


def test_a_failed_run_is_told_and_the_rest_is_reported(tmp_path, monkeypatch):
    from evodrop.experiments import runner

    whole = runner.records_of

    def records_of(run, *rest):
        if run.seed == 1:
            raise MemoryError("no room")
        return whole(run, *rest)

    monkeypatch.setattr(runner, "records_of", records_of)
    findings = compare(Question(methods=("standard",), seeds=2, epochs=1), tmp_path / "some", jobs=1)
    assert [(ending.run.seed, ending.error) for ending in findings.failed] == [(1, "MemoryError: no room")]
    assert findings.outcomes[0].summaries[0].seeds == (0,)
    monkeypatch.setattr(runner, "records_of", lambda *_: 1 / 0)
    with pytest.raises(ValueError, match="none of the 1 runs came to its end"):
        compare(Question(methods=("standard",), seeds=1, epochs=1), tmp_path / "none", jobs=1)
