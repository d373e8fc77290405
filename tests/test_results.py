"""What the repository says that it measured is what its records say."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from evodrop.lab.claims import CLAIMS
from evodrop.lab.curves import read_curves
from evodrop.lab.experiment import read_description
from evodrop.lab.panels import find_panel
from evodrop.lab.verdicts import outcomes_of, read_verdicts, write_verdicts

RESULTS = Path(__file__).parents[1] / "results"
FOLDERS = sorted(path.parent for path in RESULTS.rglob("experiment.json"))
PANELS = [folder for folder in FOLDERS if json.loads((folder / "experiment.json").read_bytes())["panel"]]


def renew(*options):
    command = [sys.executable, RESULTS.parent / "tools" / "results_page.py", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_page_says_what_the_records_say():
    checked = renew("--check")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_folder_stands_on_the_page_with_its_table():
    page = (RESULTS / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"<!-- made: (\S+) -->", page)) - {"claims"}
    assert named == {str(folder.relative_to(RESULTS)) for folder in FOLDERS}
    assert all((RESULTS / picture).is_file() for picture in re.findall(r"\]\((\S+\.png)\)", page))


def test_a_wrong_number_on_the_page_is_found(tmp_path):
    page = tmp_path / "README.md"
    page.write_text("<!-- made: compare-digits -->\n<!-- end -->\n")
    assert renew(page).returncode == 0
    assert renew(page, "--check").returncode == 0
    page.write_text(page.read_text().replace("baseline", "best", 1))
    assert renew(page, "--check").returncode == 1


@pytest.mark.parametrize("folder", PANELS, ids=lambda folder: str(folder.relative_to(RESULTS)))
def test_kept_verdicts_follow_from_the_records(folder, tmp_path):
    runs, _, panel = read_description(folder)
    curves = read_curves(runs)
    assert {curve.status for curve in curves} <= {"finished", "diverged"}
    (outcome,) = outcomes_of(curves, find_panel(panel))
    assert read_verdicts(folder / "verdicts.json") == {item.claim.id: item.verdict for item in outcome.verdicts}
    write_verdicts(outcome.verdicts, tmp_path / "verdicts.json")  # and so do the words beside them
    assert (tmp_path / "verdicts.json").read_bytes() == (folder / "verdicts.json").read_bytes()
    fewest = 5 if panel.startswith(("fig1-20news", "fig1-reuters52")) else 3
    assert all(len(row.seeds) >= fewest for row in outcome.summaries)


def test_there_is_a_verdict_on_every_claim_whose_data_can_be_had():
    kept = {claim for folder in PANELS for claim in read_verdicts(folder / "verdicts.json")}
    had = ("mnist", "cifar10", "bn", "20news", "reuters52")
    assert kept == {claim.id for claim in CLAIMS if claim.panel.split("-")[1] in had}
