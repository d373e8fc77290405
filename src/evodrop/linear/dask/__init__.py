"""Linear models on a Dask cluster (extra ``dask``), for data that one machine cannot hold.

=============  ======================================================================
``estimator``  ``DaskDropoutSGDClassifier``, and ``connected``, the way to a cluster
``data``       ``read_svmlight`` makes dask arrays of files; partitions from arrays
``rounds``     the fit: local epochs of every partition, and the average of the models
=============  ======================================================================
"""

from __future__ import annotations

from evodrop.linear.dask.data import read_svmlight
from evodrop.linear.dask.estimator import DaskDropoutSGDClassifier, connected, joblib_on

__all__ = ["DaskDropoutSGDClassifier", "connected", "joblib_on", "read_svmlight"]
