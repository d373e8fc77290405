"""What a test of a reader needs: a file to read, the refusal it must meet, and the memory that it may take."""

from __future__ import annotations

import gzip
import tracemalloc
from contextlib import contextmanager

import pytest

from evodrop.lab.data import DataError

MB = 1_000_000


def written(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    return path


def refused(read, *arguments, match=None):
    """The reader refuses, and names the file, which is its first argument."""
    with pytest.raises(DataError, match=match) as caught:
        read(*arguments)
    assert str(arguments[0]) in str(caught.value)


@contextmanager
def memory_below(most):
    """Fails if more bytes than that are taken inside."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


def zeros(n_megabytes):
    """Packed zeros; a bomb, if there are many. What is packed may be put end to end."""
    return gzip.compress(bytes(MB)) * n_megabytes
