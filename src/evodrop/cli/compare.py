"""``evodrop compare``: every dropout on the same network and data."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from typer import Exit, Option

from evodrop.cli.options import (
    Cluster,
    Data,
    Jobs,
    all_ranks,
    checked_out,
    command_line,
    names_in,
    plain_stem,
    resumable,
    show,
)


def run(
    dataset: Annotated[str, Option(help="a name of `evodrop data list`, or svm:TRAIN,TEST")] = "digits",
    methods: Annotated[
        str | None,
        Option(
            help="some of none,standard,uniform,evolutional,water-filling,batchnorm [these], weight-aware,gaussian,"
            "fast,standout,dropconnect,batchwise,variational,variational-weights,adaptive-rate, or all; for text some "
            "of none,standard,uniform,data-dependent,water-filling [these], weight-aware, or all"
        ),
    ] = None,
    network: Annotated[str, Option(help="auto: the one for the data set")] = "auto",
    rate: Annotated[str, Option(help="fraction to drop, or tune: chosen by each method's validation error")] = "0.5",
    match: Annotated[str, Option(help="what k is matched to: draws, distinct or noise")] = "draws",
    seeds: Annotated[int, Option(help="runs of each method", min=1)] = 3,
    epochs: Annotated[int | None, Option(help="passes over the data [digits 100, text 10, else 5]", min=1)] = None,
    lr: Annotated[
        str | None, Option(help="step size, or grid: chosen from the paper's [one known to be good, else grid]")
    ] = None,
    jobs: Jobs = 2,
    cluster: Cluster = None,
    data: Data = None,
    out: Annotated[
        Path | None,
        Option(help="folder of the results [runs/compare-DATASET]"),
    ] = None,
) -> None:
    """Compare dropouts on the same network and data.

    All methods of a seed begin with the same weights and see the same batches. A table shows live how they learn, and
    a report in HTML how fast and how well each of them did.

    A run that was stopped goes on where it was; a finished one is not repeated. Under torchrun all processes share
    every batch of a network.
    """
    names = None if methods is None else names_in(methods)
    with resumable(), all_ranks(data, cluster) as leads:
        if not leads:
            return
        folder = checked_out(out or Path("runs") / f"compare-{_name_of(dataset)}")
        if cluster is not None:
            folder = folder.absolute()  # workers have working folders of their own
        from evodrop.experiments.running.comparison import Question, compare
        from evodrop.linear.dask import joblib_on

        question = Question(dataset, names, network, rate, match, seeds, epochs, lr)
        with joblib_on(cluster):
            findings = compare(question, folder, data=data, jobs=jobs, command=command_line())
        show(findings)
    if findings.failed:
        raise Exit(1)


def _name_of(dataset: str) -> str:
    """What a folder is called after a data set; after svm:web/train.svm,web/test.svm it is web-train."""
    from evodrop.experiments.datasets import PAIR

    if dataset.startswith(PAIR):
        train = Path(dataset.removeprefix(PAIR).split(",")[0]).expanduser().absolute()
        dataset = f"{train.parent.name}-{plain_stem(train)}"
    return re.sub("[^A-Za-z0-9._]+", "-", dataset).strip("-.") or "data"
