"""The README's examples, run, and its commands, and what other documents repeat of the code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import evodrop

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_runs(example):
    exec(compile(example, "README.md", "exec"), {})


def test_there_is_an_example_for_every_door():
    for door in ("evodrop.nn", "evodrop.linear", "evodrop.sampling", "evodrop.theory"):
        assert any(f"from {door} import" in example for example in EXAMPLES)


def test_every_command_of_the_first_screen_is_a_target():
    first_screen = "\n".join(README.splitlines()[:25])
    makefile = (ROOT / "Makefile").read_text()
    for target in ("demo", "test"):
        assert f"make {target}" in first_screen
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)


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
