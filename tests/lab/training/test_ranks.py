"""All ranks of a process group share every batch of a run, agree on every record, and rank 0 writes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial

import pytest
import torch
import torch.distributed as dist
from helpers import tiny
from torch import nn

from evodrop.lab.data import load
from evodrop.lab.run import Run
from evodrop.lab.store import keep_records
from evodrop.lab.training import training_for
from evodrop.lab.training.ranks import LEADER, SharedTraining, follow, from_leader

MEASURES = ("noisy_error", "noisy_loss", "clean_error", "clean_loss", "test_error", "test_loss")


class Agreed(SharedTraining):
    """Both ranks make the same training, so the others pass over what the leader sends."""

    def step(self):
        if self.rank != LEADER and self.model is self.network and SharedTraining.active is None:
            from_leader()
        return super().step()


def shared(**fields):
    run = tiny.run(**fields)
    return Agreed(run, tiny.network(run.method), tiny.pixels())


def records(*many):
    return [list(shared(**fields).records()) for fields in many]


def measured(record):
    return [record[name] for name in MEASURES]


@pytest.mark.parametrize("batch_size", [16, 15])  # shares of 8 and 8, and of 8 and 7
def test_both_ranks_have_the_records_of_one_process(two_ranks, batch_size):
    fields = {"method": "none", "batch_size": batch_size}
    alone = list(tiny.training(**fields).records())
    [first], [second] = two_ranks(records, fields)
    assert first == second
    for together, single in zip(first, alone, strict=True):
        assert measured(together) == pytest.approx(measured(single), rel=1e-4)


def test_with_noise_and_running_means_they_still_agree_and_stop_together_when_they_diverge(two_ranks):
    ones, others = two_ranks(records, {}, {"method": "batchnorm"}, {"method": "none", "lr": 1e30})
    for first, second in zip(ones, others, strict=True):
        assert list(map(measured, first)) == list(map(measured, second))
    assert [run[-1]["status"] for run in ones] == ["finished", "finished", "diverged"]


def rest_of_a_run():
    straight = list(shared().records())
    first = shared()
    next(first.records())
    SharedTraining.active = None  # as after a kill
    again = shared()
    again.load_state(first.state())
    return straight[1:], list(again.records())


def test_a_run_that_goes_on_has_the_records_of_one_that_never_stopped(two_ranks):
    for straight, again in two_ranks(rest_of_a_run):
        assert again == straight


def note_seed(seeds, layer, _):
    if layer.training:
        seeds.append(torch.initial_seed())


def seeds_of_masks():
    training, seeds = shared(method="standard", epochs=1), []
    for layer in training.network.modules():
        if isinstance(layer, nn.Dropout):
            layer.register_forward_pre_hook(partial(note_seed, seeds))
    list(training.records())
    return seeds


def test_noise_that_knows_no_ranks_differs_between_ranks_and_steps(two_ranks):
    first, second = two_ranks(seeds_of_masks)
    steps = 75 // 16
    assert len(first) == len(second) == 2 * steps
    assert len({*first, *second}) == 2 * steps  # two layers a step share a seed, two ranks none


def too_many():
    with pytest.raises(ValueError, match="there are 2 ranks, but a batch has 1 examples; start fewer ranks"):
        shared(batch_size=1)
    return True


def test_every_rank_has_an_example_of_every_batch(two_ranks):
    assert two_ranks(too_many) == [True, True]


def follow_one_that_was_left():
    SharedTraining.active = shared(seed=7)
    try:
        with pytest.raises(SystemExit, match=r"seed7-.* ended early, which the other ranks cannot"):
            shared().step()
    finally:
        SharedTraining.active = None
    return True


def test_a_leader_whose_run_failed_in_the_middle_begins_no_other(two_ranks):
    assert two_ranks(follow_one_that_was_left) == [True, True]


# A leader and those that follow it


RUN = Run(dataset="digits", network="digits", method="evolutional", seed=0, lr=0.01, epochs=1, eval_every=5)


def lead_or_follow(folder):
    """Rank 0 does a run twice, the second time from its records; the other follows until it is told to stop."""
    if dist.get_rank() > 0:
        return follow()
    answers = [list(keep_records(training_for(RUN, load("digits")), folder)) for _ in range(2)]
    from_leader(None)
    return answers


def test_the_leader_keeps_the_records_and_repeats_nothing(two_ranks, tmp_path):
    (first, again), nothing = two_ranks(lead_or_follow, tmp_path / "run")
    assert nothing is None
    assert first == again
    assert [record["iteration"] for record in first] == [5, 10, 11]
    header = json.loads((tmp_path / "run" / "records.jsonl").read_text().splitlines()[0])
    assert header["environment"]["ranks"] == 2


def group_of_gradients():
    training = training_for(RUN, load("digits"))
    if dist.get_rank() > 0:
        from_leader()
    training.step()
    SharedTraining.active = None
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
        (["compare", "--methods=wishful", "--out=out"], "--methods names 'wishful'"),
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
