"""DaskDropoutSGDClassifier: the fit of DropoutSGDClassifier on a Dask cluster."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import numpy.typing as npt
from joblib import effective_n_jobs
from sklearn.base import _fit_context

from evodrop.linear.blocks import as_arrays, paired_blocks, read_svmlight
from evodrop.linear.callbacks import Watch
from evodrop.linear.connection import connected
from evodrop.linear.estimators import DropoutSGDClassifier
from evodrop.linear.local_epochs import State
from evodrop.linear.parameters import CLUSTER_PARAMETERS, dropout_of, radius_of, settings_of
from evodrop.linear.partitions import Recipe
from evodrop.linear.predictions import BlockwiseClassifier
from evodrop.linear.problems import check_classes, number_labels, side_weights
from evodrop.linear.rounds import Rounds, Schedule, coefficients
from evodrop.linear.surveys import Survey, survey

__all__ = ["DaskDropoutSGDClassifier", "read_svmlight"]

Array = npt.NDArray[Any]


class DaskDropoutSGDClassifier(BlockwiseClassifier):
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
        dropout, **parameters: as of :class:`DropoutSGDClassifier`. ``max_iter`` counts epochs; the rules to stop and to
            begin the tail average anew count rounds. ``learning_rate="invscaling"`` counts a partition's own steps.
        local_epochs: epochs from one average to the next. More of them spare communication.
        cluster: the address of a Dask scheduler; None: the ``distributed.Client`` that is in use.

    Attributes:
        history_: lists with one number per round, else as of :class:`DropoutSGDClassifier`, as all attributes are.

    Examples:
        >>> from dask import array
        >>> from distributed import Client
        >>> X = array.from_array(np.tile([[2.0, 0.0, 1.0], [0.0, 1.0, 1.0]], (4, 1)), chunks=(4, 3))
        >>> with Client(processes=False, n_workers=1, dashboard_address=":0") as client:
        ...     model = DaskDropoutSGDClassifier(random_state=0).fit(X, ["sport", "art"] * 4)
        >>> model.predict([[3.0, 0.0, 0.0], [0.0, 2.0, 0.0]])
        array(['sport', 'art'], dtype='<U5')
    """

    _parameter_constraints = CLUSTER_PARAMETERS

    def __init__(
        self, dropout: str = "data-dependent", *, local_epochs: int = 1, cluster: str | None = None, **parameters: Any
    ) -> None:
        super().__init__(dropout, **parameters)
        self.local_epochs, self.cluster = local_epochs, cluster

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> DaskDropoutSGDClassifier:
        """Learn from scratch, or with ``warm_start`` from the coefficients of the last fit.

        Args:
            X: (n, d) dask array, whose blocks of rows are CSR matrices or arrays; or a list of svmlight files, which
                all workers see, each of them a partition.
            y: (n,) classes, a dask array or one in memory; None for files.
            sample_weight: (n,) weights, not negative; a dask array or one in memory.
        """
        self._check_options()
        goes_on, seed = self.warm_start and hasattr(self, "coef_"), self._new_seed()
        with connected(self.cluster) as client:
            found = self._survey(client, X, y, sample_weight, seed, known=goes_on)
            if goes_on and not np.array_equal(found.classes, self.classes_):
                raise ValueError(
                    f"warm_start has classes {self.classes_}, but y has {found.classes}; set warm_start=False"
                )
            self._start(found.classes, found.d, seed)
            if goes_on:
                self._descent.state = self._descent.state._replace(coef=self.coef_, intercept=self.intercept_)
            self._learn_in_rounds(client, found, self.max_iter, self.tol, X=X, y=y, metadata={})
        return self

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def partial_fit(
        self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None
    ) -> DaskDropoutSGDClassifier:
        """One round over a part of the data; the second moments run over all parts so far.

        Args:
            X, y, sample_weight: as for :meth:`fit`.
            classes: all classes of all parts; needed in the first call.
        """
        known, first = self._known_classes(classes), not hasattr(self, "_descent")
        seed = self._new_seed() if first else self._descent.seed
        with connected(self.cluster) as client:
            found = self._survey(client, X, y, sample_weight, seed, known=not first)
            number_labels(found.classes, known)  # before anything is changed
            found = found._replace(classes=known)
            if first:
                self._start(known, found.d, seed)
            self._learn_in_rounds(client, found, self.local_epochs, None, X=X, y=y, metadata={})
        return self

    def _survey(self, client: Any, X: Any, y: Any, sample_weight: Any, seed: int, known: bool) -> Survey:
        X, y = as_arrays(X, y, self.n_features_in_ if known else None)
        fraction = self.validation_fraction if self.early_stopping else None
        found = survey(client, paired_blocks(X, y, sample_weight), fraction, seed)
        if known and found.d != self.n_features_in_:
            raise ValueError(
                f"X has {found.d} features, but the model was fitted on {self.n_features_in_}; give X the same columns"
            )
        return found

    def _start(self, classes: Array, d: int, seed: int) -> None:
        check_classes(classes)
        self.classes_, self.n_features_in_ = classes, d
        self._descent = Rounds(d, 1 if len(classes) == 2 else len(classes), bool(self.average), seed)

    def _learn_in_rounds(self, client: Any, found: Survey, epochs: int, tol: float | None, **told: Any) -> None:
        watch = Watch(self, epochs, **told)
        schedule = Schedule(epochs, self.local_epochs, self.average == "tail", tol, self.n_iter_no_change)
        self.n_iter_, plan = self._descent.run(
            client,
            found,
            self._recipe(found),
            schedule,
            lambda state: watch.step("epoch", lambda: _fitted(state())),
            bool(self.verbose),
        )
        self.probs_, self.k_, self.history_ = plan.probs, plan.k, self._descent.history
        for name, value in _fitted(self._descent.state).items():
            setattr(self, name, value)
        watch.close()

    def _recipe(self, found: Survey) -> Recipe:
        return Recipe(
            settings_of(self),
            dropout_of(self),
            _side_weights(self.class_weight, found),
            radius_of(self),
            bool(self.shuffle),
            bool(self.average),
            self._descent.seed,
            effective_n_jobs(self.n_jobs),
            int(found.total("training")),
        )


def _side_weights(class_weight: Any, found: Survey) -> Array:
    """As :func:`side_weights`, from the numbers of examples: "balanced" is n / (C n_c)."""
    if class_weight == "balanced":
        counts = found.table().sum(axis=0)
        if not counts.all():
            rare = found.classes[counts == 0].tolist()[0]
            raise ValueError(f"class {rare!r} has no training example, so class_weight='balanced' has no weight for it")
        balanced = counts.sum() / (len(counts) * counts)
        class_weight = dict(zip(found.classes.tolist(), balanced.tolist(), strict=True))
    return side_weights(class_weight, found.classes, found.classes)


def _fitted(state: State) -> dict[str, Any]:
    coef, intercept = coefficients(state)
    return {"coef_": coef, "intercept_": intercept, "t_": float(state.step)}


def _join_signatures() -> None:
    """Tell scikit-learn the names of all parameters: it reads them from the signature of ``__init__``."""
    own = inspect.signature(DaskDropoutSGDClassifier.__init__)
    base = inspect.signature(DropoutSGDClassifier.__init__)
    added = [own.parameters[name] for name in ("local_epochs", "cluster")]
    joined = base.replace(parameters=[*base.parameters.values(), *added])
    DaskDropoutSGDClassifier.__init__.__signature__ = joined  # type: ignore[attr-defined]


_join_signatures()
