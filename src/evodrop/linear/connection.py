"""The way to a Dask cluster: a client that is there, or a clear word why not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["connected", "joblib_on"]

ANSWER = 10  # seconds for a scheduler to answer
WORKERS = 60  # and for its first worker to come


@contextmanager
def connected(cluster: Any = None) -> Iterator[Any]:
    """A client of a cluster that has a worker; within, it is the current one.

    Args:
        cluster: the address of a scheduler, a ``distributed.Client``, or None for the client that is in use.

    Examples:
        >>> with connected("tcp://localhost"):  # doctest: +IGNORE_EXCEPTION_DETAIL
        ...     pass
        Traceback (most recent call last):
        ValueError: cluster is 'tcp://localhost', but an address has a port, as 'tcp://host:8786'
    """
    client = _client(cluster)
    try:
        with _thread_given_back(), client.as_current():
            _wait_for_a_worker(client)
            yield client
    finally:
        if isinstance(cluster, str):
            client.close()


@contextmanager
def joblib_on(cluster: Any) -> Iterator[None]:
    """Within, joblib's calls run on the workers of a cluster, one for each of their threads. None changes nothing.

    Args:
        cluster: the address of a scheduler, or a ``distributed.Client``.
    """
    if cluster is None:
        yield
        return
    from joblib import parallel_config

    with connected(cluster) as client, parallel_config(backend="dask", client=client):
        yield


def _client(cluster: Any) -> Any:
    try:
        from distributed import Client, get_client
    except ImportError as error:
        raise ImportError("a cluster needs Dask: pip install 'evodrop[dask]'") from error
    if isinstance(cluster, Client):
        if cluster.status == "closed":
            raise ConnectionError(f"the client {cluster.id} is closed; make another, distributed.Client(address)")
        return cluster
    if isinstance(cluster, str):
        return _reach(Client, cluster)
    if cluster is not None:
        raise TypeError(f"cluster is a {type(cluster).__name__}, but it takes the address of a scheduler or a Client")
    try:
        return get_client()
    except ValueError as error:
        raise ValueError(
            "there is no Dask client; make one first, client = distributed.Client(), or give cluster='tcp://host:8786'"
        ) from error


def _reach(make_client: Any, address: str) -> Any:
    if not address.rpartition(":")[2].isdigit():
        raise ValueError(f"cluster is {address!r}, but an address has a port, as 'tcp://host:8786'")
    try:
        return make_client(address, timeout=ANSWER, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ConnectionError(
            f"no Dask scheduler answers at {address!r} within {ANSWER} seconds ({error}); "
            "start one with 'dask scheduler', or mend the address"
        ) from error


@contextmanager
def _thread_given_back() -> Iterator[None]:
    """In a task of a worker, which has only so many threads: those that it waits for may need the one that waits."""
    from distributed import get_worker, worker_client

    try:
        get_worker()
    except ValueError:  # no task
        yield
        return
    with worker_client():
        yield


def _wait_for_a_worker(client: Any) -> None:
    """By a task, which also tells a cluster that grows with its work to grow."""
    try:
        client.submit(_present, pure=False).result(timeout=WORKERS)
    except TimeoutError as error:
        raise TimeoutError(
            f"the scheduler at {client.scheduler.address} has no free worker after {WORKERS} seconds; "
            f"start some with 'dask worker {client.scheduler.address}'"
        ) from error


def _present() -> bool:
    return True
