"""Where a run was made: versions, processor, and the state of the code around it."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import evodrop

GIT_SECONDS = 10.0  # that git may take to answer


def describe_environment(ranks: int = 1) -> dict[str, str | int | None]:
    """What the last digits of a record may depend on. No time and no process id: two runs here say the same."""
    versions: dict[str, str | int | None] = {"python": platform.python_version(), "evodrop": evodrop.__version__}
    for package in ("torch", "numpy", "numba", "scipy", "scikit-learn"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # not Linux
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    machine = {"system": f"{platform.system()} {platform.machine()}", "cpu": (names or [platform.processor()])[0]}
    return versions | machine | {"threads": 1} | ({"ranks": ranks} if ranks > 1 else {})  # a run has one thread


def describe_git(folder: str | os.PathLike[str] | None = None) -> dict[str, str | bool] | None:
    """The commit of the repository around a folder, and whether tracked files differ from it; None outside of any.

    By default the folder is that of this package, wherever the command was given: its code makes the records.
    """
    folder = Path(evodrop.__file__).parent if folder is None else folder
    command = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false"]  # a repository may name a program
    try:
        commit, changes = (
            subprocess.run(
                [*command, *words], cwd=folder, capture_output=True, text=True, timeout=GIT_SECONDS, check=True
            ).stdout.strip()
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
    except (OSError, subprocess.SubprocessError):  # no git, no repository, no answer
        return None
    return {"commit": commit, "changed": changes != ""}
