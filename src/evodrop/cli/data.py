"""``evodrop data``: which data sets there are, how to get them, and whether they are sound."""

from __future__ import annotations

import sys
from typing import Annotated

from typer import Argument, Exit, Typer

from evodrop.cli.options import Data

__all__ = ["app"]

app = Typer(help="Data sets: list, get and check them.", no_args_is_help=True)
Names = Annotated[list[str], Argument(metavar="NAME...", help="names of `evodrop data list`")]


@app.command("list")
def show(data: Data = None) -> None:
    """List all data sets: state, size and licence."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from evodrop.experiments.data import DATASETS, data_folder, status

    table = Table("name", "what it is", "state", title=Text(f"data sets in {data_folder(data)}"))
    table.add_column("size", justify="right")
    table.add_column("licence")
    for name, dataset in DATASETS.items():
        size = f"{dataset.download_size / 1e6:,.0f} MB" if dataset.download_size else "-"
        table.add_row(name, dataset.title, status(name, data), size, dataset.licence)
    Console().print(table)


@app.command("get")
def get(names: Names, data: Data = None) -> None:
    """Download data sets and check them.

    What is there and sound is left alone.
    """
    from evodrop.experiments.data import check, fetch

    for name in names:
        fetch(name, data)
        print(check(name, data), flush=True)


@app.command("check")
def check_all(names: Names, data: Data = None) -> None:
    """Read data sets and say what was found.

    The exit code is 1 if one of them is missing or damaged.
    """
    from evodrop.experiments.data import DataError, check

    sound = True
    for name in names:
        try:
            print(check(name, data), flush=True)
        except DataError as error:
            sound = False
            print(f"evodrop: {error}", file=sys.stderr)
    if not sound:
        raise Exit(1)
