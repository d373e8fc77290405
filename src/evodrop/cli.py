"""The command ``evodrop``: what the library knows, without a line of Python.

A command reads its arguments, calls a room and prints; all else is in the rooms, which are imported when they are asked
for, so that ``--help`` answers at once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

if TYPE_CHECKING:
    import typer
else:
    try:
        import typer
    except ModuleNotFoundError:
        sys.exit("the command evodrop needs its extra: install evodrop[lab]")

__all__ = ["app", "main"]

app = typer.Typer(
    help="Dropout whose noise follows the data.", no_args_is_help=True, add_completion=False, rich_markup_mode=None
)


@app.callback()
def evodrop() -> None:
    """Dropout whose noise follows the data."""


@app.command()
def theory(
    file: Annotated[Path, typer.Argument(help="examples in svmlight (LIBSVM) format; plain, gzip or bzip2")],
    rate: Annotated[float, typer.Option(help="fraction of units to drop")] = 0.5,
    radius: Annotated[float, typer.Option(help="norm of the weights that the risk bound compares with")] = 1.0,
    plot: Annotated[Path | None, typer.Option(help="picture to write: .png, .pdf or .svg [FILE-theory.png]")] = None,
    zero_based: Annotated[bool, typer.Option("--zero-based", help="the first feature has index 0, not 1")] = False,
) -> None:
    """What the paper predicts for a data set: a table, and a picture of the probabilities."""
    from rich.console import Console

    from evodrop.definitions import checked_rate
    from evodrop.linear import iter_svmlight
    from evodrop.theory import report
    from evodrop.theory.figure import check_path

    picture = check_path(plot or f"{file.name.partition('.')[0]}-theory.png")
    checked_rate(rate)

    def blocks() -> Iterator[Any]:
        rows = 0
        with Console(stderr=True).status(f"reading {file.name}") as status:
            for X, _ in iter_svmlight(file, zero_based=zero_based):
                yield X
                rows += X.shape[0]
                status.update(f"reading {file.name}: {rows:,} examples")

    prediction = report(blocks(), rate, r=radius)
    Console().print(prediction)
    prediction.save_figure(picture)
    print(f"\nplot: {picture}")


def main(arguments: list[str] | None = None) -> None:
    """Run the command and exit; what is wrong with its input is one line on stderr and exit code 1."""
    try:
        app(arguments)
    except (ValueError, OSError, ModuleNotFoundError) as error:
        sys.exit(f"evodrop: {error}")
