from __future__ import annotations

import pytest
import torch
from torch import nn

from evodrop.nn import LocallyConnected2d
from evodrop.nn.zoo.outgoing import outgoing_squares

PICTURES = (4, 7, 6)


def by_jacobian(path, shape):
    """The derivative of every output by every unit, squared and summed: plain and slow."""
    model = nn.Sequential(*path).double().eval()
    jacobian = torch.func.jacrev(lambda x: model(x[None]))(torch.zeros(shape, dtype=torch.float64))
    return jacobian.square().sum(tuple(range(jacobian.ndim - len(shape))))


LINEAR = [  # paths through which a unit reaches each output once
    ([nn.Linear(5, 3)], (5,)),
    ([nn.Linear(5, 3)], (2, 5)),
    ([nn.Conv2d(4, 3, 3)], PICTURES),
    ([nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2)], PICTURES),
    ([nn.Conv2d(4, 3, (2, 3), padding="same")], PICTURES),
    ([LocallyConnected2d(4, 3, 3, (7, 6), stride=2, padding=1)], PICTURES),
    ([nn.Flatten(), nn.Linear(168, 3)], PICTURES),
    ([nn.AvgPool2d(2), nn.Conv2d(4, 2, 2)], PICTURES),
    ([nn.AvgPool2d((7, 2)), nn.Flatten(), nn.Identity(), nn.Linear(12, 3)], PICTURES),
    ([nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)], PICTURES),
    ([nn.AdaptiveAvgPool2d((None, 3)), nn.Flatten(), nn.Linear(84, 3)], PICTURES),
    ([nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1)], PICTURES),
    ([nn.BatchNorm1d(5, affine=False), nn.Hardtanh(), nn.Linear(5, 3)], (5,)),
]


@pytest.mark.filterwarnings("ignore:Using padding='same'")  # torch's, of an even kernel
@pytest.mark.parametrize(("path", "shape"), LINEAR, ids=[type(path[0]).__name__ for path, _ in LINEAR])
def test_it_is_the_squared_jacobian(path, shape):
    for layer in path:
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.running_var.uniform_(0.5, 2.0)
            layer.running_mean.normal_()
            if layer.affine:
                nn.init.normal_(layer.weight)
    found = outgoing_squares(path, shape)
    assert found.shape == shape
    assert not found.requires_grad
    torch.testing.assert_close(found.double(), by_jacobian(path, shape), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize(("kernel", "stride", "padding"), [(2, 2, 0), (3, 2, 0), (3, 2, 1), (2, 3, 1), (3, 1, 0)])
def test_a_maximum_counts_in_every_window_that_sees_the_unit(kernel, stride, padding, ceil_mode):
    pool = nn.MaxPool2d(kernel, stride, padding, ceil_mode=ceil_mode)
    pooled = pool(torch.zeros(1, *PICTURES)).shape[1:]
    flat = pooled.numel()
    linear = nn.Linear(flat, 2)
    found = outgoing_squares([pool, nn.ReLU(), nn.Flatten(), linear], PICTURES)
    squares = linear.weight.detach().square().sum(0).view(pooled)
    expected = torch.zeros(PICTURES)
    for i in range(pooled[1]):
        for j in range(pooled[2]):
            rows = slice(max(0, i * stride - padding), max(0, i * stride - padding + kernel))
            columns = slice(max(0, j * stride - padding), max(0, j * stride - padding + kernel))
            expected[:, rows, columns] += squares[:, i : i + 1, j : j + 1]
    torch.testing.assert_close(found, expected)


def test_pooling_of_whole_pictures():
    linear = nn.Linear(4, 2)
    found = outgoing_squares([nn.AdaptiveMaxPool2d(1), nn.Flatten(), linear], PICTURES)
    torch.testing.assert_close(found[:, 3, 2], linear.weight.detach().square().sum(0))


def test_whole_channels_of_a_convolution():
    conv = nn.Conv2d(4, 6, 3, groups=2)
    expected = torch.stack([conv.weight[:3, 0], conv.weight[:3, 1], conv.weight[3:, 0], conv.weight[3:, 1]])
    torch.testing.assert_close(outgoing_squares([conv], (4,)), expected.detach().square().sum((1, 2, 3)))


@pytest.mark.parametrize(
    ("path", "shape", "message"),
    [
        ([nn.LayerNorm(5), nn.Linear(5, 2)], (5,), "cannot follow units through LayerNorm"),
        ([nn.Softmax(1), nn.Linear(5, 2)], (5,), "cannot follow units through Softmax"),
        ([nn.Conv1d(5, 2, 1)], (5, 3), "cannot follow units through Conv1d"),
        ([nn.Linear(5, 2)], (6,), r"units of shape \(6,\) do not fit Linear"),
        ([nn.Conv2d(4, 2, 3)], (5, 6, 6), r"units of shape \(5, 6, 6\) do not fit Conv2d"),
        ([nn.Conv2d(4, 2, 3, padding=1, padding_mode="circular")], PICTURES, "do not fit Conv2d"),
        ([LocallyConnected2d(4, 2, 3, 6)], PICTURES, "do not fit LocallyConnected2d"),
        ([nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(64, 2)], PICTURES, "do not fit AdaptiveAvgPool2d"),
        ([nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)], (4,), "do not fit AdaptiveAvgPool2d"),
        ([nn.Conv2d(4, 2, 9)], PICTURES, "do not fit Conv2d"),
        ([nn.Conv2d(4, 2, 3)], (), r"units of shape \(\) do not fit Conv2d"),
        ([nn.BatchNorm1d(5), nn.Linear(5, 2)], (), r"units of shape \(\) do not fit BatchNorm1d"),
        ([nn.MaxPool2d(2), nn.Linear(5, 2)], (5,), "do not fit MaxPool2d"),
        ([nn.Flatten(0), nn.Linear(5, 2)], (5,), "do not fit Flatten"),
        ([nn.BatchNorm1d(5, track_running_stats=False), nn.Linear(5, 2)], (5,), "do not fit BatchNorm1d"),
    ],
)
def test_what_cannot_be_followed_is_named(path, shape, message):
    with pytest.raises(ValueError, match=message):
        outgoing_squares(path, shape)
