"""Door 2: linear models of sparse data, with dropout that follows the data. For scikit-learn; needs no torch."""

from __future__ import annotations

from evodrop.linear.estimators import DropoutSGDClassifier
from evodrop.linear.marginal import DropoutLogisticRegression
from evodrop.linear.svmlight import iter_svmlight
from evodrop.linear.tuning import PAPER_GRID, tune_rate, tune_step_size

__all__ = [
    "PAPER_GRID",
    "DropoutLogisticRegression",
    "DropoutSGDClassifier",
    "iter_svmlight",
    "tune_rate",
    "tune_step_size",
]
