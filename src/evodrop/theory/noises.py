"""The two kinds of dropout noise as values.

Both have mean 1 and, for some ``spread`` and ``shared``,

    Cov(x * noise) = diag(spread_i x_i^2) - shared x x'

with spread_i = 1 / (k p_i), shared = 1 / k for multinomial and spread_i = 1 / pi_i - 1, shared = 0 for Bernoulli noise.
Everything else in the theory follows from these two.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from math import comb, inf, log
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln, xlogy

from evodrop._checks import checked_keep
from evodrop.definitions import bernoulli_noise, multinomial_noise, survival_probabilities
from evodrop.theory.arguments import Floats, checked_draws, checked_probs

__all__ = ["BernoulliNoise", "MultinomialNoise", "Noise"]

LOG_MANY = 63 * log(2.0)
MOST_CELLS = 20_000_000  # numbers in the table of all outcomes
TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, eq=False)
class MultinomialNoise:
    """epsilon_i = m_i / (k p_i) with m ~ Mult(p; k) (Definition 1).

    Args:
        probs: (d,), the sampling probabilities. A unit with p_i = 0 is never drawn: its noise is 0.
        k: the number of draws.

    Examples:
        >>> noise = MultinomialNoise([0.5, 0.5], 2)
        >>> noise.outcomes()
        (array([[0., 2.], [1., 1.], [2., 0.]]), array([0.25, 0.5 , 0.25]))
    """

    probs: Floats
    k: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "probs", _frozen(checked_probs(self.probs)))
        object.__setattr__(self, "k", checked_draws(self.k))

    @cached_property
    def drawn(self) -> npt.NDArray[np.bool_]:
        """(d,): the units whose noise is not always 0."""
        return self.probs > 0

    @cached_property
    def survival(self) -> Floats:
        """(d,): the chance of each unit to be drawn at all."""
        survival: Floats = survival_probabilities(self.probs, self.k)
        return survival

    @cached_property
    def spread(self) -> Floats:
        """(d,): 1 / (k p_i), 0 for units that are never drawn."""
        return np.where(self.drawn, 1.0 / self.k / np.maximum(self.probs, TINY), 0.0)

    @property
    def shared(self) -> float:
        """1 / k."""
        return 1.0 / self.k

    @property
    def n_outcomes(self) -> float:
        """How many values the noise can take: C(k + d - 1, d - 1) for d units that can be drawn; inf from 2^63 on."""
        bars = int(self.drawn.sum()) - 1
        logarithm = gammaln(self.k + bars + 1.0) - gammaln(self.k + 1.0) - gammaln(bars + 1.0)
        return comb(self.k + bars, bars) if logarithm < LOG_MANY else inf

    def outcomes(self) -> tuple[Floats, Floats]:
        """Every value (n_outcomes, d) of the noise, and its probability (n_outcomes,)."""
        _check_few(self)
        probs = self.probs[self.drawn]
        bars = len(probs) - 1
        # Stars and bars: k draws in a row with bars between the units.
        places = np.array(list(combinations(range(self.k + bars), bars)), np.int64).reshape(int(self.n_outcomes), bars)
        counts = np.diff(places, prepend=-1, append=self.k + bars, axis=1) - 1.0
        log_pmf = gammaln(self.k + 1.0) + (xlogy(counts, probs) - gammaln(counts + 1.0)).sum(axis=1)
        return _scattered(counts / (self.k * probs), self.drawn), np.exp(log_pmf)

    def sample(self, size: int, rng: np.random.Generator) -> Floats:
        """(size, d): independent draws."""
        noise: Floats = multinomial_noise(self.probs, self.k, size, rng)
        return noise


@dataclass(frozen=True, eq=False)
class BernoulliNoise:
    """epsilon_i = b_i / pi_i with independent b_i ~ Bernoulli(pi_i): standard dropout where all pi_i = 1 - rate.

    Args:
        keep: (d,), the keep probabilities pi_i in [0, 1]. A unit with pi_i = 0 is never kept: its noise is 0.

    Examples:
        >>> noise = BernoulliNoise([0.5, 1.0])
        >>> noise.outcomes()
        (array([[0., 1.], [2., 1.]]), array([0.5, 0.5]))
    """

    keep: Floats
    shared = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "keep", _frozen(checked_keep(np.asarray(self.keep, np.float64))))

    @cached_property
    def drawn(self) -> npt.NDArray[np.bool_]:
        """(d,): the units whose noise is not always 0."""
        return self.keep > 0

    @property
    def survival(self) -> Floats:
        """(d,): the chance of each unit to be kept."""
        return self.keep

    @cached_property
    def spread(self) -> Floats:
        """(d,): (1 - pi_i) / pi_i, 0 for units that are never kept."""
        return np.where(self.drawn, (1.0 - self.keep) / np.maximum(self.keep, TINY), 0.0)

    @property
    def n_outcomes(self) -> float:
        """How many values the noise can take: two for each unit neither always kept nor never; inf from 2^63 on."""
        uncertain = int((self.drawn & (self.keep < 1.0)).sum())
        return 1 << uncertain if uncertain < 63 else inf

    def outcomes(self) -> tuple[Floats, Floats]:
        """Every value (n_outcomes, d) of the noise, and its probability (n_outcomes,)."""
        _check_few(self)
        keep = self.keep[self.drawn]
        kept = np.array(list(product(*[(1.0,) if certain else (0.0, 1.0) for certain in keep == 1.0])))
        return _scattered(kept / keep, self.drawn), np.where(kept > 0, keep, 1.0 - keep).prod(axis=1)

    def sample(self, size: int, rng: np.random.Generator) -> Floats:
        """(size, d): independent draws."""
        noise: Floats = bernoulli_noise(self.keep, size, rng)
        return noise


Noise: TypeAlias = MultinomialNoise | BernoulliNoise


def _check_few(noise: Noise) -> None:
    """Raise a ValueError if the table of all outcomes would not fit in memory."""
    d = len(noise.drawn)
    if noise.n_outcomes * d > MOST_CELLS:
        raise ValueError(
            f"the noise of {d} units has {noise.n_outcomes:.3g} outcomes, but a table of all takes at most "
            f"{MOST_CELLS:,} numbers; sample the noise instead"
        )


def _frozen(values: Floats) -> Floats:
    """A copy that nobody can change: a noise is a value."""
    values = values.copy()
    values.flags.writeable = False
    return values


def _scattered(values: Floats, drawn: npt.NDArray[np.bool_]) -> Floats:
    """The columns of values at the units that are drawn, 0 elsewhere."""
    whole = np.zeros((len(values), len(drawn)))
    whole[:, drawn] = values
    return whole
