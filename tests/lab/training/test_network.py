"""A network in training: what a record says, and that nothing but the run decides it."""

from __future__ import annotations

import json
from functools import partial
from itertools import islice

import numpy as np
import pytest
import torch
from helpers import tiny
from torch import nn
from torch.nn.functional import cross_entropy

from evodrop.lab.data import Images, load
from evodrop.lab.methods import METHODS, USUAL
from evodrop.lab.networks import NETWORKS
from evodrop.lab.run import Run
from evodrop.lab.store import keep_records
from evodrop.lab.training.network import NetworkTraining, as_input, batches, check_fit, network_for, prepare
from evodrop.nn.zoo import penalties

NOISE = ("noisy_error", "noisy_loss")
PIXELS = prepare(load("digits"), NETWORKS["digits"].size, NETWORKS["digits"].scale)
LEARNED = {
    "variational": ["dropout1.log_alpha", "dropout2.log_alpha"],
    "variational-weights": ["fc2.log_alpha", "fc3.log_alpha"],
    "adaptive-rate": [f"dropout{place}.log_{name}" for place in (1, 2) for name in ("alpha", "beta")],
}
ZOO = [method for method in METHODS if method not in USUAL]


def records(**fields):
    return list(tiny.training(**fields).records())


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
    train_x, train_y, test_x, test_y, _ = pixels
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    for iteration, index in enumerate(islice(batches(75, 16, 0), 16)):
        if iteration == 8:
            optimizer.param_groups[0]["lr"] = 0.005
        optimizer.zero_grad()
        loss = cross_entropy(network(as_input(train_x[index])), train_y[index])
        loss.backward()
        optimizer.step()
    trained = tiny.network("none")
    last = list(NetworkTraining(run, trained, pixels).records())[-1]
    for ours, theirs in zip(trained.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    assert last["test_error"] == NetworkTraining(run, network, pixels).evaluate(test_x, test_y)[0]
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
        list(NetworkTraining(tiny.run(method=method), spy, tiny.pixels()).records())
    for spy in spies[1:]:
        assert len(spy.seen) == 16
        assert all(map(torch.equal, spies[0].seen, spy.seen))


def test_the_generator_belongs_to_the_caller_between_records():
    undisturbed, training = records(), tiny.training()
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
        next(NetworkTraining(tiny.run(), network, tiny.pixels()).records())
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


def test_the_weights_of_convolutions_have_their_channels_last():
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(16, 3))
    NetworkTraining(tiny.run(), network, tiny.pixels())
    assert network[1].weight.is_contiguous(memory_format=torch.channels_last)
    assert not network[1].weight.is_contiguous()


def test_an_evaluation_is_the_same_in_any_number_of_parts():
    training = tiny.training()
    many = training.evaluate(training.test_x.repeat(50, 1, 1, 1), training.test_y.repeat(50))
    assert many == pytest.approx(training.evaluate(training.test_x, training.test_y))


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
    training = tiny.training()
    with pytest.raises(error):
        training.load_state(training.state() | change)


# The zoo: every method trains, learned noise pays its price, and a run that was stopped resumes


def digits(method, **fields):
    return Run(
        **{"dataset": "digits", "network": "digits", "method": method, "seed": 0, "lr": 0.01, "epochs": 1} | fields
    )


@pytest.mark.parametrize("method", ZOO)
def test_every_method_of_the_zoo_trains(method):
    run = digits(method, eval_every=2)
    network = network_for(run)
    before = {name: value.clone() for name, value in network.named_parameters()}
    training = NetworkTraining(run, network, PIXELS)
    record = next(training.records())
    assert (record["iteration"], record["status"]) == (2, "running")
    assert [layer["name"] for layer in record["layers"]] == ["dropout1", "dropout2"]
    assert [name for name in before if not name.endswith(("weight", "bias"))] == LEARNED.get(method, [])
    assert all((before[name] != value).any() for name, value in network.named_parameters())


@pytest.mark.parametrize("method", LEARNED)
def test_the_objective_is_the_mean_loss_and_the_price_of_the_noise_for_each_example(method):
    """The first two steps of plain SGD, from the same noise, with the penalty written out."""
    run = digits(method, momentum=0.0, eval_every=2)
    trained = network_for(run)
    training = NetworkTraining(run, trained, PIXELS)
    network, losses, (train_x, train_y, *_) = network_for(run), [], PIXELS
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(training.noise)
        for index in islice(batches(len(train_x), 128, 0), 2):
            loss = cross_entropy(network.train()(as_input(train_x[index])), train_y[index])
            losses.append(loss.item())
            network.zero_grad()
            (loss + penalties(network) / len(train_x)).backward()
            with torch.no_grad():
                for parameter in network.parameters():
                    parameter.sub_(0.01 * parameter.grad)
    record = next(training.records())
    assert record["noisy_loss"] == pytest.approx(sum(losses) / 2, rel=1e-6)  # the loss of the data alone
    for ours, theirs in zip(trained.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-7)
    assert penalties(trained).item() != 0


@pytest.mark.parametrize("method", ["variational", "adaptive-rate", "weight-aware"])
def test_stopped_it_goes_on_to_the_same_records(tmp_path, method):
    run = digits(method, eval_every=3)

    def live(folder):
        return keep_records(NetworkTraining(run, network_for(run), PIXELS), tmp_path / folder, every=0)

    whole = list(live("whole"))
    assert [record["iteration"] for record in whole] == [3, 6, 9, 11]
    stopped = live("stopped")
    assert list(islice(stopped, 2)) == whole[:2]
    stopped.close()
    assert list(live("stopped")) == whole
    contents = [(tmp_path / name / "records.jsonl").read_bytes() for name in ("whole", "stopped")]
    assert contents[0] == contents[1]


def test_without_learned_noise_there_is_no_price():
    for method in METHODS:
        run = digits(method)
        assert NetworkTraining(run, network_for(run), PIXELS).penalised == (method in LEARNED)


def test_every_method_of_a_seed_begins_with_the_same_weights():
    networks = {method: dict(network_for(digits(method)).named_parameters()) for method in METHODS}
    for weights in networks.values():
        for name, parameter in networks["none"].items():
            assert (weights[name] == parameter).all()
    assert (
        dict(network_for(digits("none", seed=1)).named_parameters())["fc1.weight"] != networks["none"]["fc1.weight"]
    ).any()


def test_data_and_network_have_to_fit():
    with pytest.raises(ValueError, match="network is 'nonsense', but it is one of 'digits'"):
        check_fit("nonsense", load("digits"))
    with pytest.raises(ValueError, match="in 10 classes, but digits has 1 of 8 x 8 in 11"):
        check_fit("digits", load("digits")._replace(classes=11))


# Which examples make up which batch


def test_an_epoch_meets_every_example_once_but_for_the_rest():
    for epoch in range(3):
        seen = torch.cat(list(islice(batches(50, 8, 3, 6 * epoch), 6)))
        assert len(seen) == len(seen.unique()) == 48
        assert seen.min() >= 0
        assert seen.max() < 50


def test_every_epoch_and_seed_has_its_own_order():
    one, two = (list(islice(batches(48, 8, seed), 12)) for seed in (0, 1))
    assert not torch.equal(torch.cat(one[:6]), torch.cat(one[6:]))
    assert not torch.equal(torch.cat(one), torch.cat(two))


@pytest.mark.parametrize("iteration", [0, 1, 5, 6, 7, 13])
def test_it_can_start_anywhere(iteration):
    whole = list(islice(batches(50, 8, 0), 20))
    rest = islice(batches(50, 8, 0, iteration), 20 - iteration)
    assert all(map(torch.equal, whole[iteration:], rest))


def note_batch(seen, _, inputs):
    seen.append(inputs[0].clone())


def test_ranks_share_every_batch():
    """Each rank's part of the first batch; together they are the batch."""
    parts = []
    for rank, ranks in ((0, 1), (0, 2), (1, 2)):
        network, seen = tiny.network("none"), []
        network.register_forward_pre_hook(partial(note_batch, seen))
        NetworkTraining(tiny.run(batch_size=9), network, tiny.pixels(), rank, ranks).step()
        parts.append(seen[0])
    whole, even, odd = parts
    assert torch.equal(whole[0::2], even)
    assert torch.equal(whole[1::2], odd)
    assert (len(even), len(odd)) == (5, 4)


def test_few_examples_are_one_batch():
    training = tiny.training(batch_size=128)
    assert (training.size, training.per_epoch) == (75, 1)
    assert next(training.stream).sort().values.tolist() == list(range(75))


# Images as a network takes them


def colours(n=6, height=5, width=7):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (n, 3, height, width)).astype(np.uint8)
    return Images("colours", x, np.arange(n) % 2, x[:2] // 2, np.array([1, 0]), 2)


def test_crop_and_mean_by_their_definition():
    images = colours()
    train_x, train_y, test_x, _, _ = prepare(images, size=4, scale=0.5)
    crop = images.train_x[:, :, 0:4, 1:5].astype(np.float64)  # of 5 rows the first is nearer to the centre
    mean = crop.mean(axis=0)
    np.testing.assert_allclose(as_input(train_x), (crop - mean) / 2, atol=1e-4)
    test = images.test_x[:, :, 0:4, 1:5].astype(np.float64)
    np.testing.assert_allclose(as_input(test_x), (test - mean) / 2, atol=1e-4)
    assert train_y.tolist() == [0, 1, 0, 1, 0, 1]


def test_float32_with_the_channels_last():
    train_x, *_ = prepare(colours())
    assert train_x.dtype == torch.float32
    assert as_input(train_x).shape == (6, 3, 5, 7)
    assert as_input(train_x).is_contiguous(memory_format=torch.channels_last)


def test_the_fingerprint_tells_data_and_feeding_apart():
    images = colours()
    changed = images.train_x.copy()
    changed[5, 2, 4, 6] ^= 1
    others = [
        prepare(images),
        prepare(images, 5),
        prepare(images, 4),
        prepare(images, scale=2.0),
        prepare(images._replace(train_x=changed)),
        prepare(images._replace(test_y=1 - images.test_y)),
        prepare(images._replace(classes=3)),
    ]
    assert len({fingerprint for *_, fingerprint in others}) == len(others)
    assert prepare(images._replace(name="other"))[-1] == prepare(images)[-1]


def test_the_fingerprint_stays_as_it_was_and_names_data_that_were_not_published():
    x, y = np.arange(2 * 3 * 4 * 5, dtype=np.uint8).reshape(2, 3, 4, 5), np.array([0, 1])
    images = Images("fixed", x, y, x[:1], y[:1], 2)
    assert prepare(images)[-1] == "8666d1e653df0703"
    assert prepare(images._replace(origin="made again"))[-1] == "8666d1e653df0703, made again"


def test_the_images_themselves_stay_as_they_are():
    images = tiny.images()
    before = images.train_x.copy()
    prepare(images, 4)
    assert np.array_equal(images.train_x, before)
