"""Synchronised layers in training: DDP, FSDP2, accumulation, checkpoints and compilers, against one process."""

from __future__ import annotations

import copy
import shutil
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from evodrop._kernels.rows import RANK_STEP
from evodrop.definitions import sampling_probabilities, second_moments
from evodrop.nn import EvolutionalDropout, convert_sync_dropout
from evodrop.nn._noise import Options, draw_seed, noise

SHARES, STEPS = (10, 6), 50
needs_compiler = pytest.mark.skipif(shutil.which("c++") is None, reason="inductor needs a C++ compiler")


class Replayed(nn.Module):
    """The noise that ranks with these shares draw, on the joined batch in one process; by the unsynchronised parts."""

    def forward(self, x):
        probs, seed = sampling_probabilities(second_moments(x.detach())), draw_seed(x.device)
        seeds = [seed + rank * RANK_STEP % 2**63 for rank in range(len(SHARES))]
        parts = zip(x.detach().split(SHARES), seeds, strict=True)
        return x * torch.cat([noise(part, probs, *Options(0.5), [1], [], own, None) for part, own in parts])


def network(make=lambda: EvolutionalDropout(0.5)):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(20, 40), nn.ReLU(), make(), nn.Linear(40, 30), nn.ReLU(), make(), nn.Linear(30, 5))


def batch_of(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(sum(SHARES), 20, generator=generator), torch.randint(5, (sum(SHARES),), generator=generator)


def own(tensor):
    return tensor.split(SHARES)[dist.get_rank()]


def train(model, share_of=lambda tensor: tensor, weight=1.0, steps=STEPS):
    """The losses; ``weight`` makes the mean over ranks that DDP takes the mean over examples."""
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), []
    torch.manual_seed(2)  # every rank alike
    for step in range(steps):
        x, y = map(share_of, batch_of(step))
        loss = cross_entropy(model(x), y) * weight
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def own_weight():
    return SHARES[dist.get_rank()] * len(SHARES) / sum(SHARES)


def train_in_parallel():
    return train(DistributedDataParallel(convert_sync_dropout(network())), own, own_weight())


def test_two_ranks_have_the_losses_of_one_process_with_the_same_noise(two_ranks):
    single = train(network(Replayed))
    joined = np.mean(two_ranks(train_in_parallel), axis=0)
    np.testing.assert_allclose(joined, single, rtol=0, atol=1e-4)
    assert single[-1] < single[0]


def train_in_parallel_without_sync():
    return train(DistributedDataParallel(network()), own, own_weight())


def test_without_sync_they_have_others(two_ranks):
    """The test above can fail: the probabilities of half a batch are not those of the whole."""
    assert np.abs(np.mean(two_ranks(train_in_parallel_without_sync), axis=0) - train(network(Replayed))).max() > 1e-2


def train_sharded():
    model = convert_sync_dropout(network())
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    return train(fully_shard(model), own, own_weight(), steps=10)


def test_sharded_models_train_alike(two_ranks):
    np.testing.assert_allclose(np.mean(two_ranks(train_sharded), axis=0), train(network(Replayed))[:10], atol=1e-4)


@contextmanager
def counted_collectives():
    """A list with an entry for every all_reduce of a layer; those of DDP itself do not go through Python."""
    original, seen = dist.all_reduce, []
    dist.all_reduce = lambda tensor, *args, **kwargs: (seen.append(len(tensor)), original(tensor, *args, **kwargs))[1]
    try:
        yield seen
    finally:
        dist.all_reduce = original


def accumulate(rounds=3):
    """Gradients of several small batches before a step, which DDP exchanges with the last."""
    model = DistributedDataParallel(convert_sync_dropout(network()))
    torch.manual_seed(2)
    with counted_collectives() as seen:
        for step in range(rounds):
            x, y = map(own, batch_of(step))
            with nullcontext() if step == rounds - 1 else model.no_sync():
                loss = cross_entropy(model(x), y) * own_weight()
                forward = len(seen)
                loss.backward()
                assert len(seen) == forward, "backward communicates"
    return seen, [weights.grad.numpy() for weights in model.parameters()]


def test_accumulated_gradients_and_one_all_reduce_a_layer_and_batch(two_ranks):
    single = network(Replayed)
    torch.manual_seed(2)
    for step in range(3):
        x, y = batch_of(step)
        cross_entropy(single(x), y).backward()
    for seen, gradients in two_ranks(accumulate):
        assert seen == [41, 31] * 3
        for gradient, weights in zip(gradients, single.parameters(), strict=True):
            np.testing.assert_allclose(gradient, weights.grad, atol=1e-5)


def gradients_and_sums(model, forward, x):
    """Two batches forward before the first goes backward, as in a pipeline."""
    model = copy.deepcopy(model)
    torch.manual_seed(4)
    with counted_collectives() as seen:
        outputs = [forward(model, x), forward(model, 2 * x)]
        for output in outputs:
            output.square().sum().backward()
    gradients = [weights.grad.numpy() for weights in model.parameters()]
    sums = [layer.running_sums.tolist() for layer in model if getattr(layer, "momentum", None)]
    return gradients, sums, seen


def checkpointed():
    x = torch.randn(SHARES[dist.get_rank()], 20, requires_grad=True)
    ways = [lambda model, x, way=way: checkpoint(model, x, use_reentrant=way) for way in (True, False)]
    for momentum in (None, 0.2):
        model = network(lambda momentum=momentum: EvolutionalDropout(0.5, sync=True, momentum=momentum))
        plain, sums, seen = gradients_and_sums(model, lambda model, x: model(x), x)
        assert seen == [41, 31] * 2
        for way in ways:
            again, sums_again, seen_again = gradients_and_sums(model, way, x)
            assert sums_again == sums
            assert seen_again == [41, 31] * 4  # as in SyncBatchNorm, a call that is made again communicates again
            for one, other in zip(plain, again, strict=True):
                np.testing.assert_array_equal(one, other)
    return True


def test_checkpoints_have_the_same_gradient_and_count_once(two_ranks):
    assert two_ranks(checkpointed) == [True, True]


def compiled(backend, momentum, shares):
    """Batches with these shares, in one graph each; the results of eager layers and of compiled ones."""
    torch.compiler.reset()
    eager = nn.Sequential(nn.Linear(20, 40), EvolutionalDropout(0.5, sync=True, momentum=momentum))
    models = [eager, copy.deepcopy(eager)]
    results = []
    for model, call in zip(models, (models[0], torch.compile(models[1], backend=backend, fullgraph=True)), strict=True):
        torch.manual_seed(6)
        outputs = [call(torch.randn(share[dist.get_rank()], 20)) for share in shares]
        torch.cat(outputs).square().sum().backward()
        results.append([*outputs, model[0].weight.grad, model[1].running_sums])
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)
    return [len(output) for output in outputs]


@pytest.mark.parametrize(
    ("backend", "momentum"), [("aot_eager", 0.2), pytest.param("inductor", None, marks=needs_compiler)]
)
def test_compiled_in_one_graph_and_equal_to_eager_also_without_examples(two_ranks, backend, momentum):
    """A compiler drops what is not used, and on an empty share the moments are not: the other rank would wait."""
    assert two_ranks(compiled, backend, momentum, [(5, 0), (4, 3)]) == [[5, 4], [0, 3]]
