"""The command ``evodrop``: compare, reproduce, report, theory and data.

A command reads its arguments, calls the laboratory and prints. What it calls is imported when it runs, so that
``--help`` answers at once.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

try:
    import typer
    from typer import Argument, Exit, Option
except ModuleNotFoundError:
    sys.exit("the command evodrop needs its extra: install evodrop[lab]")
if TYPE_CHECKING:
    from evodrop.lab.panels import Panel
    from evodrop.lab.run import RunResult
    from evodrop.lab.verdicts import Outcome

Data = Annotated[Path | None, Option("--data", help="data folder [EVODROP_DATA, else the user's cache]")]
Jobs = Annotated[int, Option(help="runs at once, each on one core", min=1)]
Names = Annotated[list[str], Argument(metavar="NAME...", help="names of `evodrop data list`")]
ENDINGS = (".bz2", ".gz", ".svm", ".svmlight", ".libsvm", ".txt")  # of files of examples
LAUNCHED = "TORCHELASTIC_RUN_ID"  # set by torchrun
OPTIONS = {"zero_based=True": "--zero-based", "n_features": "--features"}  # what evodrop.linear calls them

app = typer.Typer(
    help="Dropout whose noise follows the data.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(help="Data sets: list, get and check them.", no_args_is_help=True)
app.add_typer(data_app, name="data")


def main(arguments: list[str] | None = None) -> None:
    """Run the command and exit; what is wrong with its input is one line on stderr and exit code 1."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # what the terminal's encoding lacks becomes a question mark
    try:
        app(arguments)
    except (ValueError, OSError, ImportError) as error:
        message = str(error)
        if isinstance(error, FileNotFoundError) and error.filename:  # the system's own words
            message = f"there is no file {str(error.filename)!r}; check its name, or give the whole path"
        elif isinstance(error, ModuleNotFoundError) and error.name:
            message = f"{error.name} is missing; install evodrop[lab]"
        for argument, option in OPTIONS.items():
            message = message.replace(argument, option)
        sys.exit(f"evodrop: {message}")
    except MemoryError:
        sys.exit("evodrop: the data do not fit in memory; has a feature a huge index?")


@app.command()
def compare(
    dataset: Annotated[str, Option(help="a name of `evodrop data list`, or svm:TRAIN,TEST")] = "digits",
    methods: Annotated[
        str | None,
        Option(
            help="some of none,standard,uniform,evolutional,water-filling,batchnorm [these], weight-aware,gaussian,"
            "fast,standout,dropconnect,batchwise,variational,variational-weights,adaptive-rate, or all; for text some "
            "of none,standard,uniform,data-dependent,water-filling [these], weight-aware, or all; for networks also "
            "module:Class, a dropout of your own that takes the rate"
        ),
    ] = None,
    network: Annotated[str, Option(help="auto: the one for the data set")] = "auto",
    rate: Annotated[str, Option(help="fraction to drop, or tune: chosen by each method's validation error")] = "0.5",
    match: Annotated[
        str,
        Option(
            help="how k is chosen: draws, d (1 - rate); distinct or noise, units kept or noise as in standard dropout"
        ),
    ] = "draws",
    seeds: Annotated[int, Option(help="runs of each method", min=1)] = 3,
    epochs: Annotated[int | None, Option(help="passes over the data [digits 100, text 10, else 5]", min=1)] = None,
    lr: Annotated[
        str | None,
        Option(help="step size, or grid: chosen from the paper's [digits and the paper's data: a good one; else grid]"),
    ] = None,
    jobs: Jobs = 2,
    cluster: Annotated[
        str | None, Option(help="address of a Dask scheduler whose workers do the runs; they see the same folders")
    ] = None,
    data: Data = None,
    out: Annotated[Path | None, Option(help="folder of the results [runs/compare-DATASET]")] = None,
) -> None:
    """Compare dropouts on the same network and data.

    All methods of a seed begin with the same weights and see the same batches. A table shows live how they learn, and
    a report in HTML how fast and how well each of them did.

    A run that was stopped goes on where it was; a finished one is not repeated. Under torchrun all processes share
    every batch of a network.
    """
    with _leading(data, cluster) as leads:
        if not leads:
            return
        from evodrop.lab.experiment import carry_out, panel_for

        name = dataset
        if dataset.startswith("svm:"):  # svm:web/train.svm,web/test.svm is web-train
            train = Path(dataset.removeprefix("svm:").split(",")[0]).expanduser().absolute()
            name = f"{train.parent.name}-{_plain_stem(train)}"
        name = re.sub("[^A-Za-z0-9._]+", "-", name).strip("-.") or "data"
        folder = _checked_out(out or Path("runs") / f"compare-{name}")
        some = _names(methods)
        panel = panel_for(
            dataset, some, network=network, rate=rate, match=match, seeds=seeds, epochs=epochs, lr=lr, data=data
        )
        with ExitStack() as stack:
            if cluster is not None:
                from evodrop.linear.dask import joblib_on

                folder = folder.absolute()  # workers have working folders of their own
                stack.enter_context(joblib_on(cluster))
            command, tune = _command_line(), rate == "tune"
            outcomes, failed = carry_out(panel, folder, data=data, jobs=jobs, command=command, tune_rates=tune)
        _show(outcomes, failed, folder)
    if failed:
        raise Exit(1)


@app.command()
def reproduce(
    name: Annotated[str, Argument(metavar="ID|all|list", help="list names the panels")],
    methods: Annotated[str | None, Option(help="some of a panel's methods, as standard,evolutional [all]")] = None,
    epochs: Annotated[int | None, Option(help="instead of the protocol's", min=1)] = None,
    seeds: Annotated[int | None, Option(help="instead of the protocol's", min=1)] = None,
    steps: Annotated[str | None, Option(help="step sizes to choose from, as 0.1,1,10, instead of the paper's")] = None,
    tuning_epochs: Annotated[
        int | None, Option(help="of the runs that choose the step [as many as all]", min=1)
    ] = None,
    quick: Annotated[bool, Option("--quick", help="a few epochs, two seeds, one step size")] = False,
    check: Annotated[bool, Option("--check", help="exit 1 if a claim that holds in RESULTS fails here")] = False,
    results: Annotated[Path, Option(help="where --check finds the kept results of each panel")] = Path("results"),
    jobs: Jobs = 2,
    data: Data = None,
    out: Annotated[Path, Option(help="each panel gets a folder in it")] = Path("runs"),
) -> None:
    """Rerun a figure of the paper and judge its claims.

    The paper's protocol is the default, and the report says what was cut short. Report and verdicts cover every
    finished run of the panel in its folder, whichever command made it.

    A run that was stopped goes on where it was; a finished one is not repeated. Under torchrun all processes share
    every batch of a network.
    """
    with _leading(data) as leads:
        if not leads:
            return
        from evodrop.lab.data import load, status
        from evodrop.lab.experiment import carry_out
        from evodrop.lab.panels import PANELS, find_panel
        from evodrop.lab.store import VERDICTS
        from evodrop.lab.verdicts import no_longer_held, read_verdicts

        try:
            grid = None if steps is None else [float(step) for step in steps.split(",")]
        except ValueError:
            raise ValueError(f"--steps is {steps!r}, but it takes numbers with commas between, as 0.1,1,10") from None
        panels = list(PANELS.values()) if name in ("all", "list") else [find_panel(name)]
        some, less = _names(methods), {"epochs": epochs, "seeds": seeds, "tuning_epochs": tuning_epochs}
        panels = [panel.cut(methods=some, grid=grid, quick=quick, **less) for panel in panels]
        if name == "list":
            _list_panels(panels, data)
            return
        absent = [panel for panel in panels if name == "all" and status(panel.dataset, data) != "present"]
        panels = [panel for panel in panels if panel not in absent]
        _checked_out(out)
        for panel in panels:
            _checked_out(out / panel.id)
            if status(panel.dataset, data) != "present" and not (out / panel.id).exists():
                load(panel.dataset, data)  # its error says how to get it, before a folder is made
        kept = {}
        if check:  # read before the first run: a damaged file should not be found after hours of training
            paths = {panel.id: results / panel.id / VERDICTS for panel in panels}
            kept = {name: read_verdicts(path) for name, path in paths.items() if path.is_file()}
            if missing := ", ".join(panel.id for panel in panels if panel.id not in kept):
                if name != "all":
                    raise ValueError(f"there are no verdicts on {missing} in {results} to check; name --results")
                print(f"evodrop: nothing to check against in {results}: {missing}", file=sys.stderr)
        broken = bool(absent)
        for panel in panels:
            outcomes, failed = carry_out(panel, out / panel.id, data=data, jobs=jobs, command=_command_line())
            _show(outcomes, failed, out / panel.id)
            verdicts = [verdict for outcome in outcomes for verdict in outcome.verdicts]
            lost = no_longer_held(verdicts, kept.get(panel.id, {}))
            for words in lost:
                print(f"evodrop: {words}", file=sys.stderr)
            broken = broken or bool(lost or failed)
        if absent:
            names = ", ".join(panel.id for panel in absent)
            print(f"evodrop: left out, since their data are not there: {names}; see evodrop data list", file=sys.stderr)
    if broken:
        raise Exit(1)


def _list_panels(panels: list[Panel], data: Path | None) -> None:
    """Each panel: is its data there, how many runs does it take, and how many iterations?"""
    from rich.console import Console
    from rich.table import Column, Table

    from evodrop.lab.data import status

    table = Table(Column("panel", no_wrap=True), "place in the paper", "data")
    table.add_column("runs", justify="right")
    table.add_column("iterations", justify="right")
    for panel in panels:
        final = panel.final_runs(dict.fromkeys((variant.label for variant in panel.variants), panel.grid[0]))
        runs = list(dict.fromkeys([*(panel.tuning_runs() if len(panel.grid) > 1 else []), *final]))
        iterations = sum(run.epochs for run in runs) * (panel.examples // panel.batch_size)
        state = f"{panel.dataset}: {status(panel.dataset, data)}"
        table.add_row(panel.id, panel.place, state, str(len(runs)), f"{iterations:,}")
    Console().print(table)


@app.command()
def report(
    folders: Annotated[list[Path], Argument(metavar="RUN...", help="folders of runs, or of experiments")],
    out: Annotated[Path | None, Option(help="where to [the folder, if it is one; else here]")] = None,
    tensorboard: Annotated[bool, Option("--tensorboard", help="also write event files, to OUT/tensorboard")] = False,
) -> None:
    """Make the report of runs again from their records."""
    from evodrop.lab.experiment import reopen
    from evodrop.lab.report import event_writer, write_events

    target = _checked_out(out or (folders[0] if len(folders) == 1 else Path()))
    if tensorboard:
        event_writer()  # if it is missing, that is an error before anything is written
    outcomes = reopen(folders, target, _command_line())
    if tensorboard:
        print(f"event files: {write_events(outcomes, target / 'tensorboard')}")
    _show(outcomes, [], target)


@app.command()
def theory(
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

    from evodrop.lab.figures import draw_theory, save
    from evodrop.linear import iter_svmlight
    from evodrop.theory import report
    from evodrop.theory.bounds import checked_positive

    picture = plot or Path(f"{_plain_stem(file)}-theory.png")
    if picture.suffix.lower() not in (".png", ".pdf", ".svg") or not picture.parent.is_dir():
        raise ValueError(f"--plot is {str(picture)!r}, but it is a .png, .pdf or .svg in a folder that is there")
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
    save(draw_theory(prediction), picture)
    print(f"\nplot: {picture}")


@data_app.command("list")
def list_data(data: Data = None) -> None:
    """List all data sets: state, size and licence."""
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    from evodrop.lab.data import DATASETS, data_folder, status

    table = Table(Column("name", no_wrap=True), "what it is", "state", title=Text(f"data sets in {data_folder(data)}"))
    table.add_column("size", justify="right")
    table.add_column("licence")
    for name, dataset in DATASETS.items():
        size = f"{dataset.download_size / 1e6:,.0f} MB" if dataset.download_size else "-"
        table.add_row(name, dataset.title, status(name, data), size, dataset.licence)
    Console().print(table)


@data_app.command("get")
def get_data(names: Names, data: Data = None) -> None:
    """Download data sets and check them. What is there and sound is left alone."""
    from evodrop.lab.data import check, fetch

    for name in names:
        fetch(name, data)
        print(check(name, data), flush=True)


@data_app.command("check")
def check_data(names: Names, data: Data = None) -> None:
    """Read data sets and say what was found.

    The exit code is 1 if one of them is missing or damaged.
    """
    from evodrop.lab.data import DataError, check

    sound = True
    for name in names:
        try:
            print(check(name, data), flush=True)
        except DataError as error:
            sound = False
            print(f"evodrop: {error}", file=sys.stderr)
    if not sound:
        raise Exit(1)


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(name.strip() for name in text.split(",") if name.strip())


def _plain_stem(path: Path) -> str:
    """The name of a file of examples without its endings: of data/train.svm.bz2 it is train."""
    while path.suffix in ENDINGS:
        path = path.with_suffix("")
    return path.name


def _command_line() -> str:
    """What was typed, for the report to say."""
    launcher = []
    if LAUNCHED in os.environ:
        nodes, ranks = (os.environ.get(name, "1") for name in ("GROUP_WORLD_SIZE", "LOCAL_WORLD_SIZE"))
        launcher = ["torchrun", f"--nnodes={nodes}", f"--nproc-per-node={ranks}", "-m"]
    return shlex.join([*launcher, "evodrop", *sys.argv[1:]])


@contextmanager
def _leading(data: Path | None, cluster: str | None = None) -> Iterator[bool]:
    """Whether this process does the command: under torchrun rank 0 does, and the others help it until it is done.

    Ctrl-C or SIGTERM ends the command in one line, since nothing is lost. Torchrun has its own way to end its ranks.
    """

    def terminate(number: int, _: Any) -> None:
        raise KeyboardInterrupt(number)

    if LAUNCHED not in os.environ and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, terminate)
    try:
        if LAUNCHED not in os.environ or os.environ.get("WORLD_SIZE", "1") == "1":
            yield True
            return
        if cluster is not None:
            raise ValueError(
                f"--cluster is {cluster!r}, but torchrun has started ranks for the runs; leave one of them out"
            )
        from evodrop.lab.training.ranks import joined

        with joined(data) as leads:
            yield leads
    except KeyboardInterrupt as stop:
        by = " by SIGTERM" if stop.args else ""
        print(f"\nevodrop: stopped{by}; the same command goes on from here", file=sys.stderr)
        raise Exit(128 + (stop.args or (signal.SIGINT,))[0]) from None  # as a shell counts


def _checked_out(folder: Path) -> Path:
    """The folder itself if it is one or can be made, or an error that names --out."""
    if folder.suffix == ".html" and not folder.is_dir():
        raise ValueError(f"--out is {str(folder)!r}, but it takes a folder: the page in it is called report.html")
    for place in (folder, *folder.parents):
        if place.exists() and not place.is_dir():
            raise ValueError(f"--out is {str(folder)!r}, but {str(place)!r} is a file; name a folder")
    return folder


def _show(outcomes: list[Outcome], failed: list[RunResult], out: Path) -> None:
    """Print what was found, the failures on stderr, and last of all where the report is."""
    from evodrop.lab.report import show

    show(outcomes)
    if failed:
        from evodrop.lab.runner import label  # and with it what runs side by side take: a report needs none of that

        for result in failed:
            print(f"evodrop: {label(result.run)} failed: {result.error}", file=sys.stderr)
    print(f"report: {out / 'report.html'}", flush=True)
