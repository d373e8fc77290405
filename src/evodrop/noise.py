"""A dropout noise on d units as a value, and the one rule that makes it from a rate.

Every dropout of the paper is two choices: the weights of the units (all alike, the roots of their second moments, or
given), and whether an example draws its units k times or keeps each of them independently.

==============  ====================  ===================
dropout         weights               ``independent``
==============  ====================  ===================
standard        None, all alike       True
uniform         None, all alike       False
data-dependent  roots of the moments  False
evolutional     the same of a batch   False
water-filling   roots of the moments  True
==============  ====================  ===================

How many draws are a fair match for a dropout rate? ``match`` names three answers.

``"draws"``: the paper's k = d (1 - rate), see :func:`evodrop.definitions.n_draws`. Draws repeat, so fewer than k units
survive, and the noise is not that of standard dropout at the same rate.
``"distinct"``: as many distinct units survive as standard dropout keeps: 1 - rate of those that can be drawn.
``"noise"``: E||x * noise||^2 is that of standard dropout, sum_i E x_i^2 / (1 - rate).

Every function takes ndarrays or Tensors and answers in kind. No value is read back, so a device never waits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from evodrop._checks import ArrayOrTensor, checked_integer, checked_rate, namespace
from evodrop.definitions import expected_kept, n_draws, survival_probabilities

__all__ = ["MATCHES", "Noise", "make_noise"]

MATCHES = ("draws", "distinct", "noise")
MOST_DRAWS = 2**30  # a count, which may exceed the number of draws before it is corrected, is kept in 32 bits
LEAST_CEILING = 16  # draws per unit: a unit of average probability is then missed once in e^16 rows
MOST_CEILING = 1000  # draws per unit: beyond, a call would take longer than anybody waits
LEAST_RATE = 1e-38  # its reciprocal is finite in float32; a count of 0 times infinity would be nan


class Noise(NamedTuple):
    """The noise epsilon on d units, of mean 1 wherever a unit is ever kept.

    It is epsilon_i = m_i / (k p_i) with m ~ Mult(p; k), or epsilon_i = b_i / pi_i with independent b_i ~
    Bernoulli(pi_i). In both cases Cov(x * epsilon) = diag(spread_i x_i^2) - shared x x'.

    Examples:
        >>> import numpy as np
        >>> noise = Noise(np.array([0.75, 0.25, 0.0]), 4)
        >>> noise.spread, noise.shared
        (array([0.33333333, 1.        , 0.        ]), 0.25)
    """

    chances: ArrayOrTensor  # (d,): sampling probabilities p_i if there is a k, else keep probabilities pi_i
    k: Any = None  # number of draws, an integer or a Tensor that holds one; None for independent noise

    @property
    def drawn(self) -> ArrayOrTensor:
        """(d,): the units whose noise is not always 0."""
        return self.chances > 0

    @property
    def survival(self) -> ArrayOrTensor:
        """(d,): the chance of each unit not to be zero."""
        return self.chances if self.k is None else survival_probabilities(self.chances, self.k)

    @property
    def scale(self) -> ArrayOrTensor:
        """(d,): 1 / (k p_i) or 1 / pi_i, what a count or a kept unit is multiplied by; 0 where a unit is never kept."""
        rates = self.chances if self.k is None else self.k * self.chances
        return namespace(rates).where(rates > 0, 1.0 / rates.clip(min=LEAST_RATE), 0.0)

    @property
    def spread(self) -> ArrayOrTensor:
        """(d,): 1 / (k p_i) or (1 - pi_i) / pi_i, 0 where a unit is never kept."""
        xp = namespace(self.chances)
        least = self.chances.clip(min=xp.finfo(self.chances.dtype).tiny)
        return xp.where(self.drawn, (1.0 - least) / least if self.k is None else 1.0 / (self.k * least), 0.0)

    @property
    def shared(self) -> Any:
        """1 / k, what draws take from each other; 0 for independent noise."""
        return 0.0 if self.k is None else 1.0 / self.k

    @property
    def mean_square(self) -> ArrayOrTensor:
        """(d,): E[epsilon_i^2] = 1 + spread_i - shared, 0 where a unit is never kept."""
        return namespace(self.chances).where(self.drawn, 1.0 + self.spread - self.shared, 0.0)


def make_noise(
    weights: ArrayOrTensor | None,
    moments: ArrayOrTensor | None,
    rate: float,
    *,
    k: int | None = None,
    match: str = "draws",
    uniform_mix: float = 0.0,
    independent: bool = False,
) -> Noise:
    """The noise that drops the fraction ``rate`` of d units. At rate 0 it is 1 for all of them, at rate 1 it is 0.

    Args:
        weights: (d,) masses, not negative, to which the chances are proportional; None: all units are alike. Units of
            weight 0 are never kept. The values are not checked, since that would stall a device.
        moments: (d,), E[x_i^2], in any unit; they decide in ``match="noise"``, and give d if there are no weights.
            None: the squares of the weights.
        rate: the fraction to drop, in [0, 1].
        k: number of draws, or of independent units kept on average, instead of the number that rate and match give.
        match: what k is matched to, see above. The largest k is 2^30; a match that asks for more takes that.
        uniform_mix: share of uniform probability mixed in, among the units that can be drawn.
        independent: keep each unit by itself with pi_i = min(1, t p_i) (water-filling), or, where all units are alike,
            with 1 - rate (standard dropout).

    Examples:
        >>> import numpy as np
        >>> moments = np.array([9.0, 1.0, 0.0, 0.0])
        >>> make_noise(np.sqrt(moments), moments, 0.5)
        Noise(chances=array([0.75, 0.25, 0.  , 0.  ]), k=2)
        >>> make_noise(np.sqrt(moments), moments, 0.5, independent=True)
        Noise(chances=array([1., 1., 0., 0.]), k=None)
    """
    rate = checked_rate(rate, closed=True)
    k = checked_draws(k, match)
    like = moments if weights is None else weights
    if like is None:
        raise ValueError("make_noise: weights and moments are both None, but one of them has to give the units")
    xp, d = namespace(like), len(like)
    if xp is np:
        like, moments = np.asarray(like, np.float64), None if moments is None else np.asarray(moments, np.float64)
    if k is None and (rate in (0.0, 1.0) or (independent and weights is None)):
        return Noise(xp.full_like(like, 1.0 - rate), None)
    masses = xp.ones_like(like) if weights is None else like
    if xp is np and d and not 1e-200 < masses.max() < 1e200:  # their sum might overflow, or have few bits
        masses = normalised(masses)
    total = masses.sum()
    probs = shares = masses / (total + (total == 0))
    if uniform_mix:
        drawable = masses > 0
        probs = drawable * ((1.0 - uniform_mix) * probs + uniform_mix / drawable.sum().clip(min=1))
    if match == "draws":
        number: Any = n_draws(d, rate) if k is None else k
        return Noise(fill_to_level(probs, number), None) if independent else Noise(probs, number)
    if match == "distinct":
        kept = (probs > 0).sum() * (1.0 - rate)
        if independent:  # independent units do not repeat: their keep probabilities sum to the number kept
            return Noise(fill_to_level(probs, kept), None)
        number = draws_for_kept(probs, kept, most_draws(d, rate))
    else:
        # Units that are never drawn have no part in the noise.
        squares = shares**2 if moments is None else normalised(moments) * (probs > 0)
        if independent:
            return Noise(keep_for_noise(squares, probs, rate), None)
        number = draws_for_noise(squares, probs, rate, most_draws(d, rate))
    return Noise(probs, int(number) if xp is np else number)


def checked_draws(k: Any, match: str) -> int | None:
    """The k that is given, or None; an error if the match is unknown, or both would choose the number of draws."""
    if match not in MATCHES:
        raise ValueError(f"match is {match!r}, but it is one of {', '.join(map(repr, MATCHES))}")
    if k is not None and match != "draws":
        raise ValueError(f"k is {k!r} and match is {match!r}, but a match chooses k; give one of them")
    return None if k is None else checked_integer(k, "k", "the number of draws", most=MOST_DRAWS)


def normalised(values: ArrayOrTensor) -> ArrayOrTensor:
    """The values in units of the largest, so that no sum or square of them overflows; zeros stay zeros."""
    return values / values.max().clip(min=namespace(values).finfo(values.dtype).tiny)


def most_draws(d: int, rate: float) -> int:
    """The ceiling of a matched k: it bounds the cost where some units are all but never drawn, or the rate is tiny.

    Examples:
        >>> most_draws(100, 0.5), most_draws(100, 0.01), most_draws(100, 1e-9)
        (1600, 9900, 100000)
    """
    return min(round(d * min(max(LEAST_CEILING, (1.0 - rate) / rate), MOST_CEILING)), MOST_DRAWS)


def draws_for_kept(probs: ArrayOrTensor, kept: ArrayOrTensor, most: int) -> ArrayOrTensor:
    """The k in 1..most whose expected number of distinct units is closest to ``kept``, by bisection.

    Examples:
        >>> import numpy as np
        >>> int(draws_for_kept(np.full(1000, 1e-3), 500, 16000))
        693
    """
    low = (probs > 0).sum() * 0  # an integer that lives where probs do
    high = low + most
    for _ in range(most.bit_length()):
        middle = (low + high) // 2
        short = expected_kept(probs, middle) < kept
        low, high = low + short * (middle - low), high - ~short * (high - middle)
    overshoots = kept - expected_kept(probs, low) < expected_kept(probs, high) - kept
    return (high - overshoots * 1).clip(min=1)


def draws_for_noise(moments: ArrayOrTensor, probs: ArrayOrTensor, rate: float, most: int) -> ArrayOrTensor:
    """The k at which multinomial noise has the E||x * noise||^2 of standard dropout, rounded, in 1..most.

    Proposition 2 solved for k: (sum_i E x_i^2 / p_i - sum_i E x_i^2) (1 - rate) / (rate sum_i E x_i^2). Units that are
    never drawn have the moment 0.

    Examples:
        >>> import numpy as np
        >>> int(draws_for_noise(np.ones(101), np.full(101, 1 / 101), 0.5, 1616))
        100
    """
    xp = namespace(probs)
    tiny = xp.finfo(probs.dtype).tiny
    spread = (moments / probs.clip(min=tiny)).sum()
    odds = min((1.0 - rate) / rate, most * 2.0**52)  # 1 / rate may be infinite; no sum rounds to 1 + less than 2^-52
    k = (spread / moments.sum().clip(min=tiny) - 1.0) * odds
    return xp.floor((k + 0.5).clip(min=1, max=most))


def fill_to_level(masses: ArrayOrTensor, k: ArrayOrTensor) -> ArrayOrTensor:
    """min(1, t masses_i) with t such that the sum is k: :func:`evodrop.definitions.keep_probabilities` by one sort.

    Examples:
        >>> import numpy as np
        >>> fill_to_level(np.array([4.0, 1.0, 1.0, 0.0]), 2)
        array([1. , 0.5, 0.5, 0. ])
    """
    xp = namespace(masses)
    k = xp.minimum(xp.asarray(k, dtype=masses.dtype), (masses > 0).sum())
    ascending = masses[masses.argsort()]
    tail = ascending.cumsum(0)
    above = len(masses) - xp.ones_like(masses).cumsum(0)  # how many units are larger
    # Were a unit the largest below the level, t would be (k - above) / tail, and t times the unit at most 1. Where that
    # holds, it holds for every smaller unit, so counting finds the level.
    below = ((k - above) * ascending <= tail).sum()[None]  # a compiler cannot look up by a scalar
    total = xp.take(tail, below - 1)
    t = (k - (len(masses) - below)) / (total + (total == 0))
    return (t * masses).clip(max=1.0)


def keep_for_noise(moments: ArrayOrTensor, probs: ArrayOrTensor, rate: float) -> ArrayOrTensor:
    """The water-filling keep probabilities min(1, t p_i) with the E||x * noise||^2 of standard dropout.

    Units at the level 1 have their moments as noise, the others E x_i^2 / (t p_i); one sort separates them, as in
    :func:`fill_to_level`.

    Examples:
        >>> import numpy as np
        >>> keep_for_noise(np.array([4.0, 1.0]), np.array([2 / 3, 1 / 3]), 0.5).round(3)
        array([0.6, 0.3])
    """
    xp = namespace(probs)
    order = probs.argsort()
    ascending = probs[order]
    ordered = moments[order]
    tail = (ordered / (ascending + (ascending == 0))).cumsum(0)
    above = ordered.sum() - ordered.cumsum(0)
    target = ordered.sum() / (1.0 - rate)
    # Were a unit the largest below the level, t would be tail / (target - above), and t times the unit at most 1.
    last = (ascending * tail + above <= target).sum()[None] - 1
    rest = target - xp.take(above, last)
    return (xp.take(tail, last) / (rest + (rest == 0)) * probs).clip(max=1.0)
