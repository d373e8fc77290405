"""Predictions of a fitted model for dask arrays: each block is scored where it is, when somebody asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from evodrop.linear.blocks import as_arrays, check_rows, is_dask, paired_blocks
from evodrop.linear.classifier import has_probabilities
from evodrop.linear.connection import connected
from evodrop.linear.estimators import DropoutSGDClassifier
from evodrop.linear.partitions import with_weight

__all__ = ["BlockwiseClassifier"]

Array = npt.NDArray[Any]


class BlockwiseClassifier(DropoutSGDClassifier):
    """Every method takes a dask array too, and then gives one; ``score`` also takes svmlight files."""

    cluster: str | None

    def decision_function(self, X: Any) -> Any:
        """The score of each row; of a dask array, a dask array."""
        return self._scored(super().decision_function, X, np.dtype(np.float64))

    def predict(self, X: Any) -> Any:
        """The class of each row; of a dask array, a dask array."""
        return self._scored(super().predict, X, getattr(self, "classes_", np.zeros(0)).dtype)

    @available_if(has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Any:
        """(n, C) probabilities; of a dask array, a dask array."""
        return self._scored(super().predict_proba, X, np.dtype(np.float64))

    @available_if(has_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Any:
        """The logarithm of :meth:`predict_proba`."""
        return self._scored(super().predict_log_proba, X, np.dtype(np.float64))

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

            X, y = as_arrays(X, y, self.n_features_in_)
            model = delayed(self._model())
            tasks = [delayed(_hits)(model, *block) for block in paired_blocks(X, y, sample_weight)]
            hits, weight = np.sum(client.gather(client.compute(tasks)), axis=0)
        if not weight > 0:
            raise ValueError(f"the weights of the examples sum to {weight:g}, so there is no score")
        return float(hits / weight)

    def _scored(self, method: Callable[[Any], Array], X: Any, dtype: np.dtype[Any]) -> Any:
        if not is_dask(X):
            return method(X)
        from dask.delayed import delayed

        check_is_fitted(self)
        check_rows(X)
        if not np.isnan(X.shape[1]) and X.shape[1] != self.n_features_in_:
            raise ValueError(f"X has {X.shape[1]} features, but the model was fitted on {self.n_features_in_}")
        one = method(np.zeros((1, self.n_features_in_)))  # its shape, for blocks that have no row
        axes = {"drop_axis": 1} if one.ndim == 1 else {"chunks": (X.chunks[0], one.shape[1:])}
        none = one[:0].astype(dtype)
        model = delayed(self._model())
        return X.map_blocks(_apply, model, method=method.__name__, none=none, dtype=dtype, meta=none, **axes)

    def _model(self) -> DropoutSGDClassifier:
        """What a worker needs to predict, and no more."""
        model = DropoutSGDClassifier(loss=self.loss)
        for name in ("classes_", "coef_", "intercept_", "n_features_in_"):
            setattr(model, name, getattr(self, name))
        return model


def _apply(block: Any, model: DropoutSGDClassifier, method: str, none: Array) -> Array:
    return np.asarray(getattr(model, method)(block), none.dtype) if block.shape[0] else none


def _hits(model: DropoutSGDClassifier, X: Any, y: Any, weight: Any) -> tuple[float, float]:
    X, y, weight = with_weight(X, y, weight)
    if X.shape[0] == 0:
        return 0.0, 0.0
    weight = np.ones(X.shape[0]) if weight is None else np.asarray(weight, np.float64)
    return float(weight @ (model.predict(X) == np.asarray(y))), float(weight.sum())
