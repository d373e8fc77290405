from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
import torch
from torch import nn

import evodrop.linear
from evodrop.linear._fit import DROPOUTS
from evodrop.nn.zoo import LINEAR, ZOO, About, about, rooms
from evodrop.nn.zoo.registry import ABOUTS

X, Y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2


@pytest.mark.parametrize("name", ZOO)
def test_every_name_has_a_class_and_a_full_row(name):
    row = about(name)
    assert issubclass(ZOO[name], nn.Module)
    assert row.name == name
    assert all(getattr(row, field.name) for field in fields(About))
    assert 2012 <= row.year <= 2026
    assert "nn" in rooms(name)


@pytest.mark.parametrize("name", LINEAR)
def test_the_linear_models_have_what_the_table_says(name):
    model = eval(LINEAR[name], vars(evodrop.linear))
    assert model.fit(X, Y).coef_.shape == (1, 3)


def test_no_dropout_of_the_linear_models_is_missing():
    assert set(DROPOUTS) - {"none"} <= set(LINEAR)
    assert set(LINEAR) - {"gaussian"} <= set(ZOO)


def test_rows_stand_beside_classes_that_have_none():
    assert not any(hasattr(cls, "about") for cls in ABOUTS)
    with pytest.raises(ValueError, match="dropout 'none' is not in the zoo; it has"):
        about("none")


@pytest.mark.parametrize(("name", "variance"), [("standard", 1 / 3), ("uniform", 15 / 12)])
def test_the_variances_of_the_rows(name, variance):
    """p/(1-p) at p = 1/4, and (d - 1)/k of 16 units and 12 draws."""
    torch.manual_seed(0)
    squares = (ZOO[name](0.25)(torch.ones(20_000, 16, dtype=torch.float64)) - 1).square()
    per_row = squares.mean(1)  # units of one row compete
    assert abs(per_row.mean() - variance) < 5 * per_row.std() / 20_000**0.5
