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

OPTIONS = {"zero_based=True": "--zero-based", "n_features": "--features"}  # what the rooms call them in Python

app = typer.Typer(
    help="Dropout whose noise follows the data.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
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
    features: Annotated[int | None, typer.Option(help="number of features; spares a pass over the file")] = None,
) -> None:
    """What the paper predicts for a data set: a table, and a picture of the probabilities."""
    from rich.console import Console
    from rich.markup import escape

    from evodrop.definitions import checked_rate
    from evodrop.linear import iter_svmlight
    from evodrop.theory import report
    from evodrop.theory.arguments import checked_positive
    from evodrop.theory.figure import check_path
    from evodrop.theory.table import WIDTH

    picture = check_path(plot or _picture_of(file))
    checked_rate(rate)
    checked_positive(radius, "--radius", "the norm of the weights")

    def blocks() -> Iterator[Any]:
        rows = 0
        with Console(stderr=True).status(escape(f"reading {file.name}")) as status:
            for X, _ in iter_svmlight(file, zero_based=zero_based, n_features=features):
                yield X
                rows += X.shape[0]
                status.update(escape(f"reading {file.name}: {rows:,} examples"))

    prediction = report(blocks(), rate, r=radius)
    Console(width=max(Console().width, WIDTH)).print(prediction)
    prediction.save_figure(picture)
    print(f"\nplot: {picture}")


def _picture_of(file: Path) -> str:
    """train.svm.bz2 -> train-theory.png."""
    name = file.name
    while Path(name).suffix in (".bz2", ".gz", ".svm", ".svmlight", ".libsvm", ".txt"):
        name = Path(name).stem
    return f"{name}-theory.png"


def main(arguments: list[str] | None = None) -> None:
    """Run the command and exit; what is wrong with its input is one line on stderr and exit code 1."""
    try:
        app(arguments)
    except (ValueError, OSError, ModuleNotFoundError) as error:
        message = str(error)
        for argument, option in OPTIONS.items():
            message = message.replace(argument, option)
        sys.exit(f"evodrop: {message}")
    except MemoryError:
        sys.exit("evodrop: the data do not fit in memory; has a feature a huge index?")
