"""How a command ends when its terminal, its records or the system are not as usual."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

FINISHED = next((Path(__file__).parent / "earlier" / "finished").iterdir())


def report(folder, out, **environment):
    command = [sys.executable, "-m", "evodrop", "report", str(folder), "--out", str(out)]
    return subprocess.run(command, capture_output=True, env=os.environ | environment, check=False)


def test_an_ascii_terminal_gets_what_it_can_print(tmp_path):
    answer = report(FINISHED, tmp_path, PYTHONIOENCODING="ascii", COLUMNS="100")
    assert answer.returncode == 0, answer.stderr.decode()
    assert answer.stdout.isascii()
    assert b"?" in answer.stdout
    assert (tmp_path / "report.html").exists()


def test_half_a_character_in_a_record_is_replaced(tmp_path):
    run = tmp_path / FINISHED.name
    shutil.copytree(FINISHED, run)
    lines = (run / "records.jsonl").read_text().splitlines()
    header = json.loads(lines[0])
    header["run"]["dataset"] = "sp\ud800ts"
    (run / "records.jsonl").write_text("\n".join([json.dumps(header), *lines[1:]]) + "\n")
    answer = report(run, tmp_path / "out")
    assert b"Traceback" not in answer.stderr
    assert answer.returncode == 0, answer.stderr.decode()
    assert "sp?ts" in (tmp_path / "out" / "report.html").read_text()


def test_a_folder_whose_name_is_no_text_has_a_report(tmp_path):
    folder = tmp_path / "sp\udcffts"
    try:
        shutil.copytree(FINISHED, folder / FINISHED.name)
    except OSError:  # as on macOS
        pytest.skip("this file system takes text alone")
    answer = report(folder / FINISHED.name, folder / "out")
    assert answer.returncode == 0, answer.stderr.decode()
    assert "sp?ts" in (folder / "out" / "report.html").read_text()


def test_sigterm_ends_a_command_in_a_sentence_and_keeps_its_records(tmp_path):
    command = [sys.executable, "-m", "evodrop", "compare", "--methods", "standard", "--seeds", "1", "--epochs", "2000"]
    command += ["--jobs", "1", "--out", str(tmp_path / "out")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            deadline = time.monotonic() + 120
            while not any(path.stat().st_size > 2000 for path in tmp_path.glob("out/**/records.jsonl")):
                assert time.monotonic() < deadline
                assert process.poll() is None, process.communicate()
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            _, told = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 128 + signal.SIGTERM
    assert b"stopped by SIGTERM; the same command goes on from here" in told
    assert b"Traceback" not in told
    (records,) = tmp_path.glob("out/**/records.jsonl")
    assert len(records.read_text().splitlines()) > 1
