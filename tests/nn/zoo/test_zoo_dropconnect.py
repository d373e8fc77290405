from __future__ import annotations

import pytest
import torch
from helpers.five_errors import assert_moments
from torch import nn

from evodrop.nn.zoo import DropConnectConv2d, DropConnectLinear, dropconnect
from evodrop.nn.zoo._base import Site
from evodrop.nn.zoo.dropconnect import draw_masks, masked_linear

ROW = torch.tensor([-2.0, 0.0, 0.5, 3.0, 1.0], dtype=torch.float64)
MANY = 1_000_000


def shifted(layer):
    """The layer in double precision with weights of one sign, so that no mean is near 0."""
    for parameter in layer.parameters():
        parameter.data = 0.2 + torch.rand_like(parameter)
    return layer.double()


def test_the_inference_gaussian_matches_a_million_masks():
    layer, x = shifted(DropConnectLinear(6, 2, p=0.3)), torch.rand(6).double() + 0.5
    with torch.no_grad():
        draws = torch.cat([layer(x.expand(MANY // 10, 6)) for _ in range(10)])
        mean, variance = layer.moments(x)
        torch.testing.assert_close(draws.mean(0), mean, rtol=0.01, atol=0)
        torch.testing.assert_close(draws.var(0), variance, rtol=0.01, atol=0)
        assert_moments(draws, mean, variance)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("bias", [True, False])
def test_mean_and_variance_in_training_and_of_samples(p, bias):
    layer = DropConnectLinear(5, 3, bias=bias, p=p, inference="sample").double()
    with torch.no_grad():
        constant = layer.bias if bias else torch.zeros(3, dtype=torch.float64)
        mean = layer.weight @ ROW + constant
        variance = p / (1 - p) * (layer.weight.square() @ ROW.square() + constant.square())
        assert_moments(layer(ROW.expand(50_000, 5)), mean, variance)
        assert_moments(layer.eval()(ROW.expand(50_000, 5)), mean, variance)


@pytest.mark.parametrize("padding_mode", ["zeros", "circular"])
def test_mean_and_variance_of_a_convolution(padding_mode):
    options = {"stride": 2, "padding": 1, "groups": 2, "padding_mode": padding_mode}
    layer, x = DropConnectConv2d(4, 2, 3, p=0.4, **options).double(), torch.randn(4, 5, 5).double()
    with torch.no_grad():
        mean, variance = layer.moments(x)
        assert_moments(layer(x.expand(5000, -1, -1, -1)), mean, variance)
        torch.testing.assert_close(mean, layer._conv_forward(x, layer.weight, layer.bias))


def test_every_output_is_a_sum_over_kept_weights():
    """With weights that are powers of 2 an output names its mask; examples have masks of their own."""
    layer = DropConnectLinear(8, 2, bias=False, p=0.5)
    layer.weight.data = (2.0 ** torch.arange(8)).repeat(2, 1)
    sums = layer(torch.ones(500, 8)) / 2
    assert (sums == sums.round()).all()
    assert sums.min() >= 0
    assert sums.max() <= 255
    assert len(sums[:, 0].unique()) > 150  # of 256; 220 are expected
    assert (sums[:, 0] != sums[:, 1]).any()


def test_one_mask_for_the_batch_or_for_the_positions_of_a_sequence():
    shared = DropConnectLinear(8, 4, p=0.5, masks="batch")(torch.ones(10, 8))
    assert (shared == shared[0]).all()
    each = DropConnectLinear(8, 4, p=0.5)(torch.ones(10, 3, 8))
    assert (each == each[:, :1]).all()
    assert (each != each[0]).any()


def test_the_gradient_takes_the_mask_as_constant():
    layer = DropConnectLinear(5, 3, bias=False, p=0.5)
    layer.weight.data.fill_(1.0)
    x = torch.ones(1, 5, requires_grad=True)
    y = layer(x)
    y.sum().backward()
    assert set(layer.weight.grad.unique().tolist()) == {0.0, 2.0}
    torch.testing.assert_close(layer.weight.grad.sum(1), y[0].detach())
    torch.testing.assert_close(layer.weight.grad.sum(0), x.grad[0])


def test_it_takes_the_very_parameters_over():
    for plain, x in ((nn.Linear(5, 3), torch.rand(2, 5)), (nn.Conv2d(3, 2, 3), torch.rand(2, 3, 4, 4))):
        site = DropConnectLinear.place(Site(plain, nn.Dropout(0.2), None), masks="batch")
        assert site.before.weight is plain.weight
        assert site.before.bias is plain.bias
        assert (site.before.p, site.before.masks) == (0.2, "batch")
        assert isinstance(site.dropout, nn.Identity)
        assert isinstance(site.before, type(plain))
        assert (site.before.eval()(x) == plain(x)).all()
        site.before.load_state_dict(plain.state_dict())


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="dropout rate is 1"):
        DropConnectLinear(4, 3, p=1.0)
    with pytest.raises(ValueError, match="masks is 'unit', but it is one of 'example', 'batch'"):
        DropConnectLinear(4, 3, masks="unit")
    with pytest.raises(ValueError, match="inference is 'mode', but it is one of 'mean', 'sample'"):
        DropConnectConv2d(4, 3, 3, inference="mode")
    with pytest.raises(ValueError, match=r"takes inputs of shape \(\.\.\., 4\) but got one of shape \(2, 5\)"):
        DropConnectLinear(4, 3)(torch.rand(2, 5))
    with pytest.raises(ValueError, match=r"the input has shape \(2, 3, 5, 5\), but this layer takes pictures with 4"):
        DropConnectConv2d(4, 3, 3)(torch.rand(2, 3, 5, 5))
    with pytest.raises(TypeError, match="takes float64"):
        DropConnectLinear(4, 3)(torch.ones(2, 4, dtype=torch.int64))
    with pytest.raises(ValueError, match="there stands Identity"):
        DropConnectLinear.place(Site(nn.Identity(), nn.Dropout(), None))


def test_print_shows_the_choices():
    text = "DropConnectLinear(in_features=4, out_features=3, bias=True, p=0.5, masks='example', inference='mean')"
    assert str(DropConnectLinear(4, 3)) == text


@pytest.mark.parametrize("masks", ["example", "batch"])
def test_an_ensemble_of_weights_has_masks_of_its_own_or_shared_ones(masks):
    layer, x = DropConnectLinear(20, 4, bias=False, p=0.5, masks=masks), torch.ones(2, 20)

    def outputs(randomness):
        run = torch.vmap(lambda one: torch.func.functional_call(layer, {"weight": one}, x), randomness=randomness)
        return run(torch.ones(5, 4, 20))

    different, same = outputs("different"), outputs("same")
    assert (different != different[0]).any()
    assert (same == same[0]).all()


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9])
def test_masks_are_independent_bits(keep):
    drawn = draw_masks(torch.zeros(3, 4), 50_000, keep)
    assert drawn.dtype == torch.bool
    assert_moments(drawn.flatten(1), keep, torch.full((12,), keep * (1 - keep), dtype=torch.float64))
    off_diagonal = torch.corrcoef(drawn.flatten(1).T.double()) - torch.eye(12)
    assert off_diagonal.abs().max() < 5 / 50_000**0.5


@pytest.mark.parametrize("block", [1, 12, 40, 10**6])
def test_blocks_are_the_whole_product(block, monkeypatch):
    monkeypatch.setattr(dropconnect, "BLOCK", block)
    x, weight = torch.randn(7, 2, 5, requires_grad=True), torch.randn(4, 5, requires_grad=True)
    drawn, upstream = torch.rand(7, 4, 5) < 0.5, torch.randn(7, 2, 4)
    ours, whole = masked_linear(x, weight, drawn), torch.einsum("nti,oi,noi->nto", x, weight, drawn.float())
    torch.testing.assert_close(ours, whole)
    found = torch.autograd.grad(ours, (x, weight), upstream)
    for one, other in zip(found, torch.autograd.grad(whole, (x, weight), upstream), strict=True):
        torch.testing.assert_close(one, other)


def test_gradients_in_half_precision_are_added_up_in_full(monkeypatch):
    monkeypatch.setattr(dropconnect, "BLOCK", 1)
    x, weight = torch.ones(600, 1, 2, dtype=torch.bfloat16), torch.ones(2, 2, dtype=torch.bfloat16, requires_grad=True)
    masked_linear(x, weight, torch.ones(600, 2, 2, dtype=torch.bool)).sum().backward()
    assert (weight.grad == 600).all()  # in bfloat16, 256 + 1 is 256


@pytest.mark.parametrize(("inputs", "outputs"), [(0, 3), (3, 0)])
def test_a_layer_without_weights_has_masks_too(inputs, outputs):
    x, weight = torch.ones(4, 1, inputs), torch.ones(outputs, inputs, requires_grad=True)
    output = masked_linear(x, weight, draw_masks(weight.detach(), 4, 0.5))
    output.sum().backward()
    assert (output == torch.zeros(4, 1, outputs)).all()
    assert weight.grad.shape == weight.shape


def test_masks_follow_the_seed_of_torch():
    torch.manual_seed(3)
    first = draw_masks(torch.zeros(3, 4), 8, 0.5)
    assert (draw_masks(torch.zeros(3, 4), 8, 0.5) != first).any()
    torch.manual_seed(3)
    assert (draw_masks(torch.zeros(3, 4), 8, 0.5) == first).all()


def test_the_gradient_can_be_differentiated():
    x, weight = torch.randn(3, 2, 4).double().requires_grad_(), torch.randn(5, 4).double().requires_grad_()
    drawn = torch.rand(3, 5, 4) < 0.5
    assert torch.autograd.gradgradcheck(lambda *both: masked_linear(*both, drawn), (x, weight))
