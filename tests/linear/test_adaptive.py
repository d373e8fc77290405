from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy import integrate, sparse
from scipy.special import expit
from scipy.stats import beta
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from evodrop._kernels.expected_loss import BOUND, SCALES, expected_loss
from evodrop.definitions import bernoulli_noise
from evodrop.linear import AdaptiveRateLogisticRegression
from evodrop.linear.adaptive import infer_rates, posterior
from evodrop.linear.logistic import Problem

X, Y = make_classification(n_samples=120, n_features=8, n_informative=4, flip_y=0.2, random_state=0)
X3, Y3 = make_classification(n_samples=150, n_features=8, n_informative=5, n_classes=3, flip_y=0.1, random_state=0)


def prior_of(rate, concentration):
    """Beta(a, b) as the estimator takes it."""
    return concentration * rate, 1.0 + concentration * (1.0 - rate)


def problem_of(X, labels, spread=0.0):
    n, d = X.shape
    rows = sparse.csr_array(X), (labels > 0).astype(int), np.full(n, 1 / n), np.zeros(n), np.array([1])
    return Problem(*rows, 0.0, True, np.broadcast_to(spread, d)[:, None])


def infer(problem, start, tol, max_iter, *settings):
    """What infer_rates finds: the point, the value, and the variance of each rate's noise."""
    found, _, variance = infer_rates(problem, start[:, None], tol, max_iter, lambda *_: False, *settings)
    return found.points[:, 0], found.values[0], variance


def bound_loss(margins, variances):
    work = np.empty((3, len(SCALES)))
    found = [expected_loss(BOUND, *pair, work) for pair in zip(margins, variances, strict=True)]
    return np.transpose(found)


@parametrize_with_checks(
    [AdaptiveRateLogisticRegression(), AdaptiveRateLogisticRegression(groups="all", class_weight="balanced")]
)
def test_scikit_learn_has_nothing_to_object(estimator, check):
    check(estimator)


@pytest.mark.parametrize("variance", [0.0, 1e-6, 0.3, 40.0])
def test_the_bound_is_one_whatever_the_law(variance):
    """For a margin of two values with this mean and variance, at any chance of the first; it is tight without noise."""
    margins = np.array([-40.0, -3.0, 0.0, 0.2, 5.0, 60.0])
    value, slope, bend = bound_loss(margins, np.full(6, variance))
    for chance in (0.01, 0.3, 0.5, 0.9):
        up, down = np.sqrt(variance * (1 - chance) / chance), np.sqrt(variance * chance / (1 - chance))
        mean = chance * np.logaddexp(0, -margins - up) + (1 - chance) * np.logaddexp(0, -margins + down)
        assert (value >= mean * (1 - 1e-13)).all()
    if variance == 0:
        np.testing.assert_allclose(value, np.logaddexp(0, -margins), rtol=1e-12)
        np.testing.assert_allclose(slope, -expit(-margins), atol=1e-15)
    step = 1e-4
    ahead, behind = (bound_loss(margins + sign * step, np.full(6, variance))[0] for sign in (1, -1))
    np.testing.assert_allclose(slope, (ahead - behind) / (2 * step), atol=1e-8)
    ahead = bound_loss(margins, np.full(6, variance + step))[0]
    np.testing.assert_allclose(bend, (ahead - value) / step, atol=2e-6)


def test_the_objective_bounds_the_marginal_likelihood():
    """Monte Carlo over rates and masks: -log E prod_j p(y_j) <= n F, with the standard error of the mean."""
    rng = np.random.default_rng(0)
    x, y = X[:6, :3], np.where(Y[:6] == 1, 1.0, -1.0)
    w, prior, size = np.array([0.5, -0.3, 0.2]), prior_of(0.4, 2.0), 200_000
    rates = rng.beta(*prior, size=(size, 3))
    likelihood = np.ones(size)
    for row, label in zip(x, y, strict=True):
        kept = rng.random((size, 3)) >= rates
        likelihood *= expit(label * ((kept / (1 - rates)) @ (row * w)))
    evidence, error = likelihood.mean(), likelihood.std() / np.sqrt(size)
    point, value, _ = infer(problem_of(x, y), np.append(w, 0.0), 1e9, 1, prior, np.arange(3), 6.0)
    np.testing.assert_array_equal(point[:3], w)  # a tolerance so large that the weights stay
    bound = 6 * value
    assert bound > -np.log(evidence + 5 * error)
    assert bound < -np.log(evidence) + 0.5  # and it is not an empty one


def test_no_turn_makes_the_objective_larger():
    labels, prior = np.where(Y == 1, 1.0, -1.0), prior_of(0.5, 2.0)
    settings = prior, np.arange(8), 120.0
    values = [infer(problem_of(X, labels), np.zeros(9), 1e-9, most, *settings)[1] for most in range(1, 30, 4)]
    assert (np.diff(values) <= 1e-12).all()
    assert values[-1] < values[0] - 1e-3


def test_the_end_is_stationary_in_weights_and_rates():
    labels, prior = np.where(Y == 1, 1.0, -1.0), prior_of(0.5, 2.0)
    end, _, spread = infer(problem_of(X, labels), np.zeros(9), 1e-8, 1000, prior, np.arange(8), 120.0)
    w = end[:-1]
    assert abs(problem_of(X, labels, spread).objective(end[:, None])[1]).max() < 1e-8
    bend = bound_loss(labels * (X @ w + end[-1]), (X**2) @ (spread * w * w))[2]
    costs = w * w * ((X**2).T @ bend)  # by its definition, without weights 1 / n and the total
    np.testing.assert_allclose(spread, posterior(prior, costs).variance, rtol=1e-5)


def test_a_firm_prior_is_dropout_at_a_fixed_rate():
    labels = np.where(Y == 1, 1.0, -1.0)
    fixed = problem_of(X, labels, 0.3 / 0.7).search(np.zeros((9, 1)), 1e-9, 1000).points[:-1, 0]
    model = AdaptiveRateLogisticRegression(rate=0.3, concentration=1e9, tol=1e-9).fit(X, Y)
    np.testing.assert_allclose(model.coef_[0], fixed, atol=1e-5)
    np.testing.assert_allclose(model.rate_, 0.3, rtol=1e-5)
    noise = bernoulli_noise(np.full(8, 0.7), 20_000, np.random.default_rng(0))
    scores = noise @ (X[0] * fixed)
    expected = (X[0] ** 2 * fixed**2 * model.variance_[0]).sum()
    error = ((scores - scores.mean()) ** 2).std() / np.sqrt(20_000)
    assert abs(scores.var() - expected) < 5 * error


def test_needed_features_get_low_rates():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 20))
    y = x[:, :4] @ np.array([2.0, 1.0, 0.5, 0.25]) + rng.logistic(size=2000) > 0
    rates = AdaptiveRateLogisticRegression(concentration=2.0).fit(x, y).rate_[0]
    assert (np.diff(rates[:4]) > 0).all()
    assert rates[2] < 0.05
    assert rates[4:].min() > 4 * rates[2]
    assert rates[4:].mean() > 0.29  # the prior has 1/3


def test_more_examples_of_the_same_kind_leave_less_noise():
    few = AdaptiveRateLogisticRegression().fit(X, Y)
    many = AdaptiveRateLogisticRegression().fit(X, Y, sample_weight=np.full(120, 10.0))
    assert many.variance_.sum() < 0.9 * few.variance_.sum()


def test_groups_share_a_rate():
    one = AdaptiveRateLogisticRegression(groups="all").fit(X, Y)
    assert np.ptp(one.rate_) == 0
    two = AdaptiveRateLogisticRegression(groups=[0, 0, 0, 0, 1, 1, 1, 1]).fit(X, Y)
    assert np.ptp(two.rate_[0, :4]) == np.ptp(two.rate_[0, 4:]) == 0
    assert two.rate_[0, 0] != two.rate_[0, 4]
    alone = AdaptiveRateLogisticRegression(groups=np.zeros(8, int), tol=1e-9).fit(X, Y)
    np.testing.assert_allclose(alone.coef_, clone(one).set_params(tol=1e-9).fit(X, Y).coef_)


def test_several_classes_have_rates_of_their_own():
    model = AdaptiveRateLogisticRegression(tol=1e-8).fit(X3, Y3)
    assert model.rate_.shape == model.variance_.shape == model.coef_.shape == (3, 8)
    for label in range(3):
        alone = AdaptiveRateLogisticRegression(tol=1e-8).fit(X3, label == Y3)
        np.testing.assert_allclose(alone.rate_[0], model.rate_[label], rtol=1e-9)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X3), model.predict_proba(X3))
    assert model.score(X3, Y3) > 0.6


def test_it_beats_plain_logistic_regression_at_any_prior():
    """Documents of a long-tailed law; the rate that is believed at first hardly matters."""
    rng = np.random.default_rng(1)
    common = 1.0 / np.arange(5, 605)
    laws = [common * np.exp(sign * 0.5 * np.random.default_rng(7).choice([-1.0, 1.0], 600)) for sign in (1, -1)]
    y = rng.integers(0, 2, size=1500)
    x = sparse.csr_array(np.stack([rng.multinomial(30, laws[label] / laws[label].sum()) for label in y]), dtype=float)
    plain = LogisticRegression(C=np.inf, max_iter=10_000).fit(x[:300], y[:300])
    for rate in (0.2, 0.5, 0.8):
        model = AdaptiveRateLogisticRegression(rate=rate).fit(x[:300], y[:300])
        assert 1 - model.score(x[300:], y[300:]) < 0.95 * (1 - plain.score(x[300:], y[300:]))


def test_a_warm_start_has_little_left_to_do():
    model = AdaptiveRateLogisticRegression(warm_start=True).fit(X, Y)
    before = model.n_iter_[0]
    assert model.fit(X, Y).n_iter_[0] < before


def test_too_few_iterations_warn():
    with pytest.warns(ConvergenceWarning, match=r"L-BFGS did not converge in 2 iterations for the classes \[1\]"):
        AdaptiveRateLogisticRegression(max_iter=2).fit(X, Y)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"rate": 0.0}, "'rate' parameter"),
        ({"rate": 1.0}, "'rate' parameter"),
        ({"concentration": 0.5}, "'concentration' parameter"),
        ({"groups": "each"}, "'groups' parameter"),
        ({"groups": [0, 1]}, r"groups has shape \(2,\) and int64, but it takes one integer from 0 to 7"),
        ({"groups": [-1] * 8}, r"int64 from -1 to -1, but it takes one integer from 0 to 7"),
        ({"groups": [0.5] * 8}, "groups has shape"),
    ],
)
def test_bad_parameters_are_named(params, message):
    with pytest.raises(ValueError, match=message):
        AdaptiveRateLogisticRegression(**params).fit(X, Y)


def test_several_classes_may_all_take_every_iteration():
    with pytest.warns(ConvergenceWarning, match=r"for the classes \[0, 1, 2\]"):
        assert (AdaptiveRateLogisticRegression(max_iter=3).fit(X3, Y3).n_iter_ == 3).all()


def test_a_callback_ends_all_turns():
    labels, settings = np.where(Y == 1, 1.0, -1.0), (prior_of(0.5, 2.0), np.arange(8), 120.0)
    start = np.zeros((9, 1))
    assert infer_rates(problem_of(X, labels), start, 1e-8, 100, lambda *_: True, *settings)[0].n_iter[0] == 1


# What data say of a rate.

COSTS = np.array([1e-3, 0.1, 1.0, 30.0, 1e3])


def means(prior, cost):
    """The normaliser over the prior, the mean of r and of r / (1 - r), by adaptive quadrature in log v."""
    a, b = prior
    density = lambda t: np.exp(a * t - (a + b) * np.logaddexp(0, t) - cost * np.exp(t))  # noqa: E731
    ends = (-60 / min(a, 1.0), np.log(800 / cost))
    integral = lambda f: integrate.quad(f, *ends, epsabs=0, epsrel=1e-12, limit=2000, points=[-20, -5, 0])[0]  # noqa: E731
    total, start = integral(density), integrate.quad(lambda r: beta.pdf(r, a, b), 0, 1)[0]
    assert start == pytest.approx(1)
    rate = integral(lambda t: density(t) / (1 + np.exp(-t))) / total
    return total, rate, integral(lambda t: density(t) * np.exp(t)) / total


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("concentration", [1.0, 2.0, 10.0])
def test_means_and_divergence_are_integrals(rate, concentration):
    prior = prior_of(rate, concentration)
    found = posterior(prior, COSTS)
    for i, cost in enumerate(COSTS):
        total, mean_rate, variance = means(prior, cost)
        assert found.rate[i] == pytest.approx(mean_rate, rel=1e-6)
        assert found.variance[i] == pytest.approx(variance, rel=1e-6)
        evidence = total * beta(*prior).pdf(0.5) / 0.5 ** (sum(prior) - 2)  # the constant of the Beta law
        assert found.divergence[i] == pytest.approx(-cost * variance - np.log(evidence), rel=1e-6, abs=1e-9)


def test_what_costs_nothing_stays_at_the_prior():
    found = posterior((3.0, 5.0), np.zeros(2))
    np.testing.assert_array_equal(found.variance, [0.75, 0.75])
    np.testing.assert_allclose(found.rate, [0.375, 0.375], rtol=1e-9)
    np.testing.assert_array_equal(found.divergence, [0.0, 0.0])


@pytest.mark.parametrize("rate", [0.01, 0.3, 0.99])
def test_the_prior_has_the_noise_of_dropout_at_its_rate(rate):
    a, b = prior_of(rate, 7.0)
    assert a / (b - 1) == pytest.approx(rate / (1 - rate))


def test_what_costs_much_is_a_gamma_law():
    """For a large cost s only small v matter, where the density is v^(a - 1) exp(-(s + a + b) v)."""
    found = posterior((2.0, 3.0), np.array([1e6]))
    assert found.variance[0] == pytest.approx(2.0 / 1e6, rel=1e-4)


def test_the_slope_of_the_divergence_is_the_cost():
    """d KL / d E[v] = -s: so the turn of the rates solves its problem."""
    costs = np.array([4.999, 5.0, 5.001])
    found = posterior(prior_of(0.5, 4.0), costs)
    slope = np.diff(found.divergence[::2]) / np.diff(found.variance[::2])
    assert slope[0] == pytest.approx(-5.0, rel=1e-6)


def test_a_firm_prior_keeps_its_rate():
    found = posterior(prior_of(0.3, 1e9), np.array([0.0, 100.0]))
    np.testing.assert_allclose(found.variance, 3 / 7, rtol=1e-6)
    np.testing.assert_allclose(found.rate, 0.3, rtol=1e-6)
