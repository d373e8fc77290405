"""DaskDropoutSGDClassifier: the fit of a DropoutSGDClassifier on a Dask cluster, and the connection to it."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any, ClassVar

import numpy as np
from sklearn.base import MetaEstimatorMixin, _fit_context, clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from evodrop._checks import Array
from evodrop.linear._base import (
    POSITIVE_INTEGER,
    LinearClassifier,
    count_problems,
    followed,
    has_probabilities,
    number_labels,
)
from evodrop.linear._fit import Progress
from evodrop.linear.dask.data import as_arrays, check_rows, is_dask, paired_blocks
from evodrop.linear.dask.rounds import Rounds, State, count_weight_of_hits
from evodrop.linear.sgd import DropoutSGDClassifier

__all__ = ["DaskDropoutSGDClassifier", "connected", "joblib_on"]

ANSWER = 10  # seconds for a scheduler to answer
WORKERS = 60  # and for its first worker to come
FITTED = ("classes_", "coef_", "intercept_", "n_features_in_", "n_iter_", "t_", "probs_", "k_", "history_")


class DaskDropoutSGDClassifier(MetaEstimatorMixin, LinearClassifier):  # type: ignore[misc]
    r"""A :class:`DropoutSGDClassifier` that is fitted on a Dask cluster, a partition of the examples at a time.

    The second moments are summed over the partitions. Then come rounds: every partition takes ``local_epochs`` epochs
    from the common iterate, and the next common iterate is the mean of theirs, weighted by their n_p examples,

    .. math:: w = \sum_p \frac{n_p}{n} w_p.

    The model depends on ``random_state`` and on the partitions, not on the number of workers or their order. A worker
    that dies costs what it held and was doing, and ten rounds at most: Dask does it again, elsewhere, and the model is
    the same. One partition alone gives the model of ``DropoutSGDClassifier``. More partitions can use more workers, but
    average more: have as many as workers, or a few times as many. No process holds more examples than its partitions;
    the model, C d numbers, has to fit each of them. Dask's dashboard shows every round as tasks ``run_epochs`` and
    ``count_hits``. It needs the extra ``dask``.

    Args:
        estimator: a :class:`DropoutSGDClassifier`; None: one with default parameters. ``max_iter`` counts epochs; the
            rules to stop and to begin the tail average anew count rounds. ``learning_rate="invscaling"`` counts a
            partition's own steps.
        local_epochs: epochs from one average to the next. More of them spare communication.
        cluster: the address of a Dask scheduler; None: the ``distributed.Client`` that is in use.

    Attributes:
        estimator_: the fitted :class:`DropoutSGDClassifier`; all its attributes are here too.
        history_: lists with one number per round.

    Examples:
        >>> from dask import array
        >>> from distributed import Client
        >>> X = array.from_array(np.tile([[2.0, 0.0, 1.0], [0.0, 1.0, 1.0]], (4, 1)), chunks=(4, 3))
        >>> with Client(processes=False, n_workers=1, dashboard_address=":0") as client:
        ...     model = DaskDropoutSGDClassifier(DropoutSGDClassifier(random_state=0)).fit(X, ["sport", "art"] * 4)
        >>> model.predict([[3.0, 0.0, 0.0], [0.0, 2.0, 0.0]])
        array(['sport', 'art'], dtype='<U5')
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "estimator": [DropoutSGDClassifier, None],
        "local_epochs": [POSITIVE_INTEGER],
        "cluster": [str, None],
    }

    def __init__(
        self, estimator: DropoutSGDClassifier | None = None, *, local_epochs: int = 1, cluster: str | None = None
    ) -> None:
        self.estimator, self.local_epochs, self.cluster = estimator, local_epochs, cluster

    @_fit_context(prefer_skip_nested_validation=False)  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> DaskDropoutSGDClassifier:
        """Learn from scratch, or with ``warm_start`` from the coefficients of the last fit.

        Args:
            X: (n, d) dask array, whose blocks of rows are CSR matrices or arrays; or a list of svmlight files, which
                all workers see, each of them a partition.
            y: (n,) classes, a dask array or one in memory; None for files.
            sample_weight: (n,) weights, not negative; a dask array or one in memory.
        """
        model = self._own_estimator()
        model._validate_params()
        goes_on, seed = model.warm_start and hasattr(model, "coef_"), model._new_seed()
        with connected(self.cluster) as client:
            found = self._survey(client, model, X, y, sample_weight, seed, known=goes_on)
            if goes_on:
                model._check_same_classes(found.classes)
            self._begin(model, found.classes, found.d, seed)
            if goes_on:
                model._progress.model = State(np.column_stack([model.coef_, model.intercept_]))
            self._learn(model, found, model.max_iter, X=X, y=y, metadata={})
        return self

    @_fit_context(prefer_skip_nested_validation=False)  # type: ignore[untyped-decorator]
    def partial_fit(
        self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None
    ) -> DaskDropoutSGDClassifier:
        """One round over a part of the data; the second moments run over all parts so far.

        Args:
            X, y, sample_weight: as for :meth:`fit`.
            classes: all classes of all parts; needed in the first call.
        """
        model = self._own_estimator()
        known, first = model._known_classes(classes), not hasattr(model, "_progress")
        seed = model._new_seed() if first else model._progress.seed
        with connected(self.cluster) as client:
            found = self._survey(client, model, X, y, sample_weight, seed, known=not first)
            number_labels(found.classes, known)  # before anything is changed
            found.classes = known
            if first:
                self._begin(model, known, found.d, seed)
            self._learn(model, found, self.local_epochs, partial=True, X=X, y=y, metadata={})
        return self

    @property
    def loss(self) -> Any:
        """That of the estimator, which decides whether scores can become probabilities."""
        return (getattr(self, "estimator_", None) or self._given()).loss

    def decision_function(self, X: Any) -> Any:
        """The score of each row; of a dask array, a dask array."""
        return self._scored("decision_function", X)

    def predict(self, X: Any) -> Any:
        """The class of each row; of a dask array, a dask array."""
        return self._scored("predict", X)

    @available_if(has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Any:
        """(n, C) probabilities; of a dask array, a dask array."""
        return self._scored("predict_proba", X)

    @available_if(has_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Any:
        """The logarithm of :meth:`predict_proba`."""
        return self._scored("predict_log_proba", X)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The share of examples that the model gets right, weighted; only numbers leave the workers.

        Args:
            X, y, sample_weight: as for ``fit``, or all in memory.
        """
        if not is_dask(X) and y is not None:
            return float(super().score(X, y, sample_weight))
        check_is_fitted(self)
        with connected(self.cluster) as client:
            from dask.delayed import delayed  # only now: data in memory need no Dask

            X, y = as_arrays(X, y, self.estimator_.n_features_in_)
            model = delayed(self._light_estimator())
            tasks = [delayed(count_weight_of_hits)(model, *block) for block in paired_blocks(X, y, sample_weight)]
            hits, weight = np.sum(client.gather(client.compute(tasks)), axis=0)
        if not weight > 0:
            raise ValueError(f"the weights of the examples sum to {weight:g}, so there is no score")
        return float(hits / weight)

    def _given(self) -> DropoutSGDClassifier:
        return DropoutSGDClassifier() if self.estimator is None else self.estimator

    def _own_estimator(self) -> Any:
        """The estimator to fit: a clone, or with the parameters of now the one that was fitted before."""
        given = self._given()
        if given.learning_rate == "adagrad":
            raise ValueError(
                "learning_rate='adagrad' keeps sums for each weight, which machines do not share; use 'linear'"
            )
        return self.estimator_.set_params(**given.get_params()) if hasattr(self, "estimator_") else clone(given)

    def _survey(self, client: Any, model: Any, X: Any, y: Any, sample_weight: Any, seed: int, known: bool) -> Rounds:
        X, y = as_arrays(X, y, model.n_features_in_ if known else None)
        fraction = model.validation_fraction if model.early_stopping else None
        found = Rounds(client, paired_blocks(X, y, sample_weight), fraction, seed)
        if known and found.d != model.n_features_in_:
            raise ValueError(
                f"X has {found.d} features, but the model was fitted on {model.n_features_in_}; give X the same columns"
            )
        return found

    def _begin(self, model: Any, classes: Array, d: int, seed: int) -> None:
        state = State(np.zeros((count_problems(classes), d + 1)))
        model.classes_, model.n_features_in_ = classes, d
        model._progress = Progress(state, seed, bool(model.average))

    def _learn(self, model: Any, found: Rounds, epochs: int, partial: bool = False, **details: Any) -> None:
        self.estimator_ = model

        def fitted() -> dict[str, Any]:
            model._progress.model = found.state.result()
            attributes = model._fitted()
            now = copy(model)
            vars(now).update(attributes)
            return {"estimator_": now, "classes_": model.classes_, "n_features_in_": model.n_features_in_, **attributes}

        bar = epochs if model.verbose and epochs > self.local_epochs else 0
        with followed(self, "epoch", epochs, bar, fitted, **details) as watch:
            model._keep(*found.fit(model, epochs, self.local_epochs, watch, partial))
            for name in FITTED:
                setattr(self, name, getattr(model, name))

    def _light_estimator(self) -> Any:
        """What a worker needs to predict, and no more."""
        model = copy(self.estimator_)
        vars(model).pop("_progress", None)
        return model

    def _scored(self, name: str, X: Any) -> Any:
        check_is_fitted(self)
        model = self._light_estimator()
        if not is_dask(X):
            return getattr(model, name)(X)
        from dask.delayed import delayed

        check_rows(X)
        if not np.isnan(X.shape[1]) and X.shape[1] != model.n_features_in_:
            raise ValueError(f"X has {X.shape[1]} features, but the model was fitted on {model.n_features_in_}")
        one = getattr(model, name)(np.zeros((1, model.n_features_in_)))  # its shape and type, for blocks without rows
        axes = {"drop_axis": 1} if one.ndim == 1 else {"chunks": (X.chunks[0], one.shape[1:])}
        options = {"method": name, "none": one[:0], "dtype": one.dtype, "meta": one[:0]}
        return X.map_blocks(_apply, delayed(model), **options, **axes)


def _apply(block: Any, model: DropoutSGDClassifier, method: str, none: Array) -> Array:
    return np.asarray(getattr(model, method)(block), none.dtype) if block.shape[0] else none


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
    address = client.scheduler.address
    try:
        with _thread_given_back(), client.as_current():
            try:  # by a task, which also asks a cluster that grows with its work to grow
                client.submit(bool, pure=False).result(timeout=WORKERS)
            except TimeoutError as error:
                raise TimeoutError(
                    f"the scheduler at {client.scheduler.address} has no free worker after {WORKERS} seconds; "
                    f"start some with 'dask worker {client.scheduler.address}'"
                ) from error
            try:
                yield client
            except (Exception, CancelledError) as error:
                if client.status == "running":
                    raise
                raise ConnectionError(
                    f"the Dask scheduler at {address} went away in the middle of the work, and what it held is lost; "
                    "start it anew with 'dask scheduler' and its workers with 'dask worker', then call again"
                ) from error
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
    if cluster is None:
        try:
            return get_client()
        except ValueError as error:
            raise ValueError(
                "there is no Dask client; make one first, client = distributed.Client(), "
                "or give cluster='tcp://host:8786'"
            ) from error
    if not isinstance(cluster, str):
        raise TypeError(f"cluster is a {type(cluster).__name__}, but it takes the address of a scheduler or a Client")
    if not cluster.rpartition(":")[2].isdigit():
        raise ValueError(f"cluster is {cluster!r}, but an address has a port, as 'tcp://host:8786'")
    try:
        return Client(cluster, timeout=ANSWER, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ConnectionError(
            f"no Dask scheduler answers at {cluster!r} within {ANSWER} seconds ({error}); "
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
