"""What the repository says that it measured is what its records say."""

from __future__ import annotations

import gzip
import json
import math
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from evodrop.lab.claims import CLAIMS
from evodrop.lab.curves import read_curves
from evodrop.lab.experiment import read_description
from evodrop.lab.panels import PANELS
from evodrop.lab.verdicts import outcomes_of, read_verdicts, write_verdicts

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
FOLDERS = sorted(path.parent for path in RESULTS.rglob("runs.jsonl.gz"))
OF_PANELS = [folder for folder in FOLDERS if folder.name in PANELS]
TEXT = ("20news", "reuters52", "rcv1-part")


def name_of(folder):
    return str(folder.relative_to(RESULTS))


def renew(*options):
    command = [sys.executable, ROOT / "tools" / "results_page.py", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@cache
def outcome_of(folder):
    runs, _, panel = read_description(folder)
    (outcome,) = outcomes_of(read_curves(runs), PANELS.get(panel or ""))
    return outcome


def test_the_pages_and_the_figures_say_what_the_records_say():
    checked = renew("--check")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_page_is_short_and_begins_with_the_claims():
    page = (RESULTS / "README.md").read_text(encoding="utf-8")
    assert len(page.splitlines()) <= 150
    assert page.index("| claim |") < page.index("figure1.png") < page.index("figure2.png") < page.index("choice of a")
    rows = re.findall(r"^\| [^|]* \| (?:holds|does not hold|inconclusive|not measured) \|", page, flags=re.MULTILINE)
    assert len(rows) == len(CLAIMS)


def test_every_experiment_and_every_panel_stands_among_the_details():
    page = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    named = set(re.findall(r"<!-- made: (\S+) -->", page))
    assert named == {name_of(folder) for folder in FOLDERS} | set(PANELS)
    assert all((ROOT / "docs" / picture).is_file() for picture in re.findall(r"\]\((\S+\.png)\)", page))


def test_a_wrong_number_on_the_page_is_found(tmp_path):
    page = tmp_path / "README.md"
    page.write_text("<!-- made: compare-digits -->\n<!-- end -->\n")
    assert renew(page).returncode == 0
    assert renew(page, "--check").returncode == 0
    page.write_text(page.read_text().replace("baseline", "best", 1))
    assert renew(page, "--check").returncode == 1


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_an_experiment_is_three_files_whose_verdicts_follow_from_its_records(folder, tmp_path):
    assert sorted(path.name for path in folder.iterdir()) == ["figure.png", "runs.jsonl.gz", "verdicts.json"]
    outcome = outcome_of(folder)
    assert {run.status for run in outcome.runs} <= {"finished", "diverged"}
    assert read_verdicts(folder / "verdicts.json") == {item.claim.id: item.verdict for item in outcome.verdicts}
    _, command, _ = read_description(folder)
    write_verdicts([outcome], tmp_path / "verdicts.json", command, outcome.panel)
    assert (tmp_path / "verdicts.json").read_bytes() == (folder / "verdicts.json").read_bytes()


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_a_line_is_read_without_evodrop(folder):
    """As pandas and DuckDB read it: every line is an object with the fields of its run."""
    with gzip.open(folder / "runs.jsonl.gz", "rt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    run = {"run", "dataset", "network", "method", "seed", "lr", "epochs", "rate", "match"}
    record = {"iteration", "epoch", "lr_now", "clean_error", "test_error", "cpu_seconds"}
    assert all(run | record <= set(line) for line in lines)
    assert all(len(layer["probs"]) <= 16 for line in lines for layer in line["layers"])


def test_the_results_are_small():
    kept = [path for path in RESULTS.rglob("*") if path.is_file() and path.relative_to(RESULTS).parts[0] != "raw"]
    assert len(kept) <= 60
    assert sum(path.stat().st_size for path in kept) <= 12_000_000


def test_there_is_a_verdict_on_every_claim_whose_runs_are_kept():
    kept = {claim for folder in OF_PANELS for claim in read_verdicts(folder / "verdicts.json")}
    assert kept == {claim.id for claim in CLAIMS if (RESULTS / claim.panel).is_dir()}
    assert {f"fig1-{name}{grid}" for name in TEXT for grid in ("", "-papergrid")} <= {path.name for path in OF_PANELS}


# What the page says in words


def test_text_panels_and_mnist_are_those_of_the_protocol():
    for name in TEXT:
        for grid in ("", "-papergrid"):
            assert outcome_of(RESULTS / f"fig1-{name}{grid}").shortened == ()
    mnist = outcome_of(RESULTS / "fig2-mnist")
    assert mnist.shortened == ("step sizes tried: 0.005, not 0.001, 0.005, 0.01, 0.1",)
    assert [len(row.seeds) for row in mnist.summaries[:2]] == [5, 5]


def test_the_papers_method_never_ends_with_a_smaller_test_error_at_steps_that_suit():
    for folder in (folder for folder in OF_PANELS if not folder.name.endswith("papergrid")):
        rows = {row.label: row for row in outcome_of(folder).summaries}
        high = rows[PANELS[folder.name].challenger].test_change[2]
        assert math.isnan(high) or high > 0


def test_less_noise_lowers_the_training_error_sooner_on_text():
    larger = []
    for name in TEXT:
        rows = {row.label: row for row in outcome_of(RESULTS / f"fig1-{name}").summaries}
        assert rows["none"].training_pace[2] < rows["data-dependent"].training_pace[1]
        assert rows["data-dependent"].training_pace[2] < 0
        assert {row.lr for row in rows.values()} <= {5.0, 10.0}
        larger.append(rows["none"].test_change[1] > 0)
    assert sorted(larger) == [False, True, True]


def test_every_method_is_fastest_at_the_largest_step_of_the_papers_grid():
    for name in TEXT:
        assert {row.lr for row in outcome_of(RESULTS / f"fig1-{name}-papergrid").summaries} == {0.1}


def test_units_fall_silent_with_the_papers_method():
    def silent(curves):
        layers = [layer for curve in curves for record in curve.layers for layer in record]
        return sum(layer["dead"] / layer["units"] for layer in layers) / len(layers)

    for folder in (folder for folder in OF_PANELS if folder.name.startswith("fig2-")):
        curves = outcome_of(folder).curves
        assert silent(curves["evolutional"]) > silent(curves["standard"])
