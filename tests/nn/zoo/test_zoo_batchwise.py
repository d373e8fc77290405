from __future__ import annotations

import copy

import pytest
import torch
from helpers.five_errors import assert_moments
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from evodrop.nn import EvolutionalDropout, convert_dropout
from evodrop.nn.zoo import BatchwiseDropout
from evodrop.nn.zoo._base import Site
from evodrop.nn.zoo.batchwise import batchwise_dropout, submatrix_linear

MANY = 10_000


def between(p=0.5, function=nn.Sigmoid, bias=True):
    """Three linear layers with two batchwise dropouts between them; and what they do with whole matrices."""
    first, second, third = nn.Linear(6, 8, bias), nn.Linear(8, 7, bias), nn.Linear(7, 3, bias)
    first, one, second, *_ = BatchwiseDropout.place(Site(first, nn.Dropout(p), second))
    second, two, third, *_ = BatchwiseDropout.place(Site(second, nn.Dropout(p), third))
    return nn.Sequential(first, function(), one, second, function(), two, third).double()


def by_whole_matrices(model, x):
    """The same draws in the same order, multiplied in."""
    for layer in model:
        if isinstance(layer, nn.Linear):
            if "feeds" in layer.links:
                mask = torch.empty(layer.out_features, dtype=torch.bool).bernoulli_(1 - layer.links["feeds"].p)
            x = functional.linear(x, layer.weight, layer.bias)
        else:
            x = x * mask / (1 - layer.p) if isinstance(layer, BatchwiseDropout) else layer(x)
    return x


def gradients(run, model, x):
    """The output, its gradients, and the gradients of these."""
    torch.manual_seed(5)
    y, leaves = run(x), (x, *model.parameters())
    first = torch.autograd.grad(y.square().sum(), leaves, create_graph=True)
    return [y, *first, *torch.autograd.grad(sum(grad.square().sum() for grad in first), leaves)]


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_mean_and_variance(p):
    row = torch.tensor([-2.0, 0.0, 0.5, 3.0], dtype=torch.float64)
    draws = torch.stack([batchwise_dropout(row.expand(2, 4), p) for _ in range(MANY)])
    assert (draws[:, 0] == draws[:, 1]).all()
    assert_moments(draws[:, 0], row, p / (1 - p) * row.square())


@pytest.mark.parametrize("function", [nn.Sigmoid, nn.ReLU])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(5, 6), (2, 5, 6), (6,)])
def test_submatrices_are_the_whole_matrices_with_zeros(function, bias, shape):
    model, x = between(function=function, bias=bias), torch.randn(shape).double().requires_grad_()
    ours = gradients(model, model, x)
    whole = gradients(lambda x: by_whole_matrices(model, x), model, x)
    for one, other in zip(ours, whole, strict=True):
        torch.testing.assert_close(one, other)


def test_only_what_is_kept_is_multiplied(monkeypatch):
    model, x = between(), torch.randn(5, 6).double()
    sizes = []
    linear = functional.linear
    monkeypatch.setattr(functional, "linear", lambda x, w, b: sizes.append(tuple(w.shape)) or linear(x, w, b))
    torch.manual_seed(1)
    masks = (torch.empty(d, dtype=torch.bool).bernoulli_(0.5) for d in (8, 7))
    first, second = (int(mask.sum()) + 1 for mask in masks)  # and the zero, from which the dropped ones are read
    torch.manual_seed(1)
    model(x)
    assert sizes == [(first, 6), (second, first), (3, second)]


def test_all_units_may_be_dropped():
    nothing = torch.zeros(3, dtype=torch.bool)
    x, weight = torch.randn(2, 3, requires_grad=True), torch.randn(4, 3, requires_grad=True)
    bias = torch.randn(4, requires_grad=True)
    y = submatrix_linear(x, weight, bias, None, nothing)
    assert (y == bias).all()
    y.sum().backward()
    assert (x.grad == 0).all()
    assert (weight.grad == 0).all()
    assert (submatrix_linear(x, weight, None, torch.zeros(4, dtype=torch.bool), None) == 0).all()


def test_mean_of_a_linear_network():
    """Linear layers without a function between them pass the unbiased noise on."""
    model, x = between(function=nn.Identity), torch.randn(1, 6).double()
    with torch.no_grad():
        mean = model.eval()(x)
        draws = torch.stack([model.train()(x) for _ in range(1000)])
    assert ((draws.mean(0) - mean).abs() < 5 * draws.std(0) / 1000**0.5).all()


def test_a_function_may_be_infinite_where_nothing_was_computed():
    before, dropout, after, *_ = BatchwiseDropout.place(Site(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3)))
    before.weight.data.abs_()
    before.bias.data.abs_()
    y = after(dropout(before(torch.rand(5, 6)).log()))
    y.sum().backward()
    assert y.isfinite().all()
    assert before.weight.grad.isfinite().all()
    assert after.weight.grad.isfinite().all()


def test_what_stands_after_the_dropout_is_free():
    """What it makes of zeros is read."""
    before, dropout, after, *_ = BatchwiseDropout.place(Site(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3)))
    x = torch.rand(5, 6)
    dropped = dropout(before(x))
    torch.testing.assert_close(after(dropped.cos()), functional.linear(dropped.cos(), after.weight, after.bias))


def test_other_layers_stay_and_pictures_are_read_by_units():
    conv, plain = nn.Conv2d(3, 4, 3), nn.Linear(4 * 6 * 6, 5)
    before, dropout, after, *_ = BatchwiseDropout.place(Site(conv, nn.Dropout(0.5), plain))
    assert before is conv
    hidden = dropout(conv(torch.rand(2, 3, 8, 8))).flatten(1)
    assert ((hidden[0] == 0) == (hidden[1] == 0)).all()
    torch.testing.assert_close(after(hidden), functional.linear(hidden, plain.weight, plain.bias))


def links_of(model):
    """The linear layers of a converted model, by what they feed and read: the names of dropouts."""
    names = {module: name for name, module in model.named_modules()}
    linears = [module for module in model.modules() if isinstance(module, nn.Linear)]
    return [{side: names[one] for side, one in getattr(layer, "links", {}).items()} for layer in linears]


def test_converting_connects_the_neighbours():
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 8), nn.Tanh(), nn.Dropout())
    model.append(nn.Linear(8, 3))
    convert_dropout(model, "batchwise")
    assert links_of(model) == [{"feeds": "2"}, {"reads": "2", "feeds": "5"}, {"reads": "5"}]
    x = torch.randn(64, 6)
    hidden = model[0](x)
    assert 0 < int((hidden == 0).all(0).sum()) < 8
    assert torch.equal(model[1:3](hidden) == 0, (hidden <= 0))


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        ([nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout()], [{}, {"reads": "3"}]),
        ([nn.Dropout(), nn.BatchNorm1d(8)], [{"feeds": "1"}, {}]),
        ([EvolutionalDropout(), nn.Dropout()], [{}, {"reads": "2"}]),
        ([nn.Softmax(-1), nn.Dropout()], [{}, {"reads": "2"}]),
        ([nn.Unflatten(1, (2, 4)), nn.Flatten(), nn.Dropout()], [{}, {"reads": "3"}]),
    ],
)
def test_what_stands_between_decides_what_is_connected(inside, expected):
    model = convert_dropout(nn.Sequential(nn.Linear(6, 8), *inside, nn.Linear(8, 3)), "batchwise")
    assert links_of(model) == expected
    model(torch.randn(5, 6)).sum().backward()


def test_normalisation_after_it_gets_its_whole_gradient():
    """At first it adds 0 to units that are dropped in the whole batch, and learns from them what to add."""
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(), nn.BatchNorm1d(8), nn.Linear(8, 3, bias=False))
    hidden = convert_dropout(model, "batchwise")[:3](torch.randn(5, 6))
    assert (hidden == 0).all(0).any()
    model[3](hidden).sum().backward()
    torch.testing.assert_close(model[2].bias.grad, 5 * model[3].weight.sum(0).detach())


def test_dropouts_in_a_row_have_masks_of_their_own():
    model = nn.Sequential(nn.Linear(6, 400), nn.Dropout(0.2), nn.ReLU(), nn.Dropout(0.5), nn.Linear(400, 3))
    model[0].bias.data.fill_(10.0)
    convert_dropout(model, "batchwise")
    assert links_of(model) == [{"feeds": "1"}, {"reads": "3"}]
    kept = (model[:4](torch.randn(5, 6)) != 0).double().mean()
    assert abs(kept - 0.4) < 5 * (0.4 * 0.6 / 400) ** 0.5
    model(torch.randn(5, 6)).sum().backward()


class Branching(nn.Module):
    """Code that cannot be traced."""

    def __init__(self):
        super().__init__()
        self.first, self.dropout, self.second = nn.Linear(6, 8), nn.Dropout(), nn.Linear(8, 3)

    def forward(self, x):
        return self.second(self.dropout(self.first(x))) if x.sum() < 0 else self.second(self.first(x))


class Recurrent(nn.Module):
    """A neighbour that is used twice, by a dropout that is used twice."""

    def __init__(self):
        super().__init__()
        self.step, self.dropout, self.last = nn.Linear(6, 6), nn.Dropout(), nn.Linear(6, 3)

    def forward(self, x):
        x = self.dropout(self.step(x))
        return self.last(self.dropout(self.step(x)))


class Hurried(Recurrent):
    """A dropout that is used twice, with other neighbours each time."""

    def forward(self, x):
        return self.dropout(self.last(self.dropout(self.step(x))))


class Skipping(Recurrent):
    """A neighbour whose outputs go elsewhere too, where those that are dropped count."""

    def forward(self, x):
        x = self.step(x)
        return self.last(self.dropout(x.relu()) + x)


@pytest.mark.parametrize("make", [Branching, Recurrent, Hurried, Skipping])
def test_neighbours_that_are_not_known_for_sure_stay_plain(make):
    model = convert_dropout(make(), "batchwise")
    assert isinstance(model.dropout, BatchwiseDropout)
    assert links_of(model) == [{}, {}]
    model(-torch.rand(5, 6)).sum().backward()


def test_a_dropout_alone_can_be_converted():
    converted = convert_dropout(nn.Dropout(0.2).eval(), "batchwise")
    assert isinstance(converted, BatchwiseDropout)
    assert (converted.p, converted.training) == (0.2, False)


def test_the_very_parameters_are_taken_over():
    first, second = nn.Linear(6, 8), nn.Linear(8, 3)
    site = BatchwiseDropout.place(Site(first, nn.Dropout(0.2), second))
    assert site.before.weight is first.weight
    assert site.after.bias is second.bias
    assert site.dropout.p == 0.2
    assert BatchwiseDropout.place(Site(site.after, nn.Dropout(0.2), None)).before is site.after
    x = torch.rand(5, 6)
    model = nn.Sequential(site.before, nn.ReLU(), site.dropout, site.after)
    assert list(model.state_dict()) == ["0.weight", "0.bias", "3.weight", "3.bias"]
    assert (model.eval()(x) == second(first(x).relu())).all()


def test_copies_have_links_of_their_own():
    model = between()
    twin = copy.deepcopy(model)
    assert twin[0].links["feeds"] is twin[2]
    assert twin[3].links["reads"] is twin[2]
    twin.eval()
    assert model[2].active
    assert not twin[2].active


def test_mc_dropout_draws_though_the_layers_are_in_eval_mode():
    model, x = between().eval(), torch.randn(5, 6).double()
    for layer in model.modules():
        if isinstance(layer, nn.modules.dropout._DropoutNd):
            layer.train()
    assert (model(x) != model(x)).any()


def test_features_are_whole_in_eval_mode_though_the_dropout_is_not_there_any_more():
    model, x = between(), torch.randn(5, 6).double()
    features = model[:2].eval()
    assert model[2].training  # it is no part of the features, so eval() did not reach it
    assert (features(x) == functional.linear(x, model[0].weight, model[0].bias).sigmoid()).all()
    model[2] = nn.Identity()
    whole = by_whole_matrices(nn.Sequential(model[0], nn.Sigmoid()), x)
    assert (model.eval()[:2](x) == whole).all()


def test_a_kept_unit_that_is_zero_in_the_whole_batch_still_learns():
    """What was dropped is skipped; a layer that begins with weights of 0 is not taken for dropped."""
    model = nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Dropout(0.5), nn.Linear(40, 3))
    nn.init.zeros_(model[0].weight)
    nn.init.zeros_(model[0].bias)
    convert_dropout(model, "batchwise")
    model(torch.randn(5, 6)).sum().backward()
    assert ((model[0].bias.grad != 0) == model[2].kept).all()
    assert 0 < int(model[2].kept.sum()) < 40


def test_units_follow_unit_dims():
    y = BatchwiseDropout(0.5, unit_dims=1)(torch.ones(4, 50, 3))
    assert (y == y[:1, :, :1]).all()
    assert sorted(y.unique().tolist()) == [0.0, 2.0]
    with pytest.raises(ValueError, match="unit_dims is 3"):
        batchwise_dropout(torch.ones(4, 5), unit_dims=3)
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    assert links_of(convert_dropout(model, "batchwise", unit_dims=(1, 2))) == [{}, {"reads": "1"}]
    assert str(BatchwiseDropout(0.5, unit_dims=1)) == "BatchwiseDropout(p=0.5, unit_dims=1)"


def test_batches_may_wait_for_their_backward_pass():
    model = between()
    xs = [torch.randn(5, 6).double().requires_grad_() for _ in range(2)]
    torch.manual_seed(5)
    alone = torch.autograd.grad(model(xs[0]).square().sum(), xs[0])[0]
    torch.manual_seed(5)
    ys = [checkpoint(model, x, use_reentrant=False) for x in xs]
    assert (torch.autograd.grad(ys[0].square().sum(), xs[0])[0] == alone).all()


def test_a_checkpoint_that_parts_the_layers_says_so():
    model = between()
    y = checkpoint(model[1:], model[0](torch.randn(5, 6).double()), use_reentrant=False)
    with pytest.raises(RuntimeError, match="put both layers and the one after them into the same segment"):
        y.sum().backward()


def test_a_layer_that_changes_the_units_is_named():
    before, dropout, *_ = BatchwiseDropout.place(Site(nn.Linear(6, 8), nn.Dropout(0.5), None))
    with pytest.raises(ValueError, match=r"follows a linear layer with 8 outputs, but its input has shape \(5, 4\)"):
        dropout(before(torch.rand(5, 6))[:, :4])


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="dropout rate is 1"):
        BatchwiseDropout(1.0)
    with pytest.raises(TypeError, match="takes float64"):
        batchwise_dropout(torch.ones(3, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"takes inputs of shape \(\.\.\., 6\)"):
        between()(torch.rand(5, 7).double())


def test_torch_func_sees_a_plain_layer():
    model, x = between(), torch.randn(5, 6).double()
    expected = torch.autograd.functional.jacobian(lambda x: seeded_sum(model, x), x)
    torch.testing.assert_close(torch.func.grad(lambda x: seeded_sum(model, x))(x), expected)


def seeded_sum(model, x):
    torch.manual_seed(2)
    return model(x).sum()
