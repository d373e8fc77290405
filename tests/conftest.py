from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "experiments")]  # so that every folder of tests can import what several share

from process_groups import Ranks  # noqa: E402


@pytest.fixture(scope="session")
def two_ranks():
    """A gloo group of two processes; see :class:`process_groups.Ranks`."""
    ranks = Ranks(2)
    yield ranks
    ranks.close()


@pytest.fixture(scope="session")
def three_ranks():
    """A gloo group of three processes."""
    ranks = Ranks(3)
    yield ranks
    ranks.close()
