"""``evodrop theory``: what the paper predicts for a data set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option


def run(
    file: Annotated[Path, Argument(help="examples in svmlight (LIBSVM) format; plain, gzip or bzip2")],
    rate: Annotated[float, Option(help="fraction of units to drop")] = 0.5,
    radius: Annotated[float, Option(help="norm of the weights that the risk bound compares with")] = 1.0,
    plot: Annotated[Path | None, Option(help="picture to write: .png, .pdf or .svg [FILE-theory.png]")] = None,
    zero_based: Annotated[bool, Option("--zero-based", help="the first feature has index 0, not 1")] = False,
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
