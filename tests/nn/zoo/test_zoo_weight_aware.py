from __future__ import annotations

import copy
import io

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from evodrop.definitions import n_draws
from evodrop.nn import EvolutionalDropout, convert_dropout
from evodrop.nn.zoo import Place, WeightAwareDropout
from evodrop.nn.zoo.weight_aware import weight_aware_probabilities

X = torch.randn(64, 6, generator=torch.Generator().manual_seed(1)) * torch.arange(1.0, 7.0)


def network(**options):
    torch.manual_seed(5)
    head = nn.Linear(6, 3)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), WeightAwareDropout(0.5, head, **options), head)


def seeded(function, x):
    torch.manual_seed(9)
    return function(x)


def probabilities(x, weight, share):
    s, w = x.double().square().mean(0).sqrt(), weight.detach().double().norm(dim=0)
    return share * w * s / (w * s).sum() + (1 - share) * s / s.sum()


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_the_probabilities_are_those_of_the_formula(share):
    weight = torch.randn(3, 6)
    found = weight_aware_probabilities(X, weight.square().sum(0), (1,), share)
    torch.testing.assert_close(found.double(), probabilities(X, weight, share), rtol=1e-5, atol=1e-7)


def test_the_probabilities_are_least_for_the_tight_bound():
    """sum w_i^2 E x_i^2 / p_i, for a next layer of one unit, is never less at other probabilities."""
    weight = torch.randn(1, 6)
    bound = lambda p: (weight[0].square() * X.square().mean(0) / p).sum()  # noqa: E731
    best = weight_aware_probabilities(X, weight.square().sum(0), (1,), 1.0)
    others = torch.distributions.Dirichlet(torch.ones(6)).sample((200,))
    assert all(bound(best) <= bound(other) for other in others)
    assert bound(best) < bound(probabilities(X, weight, 0.0)) - 1e-3


def test_mean_and_variance_are_those_of_the_docstring(backend):
    layer, size = network()[2], 40_000
    batch = X.expand(size // 64, 64, 6).reshape(-1, 6)
    ratio = torch.where(batch == 0, 0.0, seeded(layer, batch).double() / batch.double())
    k, p = n_draws(6, 0.5), probabilities(X, layer._path[0].weight, 0.5)
    variance = (1 - p) / (k * p)
    deviations = (ratio - 1) ** 2
    rows = len(batch)
    assert ((ratio.mean(0) - 1).abs() <= 5 * (variance / rows).sqrt()).all()
    assert ((deviations.mean(0) - variance).abs() <= 5 * deviations.std(0) / rows**0.5).all()


def test_every_draw_is_a_multinomial_count():
    layer = network()[2]
    p = probabilities(X, layer._path[0].weight, 0.5)
    counts = layer(X).double() / X.double() * n_draws(6, 0.5) * p
    torch.testing.assert_close(counts, counts.round(), rtol=0, atol=1e-4)
    torch.testing.assert_close(counts.sum(1), torch.full((64,), 3.0, dtype=torch.float64))


def test_without_a_share_it_is_evolutional_dropout():
    layer = network(weight_share=0.0)[2]
    torch.testing.assert_close(seeded(layer, X), seeded(EvolutionalDropout(0.5), X))


def test_gradcheck_with_the_noise_frozen():
    model = network().double()
    x = torch.rand(3, 6, dtype=torch.float64, requires_grad=True)
    noise = (seeded(model[2], x) / x).detach()
    grad = torch.autograd.grad(seeded(model[2], x).sum(), x)[0]
    torch.testing.assert_close(grad, noise)  # a constant: none goes through the probabilities
    # Scaling the whole batch leaves the probabilities as they are.
    scale = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda scale: seeded(model[2], x.detach() * scale), (scale,))


def test_the_next_layer_is_not_owned():
    model = network()
    assert list(model[2].state_dict()) == []
    assert list(model[2].parameters()) == []
    assert len(list(model.parameters())) == 4
    twin = copy.deepcopy(model)
    assert twin[2]._path[0] is twin[3]
    assert twin[2]._path[0] is not model[3]
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert loaded[2]._path[0] is loaded[3]
    twin.load_state_dict(model.state_dict())
    torch.testing.assert_close(seeded(twin, X[:, :4]), seeded(model, X[:, :4]))


def test_a_next_layer_that_is_converted_is_followed():
    model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5), nn.Linear(3, 3), nn.Dropout(0.5), nn.Linear(3, 2))
    convert_dropout(model, "weight-aware", only=lambda name, _: name == "1", weight_share=1.0)
    convert_dropout(model, "dropconnect")
    assert model[1]._path == (model[2],)
    state = model.state_dict()
    state["2.weight"] = torch.tensor([1.0, 0.0, 0.0]).expand(3, 3).clone()
    model.load_state_dict(state, assign=True)
    assert (model[1](torch.ones(4, 3)) == torch.tensor([1.0, 0.0, 0.0])).all()


def test_weights_that_change_are_seen():
    model = network(weight_share=1.0)
    with torch.no_grad():
        model[3].weight[:, 1:] = 0
    out = model[2](X)
    assert (out[:, 1:] == 0).all()  # the documented bias: a unit without outgoing weights is never drawn
    torch.testing.assert_close(out[:, 0], X[:, 0])
    model.double()
    assert model[2](X.double()).dtype == torch.float64


def test_a_network_of_convolutions_trains():
    torch.manual_seed(0)
    pool, flat, head = nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 2)
    conv = nn.Conv2d(3, 4, 3)
    layers = [WeightAwareDropout(0.5, conv), conv, nn.ReLU(), WeightAwareDropout(0.5, [pool, flat, head]), pool, flat]
    model = nn.Sequential(*layers, head)
    model(torch.randn(5, 3, 6, 6)).sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())


def test_sequences():
    layer = WeightAwareDropout(0.5, nn.Linear(6, 2), unit_dims=-1)
    assert layer(torch.randn(2, 5, 6)).shape == (2, 5, 6)
    assert WeightAwareDropout(0.5, nn.Linear(6, 2))(torch.randn(6)).shape == (6,)


def test_checkpointing_makes_the_noise_again():
    model, x = network(), torch.randn(8, 4, requires_grad=True)
    plain = torch.autograd.grad(seeded(model, x).square().sum(), x)[0]
    again = torch.autograd.grad(seeded(lambda x: checkpoint(model, x, use_reentrant=False), x).square().sum(), x)[0]
    torch.testing.assert_close(again, plain)


def test_it_compiles_and_learns():
    model, x = network(), torch.randn(8, 4)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(seeded(compiled, x), seeded(model, x))
    seeded(compiled, x).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    with torch.no_grad():
        model[3].weight.mul_(torch.arange(1.0, 7.0))  # new weights without a new compilation
    torch.testing.assert_close(seeded(compiled, x), seeded(model, x))


def test_autocast_and_half_precision():
    model = network()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model(torch.randn(8, 4)).dtype == torch.bfloat16
    assert network().bfloat16()[2](X.bfloat16()).dtype == torch.bfloat16


def test_eval_small_batches_and_zeros():
    layer = network()[2]
    empty, zero = torch.ones(0, 6), torch.zeros(4, 6)
    assert layer(empty) is empty
    assert layer(X[:1]).shape == (1, 6)
    torch.testing.assert_close(layer(zero), zero)
    assert copy.deepcopy(layer).eval()(X) is X
    exact = network(match="noise")[2]
    exact.p = 0.0
    assert exact(X) is X
    assert layer.train()(X).shape == X.shape


def test_a_next_layer_of_zeros_leaves_evolutional_dropout():
    layer = WeightAwareDropout(0.5, nn.Linear(6, 2), weight_share=1.0)
    nn.init.zeros_(layer._path[0].weight)
    torch.testing.assert_close(seeded(layer, X), seeded(EvolutionalDropout(0.5), X))


def test_units_that_are_not_finite_pass_through():
    x = X.clone()
    x[3, 2] = torch.inf
    out = network()[2](x)
    torch.testing.assert_close(out[:, 2], x[:, 2])
    assert (out[:, [0, 1, 3, 4, 5]] == 0).any()


def test_fit_in_follows_what_stands_between():
    pool, flat, head = nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 2)
    place = Place(None, nn.Dropout(0.3), head, (pool, flat))
    fitted = WeightAwareDropout.fit_in(place, match="noise")
    assert fitted.after is head
    assert (fitted.dropout.p, fitted.dropout.match, fitted.dropout._path) == (0.3, "noise", (pool, flat, head))


def test_bad_options_are_named():
    with pytest.raises(ValueError, match=r"weight_share is 1.5, but it takes a number in \[0, 1\]"):
        WeightAwareDropout(weight_share=1.5)
    for after in (
        nn.ReLU(),
        nn.PReLU(),
        nn.BatchNorm1d(6),
        nn.Conv1d(6, 2, 1),
        3,
        "fc",
        [],
        [nn.Linear(2, 2), nn.ReLU()],
    ):
        with pytest.raises(ValueError, match=r"after is .*, but it takes a layer with weights"):
            WeightAwareDropout(0.5, after)
    with pytest.raises(ValueError, match="cannot follow units through LayerNorm"):
        WeightAwareDropout(0.5, [nn.LayerNorm(6), nn.Linear(6, 2)])
    with pytest.raises(RuntimeError, match="no next layer; give it one by after= or attach"):
        WeightAwareDropout()(X)
    with pytest.raises(ValueError, match="dropout rate is 1"):
        WeightAwareDropout(1)
    with pytest.raises(ValueError, match="scheme is 'gauss'"):
        WeightAwareDropout(scheme="gauss")
    with pytest.raises(ValueError, match=r"units of shape \(5,\) do not fit Linear"):
        network()[2](X[:, :5])
    with pytest.raises(TypeError, match=r"dropout of a tensor of torch.int64"):
        network()[2](X.long())
    with pytest.raises(TypeError, match=r"dropout of a list"):
        network()[2](X.tolist())
    with pytest.raises(TypeError, match=r"layout torch.sparse_coo"):
        network()[2](X.to_sparse())


def test_print_shows_what_it_is():
    shown = "WeightAwareDropout(p=0.5, weight_share=0.5, after=Linear)"
    assert str(network()[2]) == shown
