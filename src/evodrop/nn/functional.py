"""Dropout as functions: no state, and no randomness but torch's own generator.

The gradient goes through the noise as through a constant; none goes through ``probs`` or ``keep``.
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from evodrop._checks import checked_rate
from evodrop.nn.law import Law
from evodrop.nn.layout import checked_dims, count_units
from evodrop.nn.noise import apply_noise
from evodrop.noise import MATCHES

__all__ = [
    "bernoulli_dropout",
    "evolutional_dropout",
    "evolutional_dropout1d",
    "evolutional_dropout2d",
    "multinomial_dropout",
]

MOST_DRAWS = 2**31 - 1
SCHEMES = ("multinomial", "bernoulli")
UnitDims = int | Sequence[int] | None


def multinomial_dropout(
    input: Tensor,
    p: float = 0.5,
    probs: Tensor | None = None,
    training: bool = True,
    *,
    k: int | None = None,
    scheme: str = "multinomial",
    match: str = "draws",
    uniform_mix: float = 0.0,
    unit_dims: UnitDims = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Multiply the units by multinomial noise with any probabilities (Definition 1).

    Each example makes k draws among its d units, so units compete; the noise has mean 1.

    .. math:: \hat x_i = x_i \frac{m_i}{k p_i}, \qquad m \sim \mathrm{Mult}(p_1, \dots, p_d; k)

    Args:
        input: a floating-point tensor.
        p: fraction of the units to drop, in [0, 1). It sets k = d (1 - p); draws repeat, so by default more than this
            fraction is zero: about 61 % at 0.5 and, with k = d, still 37 % at 0. ``match="distinct"`` drops p exactly.
        probs: (d,) sampling probabilities, or any masses, which are divided by their sum. Default: uniform.
        training: without it the input is returned, the very same tensor.
        k: number of draws, instead of the number that ``p`` and ``match`` give.
        scheme: ``"multinomial"``, or ``"bernoulli"``: independent noise by water-filling, which keeps unit i with
            probability min(1, t probs_i), k units in expectation.
        match: what k is matched to. ``"draws"``: the paper's k = d (1 - p). ``"distinct"``: a share 1 - p of the units
            that can be drawn survives on average. ``"noise"``: E||x * noise||^2 is that of standard dropout at the
            same p.
        uniform_mix: share of uniform probability mixed in, from 0 to 1. It bounds the noise of rarely active units.
        unit_dims: dimensions that are units; all others are examples. Default: every dimension but the first. For a
            sequence, (N, T, C) or (T, N, C), -1 is usually meant.
        generator: source of the seed instead of torch's global generator.

    Shape:
        Any shape; the output has the shape, dtype and memory format of the input.

    Examples:
        >>> x = torch.ones(2, 4)
        >>> y = multinomial_dropout(x, 0.5, torch.tensor([0.5, 0.25, 0.25, 0.0]))
        >>> y @ torch.tensor([0.5, 0.25, 0.25, 0.0])  # k = 2 draws, and each is worth 1/2
        tensor([1., 1.])
    """
    law = checked_law("probs", p, k, scheme, match, uniform_mix)
    if not training or _drops_nothing(law):
        return input
    units = checked_units(input, unit_dims)
    _check_shape(probs, "probs", input, units)
    return apply_noise(input, law, probs, units, generator=generator)


def evolutional_dropout(
    input: Tensor,
    p: float = 0.5,
    training: bool = True,
    *,
    k: int | None = None,
    scheme: str = "multinomial",
    match: str = "draws",
    uniform_mix: float = 0.0,
    unit_dims: UnitDims = None,
    moments: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Multinomial dropout whose probabilities follow the second moments of this very batch (Figure 1).

    .. math:: p_i = \sqrt{\tfrac1n \sum_j x_{ji}^2} \Big/ \sum_{i'} \sqrt{\tfrac1n \sum_j x_{ji'}^2}

    Args: as in :func:`multinomial_dropout`, and
        moments: (d,) second moments to follow instead of the batch's, such as those of a batch that is spread over
            processes, :func:`evodrop.nn.sync.global_moments`. Units whose moment is not finite pass through.

    Shape:
        Any shape; the output has the shape, dtype and memory format of the input.

    Examples:
        >>> x = torch.randn(128, 1152).relu()
        >>> evolutional_dropout(x, 0.5).shape
        torch.Size([128, 1152])
    """
    law = checked_law("batch", p, k, scheme, match, uniform_mix)
    if not training or _drops_nothing(law):
        return input
    units = checked_units(input, unit_dims)
    _check_shape(moments, "moments", input, units)
    return apply_noise(input, law, moments, units, generator=generator)


def evolutional_dropout1d(input: Tensor, p: float = 0.5, training: bool = True, **options: Any) -> Tensor:
    """:func:`evolutional_dropout` of whole channels: (N, C, L), or (C, L) for one example."""
    return _channel_dropout(input, 3, p, training, **options)


def evolutional_dropout2d(input: Tensor, p: float = 0.5, training: bool = True, **options: Any) -> Tensor:
    """:func:`evolutional_dropout` of whole channels: (N, C, H, W), or (C, H, W) for one example."""
    return _channel_dropout(input, 4, p, training, **options)


def bernoulli_dropout(
    input: Tensor,
    p: float = 0.5,
    keep: Tensor | None = None,
    training: bool = True,
    *,
    unit_dims: UnitDims = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Multiply each unit by independent noise; without ``keep`` this is standard dropout, by our kernel.

    .. math:: \hat x_i = x_i b_i / \pi_i, \qquad b_i \sim \mathrm{Bernoulli}(\pi_i)

    Args:
        input, p, training, unit_dims, generator: as in :func:`multinomial_dropout`.
        keep: (d,) keep probabilities in [0, 1], instead of 1 - p for all.

    Shape:
        Any shape; the output has the shape, dtype and memory format of the input.

    Examples:
        >>> bernoulli_dropout(torch.ones(2, 3), keep=torch.tensor([1.0, 1.0, 0.0]))
        tensor([[1., 1., 0.],
                [1., 1., 0.]])
    """
    law = Law("keep", checked_rate(p))
    if not training or (keep is None and p == 0):
        return input
    units = checked_units(input, unit_dims)
    _check_shape(keep, "keep", input, units)
    return apply_noise(input, law, keep, units, generator=generator)


def _channel_dropout(
    input: Tensor,
    batched: int,
    p: float,
    training: bool,
    *,
    k: int | None = None,
    scheme: str = "multinomial",
    match: str = "draws",
    uniform_mix: float = 0.0,
    moments: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """One noise for all positions of a channel; a channel's second moment is the mean over its positions too."""
    law = checked_law("batch", p, k, scheme, match, uniform_mix)
    if not training or _drops_nothing(law):
        return input
    units, positions = checked_channels(input, batched)
    _check_shape(moments, "moments", input, units)
    return apply_noise(input, law, moments, units, positions, generator)


def checked_law(source: str, p: float, k: int | None, scheme: str, match: str, uniform_mix: float) -> Law:
    """The options as a law, or a ValueError that names the one that is wrong."""
    if scheme not in SCHEMES:
        raise ValueError(f"scheme is {scheme!r}, but it is one of {', '.join(map(repr, SCHEMES))}")
    if match not in MATCHES:
        raise ValueError(f"match is {match!r}, but it is one of {', '.join(map(repr, MATCHES))}")
    if k is not None and not (isinstance(k, numbers.Integral) and not isinstance(k, bool) and 1 <= k <= MOST_DRAWS):
        raise ValueError(
            f"k is {k!r}, but the number of draws is an integer from 1 to {MOST_DRAWS}, or None to follow p"
        )
    if k is not None and match != "draws":
        raise ValueError(f"k is {k!r} and match is {match!r}, but only one of them can choose the number of draws")
    if not (isinstance(uniform_mix, numbers.Real) and 0.0 <= uniform_mix <= 1.0):
        raise ValueError(
            f"uniform_mix is {uniform_mix!r}, but it takes a number in [0, 1], the share of uniform probability"
        )
    return Law(source, checked_rate(p), None if k is None else int(k), scheme, match, float(uniform_mix))


def _drops_nothing(law: Law) -> bool:
    """At p = 0 a matched k is infinite, and infinitely many draws keep every unit as it is."""
    return law.p == 0 and law.match != "draws"


def check_tensor(input: Tensor) -> None:
    """A TypeError unless it is a dense tensor of floating-point numbers."""
    if not isinstance(input, Tensor):
        raise TypeError(f"dropout of a {type(input).__name__}, but it takes a tensor; torch.as_tensor makes one")
    if input.layout != torch.strided:
        raise TypeError(
            f"dropout of a tensor of layout {input.layout}, but it takes a dense one; .to_dense() makes one"
        )
    if input.dtype not in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        raise TypeError(f"dropout of a tensor of {input.dtype}, but it takes float64, float32, bfloat16 or float16")


def checked_units(input: Tensor, unit_dims: UnitDims) -> tuple[int, ...]:
    check_tensor(input)
    return checked_dims(input, unit_dims)


def checked_channels(input: Tensor, batched: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The dimension of the channels, and those of their positions; ``batched`` is how many a batch has."""
    check_tensor(input)
    if input.ndim not in (batched, batched - 1):
        shapes = "(N, C, L) or (C, L)" if batched == 3 else "(N, C, H, W) or (C, H, W)"
        raise ValueError(f"dropout of whole channels: the input has shape {tuple(input.shape)}, but it takes {shapes}")
    channels = input.ndim - batched + 1
    return (channels,), tuple(range(channels + 1, input.ndim))


def _check_shape(given: Tensor | None, name: str, input: Tensor, units: tuple[int, ...]) -> None:
    if given is None:
        return
    if not isinstance(given, Tensor):
        raise TypeError(f"{name} is a {type(given).__name__}, but it takes a tensor; torch.as_tensor makes one")
    d = count_units(input, units)
    if tuple(given.shape) != (d,) or given.device != input.device:
        raise ValueError(
            f"{name} has shape {tuple(given.shape)} on {given.device}, but an input of shape {tuple(input.shape)} on "
            f"{input.device} with units in dimensions {units} needs shape ({d},) on {input.device}"
        )
