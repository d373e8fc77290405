"""Many runs side by side, each in its own folder: what was killed goes on, what is finished is not repeated.

Runs share nothing but their data, so records do not depend on how many are run at once, nor by which backend of joblib.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evodrop.experiments.data import PAIR, VALIDATION, Documents, Images, held_out, load
from evodrop.experiments.methods import METHODS, build_with
from evodrop.experiments.records.folder import was_left
from evodrop.experiments.records.record import FAILED, Ending, Record
from evodrop.experiments.records.runs import AnyRun, LinearRun, Run
from evodrop.experiments.running.workers import PULSE, BrokenProcessPool, end_with, in_parallel, shared_folder
from evodrop.experiments.training.keeping import finished_records, keep_records
from evodrop.experiments.training.loop import Training
from evodrop.experiments.training.shared import SharedTraining, is_shared
from evodrop.locking import FolderLock, LockedError

if TYPE_CHECKING:
    from torch import nn

__all__ = ["check_fit", "check_method", "load_once", "network_for", "records_of", "run_all", "training_of"]

Data = Images | Documents
PATIENCE = 20.0  # seconds that a worker waits for the lock of one that is about to end
TRIES = 2  # of what was lost with a worker that the system killed
KILLED = "its process was killed; is there memory for so many --jobs?"
ONE_AT_A_TIME = threading.Lock()  # torch has one generator a process: runs in threads take turns


def run_all(
    runs: Sequence[AnyRun],
    out: str | os.PathLike[str],
    data: str | os.PathLike[str] | None = None,
    *,
    jobs: int = 2,
    on_ending: Callable[[Ending], None] | None = None,
    locked: bool = False,
) -> list[Ending]:
    """Do all runs, and tell how each ended. One that fails is an ending too, and the others go on.

    Args:
        runs: what to do; one that is named twice is done once.
        out: folder of the results; a run is kept in ``out/<run.id>``. One process at a time writes there.
        data: the data folder, see :func:`evodrop.experiments.data.data_folder`.
        jobs: runs at once, each in a process with one thread. A ``joblib.parallel_config`` around the call may choose
            another backend; its workers have to see ``out``.
        on_ending: called with each ending as it comes.
        locked: whether the caller holds the lock of ``out``, or of a folder around it, to write more there.

    Returns:
        The endings in the order of the runs.
    """
    if not jobs >= 1:
        raise ValueError(f"jobs is {jobs!r}, but there is at least 1 run at a time")
    runs, results = list(dict.fromkeys(runs)), dict[AnyRun, Ending]()
    Path(out).mkdir(parents=True, exist_ok=True)
    with nullcontext() if locked else FolderLock(out), shared_folder(Path(out)) as shared:
        for ending in _endings(runs, Path(out), data, jobs, shared):
            results[ending.run] = ending
            if on_ending is not None:
                on_ending(ending)
    return [results[run] for run in runs]


@lru_cache(maxsize=1)
def load_once(name: str, folder: str | os.PathLike[str] | None = None) -> Data:
    """A data set, kept in memory until another one is asked for.

    "validation:NAME" is the training data of NAME alone, a fifth of them set aside as test data.

    Examples:
        >>> [len(part) for part in load_once("validation:digits")[1:5]]
        [1151, 1151, 287, 287]
    """
    if not name.startswith(VALIDATION):
        return load(name, folder)
    whole: Any = load(name.removeprefix(VALIDATION), folder)
    x, y = whole.train_x, whole.train_y
    train, test = held_out(len(y))
    part: Data = whole._replace(name=name, train_x=x[train], train_y=y[train], test_x=x[test], test_y=y[test])
    return part


def check_fit(network: str, images: Images) -> None:
    """Raise a ValueError if a network cannot learn these images."""
    from evodrop.experiments.networks.catalogue import NETWORKS, build_network

    if network not in NETWORKS:
        build_network(network)  # its error lists the networks
    entry, (channels, height, width) = NETWORKS[network], images.train_x.shape[1:]
    if (entry.channels, entry.classes) != (channels, images.classes) or entry.size > min(height, width):
        raise ValueError(
            f"the network {network!r} takes {entry.channels} channels of {entry.size} x {entry.size} and tells "
            f"{entry.classes} classes apart, but {images.name} has {channels} of {height} x {width} and "
            f"{images.classes}; name a network that fits"
        )


def check_method(method: str, network: str) -> None:
    """Raise a ValueError if a method of the zoo does not find the layers that it needs in a network."""
    import torch

    from evodrop.experiments.networks.catalogue import NETWORKS

    if METHODS[method].in_zoo:
        with torch.device("meta"):  # no memory, and no random number
            build_with(NETWORKS[network].build, method)


def records_of(run: AnyRun, data: Data, folder: str | os.PathLike[str] | None = None) -> Iterator[Record]:
    """All records of one run, of a network or of a linear model, from its beginning or from where it was left.

    Examples:
        >>> run = Run(dataset="digits", network="digits", method="evolutional", seed=0, lr=0.01, epochs=1)
        >>> [record["iteration"] for record in records_of(run, load("digits"))]
        [11]
    """
    if isinstance(run, LinearRun):
        from evodrop.experiments.training.shallow import train_linear

        return train_linear(run, _checked(run, data, Documents), folder)
    if isinstance(run, Run):
        training = training_of(run, _checked(run, data, Images))
        return keep_records(training, training.pixels.fingerprint, folder)
    raise TypeError(f"a run is a Run or a LinearRun, not a {type(run).__name__}")


def network_for(run: Run) -> nn.Module:
    """The network of a run, with its initial weights: the same for every method of a seed."""
    from evodrop.experiments.networks.batchnorm import find_sizes
    from evodrop.experiments.networks.catalogue import NETWORKS, build_network, initialize

    network = build_with(partial(build_network, run.network), run.method, run.rate, run.match)
    return initialize(find_sizes(network, NETWORKS[run.network].input_shape), run.seed, run.weight_std)


def training_of(run: Run, images: Images) -> Training:
    """A run at its beginning; all ranks have their part in it where this process leads others."""
    from evodrop.experiments.networks.catalogue import NETWORKS
    from evodrop.experiments.training.pixels import prepare

    check_fit(run.network, images)
    entry = NETWORKS[run.network]
    kind = SharedTraining if is_shared() else Training
    return kind(run, network_for(run), prepare(images, entry.size, entry.scale))


def _checked(run: AnyRun, data: Data, kind: type[Any]) -> Any:
    if isinstance(data, kind):
        return data
    found = "images" if isinstance(data, Images) else "text"
    raise ValueError(f"{run.dataset} holds {found}, which the network {run.network!r} cannot learn")


def _endings(runs: Sequence[AnyRun], out: Path, data: Any, jobs: int, shared: Path) -> Iterator[Ending]:
    rest = []
    for run in runs:
        records = _records_of_done(run, out / run.id)
        if records is None:
            rest.append(run)
        else:
            yield Ending(run, records[-1]["status"], records[-1])
    for dataset in dict.fromkeys(run.dataset for run in rest):
        own = [run for run in rest if run.dataset == dataset]
        yield from _side_by_side(own, out, load_once(dataset, data), jobs, shared)


def _records_of_done(run: AnyRun, folder: Path) -> list[Record] | None:
    """The records of a run that needs neither its data nor a worker any more."""
    if run.dataset.removeprefix(VALIDATION).startswith(PAIR):
        return None  # its files may have changed since, which only their contents can tell
    return None if was_left(folder) else finished_records(folder, run)


def _side_by_side(runs: Sequence[AnyRun], out: Path, data: Data, jobs: int, shared: Path) -> Iterator[Ending]:
    """Runs on one data set. If the system kills a worker, those not done go on with new ones, and once more only."""
    from joblib import delayed

    rest = list(runs)
    if is_shared() and isinstance(data, Images):
        jobs = 1  # every run has all ranks
    for _ in range(TRIES):
        tasks = [delayed(_execute)(run, out / run.id, data, os.getpid()) for run in rest]
        try:
            for ending in in_parallel(tasks, jobs, shared):
                rest.remove(ending.run)
                yield ending
        except BrokenProcessPool:
            continue
        return
    yield from (Ending(run, FAILED, error=KILLED) for run in rest)


def _execute(run: AnyRun, folder: Path, data: Data, laboratory: int) -> Ending:
    """One run, in a worker or here; whatever goes wrong is told, not raised."""
    start = time.perf_counter()
    with ONE_AT_A_TIME, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RuntimeWarning)
        try:
            end_with(laboratory)
            _wait_for(folder)
            *_, record = records_of(run, data, folder)
            ending = Ending(run, record["status"], record)
        except Exception as error:  # any: the other runs go on
            ending = Ending(run, FAILED, error=f"{type(error).__name__}: {error}".splitlines()[0])
    remarks = tuple(dict.fromkeys(str(warning.message) for warning in caught))
    return ending._replace(remarks=remarks, seconds=time.perf_counter() - start)


def _wait_for(folder: Path) -> None:
    """Until a worker whose laboratory was killed lets go of a run: it will notice in a moment."""
    deadline = time.monotonic() + PATIENCE
    while folder.is_dir():
        try:
            with FolderLock(folder):
                return
        except LockedError:
            if time.monotonic() > deadline:
                raise
        time.sleep(PULSE)
