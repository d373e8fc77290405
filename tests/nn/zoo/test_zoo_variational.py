from __future__ import annotations

import pytest
import torch
from helpers.five_errors import assert_moments
from torch import nn

from evodrop.nn.zoo import Place, VariationalDropout, penalties
from evodrop.nn.zoo.alpha import kl_divergence

ROW = torch.tensor([-2.0, 0.0, 0.5, 3.0], dtype=torch.float64)


def with_alphas(*alphas):
    layer = VariationalDropout(0.5, per="unit", units=len(alphas)).double()
    layer.log_alpha.data = torch.tensor(alphas, dtype=torch.float64).log()
    return layer


@pytest.mark.parametrize("p", [0.1, 0.4, 0.5])
def test_mean_and_variance_per_layer(p):
    draws = VariationalDropout(p).double()(ROW.expand(100_000, 4)).detach()
    assert_moments(draws, ROW, p / (1 - p) * ROW.square())


def test_mean_and_variance_per_unit():
    alphas = torch.tensor([0.01, 0.5, 1.0, 0.2], dtype=torch.float64)
    draws = with_alphas(*alphas)(ROW.expand(100_000, 4)).detach()
    assert_moments(draws, ROW, alphas * ROW.square())


def test_alpha_is_at_most_one():
    assert VariationalDropout(0.9).alpha == 1
    assert with_alphas(7.0, 0.5).alpha.tolist() == pytest.approx([1.0, 0.5])


def test_units_follow_unit_dims():
    x = torch.ones(1000, 3, 4, 5)
    whole, channels = VariationalDropout(per="unit", units=60), VariationalDropout(per="unit", units=3, unit_dims=1)
    channels.log_alpha.data = torch.tensor([-100.0, 0.0, 0.0])  # no noise in the first channel, and much in the others
    assert whole(x).shape == x.shape
    y = channels(x)
    assert (y[:, 0] == 1).all()
    assert (y[:, 1:] != 1).all()
    with pytest.raises(ValueError, match=r"each of 3 units, but an input of shape \(1000, 3, 4, 5\) has 60"):
        VariationalDropout(per="unit", units=3)(x)


def test_the_penalty_is_one_divergence_per_unit():
    layer = with_alphas(0.1, 0.9, 5.0)
    expected = kl_divergence(torch.tensor([0.1, 0.9, 1.0], dtype=torch.float64).log()).sum()
    torch.testing.assert_close(layer.penalty(), expected)
    one = VariationalDropout(0.2, units=7)
    torch.testing.assert_close(one.penalty(), 7 * kl_divergence(torch.tensor(0.25).log()))


def test_a_layer_that_is_used_in_many_places_counts_for_its_widest():
    layer = VariationalDropout(0.2)
    with pytest.raises(RuntimeError, match="needs the number of units: give units, or train on a batch"):
        layer.penalty()
    for width in (3, 8, 5):
        layer(torch.ones(2, width))
    torch.testing.assert_close(layer.penalty(), 8 * kl_divergence(torch.tensor(0.25).log()))


def test_alpha_is_learned_from_both_sides():
    layer = with_alphas(0.3, 0.3)
    layer(torch.tensor([[1.0, 100.0]], dtype=torch.float64).expand(1000, 2)).square().mean().backward()
    assert (layer.log_alpha.grad > 0).all()  # the loss falls with less noise
    layer.zero_grad()
    layer.penalty().backward()
    assert (layer.log_alpha.grad < 0).all()  # the penalty with more


def test_noise_that_helps_is_kept_and_noise_that_hurts_is_shed():
    """A unit that tells the target sheds its noise, one that only disturbs takes all it can."""
    layer, weight = VariationalDropout(0.5, per="unit", units=2), torch.tensor([1.0, 0.0])
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.1)
    x = torch.randn(500, 2)
    for _ in range(100):
        optimizer.zero_grad()
        loss = 50 * (layer(x) @ weight - x @ weight).square().mean() + penalties(layer) / len(x)
        loss.backward()
        optimizer.step()
    assert layer.alpha[0] < 0.05
    assert layer.alpha[1] > 0.95


@pytest.mark.parametrize(
    ("before", "between", "after", "units", "unit_dims"),
    [
        (nn.Linear(3, 8), (), nn.Linear(8, 2), 8, -1),
        (nn.Conv2d(3, 4, 3), (nn.MaxPool2d(2),), nn.Conv2d(4, 2, 3), 4, 1),
        (nn.Conv2d(3, 4, 3), (nn.Flatten(),), nn.Linear(36, 2), 36, None),
        (nn.Conv2d(3, 4, 3), (nn.MaxPool2d(2), nn.Flatten()), nn.Linear(36, 2), 4, 1),
        (nn.Linear(3, 8), (), None, 8, -1),
        (nn.Conv2d(3, 4, 3), (), None, 4, 1),
    ],
)
def test_the_neighbours_tell_the_units(before, between, after, units, unit_dims):
    place = VariationalDropout.fit_in(Place(before, nn.Dropout(0.2), after, between), per="unit")
    assert (place.before, place.after) == (before, after)
    assert (place.dropout.p, place.dropout.units, place.dropout.unit_dims) == (0.2, units, unit_dims)


def test_options_are_checked():
    with pytest.raises(ValueError, match="per is 'weight', but an alpha is learned per one of 'layer', 'unit'"):
        VariationalDropout(per="weight")
    for units in (None, 0, 2.5, True):
        with pytest.raises(ValueError, match=f"units is {units}, but"):
            VariationalDropout(per="unit", units=units)
    with pytest.raises(ValueError, match="units is None"):
        VariationalDropout.fit_in(Place(None, nn.Dropout(0.2), None), per="unit")
    with pytest.raises(TypeError, match="a list"):
        VariationalDropout()([1.0])


def test_print_shows_what_is_learned():
    assert str(VariationalDropout(0.2)) == "VariationalDropout(p=0.2, per='layer')"
    assert str(VariationalDropout(0.2, per="unit", units=3, unit_dims=1)) == (
        "VariationalDropout(p=0.2, per='unit', units=3, unit_dims=1)"
    )
