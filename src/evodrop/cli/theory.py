"""``evodrop theory``: what the paper predicts for a data set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from evodrop.cli.options import plain_stem


def run(
    file: Annotated[Path, Argument(help="examples in svmlight (LIBSVM) format; plain, gzip or bzip2")],
    rate: Annotated[float, Option(help="fraction of units to drop")] = 0.5,
    radius: Annotated[float, Option(help="norm of the weights that the risk bound compares with")] = 1.0,
    plot: Annotated[Path | None, Option(help="picture to write: .png, .pdf or .svg [FILE-theory.png]")] = None,
    zero_based: Annotated[bool, Option("--zero-based", help="the first feature has index 0, not 1")] = False,
    features: Annotated[int | None, Option(help="number of features; spares a pass over the file")] = None,
) -> None:
    """What the paper predicts for a data set: a table, and a picture of the probabilities."""
    from rich.console import Console
    from rich.markup import escape

    from evodrop._checks import checked_rate
    from evodrop.experiments.theory_figure import check_path, save
    from evodrop.linear import iter_svmlight
    from evodrop.theory import report
    from evodrop.theory.bounds import checked_positive

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
    print(prediction)
    save(prediction, picture)
    print(f"\nplot: {picture}")


def _picture_of(file: Path) -> str:
    """train.svm.bz2 -> train-theory.png."""
    return f"{plain_stem(file)}-theory.png"
