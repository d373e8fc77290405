"""``evodrop compare --cluster``: the runs go to the workers of a Dask cluster, and have the same records."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from evodrop.lab.cli import app

OPTIONS = ["compare", "--dataset", "digits", "--methods", "none,standard", "--seeds", "1", "--epochs", "1"]


def run(out, *options):
    result = CliRunner().invoke(app, [*OPTIONS, "--out", str(out), *options])
    assert result.exit_code == 0, result.output
    return result


def records(folder):
    """The records of every run, to the last byte; what a clock said is in another file."""
    return {path.parent.name: path.read_bytes() for path in folder.glob("*/records.jsonl")}


def test_the_records_are_those_of_this_machine(client, tmp_path):
    run(tmp_path / "here")
    run(tmp_path / "there", "--cluster", client.scheduler.address)
    here, there = records(tmp_path / "here"), records(tmp_path / "there")
    assert len(here) == 2
    assert here == there


def test_a_scheduler_that_does_not_answer_ends_the_command(tmp_path, monkeypatch):
    from evodrop.linear.dask import estimator

    monkeypatch.setattr(estimator, "ANSWER", 1)
    result = CliRunner().invoke(app, [*OPTIONS, "--out", str(tmp_path), "--cluster", "tcp://127.0.0.1:9"])
    assert result.exit_code != 0
    assert "no Dask scheduler answers" in result.output + str(result.exception)


def test_the_workers_did_the_runs(client, tmp_path, monkeypatch):
    """Not this process, quietly."""
    from evodrop.lab import runner

    monkeypatch.setattr(runner, "keep_records", lambda *_: pytest.fail("a run was done here"))
    run(tmp_path, "--cluster", client.scheduler.address)
    assert len(records(tmp_path)) == 2


def test_a_cluster_and_torchrun_do_not_go_together(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    result = CliRunner().invoke(app, [*OPTIONS, "--out", str(tmp_path), "--cluster", "tcp://127.0.0.1:9"])
    assert result.exit_code != 0
    assert "torchrun has started ranks" in result.output + str(result.exception)
