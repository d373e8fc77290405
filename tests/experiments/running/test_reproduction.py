"""Panels of the paper, rerun on a folder of made-up text that passes for 20 Newsgroups."""

from __future__ import annotations

import json

import pytest
import sparse_text

from evodrop.experiments import training
from evodrop.experiments.claims.statements import claims_of
from evodrop.experiments.claims.verdicts import read_verdicts
from evodrop.experiments.curves import read_curves
from evodrop.experiments.datasets import DataError
from evodrop.experiments.figures.panels import PANELS, find_panel
from evodrop.experiments.figures.plans import runs_of
from evodrop.experiments.report.reopening import reopen, reopen_all
from evodrop.experiments.running import reproduction
from evodrop.experiments.running.reproduction import Extent, gone_back_on, list_panels, panels_named, reproduce

NEWS = find_panel("fig1-20news")
QUICK = Extent(epochs=1, quick=True)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    sparse_text.write_packed(folder / "20news")
    training._load.cache_clear()
    return folder


@pytest.fixture(scope="module")
def done(data):
    """A quick reproduction, and its folder."""
    out = data / "out"
    return reproduce(NEWS, QUICK, out, data=data, jobs=1, command="evodrop reproduce fig1-20news --quick"), out


def test_a_panel_from_end_to_end(done):
    findings, out = done
    (outcome,) = findings.outcomes
    assert [row.label for row in outcome.summaries] == [contender.label for contender in NEWS.contenders]
    assert all(row.seeds == (0, 1) for row in outcome.summaries)
    assert [judgement.claim for judgement in outcome.judgements] == claims_of(NEWS.id)
    assert outcome.shortened == (
        "1 epoch a run, not 30",
        "2 seeds a contender, not 10",
        "step sizes tried: 1, not 0.1, 0.5, 1, 5, 10, 50",
    )
    assert read_verdicts(out / "verdicts.json") == {item.claim.id: item.verdict for item in outcome.judgements}
    assert (out / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert len(read_curves([out])) == 10


def test_the_report_can_be_made_again_from_the_folder_alone(done, tmp_path):
    findings, out = done
    folders, command, panel, trials = reopen(out)
    assert trials == ()
    assert (folders, command, panel) == ([out], "evodrop reproduce fig1-20news --quick", NEWS)
    again = reopen_all([out], tmp_path, "another command")
    assert again.report.read_bytes() == findings.report.read_bytes()
    single = reopen_all([read_curves([out])[0].folder], tmp_path, "evodrop report <one>")
    assert "evodrop report &lt;one&gt;" in single.report.read_text()
    assert single.outcomes[0].panel is None


def test_a_report_covers_the_finished_runs_of_the_panel_by_whichever_command(data, tmp_path):
    some = QUICK._replace(methods=("water-filling", "standard"))
    findings = reproduce(NEWS, some, tmp_path, data=data, jobs=1)
    assert [row.label for row in findings.outcomes[0].summaries] == ["standard", "water-filling"]
    assert {item.verdict for item in findings.outcomes[0].judgements} == {"not measured"}
    assert findings.outcomes[0].shortened[-1] == "not run: data-dependent, data-dependent, matched noise, none"
    (run, *_) = [curve.folder for curve in read_curves([tmp_path]) if curve.method == "standard"]
    lines = (run / "records.jsonl").read_text().splitlines(True)
    for name, kept in (("stranger", [lines[0].replace('"standard"', '"uniform"'), *lines[1:]]), ("begun", lines[:-1])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "records.jsonl").write_text("".join(kept))
    more = reproduce(NEWS, QUICK._replace(methods=("data-dependent",), seeds=3), tmp_path, data=data, jobs=1)
    (outcome,) = more.outcomes
    seeds = {row.label: row.seeds for row in outcome.summaries}
    assert seeds == {"standard": (0, 1), "data-dependent": (0, 1, 2), "water-filling": (0, 1)}
    assert "not measured" not in {item.verdict for item in outcome.judgements}
    assert outcome.summaries[1].test_change.n == 2


def test_methods_that_a_panel_lacks_are_named():
    with pytest.raises(ValueError, match=r"methods name 'gaussian', but those of fig1-bn are plain, bn, bn-standard, "):
        runs_of(find_panel("fig1-bn"), methods=("bn", "gaussian"))
    with pytest.raises(ValueError, match="methods name none"):
        runs_of(NEWS, methods=())


@pytest.mark.parametrize("panel", PANELS.values(), ids=PANELS)
def test_names_of_methods_fit_a_list_with_commas(panel):
    names = [contender.name for contender in panel.contenders]
    assert len(set(names)) == len(names)
    assert not any(set(name) & set(", ") for name in names)


@pytest.mark.parametrize("contents", ["", "[]", '{"command": "c"}', '{"command": "c", "panel": null, "runs": 3}'])
def test_a_damaged_description_is_told(tmp_path, contents):
    (tmp_path / "experiment.json").write_text(contents)
    with pytest.raises(ValueError, match=r"experiment\.json is damaged; remove it"):
        reopen(tmp_path)


def test_a_description_cannot_point_outside_its_folder(done, tmp_path):
    _, out = done
    run = read_curves([out])[0].folder
    inside = tmp_path / run.name
    inside.mkdir()
    (inside / "records.jsonl").write_bytes((run / "records.jsonl").read_bytes())
    known = {"command": "c", "panel": None, "runs": [str(run), f"../{run.name}", run.name]}
    (tmp_path / "experiment.json").write_text(json.dumps(known))
    assert reopen(tmp_path)[0] == [inside]


def test_claims_that_held_and_hold_no_longer_are_told(done, tmp_path):
    findings, _ = done
    assert reproduction.kept_verdicts([NEWS], tmp_path) == {}
    (tmp_path / NEWS.id).mkdir()
    verdicts = {item.claim.id: {"verdict": "holds", "measured": ""} for item in findings.outcomes[0].judgements}
    (tmp_path / NEWS.id / "verdicts.json").write_text(json.dumps(verdicts))
    lost = [item for item in findings.outcomes[0].judgements if item.verdict not in ("holds", "not measured")]
    kept = reproduction.kept_verdicts([NEWS, find_panel("fig2-svhn")], tmp_path)
    assert list(kept) == [NEWS.id]
    assert gone_back_on(findings, kept[NEWS.id]) == lost
    assert gone_back_on(findings, {}) == []
    (tmp_path / NEWS.id / "verdicts.json").write_text("")
    with pytest.raises(ValueError, match="holds no verdicts"):
        reproduction.kept_verdicts([NEWS], tmp_path)


def test_missing_data_are_told_before_a_folder_is_made(tmp_path):
    with pytest.raises(DataError, match="Get it by: evodrop data get svhn"):
        reproduce(find_panel("fig2-svhn"), QUICK, tmp_path / "out", data=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_all_is_every_panel_whose_data_are_there(data):
    present, absent = panels_named("all", data)
    assert present == [NEWS, find_panel("fig1-20news-papergrid")]
    assert len(absent) == len(PANELS) - 2
    assert panels_named("fig2-svhn", data) == ([find_panel("fig2-svhn")], [])
    with pytest.raises(ValueError, match="there is no panel 'fig3'"):
        panels_named("fig3", data)


def test_the_list_says_what_each_panel_takes(data):
    entries = {entry.panel.id: entry for entry in list_panels(Extent(), data)}
    assert list(entries) == list(PANELS)
    runs, epochs = 5 * 6 + 5 * 9, PANELS["fig1-20news"].epochs
    assert entries["fig1-20news"][1:] == ("present", runs, runs * epochs * 11_293)
    assert entries["fig2-svhn"][1:3] == ("downloadable", 4 * 4 + 4 * 2)
    assert entries["fig1-reuters52"].data == "missing"
    assert entries["fig1-bn"].runs == 6 * 3
    short = {entry.panel.id: entry for entry in list_panels(Extent(epochs=2, seeds=1, grid=(0.01,)), data)}
    assert short["fig2-mnist"][2:] == (4, 4 * 2 * (60_000 // 128))
