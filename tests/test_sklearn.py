"""scikit-learn's own checks of estimators, on both of ours."""

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from partita.estimators import LabelRanker, MultilabelClassifier

# Double precision: rows answer alike alone and among others to 1e-7, which these checks ask for. Labels one by one,
# because they also ask that answers are the rounded probabilities, which the mode of a joint need not be.
ESTIMATORS = (
    MultilabelClassifier(
        decision="hamming", ensemble_size=1, steps=60, learning_rate=0.05, width=8, dtype="float64", random_state=0
    ),
    LabelRanker(
        ensemble_size=1,
        steps=30,
        penalty=0.01,
        width=8,
        depth=1,
        refit=False,
        dtype="float64",
        random_state=0,
        patience=3,
    ),
)

BATCHES = "a row given twice is in two mini-batches and folds, a row of weight two in one"
CHOICES = "y is one class per row, which a ranker takes for first choices: its answers are whole rankings"
EXCUSED = {
    (MultilabelClassifier, "check_sample_weight_equivalence_on_dense_data"): BATCHES,
    (MultilabelClassifier, "check_sample_weight_equivalence_on_sparse_data"): BATCHES,
    (LabelRanker, "check_sample_weight_equivalence_on_dense_data"): BATCHES,
    (LabelRanker, "check_sample_weight_equivalence_on_sparse_data"): BATCHES,
    (LabelRanker, "check_estimator_sparse_array"): CHOICES,
    (LabelRanker, "check_estimator_sparse_matrix"): CHOICES,
}

# Every check that fits compiles programs for its own shapes, 3 to 9 s; so most of those are slow.
QUICK = {
    MultilabelClassifier: {
        "check_estimators_pickle",
        "check_methods_subset_invariance",
        "check_dict_unchanged",
    },
    LabelRanker: {"check_methods_sample_order_invariance"},
}
NO_FIT = [
    "check_no_attributes_set_in_init",
    "check_estimator_cloneable",
    "check_estimator_tags_renamed",
    "check_valid_tag_types",
    "check_estimator_repr",
    "check_mixin_order",
    "check_complex_data",
    "check_estimators_empty_data_messages",
    "check_estimators_unfitted",
    "check_parameters_default_constructible",
    "check_get_params_invariance",
    "check_set_params",
    "check_estimator_get_tags_default_keys",
    "check_requires_y_none",
    "check_fit1d",
    "check_classifiers_regression_target",
    "check_fit2d_1sample",
    "check_classifiers_one_label",
    "check_supervised_y_no_nan",
]


def cases():
    for estimator in ESTIMATORS:
        for checked, check in estimator_checks_generator(estimator, expected_failed_checks={}, mark=None):
            name = check.func.__name__
            marks = [] if name in NO_FIT or name in QUICK[type(estimator)] else [pytest.mark.slow]
            if reason := EXCUSED.get((type(estimator), name)):
                marks.append(pytest.mark.skip(reason=reason))
            yield pytest.param(checked, check, marks=marks, id=f"{type(estimator).__name__}-{name}")


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("estimator", "check"), list(cases()))
def test_scikit_learn_finds_no_fault(estimator, check):
    check(estimator)
