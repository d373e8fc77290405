"""The command, run as a user runs it."""

from __future__ import annotations

import bz2
import json
import subprocess
import sys

import numpy as np
import pytest
from helpers import sparse_text

from evodrop.lab import cli, runner
from evodrop.lab.data import DATASETS
from evodrop.lab.panels import PANELS, find_panel
from evodrop.linear import iter_svmlight
from evodrop.theory import report

LINES = "+1 1:3 3:1\n-1 2:1 # a comment\n\n+1 1:1 4:0.5\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path


COMPARE = ["compare", "--methods", "standard,evolutional", "--seeds", "1", "--epochs", "1", "--jobs", "1"]


def answer(capsys, *words):
    """Exit code, output and errors of a command."""
    with pytest.raises(SystemExit) as stop:
        cli.main(list(words))
    printed = capsys.readouterr()
    code = stop.value.code
    return (1, printed.out, printed.err + code) if isinstance(code, str) else (code or 0, printed.out, printed.err)


def test_compare_ends_with_the_path_of_its_report(folder, capsys):
    code, out, err = answer(capsys, *COMPARE)
    assert code == 0
    assert out.splitlines()[-1] == "report: runs/compare-digits/report.html"
    assert "[2/2] evolutional, step 0.01, seed 0: finished" in err
    assert "dropout on digits" in out
    assert "Changes are relative to standard" in out
    assert "Dropout" not in err
    page = (folder / "runs/compare-digits/report.html").read_text()
    assert "evodrop" in page


def test_report_makes_the_page_again(folder, capsys):
    answer(capsys, *COMPARE, "--out", "here")
    page = (folder / "here/report.html").read_bytes()
    (folder / "here/report.html").unlink()
    code, out, _ = answer(capsys, "report", "here")
    assert (code, out.splitlines()[-1]) == (0, "report: here/report.html")
    assert (folder / "here/report.html").read_bytes() == page
    (run, *_) = sorted((folder / "here").glob("digits-*"))
    for folder_of_report in ("here", "new/one"):
        code, out, _ = answer(capsys, "report", str(run), "--out", folder_of_report)
        assert (code, out.splitlines()[-1]) == (0, f"report: {folder_of_report}/report.html")


def test_a_run_that_fails_makes_the_exit_code_1_and_the_rest_is_reported(folder, capsys, monkeypatch):
    whole = runner.training_for
    monkeypatch.setattr(
        runner, "training_for", lambda run, data: whole(run, data) if run.method == "standard" else 1 / 0
    )
    code, out, err = answer(capsys, *COMPARE)
    assert code == 1
    assert "evodrop: evolutional, step 0.01, seed 0 failed: ZeroDivisionError: division by zero" in err
    assert out.splitlines()[-1] == "report: runs/compare-digits/report.html"


def test_ctrl_c_is_one_line(folder, capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "keep_records", interrupted)
    code, out, err = answer(capsys, *COMPARE)
    assert (code, out, err) == (130, "", "\nevodrop: stopped; the same command goes on from here\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["compare", "--dataset", "nonsense"], "there is no data set 'nonsense'; there are digits, mnist"),
        (["compare", "--dataset", "svm:a,b"], "a is not there, or is not a file"),
        (["compare", "--methods", "dropout"], "--methods names 'dropout', but those of networks are none, standard"),
        (["compare", "--methods", " , "], "--methods names none; name some of none, standard"),
        (["compare", "--rate", "1"], "--rate is '1', but it is a number in [0, 1), or 'tune'"),
        (["compare", "--match", "luck"], "--match is 'luck', but it is one of draws, distinct, noise"),
        (["compare", "--dataset", "mnist", "--data", "."], "Get it by: evodrop data get mnist"),
        (["reproduce", "fig3"], "there is no panel 'fig3'; the panels are fig1-real-sim"),
        (["reproduce", "fig2-mnist", "--data", "."], "Get it by: evodrop data get mnist"),
        (["report", "nowhere"], "there is no run in 'nowhere'"),
        (["data", "check", "nonsense"], "there is no data set 'nonsense'"),
        (["data", "get", "20news", "--data", "."], "20news"),
    ],
)
def test_what_is_wrong_is_one_line_and_nothing_is_written(folder, capsys, words, told):
    code, out, err = answer(capsys, *words)
    assert (code, out) == (1, "")
    assert err.startswith("evodrop: ")
    assert len(err.splitlines()) == 1
    assert told in err
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("words", [["compare"], ["report", "runs"], ["reproduce", "fig1-20news"]])
@pytest.mark.parametrize(
    ("out", "told"),
    [
        ("taken", "but 'taken' is a file; name a folder"),
        ("taken/deeper", "but 'taken' is a file; name a folder"),
        ("page.html", "the page in it is called report.html"),
    ],
)
def test_where_the_results_go_is_a_folder(folder, capsys, words, out, told):
    (folder / "taken").write_text("mine")
    code, printed, err = answer(capsys, *words, "--out", out)
    assert (code, printed) == (1, "")
    assert err.startswith(f"evodrop: --out is '{out}'")
    assert told in err
    assert [path.name for path in folder.iterdir()] == ["taken"]


def test_a_pair_of_files_has_a_short_folder(folder, capsys):
    (folder / "web").mkdir()
    name = sparse_text.write_pair(folder / "web")
    words = ["--methods", "standard", "--seeds", "1", "--epochs", "1", "--lr", "0.1", "--jobs", "1"]
    code, out, _ = answer(capsys, "compare", "--dataset", name, *words)
    assert (code, out.splitlines()[-1]) == (0, "report: runs/compare-web-train/report.html")


def test_reproduce_runs_a_panel_and_checks_its_claims(folder, capsys):
    sparse_text.write_packed(folder / "20news")
    words = ["reproduce", "fig1-20news", "--quick", "--epochs", "1", "--jobs", "1", "--data", "."]
    code, out, _ = answer(capsys, *words)
    assert (code, out.splitlines()[-1]) == (0, "report: runs/fig1-20news/report.html")
    assert "claims of the paper" in out
    assert "shorter than the protocol: 1 epoch per run, not 30" in out
    verdicts = json.loads((folder / "runs/fig1-20news/verdicts.json").read_text())
    (folder / "kept/fig1-20news").mkdir(parents=True)
    for verdict, expected in (("does not hold", 0), ("holds", 1)):
        changed = {claim: entry | {"verdict": verdict} for claim, entry in verdicts["verdicts"].items()}
        kept = verdicts | {"verdicts": changed}
        (folder / "kept/fig1-20news/verdicts.json").write_text(json.dumps(kept))
        code, _, err = answer(capsys, *words, "--check", "--results", "kept")
        assert code == expected
        lost = [line for line in err.splitlines() if ": On 20 Newsgroups" in line]
        assert bool(lost) == bool(expected)
        for line in lost:  # a few examples of made-up text decide nothing
            assert line.startswith("evodrop: can no longer be confirmed: ")
            assert "Now: inconclusive; " in line


def test_the_check_asks_for_kept_verdicts_before_the_first_run(folder, capsys):
    sparse_text.write_packed(folder / "20news")
    words = ["--quick", "--epochs", "1", "--jobs", "1", "--data", ".", "--check"]
    code, out, err = answer(capsys, "reproduce", "fig1-20news", *words)
    assert (code, out, (folder / "runs").exists()) == (1, "", False)
    assert err == ("evodrop: there are no verdicts on fig1-20news in results to check; name --results")
    code, out, err = answer(capsys, "reproduce", "all", *words)
    assert (code, out.splitlines()[-1]) == (
        1,
        "report: runs/fig1-20news-papergrid/report.html",
    )  # 1: most data are not there
    assert err.splitlines()[0] == "evodrop: nothing to check against in results: fig1-20news, fig1-20news-papergrid"


def test_reproduce_takes_other_step_sizes_and_shorter_runs_to_choose_them(folder, capsys):
    sparse_text.write_packed(folder / "20news")
    words = ["reproduce", "fig1-20news", "--epochs", "2", "--seeds", "1", "--jobs", "1", "--data", "."]
    code, out, _ = answer(capsys, *words, "--steps", "1,10", "--tuning-epochs", "1")
    assert code == 0
    assert "step sizes tried: 1, 10, not 0.1" in out
    assert "step sizes chosen by runs of 1 epoch, not 2" in " ".join(out.split())
    code, _, err = answer(capsys, *words, "--steps", "fast")
    assert (code, err) == (
        1,
        "evodrop: --steps is 'fast', but it takes numbers with commas between, as 0.1,1,10",
    )


def test_reproduce_all_tells_what_it_leaves_out(folder, capsys):
    sparse_text.write_packed(folder / "reuters52")
    code, out, err = answer(capsys, "reproduce", "all", "--quick", "--epochs", "1", "--jobs", "1", "--data", ".")
    assert (code, out.splitlines()[-1]) == (1, "report: runs/fig1-reuters52-papergrid/report.html")
    assert err.splitlines()[-1].startswith("evodrop: left out, since their data are not there: fig1-real-sim, ")


def test_reproduce_lists_the_panels(folder, capsys):
    code, out, _ = answer(capsys, "reproduce", "list", "--data", ".")
    assert code == 0
    line = next(line for line in out.splitlines() if "fig2-svhn" in line)
    assert [cell.strip() for cell in line.split("│")[1:-1]] == [
        "fig2-svhn",
        "Figure 2(b)",
        "svhn: downloadable",
        "24",
        "288,288",
    ]
    code, out, _ = answer(
        capsys, "reproduce", "list", "--data", ".", "--epochs", "2", "--seeds", "1", "--steps", "0.01"
    )
    line = next(line for line in out.splitlines() if "fig2-mnist" in line)
    assert [cell.strip() for cell in line.split("│")[-3:-1]] == ["4", f"{4 * 2 * (60_000 // 128):,}"]
    assert [line.split("│")[1].strip() for line in out.splitlines() if "│ fig" in line] == list(PANELS)


def test_methods_that_a_panel_lacks_are_named():
    with pytest.raises(ValueError, match=r"--methods names 'gaussian', but those of fig1-bn are plain, bn, "):
        find_panel("fig1-bn").cut(methods=("bn", "gaussian"))
    with pytest.raises(ValueError, match="--methods names none"):
        find_panel("fig1-bn").cut(methods=())


@pytest.mark.parametrize("panel", PANELS.values(), ids=PANELS)
def test_names_of_methods_fit_a_list_with_commas(panel):
    names = [variant.name for variant in panel.variants]
    assert len(set(names)) == len(names)
    assert not any(set(name) & set(", ") for name in names)


def test_data_can_be_listed_checked_and_got(folder, capsys):
    code, out, _ = answer(capsys, "data", "list", "--data", ".")
    assert code == 0
    assert all(name in out for name in DATASETS)
    digits = "digits: 1438 training and 359 test images of shape (1, 8, 8) in 10 classes\n"
    assert answer(capsys, "data", "check", "digits")[:2] == (0, digits)
    assert answer(capsys, "data", "get", "digits", "--data", ".")[:2] == (0, digits)
    code, out, err = answer(capsys, "data", "check", "mnist", "digits", "--data", ".")
    assert (code, out) == (1, digits)  # one that is missing does not keep the others from being checked
    assert "Get it by: evodrop data get mnist" in err


@pytest.mark.parametrize("command", ["compare", "reproduce", "report", "data"])
def test_every_command_has_help(folder, capsys, command):
    code, out, _ = answer(capsys, command, "--help")
    assert code == 0
    assert f"{command} [OPTIONS]" in out


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
        ("1:0.5 2:1\n", [], "data.svm, line 1: "),
        ("+1 0:1\n", [], "--zero-based"),
        ("+1\n-1\n", [], "X or its squares are 0 in all of its 2 examples"),
        ("+1 1:nan\n", [], "data.svm, line 1: "),
        (LINES, ["--rate", "1"], "dropout rate is 1.0, but it takes a number in [0, 1)"),
        (LINES, ["--radius", "0"], "--radius is 0.0, but the norm of the weights is a finite number above 0"),
        (LINES, ["--plot", "x.gif"], "--plot is 'x.gif', but it is a .png, .pdf or .svg in a folder that is there"),
        (
            LINES,
            ["--plot", "nowhere/x.png"],
            "--plot is 'nowhere/x.png', but it is a .png",
        ),
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
    code = "import sys; sys.modules['typer'] = None; import evodrop.lab.cli"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (1, "the command evodrop needs its extra: install evodrop[lab]\n")


def test_help_answers_without_loading_what_a_command_needs():
    code = (
        "import sys; from evodrop.lab import cli\ntry: cli.main(['--help'])\nexcept SystemExit: pass\n"
        "print([name for name in ('torch', 'numpy', 'sklearn', 'matplotlib', 'joblib') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "[]"
