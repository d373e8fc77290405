"""The command ``evodrop``: what the library knows, without a line of Python. One file a command.

A command reads its arguments, calls a room and prints; all else is in the rooms, which are imported when they are asked
for, so that ``--help`` answers at once.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer
else:
    try:
        import typer
    except ModuleNotFoundError:
        sys.exit("the command evodrop needs its extra: install evodrop[lab]")

from evodrop.cli import compare, data, report, reproduce, theory

__all__ = ["app", "main"]

OPTIONS = {"zero_based=True": "--zero-based", "n_features": "--features"}  # what the rooms call them in Python

app = typer.Typer(
    help="Dropout whose noise follows the data.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("compare")(compare.run)
app.command("reproduce")(reproduce.run)
app.command("report")(report.run)
app.command("theory")(theory.run)
app.add_typer(data.app, name="data")


def main(arguments: list[str] | None = None) -> None:
    """Run the command and exit; what is wrong with its input is one line on stderr and exit code 1."""
    try:
        app(arguments)
    except (ValueError, OSError, ModuleNotFoundError) as error:
        message = str(error)
        if isinstance(error, FileNotFoundError) and error.filename:  # the system's own words
            message = f"there is no file {str(error.filename)!r}; check its name, or give the whole path"
        for argument, option in OPTIONS.items():
            message = message.replace(argument, option)
        sys.exit(f"evodrop: {message}")
    except MemoryError:
        sys.exit("evodrop: the data do not fit in memory; has a feature a huge index?")
