"""The loop: what a record says, and that nothing but the run decides it."""

from __future__ import annotations

import json
from itertools import islice

import pytest
import tiny
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from evodrop.experiments.methods import USUAL
from evodrop.experiments.training.batches import Batches
from evodrop.experiments.training.evaluation import evaluate
from evodrop.experiments.training.loop import Training, channels_last
from evodrop.experiments.training.pixels import as_input

NOISE = ("noisy_error", "noisy_loss")


def records(**fields):
    run = tiny.run(**fields)
    return list(Training(run, tiny.network(run.method, run.seed, run.rate, run.match), tiny.pixels()).records())


@pytest.mark.parametrize("method", USUAL)
def test_the_same_run_has_the_same_records(method):
    first = records(method=method)
    torch.manual_seed(123)  # nothing of the caller's matters
    assert records(method=method) == first
    assert records(method=method, seed=1) != first
    assert [record["iteration"] for record in first] == [3, 6, 9, 12, 15, 16]
    assert [record["status"] for record in first] == ["running"] * 5 + ["finished"]
    assert json.loads(json.dumps(first, allow_nan=False)) == first


@pytest.mark.parametrize("method", USUAL)
def test_looking_disturbs_nothing(method):
    """Records at every iteration and at every third: the same training, and the rare ones average over the frequent."""
    often, rarely = records(method=method, eval_every=1), records(method=method, eval_every=3)
    for record in rarely:
        same = often[record["iteration"] - 1]
        assert {k: v for k, v in record.items() if k not in NOISE} == {k: v for k, v in same.items() if k not in NOISE}
    for key in NOISE:
        average = sum(record[key] for record in often[3:6]) / 3
        assert rarely[1][key] == pytest.approx(average, rel=1e-12)


def test_the_steps_are_those_of_plain_sgd():
    run, network, pixels = tiny.run(method="none", decay=(2,)), tiny.network("none"), tiny.pixels()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    for iteration, index in enumerate(islice(Batches(75, 16, 0).starting_at(0), 16)):
        if iteration == 8:
            optimizer.param_groups[0]["lr"] = 0.005
        optimizer.zero_grad()
        loss = cross_entropy(network(as_input(pixels.train_x[index])), pixels.train_y[index])
        loss.backward()
        optimizer.step()
    trained = tiny.network("none")
    last = list(Training(run, trained, pixels).records())[-1]
    for ours, theirs in zip(trained.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    assert last["test_error"] == evaluate(network, pixels.test_x, pixels.test_y).error
    assert last["lr"] == 0.005


@pytest.mark.parametrize("method", USUAL)
def test_it_learns(method):
    """A bright spot shows the class: chance is 2/3, and every method finds it."""
    last = records(method=method, epochs=40, eval_every=40)[-1]
    assert last["clean_error"] < 0.1
    assert last["test_error"] < 0.2
    assert last["epoch"] == 40


class Spy(nn.Module):
    def __init__(self, network):
        super().__init__()
        self.network, self.seen = network, []

    def forward(self, x):
        if self.training:
            self.seen.append(x.clone())
        return self.network(x)


def test_every_method_meets_the_same_batches():
    spies = [Spy(tiny.network(method)) for method in USUAL]
    for method, spy in zip(USUAL, spies, strict=True):
        list(Training(tiny.run(method=method), spy, tiny.pixels()).records())
    for spy in spies[1:]:
        assert len(spy.seen) == 16
        assert all(map(torch.equal, spies[0].seen, spy.seen))


def test_the_generator_belongs_to_the_caller_between_records():
    undisturbed, training = records(), Training(tiny.run(), tiny.network(), tiny.pixels())
    torch.manual_seed(5)
    expected = [torch.rand(1) for _ in range(6)]
    torch.manual_seed(5)
    drawn, ours = [], []
    for record in training.records():
        ours.append(record)
        drawn.append(torch.rand(1))
    assert ours == undisturbed
    assert all(map(torch.equal, drawn, expected))


def test_one_thread_whatever_the_caller_has():
    before, threads = torch.get_num_threads(), []
    try:
        torch.set_num_threads(2)
        network = tiny.network()
        network.register_forward_hook(lambda *_: threads.append(torch.get_num_threads()))
        next(Training(tiny.run(), network, tiny.pixels()).records())
        assert len(threads) > 3  # three steps, then the evaluation
        assert set(threads) == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_layers_are_told_apart_and_only_dropout_counts():
    by_method = {method: records(method=method)[-1]["layers"] for method in USUAL}
    assert by_method["none"] == by_method["batchnorm"] == []
    for method in ("standard", "uniform", "evolutional", "water-filling"):
        assert [(layer["name"], layer["units"]) for layer in by_method[method]] == [("2", 144), ("6", 12)]
        assert all(layer["probs"] == sorted(layer["probs"]) for layer in by_method[method])
    assert [layer["noise"] for layer in by_method["standard"]] == [1.0, 1.0]


@pytest.mark.parametrize("method", USUAL)
def test_divergence_is_a_record(method):
    *_, last = records(method=method, lr=1e30, epochs=50)
    assert last["status"] == "diverged"
    assert last["iteration"] < 200
    assert [last[key] for key in ("clean_error", "clean_loss", "test_error", "test_loss")] == [None] * 4
    json.dumps(last, allow_nan=False)


def test_after_the_last_record_there_is_none():
    training = Training(tiny.run(), tiny.network(), tiny.pixels())
    list(training.records())
    with pytest.raises(RuntimeError, match="the run has finished at iteration 16; there is no further"):
        training.advance()


def test_the_weights_of_convolutions_have_their_channels_last():
    network = channels_last(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Linear(2, 2)))
    assert network[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert not network[0].weight.is_contiguous()


def test_an_evaluation_is_the_same_in_any_number_of_parts():
    network, pixels = tiny.network("evolutional"), tiny.pixels()
    many = evaluate(network, pixels.test_x.repeat(50, 1, 1, 1), pixels.test_y.repeat(50))
    one = evaluate(network, pixels.test_x, pixels.test_y)
    assert many.error == pytest.approx(one.error)
    assert many.loss == pytest.approx(one.loss)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"run": "other"}, ValueError),
        ({"iteration": 16}, ValueError),
        ({"iteration": "3"}, ValueError),
        ({"iteration": True}, ValueError),
        ({"velocities": []}, ValueError),
        ({"velocities": [torch.zeros(1)] * 6}, ValueError),
        ({"velocities": [3] * 6}, AttributeError),
        ({"network": {}}, RuntimeError),
        ({"noise": torch.zeros(5056, dtype=torch.uint8)}, RuntimeError),
        ({"noise": torch.zeros(3)}, (RuntimeError, TypeError)),
        ({"open": {}}, KeyError),
    ],
)
def test_a_state_that_does_not_fit_is_refused(change, error):
    training = Training(tiny.run(), tiny.network(), tiny.pixels())
    with pytest.raises(error):
        training.load_state(training.state() | change)
