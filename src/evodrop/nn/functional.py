"""Dropout as functions: no state, and no randomness but torch's own generator.

The input has any shape, and the output has its shape, dtype and memory format. At ``p = 0`` every function returns its
input, and at ``p = 1`` zeros. The gradient goes through the noise as through a constant; none goes through ``probs``,
``keep`` or ``moments``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from evodrop.nn._noise import Options, UnitDims, apply_noise, checked_dims, checked_options, count_units

__all__ = [
    "bernoulli_dropout",
    "evolutional_dropout",
    "multinomial_dropout",
    "water_filling_dropout",
]


def multinomial_dropout(
    input: Tensor,
    p: float = 0.5,
    probs: Tensor | None = None,
    training: bool = True,
    *,
    k: int | None = None,
    match: str = "draws",
    uniform_mix: float = 0.0,
    unit_dims: UnitDims = None,
    shared_dims: UnitDims = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Multiply the units by multinomial noise with any probabilities (Definition 1).

    Each example makes k draws among its d units, so units compete; the noise has mean 1.

    .. math:: \hat x_i = x_i \frac{m_i}{k p_i}, \qquad m \sim \mathrm{Mult}(p_1, \dots, p_d; k)

    Args:
        input: a floating-point tensor.
        probs: (d,) sampling probabilities, or any masses, which are divided by their sum. Default: uniform.
        training: without it the input is returned, the very same tensor.
        p, k, match, uniform_mix, unit_dims, shared_dims: as in :class:`evodrop.nn.EvolutionalDropout`.
        generator: source of the random numbers instead of torch's global generator.

    Examples:
        >>> x = torch.ones(2, 4)
        >>> y = multinomial_dropout(x, 0.5, torch.tensor([0.5, 0.25, 0.25, 0.0]))
        >>> y @ torch.tensor([0.5, 0.25, 0.25, 0.0])  # k = 2 draws, and each is worth 1/2
        tensor([1., 1.])
    """
    options = checked_options(p, k, match, uniform_mix)
    return _dropout(input, options, training, "probs", probs, (unit_dims, shared_dims), generator)


def evolutional_dropout(
    input: Tensor,
    p: float = 0.5,
    training: bool = True,
    *,
    k: int | None = None,
    match: str = "draws",
    uniform_mix: float = 0.0,
    unit_dims: UnitDims = None,
    shared_dims: UnitDims = None,
    moments: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Multinomial dropout whose probabilities follow the second moments of this very batch (Figure 1).

    .. math:: p_i = \sqrt{\tfrac1n \sum_j x_{ji}^2} \Big/ \sum_{i'} \sqrt{\tfrac1n \sum_j x_{ji'}^2}

    Args:
        input, p, training, k, match, uniform_mix, unit_dims, shared_dims, generator: as in :func:`multinomial_dropout`.
        moments: (d,) second moments to follow instead of the batch's, such as those of a batch that is spread over
            processes, :func:`evodrop.nn.distributed.global_moments`. Units whose moment is not finite pass through.

    Examples:
        >>> x = torch.randn(128, 1152).relu()
        >>> evolutional_dropout(x, 0.5).shape
        torch.Size([128, 1152])
    """
    options = checked_options(p, k, match, uniform_mix, True)
    return _dropout(input, options, training, "moments", moments, (unit_dims, shared_dims), generator)


def water_filling_dropout(
    input: Tensor,
    p: float = 0.5,
    training: bool = True,
    *,
    k: int | None = None,
    match: str = "draws",
    uniform_mix: float = 0.0,
    unit_dims: UnitDims = None,
    shared_dims: UnitDims = None,
    moments: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Independent noise that keeps strong units of this batch more often than weak ones.

    .. math:: \hat x_i = x_i b_i / \pi_i, \qquad b_i \sim \mathrm{Bernoulli}(\pi_i), \qquad \pi_i = \min(1, t \, p_i)

    with the probabilities p_i of :func:`evolutional_dropout`, and t such that k units are kept on average. Of all
    independent noises that keep k units it has the least E||x * noise||^2, and never more than evolutional dropout.

    Args:
        input, p, training, match, uniform_mix, unit_dims, shared_dims, moments, generator: as in
            :func:`evolutional_dropout`.
        k: number of units kept on average, instead of the number that ``p`` and ``match`` give.

    Examples:
        >>> x = torch.tensor([[4.0, 1.0, 1.0, 0.0]])
        >>> water_filling_dropout(x, 0.5)[0, 0]  # k = 2: the strongest unit is always kept, others half the time
        tensor(4.)
    """
    options = checked_options(p, k, match, uniform_mix, True, True)
    return _dropout(input, options, training, "moments", moments, (unit_dims, shared_dims), generator)


def bernoulli_dropout(
    input: Tensor,
    p: float = 0.5,
    keep: Tensor | None = None,
    training: bool = True,
    *,
    unit_dims: UnitDims = None,
    shared_dims: UnitDims = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Multiply each unit by independent noise; without ``keep`` this is standard dropout, computed by our kernel.

    .. math:: \hat x_i = x_i b_i / \pi_i, \qquad b_i \sim \mathrm{Bernoulli}(\pi_i)

    Args:
        input, p, training, unit_dims, shared_dims, generator: as in :func:`multinomial_dropout`.
        keep: (d,) keep probabilities in [0, 1], instead of 1 - p for all.

    Examples:
        >>> bernoulli_dropout(torch.ones(2, 3), keep=torch.tensor([1.0, 1.0, 0.0]))
        tensor([[1., 1., 0.],
                [1., 1., 0.]])
    """
    options = checked_options(p, None, "draws", 0.0, False, True)
    return _dropout(input, options, training, "keep", keep, (unit_dims, shared_dims), generator)


def _dropout(
    input: Tensor,
    options: Options,
    training: bool,
    name: str,
    given: Tensor | None,
    dims: tuple[UnitDims, UnitDims],
    generator: torch.Generator | None,
) -> Tensor:
    """The noise that the options and the vector ``given`` under this name describe; dims are of units, and shared."""
    by_rate = options.k is None and (name != "keep" or given is None)
    if not training or (by_rate and options.p == 0.0):
        return input
    check_tensor(input)
    if by_rate and options.p == 1.0:
        return input.masked_fill(torch.ones((), dtype=torch.bool, device=input.device), 0.0)
    units, positions = find_dims(input, *dims)
    if given is not None:
        _check_given(given, name, input, units)
    return apply_noise(input, options, given, units, positions, generator)


def check_tensor(input: Tensor) -> None:
    """A TypeError unless it is a dense tensor of floating-point numbers."""
    if not isinstance(input, Tensor):
        raise TypeError(f"dropout of a {type(input).__name__}, but it takes a tensor; torch.as_tensor makes one")
    if input.layout != torch.strided or input.is_nested:
        kind, remedy = f"tensor of layout {input.layout}", ".to_dense()"
        if input.is_nested:
            kind, remedy = "nested tensor", ".to_padded_tensor(0.0)"
        raise TypeError(f"dropout of a {kind}, but it takes a dense one; {remedy} makes one")
    if input.dtype not in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        raise TypeError(f"dropout of a tensor of {input.dtype}, but it takes float64, float32, bfloat16 or float16")


def find_dims(
    input: Tensor, unit_dims: UnitDims = None, shared_dims: UnitDims = None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The dimensions that are units, and those whose positions share the noise of a unit."""
    units = checked_dims(input, unit_dims)
    if shared_dims is None:
        return units, ()
    shared = checked_dims(input, shared_dims, "shared_dims")
    if unit_dims is None:
        units = tuple(dim for dim in units if dim not in shared)
    if not units or not set(units).isdisjoint(shared):
        raise ValueError(
            f"shared_dims is {shared_dims!r} and unit_dims {unit_dims!r}, but an input of shape {tuple(input.shape)} "
            "needs at least one dimension of units, and none that is both; for (N, T, C), shared_dims=1 gives all "
            "times of a sequence one mask of C units"
        )
    return units, shared


def _check_given(given: Tensor, name: str, input: Tensor, units: tuple[int, ...]) -> None:
    if not isinstance(given, Tensor):
        raise TypeError(f"{name} is a {type(given).__name__}, but it takes a tensor; torch.as_tensor makes one")
    d = count_units(input, units)
    if tuple(given.shape) != (d,) or given.device != input.device:
        raise ValueError(
            f"{name} has shape {tuple(given.shape)} on {given.device}, but an input of shape {tuple(input.shape)} on "
            f"{input.device} with units in dimensions {units} needs shape ({d},) on {input.device}"
        )
