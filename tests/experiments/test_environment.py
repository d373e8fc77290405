from __future__ import annotations

import subprocess

from evodrop.experiments.environment import describe_environment, describe_git


def test_the_environment_is_the_same_every_time():
    environment = describe_environment(threads=1)
    assert environment == describe_environment(threads=1)
    assert {"python", "torch", "evodrop", "cpu", "threads"} <= environment.keys()
    assert all(environment.values())


def test_git_state(tmp_path):
    def git(*words):
        subprocess.run(["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True)

    assert describe_git(tmp_path) is None
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "one")
    (tmp_path / "file").write_text("1")
    state = describe_git(tmp_path)
    assert len(state["commit"]) == 40
    assert state["changed"] is False  # a file that git does not know changes no code
    git("add", "file")
    assert describe_git(tmp_path) == state | {"changed": True}
