"""A server on this machine that can be slow to agree, cut the line, or send the wrong file."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

from evodrop.lab.datasets import DATASETS
from evodrop.lab.datasets.entries import File
from evodrop.lab.datasets.fetching import fetch_dataset

CONTENT = np.random.default_rng(0).bytes(1_000_000)
MD5 = "md5:" + hashlib.md5(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Files by path, and how it treats those who ask."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {"/file": CONTENT}
        self.ranges = True  # whether it understands to send a part
        self.cuts = []  # after so many bytes of the next answers the line is cut
        self.answers = []  # the next answers are these errors
        self.length = True  # whether it says how long a file is
        self.requests = []  # what was asked: path, range

    def address(self, path="/file"):
        return f"http://127.0.0.1:{self.server_port}{path}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        asked = self.headers.get("Range")
        server.requests.append((self.path, asked))
        content = server.files.get(self.path)
        if server.answers or content is None:
            self.send_error(server.answers.pop(0) if server.answers else 404)
            return
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and server.ranges else 0
        if start and start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if server.length:
            self.send_header("Content-Length", str(len(content) - start))
        if self.path.endswith(".gz"):
            self.send_header("Content-Encoding", "gzip")  # as some servers say of what is packed anyway
        self.end_headers()
        end = start + server.cuts.pop(0) if server.cuts else len(content)
        with contextlib.suppress(ConnectionError):  # who asked may have heard enough
            self.wfile.write(content[start:end])

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def running():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def dataset(server, *paths):
    addresses = tuple(map(server.address, paths or ["/file"]))
    return DATASETS["svhn"]._replace(files=(File("set/file", addresses, MD5, len(CONTENT)),))


def get(dataset, folder, **options):
    fetch_dataset(dataset, folder, **{"progress": False, "pause": 0.0} | options)


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
