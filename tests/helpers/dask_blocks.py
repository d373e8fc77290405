"""Examples cut into dask arrays, and short fits to them, for tests."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from dask import array, delayed
from scipy import sparse

from evodrop.linear import DaskDropoutSGDClassifier, DropoutSGDClassifier

FIXED = {"random_state": 3, "max_iter": 4, "tol": None, "record_train_error": True}


def examples(n=300, d=40, classes=2, seed=0):
    """A sparse matrix and labels that a linear model can learn, though not perfectly."""
    rng = np.random.default_rng(seed)
    X = sparse.random_array((n, d), density=0.2, format="csr", rng=rng)
    scores = X @ rng.normal(size=(d, classes)) + 0.2 * rng.normal(size=(n, classes))
    return X, np.array(["art", "science", "sport", "weather"])[scores.argmax(axis=1)]


def cut(X, *edges, known=True):
    """A dask array whose blocks of rows end at the edges, made by tasks of the workers."""
    ends = [0, *edges, X.shape[0]]
    parts = [X[start:stop] for start, stop in pairwise(ends)]
    blocks = [
        array.from_delayed(
            delayed(part),
            shape=(part.shape[0] if known else np.nan, *part.shape[1:]),
            dtype=part.dtype,
            meta=sparse.csr_array((0, 0)) if part.ndim == 2 else np.empty(0, part.dtype),
        )
        for part in parts
    ]
    return array.concatenate(blocks, allow_unknown_chunksizes=True)


def classifier(local_epochs=1, cluster=None, **options):
    return DaskDropoutSGDClassifier(DropoutSGDClassifier(**options), local_epochs=local_epochs, cluster=cluster)


def fitted(X, y, sample_weight=None, **options):
    """A model after a few epochs on the current cluster."""
    return classifier(**{**FIXED, **options}).fit(X, y, sample_weight)
