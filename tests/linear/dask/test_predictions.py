"""Predictions of dask arrays: those of arrays, a block at a time."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
from helpers.dask_blocks import cut, examples, fitted

pytestmark = pytest.mark.usefixtures("current_client")
X, Y = examples()


@pytest.mark.parametrize("classes", [2, 4])
def test_predictions_of_dask_arrays_are_those_of_arrays(classes):
    X, y = examples(classes=classes)
    model = fitted(cut(X, 99, 99, known=False), cut(y, 99, 99, known=False), loss="log_loss")
    for edges in [(), (10, 10, 200)]:
        for method in ("decision_function", "predict", "predict_proba", "predict_log_proba"):
            found = getattr(model, method)(cut(X, *edges))
            expected = getattr(model, method)(X)
            assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
            np.testing.assert_array_equal(found.compute(), expected)
    weight = np.random.default_rng(0).random(len(y))
    assert model.score(cut(X, 10, 10), cut(y, 10, 10), weight) == pytest.approx(model.score(X, y, weight))
    assert not hasattr(fitted(cut(X), cut(y)), "predict_proba")


PREDICTED = {
    "X has 39 features, but the model was fitted on 40": lambda: cut(X[:, :39], 100),
    r"in \(3, 2\) blocks, but a block holds whole rows": lambda: cut(X.toarray(), 100, 200).rechunk({1: 20}),
    "it takes a row for each example": lambda: cut(Y),
}


@pytest.mark.parametrize("message", PREDICTED)
def test_what_cannot_be_predicted_is_told_before_it_is_computed(message):
    model = fitted(cut(X, 100), cut(Y, 100))
    with pytest.raises(ValueError, match=message):
        model.decision_function(PREDICTED[message]())


def test_scores_of_what_does_not_fit_together_are_told():
    model = fitted(cut(X, 100), cut(Y, 100))
    with pytest.raises(ValueError, match=r"rows, .* labels, but there is one for each example"):
        model.score(cut(X, 100, known=False), cut(Y, 101, known=False))
    with pytest.raises(ValueError, match="the weights of the examples sum to -300, so there is no score"):
        model.score(cut(X, 100), Y, -np.ones(300))


WITHOUT_DASK = """
import pickle, sys

sys.modules["dask"] = sys.modules["distributed"] = None
model, X, y = pickle.load(sys.stdin.buffer)
assert model.score(X, y) == (model.predict(X) == y).mean()
try:
    model.score(["part.svm"])
except ImportError as error:
    assert "a cluster needs Dask" in str(error)
else:
    raise AssertionError("files were scored without Dask")
"""


def test_a_fitted_model_scores_data_in_memory_where_dask_is_not_installed():
    model = fitted(cut(X, 100), cut(Y, 100))
    subprocess.run([sys.executable, "-c", WITHOUT_DASK], input=pickle.dumps((model, X, Y)), check=True, timeout=120)
