"""Where a run was made: versions, processor, and the state of the code around it."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import evodrop

__all__ = ["describe_environment", "describe_git"]

PACKAGES = ("torch", "numpy", "numba", "scipy", "scikit-learn")
PATIENCE = 10.0  # seconds for an answer of git's


def describe_environment() -> dict[str, str | int | None]:
    """What the last digits of a record may depend on. No time and no process id: two runs here say the same.

    Examples:
        >>> describe_environment()["threads"]
        1
    """
    versions = {package: _version(package) for package in PACKAGES}
    return {
        "python": platform.python_version(),
        "evodrop": evodrop.__version__,
        **versions,
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu(),
        "threads": 1,  # of every run
    }


def describe_git(folder: str | os.PathLike[str] | None = None) -> dict[str, str | bool] | None:
    """The commit of the repository around a folder, and whether tracked files differ from it; None outside of any.

    Args:
        folder: by default that of this package, wherever the command was given: its code makes the records.
    """
    folder = Path(evodrop.__file__).parent if folder is None else folder
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "changed": changes != ""}


def _git(folder: str | os.PathLike[str], *words: str) -> str | None:
    command = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", *words]  # a repository may name a program
    try:
        answer = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=True)
    except (OSError, subprocess.SubprocessError):  # no git, no repository, no answer
        return None
    return answer.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # not Linux
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
