"""Downloads that are cut, resumed, refused, and taken from a mirror."""

from __future__ import annotations

import fcntl
import multiprocessing

import pytest
from local_server import CONTENT, dataset, files, get, running

from evodrop.lab.datasets import DataError
from evodrop.lab.datasets import download as room
from evodrop.lab.datasets.download import Downloader
from evodrop.locking import locked


@pytest.fixture
def server():
    with running() as server:
        yield server


def test_a_download(server, tmp_path):
    get(dataset(server), tmp_path)
    assert files(tmp_path) == {"set/file": CONTENT}
    get(dataset(server), tmp_path)
    assert server.requests == [("/file", None)]  # what is there and right is left alone


def test_a_cut_line_is_taken_up_where_it_was_cut(server, tmp_path):
    server.cuts = [300_000, 0, 0, 0, 200_000, 0, 0, 0]  # what brings nothing four times in a row would be given up
    get(dataset(server), tmp_path)
    assert files(tmp_path) == {"set/file": CONTENT}
    starts = [asked for _, asked in server.requests]
    assert starts == [None, *["bytes=300000-"] * 4, *["bytes=500000-"] * 4]


def test_a_download_goes_on_in_another_process(server, tmp_path):
    server.cuts = [300_000, 0, 0, 0, 0]
    with pytest.raises(DataError, match=r"set/file could not be fetched: .*Try again later, or put the file itself at"):
        get(dataset(server), tmp_path)
    assert list(files(tmp_path)) == ["set/.file.part"]
    assert room.TRIES == 4
    server.requests.clear()
    get(dataset(server), tmp_path)
    assert server.requests == [("/file", "bytes=300000-")]
    assert files(tmp_path) == {"set/file": CONTENT}


def test_a_server_that_sends_no_parts(server, tmp_path):
    server.ranges = False
    server.cuts = [300_000, 600_000]
    get(dataset(server), tmp_path)
    assert files(tmp_path) == {"set/file": CONTENT}
    assert [asked for _, asked in server.requests] == [None, "bytes=300000-", "bytes=600000-"]


@pytest.mark.parametrize("exact", [True, False])
def test_a_server_that_tells_no_length(server, tmp_path, exact):
    server.length = False
    server.cuts = [300_000] if exact else []
    part, whole = tmp_path / "part", tmp_path / "whole"
    seen = []
    downloader = Downloader(
        part, len(CONTENT), exact=exact, known=True, check=None, tell=lambda *told: seen.append(told), pause=0.0
    )
    downloader(server.address(), whole, None)
    assert files(tmp_path) == {"whole": CONTENT}
    assert seen[-1][0] == len(CONTENT)


def test_a_whole_part_needs_no_more(server, tmp_path):
    """The process was killed between the last byte and the new name."""
    (tmp_path / "set").mkdir()
    (tmp_path / "set/.file.part").write_bytes(CONTENT)
    get(dataset(server), tmp_path)
    assert files(tmp_path) == {"set/file": CONTENT}
    assert server.requests == [("/file", f"bytes={len(CONTENT)}-")]


@pytest.mark.parametrize("stale", [b"x" * 300_000, b"x" * len(CONTENT), b"x" * (len(CONTENT) + 5)])
def test_a_part_of_another_file(server, tmp_path, stale):
    """It cannot be told before the end; then all is fetched anew, from the mirror or at the next call."""
    (tmp_path / "set").mkdir()
    (tmp_path / "set/.file.part").write_bytes(stale)
    get(dataset(server, "/file", "/file"), tmp_path)
    assert files(tmp_path) == {"set/file": CONTENT}


def test_a_wrong_checksum(server, tmp_path):
    server.files["/file"] = bytes(len(CONTENT))
    with pytest.raises(DataError, match="does not match the known hash"):
        get(dataset(server), tmp_path)
    assert files(tmp_path) == {}
    server.files["/mirror"] = CONTENT
    get(dataset(server, "/file", "/mirror"), tmp_path)
    assert files(tmp_path) == {"set/file": CONTENT}


def test_a_file_that_went_bad_is_fetched_anew(server, tmp_path):
    get(dataset(server), tmp_path)
    for bad in (b"bad", bytes(len(CONTENT))):
        (tmp_path / "set/file").write_bytes(bad)
        get(dataset(server), tmp_path)
        assert files(tmp_path) == {"set/file": CONTENT}


@pytest.mark.parametrize("content", [b"<h1>Sorry</h1>", CONTENT + b"more", b""])
def test_a_file_of_another_size_is_given_up_early(server, tmp_path, content):
    server.files["/file"] = content
    with pytest.raises(DataError, match=f"sends {len(content)} bytes, but the file has {len(CONTENT)}"):
        get(dataset(server), tmp_path)
    assert files(tmp_path) == {}


def test_a_stream_without_end_is_ended(server, tmp_path):
    server.length = False
    server.files["/file"] = CONTENT * 10
    with pytest.raises(DataError, match="bytes, but the file has 1000000"):
        get(dataset(server), tmp_path)
    assert files(tmp_path) == {}


def test_a_mirror_serves_what_is_not_found(server, tmp_path):
    get(dataset(server, "/gone", "/file"), tmp_path)
    assert files(tmp_path) == {"set/file": CONTENT}
    assert [path for path, _ in server.requests] == ["/gone", "/file"]  # asking again would not help


def test_what_is_nowhere(server, tmp_path):
    with pytest.raises(DataError, match=r"/gone: 404 .*; .*/lost: 404 .*Try again later"):
        get(dataset(server, "/gone", "/lost"), tmp_path)
    assert len(server.requests) == 2


def test_a_busy_server_is_asked_again(server, tmp_path):
    server.answers = [503, 429, 500]
    get(dataset(server), tmp_path)
    assert files(tmp_path) == {"set/file": CONTENT}
    assert len(server.requests) == 4


def test_nobody_answers(server, tmp_path):
    server.server_close()
    with pytest.raises(DataError, match=r"127\.0\.0\.1.*Connection refused"):
        get(dataset(server), tmp_path)


def test_packed_files_arrive_packed(server, tmp_path):
    server.files["/file.gz"] = CONTENT
    get(dataset(server, "/file.gz"), tmp_path)
    assert files(tmp_path) == {"set/file": CONTENT}


def test_a_folder_that_cannot_be_made(server, tmp_path):
    (tmp_path / "set").write_text("a file")
    with pytest.raises(DataError, match="cannot be written"):
        get(dataset(server), tmp_path)


def test_a_full_disk_is_not_blamed_on_the_server(server, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set/.file.part").symlink_to("/dev/full")
    with pytest.raises(DataError, match=r"cannot be written: .*No space left on device.*or make room"):
        get(dataset(server, "/file", "/mirror"), tmp_path)
    assert server.requests == [("/file", None)]


def hold(part, ready, done):
    with locked(part):
        ready.set()
        done.wait(20)


def test_two_processes_do_not_mix(server, tmp_path):
    (tmp_path / "set").mkdir()
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    other = context.Process(target=hold, args=(tmp_path / "set/.file.part", ready, done))
    other.start()
    assert ready.wait(20)
    with pytest.raises(DataError, match="another process is downloading"):
        get(dataset(server), tmp_path)
    done.set()
    other.join()
    get(dataset(server), tmp_path)
    assert files(tmp_path) == {"set/file": CONTENT}


def test_a_download_that_was_finished_while_the_part_was_being_opened_stays_whole(server, tmp_path, monkeypatch):
    """We open the part, its holder gives it its name and lets go: what we would lock, and empty, is a finished file."""
    server.ranges = False  # so that whoever goes on begins by emptying the part
    part, theirs = tmp_path / "set/.file.part", tmp_path / "set/theirs"
    flock = fcntl.flock

    def finish_and_lock(descriptor, how):
        if not theirs.exists():
            part.write_bytes(CONTENT)
            part.rename(theirs)
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", finish_and_lock)
    get(dataset(server), tmp_path)
    assert files(tmp_path) == {"set/file": CONTENT, "set/theirs": CONTENT}
