"""Every question that a joint probability answers, asked of a fitted estimator."""

import functools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from .. import budget, decisions, inference, members, persistence
from .._types import Key, PyTree
from ..decisions import F1, AbstractRule, MicroF1
from ..inference import Normalization
from ..inference.rows import over_rows
from ..model import EBM, Table
from ..objectives.fenchel_young import AbstractFenchelYoung
from ..structures import AbstractRankings, Simplex
from . import training
from .base import AbstractEstimator, ParameterAndMethod
from .codecs import Encoded, framed

DRAWS, BURN_IN = 1000, 100
# Above, chains say different things.
LARGEST_R_HAT = 1.2


class _Pair(NamedTuple):
    y: Any
    probability: np.ndarray


class TopK(_Pair):
    """The most probable outputs of each row, in the kind of y, and their probabilities, (rows, k): a pair, with a word
    on how they were found, `method`: "exact", or "search", which may miss some."""

    method: str

    def __new__(cls, y: Any, probability: np.ndarray, method: str) -> "TopK":
        made = super().__new__(cls, y, probability)
        made.method = method
        return made


def fitted(method: Callable) -> Callable:
    """A method of fitted estimators, in the precision that they were fitted in."""

    @functools.wraps(method)
    def checked(self, *args, **options):
        check_is_fitted(self, "ebm_")
        with self._precision():
            return method(self, *args, **options)

    return checked


class AbstractAnswers(AbstractEstimator):
    """Predictions, probabilities, draws. X has rows and the features of fit.

    What is `given` of y, for conditional questions: {label: value} for all rows, or a table like y with NaN where
    nothing is known; values are 0 or 1 in label sets, ranks in rankings.
    """

    @fitted
    def predict(self, X: Any, given: Any = None) -> Any:
        """The answer that the `decision` calls for, in the kind of y."""
        y = self._decide(*self._model(X, given))
        return self._framed(self.codec_.decode(y), X)

    @fitted
    def predict_proba(self, X: Any, given: Any = None) -> Any:
        """P(label j is on), (n, k), for sets; P(label j has rank p), (n, k, k), for rankings."""
        found = np.asarray(_marginals(*self._model(X, given), key=self._key()), float)
        return self._framed(found, X) if found.ndim == 2 else found

    @fitted
    def log_prob(self, X: Any, y: Any, method: Any = "auto") -> np.ndarray:
        """log of the joint probability of each row's whole y; of what is known of it, where labels or ranks are not.

        method: "auto", exact where it can be, else by the learned log-partition; or any of `inference.log_partition`.
        """
        x, model, reference = self._model(X)
        y, free = self.codec_.encode(y)
        method = _normalizer(model, x, method, "log_prob")
        if free is not None and method == "learned":
            # Labels held as known have no learned normalizer: both sums come from the same draws.
            method = "importance"
        options = {"reference": reference, "free": free, "key": self._key()}
        return np.asarray(inference.log_prob(model, x, y, method=method, **options), float)

    @fitted
    def energy(self, X: Any, y: Any) -> np.ndarray:
        """g(x, y) of each row, by which outputs for the same x are compared; p is q exp(g) / Z for the logistic loss.

        Of preferences, `energy(X, y) > energy(X, worse)` says which pairs the model agrees with.
        """
        x, model, _ = self._model(X)
        check_consistent_length(x, y)
        y, free = self.codec_.encode(y)
        if free is not None:
            raise ValueError("energy needs whole outputs, without missing labels or ties; log_prob takes those too.")
        return np.asarray(over_rows(_energy, model, x, y), float)

    @ParameterAndMethod
    @fitted
    def log_partition(self, X: Any, method: Any = "auto", return_error: bool = False) -> Any:
        """The log-partition of each row, relative to the reference: exact where it can be, else the learned tau.

        `method` is any of `inference.log_partition`; with `return_error` an estimate of its error comes too.
        """
        x, model, reference = self._model(X)
        options = {"return_error": return_error, "reference": reference, "key": self._key()}
        method = _normalizer(model, x, method, "log_partition")
        found = inference.log_partition(model, x, method=method, **options)
        return tuple(np.asarray(part, float) for part in found) if return_error else np.asarray(found, float)

    @fitted
    def sample(self, X: Any, n: int = 1, given: Any = None, random_state: int | None = None) -> Any:
        """`n` draws from p(y|x) for each row: an array (rows, n, k), or a list of n answers for each row.

        They are independent where exact sums reach; elsewhere from four Markov chains, with a warning where the chains
        disagree.
        """
        x, model, reference = self._model(X, given)
        key = self._key() if random_state is None else jax.random.key(random_state)
        if is_exact(model, x.shape[0]):
            drawn = inference.sample(model, x, n, key=key, reference=reference)
        else:
            drawn, r_hat = inference.sample_chains(model, x, n, burn_in=BURN_IN, key=key, reference=reference)
            _warn_of_chains(np.asarray(r_hat))
        return self._decoded(np.asarray(drawn))

    @fitted
    def top_k(self, X: Any, k: int, given: Any = None) -> TopK:
        """The `k` most probable outputs of each row in falling order, and their probabilities (rows, k).

        A probability of 0 marks what is no answer: fewer than `k` outputs are possible. The result's `method` says how
        the outputs were found: "exact", or by "search", which may miss some.
        """
        x, model, reference = self._model(X, given)
        normalizer = _normalizer(model, x, "auto", "top_k")
        exactly = normalizer == "exact" or _assigned(model)
        options = {"method": "exact" if exactly else "search", "normalizer": normalizer}
        found = inference.top_k(model, x, k, key=self._key(), reference=reference, **options)
        if not exactly:
            _warn(model, x, "top_k", "the outputs are found by local search, which may miss some")
        return TopK(self._decoded(np.asarray(found.y)), np.exp(np.asarray(found.log_prob, float)), found.method)

    @fitted
    def normalization(self, X: Any, num: int = 1000) -> Normalization:
        """Whether the probabilities that `log_prob` gives sum to one: exactly, or by `num` draws for each row."""
        x, model, reference = self._model(X)
        method, index = "sampled", None
        if is_exact(model, x.shape[0]):
            # The exact log-partitions as a tau, which knows these rows, under f as it is where sums are exact.
            method = "exact"
            tau, index = inference.log_partition(model, x, reference=reference), np.arange(x.shape[0])
            table = eqx.tree_at(lambda table: table.values, Table(x.shape[0]), tau - model.f.start)
            with jax.enable_x64(True):
                f = model.f.sharpened()
            model = EBM(model.g, table, q=model.q, f=f, surrogate=model.surrogate)
        options = {"method": method, "key": self._key(), "num": num, "index": index}
        return inference.normalization(model, x, reference=reference, **options)

    @fitted
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Subset accuracy of sets, mean Kendall tau of rankings."""
        each = self._scores(self.codec_.encode(y), Encoded(self._decide(*self._model(X)), None))
        return float(np.average(each, weights=sample_weight))

    def set_output(self, *, transform: str | None = None) -> "AbstractAnswers":
        """Tables that `predict` and `predict_proba` give: "default" (arrays), "pandas" or "polars"."""
        if transform is not None:
            if transform not in ("default", "pandas", "polars"):
                raise ValueError(f"transform must be 'default', 'pandas' or 'polars'; got {transform!r}.")
            # Where scikit-learn keeps it, so that `clone` keeps it too.
            self._sklearn_output_config = {"transform": transform}
        return self

    def save(self, path: Any) -> None:
        """Write the fitted estimator to a file; see `partita.persistence` and `partita.load`."""
        check_is_fitted(self, "ebm_")
        persistence.save(self, path)

    # ---------------------------------------------------------------- how

    def _model(self, X: Any, given: Any = None) -> tuple[Any, EBM, PyTree]:
        """Scaled x, and the model and the rows' references that answer for it."""
        raw = self._features(X)
        x, reference = self._scaled(raw), self.reference_(raw)
        if given is None:
            return x, self.ebm_, reference
        model, reference = inference.given(self.ebm_, x, self._known(given, x.shape[0]), reference=reference)
        return x, model, reference

    def _known(self, given: Any, n: int) -> np.ndarray:
        """What is given, -1 where nothing is."""
        labels = self.codec_.classes
        if isinstance(given, dict):
            place = {label: j for j, label in enumerate(labels)}
            if strange := set(given) - set(place):
                raise ValueError(f"given names {sorted(map(str, strange))}, but the labels are {list(place)[:20]}.")
            known = np.full(len(labels), np.nan)
            known[[place[label] for label in given]] = _numbers(list(given.values()))
        else:
            known = _numbers(given)
            if known.shape != (n, len(labels)):
                raise ValueError(f"given must be a dict by label or a table of shape {(n, len(labels))}.")
        largest = len(labels) - 1 if isinstance(self.codec_.space, AbstractRankings) else 1
        bad = ~np.isnan(known) & ~np.isin(known, np.arange(largest + 1))
        if bad.any():
            value, label = known[bad][0], labels[np.argwhere(bad)[0][-1]]
            raise ValueError(
                f"What is given of a label is a whole number from 0 to {largest}, or NaN where nothing is known; got "
                f"{value:g} for {label!r}."
            )
        return np.where(np.isnan(known), -1, known).astype(int)

    def _decide(self, x: Any, model: EBM, reference: PyTree) -> np.ndarray:
        if isinstance(self.objective_, AbstractFenchelYoung) and model is self.ebm_:
            return np.asarray(inference.relaxed_mode(model, x, self.objective_.regularizer))
        rule = self._rule(model)
        if rule is None:
            return _modes(x, model, reference, key=self._key())
        if isinstance(rule, decisions.Hamming | MicroF1 | decisions.Borda):
            return rule(np.asarray(_marginals(x, model, reference, key=self._key()))).y
        return rule(_evidence(rule, x, model, reference, key=self._key())).y

    def _rule(self, model: EBM) -> AbstractRule | None:
        """The rule of the decision; none for the mode, which is also the answer for one class per row."""
        if isinstance(self.decision, AbstractRule):
            return self.decision
        if self.decision == "mode" or isinstance(model.space, Simplex):
            return None
        if self.decision != "micro_f1":
            return decisions.RULES[self.decision]
        if self.threshold_ is None:
            raise ValueError("decision='micro_f1' needs a threshold, which fit finds on held-out rows: fit with it.")
        return MicroF1(self.threshold_)

    def _decoded(self, y: np.ndarray) -> Any:
        """Several outputs for each row in the kind of y."""
        rows = [self.codec_.decode(each) for each in y]
        return np.stack(rows) if all(isinstance(row, np.ndarray) for row in rows) else rows

    def _framed(self, found: Any, X: Any) -> Any:
        """An answer as the table that `set_output` asks for, with the index of X."""
        container = getattr(self, "_sklearn_output_config", {}).get("transform", "default")
        columns = [str(label) for label in self.codec_.classes]
        whole = isinstance(found, np.ndarray) and found.shape[1:] == (len(columns),)
        made: Any = framed(found, columns, container) if whole else found
        return made.set_axis(X.index) if whole and container == "pandas" and hasattr(X, "iloc") else made

    def _key(self) -> Key:
        """Always the same draws: the same question gets the same answer."""
        return jax.random.key(self.seed_)


def unseen_marginals(trained: training.Trained, data: training.Data, key: Key) -> tuple[np.ndarray, np.ndarray]:
    """Marginals of each row by the member that has not seen it, and those rows; of all rows where there is none."""
    with warnings.catch_warnings():
        # What an answer is worth is said when it is asked for.
        warnings.simplefilter("ignore", budget.ApproximationWarning)
        if not trained.unseen:
            model = members.averaged(trained.models)
            return np.asarray(_marginals(data.x, model, data.reference, key=key)), np.arange(len(data.y))
        found = []
        for i, fold in enumerate(trained.unseen):
            rows = data.take(fold)
            found.append(np.asarray(_marginals(rows.x, members.member(trained.models, i), rows.reference, key=key)))
    return np.concatenate(found), np.concatenate(trained.unseen)


def is_exact(model: EBM, rows: int) -> bool:
    """Whether exact sums answer for so many rows in time."""
    return budget.is_exact_in_time(model, rows)


def _assigned(model: EBM) -> bool:
    """Whether assignments find the most probable outputs, at any size: of rankings with linear scores."""
    coupling = model.g.coupling
    return coupling.is_linear and coupling.polytope.assignments(model.q) is not None


def _normalizer(model: EBM, x: Any, method: Any, question: str) -> Any:
    if method != "auto":
        return method
    if is_exact(model, x.shape[0]):
        return "exact"
    _warn(
        model,
        x,
        question,
        "probabilities are normalized by the learned log-partition. `normalization(X)` says how far it is off, "
        "log_partition(X, method='annealed', return_error=True) estimates it anew",
    )
    return "learned"


def _marginals(x: Any, model: EBM, reference: PyTree, *, key: Key) -> Any:
    """Exact ones; else those of the surrogate where it has independent labels (on cal500 as good as 400 draws of Gibbs,
    in a thousandth of the time); else by draws."""
    if is_exact(model, x.shape[0]):
        return inference.marginals(model, x, reference=reference)
    better = "the mean of many draws of `sample` is unbiased where its chains agree"
    if model.surrogate is not None and model.surrogate.has_label_probs:
        _warn(model, x, "label probabilities", f"they are those of mean field, which sees one mode of p; {better}")
        return over_rows(_independent, model, x, reference=reference)
    _warn(model, x, "probabilities", f"they are means over {DRAWS} weighted draws; {better}")
    return inference.marginals(model, x, method="importance", num=DRAWS, key=key, reference=reference)


def _modes(x: Any, model: EBM, reference: PyTree, *, key: Key) -> np.ndarray:
    # A linear score has its mode at any size.
    if model.g.coupling.is_linear or is_exact(model, x.shape[0]):
        y, how = inference.mode(model, x, key=key, reference=reference, return_method=True)
    else:
        y, how = inference.mode(model, x, method="search", key=key, reference=reference, return_method=True)
    if how != "exact":
        _warn(model, x, "the mode", "it is found by local search, and a more probable output may exist")
    return np.asarray(y)


def _evidence(rule: AbstractRule, x: Any, model: EBM, reference: PyTree, *, key: Key) -> Any:
    """What a rule decides from: expectations where they are exact, else the joint, by all outputs or by draws."""
    exactly = is_exact(model, x.shape[0])
    if isinstance(rule, decisions.Kemeny) and exactly:
        return np.asarray(inference.before(model, x, reference=reference))
    if isinstance(rule, F1) and exactly and budget.can_enumerate(model.space):
        return np.asarray(inference.mean(model, x, F1.statistic, reference=reference))
    if not exactly:
        _warn(model, x, "the decision", f"it is made from {DRAWS} weighted draws")
    return decisions.joint(model, x, key=key, num=DRAWS, reference=reference)


def _energy(model: EBM, x: Any, reference: PyTree, y: Any) -> Any:
    return model.g(x, y)


def _independent(model: EBM, x: Any, reference: PyTree) -> Any:
    surrogate: Any = model.surrogate
    return surrogate.label_probs(model.row(x, reference=reference).surrogate)


def _numbers(values: Any) -> np.ndarray:
    try:
        return np.asarray(values, float)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"What is given of labels must be numbers; got {values!r}.") from None


def _warn(model: EBM, x: Any, question: str, how: str) -> None:
    """Say that an answer is not exact, why, and how it was found."""
    message = f"Not exact ({question}): {budget.describe_excess(model, x.shape[0])}; {how}."
    warnings.warn(message, budget.ApproximationWarning, stacklevel=5)


def _warn_of_chains(r_hat: np.ndarray) -> None:
    """Say that draws cannot be trusted."""
    if (apart := int(np.sum(r_hat > LARGEST_R_HAT))) > 0:
        message = (
            f"The Markov chains that draw disagree on {apart} of {len(r_hat)} rows (R-hat up to {r_hat.max():.3g}, "
            "where 1 is agreement): p has several modes, which the draws visit too often or too rarely."
        )
        warnings.warn(message, budget.ApproximationWarning, stacklevel=4)
