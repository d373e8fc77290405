"""Linear models for sparse data, with dropout that follows the data: scikit-learn estimators that need no torch.

============  ============================================================================================
``sgd``       ``DropoutSGDClassifier`` learns by SGD on corrupted examples
``logistic``  ``DropoutLogisticRegression`` integrates the noise out
``adaptive``  ``AdaptiveRateLogisticRegression`` infers its rates as well
``dask``      ``DaskDropoutSGDClassifier`` is the first of them on a Dask cluster, ``read_svmlight`` its files
``svmlight``  ``iter_svmlight`` reads files larger than memory
``tuning``    ``tune_step_size`` and ``tune_rate`` find the two numbers to choose
============  ============================================================================================
"""

from __future__ import annotations

from evodrop.linear.adaptive import AdaptiveRateLogisticRegression
from evodrop.linear.dask import DaskDropoutSGDClassifier, read_svmlight
from evodrop.linear.logistic import DropoutLogisticRegression
from evodrop.linear.sgd import DropoutSGDClassifier
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
