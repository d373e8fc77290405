"""Options that several commands have, and how they end."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Exit, Option

if TYPE_CHECKING:
    from evodrop.experiments.reopening import Findings

__all__ = [
    "Cluster",
    "Data",
    "Jobs",
    "all_ranks",
    "checked_out",
    "command_line",
    "names_in",
    "plain_stem",
    "resumable",
    "show",
]

Data = Annotated[Path | None, Option("--data", help="data folder [EVODROP_DATA, else the user's cache]")]
Jobs = Annotated[int, Option(help="runs at once, each on one core", min=1)]
Cluster = Annotated[
    str | None,
    Option("--cluster", help="address of a Dask scheduler whose workers do the runs; they see the same folders"),
]
ENDINGS = (".bz2", ".gz", ".svm", ".svmlight", ".libsvm", ".txt")  # of files of examples
LAUNCHED = "TORCHELASTIC_RUN_ID"  # set by torchrun
STOPPED = 130  # the exit code of what Ctrl-C ended


def command_line() -> str:
    """What was typed, for the report to say."""
    return shlex.join([*_launcher(), "evodrop", *sys.argv[1:]])


def _launcher() -> list[str]:
    """What comes before the command if torchrun has started it."""
    if LAUNCHED not in os.environ:
        return []
    nodes, ranks = (os.environ.get(name, "1") for name in ("GROUP_WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    return ["torchrun", f"--nnodes={nodes}", f"--nproc-per-node={ranks}", "-m"]


@contextmanager
def all_ranks(data: Path | None, cluster: str | None = None) -> Iterator[bool]:
    """Whether this process does the command. Under torchrun rank 0 does, and the others help it until it is done.

    Args:
        data: the data folder, for the others to find the data too.
        cluster: whose workers are to do the runs: they cannot share them with ranks.
    """
    if LAUNCHED not in os.environ or os.environ.get("WORLD_SIZE", "1") == "1":
        yield True
        return
    if cluster is not None:
        raise ValueError(
            f"--cluster is {cluster!r}, but torchrun has started ranks for the runs; leave one of them out"
        )
    from evodrop.experiments.running.ranks import joined

    with joined(data) as leads:
        yield leads


def checked_out(folder: Path) -> Path:
    """The folder itself if it is one or can be made, or an error that names --out."""
    if folder.suffix == ".html" and not folder.is_dir():
        raise ValueError(f"--out is {str(folder)!r}, but it takes a folder: the page in it is called report.html")
    for place in (folder, *folder.parents):
        if place.exists() and not place.is_dir():
            raise ValueError(f"--out is {str(folder)!r}, but {str(place)!r} is a file; name a folder")
    return folder


def names_in(text: str) -> tuple[str, ...]:
    """The names in a list with commas.

    Examples:
        >>> names_in("standard, evolutional")
        ('standard', 'evolutional')
    """
    return tuple(name.strip() for name in text.split(",") if name.strip())


def plain_stem(path: Path) -> str:
    """The name of a file of examples without its endings.

    Examples:
        >>> plain_stem(Path("data/train.svm.bz2"))
        'train'
    """
    while path.suffix in ENDINGS:
        path = path.with_suffix("")
    return path.name


@contextmanager
def resumable() -> Iterator[None]:
    """Within it, Ctrl-C ends the command in one line: nothing is lost."""
    try:
        yield
    except KeyboardInterrupt:
        print("\nevodrop: stopped; the same command goes on from here", file=sys.stderr)
        raise Exit(STOPPED) from None


def show(findings: Findings) -> None:
    """Print what was found, the failures on stderr, and last of all where the report is."""
    from evodrop.experiments import tables

    tables.show(findings.outcomes)
    if findings.failed:
        _show_failures(findings)
    print(f"report: {findings.report}", flush=True)


def _show_failures(findings: Findings) -> None:
    from evodrop.experiments.running.live import label  # brings torch, which runs that failed have brought before

    for ending in findings.failed:
        print(f"evodrop: {label(ending.run)} failed: {ending.error}", file=sys.stderr)
