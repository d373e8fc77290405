"""What a release says of itself: versions and tools are named in several files, and have to agree."""

from __future__ import annotations

import re
import tomllib

from test_readme import ROOT

PINS = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), flags=re.MULTILINE))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def normalised(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def test_everything_that_is_installed_is_pinned():
    extras = PROJECT["project"]["optional-dependencies"].values()
    groups = PROJECT["dependency-groups"].values()
    lists = [PROJECT["project"]["dependencies"], PROJECT["build-system"]["requires"], *extras, *groups]
    names = {normalised(re.match(r"[\w.-]+", line)[0]) for lines in lists for line in lines if isinstance(line, str)}
    assert len(names) > 25
    assert names - {"evodrop"} <= set(map(normalised, PINS))


def test_a_commit_is_checked_by_the_versions_that_are_pinned():
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    revisions = dict(re.findall(r"repo: https://\S+/(\S+)\n    rev: v(\S+)", hooks))
    assert revisions["ruff-pre-commit"] == PINS["ruff"]
    assert revisions["codespell"] == PINS["codespell"]
    assert revisions["zizmor-pre-commit"] == PINS["zizmor"]


def test_every_target_of_the_makefile_is_in_its_help():
    makefile = (ROOT / "Makefile").read_text()
    phony = set(re.search(r"^\.PHONY: (.*)$", makefile, flags=re.MULTILINE)[1].split())
    assert phony == set(re.findall(r"^([a-z-]+):.*## \S", makefile, flags=re.MULTILINE))


def test_the_workflows_test_every_python_that_is_promised():
    promised = {line.rpartition(" ")[2] for line in PROJECT["project"]["classifiers"] if ":: 3." in line}
    workflow = (ROOT / ".github/workflows/tests.yml").read_text()
    tested = set(re.findall(r'"([\d.]+)"', re.search(r"python: \[(.*)\]", workflow)[1]))
    assert promised == tested
    assert PROJECT["project"]["requires-python"] == f">={min(promised, key=lambda v: int(v.split('.')[1]))}"


def test_every_excused_check_has_its_reason():
    excused = PROJECT["tool"]["repo-review"]["ignore"]
    assert all(len(reason) > 5 for reason in excused.values())
