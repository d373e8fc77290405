"""Downloads: pooch fetches each file from the first of its addresses that serves it, and compares its checksum.

A file gets its name when all of it is there and right; a download that was cut begins again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evodrop.lab.data.files import DataError, find
from evodrop.lab.data.registry import Dataset, File

ROOM = 4  # a file whose size was not published may be so many times as long as expected
CHUNK = 1 << 18
TIMEOUT = 30.0


def fetch_dataset(dataset: Dataset, folder: Path, *, progress: bool = True) -> None:
    """Download what is missing or wrong into the folder; a data set that is there in another form is left alone."""
    form = dataset.download
    try:
        if find(dataset, folder) != form:
            return
    except DataError:
        if form is None:
            raise
    for file in form.files if form else ():
        try:
            _fetch(file, folder / file.path, progress)
        except OSError as error:
            raise DataError(f"{folder} cannot be written: {error}. Name another folder, or make room") from error


def _fetch(file: File, path: Path, progress: bool) -> None:
    """Fetch a file unless it is there and right."""
    import pooch
    import requests
    from rich.console import Console
    from rich.progress import DownloadColumn, Progress
    from urllib3.exceptions import HTTPError

    columns, console = (*Progress.get_default_columns(), DownloadColumn()), Console(stderr=True)

    def download(url: str, output: str, _: Any) -> None:
        """As pooch calls it: the bytes as they were sent, and no more of them than the file can have."""
        most, headers = file.size or ROOM * file.about, {"Accept-Encoding": "identity"}
        with (
            requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response,
            open(output, "wb+") as stream,
            Progress(*columns, console=console, disable=not progress) as bar,
        ):
            response.raise_for_status()
            task = bar.add_task(path.name, total=file.size or file.about)
            for chunk in response.raw.stream(CHUNK, decode_content=False):
                stream.write(chunk)
                bar.advance(task, len(chunk))
                if stream.tell() > most:
                    raise DataError(f"{url} sends more than the {most} bytes that the file can have")
            stream.seek(0)
            if not file.checksum and stream.read(3) != b"BZh":
                raise DataError(f"{url} sends a file that is not packed by bzip2: another one, or a page of words")

    pooch.get_logger().setLevel("WARNING")  # without its advice on how to call pooch
    faults = []
    for address in file.addresses:
        try:
            pooch.retrieve(address, file.checksum or None, path.name, path.parent, downloader=download)
            return
        except (requests.RequestException, HTTPError, ValueError) as error:  # ValueError: ours, or a wrong checksum
            words = " ".join(str(error).split()).rstrip(".")
            faults.append(words if address in words else f"{address}: {words}")
    raise DataError(
        f"{file.path} could not be fetched: {'; '.join(faults)}. Try again later, or put the file itself at {path}"
    )
