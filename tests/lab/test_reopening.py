"""Reports made again, from records and descriptions that anybody may have written."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from synthetic import write_errors

from evodrop.lab import reopening
from evodrop.lab.experiment import reopen, reopen_all


def test_a_description_cannot_name_the_folder_around_its_own(tmp_path):
    own = tmp_path / "own"
    run = write_errors(own, [0.5, 0.4], method="standard")
    (tmp_path / "records.jsonl").write_bytes((run / "records.jsonl").read_bytes())
    known = {"command": "c", "panel": None, "runs": ["..", ".", "", run.name]}
    (own / "experiment.json").write_text(json.dumps(known))
    assert reopen(own)[0] == [run]


@pytest.mark.parametrize("panel", [[], {}, 3, "fig9"])
def test_a_description_with_a_panel_that_is_none_is_damaged(tmp_path, panel):
    (tmp_path / "experiment.json").write_text(json.dumps({"command": "c", "panel": panel, "runs": []}))
    with pytest.raises(ValueError, match=r"experiment\.json is damaged; remove it"):
        reopen(tmp_path)


def test_records_are_read_and_judged_once(tmp_path, monkeypatch):
    run, calls = write_errors(tmp_path, [0.5, 0.4], method="standard"), []
    for module in sys.modules.copy().values():
        if getattr(module, "__name__", "").startswith("evodrop.") and hasattr(module, "read_curves"):
            whole = module.read_curves
            monkeypatch.setattr(module, "read_curves", lambda given, whole=whole: calls.append(given) or whole(given))
    assert "read_curves" in vars(reopening)
    reopen_all([run], tmp_path, "evodrop report")
    assert calls == [[run]]


def test_a_report_needs_no_torch(tmp_path):
    write_errors(tmp_path, [0.5, 0.4], method="standard")
    code = f"import sys; sys.modules['torch'] = None\nfrom evodrop import cli\ncli.main(['report', {str(tmp_path)!r}])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.splitlines()[-1] == f"report: {tmp_path / 'report.html'}"
