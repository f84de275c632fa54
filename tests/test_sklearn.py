"""scikit-learn's own checks of estimators, on both of ours."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from partita.estimators import LabelRanker, MultilabelClassifier

# Small programs: compiling them is most of the time. Double precision: rows answer alike alone and among others, to 1e-7.
SMALL = {"members": 1, "steps": 30, "width": 8, "depth": 1, "penalty": 0.01, "dtype": "float64", "random_state": 0}

EXCUSED = {}


def excused(estimator):
    return {name: reason for name, (kinds, reason) in EXCUSED.items() if isinstance(estimator, kinds)}


@parametrize_with_checks(
    [MultilabelClassifier(**SMALL), LabelRanker(**SMALL, refit=False)], expected_failed_checks=excused
)
@pytest.mark.usefixtures("unchecked")
def test_scikit_learn_finds_no_fault(estimator, check):
    check(estimator)
