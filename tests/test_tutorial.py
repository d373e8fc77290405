"""docs/add_a_dropout.md, followed word for word in a copy of the code."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest
from test_readme import ROOT

PAGE = (ROOT / "docs/add_a_dropout.md").read_text(encoding="utf-8")
BLOCK = r"\n\n```python\n(.*?)```"
FILES = re.findall(rf"`(\S+\.py)`:{BLOCK}", PAGE, flags=re.DOTALL)
LINES = re.findall(rf"In `(\S+\.py)`, below `(.*?)`:{BLOCK}", PAGE, flags=re.DOTALL)
(COMMANDS,) = re.findall(r"```text\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A copy of what the page needs, and what it says done."""
    folder = tmp_path_factory.mktemp("clone")
    for name in ("src", "tests/helpers"):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy(ROOT / "pyproject.toml", folder)
    for path, block in FILES:
        assert not (folder / path).exists()
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(block, encoding="utf-8")
    for path, above, block in LINES:
        text = (folder / path).read_text(encoding="utf-8")
        assert text.count(f"{above}\n") == 1, f"{path} has no line {above!r}"
        (folder / path).write_text(text.replace(f"{above}\n", f"{above}\n{block}"), encoding="utf-8")
    return folder


def test_it_takes_forty_lines():
    blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(blocks) == len(FILES) + len(LINES) == 5
    assert sum(line != "" for block in blocks for line in block.splitlines()) <= 40


@pytest.mark.parametrize("command", COMMANDS.splitlines(), ids=["pytest", "compare"])
def test_its_commands_work(clone, command):
    first, *words = shlex.split(command)
    start = {".venv/bin/python": [sys.executable], ".venv/bin/evodrop": [sys.executable, "-m", "evodrop"]}[first]
    environment = os.environ | {"PYTHONPATH": str(clone / "src"), "COLUMNS": "120"}
    run = subprocess.run(
        [*start, *words], cwd=clone, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    if "evodrop" in first:
        assert re.search(r"│ rademacher +│ +\d+\.\d\d%", run.stdout)
        assert run.stdout.splitlines()[-1] == "report: runs/compare-digits/report.html"
    else:
        assert "3 passed" in run.stdout or "2 passed" in run.stdout


def test_what_it_adds_is_in_style(clone):
    ruff = shutil.which("ruff", path=os.path.dirname(sys.executable))
    new = [path for path, _ in FILES]
    for words in (["check", "--no-cache"], ["format", "--no-cache", "--check"]):
        run = subprocess.run([ruff, *words, *new], cwd=clone, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stdout + run.stderr
