"""The README is short, its examples and its commands run, and what it repeats of other files is right."""

from __future__ import annotations

import bz2
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import evodrop
from evodrop.lab import cli

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
LINES = [
    line.partition("#")[0].strip()
    for block in re.findall(r"```\n(.*?)```", re.sub(r"```python.*?```", "", README, flags=re.DOTALL), flags=re.DOTALL)
    for line in block.splitlines()
]
SHORT = {"compare": ["--epochs", "1", "--seeds", "1", "--jobs", "1"]}  # what a command gets besides


def test_it_is_read_in_two_minutes():
    assert len(README.splitlines()) <= 120
    assert len(README.split()) <= 900
    assert len(re.findall(r"!\[", README)) == 1


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_runs(example):
    exec(compile(example, "README.md", "exec"), {})


def test_there_is_an_example_for_every_door():
    for door in ("evodrop.nn", "evodrop.linear", "evodrop.sampling", "evodrop.theory"):
        assert any(f"from {door} import" in example for example in EXAMPLES)


def test_every_file_that_it_links_to_is_there():
    links = re.findall(r"\]\((\S+?)\)", README)
    assert len(links) > 10
    assert [link for link in links if not (ROOT / link).is_file()] == []


def test_the_two_commands_of_the_first_screen_do_what_they_say():
    first_screen = "\n".join(README.splitlines()[:25])
    for target, command in {"demo": ".venv/bin/evodrop compare", "test": ".venv/bin/python -m pytest"}.items():
        assert f"make {target}" in first_screen
        dry = ["make", "--dry-run", "--assume-old", ".venv/installed", target]
        run = subprocess.run(dry, cwd=ROOT, capture_output=True, text=True, check=True)
        assert command in run.stdout


@pytest.mark.parametrize("line", [line for line in LINES if not line.startswith(("make", "pip"))])
def test_every_command_runs(line, tmp_path, monkeypatch, capsys):
    program, command, *words = shlex.split(line)
    assert program == "evodrop"
    (tmp_path / "train.svm.bz2").write_bytes(bz2.compress(b"+1 1:0.5 3:2\n-1 2:1\n+1 1:1\n"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=r"^0$"):
        cli.main([command, *words, *SHORT.get(command, [])])
    assert len(capsys.readouterr().out.splitlines()) > 3


def test_what_it_installs_exists():
    lines = [line for line in LINES if line.startswith("pip")]
    assert len(lines) == 3
    declared = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for line in lines:
        program, install, option, constraints, *what = shlex.split(line)
        assert (program, install, option) == ("pip", "install", "-c")
        assert (ROOT / constraints).is_file()
        for extra in re.findall(r"\[(.*?)\]", what[0]):
            assert re.search(rf"^{extra} = \[", declared, flags=re.MULTILINE)


VERDICTS = ("holds?\\b", "do(?:es)? not hold", "(?:is|are) inconclusive", "(?:was|were) not measured")


def test_the_verdicts_are_those_of_the_results():
    """The page of results has a sentence for the paper's data and one for others, which another test makes again."""
    page = (ROOT / "results" / "README.md").read_text(encoding="utf-8")
    found = [sum(map(int, re.findall(rf"(\d+) {words}", page.split("<!-- end -->")[0]))) for words in VERDICTS]
    said = re.search(r"Of (\d+) claims, (\d+) hold, (\d+) do not, (\d+) are inconclusive and (\d+)", README)
    assert [int(number) for number in said.groups()] == [sum(found), *found]
    assert found[0] > 0


def test_the_citation_names_this_version():
    assert f"\nversion: {evodrop.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_example_learns():
    command = [sys.executable, "-W", "error", "examples/digits.py"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr
    last = re.fullmatch(r"epoch 30: test error (\S+) %", run.stdout.splitlines()[-1])
    assert 0 < float(last[1]) < 10


@pytest.mark.parametrize(
    ("benchmark", "peer"),
    [
        ("dropout", "nn.Dropout"),
        ("linear", "SGDClassifier"),
        ("networks", "batched product"),
        ("zoo", "batchwise / nn.Dropout"),
        ("scaling --only=exact,gpu", "one process with their noise"),
    ],
)
def test_a_benchmark_prints_its_tables_and_writes_json(benchmark, peer, tmp_path):
    out, (name, *options) = tmp_path / "bench.json", benchmark.split()
    command = [sys.executable, f"benchmarks/{name}.py", "--quick", "--json", str(out), *options]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stderr
    assert peer in run.stdout
    assert json.loads(out.read_text())
