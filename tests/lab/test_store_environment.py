from __future__ import annotations

import subprocess

import pytest

from evodrop.lab.store import describe_environment, describe_git


def test_the_environment_is_the_same_every_time():
    environment = describe_environment()
    assert environment == describe_environment()
    assert {"python", "torch", "evodrop", "cpu", "threads", "scipy", "scikit-learn"} <= environment.keys()
    assert all(environment.values())


def git(folder, *words):
    subprocess.run(["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True)


@pytest.fixture
def repository(tmp_path):
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "one")
    return tmp_path


def test_git_state_is_that_of_the_code_wherever_the_command_is_given(repository, monkeypatch):
    here = describe_git()
    monkeypatch.chdir(repository)
    assert describe_git() == here
    assert describe_git() != describe_git(repository)


def test_a_repository_runs_no_program_of_its_own(repository):
    program = repository / "program"
    program.write_text(f"#!/bin/sh\ntouch '{repository}/ran'\n")
    program.chmod(0o755)
    git(repository, "config", "core.fsmonitor", str(program))
    assert describe_git(repository)["changed"] is False
    assert not (repository / "ran").exists()


def test_git_state(repository, tmp_path_factory):
    assert describe_git(tmp_path_factory.mktemp("outside")) is None
    tmp_path = repository
    (tmp_path / "file").write_text("1")
    state = describe_git(tmp_path)
    assert len(state["commit"]) == 40
    assert state["changed"] is False  # a file that git does not know changes no code
    git(tmp_path, "add", "file")
    assert describe_git(tmp_path) == state | {"changed": True}
