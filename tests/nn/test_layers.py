from __future__ import annotations

import copy
import inspect
import pickle
from functools import partial

import numpy as np
import pytest
import torch
from helpers.five_errors import assert_moments
from scipy.sparse import csr_array, csr_matrix
from torch import nn
from torch.nn.modules.dropout import _DropoutNd
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from evodrop.definitions import sampling_probabilities, second_moments
from evodrop.nn import (
    BernoulliDropout,
    DataDependentDropout,
    EvolutionalDropout,
    EvolutionalDropout1d,
    EvolutionalDropout2d,
    EvolutionalDropout3d,
    MultinomialDropout,
    WaterFillingDropout,
    layers,
)
from evodrop.nn import functional as F
from evodrop.noise import make_noise

PROBS = torch.tensor([0.1, 0.2, 0.3, 0.4])
OPTIONS = {"match": "noise", "uniform_mix": 0.1}
channels = partial(F.evolutional_dropout, unit_dims=-2, shared_dims=-1)
TABLE = [  # a module, and the function with the arguments that it stands for
    (BernoulliDropout(0.3), lambda x: F.bernoulli_dropout(x, 0.3)),
    (BernoulliDropout(keep=PROBS), lambda x: F.bernoulli_dropout(x, keep=PROBS)),
    (BernoulliDropout(0.3, unit_dims=0), lambda x: F.bernoulli_dropout(x, 0.3, unit_dims=0)),
    (MultinomialDropout(0.3), lambda x: F.multinomial_dropout(x, 0.3)),
    (MultinomialDropout(0.3, PROBS), lambda x: F.multinomial_dropout(x, 0.3, PROBS)),
    (MultinomialDropout(0.3, PROBS, **OPTIONS), lambda x: F.multinomial_dropout(x, 0.3, PROBS, **OPTIONS)),
    (DataDependentDropout(0.3, PROBS, k=5), lambda x: F.multinomial_dropout(x, 0.3, PROBS, k=5)),
    (EvolutionalDropout(0.3), lambda x: F.evolutional_dropout(x, 0.3)),
    (EvolutionalDropout(0.3, **OPTIONS), lambda x: F.evolutional_dropout(x, 0.3, **OPTIONS)),
    (EvolutionalDropout(0.3, unit_dims=0), lambda x: F.evolutional_dropout(x, 0.3, unit_dims=0)),
    (EvolutionalDropout1d(0.3, **OPTIONS), lambda x: channels(x, 0.3, **OPTIONS)),
    (EvolutionalDropout(0.3, unit_dims=1, shared_dims=0), lambda x: F.evolutional_dropout(x, 0.3, shared_dims=0)),
    (BernoulliDropout(0.3, shared_dims=0), lambda x: F.bernoulli_dropout(x, 0.3, shared_dims=0)),
    (MultinomialDropout(0.3, shared_dims=0), lambda x: F.multinomial_dropout(x, 0.3, shared_dims=0)),
    (WaterFillingDropout(0.3, k=2), lambda x: F.water_filling_dropout(x, 0.3, k=2)),
]
each = pytest.mark.parametrize(("module", "function"), TABLE, ids=[str(module) for module, _ in TABLE])


def seeded(function, x):
    torch.manual_seed(9)
    return function(x)


@each
def test_a_module_is_its_function(module, function):
    x = torch.rand(6, 4)
    torch.testing.assert_close(seeded(module, x), seeded(function, x), rtol=0, atol=0)
    frozen = copy.deepcopy(module).eval()
    assert frozen(x) is x


@each
def test_copies_and_pickles_behave_alike(module, function):
    x = torch.rand(6, 4)
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        torch.testing.assert_close(seeded(twin, x), seeded(module, x), rtol=0, atol=0)


@each
def test_mc_dropout_wrappers_find_it(module, function):
    assert isinstance(module, _DropoutNd)
    model = nn.Sequential(nn.Linear(4, 4), copy.deepcopy(module)).eval()
    for layer in model.modules():
        if isinstance(layer, _DropoutNd):
            layer.train()
    x = torch.rand(6, 4)
    first = model(x)
    assert any((model(x) != first).any() for _ in range(20))  # a shared mask may well repeat


def test_print_shows_the_rate_and_what_is_not_usual():
    assert str(EvolutionalDropout(0.2)) == "EvolutionalDropout(p=0.2)"
    changed = EvolutionalDropout(0.2, match="noise", uniform_mix=0.1, unit_dims=-1, sync=True, momentum=0.1)
    options = "match='noise', uniform_mix=0.1, unit_dims=-1, sync=True, momentum=0.1"
    assert str(changed) == f"EvolutionalDropout(p=0.2, {options})"
    assert str(EvolutionalDropout2d(0.2)) == "EvolutionalDropout2d(p=0.2)"
    assert str(EvolutionalDropout(0.2, shared_dims=1)) == "EvolutionalDropout(p=0.2, shared_dims=1)"
    assert str(MultinomialDropout(k=7)) == "MultinomialDropout(p=0.5, k=7)"
    assert str(BernoulliDropout(0.1)) == "BernoulliDropout(p=0.1)"
    assert str(BernoulliDropout(keep=PROBS)) == "BernoulliDropout(p=0.5, keep of 4 units)"


@pytest.mark.parametrize("make", [getattr(layers, name) for name in layers.__all__ if name != "BernoulliDropout"])
def test_every_option_is_in_the_signature(make):
    parameters = inspect.signature(make).parameters
    assert {"p", "k", "match", "uniform_mix"} <= set(parameters)
    assert not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())


@each
def test_rate_0_is_the_identity_and_rate_1_gives_zeros(module, function):
    x = torch.rand(6, 4)
    layer = copy.deepcopy(module)
    if getattr(layer, "k", None) is None and getattr(layer, "keep", None) is None:  # else the rate has no part
        layer.p = 0.0
        assert layer(x) is x
        layer.p = 1.0
        assert not layer(x).any()


MOMENTS = np.array([9.0, 1.0, 4.0, 0.0])


@pytest.mark.parametrize(
    ("layer", "weights", "independent"),
    [
        (EvolutionalDropout(0.3, match="noise"), np.sqrt(MOMENTS), False),
        (WaterFillingDropout(0.3, match="noise"), np.sqrt(MOMENTS), True),
        (MultinomialDropout(0.3, match="noise"), None, False),
        (MultinomialDropout(0.3, PROBS.double(), match="noise"), PROBS.double().numpy(), False),
    ],
)
def test_a_layer_gives_its_noise_for_second_moments(layer, weights, independent):
    expected = make_noise(weights, MOMENTS, 0.3, match="noise", independent=independent)
    for moments in (MOMENTS, torch.from_numpy(MOMENTS)):
        noise = layer.noise_for(moments)
        np.testing.assert_allclose(noise.chances, expected.chances, rtol=1e-12)
        assert noise.k == expected.k
    assert BernoulliDropout(0.25).noise_for(MOMENTS).chances.tolist() == [0.75] * 4
    np.testing.assert_allclose(BernoulliDropout(keep=PROBS).noise_for(MOMENTS).chances, PROBS)


def test_state_dicts_hold_the_probabilities():
    assert list(EvolutionalDropout().state_dict()) == []
    assert list(BernoulliDropout(keep=PROBS).state_dict()) == ["keep"]
    saved = nn.Sequential(DataDependentDropout(probs=PROBS)).state_dict()
    assert list(saved) == ["0.probs"]
    bare, placed = nn.Sequential(DataDependentDropout()), nn.Sequential(DataDependentDropout(probs=torch.ones(4)))
    for model in (bare, placed):
        model.load_state_dict(saved)
        torch.testing.assert_close(model[0].probs, PROBS)


@pytest.mark.parametrize(("make", "name"), [(MultinomialDropout, "probs"), (BernoulliDropout, "keep")])
def test_a_layer_without_probabilities_takes_those_of_a_state_dict(make, name):
    bare = make(0.5)
    bare.load_state_dict(make(0.5, PROBS).state_dict())
    torch.testing.assert_close(getattr(bare, name), PROBS)


def test_probabilities_do_not_vanish_in_half_precision():
    layer = MultinomialDropout(0.5, probs=torch.tensor([1.0, 1.0, 1e-9])).half()
    assert layer.probs.dtype == torch.float32
    assert layer.probs[2] > 0
    assert layer.double().probs.dtype == torch.float64


def test_a_layer_can_be_made_before_its_values():
    with torch.device("meta"):
        assert MultinomialDropout(0.5, probs=torch.ones(4)).probs.is_meta
    with torch._subclasses.FakeTensorMode():
        assert BernoulliDropout(keep=torch.ones(4)).keep.shape == (4,)


def test_data_dependent_dropout_without_probabilities_says_so():
    with pytest.raises(RuntimeError, match="no probs yet; build it with from_data"):
        DataDependentDropout()(torch.ones(2, 3))
    x = torch.ones(2, 3)
    assert DataDependentDropout().eval()(x) is x


@pytest.mark.parametrize("make", [EvolutionalDropout, MultinomialDropout, BernoulliDropout, DataDependentDropout])
@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan"), "0.5"])
def test_bad_rates_are_named_when_the_module_is_made(make, p):
    with pytest.raises(ValueError, match="dropout rate is"):
        make(p)


def test_bad_options_are_named_when_the_module_is_made():
    with pytest.raises(ValueError, match="match is 'gauss'"):
        EvolutionalDropout(match="gauss")
    with pytest.raises(TypeError, match="unexpected keyword argument 'scheme'"):
        EvolutionalDropout(scheme="bernoulli")
    with pytest.raises(ValueError, match=r"probs\[0\] is -1.0"):
        MultinomialDropout(probs=[-1.0, 2.0])
    with pytest.raises(ValueError, match=r"keep has a value of 2\.0"):
        BernoulliDropout(keep=np.array([0.5, 2.0]))
    with pytest.raises(ValueError, match=r"shared_dims is \(-2, -1\) and unit_dims -1"):
        EvolutionalDropout2d(unit_dims=-1)(torch.ones(2, 3, 4, 4))


@pytest.mark.parametrize("make", [EvolutionalDropout, WaterFillingDropout, MultinomialDropout])
def test_a_sequence_without_unit_dims_warns_once_a_layer(make):
    x, layer = torch.ones(2, 3, 4), make(0.5)
    with pytest.warns(
        UserWarning, match=r"shape \(2, 3, 4\).*12 units.*unit_dims=-1 makes.*4 units.*unit_dims=\(1, 2\)"
    ):
        layer(x)
    layer(x)  # a warning is an error in these tests
    for quiet in (make(0.5).eval(), make(0.5, unit_dims=-1), make(0.5, unit_dims=(1, 2)), make(0.5, shared_dims=1)):
        quiet(x)
    EvolutionalDropout1d(0.5)(x)
    BernoulliDropout(0.5)(x)  # its noise is the same either way
    EvolutionalDropout(0.5)(torch.ones(2, 3, 4, 4))


@pytest.mark.parametrize(
    ("make", "shape"),
    [(EvolutionalDropout1d, (9,)), (EvolutionalDropout2d, (3, 3)), (EvolutionalDropout3d, (3, 1, 3))],
)
def test_layers_of_channels_are_shared_dimensions(make, shape):
    x = torch.rand(6, 5, *shape)
    noise = seeded(make(0.5), x) / x
    torch.testing.assert_close(noise, noise.flatten(2)[..., :1].reshape(6, 5, *[1] * len(shape)).expand_as(x))
    assert (noise.flatten(2)[..., 0].std(0) > 0).all()
    same = EvolutionalDropout(0.5, unit_dims=1, shared_dims=tuple(range(2, x.ndim)))
    torch.testing.assert_close(seeded(same, x), seeded(make(0.5), x), rtol=0, atol=0)


def test_data_dependent_dropout_counts_shared_positions_as_examples():
    X = torch.rand(50, 7, 4)
    layer = DataDependentDropout.from_data(X, 0.5, shared_dims=1)
    expected = sampling_probabilities(X.double().square().mean((0, 1)))
    torch.testing.assert_close(layer.probs, expected.float())


def test_a_rate_that_is_set_later_is_used_and_checked():
    layer = EvolutionalDropout(0.5)
    layer.p = 0.9
    assert (layer(torch.rand(100, 50)) == 0).float().mean() > 0.8
    layer.p = 1.5
    with pytest.raises(ValueError, match=r"dropout rate is 1\.5"):
        layer(torch.ones(2, 3))


X = np.random.default_rng(0).normal(size=(200, 12)).astype(np.float32) * np.arange(12, dtype=np.float32)
EXPECTED = sampling_probabilities(second_moments(X))


@pytest.mark.parametrize(
    "data",
    [
        X,
        torch.from_numpy(X),
        csr_array(X),
        csr_matrix(X),
        DataLoader(torch.from_numpy(X), batch_size=64),
        DataLoader(TensorDataset(torch.from_numpy(X), torch.zeros(200)), batch_size=7),
        DataLoader(torch.from_numpy(X), batch_size=2),
        (torch.from_numpy(part) for part in np.array_split(X, 5)),
        [X[:50], X[50:]],
        np.broadcast_to(X, X.shape)[::-1].astype(">f4"),
    ],
    ids=[
        "array",
        "tensor",
        "csr_array",
        "csr_matrix",
        "loader",
        "loader of pairs",
        "long loader",
        "generator",
        "list",
        "awkward array",
    ],
)
def test_from_data_takes_data_in_every_form(data):
    layer = DataDependentDropout.from_data(data, 0.25, uniform_mix=0.1)
    assert layer.p == 0.25
    assert layer.uniform_mix == 0.1
    np.testing.assert_allclose(layer.probs, EXPECTED, rtol=1e-5)
    assert layer(torch.rand(3, 12)).shape == (3, 12)


def test_from_data_follows_unit_dims():
    pictures = torch.randn(10, 3, 4, 5)
    assert DataDependentDropout.from_data(pictures).probs.shape == (60,)
    assert DataDependentDropout.from_data(pictures, unit_dims=1).probs.shape == (3,)
    assert DataDependentDropout.from_data(DataLoader(pictures), unit_dims=1).probs.shape == (3,)


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (7, TypeError, "data of type int; give an array"),
        ("data.csv", TypeError, "data of type str; give an array"),
        (torch.eye(3).to_sparse(), TypeError, "layout torch.sparse_coo; give a SciPy sparse array"),
        ([{"x": 1}], TypeError, "a batch of type dict; give tensors"),
        (iter([]), ValueError, "hold no examples"),
        (np.zeros((3, 2)), ValueError, "the data are all zero"),
        (np.full((3, 2), np.nan), ValueError, "unit 0 of the data has values that are not finite"),
        (np.empty((0, 2)), ValueError, "hold no examples"),
        ([np.ones((2, 3)), np.ones((2, 4))], ValueError, "has 4 units, not 3 as before"),
    ],
)
def test_bad_data_is_named(data, error, message):
    with pytest.raises(error, match=message):
        DataDependentDropout.from_data(data)


BATCHES = [torch.randn(size, 12) * torch.arange(1.0, 13.0) for size in (3, 1, 8)]


def followed(layer, batches=BATCHES):
    for batch in batches:
        layer(batch)
    return layer.running_moments


@pytest.mark.parametrize("momentum", [0.1, 0.5, 1.0])
def test_the_running_moment_weighs_examples_by_their_age(backend, momentum):
    weights = [(1 - momentum) ** age for age in (2, 1, 0)]
    squares = sum(weight * batch.double().square().sum(0) for weight, batch in zip(weights, BATCHES, strict=True))
    examples = sum(weight * len(batch) for weight, batch in zip(weights, BATCHES, strict=True))
    moments = followed(EvolutionalDropout(0.5, momentum=momentum))
    torch.testing.assert_close(moments, squares / examples, rtol=1e-12, atol=0)


@pytest.mark.parametrize("make", [EvolutionalDropout, WaterFillingDropout])
def test_momentum_remembers_and_follow_decides_what_the_noise_follows(backend, make):
    function = F.evolutional_dropout if make is EvolutionalDropout else F.water_filling_dropout
    remembering, following = make(0.5, momentum=0.5), make(0.5, momentum=0.5, follow="running")
    for layer in (remembering, following):
        followed(layer, BATCHES[:2])
        torch.manual_seed(3)
        y = layer(BATCHES[2])
        torch.manual_seed(3)
        expected = function(BATCHES[2], moments=layer.running_moments if layer is following else None)
        torch.testing.assert_close(y, expected, rtol=0, atol=0)
    torch.testing.assert_close(remembering.running_sums, following.running_sums, rtol=0, atol=0)
    torch.manual_seed(3)
    assert not torch.equal(function(BATCHES[2]), y)


def test_following_what_is_not_remembered_is_an_error():
    with pytest.raises(ValueError, match="follow is 'running', but momentum is None"):
        EvolutionalDropout(0.5, follow="running")
    with pytest.raises(ValueError, match="follow is 'last', but it is one of 'batch', 'running'"):
        EvolutionalDropout(0.5, momentum=0.1, follow="last")


@pytest.mark.parametrize(
    ("layer", "shape", "dims"),
    [(EvolutionalDropout1d(momentum=1.0), (3, 6, 4), (0, 2)), (EvolutionalDropout2d(momentum=1.0), (6, 4, 2), (1, 2))],
)
def test_channels_have_running_moments_too(backend, layer, shape, dims):
    x = torch.randn(shape)
    layer(x)
    torch.testing.assert_close(layer.running_moments, x.double().square().mean(dims))


def test_layers_without_momentum_have_no_state_and_reset_forgets_it():
    layer = EvolutionalDropout(0.5)
    layer(BATCHES[0])
    assert (layer.running_sums, layer.running_moments, layer.state_dict()) == (None, None, {})
    remembering = EvolutionalDropout(0.5, momentum=0.3)
    first = followed(remembering)
    remembering.reset_running_stats()
    assert remembering.running_sums is None
    torch.testing.assert_close(followed(remembering), first, rtol=0, atol=0)


def test_evaluation_moves_nothing():
    layer = EvolutionalDropout(0.5, momentum=0.3)
    before = followed(layer).clone()
    assert layer.eval()(BATCHES[0]) is BATCHES[0]
    torch.testing.assert_close(layer.running_moments, before, rtol=0, atol=0)


def test_the_update_is_out_of_place():
    layer = EvolutionalDropout(0.5, momentum=0.3)
    layer(BATCHES[0])
    held, before = layer.running_sums, layer.running_sums.clone()
    layer(BATCHES[1])
    assert torch.equal(held, before)
    assert not torch.equal(layer.running_sums, before)


def test_a_state_dict_carries_the_sums_into_a_new_layer_and_not_into_one_without_momentum():
    saved = nn.Sequential(EvolutionalDropout(0.5, momentum=0.3))
    followed(saved[0])
    new = nn.Sequential(EvolutionalDropout(0.5, momentum=0.3))
    new.load_state_dict(saved.state_dict())
    torch.testing.assert_close(new[0].running_sums, saved[0].running_sums, rtol=0, atol=0)
    with pytest.raises(RuntimeError, match=r"Unexpected key\(s\) in state_dict: \"0.running_sums\""):
        nn.Sequential(EvolutionalDropout(0.5)).load_state_dict(saved.state_dict())


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_sums_that_no_batch_has_are_not_loaded(bad):
    """They would stay for ever: every unit would pass, and nobody would know."""
    layer = EvolutionalDropout(0.5, momentum=0.3)
    with pytest.raises(RuntimeError, match=r"0.running_sums holds sums of squares that are negative or not finite"):
        nn.Sequential(layer).load_state_dict({"0.running_sums": torch.tensor([1.0, bad, 4.0])})
    assert layer.running_sums is None


def test_sums_stay_wide_in_half_precision():
    layer = EvolutionalDropout(0.5, momentum=0.3)
    moments = followed(layer)
    torch.testing.assert_close(layer.half().running_moments, moments, rtol=0, atol=0)
    assert layer(BATCHES[0].half()).dtype == torch.float16


def test_a_batch_that_is_not_finite_passes_where_it_is_not_and_is_not_remembered(backend):
    layer = EvolutionalDropout(0.5, momentum=0.3)
    before = followed(layer).clone()
    bad = BATCHES[2].clone()
    bad[0, 4] = float("nan")
    y = layer(bad)
    torch.testing.assert_close(y[:, 4], bad[:, 4], equal_nan=True)
    assert (y == 0).any()
    torch.testing.assert_close(layer.running_moments, before, rtol=0, atol=0)


def test_another_number_of_units_is_named():
    layer = EvolutionalDropout(0.5, momentum=0.3)
    layer(BATCHES[0])
    with pytest.raises(ValueError, match=r"has 7 units, but the running sums are of 12; call reset_running_stats"):
        layer(torch.ones(2, 7))


@pytest.mark.parametrize("momentum", [0, 0.0, -0.1, 1.5, float("nan"), True, "0.1"])
def test_bad_momentum_is_named(momentum):
    with pytest.raises(ValueError, match=r"momentum is .*, but it takes a number in \(0, 1\]"):
        EvolutionalDropout(0.5, momentum=momentum)


def network(follow="batch"):
    layer = EvolutionalDropout(0.5, momentum=0.2, follow=follow)
    return nn.Sequential(nn.Linear(12, 16), nn.ReLU(), layer, nn.Linear(16, 3))


def gradients_and_sums(model, forward):
    """All batches go forward before the first goes backward, the last two through the same layer."""
    model = copy.deepcopy(model)
    torch.manual_seed(4)
    outputs = [forward(model, batch.clone().requires_grad_()) for batch in BATCHES]
    for output in outputs:
        output.square().sum().backward()
    return [*(weights.grad for weights in model.parameters()), model[2].running_sums]


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoints_have_the_same_noise_and_count_once(backend, use_reentrant):
    model = network()
    plain = gradients_and_sums(model, lambda model, x: model(x))
    saved = gradients_and_sums(model, lambda model, x: checkpoint(model, x, use_reentrant=use_reentrant))
    torch.testing.assert_close(saved, plain, rtol=0, atol=0)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_a_running_moment_that_the_noise_follows_raises_inside_a_checkpoint(use_reentrant):
    with pytest.raises(RuntimeError, match="follow='running', whose running moments have changed meanwhile; use"):
        gradients_and_sums(network("running"), lambda model, x: checkpoint(model, x, use_reentrant=use_reentrant))


def checkpointed(model, x):
    return checkpoint(model, x, use_reentrant=False)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # torch's own, at a break
@pytest.mark.parametrize(
    "forward",
    [
        lambda model, x: torch.compile(model, backend="aot_eager", fullgraph=True)(x),
        lambda model, x: checkpointed(torch.compile(model, backend="aot_eager", fullgraph=True), x),
        torch.compile(checkpointed, backend="aot_eager"),
    ],
    ids=["compiled", "compiled in a checkpoint", "a checkpoint compiled"],
)
def test_compiled_layers_count_once_too(forward):
    torch.compiler.reset()
    model = network()
    plain = gradients_and_sums(model, lambda model, x: model(x))
    torch.testing.assert_close(gradients_and_sums(model, forward), plain)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_compiled_layers_that_follow_raise_inside_a_checkpoint_too():
    torch.compiler.reset()
    compiled = torch.compile(network("running"), backend="aot_eager", fullgraph=True)
    output = checkpointed(compiled, BATCHES[0].clone().requires_grad_())
    with pytest.raises(RuntimeError, match="follow='running'"):
        output.sum().backward()


def test_given_moments_give_the_law(backend):
    """Whatever the input: k = 6 draws with p_i ~ sqrt(moments_i), so mean 1 and variance (1 - p_i) / (k p_i)."""
    moments = torch.rand(12, dtype=torch.float64)
    probs = moments.sqrt() / moments.sqrt().sum()
    noise = F.evolutional_dropout(torch.ones(20_000, 12, dtype=torch.float64), moments=moments)
    assert_moments(noise, 1.0, (1 - probs) / (6 * probs))
