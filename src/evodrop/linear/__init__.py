"""Door 2: linear models of sparse data, with dropout that follows the data. For scikit-learn; needs no torch."""

from __future__ import annotations

from evodrop.linear.estimators import DropoutSGDClassifier

__all__ = ["DropoutSGDClassifier"]
