"""``evodrop report``: make the report of runs again from their records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from evodrop.cli.options import checked_out, command_line, show


def run(
    folders: Annotated[list[Path], Argument(metavar="RUN...", help="folders of runs, or of experiments")],
    out: Annotated[Path | None, Option(help="where to [the folder, if it is one; else here]")] = None,
    tensorboard: Annotated[bool, Option("--tensorboard", help="also write event files, to OUT/tensorboard")] = False,
) -> None:
    """Make the report of runs again from their records."""
    from evodrop.experiments.reopening import reopen_all

    target = checked_out(out or (folders[0] if len(folders) == 1 else Path()))
    if tensorboard:
        from evodrop.experiments.page import event_writer, write_events

        event_writer()  # if it is missing, that is told before anything is written
    findings = reopen_all(folders, target, command_line())
    if tensorboard:
        print(f"event files: {write_events(findings.outcomes, target / 'tensorboard')}")
    show(findings)
