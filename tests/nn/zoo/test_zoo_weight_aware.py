from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from evodrop.definitions import n_draws
from evodrop.nn import convert_dropout
from evodrop.nn.functional import evolutional_dropout
from evodrop.nn.zoo import WeightAwareConv2d, WeightAwareLinear
from evodrop.nn.zoo._base import Site
from evodrop.nn.zoo.weight_aware import weight_aware_probabilities

X = torch.randn(64, 6, generator=torch.Generator().manual_seed(1)) * torch.arange(1.0, 7.0)
SCALE = X.square().mean(0).sqrt()


def seeded(function, *arguments):
    torch.manual_seed(9)
    return function(*arguments)


def dropped(layer, x):
    """What the layer makes of its inputs, by a layer that passes them on."""
    twin = copy.deepcopy(layer)
    return seeded(twin._dropped, x)


def probabilities(x, weight, share):
    s, w = x.double().square().mean(0).sqrt(), weight.detach().double().norm(dim=0)
    return share * w * s / (w * s).sum() + (1 - share) * s / s.sum()


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_the_probabilities_are_those_of_the_formula(share):
    weight = torch.randn(3, 6)
    found = weight_aware_probabilities(SCALE, weight.norm(dim=0), share)
    torch.testing.assert_close(found.double(), probabilities(X, weight, share), rtol=1e-5, atol=1e-7)


def test_the_probabilities_are_least_for_the_tight_bound():
    """sum w_i^2 E x_i^2 / p_i, for a layer of one unit, is never less at other probabilities."""
    weight = torch.randn(1, 6)
    bound = lambda p: (weight[0].square() * SCALE.square() / p).sum()  # noqa: E731
    best = weight_aware_probabilities(SCALE, weight[0].abs(), 1.0)
    others = torch.distributions.Dirichlet(torch.ones(6)).sample((200,))
    assert all(bound(best) <= bound(other) for other in others)
    assert bound(best) < bound(probabilities(X, weight, 0.0)) - 1e-3


def test_mean_and_variance_are_those_of_the_docstring(backend):
    layer, rows = WeightAwareLinear(6, 3), 40_000
    batch = X.expand(rows // 64, 64, 6).reshape(-1, 6)
    ratio = torch.where(batch == 0, 0.0, dropped(layer, batch).double() / batch.double())
    k, p = n_draws(6, 0.5), probabilities(X, layer.weight, 0.5)
    variance = (1 - p) / (k * p)
    deviations = (ratio - 1) ** 2
    assert ((ratio.mean(0) - 1).abs() <= 5 * (variance / rows).sqrt()).all()
    assert ((deviations.mean(0) - variance).abs() <= 5 * deviations.std(0) / rows**0.5).all()


def test_every_draw_is_a_multinomial_count():
    layer, x = WeightAwareLinear(6, 3).double(), X.double()
    counts = dropped(layer, x) / x * n_draws(6, 0.5) * probabilities(X, layer.weight, 0.5)
    torch.testing.assert_close(counts, counts.round(), rtol=0, atol=1e-9)
    torch.testing.assert_close(counts.sum(1), torch.full((64,), 3.0, dtype=torch.float64))


def test_without_a_share_it_is_evolutional_dropout_and_the_plain_layer():
    layer = WeightAwareLinear(6, 3, weight_share=0.0)
    noisy = seeded(evolutional_dropout, X, 0.5)
    torch.testing.assert_close(seeded(layer, X), nn.functional.linear(noisy, layer.weight, layer.bias))


@pytest.mark.parametrize(("groups", "shape"), [(1, (5, 4, 6, 6)), (2, (5, 4, 6, 6)), (2, (4, 6, 6))])
def test_a_convolution_draws_positions_by_the_weights_of_their_channel(groups, shape):
    layer, x = WeightAwareConv2d(4, 8, 3, groups=groups, weight_share=1.0), torch.rand(shape) + 0.5
    with torch.no_grad():
        layer.weight.view(groups, 8 // groups, 4 // groups, 3, 3)[-1, :, -1] = 0  # nothing reads the last channel
    noisy = dropped(layer, x)
    assert (noisy[..., 3, :, :] == 0).all()
    assert ((noisy > 0).flatten(-2).double().mean(-1)[..., :3] > 0).all()
    norms = torch.stack(
        [layer.weight.unflatten(0, (groups, -1))[g, :, c].norm() for g in range(groups) for c in range(4 // groups)]
    )
    torch.testing.assert_close(layer._squares().flatten(), norms.square())
    assert layer(x).shape == layer.eval()(x).shape


EXTREMES = [(torch.float16, 12), (torch.float32, -90), (torch.float32, 90), (torch.float64, -700), (torch.float64, 700)]


@pytest.mark.parametrize(("dtype", "exponent"), EXTREMES)
@pytest.mark.parametrize("share", [0.0, 1.0])
@pytest.mark.parametrize("convolves", [False, True])
def test_the_law_is_that_of_the_values_divided_by_their_largest(dtype, exponent, share, convolves):
    """Also where the squares of inputs or weights over- or underflow: the noise of each unit stays the same."""
    layer = WeightAwareConv2d(4, 3, 2, weight_share=share) if convolves else WeightAwareLinear(6, 3, weight_share=share)
    layer, x = layer.to(dtype), torch.rand((32, 4, 3, 3) if convolves else (32, 6)).add(0.5).to(dtype)
    usual, factor = dropped(layer, x), 2.0**exponent
    assert usual.unique().numel() > 2
    with torch.no_grad():
        layer.weight *= factor
    torch.testing.assert_close(dropped(layer, x), usual)
    torch.testing.assert_close(dropped(layer, x * factor) / factor, usual)


@pytest.mark.parametrize("large", [1e20, 1e38])
def test_one_huge_unit_of_float32_takes_the_draws(large):
    x = torch.ones(100, 6)
    x[:, 1] = large
    y = dropped(WeightAwareLinear(6, 3, weight_share=0.0), x)
    torch.testing.assert_close(y[:, 1], x[:, 1])
    assert not y[:, [0, 2, 3, 4, 5]].any()


def test_no_gradient_goes_through_the_probabilities():
    layer = WeightAwareLinear(6, 3, bias=False).double()
    x = torch.rand(3, 6, dtype=torch.float64, requires_grad=True)
    noise = (dropped(layer, x) / x).detach()
    y = seeded(layer, x)
    to_x, to_weight = torch.autograd.grad(y.sum(), (x, layer.weight))
    torch.testing.assert_close(to_x, noise * layer.weight.sum(0))
    torch.testing.assert_close(to_weight, (noise * x).sum(0).expand(3, 6))


def test_weights_that_change_are_seen():
    layer = WeightAwareLinear(6, 3, weight_share=1.0)
    with torch.no_grad():
        layer.weight[:, 1:] = 0
    out = dropped(layer, X)
    assert (out[:, 1:] == 0).all()  # the documented bias: a unit without weights is never drawn
    torch.testing.assert_close(out[:, 0], X[:, 0])


def test_a_layer_of_zeros_leaves_evolutional_dropout():
    layer = WeightAwareLinear(6, 2, weight_share=1.0)
    nn.init.zeros_(layer.weight)
    torch.testing.assert_close(dropped(layer, X), seeded(evolutional_dropout, X, 0.5))


def test_it_takes_the_very_parameters_over():
    for plain, x in ((nn.Linear(5, 3), torch.rand(2, 5)), (nn.Conv2d(3, 2, 3), torch.rand(2, 3, 4, 4))):
        site = WeightAwareLinear.place(Site(None, nn.Dropout(0.3), plain), match="noise", weight_share=0.2)
        assert site.after.weight is plain.weight
        assert site.after.bias is plain.bias
        assert (site.after.p, site.after.match, site.after.weight_share) == (0.3, "noise", 0.2)
        assert isinstance(site.dropout, nn.Identity)
        assert (site.after.eval()(x) == plain(x)).all()
        site.after.load_state_dict(plain.state_dict())
    with pytest.raises(ValueError, match=r"works on the nn.Linear or nn.Conv2d after Dropout.*EvolutionalDropout goes"):
        WeightAwareLinear.place(Site(None, nn.Dropout(0.3), nn.Conv1d(1, 1, 1)))


def test_a_network_of_convolutions_trains():
    layers = [nn.Dropout(0.5), nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Dropout(0.5), nn.MaxPool2d(2), nn.Flatten()]
    model = convert_dropout(nn.Sequential(*layers, nn.Linear(16, 2)), "weight-aware")
    assert [type(model[i]) for i in (0, 1, 3, 6)] == [nn.Identity, WeightAwareConv2d, nn.Identity, WeightAwareLinear]
    model(torch.randn(5, 3, 6, 6)).sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())


def test_new_weights_need_no_new_compilation():
    layer = WeightAwareLinear(6, 3)
    torch.compiler.reset()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(seeded(compiled, X), seeded(layer, X))
    with torch.no_grad():
        layer.weight.mul_(torch.arange(1.0, 7.0))
    with torch.compiler.set_stance("fail_on_recompile"):
        torch.testing.assert_close(seeded(compiled, X), seeded(layer, X))


def test_zeros_sequences_and_units_that_are_not_finite():
    layer = WeightAwareLinear(6, 2)
    torch.testing.assert_close(layer(torch.zeros(4, 6)), layer.bias.expand(4, 2))
    torch.testing.assert_close(WeightAwareLinear(6, 2, bias=False, p=1.0)(X), torch.zeros(64, 2))
    assert layer(torch.randn(2, 5, 6)).shape == (2, 5, 2)
    assert layer(torch.randn(6)).shape == (2,)
    x = X.clone()
    x[3, 2] = torch.inf
    noisy = dropped(layer, x)
    torch.testing.assert_close(noisy[:, 2], x[:, 2])
    assert (noisy[:, [0, 1, 3, 4, 5]] == 0).any()


def test_bad_options_are_named():
    with pytest.raises(ValueError, match=r"weight_share is 1.5, but it takes a number in \[0, 1\]"):
        WeightAwareLinear(6, 2, weight_share=1.5)
    with pytest.raises(ValueError, match=r"dropout rate is 1\.5"):
        WeightAwareLinear(6, 2, p=1.5)
    with pytest.raises(ValueError, match="match is 'nose'"):
        WeightAwareLinear(6, 2, match="nose")
    with pytest.raises(ValueError, match="k is 0"):
        WeightAwareConv2d(6, 2, 3, k=0)
    with pytest.raises(ValueError, match=r"takes inputs of shape \(\.\.\., 6\) but got one of shape \(64, 5\)"):
        WeightAwareLinear(6, 2)(X[:, :5])
    with pytest.raises(
        ValueError, match=r"WeightAwareConv2d: the input has shape \(2, 3, 5, 5\), but this layer takes"
    ):
        WeightAwareConv2d(4, 3, 3)(torch.rand(2, 3, 5, 5))
    for wrong, words in ((X.long(), "tensor of torch.int64"), (X.tolist(), "a list"), (X.to_sparse(), "sparse_coo")):
        with pytest.raises(TypeError, match=words):
            WeightAwareLinear(6, 2)(wrong)


def test_print_shows_what_it_is():
    shown = "WeightAwareLinear(in_features=6, out_features=3, bias=True, p=0.5, weight_share=0.5, match='draws')"
    assert str(WeightAwareLinear(6, 3)) == shown
    assert str(WeightAwareLinear(6, 3, k=4, uniform_mix=0.1)).endswith("weight_share=0.5, k=4, uniform_mix=0.1)")
