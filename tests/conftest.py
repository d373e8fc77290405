from __future__ import annotations

import pytest
from helpers.process_groups import Ranks


@pytest.fixture(scope="module")
def client():
    """A client of two worker processes for the tests of a file; a worker that a test has killed comes back.

    It ends with the file: its threads would disturb tests that measure time and memory.
    """
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster, set_as_default=False) as client:
        yield client


@pytest.fixture
def current_client(client):
    """The same, in use: fits find it by themselves."""
    with client.as_current():
        yield client


@pytest.fixture(scope="session")
def two_ranks():
    """A gloo group of two processes; see :class:`helpers.process_groups.Ranks`."""
    ranks = Ranks(2)
    yield ranks
    ranks.close()


@pytest.fixture(scope="session")
def three_ranks():
    """A gloo group of three processes."""
    ranks = Ranks(3)
    yield ranks
    ranks.close()
