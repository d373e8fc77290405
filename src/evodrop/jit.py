"""The ways in which this package compiles, and the few instructions that numba has no name for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba import types
from numba.extending import intrinsic

__all__ = ["compiled", "compiled_callback", "inlined", "next_of", "pointer_to"]


def compiled(kernel: Callable[..., Any]) -> Any:
    """Compile ``kernel`` at its first call, without the GIL, and keep the machine code on disk.

    Where no cache folder can be written, numba refuses ``cache=True``; then the code is compiled in memory.
    """
    # error_model="numpy": a division by zero gives inf or nan and no branch, so loops vectorise.
    return _cached(lambda cache: numba.njit(nogil=True, cache=cache, error_model="numpy")(kernel))


def inlined(kernel: Callable[..., Any]) -> Any:
    """Compile ``kernel`` into every kernel that calls it.

    A call passes each array as seven numbers, and a named tuple as all of its arrays: in a loop over short rows, that
    takes longer than the work.
    """
    return numba.njit(nogil=True, error_model="numpy", inline="always")(kernel)


def compiled_callback(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function now, for callers that know its address and the C signature only."""
    return lambda function: _cached(lambda cache: numba.cfunc(signature, cache=cache, error_model="numpy")(function))


def _cached(compile_with: Callable[[bool], Any]) -> Any:
    try:
        return compile_with(True)
    except RuntimeError:
        return compile_with(False)


def _pointer_to(_: Any, address: Any, item: Any) -> Any:
    pointer: Any = types.CPointer(item.dtype)  # type: ignore[no-untyped-call]

    def code(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(pointer))

    return pointer(address, item), code


def _next_of(_: Any, numbers: Any, step: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.atomic_rmw("add", array.data, arguments[1], "acq_rel")

    return types.int64(numbers, step), code


pointer_to: Any = intrinsic(_pointer_to)  # pointer_to(address, type): an integer as a pointer to items of the type
next_of: Any = intrinsic(_next_of)  # next_of(numbers, step): add to the first number, give what it was; never split
