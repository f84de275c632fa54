"""How a fitted estimator predicts: exactly where it can in time, else by an approximation that a warning names."""

import warnings
from typing import Any

import numpy as np

from .. import budget, decisions, inference, training
from ..decisions import F1, AbstractRule
from ..inference.rows import over_rows
from ..model import EBM
from ..types import Key, PyTree, Row
from . import cross_fitting

DRAWS = 1000
# With a larger R-hat, chains disagree.
LARGEST_R_HAT = 1.2


def unseen_marginals(
    trained: cross_fitting.Trained, data: cross_fitting.Data, key: Key
) -> tuple[np.ndarray, np.ndarray]:
    """Marginals of rows by the model that was not trained on them, and these rows; without folds, of all rows."""
    with warnings.catch_warnings():
        # `predict` warns of the same approximation.
        warnings.simplefilter("ignore", budget.ApproximationWarning)
        if not trained.unseen:
            model = training.average(trained.models)
            return np.asarray(marginals(data.x, model, data.reference, key=key)), np.arange(len(data.y))
        parts = []
        for i, fold in enumerate(trained.unseen):
            rows = data.take(fold)
            parts.append(np.asarray(marginals(rows.x, training.take(trained.models, i), rows.reference, key=key)))
    return np.concatenate(parts), np.concatenate(trained.unseen)


def has_assignments(model: EBM) -> bool:
    """Whether the most probable outputs are those of an assignment problem: rankings with linear scores."""
    coupling = model.g.coupling
    return coupling.is_linear and coupling.polytope.assignments(model.q) is not None


def normalizer(model: EBM, x: Any, method: Any, question: str) -> Any:
    """The method of log-partitions: the requested one; for "auto" exact where it can be in time, else learned."""
    if method != "auto":
        return method
    if budget.is_exact_in_time(model, x.shape[0]):
        return "exact"
    warn(
        model,
        x,
        question,
        "probabilities are normalized by the learned log-partition. `normalization(X)` estimates its error, "
        "log_partition_with_error(X, method='annealed') does not use it",
    )
    return "learned"


def marginals(x: Any, model: EBM, reference: PyTree, *, key: Key) -> Any:
    """Exact marginals; else those of a surrogate with independent labels; else means over draws.

    On cal500 the surrogate is as good as 400 draws of Gibbs, in a thousandth of the time.
    """
    if budget.is_exact_in_time(model, x.shape[0]):
        return inference.marginals(model, x, reference=reference)
    better = "the mean of many draws of `sample` is unbiased where its chains agree"
    if model.surrogate is not None and model.surrogate.has_label_probs:
        warn(model, x, "label probabilities", f"they are those of mean field, which sees one mode of p; {better}")
        return over_rows(_label_probs, model, x, reference=reference)
    warn(model, x, "probabilities", f"they are means over {DRAWS} weighted draws; {better}")
    return inference.marginals(model, x, method="importance", num=DRAWS, key=key, reference=reference)


def modes(x: Any, model: EBM, reference: PyTree, *, key: Key) -> np.ndarray:
    """Most probable outputs, exact or by local search."""
    # A linear score has its mode at any size.
    if model.g.coupling.is_linear or budget.is_exact_in_time(model, x.shape[0]):
        y, method = inference.mode_with_method(model, x, key=key, reference=reference)
    else:
        y, method = inference.mode_with_method(model, x, method="search", key=key, reference=reference)
    if method != "exact":
        warn(model, x, "the mode", "it is found by local search, and a more probable output may exist")
    return np.asarray(y)


def evidence(rule: AbstractRule, x: Any, model: EBM, reference: PyTree, *, key: Key) -> Any:
    """The input of a rule: exact expectations where there are any, else the joint, by all outputs or by draws."""
    exactly = budget.is_exact_in_time(model, x.shape[0])
    if isinstance(rule, decisions.Kemeny) and exactly:
        return np.asarray(inference.before(model, x, reference=reference))
    if isinstance(rule, F1) and exactly and budget.can_enumerate(model.space):
        return np.asarray(inference.mean(model, x, F1.statistic, reference=reference))
    if not exactly:
        warn(model, x, "the decision", f"it is made from {DRAWS} weighted draws")
    return decisions.joint(model, x, key=key, num=DRAWS, reference=reference)


def energy(model: EBM, row: Row, y: Any) -> Any:
    """g(x, y) of one row."""
    return model.g.coupling(row.theta, y)


def _label_probs(model: EBM, row: Row) -> Any:
    surrogate: Any = model.surrogate
    return surrogate.label_probs(row.surrogate)


def warn(model: EBM, x: Any, question: str, approximation: str) -> None:
    """Warn that an answer is not exact, why, and how it is approximated."""
    message = f"Not exact ({question}): {budget.describe_excess(model, x.shape[0])}; {approximation}."
    warnings.warn(message, budget.ApproximationWarning, stacklevel=5)


def warn_of_chains(r_hat: np.ndarray) -> None:
    """Warn of Markov chains that disagree."""
    if (count := int(np.sum(r_hat > LARGEST_R_HAT))) > 0:
        message = (
            f"The Markov chains of the draws disagree on {count} of {len(r_hat)} rows (R-hat up to {r_hat.max():.3g}, "
            "where 1 is agreement): p has several modes, which the draws visit too often or too rarely."
        )
        warnings.warn(message, budget.ApproximationWarning, stacklevel=4)
