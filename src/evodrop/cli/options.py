"""Options that several commands have, and how they end."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Exit, Option

if TYPE_CHECKING:
    from evodrop.experiments.report.reopening import Findings

__all__ = ["Data", "Jobs", "checked_out", "command_line", "plain_stem", "resumable", "show"]

Data = Annotated[Path | None, Option("--data", help="data folder [EVODROP_DATA, else the user's cache]")]
Jobs = Annotated[int, Option(help="runs at once, each on one core", min=1)]
ENDINGS = (".bz2", ".gz", ".svm", ".svmlight", ".libsvm", ".txt")  # of files of examples
STOPPED = 130  # the exit code of what Ctrl-C ended


def command_line() -> str:
    """What was typed, for the report to say."""
    return shlex.join(["evodrop", *sys.argv[1:]])


def checked_out(folder: Path) -> Path:
    """The folder itself if it is one or can be made, or an error that names --out."""
    if folder.suffix == ".html" and not folder.is_dir():
        raise ValueError(f"--out is {str(folder)!r}, but it takes a folder: the page in it is called report.html")
    for place in (folder, *folder.parents):
        if place.exists() and not place.is_dir():
            raise ValueError(f"--out is {str(folder)!r}, but {str(place)!r} is a file; name a folder")
    return folder


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
    from evodrop.experiments.report.tables import print_findings

    print_findings(findings.outcomes)
    if findings.failed:
        _show_failures(findings)
    print(f"report: {findings.report}", flush=True)


def _show_failures(findings: Findings) -> None:
    from evodrop.experiments.running.live import label  # brings torch, which runs that failed have brought before

    for ending in findings.failed:
        print(f"evodrop: {label(ending.run)} failed: {ending.error}", file=sys.stderr)
