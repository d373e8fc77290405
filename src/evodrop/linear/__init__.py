"""Linear models for sparse data, with dropout that follows the data: scikit-learn estimators that need no torch.

``DropoutSGDClassifier`` learns by SGD on corrupted examples, ``DropoutLogisticRegression`` integrates the noise out,
``AdaptiveRateLogisticRegression`` infers its rates as well. ``DaskDropoutSGDClassifier`` is the first of them on a Dask
cluster, and ``read_svmlight`` gives it files as arrays.
``iter_svmlight`` reads files larger than memory; ``tune_step_size`` and ``tune_rate`` find the two numbers to choose.
"""

from __future__ import annotations

from evodrop.linear.adaptive import AdaptiveRateLogisticRegression
from evodrop.linear.cluster import DaskDropoutSGDClassifier, read_svmlight
from evodrop.linear.estimators import DropoutSGDClassifier
from evodrop.linear.marginal import DropoutLogisticRegression
from evodrop.linear.svmlight import iter_svmlight
from evodrop.linear.tuning import PAPER_GRID, tune_rate, tune_step_size

__all__ = [
    "PAPER_GRID",
    "AdaptiveRateLogisticRegression",
    "DaskDropoutSGDClassifier",
    "DropoutLogisticRegression",
    "DropoutSGDClassifier",
    "iter_svmlight",
    "read_svmlight",
    "tune_rate",
    "tune_step_size",
]
