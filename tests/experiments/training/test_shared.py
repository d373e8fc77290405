"""A training in a process group: two ranks share every batch and agree on every record."""

from __future__ import annotations

from functools import partial

import pytest
import tiny
import torch
from torch import nn

from evodrop.experiments.training.loop import Training
from evodrop.experiments.training.shared import SharedTraining

MEASURES = ("noisy_error", "noisy_loss", "clean_error", "clean_loss", "test_error", "test_loss")


class Agreed(SharedTraining):
    """Both ranks make the same training, so none has to be called."""

    def _call_the_others(self):
        pass


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
    alone = list(Training(tiny.run(**fields), tiny.network("none"), tiny.pixels()).records())
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
    first.advance()
    SharedTraining.at_work = None  # as after a kill
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


def follow_one_that_was_left():
    SharedTraining.at_work = shared(seed=7)
    try:
        with pytest.raises(SystemExit, match=r"seed7-.* ended early, which the other ranks cannot"):
            shared().advance()
    finally:
        SharedTraining.at_work = None
    return True


def test_a_leader_whose_run_failed_in_the_middle_begins_no_other(two_ranks):
    assert two_ranks(follow_one_that_was_left) == [True, True]
