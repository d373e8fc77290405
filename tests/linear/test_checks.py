"""scikit-learn's own checks."""

from __future__ import annotations

from sklearn.utils.estimator_checks import parametrize_with_checks

from evodrop.linear import DropoutSGDClassifier

# A weight of 2 is not the same draw of noise, nor the same step, as an example that comes twice. These two checks ask
# for equal models; scikit-learn excuses its own SGDClassifier. test_estimators.py compares means over many seeds.
EXCUSED = {
    "check_sample_weight_equivalence_on_dense_data": "SGD is random in the order of the examples",
    "check_sample_weight_equivalence_on_sparse_data": "SGD is random in the order of the examples",
}


@parametrize_with_checks(
    [DropoutSGDClassifier()],
    expected_failed_checks=lambda estimator: EXCUSED if isinstance(estimator, DropoutSGDClassifier) else {},
)
def test_estimator_checks(estimator, check):
    check(estimator)
