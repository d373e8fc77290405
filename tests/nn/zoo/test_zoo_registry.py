from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from evodrop.nn import zoo
from evodrop.nn.zoo import ZOO


def test_every_name_has_a_class_and_its_line_a_word_about_the_noise():
    lines = Path(zoo.__file__).read_text(encoding="utf-8").splitlines()
    for name, cls in ZOO.items():
        assert issubclass(cls, nn.Module)
        assert any(line.startswith(f'    "{name}": ') and f"{cls.__name__},  # " in line for line in lines)


def test_only_layers_and_two_helpers_are_exported():
    layers = [name for name in zoo.__all__ if name not in ("ZOO", "penalties")]
    assert len(layers) == len(zoo.__all__) - 2
    assert all(issubclass(getattr(zoo, name), nn.Module) for name in layers)


@pytest.mark.parametrize(("name", "variance"), [("standard", 1 / 3), ("uniform", 15 / 12)])
def test_the_variances_of_the_table(name, variance):
    """p/(1-p) at p = 1/4, and (d - 1)/k of 16 units and 12 draws."""
    torch.manual_seed(0)
    squares = (ZOO[name](0.25)(torch.ones(20_000, 16, dtype=torch.float64)) - 1).square()
    per_row = squares.mean(1)  # units of one row compete
    assert abs(per_row.mean() - variance) < 5 * per_row.std() / 20_000**0.5
