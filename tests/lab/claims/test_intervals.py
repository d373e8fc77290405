from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from evodrop.lab.summary import Interval, interval, relative_change


def test_the_interval_is_students():
    values = [0.021, 0.025, 0.019, 0.024]
    expected = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    found = interval(values)
    assert (found.low, found.high) == pytest.approx(expected, rel=1e-12)
    assert found.mean == pytest.approx(0.02225)
    assert found.half_width == pytest.approx((expected[1] - expected[0]) / 2)


def test_two_values_by_hand():
    """t(0.975, 1) is 12.706, and the standard error of 1 and 3 is 1."""
    assert interval([1.0, 3.0]) == pytest.approx((2.0, 2 - 12.7062047, 2 + 12.7062047, 2))


def test_equal_values_have_an_interval_of_a_point():
    assert interval([0.5, 0.5, 0.5]) == Interval(0.5, 0.5, 0.5, 3)


@pytest.mark.parametrize("missing", [None, math.nan, math.inf])
def test_a_missing_value_is_not_left_out(missing):
    assert interval([0.5, missing, 0.7]) == Interval(None, None, None, 3)


def test_one_value_has_a_mean_but_no_interval_and_none_has_neither():
    assert interval([0.5]) == Interval(0.5, None, None, 1)
    assert interval([0.5]).half_width is None
    assert interval([]) == Interval(None, None, None, 0)


def test_the_interval_covers_as_often_as_it_says():
    """Of 4000 intervals of 3 normal values, the share that holds the mean is 0.95 within 4 standard errors."""
    draws = np.random.default_rng(0).normal(size=(4000, 3))
    found = [interval(row) for row in draws.tolist()]
    share = np.mean([item.low <= 0 <= item.high for item in found])
    assert abs(share - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 4000)


def test_a_change_is_that_of_the_means():
    change = relative_change([2.0, 1.0], [4.0, 1.0])
    assert change.mean == pytest.approx(3 / 5 - 1)
    assert change.low < change.mean < change.high
    assert relative_change([0.0, 1.0], [2.0, 0.0]).mean == pytest.approx(-0.5)  # a 0 on either side does no harm
    for own, theirs in (([2.0, None], [1.0, 1.0]), ([2.0, 1.0], [1.0, None]), ([0.1], [0.0]), ([], [])):
        assert relative_change(own, theirs) == Interval(None, None, None, len(own))
    assert relative_change([2.0], [4.0]) == Interval(-0.5, None, None, 1)


def test_a_change_is_not_biased_and_its_interval_covers_nearly_as_often_as_it_says():
    """Of pairs that vary by a tenth, alike within a pair: a mean of ratios would be too large by a hundredth."""
    rng = np.random.default_rng(1)
    theirs = 1.0 + 0.1 * rng.normal(size=(4000, 5))
    own = 0.8 * (1.0 + 0.1 * rng.normal(size=(4000, 5)))
    found = [relative_change(*pair) for pair in zip(own.tolist(), theirs.tolist(), strict=True)]
    means = np.array([item.mean for item in found])
    ratios = (own / theirs - 1.0).mean(axis=1)
    assert abs(means.mean() + 0.2) < 0.5 * abs(ratios.mean() + 0.2)
    share = np.mean([item.low <= -0.2 <= item.high for item in found])
    assert abs(share - 0.95) < 0.01
