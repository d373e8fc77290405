"""docs/theory.md: its numbers are what the code gives, its examples run, and a wrong number is found."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import test_readme

DOCS = test_readme.ROOT / "docs"
PAGE = (DOCS / "theory.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
BLOCK = r"<!-- numbers: (\S+) -->\n.*?<!-- end -->"
SIZES = next(match[0] for match in re.finditer(BLOCK, PAGE, flags=re.DOTALL) if match[1] == "sizes")


def python(*arguments):
    command = [sys.executable, "-W", "error", *map(str, arguments)]
    return subprocess.run(command, cwd=DOCS, capture_output=True, text=True, timeout=300, check=False)


def test_every_number_is_what_the_code_gives():
    run = python("theory.py", "--check")
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_examples_run_in_order():
    test_readme.test_every_example_runs("\n".join(EXAMPLES))


def test_every_example_shows_its_output_and_every_block_is_on_the_page():
    names = re.findall(BLOCK, PAGE, flags=re.DOTALL)
    assert names.count("output") == len(EXAMPLES) >= 5
    blocks = python("-c", "import theory; print(*theory.BLOCKS, *theory.DATA_BLOCKS)").stdout.split()
    assert sorted(set(names) - {"output"}) == sorted(blocks)


def test_no_measured_number_stands_outside_of_a_block():
    prose = re.sub(rf"{BLOCK}|```.*?```", "", PAGE, flags=re.DOTALL)
    assert len(prose) > 5000
    assert re.findall(r"\d[.,]\d|\d *%", prose) == []


def test_a_tampered_copy_fails_the_check_and_is_mended(tmp_path):
    page, example = tmp_path / "theory.md", "```python\nprint(1 + 1)\n```\n\n<!-- numbers: output -->\n{}<!-- end -->\n"
    right = example.format("\n```text\n2\n```\n\n") + SIZES
    wrong = example.format("") + SIZES.replace("| 25 |", "| 52 |")
    page.write_text(wrong, encoding="utf-8")
    check = python("theory.py", page, "--check")
    assert check.returncode == 1
    assert "-| conv1, 4 x 4 | 21 | 52 | 21 | 21 |\n" in check.stdout
    assert "+| conv1, 4 x 4 | 21 | 25 | 21 | 21 |\n" in check.stdout
    assert page.read_text(encoding="utf-8") == wrong  # a check writes nothing
    assert python("theory.py", page).returncode == 0
    assert page.read_text(encoding="utf-8") == right
    assert [path.name for path in tmp_path.iterdir()] == ["theory.md"]


@pytest.mark.parametrize(
    ("page", "options", "message"),
    [
        ("<!-- numbers: tayler -->\n<!-- end -->", [], "'tayler', but a block is one of output"),
        ("<!-- numbers: output -->\n<!-- end -->", [], "after a Python block"),
        ("", ["--data", "nowhere"], "there is no file 'nowhere/20news/train.svm.bz2'"),
        (None, [], "there is no page"),
    ],
)
def test_mistakes_are_named(page, options, message, tmp_path):
    path = tmp_path / "page.md"
    if page is not None:
        path.write_text(page, encoding="utf-8")
    run = python("theory.py", path, *options)
    assert run.returncode not in (0, None)
    assert message in run.stderr


def test_blocks_on_real_text_stay_as_they_are_without_it(tmp_path):
    page = tmp_path / "theory.md"
    page.write_text("<!-- numbers: text -->\nas it was\n<!-- end -->\n", encoding="utf-8")
    assert python("theory.py", page).returncode == 0
    assert "as it was" in page.read_text(encoding="utf-8")
