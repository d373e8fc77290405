"""A panel from its runs to its report, and the report made again from what anybody may have written."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import subprocess
import sys

import pytest
from helpers import sparse_text
from helpers.synthetic import write_errors
from rich.console import Console

from evodrop.lab import experiment, runner, training
from evodrop.lab.claims import CLAIMS
from evodrop.lab.curves import read_curves
from evodrop.lab.data import DataError
from evodrop.lab.experiment import carry_out, panel_for, rate_trials, read_description, reopen
from evodrop.lab.methods import METHODS
from evodrop.lab.panels import LINEAR_GRID, find_panel
from evodrop.lab.report import RANKED, cells, show
from evodrop.lab.store import LockedError, locked, read_records
from evodrop.lab.verdicts import no_longer_held, read_verdicts

NEWS = find_panel("fig1-20news")
QUICK = NEWS.cut(epochs=1, quick=True)
SHORT = panel_for("digits", ["standard"], seeds=1, epochs=1)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder of made-up text that passes for 20 Newsgroups."""
    folder = tmp_path_factory.mktemp("data")
    sparse_text.write_packed(folder / "20news")
    training._load.cache_clear()
    return folder


@pytest.fixture(scope="module")
def done(data):
    """A quick reproduction, and its folder."""
    out = data / "out"
    outcomes, failed = carry_out(QUICK, out, data=data, jobs=1, command="evodrop reproduce fig1-20news --quick")
    assert failed == []
    return outcomes, out


def test_a_comparison_from_end_to_end(tmp_path):
    panel = panel_for("digits", ["standard", "evolutional"], seeds=2, epochs=1)
    report = tmp_path / "out" / "report.html"
    (outcome,), failed = carry_out(panel, tmp_path / "out", jobs=1, command="evodrop compare [this]")
    assert [(row.label, row.seeds) for row in outcome.summaries] == [("standard", (0, 1)), ("evolutional", (0, 1))]
    assert outcome.baseline == "standard"
    assert failed == []
    assert "evodrop compare [this]" in report.read_text()
    names = {path.name for path in (tmp_path / "out").iterdir() if path.is_file()}
    assert names == {"experiment.json", "figure.pdf", "figure.png", "report.html"}
    before = report.read_bytes()
    os.remove(report)
    carry_out(panel, tmp_path / "out", jobs=1, command="evodrop compare [this]")
    assert report.read_bytes() == before


def test_another_question_in_the_same_folder_is_answered_alone(tmp_path):
    carry_out(panel_for("digits", ["none"], seeds=1, epochs=1), tmp_path, jobs=1)
    (outcome,), _ = carry_out(panel_for("digits", ["standard"], seeds=1, epochs=2), tmp_path, jobs=1)
    assert [run.method for run in outcome.runs] == ["standard"]
    assert len(read_curves([tmp_path])) == 2  # the other run stays


def test_no_epochs_are_not_the_usual_number(tmp_path):
    with pytest.raises(ValueError, match="epochs is 0, but it takes an integer of at least 1"):
        carry_out(panel_for("digits", epochs=0), tmp_path / "out", jobs=1)
    assert list(tmp_path.iterdir()) == []


def test_a_grid_is_searched_with_the_first_seed_alone(tmp_path):
    name = sparse_text.write_pair(tmp_path)
    (outcome,), _ = carry_out(panel_for(name, ["standard"], seeds=2, epochs=1), tmp_path / "out", jobs=1)
    curves = read_curves([tmp_path / "out"])
    assert sorted(curve.lr for curve in curves if curve.seed == 0) == sorted(LINEAR_GRID)
    (other,) = [curve for curve in curves if curve.seed == 1]
    assert outcome.summaries[0].lr == other.lr == 0.1


def test_a_rate_is_tuned_on_training_data_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(experiment, "RATES", (0.2, 0.9))
    panel = panel_for("digits", ["none", "standard"], seeds=2, epochs=2, rate="tune")
    (outcome,), _ = carry_out(panel, tmp_path, jobs=1, tune_rates=True)
    trials = [curve for curve in read_curves([tmp_path]) if curve.dataset == "validation:digits"]
    assert sorted((curve.method, curve.rate, curve.epochs) for curve in trials) == [
        ("standard", 0.2, 1),
        ("standard", 0.9, 1),
    ]
    headers = [read_records(curve.folder)[0] for curve in trials]
    assert {header["run"]["dataset"] for header in headers} == {"validation:digits"}
    best = min((curve.test[-5:].mean(), curve.rate) for curve in trials)[1]
    assert {run.rate for run in outcome.runs if run.method == "standard"} == {best}
    assert [row.label for row in outcome.summaries] == ["none", "standard"]  # one rate, said in its table
    assert len(json.loads((tmp_path / "experiment.json").read_text())["runs"]) == 6
    ((method, tried),) = outcome.rates.items()
    assert (method, tried[0].rate, sorted(trial.rate for trial in tried)) == ("standard", best, [0.2, 0.9])
    page = (tmp_path / "report.html").read_text()
    assert all(f"{100 * trial.test[-5:].mean():.2f}%" in page for trial in tried)
    reopen([tmp_path], tmp_path / "again", "")
    assert (tmp_path / "again" / "report.html").read_text() == page


@pytest.mark.parametrize(("seeds", "epochs"), [(3, 100), (3, 5), (1, 10), (1, 9), (2, 2)])
def test_tuning_takes_half_of_the_epochs_at_most(seeds, epochs):
    trials = rate_trials(panel_for("digits", ["standard", "evolutional"], seeds=seeds, epochs=epochs))
    for method in ("standard", "evolutional"):
        own = [run.epochs for run in trials if run.method == method]
        assert len(own) >= 2
        assert 0.5 * seeds * epochs - len(own) < sum(own) <= 0.5 * seeds * epochs


def test_tuning_that_cannot_compare_two_rates_is_refused_before_anything_is_written(tmp_path):
    panel = panel_for("digits", ["none", "standard"], seeds=1, epochs=3)
    with pytest.raises(ValueError, match="with 1 seed of 3 epochs that is 1, but two rates need one each; give more"):
        carry_out(panel, tmp_path / "out", jobs=1, tune_rates=True)
    assert not (tmp_path / "out").exists()
    none = panel_for("digits", ["none"], seeds=1, epochs=3)  # which has no rate
    assert carry_out(none, tmp_path / "out", jobs=1, tune_rates=True)[1] == []


def test_all_methods_are_tuned_alike_and_ranked(tmp_path, monkeypatch):
    monkeypatch.setattr(experiment, "RATES", (0.2, 0.5))
    panel = panel_for("digits", ["all"], seeds=1, epochs=4, rate="tune")
    (outcome,), failed = carry_out(panel, tmp_path, jobs=1, tune_rates=True)
    rated = [method for method in METHODS if METHODS[method].uses_rate]
    assert failed == []
    assert sorted(outcome.rates) == sorted(rated)
    assert all(sorted(trial.rate for trial in tried) == [0.2, 0.5] for tried in outcome.rates.values())
    assert {item.method: item.rate for item in outcome.variants if item.method in rated} == {
        method: tried[0].rate for method, tried in outcome.rates.items()
    }
    errors = {row.label: row.test_error[0] for row in outcome.summaries}
    ranked = [errors[row["method"]] for row in cells(outcome)]
    assert ranked == sorted(errors.values())
    assert len(ranked) == len(METHODS)
    page, printed = (tmp_path / "report.html").read_text(), io.StringIO()
    show([outcome], Console(file=printed))
    assert RANKED in page
    assert "The least test error comes first" in printed.getvalue()


def test_a_failed_run_is_told_and_the_rest_is_reported(tmp_path, monkeypatch):
    whole = runner.training_for

    def training_for(run, data):
        if run.seed == 1:
            raise MemoryError("no room")
        return whole(run, data)

    monkeypatch.setattr(runner, "training_for", training_for)
    (outcome,), failed = carry_out(dataclasses.replace(SHORT, seeds=2), tmp_path / "some", jobs=1)
    assert [(result.run.seed, result.error) for result in failed] == [(1, "MemoryError: no room")]
    assert outcome.summaries[0].seeds == (0,)
    monkeypatch.setattr(runner, "training_for", lambda *_: 1 / 0)
    with pytest.raises(ValueError, match="none of the 1 runs came to its end"):
        carry_out(SHORT, tmp_path / "none", jobs=1)


@pytest.mark.parametrize("tune_rates", [False, True])
def test_a_second_command_is_refused_before_it_has_written_anything(tmp_path, tune_rates):
    (tmp_path / "experiment.json").write_text("of the first command")
    with locked(tmp_path):
        with pytest.raises(LockedError, match="is being written by process"):
            carry_out(dataclasses.replace(SHORT, epochs=4), tmp_path, jobs=1, tune_rates=tune_rates)
        assert sorted(os.listdir(tmp_path)) == ["experiment.json", "lock"]
    assert (tmp_path / "experiment.json").read_text() == "of the first command"


def test_the_folder_is_held_until_the_report_is_written(tmp_path, monkeypatch):
    held, whole = [], experiment.write_findings

    def write_findings(folders, out, *rest):
        with pytest.raises(LockedError):
            locked(out).__enter__()
        held.append(out)
        return whole(folders, out, *rest)

    monkeypatch.setattr(experiment, "write_findings", write_findings)
    carry_out(dataclasses.replace(SHORT, epochs=4), tmp_path, jobs=1, tune_rates=True)
    assert held == [tmp_path]
    with locked(tmp_path):  # and free afterwards
        pass


def test_a_panel_of_the_paper_from_end_to_end(done):
    (outcome,), out = done
    assert [row.label for row in outcome.summaries] == [variant.label for variant in NEWS.variants]
    assert all(row.seeds == (0, 1) for row in outcome.summaries)
    assert [verdict.claim for verdict in outcome.verdicts] == [claim for claim in CLAIMS if claim.panel == NEWS.id]
    assert outcome.shortened == (
        "1 epoch per run, not 30",
        "2 seeds per method, not 10",
        "step sizes tried: 1, not 0.1, 0.5, 1, 5, 10, 50",
    )
    assert read_verdicts(out / "verdicts.json") == {item.claim.id: item.verdict for item in outcome.verdicts}
    assert (out / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert len(read_curves([out])) == 2 * len(NEWS.variants)


def test_the_report_can_be_made_again_from_the_folder_alone(done, tmp_path):
    _, out = done
    assert read_description(out) == ([out], "evodrop reproduce fig1-20news --quick", NEWS.id)
    reopen([out], tmp_path, "another command")
    assert (tmp_path / "report.html").read_bytes() == (out / "report.html").read_bytes()
    (single,) = reopen([read_curves([out])[0].folder], tmp_path, "evodrop report <one>")
    assert "evodrop report &lt;one&gt;" in (tmp_path / "report.html").read_text()
    assert single.panel is None


def test_a_report_covers_the_finished_runs_of_the_panel_by_whichever_command(data, tmp_path):
    some = QUICK.cut(methods=("water-filling", "standard"))
    (outcome,), _ = carry_out(some, tmp_path, data=data, jobs=1)
    assert [row.label for row in outcome.summaries] == ["standard", "water-filling"]
    assert {item.verdict for item in outcome.verdicts} == {"not measured"}
    assert outcome.shortened[-1] == "not run: data-dependent, data-dependent, matched noise, none"
    (run, *_) = [curve.folder for curve in read_curves([tmp_path]) if curve.method == "standard"]
    lines = (run / "records.jsonl").read_text().splitlines(True)
    for name, kept in (("stranger", [lines[0].replace('"standard"', '"uniform"'), *lines[1:]]), ("begun", lines[:-1])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "records.jsonl").write_text("".join(kept))
    (outcome,), _ = carry_out(QUICK.cut(methods=("data-dependent",), seeds=3), tmp_path, data=data, jobs=1)
    seeds = {row.label: row.seeds for row in outcome.summaries}
    assert seeds == {"standard": (0, 1), "data-dependent": (0, 1, 2), "water-filling": (0, 1)}
    assert "not measured" not in {item.verdict for item in outcome.verdicts}
    assert outcome.summaries[1].pairs == 2


def test_claims_that_held_and_hold_no_longer_are_told(done):
    (outcome,), _ = done
    held = {item.claim.id: "holds" for item in outcome.verdicts}
    lost = [item for item in outcome.verdicts if item.verdict not in ("holds", "not measured")]
    assert lost
    for item, words in zip(lost, no_longer_held(outcome.verdicts, held), strict=True):
        assert item.claim.words in words
        assert words.endswith(f"Now: {item.verdict}; {item.measured}")
    assert no_longer_held(outcome.verdicts, {}) == []


def test_data_that_are_missing_are_an_error_that_says_how_to_get_them(tmp_path):
    with pytest.raises(DataError, match="Get it by: evodrop data get svhn"):
        carry_out(find_panel("fig2-svhn").cut(quick=True), tmp_path / "out", data=tmp_path, jobs=1)


@pytest.mark.parametrize("contents", ["", "[]", '{"command": "c"}', '{"command": "c", "panel": null, "runs": 3}'])
def test_a_damaged_description_is_told(tmp_path, contents):
    (tmp_path / "experiment.json").write_text(contents)
    with pytest.raises(ValueError, match=r"experiment\.json is damaged; remove it"):
        read_description(tmp_path)


@pytest.mark.parametrize("panel", [[], {}, 3, "fig9"])
def test_a_description_with_a_panel_that_is_none_is_damaged(tmp_path, panel):
    (tmp_path / "experiment.json").write_text(json.dumps({"command": "c", "panel": panel, "runs": []}))
    with pytest.raises(ValueError, match=r"experiment\.json is damaged; remove it"):
        reopen([tmp_path], tmp_path, "")


def test_a_description_cannot_point_outside_its_folder(done, tmp_path):
    _, out = done
    run = read_curves([out])[0].folder
    inside = tmp_path / run.name
    inside.mkdir()
    (inside / "records.jsonl").write_bytes((run / "records.jsonl").read_bytes())
    known = {"command": "c", "panel": None, "runs": [str(run), f"../{run.name}", run.name]}
    (tmp_path / "experiment.json").write_text(json.dumps(known))
    assert read_description(tmp_path)[0] == [inside]


def test_a_description_cannot_name_the_folder_around_its_own(tmp_path):
    own = tmp_path / "own"
    run = write_errors(own, [0.5, 0.4], method="standard")
    (tmp_path / "records.jsonl").write_bytes((run / "records.jsonl").read_bytes())
    known = {"command": "c", "panel": None, "runs": ["..", ".", "", run.name]}
    (own / "experiment.json").write_text(json.dumps(known))
    assert read_description(own)[0] == [run]


def test_records_are_read_and_judged_once(tmp_path, monkeypatch):
    run, calls = write_errors(tmp_path, [0.5, 0.4], method="standard"), []
    for module in sys.modules.copy().values():
        if getattr(module, "__name__", "").startswith("evodrop.") and hasattr(module, "read_curves"):
            whole = module.read_curves
            monkeypatch.setattr(module, "read_curves", lambda given, whole=whole: calls.append(given) or whole(given))
    assert "read_curves" in vars(experiment)
    reopen([run], tmp_path, "evodrop report")
    assert calls == [[run]]


def test_a_report_needs_no_torch(tmp_path):
    write_errors(tmp_path, [0.5, 0.4], method="standard")
    code = (
        f"import sys; sys.modules['torch'] = None\nfrom evodrop.lab import cli\ncli.main(['report', {str(tmp_path)!r}])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.splitlines()[-1] == f"report: {tmp_path / 'report.html'}"
