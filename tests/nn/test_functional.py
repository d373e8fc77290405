"""The open cases of the design, one by one, and the options."""

from __future__ import annotations

import inspect
from functools import partial

import numpy as np
import pytest
import torch

from evodrop.definitions import expected_kept, n_draws, sampling_probabilities, second_moments
from evodrop.nn import functional as F
from evodrop.noise import draws_for_kept

FUNCTIONS = [F.evolutional_dropout, F.multinomial_dropout, F.bernoulli_dropout, F.water_filling_dropout]
FOLLOWING = [F.evolutional_dropout, F.water_filling_dropout]
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def whole_channels(x, p=0.5, training=True, **options):
    return F.evolutional_dropout(x, p, training, unit_dims=1, shared_dims=tuple(range(2, x.ndim)), **options)


def counts_of(x, **options):
    """The counts behind a call of evolutional dropout, from its output: noise * k * probs."""
    noise = F.evolutional_dropout(x, **options).double() / x.double()
    k = options.get("k") or n_draws(x.shape[1], options.get("p", 0.5))
    return noise * k * sampling_probabilities(second_moments(x))


def test_every_draw_is_k_counts(backend):
    counts = counts_of(torch.randn(64, 100))
    torch.testing.assert_close(counts, counts.round(), atol=1e-4, rtol=0)
    torch.testing.assert_close(counts.sum(1), torch.full((64,), 50.0, dtype=torch.float64), atol=1e-3, rtol=0)


def test_a_unit_that_is_always_zero_stays_zero_and_is_never_drawn(backend):
    x = torch.rand(1000, 4) + 1
    x[:, 2] = 0
    x.requires_grad_()
    F.evolutional_dropout(x, k=3).sum().backward()
    assert (x.grad[:, 2] == 0).all()  # the gradient of the sum is the noise
    counts = x.grad.double() * 3 * sampling_probabilities(second_moments(x.detach()))
    torch.testing.assert_close(counts.sum(1), torch.full((1000,), 3.0, dtype=torch.float64), atol=1e-4, rtol=0)


@pytest.mark.parametrize("function", FOLLOWING)
@pytest.mark.parametrize("match", ["draws", "distinct", "noise"])
def test_an_all_zero_batch_comes_back_as_it_is(backend, function, match):
    x = torch.zeros(5, 700, requires_grad=True)
    y = function(x, match=match)
    y.sum().backward()
    assert (y == 0).all()
    assert (x.grad == 1).all()


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0,), (0, 3, 4)])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_an_empty_batch_comes_back_as_it_is(backend, function, shape):
    x = torch.empty(shape)
    assert function(x) is x


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_units_with_non_finite_activations_pass_through(backend, bad):
    x = torch.randn(200, 50)
    x[3, 7] = bad
    for y in (
        *(function(x) for function in FUNCTIONS),
        F.multinomial_dropout(x, probs=torch.arange(50.0)),
        F.multinomial_dropout(x, match="noise"),
    ):
        torch.testing.assert_close(y[:, 7], x[:, 7], equal_nan=True)
        others = torch.cat([y[:, :7], y[:, 8:]], 1)
        assert torch.isfinite(others).all()
        assert (others == 0).float().mean() > 0.3


def test_a_batch_with_nothing_finite_passes_through(backend):
    x = torch.full((3, 4), float("nan"))
    assert F.evolutional_dropout(x).isnan().all()


def test_float32_activations_whose_squares_overflow_are_dropped_as_usual(backend):
    x = torch.full((100, 20), 1e30)
    y = F.evolutional_dropout(x)
    assert (y == 0).any()
    assert torch.isfinite(y).all()
    assert (F.evolutional_dropout(torch.full((100, 20), 1e-30)) > 0).any()


@pytest.mark.parametrize("function", FOLLOWING)
@pytest.mark.parametrize("size", [1e150, 1e-150])
def test_a_match_of_noise_does_not_depend_on_the_size_of_the_activations(backend, function, size):
    outputs = []
    for factor in (1.0, size):
        torch.manual_seed(1)
        x = torch.rand(50, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * factor
        outputs.append(function(x, match="noise") / factor)
    torch.testing.assert_close(*outputs)


def test_a_tiny_rate_with_a_match_ends(backend):
    x = torch.rand(2, 20)
    y = F.evolutional_dropout(x, 1e-12, match="noise")
    assert 0 < abs(y / x - 1).max() < 1  # 1000 draws per unit
    assert torch.isfinite(F.evolutional_dropout(torch.ones(1, 1), 1e-300, match="distinct")).all()


@pytest.mark.parametrize("function", FOLLOWING)
def test_a_match_of_distinct_units_leaves_dead_units_out(backend, function):
    x = torch.rand(4000, 50) + 1
    x[:, :30] = 0
    kept = (function(x, 0.4, match="distinct") != 0).sum(1).double()
    probs = sampling_probabilities(second_moments(x))
    k = draws_for_kept(probs.numpy(), 12, 320)
    expected = 12 if function is F.water_filling_dropout else float(expected_kept(probs, int(k)))
    assert abs(kept.mean() - expected) < 5 * kept.std() / len(kept) ** 0.5


def test_one_example_is_a_batch(backend):
    x = torch.rand(1, 40)
    y = F.evolutional_dropout(x)
    assert y.sum().item() == pytest.approx(x.sum().item(), rel=1e-5)  # p ~ x: every draw is worth sum(x) / k


def test_a_vector_is_one_example_of_units(backend):
    x = torch.rand(40)
    assert F.evolutional_dropout(x).sum().item() == pytest.approx(x.sum().item(), rel=1e-5)


def test_a_scalar_is_one_unit(backend):
    assert F.evolutional_dropout(torch.tensor(3.0)) == 3.0


def test_counts_above_255_do_not_wrap(backend):
    x = torch.ones(3, 2)
    y = F.evolutional_dropout(x, k=1000)
    torch.testing.assert_close(y.sum(1), torch.full((3,), 2.0))


def test_uniform_mix_bounds_the_noise_of_a_rarely_active_unit(backend):
    x = torch.ones(500, 10)
    x[1:, 0] = 0
    x[0, 0] = 1e-6
    bound = 5 / (5 * 0.2 / 10)  # all k draws at once, each worth 1 / (k p) with p of at least mix / d
    noise = [F.evolutional_dropout(x, uniform_mix=0.2)[0, 0] / 1e-6 for _ in range(100)]
    assert 0 < max(noise) <= bound + 1e-3
    assert (F.evolutional_dropout(x, uniform_mix=1.0)[:, 1:].double() * 5 / 10 % 1 == 0).all()


def test_unit_dims_make_every_position_an_example(backend):
    x = torch.rand(6, 7, 8)
    for dims in (-1, 2, (2,)):
        torch.manual_seed(4)
        y = F.evolutional_dropout(x, unit_dims=dims)
        torch.manual_seed(4)
        flat = F.evolutional_dropout(x.view(42, 8))
        torch.testing.assert_close(y, flat.view(6, 7, 8), rtol=0, atol=0)
    torch.manual_seed(4)
    across = F.evolutional_dropout(x, unit_dims=0)
    torch.manual_seed(4)
    moved = F.evolutional_dropout(x.permute(1, 2, 0).reshape(56, 6)).view(7, 8, 6).permute(2, 0, 1)
    torch.testing.assert_close(across, moved, rtol=0, atol=0)


def test_units_in_the_first_dimension_of_a_square(backend):
    x = torch.rand(6, 6)
    torch.manual_seed(4)
    y = F.evolutional_dropout(x, unit_dims=0)
    torch.manual_seed(4)
    torch.testing.assert_close(y, F.evolutional_dropout(x.T.contiguous()).T, rtol=0, atol=0)


def test_every_dimension_but_the_first_is_a_unit(backend):
    x = torch.rand(6, 3, 4, 5)
    torch.manual_seed(4)
    y = F.evolutional_dropout(x)
    torch.manual_seed(4)
    torch.testing.assert_close(y.flatten(1), F.evolutional_dropout(x.flatten(1)), rtol=0, atol=0)


CHANNELS = {1: ((12, 9), -2, -1), 2: ((12, 3, 3), -3, (-2, -1)), 3: ((12, 3, 1, 3), -4, (-3, -2, -1))}


@pytest.mark.parametrize(("shape", "unit_dims", "shared_dims"), CHANNELS.values(), ids=CHANNELS)
@pytest.mark.parametrize("batched", [True, False])
def test_channels_are_dropped_whole(backend, shape, unit_dims, shared_dims, batched):
    x = torch.rand((40, *shape) if batched else shape, requires_grad=True)
    y = F.evolutional_dropout(x, unit_dims=unit_dims, shared_dims=shared_dims)
    y.sum().backward()
    noise = (y / x).detach().reshape(-1, 12, 9)
    torch.testing.assert_close(noise, noise[:, :, :1].expand_as(noise))
    moments = x.detach().reshape(-1, 12, 9).double().square().mean((0, 2))
    counts = noise[:, :, 0].double() * 6 * sampling_probabilities(moments)
    torch.testing.assert_close(counts, counts.round(), atol=1e-4, rtol=0)
    torch.testing.assert_close(counts.sum(1), torch.full_like(counts[:, 0], 6.0), atol=1e-4, rtol=0)
    torch.testing.assert_close(x.grad.reshape(-1, 12, 9), noise)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_sequence_has_one_mask_for_all_its_positions(backend, function):
    x = torch.rand(30, 7, 20) + 0.5
    noise = function(x, shared_dims=1) / x
    torch.testing.assert_close(noise, noise[:, :1].expand_as(noise))
    assert (noise[:, 0].std(0) > 0).all()  # each example has a mask of its own
    batchwise = function(x, unit_dims=-1, shared_dims=(0, 1)) / x
    torch.testing.assert_close(batchwise, batchwise[:1, :1].expand_as(x))


def test_shared_dimensions_that_leave_no_units_are_named():
    for options in ({"shared_dims": (1, 2)}, {"shared_dims": 1, "unit_dims": (1, 2)}):
        with pytest.raises(
            ValueError, match=r"shared_dims is .*shape \(2, 3, 4\) needs at least one dimension of units"
        ):
            F.evolutional_dropout(torch.ones(2, 3, 4), **options)
    with pytest.raises(ValueError, match=r"shared_dims is 3, but the input has shape \(2, 3, 4\)"):
        F.evolutional_dropout(torch.ones(2, 3, 4), shared_dims=3)
    with pytest.raises(TypeError, match=r"shared_dims is 'time', but it takes an integer"):
        F.evolutional_dropout(torch.ones(2, 3, 4), shared_dims="time")


@pytest.mark.parametrize("function", [*FUNCTIONS, whole_channels])
def test_eval_is_the_very_same_tensor(backend, function):
    x = torch.randn(2, 3, 4, 5)
    assert function(x, training=False) is x


@pytest.mark.parametrize("match", ["draws", "distinct", "noise"])
def test_rate_0_is_the_identity_and_rate_1_gives_zeros(backend, match):
    x = torch.randn(5, 6, 4, requires_grad=True)
    drawing = (*FOLLOWING, F.multinomial_dropout, whole_channels)
    for call in (*(partial(function, match=match) for function in drawing), F.bernoulli_dropout):
        assert call(x, 0.0) is x
        y = call(x, 1.0)
        assert not y.any()
        (gradient,) = torch.autograd.grad(y.sum(), x)
        assert not gradient.any()
    assert not F.evolutional_dropout(torch.full((2, 3), torch.nan), 1.0).any()


def test_what_is_given_explicitly_is_used_at_any_rate(backend):
    x = torch.ones(50, 6)
    for p in (0.0, 1.0):
        y = F.evolutional_dropout(x, p, k=6)
        torch.testing.assert_close(y.sum(1), torch.full((50,), 6.0))  # six draws, each worth 1
        assert 0 < (y == 0).float().mean() < 1
        assert (F.bernoulli_dropout(x, p, keep=torch.full((6,), 0.5)) == 0).any()


@pytest.mark.parametrize("name", [name for name in F.__all__ if name != "bernoulli_dropout"])
def test_every_option_is_in_the_signature(name):
    parameters = inspect.signature(getattr(F, name)).parameters
    assert {"p", "training", "k", "match", "uniform_mix", "generator"} <= set(parameters)
    assert not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_output_has_the_dtype_of_the_input(backend, function, dtype):
    x = (torch.rand(500, 64, dtype=torch.float64) + 0.5).to(dtype).requires_grad_()
    y = function(x)
    y.sum().backward()
    assert y.dtype == x.grad.dtype == dtype
    kept = (y / x).detach().double()[y != 0]
    assert 1.0 < float(kept.mean()) < 4.0
    # a sum over 32 000 units, each with noise of variance about 2 at most
    assert float(y.detach().double().mean() / x.detach().double().mean()) == pytest.approx(
        1, abs=5 * (2 / 32_000) ** 0.5
    )


def test_all_dtypes_see_the_same_draws(backend):
    x = torch.randint(1, 5, (20, 64)).double()  # exact in every dtype
    outputs = []
    for dtype in DTYPES:
        torch.manual_seed(1)
        outputs.append(F.evolutional_dropout(x.to(dtype)).double())
    for output in outputs[1:]:
        torch.testing.assert_close(output, outputs[0], rtol=1e-2, atol=0)


def strided(x):
    return torch.stack([x, x], dim=-1)[..., 0]


@pytest.mark.parametrize(
    "layout",
    [
        lambda x: x.to(memory_format=torch.channels_last),
        lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
        lambda x: x.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0),
        strided,
    ],
)
def test_layout_changes_neither_the_noise_nor_the_memory_format(backend, layout):
    x = torch.rand(8, 3, 4, 5)
    upstream = torch.rand(8, 3, 4, 5)
    results = []
    for version in (x.clone(), layout(x.clone())):
        version.requires_grad_()
        torch.manual_seed(2)
        y = F.evolutional_dropout(version)
        y.backward(upstream)
        assert y.stride() == torch.nn.functional.dropout(version.detach()).stride()
        results.append((y.detach(), version.grad))
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=0)


@pytest.mark.parametrize("function", [*FUNCTIONS, whole_channels])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_the_next_layer_may_work_in_place(backend, function, memory_format):
    x = torch.randn(8, 3, 4, 5).to(memory_format=memory_format).requires_grad_()
    torch.nn.functional.relu(function(x), inplace=True).sum().backward()
    assert (x.grad[x.detach() < 0] == 0).all()
    assert x.grad.any()


def test_negated_views_work(backend):
    x = torch.rand(5, 6)
    torch.manual_seed(1)
    y = F.evolutional_dropout(torch._neg_view(x))
    torch.manual_seed(1)
    torch.testing.assert_close(y, -F.evolutional_dropout(x))


def test_counts_of_numpy_are_as_good_as_others(threads):
    threads(2)
    for k in (np.uint8(200), np.int64(200)):
        torch.manual_seed(1)
        y = F.evolutional_dropout(torch.ones(600, 600), k=k)
        torch.manual_seed(1)
        torch.testing.assert_close(y, F.evolutional_dropout(torch.ones(600, 600), k=200))


def test_eval_takes_any_tensor():
    x = torch.arange(3)
    assert F.evolutional_dropout(x, training=False) is x


def test_expanded_inputs_work(backend):
    y = F.evolutional_dropout(torch.rand(1, 20).expand(50, 20))
    assert len({tuple(row) for row in y.tolist()}) > 40


def test_the_gradient_is_the_upstream_times_the_noise(backend):
    for function in FUNCTIONS:
        x = torch.rand(32, 48, requires_grad=True)
        upstream = torch.randn(32, 48)
        y = function(x)
        y.backward(upstream)
        torch.testing.assert_close(x.grad, upstream * (y / x).detach())


def test_gradcheck_with_the_noise_frozen(backend):
    def frozen(x):
        torch.manual_seed(5)
        return F.multinomial_dropout(x, probs=torch.arange(1.0, 7.0))

    x = torch.rand(4, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(frozen, x, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(frozen, x)


def test_no_gradient_flows_through_probs(backend):
    x = torch.rand(4, 6, requires_grad=True)
    probs = torch.rand(6, requires_grad=True)
    F.multinomial_dropout(x, probs=probs).sum().backward()
    assert probs.grad is None


def test_probs_are_divided_by_their_sum(backend):
    x = torch.rand(50, 3)
    outputs = []
    for factor in (1.0, 1e-30, 3e37):
        torch.manual_seed(1)
        outputs.append(F.multinomial_dropout(x, probs=torch.tensor([1.0, 2.0, 3.0]) * factor))
    torch.testing.assert_close(outputs[1:], [outputs[0]] * 2)


def test_a_generator_replaces_the_global_one(backend):
    x = torch.rand(20, 30)
    state = torch.get_rng_state()
    first, second = (F.evolutional_dropout(x, generator=torch.Generator().manual_seed(7)) for _ in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(F.evolutional_dropout(x, generator=torch.Generator().manual_seed(8)), first)


@pytest.mark.parametrize("p", [-0.1, 1.1, 2.0, float("nan"), None, "half", [0.5]])
@pytest.mark.parametrize("function", [*FUNCTIONS, whole_channels])
def test_bad_rates_are_named_in_training_and_in_eval(function, p):
    for training in (True, False):
        with pytest.raises(ValueError, match=r"dropout rate is .*\[0, 1\]"):
            function(torch.rand(2, 3, 4, 5), p, training=training)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "k is 0, but the number of draws is an integer from 1 to"),
        ({"k": 2.5}, "k is 2.5"),
        ({"k": True}, "k is True"),
        ({"k": 2**30 + 1}, "k is 1073741825"),
        ({"k": [3]}, r"k is \[3\]"),
        ({"match": "units"}, "match is 'units', but it is one of 'draws', 'distinct', 'noise'"),
        ({"k": 3, "match": "noise"}, "a match chooses k"),
        ({"uniform_mix": 1.5}, r"uniform_mix is 1.5, .* \[0, 1\]"),
        ({"uniform_mix": float("nan")}, "uniform_mix is nan"),
        ({"uniform_mix": "a"}, "uniform_mix is 'a', but it takes a number"),
        ({"unit_dims": 2}, r"unit_dims is 2, but the input has shape \(4, 3\)"),
        ({"unit_dims": (1, -1)}, r"unit_dims is \(1, -1\)"),
        ({"unit_dims": ()}, r"unit_dims is \(\)"),
    ],
)
def test_bad_options_are_named(options, message):
    for function in (F.evolutional_dropout, F.multinomial_dropout):
        with pytest.raises(ValueError, match=message):
            function(torch.rand(4, 3), **options)


@pytest.mark.parametrize(
    ("probs", "message"),
    [
        ([1.0, 1.0], r"probs has shape \(2,\) .* needs shape \(3,\)"),
        ([[1.0, 1.0, 1.0]], r"probs has shape \(1, 3\)"),
        ([1.0, -1.0, 1.0], r"probs\[1\] is -1.0"),
        ([1.0, float("nan"), 1.0], r"probs\[1\] is nan"),
        ([0.0, 0.0, 0.0], "probs are all zero"),
    ],
)
def test_bad_probs_are_named(backend, probs, message):
    with pytest.raises(ValueError, match=message):
        F.multinomial_dropout(torch.rand(4, 3), probs=torch.tensor(probs))


def test_bad_keep_is_named(backend):
    with pytest.raises(ValueError, match=r"keep has a value of 1.5, .* \[0, 1\]"):
        F.bernoulli_dropout(torch.rand(4, 3), keep=torch.tensor([1.0, 1.5, 0.0]))


@pytest.mark.parametrize("x", [torch.ones(3, 4, dtype=torch.long), torch.ones(3, 4, dtype=torch.complex64)])
def test_bad_dtypes_are_named(x):
    with pytest.raises(TypeError, match=r"dropout of a tensor of torch\."):
        F.evolutional_dropout(x)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: F.evolutional_dropout(x.numpy()), "dropout of a ndarray, but it takes a tensor"),
        (lambda x: F.evolutional_dropout(x.to_sparse()), "layout torch.sparse_coo, but it takes a dense one"),
        (lambda x: F.multinomial_dropout(x, probs=[0.5, 0.5]), "probs is a list, but it takes a tensor"),
        (lambda x: F.bernoulli_dropout(x, 0.5, False), "keep is a bool, but it takes a tensor"),
        (lambda x: F.evolutional_dropout(x, unit_dims=1.5), "unit_dims is 1.5, but it takes an integer"),
        (lambda x: F.evolutional_dropout(x, unit_dims="a"), "unit_dims is 'a', but it takes an integer"),
    ],
)
def test_bad_types_are_named(call, message):
    with pytest.raises(TypeError, match=message):
        call(torch.rand(3, 2))


def test_a_huge_scale_of_a_unit_that_is_never_drawn_makes_no_nan(backend):
    probs = torch.tensor([1.0, 1e-300], dtype=torch.float64)
    y = F.multinomial_dropout(torch.ones(10, 2), probs=probs, k=4)
    np.testing.assert_array_equal(y, [[1.0, 0.0]] * 10)
