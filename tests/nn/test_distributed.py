"""Synchronised layers in groups of two and three processes: what every rank follows, and what it draws."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

from evodrop.definitions import n_draws, sampling_probabilities, second_moments
from evodrop.nn import (
    EvolutionalDropout,
    EvolutionalDropout1d,
    EvolutionalDropout2d,
    WaterFillingDropout,
    convert_dropout,
    convert_sync_dropout,
    use_backend,
)
from evodrop.nn.distributed import global_moments
from evodrop.nn.functional import bernoulli_dropout, evolutional_dropout

SHARES = (5, 0, 11)  # examples of each rank


def whole_batch(*shape):
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(sum(SHARES), *shape, generator=generator)
    return x * torch.rand(1, *shape, generator=generator)  # units of different strengths


def own_share(batch):
    return batch.split(SHARES)[dist.get_rank()]


LAYERS = [  # a layer, the shape of an example, and the input as rows of units
    (EvolutionalDropout(0.5), (30,), lambda x: x),
    (EvolutionalDropout(0.5), (2, 3, 4), lambda x: x.flatten(1)),
    (EvolutionalDropout(0.4, unit_dims=-1), (4, 6), lambda x: x.reshape(-1, 6)),
    (EvolutionalDropout1d(0.5), (6, 7), lambda x: x.transpose(1, 2).reshape(-1, 6)),
    (EvolutionalDropout2d(0.5), (6, 3, 5), lambda x: x.permute(0, 2, 3, 1).reshape(-1, 6)),
]


def noise_of_every_layer(backend):
    """The noise on this rank's share, with whatever dimensions the layer has noise for."""
    answers = []
    with use_backend(backend):
        for layer, shape, as_rows in LAYERS:
            x = own_share(whole_batch(*shape))
            y = convert_sync_dropout(copy.deepcopy(layer))(x)
            answers.append(as_rows((y / x).double()).numpy())
    return answers


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_every_rank_has_the_probabilities_of_the_whole_batch(three_ranks, backend):
    """What is true of every draw: noise * k * probs are integers that sum to k."""
    answers = three_ranks(noise_of_every_layer, backend)
    for number, (layer, shape, as_rows) in enumerate(LAYERS):
        batch = whole_batch(*shape)
        rows = as_rows(batch)
        probs, k = sampling_probabilities(second_moments(rows)).numpy(), n_draws(rows.shape[1], layer.p)
        for share, noises in zip(SHARES, (answer[number] for answer in answers), strict=True):
            counts = noises * k * probs
            assert len(counts) == len(as_rows(batch[:share]))
            np.testing.assert_allclose(counts, counts.round(), rtol=1e-6, atol=0)
            np.testing.assert_array_equal(counts.round().sum(1), k)


def moments_of_shares(shape, dims):
    return global_moments(own_share(whole_batch(*shape)), dims).numpy()


@pytest.mark.parametrize(("shape", "dims", "rows"), [((30,), None, (-1, 30)), ((4, 6), -1, (-1, 6))])
def test_moments_are_those_of_the_whole_batch_to_1e_6(three_ranks, shape, dims, rows):
    single = second_moments(whole_batch(*shape).reshape(rows)).numpy()
    for moments in three_ranks(moments_of_shares, shape, dims):
        np.testing.assert_allclose(moments, single, rtol=1e-12)


def moments_of_two_shares(sizes):
    return global_moments(whole_batch(30).split(sizes)[dist.get_rank()]).numpy()


@pytest.mark.parametrize("sizes", [(8, 8), (11, 5), (16, 0)])
def test_two_ranks_as_well(two_ranks, sizes):
    single = second_moments(whole_batch(30)).numpy()
    for moments in two_ranks(moments_of_two_shares, sizes):
        np.testing.assert_allclose(moments, single, rtol=1e-12)


def pass_an_empty_share():
    x = own_share(whole_batch(30)).requires_grad_()
    y = EvolutionalDropout(0.5, sync=True)(x)
    (y.sum() + 0.0).backward()
    return y is x, tuple(x.grad.shape), bool(torch.isfinite(x.grad).all())


def test_an_empty_share_passes_through_and_has_its_gradient(three_ranks):
    assert three_ranks(pass_an_empty_share) == [(False, (5, 30), True), (True, (0, 30), True), (False, (11, 30), True)]


def squares_of_the_last_rank_overflow():
    x = torch.full((4, 3), 1e160 if dist.get_rank() == dist.get_world_size() - 1 else 1.0, dtype=torch.float64)
    errors = []
    for call in (EvolutionalDropout(0.5, sync=True), global_moments):
        try:
            call(x)
        except ValueError as error:
            errors.append(str(error))
    return errors


def test_squares_that_no_sum_can_hold_end_every_rank_with_the_same_error(two_ranks):
    first, last = two_ranks(squares_of_the_last_rank_overflow)
    assert first == last
    assert len(first) == 2
    assert all("over- or underflow in float64" in error for error in first)


def nobody_has_an_example():
    return tuple(EvolutionalDropout(0.5, sync=True, momentum=0.5)(torch.empty(0, 4)).shape)


def test_a_batch_that_is_empty_everywhere(two_ranks):
    assert two_ranks(nobody_has_an_example) == [(0, 4), (0, 4)]


def one_rank_overflows():
    x = torch.ones(4, 3)
    x[0, 1] = float("inf") if dist.get_rank() == 1 else 1.0
    return torch.equal(EvolutionalDropout(0.5, sync=True)(x)[:, 1], x[:, 1])


def test_a_unit_that_is_not_finite_on_one_rank_passes_through_on_all(two_ranks):
    assert two_ranks(one_rank_overflows) == [True, True]


def masks_seeded_alike():
    """Every rank's standard mask, twice, and its evolutional one: what a mask is follows from seed and rank."""
    x, masks = torch.ones(500, 100), []
    for _ in range(2):
        torch.manual_seed(0)
        masks.append((bernoulli_dropout(x) > 0).numpy())
        masks.append((WaterFillingDropout(0.5, sync=True)(x) > 0).numpy())
    np.testing.assert_array_equal(masks[:2], masks[2:])
    return masks[:2]


def test_masks_of_ranks_that_are_seeded_alike_are_uncorrelated(three_ranks):
    masks = np.array(three_ranks(masks_seeded_alike), float) - 0.5
    for kind in range(2):
        flat = masks[:, kind].reshape(3, -1)
        correlations = np.corrcoef(flat)[np.triu_indices(3, 1)] * flat.shape[1] ** 0.5  # in standard errors
        assert (np.abs(correlations) < 4).all()
        assert np.unique(np.vstack(masks[:, kind]), axis=0).shape[0] == 3 * 500  # no row is another's


def moments_in_a_subgroup():
    pair = dist.new_group([0, 1])
    x = torch.full((2, 3), float(dist.get_rank() + 1))
    if dist.get_rank() == 2:
        with pytest.raises(TypeError, match="it takes a group that this process is a member of"):
            convert_sync_dropout(nn.Sequential(EvolutionalDropout(0.5)), pair)
        return global_moments(x[:0]).tolist(), (bernoulli_dropout(torch.ones(300, 50)) > 0).numpy()
    layer = convert_sync_dropout(nn.Sequential(EvolutionalDropout(0.5)), pair)[0]
    assert layer.process_group is pair
    np.testing.assert_allclose(global_moments(x, process_group=pair), [2.5] * 3)  # (1 + 4) / 2
    np.testing.assert_allclose(layer._follow(x), [2.5] * 3)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):  # a group can be neither copied nor pickled
        assert twin.sync
        assert twin.process_group is None
    everywhere = global_moments(x[:0]).tolist()  # a collective of all three, and here of none's examples
    torch.manual_seed(0)
    return everywhere, (bernoulli_dropout(torch.ones(300, 50)) > 0).numpy()


def test_a_subgroup_shares_moments_and_no_noise(three_ranks):
    answers = three_ranks(moments_in_a_subgroup)
    assert [moments for moments, _ in answers] == [[0.0] * 3] * 3
    first, second, _ = (mask.ravel() - 0.5 for _, mask in answers)
    assert abs(np.corrcoef(first, second)[0, 1]) * len(first) ** 0.5 < 4


def compiled_in_a_group():
    torch.compiler.reset()
    layer = convert_sync_dropout(EvolutionalDropout(0.5), dist.new_group([0, 1]))
    x, outputs = torch.full((4, 6), 1.0 + dist.get_rank()) * torch.arange(1.0, 7.0), []
    for call in (layer, torch.compile(layer, backend="aot_eager", fullgraph=True)):
        torch.manual_seed(3)
        outputs.append(call(x))
    torch.testing.assert_close(*outputs)
    return True


def test_a_layer_with_a_group_of_its_own_is_compiled_in_one_graph(two_ranks):
    assert two_ranks(compiled_in_a_group) == [True, True]


def follow_a_batch_over_two_steps():
    layer = EvolutionalDropout(0.5, sync=True, momentum=0.25)
    x = [torch.full((size, 2), float(size)) for size in ([1, 2], [3, 0])[dist.get_rank()]]
    for batch in x:
        layer(batch)
    return layer.running_sums.tolist(), layer.running_moments.tolist()


def test_a_running_moment_is_that_of_all_ranks(two_ranks):
    """Squares 1 * 1 + 3 * 9 = 28 of 4 examples, then 2 * 4 of 2."""
    sums, count = 0.75 * 28 + 8, 0.75 * 4 + 2
    for running, moments in two_ranks(follow_a_batch_over_two_steps):
        assert running == [sums, sums, count]
        assert moments == pytest.approx([sums / count] * 2, rel=1e-15)


def test_without_processes_sync_changes_nothing():
    x = torch.rand(6, 10)
    for make in (EvolutionalDropout, lambda **options: EvolutionalDropout(match="noise", **options)):
        torch.manual_seed(1)
        plain = make()(x)
        torch.manual_seed(1)
        torch.testing.assert_close(make(sync=True)(x), plain, rtol=1e-6, atol=0)
    torch.manual_seed(1)
    functional = evolutional_dropout(x, moments=global_moments(x))
    torch.manual_seed(1)
    torch.testing.assert_close(functional, EvolutionalDropout()(x), rtol=1e-6, atol=0)


def test_convert_sync_dropout_reaches_every_evolutional_layer():
    model = nn.Sequential(nn.Dropout(0.1), nn.Sequential(nn.Dropout2d(0.2)), EvolutionalDropout1d(0.3))
    assert convert_sync_dropout(convert_dropout(model)) is model
    assert all(layer.sync and layer.process_group is None for layer in (model[0], model[1][0], model[2]))
    assert type(convert_sync_dropout(nn.Dropout(0.1))) is nn.Dropout


def test_a_group_without_sync_or_of_another_kind_is_an_error():
    with pytest.raises(ValueError, match="process_group is given, but sync is False"):
        EvolutionalDropout(0.5, process_group=object())
    with pytest.raises(TypeError, match="process_group is 'all', but it takes a group"):
        convert_sync_dropout(EvolutionalDropout(0.5), "all")
    with pytest.raises(TypeError, match="process_group is 'all', but it takes a group"):
        convert_sync_dropout(nn.Linear(2, 2), "all")


@pytest.mark.parametrize("sync", [None, 1, "gloo"])
def test_sync_is_true_or_false(sync):
    with pytest.raises(TypeError, match=f"sync is {sync!r}, but it takes True or False"):
        EvolutionalDropout(0.5, sync=sync)


def test_negative_moments_are_named():
    with pytest.raises(ValueError, match=r"moments holds -2.0, but a mean of squares is not negative"):
        evolutional_dropout(torch.ones(2, 3), moments=torch.tensor([1.0, -2.0, torch.nan]))


def test_moments_of_the_wrong_length_are_named():
    with pytest.raises(ValueError, match=r"moments has shape \(3,\)"):
        evolutional_dropout(torch.ones(2, 4), moments=torch.ones(3))
