"""Multiply a tensor by noise, and its gradient by the same noise: rows, seed, autograd and operator.

There are two ways. A large plain tensor in eager mode goes through :class:`_Dropout`, which keeps a byte per element
for backward. Everything else, small tensors, compilers, ``torch.func``, tensor subclasses and noise that positions
share, gets the noise as floats, and torch multiplies: where there is little to do, that is the cheapest. On the CPU a
compiler gets those floats from the operator ``torch.ops.evodrop.noise``, since it cannot look into a numba kernel; the
torch backend is made of torch's own operations, which are traced.
"""

from __future__ import annotations

import math
import numbers
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from operator import index
from typing import Any, NamedTuple

import torch
import torch.distributed
from torch import Tensor

from evodrop._checks import ArrayOrTensor, checked_keep, checked_masses, checked_rate
from evodrop._kernels.compile import hold_during_fork
from evodrop._kernels.rows import RANK_STEP
from evodrop.nn import _numba, _torch
from evodrop.noise import Noise, checked_draws, make_noise

BACKENDS = ("auto", "numba", "torch")
UnitDims = int | Sequence[int] | None
LEAST_LARGE = 2**15  # elements from which a byte per element is kept for backward instead of the noise
_DISTRIBUTED = torch.distributed.is_available()
_backend: ContextVar[str] = ContextVar("evodrop_backend", default="auto")
# torch locks a generator while it draws: a child forked at that moment by another thread could never draw again.
_drawing = threading.RLock()
hold_during_fork(_drawing)


class Options(NamedTuple):
    """What a call asks for; :func:`evodrop.nn.functional.multinomial_dropout` explains the words.

    A call may also give a vector of d values. They are second moments if the noise ``follows``, else keep probabilities
    if it is ``independent``, else weights.
    """

    p: float
    k: int | None = None
    match: str = "draws"
    uniform_mix: float = 0.0
    follows: bool = False  # the weights are the roots of the second moments of the batch, or of those given
    independent: bool = False

    def noise(self, weights: ArrayOrTensor | None, moments: ArrayOrTensor | None) -> Noise:
        """The noise of units with these weights, all alike without any."""
        p, k, match, uniform_mix, _, independent = self
        return make_noise(weights, moments, p, k=k, match=match, uniform_mix=uniform_mix, independent=independent)


def _check_options(*options: Any) -> Options:
    p, k, match, uniform_mix, follows, independent = Options(*options)
    k = checked_draws(k, match)
    if not (isinstance(uniform_mix, numbers.Real) and 0.0 <= uniform_mix <= 1.0):
        raise ValueError(
            f"uniform_mix is {uniform_mix!r}, but it takes a number in [0, 1], the share of uniform probability"
        )
    return Options(checked_rate(p, closed=True), k, match, float(uniform_mix), follows, independent)


_cached_options = lru_cache(maxsize=1024, typed=True)(_check_options)


def checked_options(*options: Any) -> Options:
    """The options, or a ValueError that names the one that is wrong. What was checked once is not checked again."""
    if torch.compiler.is_compiling():  # a compiler would warn of the cache, and look through it
        return _check_options(*options)
    try:
        return _cached_options(*options)
    except TypeError:  # an argument that cannot be hashed is wrong anyway
        return _check_options(*options)


def checked_dims(input: Tensor, unit_dims: UnitDims, name: str = "unit_dims") -> tuple[int, ...]:
    """The dimensions of the units, ascending and not negative; by default all but the first, the batch.

    A vector has no batch: it is one example.
    """
    if unit_dims is None:
        return tuple(range(1, input.ndim)) or tuple(range(input.ndim))
    try:
        asked = tuple(map(index, unit_dims)) if isinstance(unit_dims, Sequence) else (index(unit_dims),)
    except TypeError as error:
        raise TypeError(f"{name} is {unit_dims!r}, but it takes an integer or a tuple of integers") from error
    dims = tuple(sorted({dim + input.ndim if dim < 0 else dim for dim in asked}))
    if not asked or len(dims) != len(asked) or dims[0] < 0 or dims[-1] >= input.ndim:
        raise ValueError(
            f"{name} is {unit_dims!r}, but the input has shape {tuple(input.shape)}: "
            f"name different dimensions from {-input.ndim} to {input.ndim - 1}"
        )
    return dims


def count_units(input: Tensor, units: Sequence[int]) -> int:
    return math.prod([input.shape[dim] for dim in units])


def to_rows(input: Tensor, units: Sequence[int], shared: Sequence[int] = ()) -> Tensor:
    """Contiguous (examples, units), or (examples, units, shared) where positions share one noise.

    They are the memory of ``input`` itself wherever its layout allows.
    """
    if input.ndim == 2 and not shared and tuple(units) == (1,):  # as most layers have it: no view is needed
        return input.contiguous()
    sizes = [-1, count_units(input, units)] + ([count_units(input, shared)] if shared else [])
    return input.permute(_order(input.ndim, [*units, *shared])).reshape(sizes).contiguous()


@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Choose the backend within a ``with`` block: ``"numba"`` (CPU only), ``"torch"`` (any device), or ``"auto"``:
    numba on the CPU, torch elsewhere. A compiled function keeps the backend that it was compiled with.

    Both draw from the same law, but by different random numbers.

    Examples:
        >>> from evodrop.nn.functional import evolutional_dropout
        >>> with use_backend("torch"):
        ...     y = evolutional_dropout(torch.randn(8, 4))
    """
    if name not in BACKENDS:
        raise ValueError(f"use_backend: {name!r} is not a backend; choose one of {', '.join(BACKENDS)}")
    token = _backend.set(name)
    try:
        yield
    finally:
        _backend.reset(token)


def _chosen_backend() -> str:
    return _backend.get()


# What torch.compiler.assume_constant_result does; calling that would import the compiler, which takes a second.
_chosen_backend._dynamo_marked_constant = True  # type: ignore[attr-defined]


def uses_numba(device: torch.device) -> bool:
    """Whether the numba backend draws for the device."""
    backend = _chosen_backend()
    if backend == "numba" and device.type != "cpu":
        raise ValueError(f"the numba backend takes CPU tensors, but the input is on {device}; use the backend 'auto'")
    return backend == "numba" or (backend == "auto" and device.type == "cpu")


def is_opaque(tensor: Tensor) -> bool:
    """Whether nobody can look at the values: a compiler traces, torch.func transforms, or the tensor is a subclass."""
    return (
        torch.compiler.is_compiling()
        or torch._C._is_tracing()
        or torch._C._are_functorch_transforms_active()
        or type(tensor) not in (Tensor, torch.nn.Parameter)
    )


def draw_seed(device: torch.device, generator: torch.Generator | None = None, size: Sequence[int] = ()) -> Tensor:
    """64 random bits from torch's generator, or several times 64, moved apart on every rank of a process group."""
    with _drawing:
        seed = torch.randint(-(2**63), 2**63 - 1, size, dtype=torch.int64, device=device, generator=generator)
    if _DISTRIBUTED and torch.distributed.is_initialized():
        return seed + torch.distributed.get_rank() * RANK_STEP % 2**63
    return seed


def apply_noise(
    input: Tensor,
    options: Options,
    given: Tensor | None,
    units: Sequence[int],
    shared: Sequence[int] = (),
    generator: torch.Generator | None = None,
) -> Tensor:
    """``input`` times noise; ``shared`` dimensions get one noise for all their positions."""
    if input.numel() == 0:
        return input
    given = None if given is None else given.detach()
    opaque = is_opaque(input)
    if opaque and generator is not None:
        raise ValueError(
            "generator= is for plain tensors in eager mode; "
            "under torch.compile, torch.func and with tensor subclasses use torch.manual_seed"
        )
    if opaque and uses_numba(input.device):
        floats: Tensor = noise(input.detach(), given, *options, list(units), list(shared), None, None)
    elif opaque or shared or input.numel() < LEAST_LARGE:
        floats = _noise_as_floats(input, options, given, units, shared, generator)
    else:
        output: Tensor = _Dropout.apply(input, options, given, units, generator)  # type: ignore[no-untyped-call]
        return output
    product = input * floats
    return product if floats.dtype == input.dtype else product.to(input.dtype)


class _Dropout(torch.autograd.Function):
    """input * counts * scale, with a byte per element kept. The noise is a constant: so is its derivative."""

    @staticmethod
    def forward(
        ctx: Any,
        input: Tensor,
        options: Options,
        given: Tensor | None,
        units: Sequence[int],
        generator: torch.Generator | None,
    ) -> Tensor:
        ctx.units, ctx.shape, ctx.by_numba = units, input.shape, uses_numba(input.device)
        rows = _checked_rows(input, options, given, units)
        if ctx.by_numba:
            output = torch.empty_like(input)
            product, seed = to_rows(output, units), draw_seed(input.device, generator)
            counts, scale = _numba.drop(rows, options, given, seed, product)
            _write_rows(product, output, units)
        else:
            counts, scale = _torch.draw(rows, options, given, generator)
            output = _times_noise(ctx, input, counts, scale)
        ctx.save_for_backward(counts, scale)
        ctx.save_for_forward(counts, scale)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        counts, scale = ctx.saved_tensors
        mapped = torch._C._functorch.is_legacy_batchedtensor(grad) or torch._C._functorch.is_batchedtensor(grad)
        if mapped or torch.is_grad_enabled() or not ctx.by_numba:  # many gradients at once, or a second derivative
            return _times_noise(ctx, grad, counts, scale), None, None, None, None
        product = torch.empty_like(grad)
        rows = to_rows(product, ctx.units)
        _numba.multiply(to_rows(grad, ctx.units), counts, scale, rows)
        _write_rows(rows, product, ctx.units)
        return product, None, None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        return _times_noise(ctx, tangent, *ctx.saved_tensors)


def _times_noise(ctx: Any, tensor: Tensor, counts: Tensor, scale: Tensor) -> Tensor:
    """By torch's own operations, which vmap maps and autograd differentiates again."""
    return (tensor * _from_rows(counts * scale, ctx.shape, ctx.units)).to(tensor.dtype)


# The tag says: random, so neither merge two calls nor make one of them again.
@torch.library.custom_op("evodrop::noise", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,))
def noise(
    input: Tensor,
    given: Tensor | None,
    p: float,
    k: int | None,
    match: str,
    uniform_mix: float,
    follows: bool,
    independent: bool,
    units: Sequence[int],
    shared: Sequence[int],
    seed: Tensor | None,
    batches: int | None,
) -> Tensor:
    """Noise of the numba backend for ``input``, of size 1 in dimensions that share it, in float32 or wider.

    It draws the same seed as an eager call, and by the same kernels, so the output is the same to the last bit.
    Dimension 0 may hold ``batches``, each with a seed and, where ``given`` has two dimensions, values of its own.
    """
    options = Options(p, k, match, uniform_mix, follows, independent)
    if batches is None:
        return _noise_as_floats(input, options, given, units, shared, seed=seed).contiguous()
    seeds = (draw_seed(input.device, size=(batches,)) if seed is None else seed).expand(batches)
    if given is None and not shared:
        rows = to_rows(input, units).view(batches, -1, count_units(input, units))
        floats = _numba.noise_of_batches(rows, options, seeds)
        if floats is not None:
            return _from_rows(floats, input.shape, units).contiguous()
    own_units, own_shared = ([dim - 1 for dim in dims] for dims in (units, shared))
    values = [given] * batches if given is None or given.ndim == 1 else given.unbind()
    each = zip(input.unbind(), values, seeds.unbind(), strict=True)
    return torch.stack([_noise_as_floats(x, options, v, own_units, own_shared, seed=s) for x, v, s in each])


@noise.register_fake
def _(input: Tensor, given: Tensor | None, *arguments: Any) -> Tensor:  # noqa: ARG001
    *_, shared, _, _ = arguments
    dtype = torch.float64 if input.dtype == torch.float64 else torch.float32
    return input.new_empty(_noise_shape(input.shape, shared), dtype=dtype)


@noise.register_vmap
def _(
    info: Any, in_dims: tuple[int | None, ...], input: Tensor, given: Tensor | None, *arguments: Any
) -> tuple[Tensor, int]:
    """Each of the mapped inputs is a batch of its own, with probabilities of its own; "same" shares the seed."""
    *others, units, shared, seed, batches = arguments
    if info.randomness == "error":
        raise RuntimeError("vmap: dropout is random; call torch.func.vmap with randomness='different' or 'same'")
    if seed is None and info.randomness == "same":
        seed = draw_seed(input.device, size=() if batches is None else (batches,))
    size, (dim, given_dim, *_, seed_dim, _) = info.batch_size, in_dims
    if batches is not None:  # an inner vmap was here before
        mapped = ((input, dim), (given, given_dim), (seed, seed_dim))
        each = zip(*(unmapped(tensor, dim, size) for tensor, dim in mapped), strict=True)
        return torch.stack([noise(x, values, *others, units, shared, own, batches) for x, values, own in each]), 0
    together = input.expand(size, *input.shape) if dim is None else input.movedim(dim, 0)
    values = given if given is None or given_dim is None else given.movedim(given_dim, 0)
    beside = ([unit + 1 for unit in dims] for dims in (units, shared))
    return noise(together, values, *others, *beside, seed, size), 0


def unmapped(tensor: Tensor | None, dim: int | None, size: int) -> Sequence[Tensor | None]:
    """An argument for each of those that vmap maps over."""
    return [tensor] * size if tensor is None or dim is None else tensor.unbind(dim)


def _noise_as_floats(
    input: Tensor,
    options: Options,
    given: Tensor | None,
    units: Sequence[int],
    shared: Sequence[int],
    generator: torch.Generator | None = None,
    seed: Tensor | None = None,
) -> Tensor:
    """Noise as a view that can be multiplied with the input."""
    rows = _checked_rows(input, options, given, units, shared)
    if uses_numba(input.device):
        seed = draw_seed(input.device, generator) if seed is None else seed
        floats = _numba.noise(rows, options, given, seed)
    else:
        counts, scale = _torch.draw(rows, options, given, generator, is_opaque(input))
        floats = counts * scale
    return _from_rows(floats, _noise_shape(input.shape, shared), [*units, *shared])


def _checked_rows(
    input: Tensor, options: Options, given: Tensor | None, units: Sequence[int], shared: Sequence[int] = ()
) -> Tensor:
    """The input as rows; elsewhere than on the CPU, a look at the given values would stall the device."""
    if given is not None and given.device.type == "cpu" and not is_opaque(given):
        if options.follows and (negative := given < 0).any():  # moments may be infinite: such units pass
            raise ValueError(f"moments holds {float(given[negative][0])}, but a mean of squares is not negative")
        if not options.follows:
            checked_keep(given) if options.independent else checked_masses(given, "probs")
    return to_rows(input.detach(), units, shared)


def _write_rows(rows: Tensor, output: Tensor, units: Sequence[int]) -> None:
    """Put rows where they belong in ``output``, unless they are its memory."""
    if rows.data_ptr() != output.data_ptr():
        output.copy_(_from_rows(rows, output.shape, units))


def _noise_shape(shape: torch.Size, shared: Sequence[int]) -> Sequence[int]:
    return [1 if dim in shared else size for dim, size in enumerate(shape)] if shared else shape


def _from_rows(rows: Tensor, shape: Sequence[int], last: Sequence[int]) -> Tensor:
    """Rows as a view of the shape that they were made of; ``last`` are the dimensions that their columns hold."""
    if rows.shape == shape and tuple(last) == (1,):  # as most layers have it
        return rows
    order = _order(len(shape), last)
    return rows.view([shape[dim] for dim in order]).permute([order.index(dim) for dim in range(len(shape))])


def _order(ndim: int, last: Sequence[int]) -> list[int]:
    return [dim for dim in range(ndim) if dim not in last] + [*last]
