from __future__ import annotations

import numpy as np
import pytest
import torch

from evodrop._checks import checked_integer, checked_keep, checked_masses, checked_rate, namespace


@pytest.mark.parametrize("rate", [0, 0.5, np.float32(0.25), 0.999])
def test_a_rate_is_a_float(rate):
    assert checked_rate(rate) == rate
    assert type(checked_rate(rate)) is float


def test_a_closed_range_takes_1():
    assert checked_rate(1, closed=True) == 1.0
    with pytest.raises(ValueError, match=r"dropout rate is 1, but it takes a number in \[0, 1\)"):
        checked_rate(1)


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan"), "0.5", None, [0.5]])
def test_bad_rates_are_named(rate):
    with pytest.raises(ValueError, match=r"dropout rate is .*, but it takes a number in \[0, 1\]"):
        checked_rate(rate, closed=True)


@pytest.mark.parametrize("value", [True, 2.0, "3", None, 0, 11])
def test_what_is_no_integer_of_the_range_is_named(value):
    with pytest.raises(ValueError, match=f"k is {value!r}, but the number of draws is an integer from 1 to 10"):
        checked_integer(value, "k", "the number of draws", most=10)
    assert type(checked_integer(np.int64(10), "k", most=10)) is int


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_masses_and_keep_probabilities(kind):
    good = kind([0.0, 0.5, 1.0])
    assert checked_masses(good, "probs").tolist() == checked_keep(good).tolist() == [0.0, 0.5, 1.0]
    assert namespace(good) is (torch if kind is torch.tensor else np)
    for bad, message in (
        ([0.5, -1.0], r"probs\[1\] is -1.0, but probs are finite and not negative"),
        ([0.0, 0.0], "probs are all zero"),
        ([[1.0]], r"probs has shape \(1, 1\)"),
    ):
        with pytest.raises(ValueError, match=message):
            checked_masses(kind(bad), "probs")
    with pytest.raises(ValueError, match=r"keep has a value of 1\.5"):
        checked_keep(kind([0.5, 1.5]))
