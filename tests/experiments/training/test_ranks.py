"""The loop in a process group: two ranks share every batch and agree on every record."""

from __future__ import annotations

import multiprocessing

import pytest
import tiny
import torch.distributed
from torch.nn.parallel import DistributedDataParallel

from evodrop.experiments.training.batches import Batches
from evodrop.experiments.training.loop import Training, channels_last

MEASURES = ("noisy_error", "noisy_loss", "clean_error", "clean_loss", "test_error", "test_loss")


def work(rank, meeting, connection):
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    answers = []
    for fields in ({"method": "none"}, {"method": "evolutional"}, {"method": "none", "lr": 1e30}):
        run, pixels = tiny.run(**fields), tiny.pixels()
        network = DistributedDataParallel(channels_last(tiny.network(run.method)))
        batches = Batches(len(pixels.train_x), run.batch_size, run.seed, rank, 2)
        answers.append(list(Training(run, network, pixels, batches).records()))
    connection.send(answers)
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """The records of both ranks: without noise, with noise, and diverging."""
    context, meeting = multiprocessing.get_context("spawn"), tmp_path_factory.mktemp("ranks") / "meeting"
    pipes = [context.Pipe(duplex=False) for _ in range(2)]
    workers = [context.Process(target=work, args=(rank, meeting, pipes[rank][1]), daemon=True) for rank in range(2)]
    for worker in workers:
        worker.start()
    try:
        assert all(here.poll(120) for here, _ in pipes)
        return [here.recv() for here, _ in pipes]
    finally:
        for worker in workers:
            worker.join(30)
            worker.kill()


def test_both_ranks_have_the_records_of_one_process(ranks):
    alone = list(Training(tiny.run(method="none"), tiny.network("none"), tiny.pixels()).records())
    assert ranks[0][0] == ranks[1][0]
    for shared, single in zip(ranks[0][0], alone, strict=True):
        assert [shared[key] for key in MEASURES] == pytest.approx([single[key] for key in MEASURES], rel=1e-4)


def test_with_noise_they_still_agree_on_errors(ranks):
    for first, second in zip(ranks[0][1], ranks[1][1], strict=True):
        assert [first[key] for key in MEASURES] == [second[key] for key in MEASURES]


def test_they_stop_together_when_they_diverge(ranks):
    assert ranks[0][2] == ranks[1][2]
    assert ranks[0][2][-1]["status"] == "diverged"
