"""The machine that a pickle drives: a stack, marks on it, a memo, and the few harmless things that can be done to them.

Memory is bounded by the size of the pickle and the number of its steps. No value is printed, hashed or compared that
could be nested: through the memo a short pickle makes values that take for ever to walk through.
"""

from __future__ import annotations

import enum
import re
from typing import Any

import numpy as np

from evodrop.lab.datasets.arrays import Bytes, DataError

__all__ = ["Machine", "Pixels"]

LONGEST_NAME = 100
is_number = re.compile(rb"-?[0-9]{1,18}").fullmatch


class Name(enum.Enum):
    """The only names that a pickle may speak of; they stand for themselves and are never called."""

    RECONSTRUCT = enum.auto()
    NDARRAY = enum.auto()
    DTYPE = enum.auto()


NAMES = {
    ("numpy.core.multiarray", "_reconstruct"): Name.RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): Name.RECONSTRUCT,
    ("numpy", "ndarray"): Name.NDARRAY,
    ("numpy", "dtype"): Name.DTYPE,
}


class Uint8:
    """NumPy's dtype of a byte."""


class Pixels:
    """An array of bytes; empty until its content follows in the pickle."""

    def __init__(self) -> None:
        self.array: Bytes = np.empty((0, 0), np.uint8)


class Machine:
    """See the module. Where the data or the stack end too early, an IndexError is raised.

    Args:
        data: the pickle.
        where: what to call it in an error.
    """

    def __init__(self, data: bytes, where: str) -> None:
        self.data, self.where, self.at = data, where, 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def refusal(self, fault: str) -> DataError:
        return DataError(f"{self.where} {fault}: it is not read. Fetch it anew")

    def take(self, size: int) -> bytes:
        """The next bytes of the pickle."""
        piece = self.data[self.at : self.at + size]
        if len(piece) < size:
            raise IndexError
        self.at += size
        return piece

    def skip(self, size: int) -> None:
        self.take(size)

    def number(self, width: int, signed: bool = False) -> int:
        return int.from_bytes(self.take(width), "little", signed=signed)

    def line(self) -> bytes:
        end = self.data.find(b"\n", self.at, self.at + LONGEST_NAME)
        if end < 0:
            raise IndexError
        return self.take(end + 1 - self.at)[:-1]

    def written_number(self) -> int:
        """A number in digits, or a truth value as protocol 1 wrote it."""
        text = self.line()
        if not is_number(text):
            raise IndexError
        return {b"00": False, b"01": True}.get(text, int(text))

    def last(self, count: int) -> list[Any]:
        """The last values of the stack, taken off it."""
        if count > len(self.stack):
            raise IndexError
        items = self.stack[-count:]
        del self.stack[-count:]
        return items

    def since_mark(self) -> list[Any]:
        """The values above the last mark, taken off the stack."""
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def add(self, pairs: list[Any]) -> None:
        """Put pairs of key and value into the dict on the stack."""
        target, keys, values = self.stack[-1], pairs[::2], pairs[1::2]
        texts = all(isinstance(key, bytes | str) for key in keys)
        if not (isinstance(target, dict) and texts and len(keys) == len(values)):
            raise self.refusal("sets items of what is not a dict of strings")
        target.update(zip(keys, values, strict=True))

    def extend(self, items: list[Any]) -> None:
        """Put values into the list on the stack."""
        if not isinstance(self.stack[-1], list):
            raise self.refusal("appends to what is not a list")
        self.stack[-1].extend(items)

    def name(self, parts: list[Any]) -> None:
        """Push what stands for a module's name, if it is one of those that NumPy's arrays need."""
        texts = [part.decode("ascii", "replace") if isinstance(part, bytes) else part for part in parts]
        if not all(isinstance(text, str) for text in texts):
            raise self.refusal("asks for a name that is not text")
        module, name = texts
        if (module, name) not in NAMES:
            asked = f"{module[:LONGEST_NAME]}.{name[:LONGEST_NAME]}"
            raise self.refusal(f"asks for {asked!r}, which no CIFAR batch needs")
        self.stack.append(NAMES[module, name])

    def reduce(self) -> None:
        """Push what NumPy's arrays are made of: an empty array, or the type of its elements."""
        name, arguments = self.last(2)
        first = arguments[0] if isinstance(arguments, tuple) and arguments else None
        if name is Name.RECONSTRUCT and first is Name.NDARRAY:
            self.stack.append(Pixels())
        elif name is Name.DTYPE and isinstance(first, bytes | str) and first in {b"u1", "u1"}:
            self.stack.append(Uint8())
        else:
            raise self.refusal("makes something other than an array of bytes")

    def build(self) -> None:
        """Fill the array on the stack. What a type of elements is told adds nothing: one byte has no order."""
        (state,), target = self.last(1), self.stack[-1]
        if isinstance(target, Pixels):
            target.array = self.pixels(state)
        elif not isinstance(target, Uint8):
            raise self.refusal("sets the state of something other than an array")

    def pixels(self, state: Any) -> Bytes:
        """The array of a state: version, shape, type of elements, whether by columns, content."""
        if isinstance(state, tuple) and len(state) == 5:
            _, shape, dtype, by_columns, content = state
            table = isinstance(shape, tuple) and len(shape) == 2 and all(type(n) is int and n > 0 for n in shape)
            typed = isinstance(dtype, Uint8) and type(by_columns) is bool and isinstance(content, bytes)
            if table and typed and shape[0] * shape[1] == len(content):
                return np.frombuffer(content, np.uint8).reshape(shape, order="F" if by_columns else "C")
        raise self.refusal("holds an array that is not a table of bytes")
