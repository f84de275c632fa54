"""How a fitted estimator answers: exactly where sums reach, else by what a warning says."""

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
# Above, chains say different things.
LARGEST_R_HAT = 1.2


def unseen_marginals(
    trained: cross_fitting.Trained, data: cross_fitting.Data, key: Key
) -> tuple[np.ndarray, np.ndarray]:
    """Marginals of each row by the member that has not seen it, and those rows; of all rows where there is none."""
    with warnings.catch_warnings():
        # What an answer is worth is said when it is asked for.
        warnings.simplefilter("ignore", budget.ApproximationWarning)
        if not trained.unseen:
            model = training.average(trained.models)
            return np.asarray(marginals(data.x, model, data.reference, key=key)), np.arange(len(data.y))
        result = []
        for i, fold in enumerate(trained.unseen):
            rows = data.take(fold)
            result.append(np.asarray(marginals(rows.x, training.take(trained.models, i), rows.reference, key=key)))
    return np.concatenate(result), np.concatenate(trained.unseen)


def is_exact(model: EBM, rows: int) -> bool:
    """Whether exact sums answer for so many rows in time."""
    return budget.is_exact_in_time(model, rows)


def has_assignments(model: EBM) -> bool:
    """Whether assignments find the most probable outputs, at any size: of rankings with linear scores."""
    coupling = model.g.coupling
    return coupling.is_linear and coupling.polytope.assignments(model.q) is not None


def normalizer(model: EBM, x: Any, method: Any, question: str) -> Any:
    """The method that gives log-partitions: the one asked for; for "auto" exact, or the learned tau."""
    if method != "auto":
        return method
    if is_exact(model, x.shape[0]):
        return "exact"
    warn(
        model,
        x,
        question,
        "probabilities are normalized by the learned log-partition. `normalization(X)` says how far it is off, "
        "log_partition_with_error(X, method='annealed') estimates it anew",
    )
    return "learned"


def marginals(x: Any, model: EBM, reference: PyTree, *, key: Key) -> Any:
    """Exact ones; else those of the surrogate where it has independent labels (on cal500 as good as 400 draws of Gibbs,
    in a thousandth of the time); else by draws."""
    if is_exact(model, x.shape[0]):
        return inference.marginals(model, x, reference=reference)
    better = "the mean of many draws of `sample` is unbiased where its chains agree"
    if model.surrogate is not None and model.surrogate.has_label_probs:
        warn(model, x, "label probabilities", f"they are those of mean field, which sees one mode of p; {better}")
        return over_rows(_independent, model, x, reference=reference)
    warn(model, x, "probabilities", f"they are means over {DRAWS} weighted draws; {better}")
    return inference.marginals(model, x, method="importance", num=DRAWS, key=key, reference=reference)


def modes(x: Any, model: EBM, reference: PyTree, *, key: Key) -> np.ndarray:
    """Most probable outputs, exact or by local search."""
    # A linear score has its mode at any size.
    if model.g.coupling.is_linear or is_exact(model, x.shape[0]):
        y, how = inference.mode_with_method(model, x, key=key, reference=reference)
    else:
        y, how = inference.mode_with_method(model, x, method="search", key=key, reference=reference)
    if how != "exact":
        warn(model, x, "the mode", "it is found by local search, and a more probable output may exist")
    return np.asarray(y)


def evidence(rule: AbstractRule, x: Any, model: EBM, reference: PyTree, *, key: Key) -> Any:
    """What a rule decides from: expectations where they are exact, else the joint, by all outputs or by draws."""
    exactly = is_exact(model, x.shape[0])
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


def _independent(model: EBM, row: Row) -> Any:
    surrogate: Any = model.surrogate
    return surrogate.label_probs(row.surrogate)


def warn(model: EBM, x: Any, question: str, how: str) -> None:
    """Say that an answer is not exact, why, and how it was found."""
    message = f"Not exact ({question}): {budget.describe_excess(model, x.shape[0])}; {how}."
    warnings.warn(message, budget.ApproximationWarning, stacklevel=5)


def warn_of_chains(r_hat: np.ndarray) -> None:
    """Say that draws cannot be trusted."""
    if (apart := int(np.sum(r_hat > LARGEST_R_HAT))) > 0:
        message = (
            f"The Markov chains that draw disagree on {apart} of {len(r_hat)} rows (R-hat up to {r_hat.max():.3g}, "
            "where 1 is agreement): p has several modes, which the draws visit too often or too rarely."
        )
        warnings.warn(message, budget.ApproximationWarning, stacklevel=4)
