"""An experiment that is kept in three files says what its folder of runs said."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.synthetic import layer, write_errors, write_realistic

from evodrop.lab.curves import read_curves
from evodrop.lab.experiment import read_description, reopen
from evodrop.lab.report import NAME
from evodrop.lab.store import KEPT, VERDICTS, RecordsError

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture
def keep(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOLS))
    import keep

    return keep


@pytest.fixture
def runs(tmp_path):
    folder = tmp_path / "fig2-mnist"
    for method in ("standard", "evolutional"):
        for seed in range(2):
            write_realistic(folder, method, seed, 12, 0.02, epochs=20)
    return folder


def test_what_is_kept_says_what_the_runs_said(keep, runs, tmp_path):
    kept = tmp_path / "results" / runs.name
    keep.keep(runs, kept)
    assert sorted(path.name for path in kept.iterdir()) == ["figure.png", KEPT, VERDICTS]
    for one, other in zip(read_curves([runs]), read_curves([kept]), strict=True):
        for name in ("iterations", "noisy", "clean", "test"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        for name in ("dataset", "network", "method", "match", "rate", "seed", "lr", "epochs", "status", "cpu_seconds"):
            assert getattr(one, name) == getattr(other, name)
        assert [one.header[name] for name in ("data", "environment", "git")] == [
            other.header[name] for name in ("data", "environment", "git")
        ]
        for mine, theirs in zip(one.layers, other.layers, strict=True):
            for a, b in zip(mine, theirs, strict=True):
                assert a | {"probs": None} == b | {"probs": None}
                assert (len(a["probs"]), len(b["probs"])) == (64, 16)
                assert (a["probs"][0], a["probs"][-1]) == pytest.approx((b["probs"][0], b["probs"][-1]), rel=1e-5)


def test_a_report_of_what_is_kept_is_that_of_the_runs_and_leaves_it_as_it_is(keep, runs, tmp_path):
    kept, pages = tmp_path / "results" / runs.name, []
    keep.keep(runs, kept)
    before = {name: (kept / name).read_bytes() for name in (KEPT, VERDICTS)}
    assert read_description(kept) == ([kept], "evodrop reproduce fig2-mnist", "fig2-mnist")
    described = {"command": "evodrop reproduce fig2-mnist", "panel": "fig2-mnist", "runs": []}
    (runs / "experiment.json").write_text(json.dumps(described))
    for folder in (runs, kept):
        (outcome,) = reopen([folder], folder, "evodrop report")
        pages.append((outcome.summaries, outcome.verdicts, (folder / VERDICTS).read_bytes()))
        assert "evodrop reproduce fig2-mnist" in (folder / NAME).read_text()
    assert pages[0] == pages[1]
    assert {name: (kept / name).read_bytes() for name in before} == before


def test_the_same_runs_are_kept_in_the_same_bytes(keep, runs, tmp_path):
    for out in ("a", "b"):
        keep.keep(runs, tmp_path / out)
    for name in (KEPT, VERDICTS, "figure.png"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_each_line_is_a_record_with_its_run_and_its_price(keep, runs, tmp_path):
    keep.keep(runs, tmp_path / "kept")
    with gzip.open(tmp_path / "kept" / KEPT, "rt") as file:
        lines = [json.loads(line) for line in file]
    assert len(lines) == sum(len(curve.iterations) for curve in read_curves([runs]))
    assert {(line["method"], line["seed"], line["epochs"], line["lr"]) for line in lines} == {
        (method, seed, 20, 0.005) for method in ("standard", "evolutional") for seed in range(2)
    }
    assert {(line["lr_now"], line["cpu_seconds"]) for line in lines} == {(0.1, 0.01)}


def test_runs_beside_what_is_kept_count_too_and_each_once(keep, runs, tmp_path):
    kept = tmp_path / "results"
    keep.keep(runs, kept)
    (copied,) = runs.glob("*evolutional*-1")
    (kept / copied.name).mkdir()
    (kept / copied.name / "records.jsonl").write_bytes((copied / "records.jsonl").read_bytes())
    write_errors(kept, [0.5, 0.4], seed=7)
    assert sorted(curve.seed for curve in read_curves([kept, kept])) == [0, 0, 1, 1, 7]


def test_runs_that_are_not_finished_are_not_kept(keep, runs, tmp_path):
    write_errors(runs, [0.5, 0.4], seed=7, status="running")
    with pytest.raises(SystemExit, match="has not come to its end"):
        keep.keep(runs, tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize(
    ("name", "contents"),
    [
        (KEPT, b"no gzip"),
        (KEPT, gzip.compress(b"x" * 99)[:-9]),
        (KEPT, gzip.compress(b'{"run": "a stranger", "iteration": 1}\n')),
        (KEPT, gzip.compress(b'{"run": [1]}\n')),
        (KEPT, gzip.compress(b"3\n" * 9)),
        (KEPT, gzip.compress(b"\xff\n{}\n")),
        (VERDICTS, b"{}"),
        (VERDICTS, b"[]"),
        (VERDICTS, b"[" * 100_000),
        (VERDICTS, b'{"headers": [1]}'),
        (VERDICTS, b'{"headers": [{"runs": [[]]}]}'),
        (VERDICTS, None),
    ],
)
def test_a_damaged_file_is_named(keep, runs, tmp_path, name, contents):
    kept = tmp_path / "kept"
    keep.keep(runs, kept)
    (kept / name).unlink()
    if contents is not None:
        (kept / name).write_bytes(contents)
    with pytest.raises(RecordsError, match=r"runs\.jsonl\.gz.*(restore|move it away)"):
        read_curves([kept])


def mutated(data, rng):
    """A byte changed, some cut out, and words put in that JSON reads in its own way."""
    at, cut, word = rng.randrange(len(data)), rng.randrange(20), rng.choice([b"null", b"[", b"-1e999", b'"', b"NaN"])
    return data[:at] + rng.choice([bytes([rng.randrange(256)]), word]) + data[at + cut :]


def test_mutated_files_are_read_or_refused(keep, tmp_path):
    write_realistic(tmp_path / "fig2-mnist", "standard", 0, 12, 0.02, n=5, epochs=20)
    kept, rng = tmp_path / "kept", random.Random(0)
    keep.keep(tmp_path / "fig2-mnist", kept)
    packed, described, refused = (kept / KEPT).read_bytes(), (kept / VERDICTS).read_bytes(), 0
    for number in range(300):
        inside = gzip.compress(mutated(gzip.decompress(packed), rng))
        (kept / KEPT).write_bytes([inside, packed, mutated(packed, rng)][number % 3])
        (kept / VERDICTS).write_bytes(mutated(described, rng) if number % 3 == 1 else described)
        try:
            read_curves([kept])
        except RecordsError:
            refused += 1
    assert 150 < refused < 300


def test_a_bomb_is_not_unpacked(keep, runs, tmp_path, monkeypatch):
    keep.keep(runs, tmp_path / "kept")
    monkeypatch.setattr("evodrop.lab.store.LARGEST", 1000)
    with pytest.raises(RecordsError, match="unpacks to more than 1000 bytes"):
        read_curves([tmp_path / "kept"])


def test_a_report_of_what_is_kept_needs_no_torch(keep, runs, tmp_path):
    keep.keep(runs, tmp_path / "kept")
    code = "import sys; sys.modules['torch'] = None\nfrom evodrop.lab import cli\ncli.main(['report', sys.argv[1]])"
    words = [sys.executable, "-c", code, str(tmp_path / "kept")]
    answer = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.splitlines()[-1] == f"report: {tmp_path / 'kept' / NAME}"


def test_fewer_quantiles_are_left_alone(keep):
    probs = layer("drop", 0.1)["probs"]
    assert keep.thinned(probs[:16]) == probs[:16]
    assert len(keep.thinned(probs)) == 16
