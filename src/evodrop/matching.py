"""How many draws are a fair match for a dropout rate? Three answers, named by ``match``.

``"draws"``: the paper's k = d (1 - rate), see :func:`evodrop.definitions.n_draws`. Draws repeat, so fewer than k units
survive, and the noise is not that of standard dropout at the same rate.
``"distinct"``: as many distinct units survive as standard dropout keeps: 1 - rate of those that can be drawn.
``"noise"``: E||x * noise||^2 is that of standard dropout, sum_i E x_i^2 / (1 - rate).

Every function takes ndarrays or Tensors and reads no value back, so a device never waits for the host.
"""

from __future__ import annotations

from typing import Any

from evodrop.definitions import expected_kept, namespace

__all__ = ["MATCHES", "draws_for_kept", "draws_for_noise", "keep_for_noise", "most_draws"]

Array = Any
MATCHES = ("draws", "distinct", "noise")
LEAST_CEILING = 16  # draws per unit: a unit of average probability is then missed once in e^16 rows
MOST_CEILING = 1000  # draws per unit: beyond, a call would take longer than anybody waits


def most_draws(d: int, rate: float) -> int:
    """The ceiling of a matched k: it bounds the cost where some units are all but never drawn, or the rate is tiny.

    Examples:
        >>> most_draws(100, 0.5), most_draws(100, 0.01), most_draws(100, 1e-9)
        (1600, 9900, 100000)
    """
    return round(d * min(max(LEAST_CEILING, (1.0 - rate) / rate), MOST_CEILING))


def draws_for_kept(probs: Array, kept: float, most: int) -> Array:
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


def draws_for_noise(moments: Array, probs: Array, rate: float, most: int) -> Array:
    """The k at which multinomial noise has the E||x * noise||^2 of standard dropout, rounded, in 1..most.

    Proposition 2 solved for k: (sum_i E x_i^2 / p_i - sum_i E x_i^2) (1 - rate) / (rate sum_i E x_i^2). Units that are
    never drawn have no part in it.

    Examples:
        >>> import numpy as np
        >>> int(draws_for_noise(np.ones(101), np.full(101, 1 / 101), 0.5, 1616))
        100
    """
    drawn = probs > 0
    moments = moments * drawn
    spread = (moments / (probs + ~drawn)).sum()
    total = moments.sum()
    k = (spread / (total + (total == 0)) - 1.0) * ((1.0 - rate) / rate)
    return (k + 0.5).clip(min=1, max=most) // 1


def keep_for_noise(moments: Array, probs: Array, rate: float) -> Array:
    """The water-filling keep probabilities min(1, t p_i) with the E||x * noise||^2 of standard dropout.

    Units at the level 1 have their moments as noise, the others E x_i^2 / (t p_i); one sort tells which is which, as in
    :func:`evodrop.definitions.fill_to_level`.

    Examples:
        >>> import numpy as np
        >>> keep_for_noise(np.array([4.0, 1.0]), np.array([2 / 3, 1 / 3]), 0.5).round(3)
        array([0.6, 0.3])
    """
    xp = namespace(probs)
    order = probs.argsort()
    ascending = probs[order]
    drawn = ascending > 0
    ordered = moments[order] * drawn
    tail = (ordered / (ascending + ~drawn)).cumsum(0)
    above = ordered.sum() - ordered.cumsum(0)
    target = ordered.sum() / (1.0 - rate)
    # Were a unit the largest below the level, t would be tail / (target - above), and t times the unit at most 1.
    last = (ascending * tail + above <= target).sum() - 1
    rest = target - xp.take(above, last)
    return (xp.take(tail, last) / (rest + (rest == 0)) * probs).clip(max=1.0)
