"""The pages of docs: numbers and tables are what the code gives, examples run, and what is wrong is found."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import numpy as np
import pytest
import test_readme
from helpers import synthetic
from torch import nn

import evodrop.linear
import evodrop.nn
from evodrop.nn import zoo

DOCS, TOOLS = test_readme.ROOT / "docs", test_readme.ROOT / "tools"
PAGE = (DOCS / "theory.md").read_text(encoding="utf-8")
EXAMPLE = r"```python\n(.*?)```"
EXAMPLES = re.findall(EXAMPLE, PAGE, flags=re.DOTALL)
BLOCK = r"<!-- made: (\S+) -->\n.*?<!-- end -->"
SIZES = next(match[0] for match in re.finditer(BLOCK, PAGE, flags=re.DOTALL) if match[1] == "sizes")


def python(*arguments):
    command = [sys.executable, "-W", "error", *map(str, arguments)]
    return subprocess.run(command, cwd=TOOLS, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("script", ["theory_page.py", "zoo_page.py"])
def test_every_number_is_what_the_code_gives(script):
    run = python(script, "--check")
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("page", ["index.md", "layers.md", "uncertainty.md", "theory.md", "zoo.md"])
def test_the_examples_run_in_order(page):
    examples = re.findall(EXAMPLE, (DOCS / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    test_readme.test_every_example_runs("\n".join(examples))


def test_every_example_shows_its_output_and_every_block_is_on_the_page():
    names = re.findall(BLOCK, PAGE, flags=re.DOTALL)
    assert names.count("output") == len(EXAMPLES) >= 5
    blocks = python("-c", "import theory_page as page; print(*page.BLOCKS, *page.DATA_BLOCKS)").stdout.split()
    assert sorted(set(names) - {"output"}) == sorted(blocks)


def test_no_measured_number_stands_outside_of_a_block():
    prose = re.sub(rf"{BLOCK}|```.*?```", "", PAGE, flags=re.DOTALL)
    assert len(prose) > 5000
    assert re.findall(r"\d[.,]\d|\d *%", prose) == []


def test_a_tampered_copy_fails_the_check_and_is_mended(tmp_path):
    page, example = tmp_path / "theory.md", "```python\nprint(1 + 1)\n```\n\n<!-- made: output -->\n{}<!-- end -->\n"
    right = example.format("\n```text\n2\n```\n\n") + SIZES
    wrong = example.format("") + SIZES.replace("| 25 |", "| 52 |")
    page.write_text(wrong, encoding="utf-8")
    check = python("theory_page.py", page, "--check")
    assert check.returncode == 1
    assert "-| conv1, 4 x 4 | 21 | 52 | 21 | 21 |\n" in check.stdout
    assert "+| conv1, 4 x 4 | 21 | 25 | 21 | 21 |\n" in check.stdout
    assert page.read_text(encoding="utf-8") == wrong  # a check writes nothing
    assert python("theory_page.py", page).returncode == 0
    assert page.read_text(encoding="utf-8") == right
    assert [path.name for path in tmp_path.iterdir()] == ["theory.md"]


@pytest.mark.parametrize(
    ("page", "options", "message"),
    [
        ("<!-- made: tayler -->\n<!-- end -->", [], "'tayler', but a block is one of output"),
        ("<!-- made: output -->\n<!-- end -->", [], "after a Python block"),
        ("", ["--data", "nowhere"], "there is no file 'nowhere/20news/train.svm.bz2'"),
        (None, [], "there is no page"),
    ],
)
def test_mistakes_are_named(page, options, message, tmp_path):
    path = tmp_path / "page.md"
    if page is not None:
        path.write_text(page, encoding="utf-8")
    run = python("theory_page.py", path, *options)
    assert run.returncode not in (0, None)
    assert message in run.stderr


def test_blocks_on_real_text_stay_as_they_are_without_it(tmp_path):
    page = tmp_path / "theory.md"
    page.write_text("<!-- made: text -->\nas it was\n<!-- end -->\n", encoding="utf-8")
    assert python("theory_page.py", page).returncode == 0
    assert "as it was" in page.read_text(encoding="utf-8")


def test_the_zoo_has_a_row_for_every_name():
    page = (DOCS / "zoo.md").read_text(encoding="utf-8")
    names = python("-c", "from evodrop.nn.zoo import ZOO; print(*ZOO)").stdout.split()
    assert len(names) > 10
    for name in names:
        assert len(re.findall(rf"^\| `{name}` \|", page, flags=re.MULTILINE)) == 2  # the law, and the place


def rows_of_places():
    """Name, classes, needs, spelling in linear models and source of every method on the page."""
    lines = (DOCS / "zoo.md").read_text(encoding="utf-8").partition("| method | class |")[2].splitlines()[2:]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[: lines.index("")]]


@pytest.mark.parametrize("row", rows_of_places(), ids=lambda row: row[0])
def test_the_zoo_has_the_classes_and_the_linear_models_that_the_page_names(row):
    name, *classes = re.findall(r"`([\w-]+)`", row[0] + row[1])
    assert zoo.ZOO[name].__name__ == classes[0]
    assert all(hasattr(nn, cls) or hasattr(zoo, cls) or hasattr(evodrop.nn, cls) for cls in classes)
    if row[3] != "-":
        model = eval(row[3].strip("`"), vars(evodrop.linear))
        assert model.fit(np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2).coef_.shape == (1, 3)


def test_the_ranking_comes_from_records_and_says_so_if_there_are_none(tmp_path):
    page, results = tmp_path / "zoo.md", tmp_path / "results" / "digits"
    page.write_text("<!-- made: ranking -->\n<!-- end -->\n", encoding="utf-8")
    assert python("zoo_page.py", page, "--results", tmp_path / "results").returncode == 0
    assert "Not measured yet" in page.read_text(encoding="utf-8")
    floors = {"standard": 0.03, "gaussian": 0.01, "fast": 0.02}
    runs = [synthetic.write_realistic(results, name, seed, 12, floors[name]) for name in floors for seed in range(3)]
    described = {"command": "", "panel": None, "runs": [run.name for run in runs]}
    (results / "experiment.json").write_text(json.dumps(described))
    check = python("zoo_page.py", page, "--check", "--results", tmp_path / "results")
    assert (check.returncode, "out of date" in check.stderr) == (1, True)
    assert python("zoo_page.py", page, "--results", tmp_path / "results").returncode == 0
    text = page.read_text(encoding="utf-8")
    assert "3 seeds, 20 epochs. All methods had the same rate." in text
    ranks = re.findall(r"^\| (\d) \| (\S+) \| \d\.\d\d% ± ", text, flags=re.MULTILINE)
    assert ranks == [("1", "gaussian"), ("2", "fast"), ("3", "standard")]


def test_a_block_of_the_zoo_that_nobody_makes_is_named(tmp_path):
    page = tmp_path / "zoo.md"
    page.write_text("<!-- made: names -->\n<!-- end -->\n", encoding="utf-8")
    run = python("zoo_page.py", page)
    assert run.returncode == 1
    assert "a block 'names', but a block is one of output (after a Python block), costs, ranking" in run.stderr


def test_a_dropout_whose_cost_was_not_measured_is_named(tmp_path):
    costs = json.loads((DOCS / "zoo_costs.json").read_text(encoding="utf-8"))
    for times in costs["races"].values():
        times.pop("standout", None)
    (tmp_path / "costs.json").write_text(json.dumps(costs), encoding="utf-8")
    run = python("-c", f"import pathlib, zoo_page; zoo_page.costs(pathlib.Path({str(tmp_path / 'costs.json')!r}))")
    assert run.returncode == 1
    assert "has no cost of 'standout'" in run.stderr
