"""A dropout of the user's own in ``evodrop compare``: found by its name, in the workers too, and never mixed up."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from evodrop.lab.experiment import panel_for, rate_trials
from evodrop.lab.methods import _import, import_own, stamped
from evodrop.lab.networks import build_network
from evodrop.lab.panels import Variant
from evodrop.lab.training.network import layer_statistics

SOURCE = """
from torch import nn

NUMBER = 7
class Halving(nn.Dropout):
    def forward(self, input):
        return input * (1 - self.p) if self.training else input
def of_no_layer(p):
    return p
"""
COMMAND = [
    "compare",
    "--methods",
    "standard,mine:Halving",
    "--seeds",
    "1",
    "--epochs",
    "1",
    "--jobs",
    "2",
    "--out",
    "out",
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(SOURCE)
    (tmp_path / "broken.py").write_text("import a_module_that_nobody_has")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    _import.cache_clear()
    sys.modules.pop("mine", None)


def test_it_gets_the_rate_and_stands_in_every_place(folder):
    network = build_network("digits", "mine:Halving", 0.2)
    assert [type(network.dropout1), network.dropout1.p, network.dropout2.p] == [import_own("mine:Halving"), 0.2, 0.2]


def test_its_panel_has_the_name_that_was_typed_and_runs_that_name_the_state_of_its_file(folder):
    panel = panel_for("digits", ["standard", "mine:Halving", "all"], match="noise", rate="0.2")
    own = panel.variants[-1]
    assert own == Variant("mine:Halving", "digits", stamped("mine:Halving"), "draws", 0.2)
    assert own.words == "a dropout of your own"
    assert panel.final_runs(dict.fromkeys((item.label for item in panel.variants), 0.01))[-1].method == own.method
    assert own.method in [run.method for run in rate_trials(panel)]  # its rate can be tuned


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("gone:Halving", "No module named 'gone'"),
        ("mine:Third", "has no attribute 'Third'"),
        ("broken:Halving", "No module named 'a_module_that_nobody_has'"),
        (":Halving", "Empty module name"),
        ("sys:path", "has no attribute '__file__'"),
        ("mine:NUMBER", "it is 7"),
        ("mine:of_no_layer", "to= returned 0.5 for its rate, but it has to return an nn.Module"),
    ],
)
def test_a_name_that_cannot_be_imported_is_one_sentence(folder, name, found):
    with pytest.raises(ValueError, match=r"^(--methods names|convert_dropout: )") as refused:
        panel_for("digits", ["standard", name])
    assert found in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_linear_model_takes_none(folder):
    (folder / "train.svm").write_text("+1 1:1\n-1 2:1\n" * 4)
    with pytest.raises(ValueError, match="'mine:Halving', but those of linear models are none, standard"):
        panel_for("svm:train.svm,train.svm", ["mine:Halving"])


def test_a_worker_with_another_file_refuses(folder):
    with pytest.raises(ValueError, match=r"had the digest 00000000 and has [0-9a-f]{8} here; give the command again"):
        build_network("digits", "mine:Halving@00000000")


def test_what_its_noise_does_is_not_taken_for_that_of_standard_dropout(folder):
    x = torch.rand(8, 5)
    own = layer_statistics("own", import_own("mine:Halving")(0.5), x)
    standard = layer_statistics("standard", nn.Dropout(0.5), x)
    assert (own["noise"], own["kept"]) == (None, None)
    assert standard["noise"] is not None
    np.testing.assert_array_equal(own["probs"], standard["probs"])


def test_the_command_trains_it_in_its_workers_and_trains_it_again_when_its_file_has_changed(folder):
    evodrop = Path(sys.executable).with_name("evodrop")  # a script: the working folder is not on Python's path
    last = {}
    for source in (SOURCE, SOURCE.replace("(1 - self.p)", "0")):
        (folder / "mine.py").write_text(source)
        run = subprocess.run([evodrop, *COMMAND], cwd=folder, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        assert "mine:Halving, step 0.01, seed 0: finished" in run.stderr
        report = json.loads((folder / "out/experiment.json").read_text())
        (own,) = (name for name in report["runs"] if "Halving" in name)
        last[own] = (folder / "out" / own / "records.jsonl").read_text().splitlines()[-1]
        page = (folder / "out/report.html").read_text()
        assert page.count("mine:Halving") > page.count("mine:Halving@") == 1  # where the runs come from
        assert "mine:Halving@" not in run.stdout + run.stderr
    first, second = (json.loads(line) for line in last.values())
    assert first["clean_loss"] != second["clean_loss"]
    both = subprocess.run(
        [evodrop, "report", *(f"out/{name}" for name in last)], cwd=folder, capture_output=True, text=True, check=True
    )
    assert both.stdout.count("mine:Halving@") >= 2  # two states of one file are told apart
