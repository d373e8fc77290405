"""CIFAR's batches are pickles of strangers, and a pickle is a program: here only its harmless part is run.

What can come out is dict, list, tuple, bytes, str, int, bool, None and arrays of bytes. No name is looked up, no module
imported, nothing called. Python's own Unpickler, even with ``find_class`` overridden, can be made to reserve 64 GB
for its memo by five bytes; so the operations that the format needs are run by a machine of our own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evodrop.lab.datasets.machine import Machine, Pixels

__all__ = ["Pixels", "unpickle"]

STOP = ord(".")
Action = Callable[[Machine], None]


def _push(read: Callable[[Machine], Any]) -> Action:
    return lambda machine: machine.stack.append(read(machine))


def _bytes(width: int) -> Action:
    return _push(lambda machine: machine.take(machine.number(width)))


def _text(width: int) -> Action:
    return _push(lambda machine: machine.take(machine.number(width)).decode())


def _tuple(length: int) -> Action:
    return _push(lambda machine: tuple(machine.last(length)))


def _put(index: Callable[[Machine], int]) -> Action:
    return lambda machine: machine.memo.update({index(machine): machine.stack[-1]})


def _get(width: int) -> Action:
    return _push(lambda machine: machine.memo[machine.number(width)])


ACTIONS: dict[int, Action] = {
    code[0]: action
    for code, action in {
        b"\x80": lambda machine: machine.skip(1),  # the protocol
        b"\x95": lambda machine: machine.skip(8),  # a frame
        b"(": lambda machine: machine.marks.append(len(machine.stack)),
        b"N": _push(lambda _: None),
        b"\x88": _push(lambda _: True),
        b"\x89": _push(lambda _: False),
        b"I": _push(lambda machine: machine.written_number()),
        b"K": _push(lambda machine: machine.number(1)),
        b"M": _push(lambda machine: machine.number(2)),
        b"J": _push(lambda machine: machine.number(4, signed=True)),
        b"\x8a": _push(lambda machine: machine.number(machine.number(1), signed=True)),
        b"U": _bytes(1),  # of Python 2
        b"T": _bytes(4),
        b"C": _bytes(1),  # of Python 3
        b"B": _bytes(4),
        b"\x8e": _bytes(8),
        b"\x8c": _text(1),
        b"X": _text(4),
        b"]": _push(lambda _: []),
        b"}": _push(lambda _: {}),
        b")": _push(lambda _: ()),
        b"\x85": _tuple(1),
        b"\x86": _tuple(2),
        b"\x87": _tuple(3),
        b"t": _push(lambda machine: tuple(machine.since_mark())),
        b"a": lambda machine: machine.extend(machine.last(1)),
        b"e": lambda machine: machine.extend(machine.since_mark()),
        b"s": lambda machine: machine.add(machine.last(2)),
        b"u": lambda machine: machine.add(machine.since_mark()),
        b"q": _put(lambda machine: machine.number(1)),
        b"r": _put(lambda machine: machine.number(4)),
        b"\x94": _put(lambda machine: len(machine.memo)),
        b"h": _get(1),
        b"j": _get(4),
        b"c": lambda machine: machine.name([machine.line(), machine.line()]),
        b"\x93": lambda machine: machine.name(machine.last(2)),
        b"R": Machine.reduce,
        b"b": Machine.build,
    }.items()
}


def unpickle(data: bytes, most_steps: int, where: str) -> Any:
    """The value of a pickle that holds plain data and arrays of bytes (as :class:`Pixels`), or a DataError.

    Strings of Python 2 become bytes, as by ``pickle.loads(data, encoding="bytes")``.

    Args:
        data: the pickle, of protocol 1 to 4.
        most_steps: how many operations it may have.
        where: what to call it in an error.

    Examples:
        >>> unpickle(b"\\x80\\x02}U\\x06labels](K\\x06K\\x09es.", 100, "batch")
        {b'labels': [6, 9]}
        >>> unpickle(b"cos\\nsystem\\n(U\\x04datetR.", 100, "batch")
        Traceback (most recent call last):
        evodrop.lab.datasets.arrays.DataError: batch asks for 'os.system', which no CIFAR batch needs: it is not
        read. Fetch it anew
    """
    machine = Machine(data, where)
    try:
        return _run(machine, most_steps)
    except (IndexError, KeyError, UnicodeDecodeError) as error:
        raise machine.refusal("is cut off or damaged") from error


def _run(machine: Machine, most_steps: int) -> Any:
    for _ in range(most_steps):
        code = machine.data[machine.at]
        machine.at += 1
        if code == STOP:
            return machine.stack.pop()
        if code not in ACTIONS:
            raise machine.refusal(f"has the operation {bytes([code])!r}, which no CIFAR batch needs")
        ACTIONS[code](machine)
    raise machine.refusal(f"has more than {most_steps} operations")
