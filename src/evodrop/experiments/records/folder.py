"""A run's folder: what was measured, line by line, so that a run killed at any moment can go on.

==================  ==================================================================================================
``records.jsonl``   a header (run, data, environment, git), then one line an evaluation; the same however often a run
                    was killed on its way
``timings.jsonl``   seconds, sessions and remarks: all that differs from time to time
``checkpoint.bin``  the state to go on from; gone when the run is finished
``lock``            held while somebody writes
==================  ==================================================================================================
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from evodrop.durable import flush_to_disk, part_of, write_whole
from evodrop.locking import FolderLock

__all__ = ["RecordsError", "RunFolder", "read_records", "read_timings", "seconds_per_iteration", "was_left"]

RECORDS, TIMINGS, CHECKPOINT = "records.jsonl", "timings.jsonl", "checkpoint.bin"
IDENTITY = ("run", "data")  # parts of a header that have to agree for two sessions to be of the same run
Line = dict[str, Any]


class RecordsError(ValueError):
    """A file of records that cannot be read, or that belongs to another run."""


def read_records(folder: str | os.PathLike[str]) -> tuple[Line, list[Line]]:
    """The header and the records of a run, finished or not. A last line torn by a kill does not count."""
    path = Path(folder) / RECORDS
    if not path.is_file():
        raise RecordsError(f"there is no {RECORDS} in {folder}; name the folder of a run")
    lines = _whole_lines(path)[0]
    if not lines or "run" not in lines[0]:
        raise RecordsError(f"{path} does not begin with the header of a run")
    return lines[0], lines[1:]


def read_timings(folder: str | os.PathLike[str]) -> list[Line]:
    """The lines of ``timings.jsonl`` before the first that is damaged; none if there is no such file."""
    path = Path(folder) / TIMINGS
    return _sound_lines(path)[0] if path.is_file() else []


def seconds_per_iteration(folder: str | os.PathLike[str], cpu: bool = False) -> float | None:
    """The median over the stretches between records of their median seconds; None before the first one.

    Args:
        folder: of a run.
        cpu: seconds of the processor, which do not count what else it does. Early runs have none.
    """
    name = "median_cpu_seconds" if cpu else "median_seconds"
    stretches = [line[name] for line in read_timings(folder) if line.get(name) is not None]
    return float(statistics.median(stretches)) if stretches else None


def was_left(folder: str | os.PathLike[str]) -> bool:
    """Whether somebody is at work on a run, or was killed before all was put away, even if its records are whole."""
    return (Path(folder) / CHECKPOINT).exists() or FolderLock(folder).path.exists()


class RunFolder:
    """The folder of a run, held by one process within a ``with`` block.

    Args:
        path: of the folder; it is made if it is missing.
        header: the first line of the records. A folder whose header has another run or other data is an error.

    Attributes:
        header: that of the records, which may have been begun in another environment.
        records: those that are in the file.
    """

    def __init__(self, path: str | os.PathLike[str], header: Mapping[str, Any]) -> None:
        self.path, self.asked = Path(path), dict(header)
        self.header, self.records = self.asked, list[Line]()
        self.checkpoint = self.path / CHECKPOINT
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.path.mkdir(parents=True, exist_ok=True)
        with self._stack as stack:
            stack.enter_context(FolderLock(self.path))
            self._open()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def _open(self) -> None:
        path = self.path / RECORDS
        lines = _repaired(path, _whole_lines)
        _repaired(self.path / TIMINGS, _sound_lines)
        if lines:
            self.header, self.records = _checked_header(path, lines[0], self.asked), lines[1:]
        else:
            self.restart()

    def restart(self) -> None:
        """Begin anew: no checkpoint, no records, and a header of here and now."""
        self.checkpoint.unlink(missing_ok=True)
        write_whole(self.path / RECORDS, _as_line(self.asked))
        self.header, self.records = self.asked, []

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a record. It is on the disk before the next one: if the power fails, only the last line is torn."""
        _append(self.path / RECORDS, record, flush=True)
        self.records.append(dict(record))

    def remark(self, line: Mapping[str, Any]) -> None:
        """Add a line to the timings."""
        _append(self.path / TIMINGS, line)

    def mark(self) -> Line:
        """Where the records stand, for a checkpoint to remember."""
        contents = (self.path / RECORDS).read_bytes()
        return {"bytes": len(contents), "digest": hashlib.sha256(contents).hexdigest()}

    def go_back(self, mark: Mapping[str, Any]) -> None:
        """Forget the records after a mark; if those before it are not what they were, nothing is forgotten."""
        kept = (self.path / RECORDS).read_bytes()[: max(0, mark["bytes"])]
        if len(kept) != mark["bytes"] or hashlib.sha256(kept).hexdigest() != mark["digest"]:
            raise RecordsError(f"the first {mark['bytes']} bytes of {self.path / RECORDS} have changed")
        os.truncate(self.path / RECORDS, len(kept))
        self.records = self.records[: kept.count(b"\n") - 1]

    def finish(self) -> None:
        """The last record is on the disk: drop the checkpoint."""
        for path in (self.checkpoint, part_of(self.checkpoint), part_of(self.path / RECORDS)):
            path.unlink(missing_ok=True)


def _checked_header(path: Path, found: Line, asked: Line) -> Line:
    if "run" not in found:
        raise RecordsError(f"{path} does not begin with the header of a run; move it away, or name another folder")
    for part in IDENTITY:
        if found.get(part) != asked.get(part):
            raise RecordsError(
                f"{path} holds another run: its {part} is {found.get(part)!r:.200}, not {asked.get(part)!r:.200}; "
                "name another folder, or move it away"
            )
    return found


def _repaired(path: Path, read: Callable[[Path], tuple[list[Line], int]]) -> list[Line]:
    """The lines of a file that is about to be added to; what follows them is cut off."""
    if not path.is_file():
        return []
    lines, length = read(path)
    if length < path.stat().st_size:
        os.truncate(path, length)
    return lines


def _whole_lines(path: Path) -> tuple[list[Line], int]:
    """The lines of a file of records and their length in bytes. Only the last line can be torn; else it is an error."""
    lines, length = _sound_lines(path)
    if b"\n" in path.read_bytes()[length:-1]:  # the end of the last line may be on the disk before its beginning
        raise RecordsError(f"line {len(lines) + 1} of {path} is not a JSON object; restore the file, or move it away")
    return lines, length


def _sound_lines(path: Path) -> tuple[list[Line], int]:
    """The lines of a file before the first that is torn or damaged, and their length in bytes."""
    lines, length = list[Line](), 0
    for piece in path.read_bytes().split(b"\n")[:-1]:
        if (line := _parsed(piece)) is None:
            break
        lines.append(line)
        length += len(piece) + 1
    return lines, length


def _parsed(piece: bytes) -> Line | None:
    try:
        line = json.loads(piece)
    except (ValueError, RecursionError):  # not UTF-8, not JSON, or nested to confuse
        return None
    return line if isinstance(line, dict) else None


def _append(path: Path, line: Mapping[str, Any], flush: bool = False) -> None:
    """A whole line or an error: a kill or a full disk can tear the last line only, and the next session repairs it."""
    with open(path, "ab") as file:
        file.write(_as_line(line))
        if flush:
            file.flush()
            flush_to_disk(file.fileno())


def _as_line(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line, allow_nan=False, separators=(",", ":")).encode() + b"\n"
