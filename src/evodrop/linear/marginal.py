"""Logistic regression with the dropout noise integrated out: no random number, one minimum to find by L-BFGS.

The estimator knows scikit-learn; what it minimises stands in :mod:`evodrop.linear.objectives`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from evodrop.definitions import sampling_probabilities
from evodrop.linear.logistic import MarginalClassifier
from evodrop.linear.objectives import (
    Floats,
    Loss,
    Noise,
    bernoulli_variance,
    gaussian_loss,
    matched_draws,
    multinomial_variance,
    quadratic_loss,
)
from evodrop.linear.parameters import LOGISTIC_PARAMETERS

__all__ = ["DropoutLogisticRegression"]

LOSSES = {"multinomial": quadratic_loss, "bernoulli": quadratic_loss, "gaussian": gaussian_loss}


class DropoutLogisticRegression(MarginalClassifier):
    """Logistic regression on the expected loss of dropout noise; several classes one against the rest.

    The expectation of Proposition 1 is approximated in closed form, so a fit draws nothing and repeats exactly. For
    labels y = -1 or 1, scores z = w.x + b, the logistic function s and weights c that sum to 1 it minimises ::

        sum_j c_j (log(1 + exp(-y_j z_j)) + V_j s(z_j) (1 - s(z_j)) / 2) + alpha / 2 ||w||^2

    by L-BFGS from zero, where V_j is the variance that the noise gives z_j (Eq. (4), with s for the paper's q). This is
    not convex, and V s (1 - s) falls to 0 as scores grow: where the classes can be separated and ``alpha`` is 0, the
    weights grow until the gradient is below ``tol``. Set ``alpha``, or take ``noise="gaussian"``.

    Args:
        noise: ``"multinomial"``: data-dependent dropout, V = (sum_i x_i^2 w_i^2 / p_i - (w.x)^2) / k (Eq. (5)), with
            probabilities p_i that follow sqrt(E x_i^2). ``"bernoulli"``: standard dropout,
            V = sum_i x_i^2 w_i^2 rate / (1 - rate) (Wager et al., 2013). ``"gaussian"``: the same V for a score that is
            taken as normal, with its expected loss exact to ten digits (Wang and Manning, 2013); it is convex, and with
            a rate above 0 its minimum is finite.
        rate: the fraction dropped, in [0, 1).
        k: number of draws of multinomial noise, instead of the number that ``rate`` and ``match`` give.
        match: what k is matched to: ``"draws"``, ``"distinct"`` or ``"noise"``, see :mod:`evodrop.noise`.
        alpha: strength of the L2 penalty.
        fit_intercept: whether to fit b, which gets no noise and no penalty.
        max_iter: most iterations, for each class.
        tol: the search ends where no entry of the gradient is larger.
        class_weight: a dict of weights, or ``"balanced"``; they multiply ``sample_weight``.
        warm_start: start from the last fit, if it had the same classes and number of features.
        n_jobs: number of threads, each with a class of its own.
        verbose: 1 prints a line for each class.

    Attributes:
        classes_: the labels, sorted.
        coef_, intercept_: w and b, a row for each class, or a single one for two classes.
        n_iter_, objective_: iterations and least value, one for each row.
        probs_: sampling probabilities of multinomial noise (all 0 if X is), else keep probabilities.
        k_: number of draws, or None where there is none.
        n_features_in_: number of features.

    Examples:
        >>> X = np.array([[3.0, 0.0], [2.0, 1.0], [0.0, 2.0], [1.0, 1.0]])
        >>> model = DropoutLogisticRegression(alpha=0.01).fit(X, ["a", "a", "b", "b"])
        >>> model.k_, model.probs_.round(2)
        (1, array([0.6, 0.4]))
        >>> model.predict([[3.0, 0.5]])
        array(['a'], dtype='<U1')
    """

    _parameter_constraints = LOGISTIC_PARAMETERS

    def __init__(
        self,
        *,
        noise: str = "multinomial",
        rate: float = 0.5,
        k: int | None = None,
        match: str = "draws",
        alpha: float = 1e-6,
        fit_intercept: bool = True,
        max_iter: int = 1000,
        tol: float = 1e-6,
        class_weight: dict[Any, float] | str | None = None,
        warm_start: bool = False,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.noise, self.rate, self.k, self.match = noise, rate, k, match
        self.alpha, self.fit_intercept, self.class_weight = alpha, fit_intercept, class_weight
        self.max_iter, self.tol, self.warm_start = max_iter, tol, warm_start
        self.n_jobs, self.verbose = n_jobs, verbose

    def _check_options(self) -> None:
        if self.k is not None and (self.noise, self.match) != ("multinomial", "draws"):
            raise ValueError(
                f"k is {self.k!r} with noise {self.noise!r} and match {self.match!r}, but it is for multinomial noise "
                "whose draws nothing else chooses; leave k out, or set noise='multinomial' and match='draws'"
            )

    def _law(self, moments: Floats) -> tuple[Noise, Loss]:
        self.k_: int | None = None
        if self.noise != "multinomial":
            self.probs_ = np.full(len(moments), 1.0 - self.rate)
            return bernoulli_variance(len(moments), self.rate), LOSSES[self.noise]
        self.probs_ = sampling_probabilities(moments) if moments.any() else moments
        self.k_ = matched_draws(self.match, self.probs_, moments, self.rate) if self.k is None else int(self.k)
        return multinomial_variance(self.probs_, np.inf if self.k_ is None else self.k_), LOSSES[self.noise]
