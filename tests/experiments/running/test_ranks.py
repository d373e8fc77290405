"""All ranks do every run together, and rank 0 writes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
import torch.distributed as dist

from evodrop.experiments.data import load
from evodrop.experiments.records.runs import Run
from evodrop.experiments.running.laboratory import records_of, training_of
from evodrop.experiments.running.ranks import follow
from evodrop.experiments.training.shared import SharedTraining, sharing, task_of_leader, tell

RUN = Run(dataset="digits", network="digits", method="evolutional", seed=0, lr=0.01, epochs=1, eval_every=5)


def lead_or_follow(folder):
    """Rank 0 does a run twice, the second time from its records; the other follows until it is told to stop."""
    with sharing():
        if dist.get_rank() > 0:
            return follow()
        answers = [list(records_of(RUN, load("digits"), folder)) for _ in range(2)]
        tell(None)
        return answers


def test_the_leader_keeps_the_records_and_repeats_nothing(two_ranks, tmp_path):
    (first, again), nothing = two_ranks(lead_or_follow, tmp_path / "run")
    assert nothing is None
    assert first == again
    assert [record["iteration"] for record in first] == [5, 10, 11]
    header = json.loads((tmp_path / "run" / "records.jsonl").read_text().splitlines()[0])
    assert header["environment"]["ranks"] == 2


def group_of_gradients():
    with sharing():
        training = training_of(RUN, load("digits"))
        if dist.get_rank() > 0:
            task_of_leader()
        training.advance()
        SharedTraining.at_work = None
        return training.model.process_group is dist.group.WORLD


def test_the_group_of_messages_can_end(two_ranks):
    """DistributedDataParallel keeps its group for ever; messages there could abort a process that ends."""
    assert two_ranks(group_of_gradients) == [False, False]


def torchrun(*words):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "evodrop"]
    process = subprocess.Popen(
        [*command, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    try:
        return *process.communicate(timeout=240), process.returncode
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def test_torchrun_trains_data_parallel_and_one_rank_reports(tmp_path):
    out = tmp_path / "out"
    told, errors, code = torchrun("compare", "--methods=evolutional", "--seeds=1", "--epochs=1", f"--out={out}")
    assert code == 0, errors
    assert told.count("report:") == 1
    assert errors.count("finished") == 1
    [records] = out.glob("*/records.jsonl")
    assert json.loads(records.read_text().splitlines()[0])["environment"]["ranks"] == 2
    description = json.loads((out / "experiment.json").read_text())
    assert description["command"].startswith("torchrun --nnodes=1 --nproc-per-node=2 -m evodrop compare")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["compare", "--methods=wishful", "--out=out"], "method is 'wishful'"),
        (["compare", "--out=file"], "file"),
        (["reproduce", "fig2-mnist", "--steps=many"], "--steps is 'many'"),
    ],
)
def test_what_is_wrong_is_told_once_and_ends_all_ranks(tmp_path, monkeypatch, words, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    _, errors, code = torchrun(*words)
    assert code == 1
    assert [told in line for line in errors.splitlines() if line.startswith("evodrop: ")] == [True]
