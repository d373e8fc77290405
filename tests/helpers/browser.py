"""A real browser for tests: Chromium without a window, spoken to over a pipe by its DevTools protocol."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

OWN_SERVER = "http://127.0.0.1:"
PATIENCE = 60.0  # seconds for an answer: the machine may be busy
COMMAND = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # the tests may run as root, in a container, and open pages of their own making only
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
# The browser reads from descriptor 3 and writes to 4, whatever ours are called.
LAUNCHER = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)


class Browser:
    """One browser with one page. ``problems`` are the errors and warnings that its console has shown."""

    def __enter__(self):
        self.profile = tempfile.mkdtemp()
        to_browser, self.out = os.pipe()
        self.inn, from_browser = os.pipe()
        command = [COMMAND, *OPTIONS, f"--user-data-dir={self.profile}", "about:blank"]
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        ends = (to_browser, from_browser)
        launcher = [sys.executable, "-c", LAUNCHER, *map(str, ends), *command]
        self.process = subprocess.Popen(launcher, pass_fds=ends, **silent)
        os.close(to_browser)
        os.close(from_browser)
        self.number, self.buffer, self.session, self.problems, self.events = 0, b"", None, [], []
        try:
            self._attach()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _attach(self):
        page = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for room in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{room}.enable")

    def __exit__(self, *error):
        with suppress(OSError, TimeoutError):
            self.session = None
            self.ask("Browser.close")
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.out)
        os.close(self.inn)
        shutil.rmtree(self.profile, ignore_errors=True)

    def open(self, path, width=1440, height=900, dark=False, scripts=True):
        """Load a file, or a page of a server of our own, in a window of this size."""
        self.problems.clear()
        self.resize(width, height, dark)
        self.ask("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.events.clear()
        is_url = str(path).startswith(OWN_SERVER)
        self.ask("Page.navigate", url=path if is_url else Path(path).resolve().as_uri())
        self._wait_for("Page.loadEventFired")

    def reload(self):
        self.events.clear()
        self.ask("Page.reload")
        self._wait_for("Page.loadEventFired")

    def resize(self, width, height=900, dark=False):
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.ask("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])

    def run(self, script):
        """The value of a JavaScript expression; of a promise, what it resolves to."""
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_until(self, script):
        """Wait until a JavaScript expression is true."""
        deadline = time.monotonic() + PATIENCE
        while not self.run(script):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not true after {PATIENCE} seconds: {script}")
            time.sleep(0.05)

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key)

    def screenshot(self, path, whole=True):
        picture = self.ask("Page.captureScreenshot", captureBeyondViewport=whole)
        Path(path).write_bytes(base64.b64decode(picture["data"]))

    def ask(self, method, **params):
        """Call a method of the protocol and wait for its answer."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self.number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def _wait_for(self, event):
        while event not in self.events:
            self._receive()

    def _receive(self):
        while b"\0" not in self.buffer:
            if not select.select([self.inn], [], [], PATIENCE)[0]:
                raise TimeoutError(f"the browser has been silent for {PATIENCE} seconds")
            piece = os.read(self.inn, 1 << 16)
            if not piece:
                raise OSError("the browser has gone")
            self.buffer += piece
        line, _, self.buffer = self.buffer.partition(b"\0")
        message = json.loads(line)
        self._note(message.get("method"), message.get("params", {}))
        return message

    def _note(self, event, params):
        self.events.append(event)
        if event == "Runtime.exceptionThrown":
            self.problems.append(params["exceptionDetails"])
        elif event == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.problems.append(params["args"])
        elif event == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(params["entry"])
        elif event == "Network.requestWillBeSent" and not params["request"]["url"].startswith(
            ("file:", "data:", "blob:", OWN_SERVER)
        ):
            self.problems.append(f"it asked for {params['request']['url']}")
