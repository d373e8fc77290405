"""Pickles of strangers: what CIFAR's files hold is read as Python would read it, and nothing else is."""

from __future__ import annotations

import os
import pickle
import struct

import numpy as np
import pytest
from refusals import MB, memory_below
from specimens import Python2Pickler, batch

from evodrop.lab.datasets import DataError
from evodrop.lab.datasets.machine import Pixels
from evodrop.lab.datasets.pickles import unpickle

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (300, 12), np.uint8)
BATCH = batch(PIXELS, RNG.integers(0, 100, 300), fine=True)


def same(found, written):
    if isinstance(found, Pixels):
        return np.array_equal(found.array, written) and found.array.dtype == np.uint8
    if isinstance(found, dict):
        return list(found) == list(written) and all(same(found[key], written[key]) for key in found)
    return found == written and type(found) is type(written)


def test_pickles_of_python_2():
    data = Python2Pickler().dumps(BATCH)
    assert b"r" + struct.pack("<I", 256) in data  # the memo outgrows a byte, as in the true files
    by_python = pickle.loads(data, encoding="bytes")
    assert same(unpickle(data, 10_000, "batch"), by_python)
    assert same(unpickle(data, 10_000, "batch"), BATCH)


@pytest.mark.parametrize("protocol", [3, 4])
@pytest.mark.parametrize("order", ["C", "F"])
def test_pickles_of_python_3(protocol, order):
    contents = {
        **BATCH,
        "data": np.asarray(PIXELS, order=order),
        b"more": (None, True, -70_000, 70_000, 2**40, "ä", ()),
    }
    assert same(unpickle(pickle.dumps(contents, protocol), 10_000, "batch"), contents)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"(I1\nI-20\nI00\nI01\nt.", (1, -20, False, True)),  # protocol 1
        (b"](K\x01K\x02ea.", None),
        (b"]K\x01aK\x02a.", [1, 2]),
        (b"}U\x01aK\x01s.", {b"a": 1}),
        (b"]q\x00K\x07ah\x00.", [7]),
        (b"\x8a\x00.", 0),
    ],
)
def test_single_operations(data, value):
    if value is None:
        with pytest.raises(DataError):
            unpickle(data, 100, "batch")
    else:
        assert same(unpickle(data, 100, "batch"), value)
        assert same(pickle.loads(data, encoding="bytes"), value)


class Call:
    """Pickled, it asks for a call."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


HOSTILE = {
    "a command": Call(os.system, "touch {marker}"),
    "a file": Call(open, "{marker}", "w"),
    "code": Call(eval, "open('{marker}', 'w')"),
    "in a list": {b"labels": [Call(os.mkdir, "{marker}")]},
    "an attribute": Call(getattr, os, "system"),
    "an array of objects": np.array([Call(os.mkdir, "{marker}")], object),
    "an array of numbers": np.arange(6.0).reshape(2, 3),
    "a set": {1, 2},
}


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
def test_nothing_is_called(tmp_path, value, protocol):
    marker = tmp_path / "marker"
    if isinstance(value, Call) and "{marker}" in str(value.call[1][0]):
        text, *others = value.call[1]
        value = Call(value.call[0], text.format(marker=marker), *others)
    try:
        data = pickle.dumps(value, protocol)
    except TypeError:  # modules are not pickled
        data = b"cbuiltins\ngetattr\n(cos\nsystem\nU\x01atR."
    with pytest.raises(DataError, match=r"batch .* it is not read"):
        unpickle(data, 1000, "batch")
    assert not marker.exists()


def array_pickle(shape, content, *, dtype=b"u1", order=b"\x89"):
    """An array whose parts do not fit together."""
    pickler = Python2Pickler()
    whole = pickler.dumps(np.zeros((2, 3), np.uint8))
    for old, new in (
        (Python2Pickler().emit((2, 3))[:-2], Python2Pickler().emit(shape)[:-2]),
        (b"U\x02u1", b"U" + bytes([len(dtype)]) + dtype),
        (b"\x89U\x06" + bytes(6), order + b"T" + struct.pack("<I", len(content)) + content),
    ):
        assert whole.count(old) == 1
        whole = whole.replace(old, new)
    return whole


def test_arrays_are_tables_of_bytes():
    assert np.array_equal(unpickle(array_pickle((3, 2), bytes(range(6))), 100, "x").array, [[0, 1], [2, 3], [4, 5]])
    assert np.array_equal(unpickle(array_pickle((3, 2), bytes(range(6)), order=b"\x88"), 99, "x").array[0], [0, 3])
    for data in (
        array_pickle((3, 3), bytes(6)),
        array_pickle((-3, -2), bytes(6)),
        array_pickle((2**31 - 1, 2**31 - 1), bytes(6)),
        array_pickle((0, 6), b""),
        array_pickle((6,), bytes(6)),
        array_pickle((1, 2, 3), bytes(6)),
        array_pickle((3, 2), bytes(6), dtype=b"O"),
        array_pickle((3, 2), bytes(6), dtype=b"V99999999"),
        array_pickle((3, 2), bytes(6), order=b"N"),
    ):
        with pytest.raises(DataError, match=r"x (holds|makes)"):
            unpickle(data, 100, "x")


BOMBS = {
    "a memo of 64 GB": b"]r\xff\xff\xff\xff.",
    "a string of 4 GB": b"T\xff\xff\xff\xff.",
    "bytes of 2**63": b"\x8e" + b"\xff" * 7 + b"\x7f.",
    "a bytearray of 1 TB": b"\x96\x00\x00\x00\x00\x00\x01\x00\x00.",
    "a frame of 2**63": b"\x80\x04\x95" + b"\xff" * 7 + b"\x7f.",
    "a deep nest": b"]" * 100_000 + b"a" * 99_999 + b".",
    "endless dicts": b"}" * 1_000_000,
    "a wide nest": b"]q\x00" + b"(h\x00h\x00t\x85q\x00" * 200 + b".",
    "a wide key": b"}]" + b"(h\x00h\x00tq\x00" * 200 + b"K\x01s.",
    "a name that is a nest": b"]q\x00" + b"(h\x00h\x00tq\x00" * 200 + b"U\x01a\x93.",
    "a long name": b"c" + b"a" * 1_000_000,
    "a number of 10**6 digits": b"I" + b"9" * 1_000_000 + b"\n.",
}


@pytest.mark.parametrize("data", BOMBS.values(), ids=BOMBS)
def test_memory_and_time_are_bounded(data):
    with memory_below(5 * MB):
        if data in (BOMBS["a memo of 64 GB"], BOMBS["a wide nest"]):  # harmless, if nobody walks through the nest
            assert isinstance(unpickle(data, 5000, "batch"), list | tuple)
        else:
            with pytest.raises(DataError):
                unpickle(data, 5000, "batch")


def test_every_cut_is_noticed():
    data = Python2Pickler().dumps(batch(PIXELS[:3], [1, 2, 3]))
    for end in range(len(data)):
        with pytest.raises(DataError):
            unpickle(data[:end], 10_000, "batch")
