from __future__ import annotations

import copy
import itertools
import shutil

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call, grad, jvp, vmap

from evodrop.nn import LocallyConnected2d
from evodrop.nn.locally_connected import local

GEOMETRIES = {  # channels in and out, kernel, input, stride, padding
    "as in the paper": (4, 3, 3, 6, 1, 1),
    "one position": (2, 3, (4, 5), (4, 5), 1, 0),
    "one pixel": (2, 3, 1, (3, 4), 1, 0),
    "no padding": (3, 2, 3, (5, 7), 1, 0),
    "stride": (2, 3, 3, 7, 2, 1),
    "all rectangular": (3, 2, (2, 4), (6, 9), (2, 3), (1, 2)),
    "stride beyond the kernel": (2, 2, 2, (8, 9), 3, 1),
    "only padding at the edge": (2, 3, 1, (3, 4), 1, (1, 2)),
    "even kernel": (1, 4, (4, 2), 5, 1, (2, 0)),
}
each = pytest.mark.parametrize("geometry", GEOMETRIES.values(), ids=GEOMETRIES)
needs_compiler = pytest.mark.skipif(shutil.which("c++") is None, reason="inductor needs a C++ compiler")


def layer_and_input(geometry, n=3, dtype=torch.float64, **options):
    into, out, kernel, size, stride, padding = geometry
    layer = LocallyConnected2d(into, out, kernel, size, stride, padding, dtype=dtype, **options)
    return layer, torch.randn(n, into, *layer.input_size, dtype=dtype, requires_grad=True)


def by_definition(layer, x):
    """One position and one offset of the kernel at a time."""
    (down, right), (top, left) = layer.stride, layer.padding
    padded = nn.functional.pad(x, (left, left, top, top))
    y = x.new_zeros(len(x), layer.out_channels, *layer.output_size)
    for h, w in itertools.product(*map(range, layer.output_size)):
        for i, j in itertools.product(*map(range, layer.kernel_size)):
            y[:, :, h, w] += padded[:, :, h * down + i, w * right + j] @ layer.weight[h, w, i, j]
    return y if layer.bias is None else y + layer.bias


def gradients(output, inputs):
    weights = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
    return torch.autograd.grad((output * weights).sum(), inputs)


@each
@pytest.mark.parametrize("bias", [True, False])
def test_values_and_gradients_are_those_of_the_definition(geometry, bias):
    layer, x = layer_and_input(geometry, bias=bias)
    inputs = (x, *layer.parameters())
    torch.testing.assert_close(layer(x), by_definition(layer, x))
    torch.testing.assert_close(gradients(layer(x), inputs), gradients(by_definition(layer, x), inputs))


@each
def test_with_shared_weights_it_is_a_convolution(geometry):
    layer, x = layer_and_input(geometry)
    into, out, *_ = geometry
    shared = nn.Conv2d(into, out, layer.kernel_size, layer.stride, layer.padding, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(shared.weight.permute(2, 3, 1, 0).expand_as(layer.weight))
        layer.bias.copy_(shared.bias.view(-1, 1, 1).expand_as(layer.bias))
    torch.testing.assert_close(layer(x), shared(x))
    x_grad, weight_grad = gradients(layer(x), (x, layer.weight))
    expected_x, expected_weight = gradients(shared(x), (x, shared.weight))
    torch.testing.assert_close(x_grad, expected_x)
    torch.testing.assert_close(weight_grad.sum((0, 1)).permute(3, 2, 0, 1), expected_weight)


@pytest.mark.parametrize("name", ["stride", "all rectangular", "only padding at the edge"])
def test_derivatives_of_every_operator_and_their_derivatives(name):
    layer, x = layer_and_input((2, 2, *GEOMETRIES[name][2:]), n=2)
    upstream = torch.randn_like(layer(x)).requires_grad_()
    weight, geometry = layer.weight, layer.geometry
    for three in ((None, x, weight), (upstream, None, weight), (upstream, x, None)):
        assert gradcheck(local, (*three, geometry), fast_mode=True)
        assert gradgradcheck(local, (*three, geometry), fast_mode=True)
    assert gradcheck(layer, x)


def test_torch_finds_the_operators_sound():
    layer, x = layer_and_input(GEOMETRIES["all rectangular"], dtype=torch.float32)
    upstream = torch.randn_like(layer(x)).requires_grad_()
    last = x.detach().contiguous(memory_format=torch.channels_last).requires_grad_()
    for pictures in (x, last):
        torch.library.opcheck(local, (None, pictures, layer.weight, layer.geometry))
    torch.library.opcheck(local, (upstream, None, layer.weight, layer.geometry))
    torch.library.opcheck(local, (upstream, x, None, layer.geometry))


@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last])
def test_the_output_has_the_memory_format_of_the_input(format):
    layer, x = layer_and_input(GEOMETRIES["as in the paper"])
    y = layer(x.detach().contiguous(memory_format=format))
    assert y.is_contiguous(memory_format=format)
    torch.testing.assert_close(y, layer(x))
    torch.testing.assert_close(layer(x.detach().mT.contiguous().mT), layer(x))


@pytest.mark.parametrize("need", ["x", "weight", "bias"])
def test_gradients_nobody_needs_are_not_made(need):
    layer, x = layer_and_input(GEOMETRIES["stride"])
    leaves = {"x": x, "weight": layer.weight, "bias": layer.bias}
    expected = gradients(layer(x), leaves[need])[0]
    for name, leaf in leaves.items():
        leaf.requires_grad_(name == need)
    y = layer(x)
    y.backward(torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y))
    torch.testing.assert_close(leaves[need].grad, expected)
    assert all(leaf.grad is None for name, leaf in leaves.items() if name != need)


@pytest.mark.parametrize("n", [0, 1])
def test_small_batches(n):
    layer, x = layer_and_input(GEOMETRIES["as in the paper"], n=n)
    y = layer(x)
    assert y.shape == (n, 3, 6, 6)
    y.sum().backward()
    assert x.grad.shape == x.shape
    torch.testing.assert_close(layer.bias.grad, torch.full_like(layer.bias, n))
    if n == 0:
        assert not layer.weight.grad.any()


def test_the_state_survives_a_round_trip():
    layer, x = layer_and_input(GEOMETRIES["stride"])
    twin, _ = layer_and_input(GEOMETRIES["stride"])
    assert (twin(x) != layer(x)).any()
    assert list(layer.state_dict()) == ["weight", "bias"]
    twin.load_state_dict(layer.state_dict())
    for same in (twin, copy.deepcopy(layer)):
        torch.testing.assert_close(same(x), layer(x), rtol=0, atol=0)


def test_parameters_are_drawn_as_those_of_a_convolution():
    layer = LocallyConnected2d(16, 8, 3, input_size=12)
    bound = (16 * 9) ** -0.5
    assert layer.weight.shape == (10, 10, 3, 3, 16, 8)
    assert layer.bias.shape == (8, 10, 10)
    for parameter in layer.parameters():
        assert parameter.abs().max() <= bound
        error = bound**2 * (4 / 45 / parameter.numel()) ** 0.5  # of the mean square of a uniform draw
        assert abs(parameter.square().mean() - bound**2 / 3) < 4 * error


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_float32(dtype):
    layer, x = layer_and_input((64, 8, 3, 4, 1, 1), dtype=torch.float32, bias=False)
    layer, x = layer.to(dtype), x.to(dtype)
    expected = by_definition(copy.deepcopy(layer).double(), x.double()).to(dtype)
    assert layer(x).dtype == dtype
    torch.testing.assert_close(layer(x), expected, rtol=torch.finfo(dtype).eps, atol=1e-6)


def test_autocast_lowers_it_as_it_lowers_a_convolution():
    layer, x = layer_and_input(GEOMETRIES["as in the paper"], dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)
        assert y.dtype == nn.Conv2d(4, 3, 3)(x).dtype == torch.bfloat16
        assert layer(x.bfloat16()).dtype == torch.bfloat16
        assert copy.deepcopy(layer).double()(x.double()).dtype == torch.float64
    y.sum().backward()
    assert layer.weight.grad.dtype == x.grad.dtype == torch.float32
    torch.testing.assert_close(y.float(), layer(x), rtol=0.02, atol=0.02)


@pytest.mark.parametrize("compiler", ["aot_eager", pytest.param("inductor", marks=needs_compiler)])
def test_compiled_without_a_graph_break_and_equal_to_eager(compiler):
    torch.compiler.reset()
    layer, _ = layer_and_input(GEOMETRIES["stride"], dtype=torch.float32)
    model = nn.Sequential(nn.Conv2d(1, 2, 1), layer, nn.ReLU())
    compiled = torch.compile(model, fullgraph=True, backend=compiler)
    for n in (3, 5):
        x = torch.randn(n, 1, 7, 7, requires_grad=True)
        inputs = (x, *model.parameters())
        torch.testing.assert_close(compiled(x), model(x))
        torch.testing.assert_close(gradients(compiled(x), inputs), gradients(model(x), inputs))


@each
def test_transforms_of_torch_func(geometry):
    layer, x = layer_and_input(geometry)
    parameters, tangent = dict(layer.named_parameters()), torch.randn_like(x)

    def loss(parameters, picture):
        return functional_call(layer, parameters, (picture[None],)).square().sum()

    layer(x).square().sum().backward()
    for name, one_per_picture in vmap(grad(loss), (None, 0))(parameters, x).items():
        torch.testing.assert_close(one_per_picture.sum(0), layer.get_parameter(name).grad)
    y, change = jvp(layer, (x,), (tangent,))
    torch.testing.assert_close((y, change), (layer(x), layer(tangent) - layer.bias))


def test_no_memory_is_needed_to_know_the_shape():
    with torch.device("meta"):
        layer = LocallyConnected2d(64, 64, 3, input_size=1000, padding=1)
        assert layer(torch.empty(2, 64, 1000, 1000)).shape == (2, 64, 1000, 1000)


def test_print_shows_what_it_was_made_of():
    assert str(LocallyConnected2d(64, 32, 3, (6, 6), padding=1)) == (
        "LocallyConnected2d(64, 32, kernel_size=(3, 3), input_size=(6, 6), stride=(1, 1), padding=(1, 1))"
    )
    assert str(LocallyConnected2d(1, 2, (3, 2), 6, (2, 1), bias=False)) == (
        "LocallyConnected2d(1, 2, kernel_size=(3, 2), input_size=(6, 6), stride=(2, 1), bias=False)"
    )


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.ones(2, 3, 6, 6), r"shape \(2, 3, 6, 6\) and torch.float32, but this layer takes \(N, 4, 6, 6\)"),
        (torch.ones(2, 4, 6, 7), "so pictures of another size need another layer"),
        (torch.ones(4, 6, 6), r"shape \(4, 6, 6\)"),
        (torch.ones(2, 4, 6, 6, dtype=torch.float64), "torch.float64, but this layer takes .* torch.float32"),
        (torch.ones(2, 4, 6, 6, dtype=torch.int64), "torch.int64, but this layer takes .* torch.float32"),
    ],
)
def test_bad_inputs_are_named(x, message):
    with pytest.raises(ValueError, match=message):
        LocallyConnected2d(4, 3, 3, input_size=(6, 6))(x)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((4, 3, 7, 6), r"kernel of size \(7, 7\) is larger than an input of size \(6, 6\) with padding \(0, 0\)"),
        ((4, 3, (1, 9), 6, 1, 1), r"kernel of size \(1, 9\) is larger"),
        ((0, 3, 3, 6), "in_channels is 0, but it is an integer of at least 1"),
        ((4, 2.0, 3, 6), r"out_channels is 2\.0"),
        ((4, 3, 0, 6), "kernel_size is 0"),
        ((4, 3, 3, (6, 6, 6)), r"input_size is \(6, 6, 6\), but it takes an integer or \(height, width\)"),
        ((4, 3, 3, "6"), "input_size is '6'"),
        ((4, 3, 3, 6, 0), "stride is 0"),
        ((4, 3, 3, 6, 1, -1), "padding is -1, but it is an integer of at least 0"),
        ((4, 3, 3, 6, 1, True), "padding is True"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        LocallyConnected2d(*arguments)


def test_what_is_no_tensor_is_named():
    with pytest.raises(TypeError, match="the input is a list, but it takes a tensor"):
        LocallyConnected2d(1, 1, 3, 5)([1.0])
