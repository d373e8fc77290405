from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array, csr_matrix
from torch import nn
from torch.nn.modules.dropout import _DropoutNd
from torch.utils.data import DataLoader, TensorDataset

from evodrop.definitions import sampling_probabilities, second_moments
from evodrop.nn import (
    BernoulliDropout,
    DataDependentDropout,
    EvolutionalDropout,
    EvolutionalDropout1d,
    EvolutionalDropout2d,
    MultinomialDropout,
)
from evodrop.nn import (
    functional as F,
)

PROBS = torch.tensor([0.1, 0.2, 0.3, 0.4])
OPTIONS = {"scheme": "bernoulli", "match": "noise", "uniform_mix": 0.1}
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
    (EvolutionalDropout1d(0.3, **OPTIONS), lambda x: F.evolutional_dropout1d(x, 0.3, **OPTIONS)),
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
    assert (model(x) != model(x)).any()


def test_print_shows_rate_and_scheme():
    assert str(EvolutionalDropout(0.2)) == "EvolutionalDropout(p=0.2, scheme='multinomial')"
    changed = EvolutionalDropout(0.2, scheme="bernoulli", match="noise", uniform_mix=0.1, unit_dims=-1)
    assert str(changed) == (
        "EvolutionalDropout(p=0.2, scheme='bernoulli', match='noise', uniform_mix=0.1, unit_dims=-1)"
    )
    assert str(MultinomialDropout(k=7)) == "MultinomialDropout(p=0.5, scheme='multinomial', k=7)"
    assert str(BernoulliDropout(0.1)) == "BernoulliDropout(p=0.1, scheme='bernoulli')"


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
@pytest.mark.parametrize("p", [-0.1, 1.0, float("nan"), "0.5"])
def test_bad_rates_are_named_when_the_module_is_made(make, p):
    with pytest.raises(ValueError, match="dropout rate is"):
        make(p)


def test_bad_options_are_named_when_the_module_is_made():
    with pytest.raises(ValueError, match="scheme is 'gauss'"):
        EvolutionalDropout(scheme="gauss")
    with pytest.raises(ValueError, match=r"probs\[0\] is -1.0"):
        MultinomialDropout(probs=[-1.0, 2.0])
    with pytest.raises(ValueError, match=r"keep has a value of 2\.0"):
        BernoulliDropout(keep=np.array([0.5, 2.0]))
    with pytest.raises(TypeError, match="takes no unit_dims"):
        EvolutionalDropout2d(unit_dims=1)


def test_a_rate_that_is_set_later_is_used_and_checked():
    layer = EvolutionalDropout(0.5)
    layer.p = 0.9
    assert (layer(torch.rand(100, 50)) == 0).float().mean() > 0.8
    layer.p = 1.0
    with pytest.raises(ValueError, match=r"dropout rate is 1\.0"):
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
        DataLoader(torch.from_numpy(X), batch_size=2),  # 100 batches: with a progress bar
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
