"""A server on this machine that can refuse, cut the line, or send the wrong file."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

from evodrop.lab.data import DATASETS
from evodrop.lab.data.download import fetch_dataset
from evodrop.lab.data.registry import File, Form

CONTENT = np.random.default_rng(0).bytes(1_000_000)
MD5 = "md5:" + hashlib.md5(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Files by path, and how it treats those who ask."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {"/file": CONTENT}
        self.cuts = []  # after so many bytes of the next answers the line is cut
        self.length = True  # whether it says how long a file is
        self.requests = []  # the paths that were asked for

    def address(self, path="/file"):
        return f"http://127.0.0.1:{self.server_port}{path}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        server.requests.append(self.path)
        content = server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        if server.length:
            self.send_header("Content-Length", str(len(content)))
        if self.path.endswith(".gz"):
            self.send_header("Content-Encoding", "gzip")  # as some servers say of what is packed anyway
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # the client may have read enough
            self.wfile.write(content[: server.cuts.pop(0)] if server.cuts else content)

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
    form = Form("mat", (File("set/file", len(CONTENT), MD5, addresses),))
    return DATASETS["svhn"]._replace(forms=(form,))


def get(dataset, folder, progress=False):
    fetch_dataset(dataset, folder, progress=progress)


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
