"""Downloads that are cut, refused, or taken from a mirror."""

from __future__ import annotations

import bz2

import pytest
from helpers.local_server import CONTENT, dataset, files, get, running
from helpers.specimens import specimen

from evodrop.lab.data import DataError, fetch
from evodrop.lab.data.files import find


@pytest.fixture
def server():
    with running() as server:
        yield server


def test_a_download(server, tmp_path):
    get(dataset(server), tmp_path)
    assert files(tmp_path) == {"set/file": CONTENT}
    get(dataset(server), tmp_path)
    assert server.requests == ["/file"]  # what is there and right is left alone


def test_a_file_that_went_bad_is_fetched_again(server, tmp_path):
    get(dataset(server), tmp_path)
    for bad in (b"bad", bytes(len(CONTENT))):
        (tmp_path / "set/file").write_bytes(bad)
        get(dataset(server), tmp_path)
        assert files(tmp_path) == {"set/file": CONTENT}


@pytest.mark.parametrize("length", [True, False])
def test_a_cut_line_leaves_nothing_behind(server, tmp_path, length):
    server.length = length
    server.cuts = [300_000]
    with pytest.raises(DataError, match=r"set/file could not be fetched: .*Try again later, or put the file itself at"):
        get(dataset(server), tmp_path)
    assert files(tmp_path) == {}
    server.cuts = [300_000]
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


@pytest.mark.parametrize("content", [b"<h1>Sorry</h1>", CONTENT + b"more", b""])
def test_a_file_of_another_size(server, tmp_path, content):
    server.files["/file"] = content
    with pytest.raises(DataError, match="set/file could not be fetched"):
        get(dataset(server), tmp_path)
    assert files(tmp_path) == {}


def test_a_stream_without_end_is_ended(server, tmp_path):
    server.length = False
    server.files["/file"] = CONTENT * 50
    with pytest.raises(DataError, match="sends more than the 1000000 bytes that the file can have"):
        get(dataset(server), tmp_path)
    assert files(tmp_path) == {}


def test_a_mirror_serves_what_is_not_found(server, tmp_path):
    get(dataset(server, "/gone", "/file"), tmp_path)
    assert files(tmp_path) == {"set/file": CONTENT}
    assert server.requests == ["/gone", "/file"]


def test_what_is_nowhere(server, tmp_path):
    with pytest.raises(DataError, match=r"404 .*/gone; 404 .*/lost.*Try again later"):
        get(dataset(server, "/gone", "/lost"), tmp_path)
    assert len(server.requests) == 2


def test_nobody_answers(server, tmp_path):
    server.server_close()
    with pytest.raises(DataError, match=r"127\.0\.0\.1.*Connection (refused|reset)"):
        get(dataset(server), tmp_path)


def test_packed_files_arrive_packed(server, tmp_path):
    server.files["/file.gz"] = CONTENT
    get(dataset(server, "/file.gz"), tmp_path)
    assert files(tmp_path) == {"set/file": CONTENT}


def test_a_folder_that_cannot_be_made(server, tmp_path):
    (tmp_path / "set").write_text("a file")
    with pytest.raises(DataError, match="cannot be written"):
        get(dataset(server), tmp_path)


def libsvm(server):
    made = specimen("rcv1")
    packed, plain = made.dataset.forms
    named = tuple(
        file._replace(addresses=(server.address("/" + file.path),), about=len(made.forms[0][file.path]))
        for file in packed.files
    )
    server.files |= {"/" + path: content for path, content in made.forms[0].items()}
    return made.dataset._replace(forms=(packed._replace(files=named), plain)), made.forms[0]


def test_text_without_a_checksum(server, tmp_path):
    entry, contents = libsvm(server)
    get(entry, tmp_path)
    assert files(tmp_path) == contents
    assert find(entry, tmp_path) == entry.forms[0]


def test_a_page_instead_of_text(server, tmp_path):
    entry, contents = libsvm(server)
    path = entry.forms[0].files[0].path
    for wrong, said in [
        (b"", "not packed by bzip2"),
        (b"<h1>Sorry</h1>", "not packed by bzip2"),
        (bz2.compress(b"1") * 1000, "sends more than"),
    ]:
        server.files["/" + path] = wrong
        with pytest.raises(DataError, match=f"{path} could not be fetched: .*{said}"):
            get(entry, tmp_path)
        assert files(tmp_path) == {}
    server.files["/" + path] = contents[path]
    get(entry, tmp_path)
    assert files(tmp_path) == contents


def test_another_form_is_left_alone(server, tmp_path):
    entry, _ = libsvm(server)
    specimen("rcv1").write(tmp_path, 1)
    get(entry, tmp_path)
    assert server.requests == []


def test_what_has_no_address(tmp_path):
    with pytest.raises(DataError, match=r"20news is not in .*svm:TRAIN,TEST"):
        fetch("20news", tmp_path)
    specimen("20news").write(tmp_path)
    before = files(tmp_path)
    fetch("20news", tmp_path)
    assert files(tmp_path) == before


def test_the_bar(server, tmp_path, capsys):
    get(dataset(server), tmp_path, progress=True)
    said = capsys.readouterr()
    assert "file" in said.err
    assert said.out == ""
