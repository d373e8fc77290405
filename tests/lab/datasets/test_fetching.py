"""Data sets that nobody published checksums for, or addresses."""

from __future__ import annotations

import bz2
import hashlib
import io

import pytest
import requests
from local_server import dataset, files, get, running
from specimens import specimen

from evodrop.lab.datasets import DataError, fetch
from evodrop.lab.datasets.checksums import record_path, verify
from evodrop.lab.datasets.loading import load_dataset


@pytest.fixture
def server():
    with running() as server:
        yield server


def libsvm(server):
    made = specimen("rcv1")
    named = [
        file._replace(addresses=(server.address("/" + file.path),), size=len(made.files[file.path]))
        for file in made.dataset.files
    ]
    server.files |= {"/" + path: content for path, content in made.files.items()}
    return made.dataset._replace(files=tuple(named)), made.files


def test_the_first_download_is_remembered(server, tmp_path):
    entry, contents = libsvm(server)
    get(entry, tmp_path)
    records = {
        f"{path}.sha256": b"%s  %s\n" % (_sha256(c), path.split("/")[1].encode()) for path, c in contents.items()
    }
    assert files(tmp_path) == contents | records
    assert len(load_dataset(entry, tmp_path).test_y) == 50
    path = tmp_path / entry.files[0].path
    changed = bz2.compress(bz2.decompress(contents[entry.files[0].path]).replace(b"+1", b"1"), 1)
    assert changed != contents[entry.files[0].path]
    path.write_bytes(changed)
    with pytest.raises(DataError, match="but the first download had, by"):
        load_dataset(entry, tmp_path)
    get(entry, tmp_path)
    assert path.read_bytes() == contents[entry.files[0].path]
    server.files["/" + entry.files[0].path] = changed
    path.unlink()
    with pytest.raises(DataError, match="does not match the known hash"):
        get(entry, tmp_path)
    record_path(path).unlink()  # the user believes the new file
    get(entry, tmp_path)
    assert path.read_bytes() == changed


def _sha256(content):
    return hashlib.sha256(content).hexdigest().encode()


def test_a_first_download_is_read_before_it_gets_its_name(server, tmp_path):
    entry, contents = libsvm(server)
    for wrong in (b"", b"<h1>Sorry</h1>", bz2.compress(b"1 1:1\n"), contents[entry.files[0].path][:-20]):
        server.files["/" + entry.files[0].path] = wrong
        with pytest.raises(DataError, match="could not be fetched"):
            get(entry, tmp_path)
        assert files(tmp_path).get("rcv1/.rcv1_train.binary.bz2.part", b"") == b""
        assert entry.files[0].path not in files(tmp_path)


def test_a_file_that_was_put_there_is_read_and_remembered(server, tmp_path):
    entry, contents = libsvm(server)
    for path, content in contents.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(content)
    assert not verify(entry.files[0], tmp_path)
    get(entry, tmp_path)
    assert verify(entry.files[0], tmp_path)
    assert server.requests == []
    record_path(tmp_path / entry.files[0].path).write_text("nonsense")
    with pytest.raises(DataError, match="should hold the sha256"):
        load_dataset(entry, tmp_path)


def test_what_has_no_address(tmp_path):
    with pytest.raises(DataError, match=r"20news is not in .*svm:TRAIN,TEST"):
        fetch("20news", tmp_path)
    specimen("20news").write(tmp_path)
    before = files(tmp_path)
    fetch("20news", tmp_path)
    assert files(tmp_path) == before


@pytest.fixture
def downgraded(monkeypatch):
    """Every https address sends on to the same path of the server, by plain http."""
    send = requests.adapters.HTTPAdapter.send

    def redirect(adapter, request, **options):
        if request.url.startswith("http://"):
            return send(adapter, request, **options)
        response = requests.Response()
        response.status_code, response.url, response.request, response.raw = 302, request.url, request, io.BytesIO()
        response.headers["Location"] = request.url.replace("https://", "http://")
        return response

    monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", redirect)


def test_what_nothing_can_check_comes_by_https_all_the_way(server, tmp_path, downgraded):
    entry, contents = libsvm(server)
    secure = [file._replace(addresses=(file.addresses[0].replace("http:", "https:"),)) for file in entry.files]
    secure = entry._replace(files=tuple(secure))
    with pytest.raises(
        DataError, match=r"https://\S+ leads to http://\S+, which is not https, and there is no checksum"
    ):
        get(secure, tmp_path)
    assert not any(files(tmp_path).values())
    get(entry, tmp_path)  # the first download, and its checksum
    path = tmp_path / entry.files[0].path
    path.unlink()
    get(secure, tmp_path)  # now the checksum tells
    assert path.read_bytes() == contents[entry.files[0].path]


def test_the_bar(server, tmp_path, capsys):
    get(dataset(server), tmp_path, progress=True)
    told = capsys.readouterr()
    assert "file" in told.err
    assert told.out == ""
