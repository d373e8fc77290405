"""The ways in which this package compiles, and the few instructions that numba has no name for."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from llvmlite import ir
from llvmlite.binding import ffi
from numba import types
from numba.core import cgutils
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import intrinsic


def hold_during_fork(lock: Any) -> None:
    """Have every fork of the process wait until it holds ``lock``, and let it go on both sides.

    A child has the locks of its parent, but of the threads only the one that forked: a lock that another thread holds
    would stay shut for ever.
    """
    if hasattr(os, "register_at_fork"):
        release = functools.partial(lock.__exit__, None, None, None)
        os.register_at_fork(before=lock.__enter__, after_in_parent=release, after_in_child=release)


# Hooks run in the reverse order: numba's lock is taken first. llvmlite's is a private attribute, which finalisers take
# without numba's.
if hasattr(ffi.lib, "_lock"):
    hold_during_fork(ffi.lib._lock)
hold_during_fork(global_compiler_lock)


def compiled(kernel: Callable[..., Any]) -> Any:
    """Compile ``kernel`` at its first call, without the GIL, and keep the machine code on disk.

    Where no cache folder can be written, numba refuses ``cache=True``; then the code is compiled in memory.
    """
    # error_model="numpy": a division by zero gives inf or nan and no branch, so loops vectorise.
    dispatcher = _cached(lambda cache: numba.njit(nogil=True, cache=cache, error_model="numpy")(kernel))
    # numba looks only at the file of a kernel, not at the files of the kernels that it calls. The stamp is a private
    # attribute of numba 0.60 to 0.68; without it a change in another file would go unnoticed.
    files = getattr(dispatcher._cache, "_cache_file", None)
    if files is not None:
        files._source_stamp = (files._source_stamp, _sources())
    return dispatcher


@functools.cache
def _sources() -> str:
    """A hash of the files of this folder, which holds every kernel."""
    paths = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


def inlined(kernel: Callable[..., Any]) -> Any:
    """Compile ``kernel`` into every kernel that calls it: in a loop over short rows, a call outlasts its work."""
    return numba.njit(inline="always")(kernel)


def compiled_callback(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function now, for callers that have its address and its C signature only."""
    return lambda function: _cached(lambda cache: numba.cfunc(signature, cache=cache, error_model="numpy")(function))


def _cached(compile_with: Callable[[bool], Any]) -> Any:
    with global_compiler_lock:  # numba imports modules here; a fork would copy the locks of those imports, too
        try:
            return compile_with(True)
        except RuntimeError:
            return compile_with(False)


def _pointer_to(_: Any, address: Any, item: Any) -> Any:
    pointer: Any = types.CPointer(item.dtype)  # type: ignore[no-untyped-call]

    def code(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(pointer))

    return pointer(address, item), code


def _next_of(_: Any, jobs: Any, step: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        first = builder.bitcast(data, ir.IntType(64).as_pointer())
        return builder.atomic_rmw("add", first, arguments[1], "acq_rel")

    return types.int64(jobs, step), code


def _prefetch(_: Any, array: Any, index: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        byte, integer = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, integer, integer, integer])
        name = "llvm.prefetch.p0i8"
        function = cgutils.get_or_insert_function(builder.module, kind, name)  # type: ignore[no-untyped-call]
        address = builder.bitcast(builder.gep(data, [arguments[1]]), byte)
        builder.call(function, [address, integer(0), integer(3), integer(1)])  # to read, to keep, data
        return context.get_dummy_value()

    return types.void(array, index), code


pointer_to: Any = intrinsic(_pointer_to)  # pointer_to(address, type): an integer as a pointer to items of the type
prefetch: Any = intrinsic(_prefetch)  # prefetch(array, index): the cache may fetch that item already
next_of: Any = intrinsic(_next_of)  # next_of(jobs, step): add to the first number of a job, return what it was
