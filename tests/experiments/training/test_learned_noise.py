"""The zoo in the loop: every method trains, learned noise pays its price, and a run that was stopped goes on."""

from __future__ import annotations

from functools import partial
from itertools import islice

import pytest
import torch
from torch.nn.functional import cross_entropy

from evodrop.experiments.data import load
from evodrop.experiments.methods import METHODS, USUAL
from evodrop.experiments.networks.catalogue import NETWORKS
from evodrop.experiments.records.runs import Run
from evodrop.experiments.running.laboratory import network_for
from evodrop.experiments.training.batches import Batches
from evodrop.experiments.training.keeping import train
from evodrop.experiments.training.loop import Training
from evodrop.experiments.training.pixels import as_input, prepare
from evodrop.nn.zoo import penalties

PIXELS = prepare(load("digits"), NETWORKS["digits"].size, NETWORKS["digits"].scale)
LEARNED = {
    "variational": ["dropout1.log_alpha", "dropout2.log_alpha"],
    "variational-weights": ["fc2.log_alpha", "fc3.log_alpha"],
    "adaptive-rate": [f"dropout{place}.log_{name}" for place in (1, 2) for name in ("alpha", "beta")],
}
ZOO = [method for method in METHODS if method not in USUAL]


def digits(method, **fields):
    return Run(
        **{"dataset": "digits", "network": "digits", "method": method, "seed": 0, "lr": 0.01, "epochs": 1} | fields
    )


@pytest.mark.parametrize("method", ZOO)
def test_every_method_of_the_zoo_trains(method):
    run = digits(method, eval_every=2)
    network = network_for(run)
    before = {name: value.clone() for name, value in network.named_parameters()}
    training = Training(run, network, PIXELS)
    record = training.advance()
    assert (record["iteration"], record["status"]) == (2, "running")
    assert [layer["name"] for layer in record["layers"]] == ["dropout1", "dropout2"]
    assert [name for name in before if not name.endswith(("weight", "bias"))] == LEARNED.get(method, [])
    assert all((before[name] != value).any() for name, value in network.named_parameters())


@pytest.mark.parametrize("method", LEARNED)
def test_the_objective_is_the_mean_loss_and_the_price_of_the_noise_for_each_example(method):
    """The first two steps of plain SGD, from the same noise, with the penalty written out."""
    run = digits(method, momentum=0.0, eval_every=2)
    trained = network_for(run)
    training = Training(run, trained, PIXELS)
    network, losses = network_for(run), []
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(training.noise)
        for index in islice(Batches(len(PIXELS.train_x), 128, 0).starting_at(0), 2):
            loss = cross_entropy(network.train()(as_input(PIXELS.train_x[index])), PIXELS.train_y[index])
            losses.append(loss.item())
            network.zero_grad()
            (loss + penalties(network) / len(PIXELS.train_x)).backward()
            with torch.no_grad():
                for parameter in network.parameters():
                    parameter.sub_(0.01 * parameter.grad)
    record = training.advance()
    assert record["noisy_loss"] == pytest.approx(sum(losses) / 2, rel=1e-6)  # the loss of the data alone
    for ours, theirs in zip(trained.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-7)
    assert penalties(trained).item() != 0


@pytest.mark.parametrize("method", ["variational", "adaptive-rate", "weight-aware"])
def test_stopped_it_goes_on_to_the_same_records(tmp_path, method):
    run = digits(method, eval_every=3)
    live = partial(train, run, pixels=PIXELS, checkpoint_seconds=0)
    whole = list(live(network_for(run), folder=tmp_path / "whole"))
    assert [record["iteration"] for record in whole] == [3, 6, 9, 11]
    stopped = list(islice(live(network_for(run), folder=tmp_path / "stopped"), 2))
    assert stopped == whole[:2]
    assert list(live(network_for(run), folder=tmp_path / "stopped")) == whole
    contents = [(tmp_path / name / "records.jsonl").read_bytes() for name in ("whole", "stopped")]
    assert contents[0] == contents[1]


def test_without_learned_noise_there_is_no_price():
    loss = torch.ones(())
    for method in set(METHODS) - set(LEARNED):
        run = digits(method)
        assert Training(run, network_for(run), PIXELS)._objective(loss) is loss
