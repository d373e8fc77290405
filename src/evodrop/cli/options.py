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
    from evodrop.experiments.report.reopening import Findings

__all__ = ["Data", "Jobs", "all_ranks", "command_line", "resumable", "show"]

Data = Annotated[Path | None, Option("--data", help="data folder [EVODROP_DATA, else the user's cache]")]
Jobs = Annotated[int, Option(help="runs at once, each on one core", min=1)]
LAUNCHED = "TORCHELASTIC_RUN_ID"  # set by torchrun
STOPPED = 130  # the exit code of what Ctrl-C ended


def command_line() -> str:
    """What was typed, for the report to say."""
    ranks = int(os.environ.get("WORLD_SIZE", "1")) if LAUNCHED in os.environ else 1
    begin = ["evodrop"] if ranks == 1 else ["torchrun", f"--nproc-per-node={ranks}", "-m", "evodrop"]
    return shlex.join([*begin, *sys.argv[1:]])


@contextmanager
def all_ranks(data: Path | None) -> Iterator[bool]:
    """Whether this process does the command. Under torchrun rank 0 does, and the others help it until it is done.

    Args:
        data: the data folder, for the others to find the data too.
    """
    if LAUNCHED not in os.environ or os.environ.get("WORLD_SIZE", "1") == "1":
        yield True
        return
    from evodrop.experiments.running.ranks import joined

    with joined(data) as leads:
        yield leads


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
