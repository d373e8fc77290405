"""Each loss against its formula, against scikit-learn's, and its slope against differences of the loss."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn._loss import HalfBinomialLoss
from sklearn.linear_model import _sgd_fast

from evodrop._kernels.epoch import LOSSES, loss_and_slope

MARGINS = np.array([-800.0, -30.0, -3.0, -1.5, -1.0, -0.7, -1e-9, 0.0, 1e-9, 0.3, 0.999, 1.0, 1.001, 2.0, 30.0, 800.0])
FORMULAS = {
    "log_loss": lambda m: np.logaddexp(0.0, -m),
    "hinge": lambda m: np.maximum(0.0, 1.0 - m),
    "squared_hinge": lambda m: np.maximum(0.0, 1.0 - m) ** 2,
    "modified_huber": lambda m: np.where(m >= -1.0, np.maximum(0.0, 1.0 - m) ** 2, -4.0 * m),
}
PEERS = {"hinge": _sgd_fast.Hinge, "squared_hinge": _sgd_fast.SquaredHinge, "modified_huber": _sgd_fast.ModifiedHuber}


def values_and_slopes(loss, margins):
    return np.array([loss_and_slope(LOSSES.index(loss), float(margin)) for margin in margins]).T


@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_is_its_formula(loss):
    values, _ = values_and_slopes(loss, MARGINS)
    np.testing.assert_allclose(values, FORMULAS[loss](MARGINS), rtol=1e-15)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_slope_is_the_difference_of_the_loss(loss):
    margins = np.linspace(-4.0, 4.0, 801) + 0.0043  # no kink is within the step
    step = 1e-6
    _, slopes = values_and_slopes(loss, margins)
    differences = (FORMULAS[loss](margins + step) - FORMULAS[loss](margins - step)) / (2 * step)
    np.testing.assert_allclose(slopes, differences, rtol=0, atol=1e-8)


@pytest.mark.parametrize("loss", PEERS)
def test_losses_are_those_of_scikit_learn(loss):
    peer = PEERS[loss]()
    values, slopes = values_and_slopes(loss, MARGINS)
    np.testing.assert_allclose(values, [peer.py_loss(margin, 1.0) for margin in MARGINS], rtol=1e-15)
    kinks = MARGINS == 1.0  # scikit-learn's hinge still moves there: any slope between 0 and -1 would do
    np.testing.assert_allclose(slopes[~kinks], [peer.py_dloss(margin, 1.0) for margin in MARGINS[~kinks]], rtol=1e-15)


def test_log_loss_is_that_of_scikit_learn():
    values, slopes = values_and_slopes("log_loss", MARGINS)
    peer, ones = HalfBinomialLoss(), np.ones_like(MARGINS)
    np.testing.assert_allclose(values, peer.loss(ones, MARGINS), rtol=1e-14, atol=1e-14)  # theirs cancels digits
    np.testing.assert_allclose(slopes, peer.gradient(ones, MARGINS), rtol=1e-13)


@pytest.mark.parametrize("loss", LOSSES)
def test_losses_fall_and_are_convex(loss):
    values, slopes = values_and_slopes(loss, np.linspace(-20.0, 20.0, 4001))
    assert (np.diff(values) <= 0).all()
    assert (np.diff(slopes) >= 0).all()
    assert (slopes <= 0).all()


@pytest.mark.parametrize("loss", LOSSES)
def test_nan_stays_nan(loss):
    assert math.isnan(loss_and_slope(LOSSES.index(loss), math.nan)[0])


@pytest.mark.parametrize("loss", LOSSES)
def test_an_infinitely_wrong_margin_has_an_infinite_loss(loss):
    assert loss_and_slope(LOSSES.index(loss), -math.inf)[0] == math.inf
