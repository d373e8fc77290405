"""The folder of a run: killed at any moment, it resumes and ends with the same records, to the last bit.

==================  ===============================================================================================
``records.jsonl``   a header (run, data, environment, git), then one line per evaluation
``timings.jsonl``   seconds and starts: all that differs from one time to the next
``checkpoint.bin``  the state of the training and the records up to it; gone when the run has ended
``lock``            the process id and the host of who writes here
==================  ===============================================================================================

A run resumes from one file: the checkpoint holds the records too, and ``records.jsonl`` is written again from it. A
checkpoint is checked before it is trusted, and no code in it is ever run: torch reads it with ``weights_only=True``.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import json
import os
import platform
import secrets
import socket
import subprocess
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import deepcopy
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

import evodrop
from evodrop.lab.run import FINAL, Record, Run

if TYPE_CHECKING:
    from evodrop.lab.training import Training

RECORDS, TIMINGS, CHECKPOINT, LOCK = "records.jsonl", "timings.jsonl", "checkpoint.bin", "lock"
KEPT, VERDICTS = "runs.jsonl.gz", "verdicts.json"  # of an experiment: what is kept of it takes no other file
LARGEST = 1 << 30  # bytes of unpacked records: more are a bomb
CHECKPOINT_SECONDS = 15.0
PATIENCE = 20.0  # seconds to wait for a worker whose parent was killed: it ends in a moment, and its lock with it
DIGEST_BYTES = hashlib.sha256().digest_size
CODE = Path(evodrop.__file__).parent
GIT_SECONDS = 10.0  # that git may take to answer
NO_FOLDER_FLUSH = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EACCES)  # of systems that cannot flush a folder
Line = dict[str, Any]


class RecordsError(ValueError):
    """Records or a checkpoint that cannot be read, or that belong to another run."""


class LockedError(OSError):
    """Another process writes in this folder."""


def keep_records(training: Training, folder: Path, every: float = CHECKPOINT_SECONDS) -> Iterator[Record]:
    """All records of a training, those that an earlier process left first; each is on the disk before it is given.

    A checkpoint comes ``every`` so many seconds. One that is torn or damaged is a RuntimeWarning, and the run begins
    again. One that is sound, but of another run, of an older evodrop or without all its records, is an error, as are
    records of another run or of other data; then every file stays as it is.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, PATIENCE):
        lines = _resumed(training, folder)
        yield from lines[1:]
        saved = perf_counter()
        while training.status not in FINAL:
            record = training.step()
            if record is not None:
                _append(folder / RECORDS, record, flush=True)
                _append(folder / TIMINGS, training.timing())
                lines.append(record)
                yield record
            if training.status in FINAL:
                _append(folder / TIMINGS, {"event": "end", "status": training.status})
            elif perf_counter() - saved >= every:
                _save(folder / CHECKPOINT, {"training": training.state(), "records": _text(lines).decode()})
                saved = perf_counter()
        for name in (CHECKPOINT, f".{CHECKPOINT}.part", f".{RECORDS}.part"):
            (folder / name).unlink(missing_ok=True)


def _resumed(training: Training, folder: Path) -> list[Any]:
    """Bring the training to its checkpoint, or leave it at its beginning; the header and the records up to there."""
    path, checkpoint, environment = folder / RECORDS, folder / CHECKPOINT, describe_environment(training.ranks)
    header: Line = {"run": training.run.to_dict(), "data": training.fingerprint, "environment": environment}
    header["git"] = describe_git()
    if checkpoint.exists() and not checkpoint.is_file():  # a device could be read for ever
        kind = "a folder" if checkpoint.is_dir() else "a pipe or a device"
        raise RecordsError(f"{checkpoint} is {kind}, but a checkpoint is a file; move it away")
    lines = _parsed(path.read_bytes(), path) if path.is_file() else []
    _check_identity(lines, header, path)
    if lines[1:] and lines[-1].get("status") in FINAL:
        training.status = lines[-1]["status"]
        return lines
    fresh, trouble = deepcopy(training.state()), None
    try:
        lines = _load(checkpoint, training, header)
    except RecordsError:  # it is sound, but not this run's: not ours to replace
        raise
    except Exception as error:  # anybody may have changed the file, and it can be wrong in any way
        trouble, lines = f"{type(error).__name__}: {error}", []
        training.load_state(fresh)
        warnings.warn(f"{folder} begins again, since its checkpoint is of no use: {trouble}", RuntimeWarning, 3)
    if lines and (before := lines[0].get("environment")) != environment:
        words = f"so its last digits may differ: {before} became {environment}"
        warnings.warn(f"{folder} resumes in another environment, {words}", RuntimeWarning, 3)
    lines = lines or [header]
    write_whole(path, _text(lines))
    start = {"event": "start", "iteration": training.iteration, "time": datetime.now(UTC).isoformat(timespec="seconds")}
    start |= {"pid": os.getpid(), "environment": environment, "trouble": trouble}
    _append(folder / TIMINGS, start, new_line=True)
    return lines


def _check_identity(lines: list[Line], header: Line, path: Path) -> None:
    for part in ("run", "data"):
        if lines and lines[0].get(part) != header[part]:
            found = f"its {part} is {lines[0].get(part)!r:.200}, not {header[part]!r:.200}"
            raise RecordsError(f"{path} holds another run: {found}; name another folder, or move it away")


def describe_environment(ranks: int = 1) -> dict[str, str | int | None]:
    """What the last digits of a record may depend on. No time and no process id: two runs here say the same."""
    versions: dict[str, str | int | None] = {"python": platform.python_version(), "evodrop": evodrop.__version__}
    for package in ("torch", "numpy", "numba", "scipy", "scikit-learn"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # not Linux
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    machine = {"system": f"{platform.system()} {platform.machine()}", "cpu": (names or [platform.processor()])[0]}
    return versions | machine | {"threads": 1} | ({"ranks": ranks} if ranks > 1 else {})  # a run has one thread


def describe_git(folder: Path = CODE) -> dict[str, str | bool] | None:
    """The commit of the repository around a folder, and whether tracked files differ from it; None outside of any.

    By default the folder is that of this package, wherever the command was given: its code makes the records.
    """
    command = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false"]  # a repository may name a program
    try:
        commit, changes = (
            subprocess.run(
                [*command, *words], cwd=folder, capture_output=True, text=True, timeout=GIT_SECONDS, check=True
            ).stdout.strip()
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
    except (OSError, subprocess.SubprocessError):  # no git, no repository, no answer
        return None
    return {"commit": commit, "changed": changes != ""}


def _save(path: Path, state: Line) -> None:
    """A digest goes first: torch's own format takes a flipped bit in a weight for a weight."""
    import torch

    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_whole(path, hashlib.sha256(buffer.getvalue()).digest() + buffer.getvalue())


def _load(path: Path, training: Training, header: Line) -> list[Line]:
    """Bring the training to a checkpoint; the header and the records in it, none if there is no such file.

    A RecordsError refuses a checkpoint that is sound, but not this run's. Any other error is one of a damaged file.
    """
    import torch

    if not path.exists():
        return []
    data = path.read_bytes()
    if hashlib.sha256(data[DIGEST_BYTES:]).digest() != data[:DIGEST_BYTES]:
        raise ValueError("its contents do not fit its digest")
    with warnings.catch_warnings(action="ignore"):  # torch may warn of what it then refuses
        state = torch.load(io.BytesIO(data[DIGEST_BYTES:]), map_location="cpu", weights_only=True)
    if "mark" in state:
        raise RecordsError(f"{path} is of an older evodrop; finish the run with that one, or remove its folder")
    lines = [json.loads(line) for line in state["records"].splitlines()]
    _check_identity(lines, header, path)
    training.load_state(state["training"])
    every, found = training.run.eval_every, [record["iteration"] for record in lines[1:]]
    if not lines or found != list(range(every, training.iteration + 1, every)):
        raise RecordsError(
            f"{path} is of iteration {training.iteration} and holds {len(found)} records, but a record every {every} "
            f"iterations makes {training.iteration // every}; restore it, or remove it, and the run begins again"
        )
    return lines


def read_records(folder: Path) -> tuple[Line, list[Line]]:
    """The header and the records of a run, finished or not. A last line torn by a kill does not count."""
    path = folder / RECORDS
    if not path.is_file():
        raise RecordsError(f"there is no {RECORDS} in {folder}; name the folder of a run")
    lines = _parsed(path.read_bytes(), path)
    if not lines:
        raise RecordsError(f"{path} does not begin with the header of a run; name the folder of a run")
    return lines[0], lines[1:]


def finished_records(folder: Path, run: Run) -> list[Line] | None:
    """The records of a run that has ended and left nothing behind, or None: ask before loading data for it."""
    if any((folder / name).exists() for name in (CHECKPOINT, LOCK)):
        return None
    with suppress(RecordsError):
        header, records = read_records(folder)
        if header["run"] == run.to_dict() and records and records[-1].get("status") in FINAL:
            return records
    return None


def read_timings(folder: Path) -> list[Line]:
    """The lines of ``timings.jsonl``, but for damaged ones; none if there is no such file."""
    path = folder / TIMINGS
    lines = path.read_bytes().split(b"\n") if path.is_file() else []
    return [line for line in map(_object, lines) if line is not None]


def read_kept(folder: Path) -> dict[str, tuple[Line, list[Line]]]:
    """The header and the records of each run of a kept experiment, by the name of the run.

    A line of ``runs.jsonl.gz`` is a record with the fields of its run, ``cpu_seconds`` per iteration since the record
    before, and its own ``lr`` as ``lr_now``. What the headers say besides, ``verdicts.json`` has, once for all runs.
    """
    path, known = folder / KEPT, folder / VERDICTS
    try:
        with gzip.open(path) as file:
            text = file.read(LARGEST + 1)
        parts = json.loads(known.read_bytes())["headers"]
        headers: Line = {name: dict(part) for part in parts for name in part["runs"]}
    except (OSError, EOFError, zlib.error, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        words = f"{type(error).__name__}: {error}"
        raise RecordsError(f"{path} or {known.name} beside it is damaged ({words}); restore both") from error
    if len(text) > LARGEST:
        raise RecordsError(f"{path} unpacks to more than {LARGEST} bytes; it holds no records and is not read")
    runs = dict[str, tuple[Line, list[Line]]]()
    for line in _parsed(text, path):
        if (name := str(line.get("run"))) not in headers:
            raise RecordsError(f"{path} has a run {name!r:.80}, of which {known.name} has no header; restore both")
        runs.setdefault(name, (headers[name] | {"run": line}, []))[1].append(line)
    return runs


def _parsed(text: bytes, path: Path) -> list[Line]:
    """The header and the records in a file. Only its last line can be torn; else it is an error."""
    lines = [_object(line) for line in text.split(b"\n")[:-1]]
    if lines and lines[-1] is None:  # the end of a line may be on the disk before its beginning
        lines.pop()
    sound = [line for line in lines if line is not None]
    if len(sound) < len(lines):
        number = lines.index(None) + 1
        raise RecordsError(f"line {number} of {path} is not a JSON object; restore the file, or move it away")
    if sound and "run" not in sound[0]:
        raise RecordsError(f"{path} does not begin with the header of a run; move it away, or name another folder")
    return sound


def _object(line: bytes) -> Line | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):  # not UTF-8, not JSON, or nested to confuse
        return None
    return value if isinstance(value, dict) else None


def _text(lines: Iterable[Mapping[str, Any]]) -> bytes:
    objects = (json.dumps(line, allow_nan=False, separators=(",", ":")) for line in lines)
    return "".join(f"{line}\n" for line in objects).encode()


def _append(path: Path, line: Mapping[str, Any], *, flush: bool = False, new_line: bool = False) -> None:
    """Add a line. With ``flush`` it is on the disk before the next one: if the power fails, only the last is torn.

    With ``new_line`` what a kill has torn stays a line of its own.
    """
    with _writing(path), open(path, "ab") as file:
        file.write(b"\n" * (new_line and file.tell() > 0) + _text([line]))
        if flush:
            file.flush()
            os.fsync(file.fileno())


@contextmanager
def locked(folder: Path, patience: float = 0.0) -> Iterator[None]:
    """Hold a folder; another holder is a :class:`LockedError` that names it, after so many seconds of patience.

    The system drops the lock when its process ends, in whatever way. The file ``lock`` goes with the lock; one that a
    killed process left is taken over.
    """
    path = folder / LOCK
    lock = FileLock(path, timeout=patience, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        process, _, host = path.read_text(errors="replace").strip().partition(" ") if path.is_file() else ("", "", "")
        holder = f"process {process} on {host}" if process else "another process"
        raise LockedError(
            f"{folder} is being written by {holder}; wait until it ends, or stop it: what it has done is kept"
        ) from None
    except OSError as error:
        raise OSError(
            f"{path} cannot be locked ({error}): this file system has no locks; name an --out on a local disk"
        ) from error
    try:
        with _writing(path):
            path.write_text(f"{os.getpid()} {socket.gethostname()}\n")
        yield
    finally:
        path.unlink(missing_ok=True)  # while the lock is held: nobody else's file can be meant
        lock.release()


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """An error while a file is written, as on a full disk, names the file and the remedy."""
    try:
        yield
    except OSError as error:
        words = f"{path} cannot be written ({error.strerror or error}); make room on its disk, or name another folder"
        raise OSError(f"{words}. What is done is kept, and the same command goes on from there") from error


def write_whole(path: Path, data: bytes, *, shared: bool = False) -> None:
    """Write to a temporary file beside ``path``, wait for the disk, and rename: readers see the old file or the new.

    It is ``shared`` if others may write the same file at the same time, because no lock keeps them out.
    """
    part = path.with_name(f".evodrop-{secrets.token_hex(8)}.part" if shared else f".{path.name}.part")
    try:
        with _writing(path), open(part, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    try:  # a rename is on the disk when its folder is, and not every file system can be asked to wait for that
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:  # the file has its name already: it is whole in any case
        if error.errno not in NO_FOLDER_FLUSH:
            raise
