"""What comes in: any matrix and labels of scikit-learn's, checked once, so that no kernel has to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_array, validate_data

__all__ = ["checked_examples", "checked_rows", "row_indexable"]

DTYPES = (np.float64, np.float32)


def checked_rows(estimator: Any, X: Any) -> Any:
    """X as a fitted estimator may multiply it: an array or a CSR matrix with as many columns as it was fitted on."""
    _check_structure(X)
    return validate_data(estimator, X, accept_sparse="csr", dtype=DTYPES, reset=False)


def checked_examples(
    estimator: Any, X: Any, y: Any, sample_weight: Any, *, reset: bool = True
) -> tuple[sparse.csr_array, npt.NDArray[Any], npt.NDArray[np.float64]]:
    """What an estimator learns from: the matrix, the labels, and a weight per example.

    The matrix is a CSR array that a kernel may trust: float32 or float64, finite, indices sorted, unique and in bounds,
    no zero stored. So a dense array and any sparse form of it give the same array, hence the same model. Nothing is
    copied if X is like that already, and X itself is never changed.
    """
    _check_structure(X)
    X, y = validate_data(estimator, X, y, accept_sparse="csr", dtype=DTYPES, reset=reset)
    check_classification_targets(y)
    weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if not weight.any():
        raise ValueError("sample_weight is zero for every example, so there is nothing to learn from")
    return _canonical(X), y, weight


def row_indexable(X: Any) -> Any:
    """X in a form whose rows can be picked out: a sparse matrix as CSR."""
    _check_structure(X)
    return X.tocsr() if sparse.issparse(X) else X


def _check_structure(X: Any) -> None:
    """A kernel reads where indices point, and SciPy believes them unseen: read them all once."""
    if not sparse.issparse(X):
        return
    try:
        if hasattr(X, "check_format"):
            X.check_format(full_check=True)
        for axis, places in _coordinates(X):
            if len(places) and not 0 <= min(places) <= max(places) < X.shape[axis]:
                raise ValueError(f"coordinates of axis {axis} reach from {min(places)} to {max(places)}")
    except ValueError as error:
        raise ValueError(
            f"X is not a valid {X.format.upper()} matrix of shape {X.shape}: {error}. "
            "Its indices were changed or built wrongly; build it anew with scipy.sparse"
        ) from error


def _coordinates(X: Any) -> Iterator[tuple[int, Any]]:
    """The forms that SciPy has no check for: pairs of an axis and places on it."""
    if X.format == "coo":
        yield from ((axis, [places.min(), places.max()]) for axis, places in enumerate(X.coords) if len(places))
    elif X.format == "lil":
        yield from ((1, row) for row in X.rows)


def _canonical(X: Any) -> sparse.csr_array:
    # A new array around the same memory looks for itself whether the indices are sorted.
    X = sparse.csr_array((X.data, X.indices, X.indptr), shape=X.shape) if sparse.issparse(X) else sparse.csr_array(X)
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
        check_array(X.data.reshape(1, -1))  # finite values may have an infinite sum
    if (X.data == 0).any():
        X = X.copy()
        X.eliminate_zeros()
    return X
