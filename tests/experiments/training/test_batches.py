from __future__ import annotations

from itertools import islice

import pytest
import torch

from evodrop.experiments.training.batches import Batches


def first(n, stream, iteration=0):
    return list(islice(stream.starting_at(iteration), n))


def test_an_epoch_meets_every_example_once_but_for_the_rest():
    stream = Batches(50, 8, seed=3)
    assert len(stream) == 6
    for epoch in range(3):
        seen = torch.cat(first(6, stream, 6 * epoch))
        assert len(seen) == len(seen.unique()) == 48
        assert seen.min() >= 0
        assert seen.max() < 50


def test_every_epoch_and_seed_has_its_own_order():
    one, two = first(12, Batches(48, 8, 0)), first(12, Batches(48, 8, 1))
    assert not torch.equal(torch.cat(one[:6]), torch.cat(one[6:]))
    assert not torch.equal(torch.cat(one), torch.cat(two))


@pytest.mark.parametrize("iteration", [0, 1, 5, 6, 7, 13])
def test_it_can_start_anywhere(iteration):
    whole = first(20, Batches(50, 8, 0))
    rest = first(20 - iteration, Batches(50, 8, 0), iteration)
    assert all(map(torch.equal, whole[iteration:], rest))


def test_ranks_share_every_batch():
    whole = first(7, Batches(50, 9, 0))
    shares = [first(7, Batches(50, 9, 0, rank, 2)) for rank in range(2)]
    for batch, *parts in zip(whole, *shares, strict=True):
        assert [len(part) for part in parts] == [5, 4]
        assert torch.equal(torch.cat(parts).sort().values, batch.sort().values)


def test_few_examples_are_one_batch():
    stream = Batches(5, 128, seed=0)
    assert len(stream) == 1
    assert first(1, stream)[0].sort().values.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 8, 0), "there are 0 training examples"),
        ((10, 8, 0, 2, 2), "rank 2 of 2"),
        ((10, 4, 0, 0, 5), "rank 0 of 5 of batches of 4"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        Batches(*arguments)
