"""The command, run as a user runs it."""

from __future__ import annotations

import bz2
import subprocess
import sys

import numpy as np
import pytest

from evodrop import cli
from evodrop.linear import iter_svmlight
from evodrop.theory import report

LINES = "+1 1:3 3:1\n-1 2:1 # a comment\n\n+1 1:1 4:0.5\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path


def test_theory_prints_the_report_of_a_file_and_draws_it(folder, capsys):
    (folder / "train.svm.bz2").write_bytes(bz2.compress(LINES.encode()))
    with pytest.raises(SystemExit, match=r"^0$"):
        cli.main(["theory", "train.svm.bz2", "--rate", "0.25"])
    printed = capsys.readouterr().out
    (X, _), *_ = iter_svmlight("train.svm.bz2")
    prediction = report(X, 0.25)
    assert printed.startswith("3 examples x 4 units, rate 0.25, k = 3 draws")
    for row in prediction.predictions:
        line = next(line for line in printed.splitlines() if line.startswith(f"{row.noise} "))
        np.testing.assert_allclose(float(line.split()[1]), row.squared_norm, rtol=1e-3)
    assert printed.splitlines()[-1] == "plot: train-theory.png"
    assert (folder / "train-theory.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in folder.iterdir()) == ["train-theory.png", "train.svm.bz2"]


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("", [], "holds no example"),
        ("# nothing\n", [], "holds no example"),
        ("1:0.5 2:1\n", [], "line 1: the line begins with '1:0.5', but a label is one finite number"),
        ("+1 0:1\n", [], "--zero-based"),
        ("+1\n-1\n", [], "X or its squares are 0 in all of its 2 examples"),
        ("+1 1:nan\n", [], "not a finite number"),
        (LINES, ["--rate", "1"], "dropout rate is 1.0, but it takes a number in [0, 1)"),
        (LINES, ["--radius", "0"], "--radius is 0.0, but the norm of the weights is a finite number above 0"),
        (LINES, ["--plot", "x.gif"], "one of .png, .pdf, .svg"),
        (LINES, ["--plot", "nowhere/x.png"], "there is no folder 'nowhere'"),
        (None, [], "there is no file 'data.svm'; check its name, or give the whole path"),
    ],
)
def test_theory_says_what_is_wrong_in_one_line_and_writes_nothing(folder, text, options, words):
    if text is not None:
        (folder / "data.svm").write_text(text)
    with pytest.raises(SystemExit) as stop:
        cli.main(["theory", "data.svm", *options])
    assert str(stop.value.code).startswith("evodrop: ")
    assert words in str(stop.value.code)
    assert {path.name for path in folder.iterdir()} <= {"data.svm"}


def test_the_command_runs_as_a_module_and_by_its_name(folder):
    run = subprocess.run([sys.executable, "-m", "evodrop", "--help"], capture_output=True, text=True, check=True)
    assert "theory" in run.stdout


def test_without_its_extra_the_command_says_what_to_install():
    code = "import sys; sys.modules['typer'] = None; import evodrop.cli"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (1, "the command evodrop needs its extra: install evodrop[lab]\n")


def test_help_answers_without_loading_a_room():
    code = (
        "import sys; from evodrop import cli\ntry: cli.main(['--help'])\nexcept SystemExit: pass\n"
        "print([name for name in ('torch', 'numpy', 'sklearn', 'matplotlib', 'joblib') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "[]"
