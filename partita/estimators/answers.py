"""Every question that a joint probability answers, asked of a fitted estimator."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from sklearn.utils.validation import check_is_fitted

from .. import decisions, exact, inference, members, persistence
from .._types import Key, PyTree
from ..decisions import AbstractRule, MicroF1
from ..inference import Normalization
from ..inference.rows import over_rows
from ..kernels import Gibbs
from ..model import EBM
from ..objectives.fenchel_young import AbstractFenchelYoung
from ..partition import Table
from ..preprocessing import Encoded, framed
from ..spaces import Simplex
from ..surrogates import MeanField
from . import names, training
from .base import AbstractEstimator, ParameterAndMethod

# Outputs of which all are summed over for an answer, where nothing better than their list serves.
MAX_OUTPUTS = 2**14
DRAWS, BURN_IN = 1000, 100


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
        """log of the joint probability of each row's whole y; of what is known of it, where labels or ranks are not."""
        x, model, reference = self._model(X)
        y, free = self.codec_.encode(y)
        method = _method(model, method)
        if free is not None and method == "learned":
            # Labels held as known have no learned normalizer: both sums come from the same draws.
            method = "importance"
        options = {"reference": reference, "free": free, "key": self._key()}
        return np.asarray(inference.log_prob(model, x, y, method=method, **options), float)

    @ParameterAndMethod
    @fitted
    def log_partition(self, X: Any, method: Any = "auto", return_error: bool = False) -> Any:
        """The log-partition of each row, relative to the reference: exact where it can be, else the learned tau.

        `method` is any of `inference.log_partition`; with `return_error` an estimate of its error comes too.
        """
        x, model, reference = self._model(X)
        options = {"return_error": return_error, "reference": reference, "key": self._key()}
        found = inference.log_partition(model, x, method=_method(model, method), **options)
        return tuple(np.asarray(part, float) for part in found) if return_error else np.asarray(found, float)

    @fitted
    def sample(self, X: Any, n: int = 1, given: Any = None, random_state: int | None = None) -> Any:
        """`n` draws from p(y|x) for each row: an array (rows, n, k), or a list of n answers for each row."""
        x, model, reference = self._model(X, given)
        key = self._key() if random_state is None else jax.random.key(random_state)
        method = "exact" if is_exact(model) else Gibbs()
        drawn = inference.sample(model, x, n, method=method, burn_in=BURN_IN, key=key, reference=reference)
        return self._decoded(np.asarray(drawn))

    @fitted
    def top_k(self, X: Any, k: int, given: Any = None) -> tuple[Any, np.ndarray]:
        """The `k` most probable outputs of each row, and their probabilities (rows, k)."""
        x, model, reference = self._model(X, given)
        y, probability = decisions.top_k(decisions.joint(model, x, key=self._key(), reference=reference), k)
        return self._decoded(y), probability

    @fitted
    def normalization(self, X: Any, num: int = 1000) -> Normalization:
        """Whether the probabilities that `log_prob` gives sum to one: exactly, or by `num` draws for each row."""
        x, model, reference = self._model(X)
        index = None
        if is_exact(model):
            # The exact log-partitions as a tau, which knows these rows.
            tau, index = inference.log_partition(model, x, reference=reference), np.arange(x.shape[0])
            table = eqx.tree_at(lambda table: table.values, Table(x.shape[0], model.f), tau)
            model = EBM(model.g, table, q=model.q, f=model.f, surrogate=model.surrogate)
        return inference.normalization(model, x, key=self._key(), num=num, index=index, reference=reference)

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
        if isinstance(given, dict):
            known = np.full(len(self.classes_), -1)
            place = {label: j for j, label in enumerate(self.codec_.classes)}
            if strange := set(given) - set(place):
                raise ValueError(f"given names {sorted(map(str, strange))}, but the labels are {list(place)[:20]}.")
            for label, value in given.items():
                known[place[label]] = int(value)
            return known
        known = np.asarray(given, float)
        if known.shape != (n, len(self.classes_)):
            raise ValueError(f"given must be a dict by label or a table of shape {(n, len(self.classes_))}.")
        return np.where(np.isnan(known), -1, known).astype(int)

    def _decide(self, x: Any, model: EBM, reference: PyTree) -> np.ndarray:
        if isinstance(self.objective_, AbstractFenchelYoung) and model is self.ebm_:
            return np.asarray(inference.relaxed_mode(model, x, self.objective_.regularizer))
        rule = self._rule(model)
        if rule is None:
            return np.asarray(inference.mode(model, x, key=self._key(), reference=reference))
        if isinstance(rule, decisions.Hamming | MicroF1 | decisions.Borda):
            return rule(np.asarray(_marginals(x, model, reference, key=self._key()))).y
        return rule(decisions.joint(model, x, key=self._key(), reference=reference)).y

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
    if not trained.unseen:
        model = members.averaged(trained.models)
        return np.asarray(_marginals(data.x, model, data.reference, key=key)), np.arange(len(data.y))
    found = []
    for i, fold in enumerate(trained.unseen):
        rows = data.take(fold)
        found.append(np.asarray(_marginals(rows.x, members.member(trained.models, i), rows.reference, key=key)))
    return np.concatenate(found), np.concatenate(trained.unseen)


def is_exact(model: EBM) -> bool:
    """Whether exact sums are the way to answer: any closed form, or a list of outputs that is not too long."""
    return names.summable(model, MAX_OUTPUTS, exact.MAX_RANKED)


def _method(model: EBM, method: Any) -> Any:
    return method if method != "auto" else "exact" if is_exact(model) else "learned"


def _marginals(x: Any, model: EBM, reference: PyTree, *, key: Key) -> Any:
    """Exact ones; else those of the surrogate where it has independent labels (on cal500 as good as 400 draws of Gibbs,
    in a thousandth of the time); else by draws."""
    if is_exact(model):
        return inference.marginals(model, x, reference=reference)
    if isinstance(model.surrogate, MeanField):
        return over_rows(_independent, model, x, reference=reference)
    return inference.marginals(model, x, method="importance", num=DRAWS, key=key, reference=reference)


def _independent(model: EBM, x: Any, reference: PyTree) -> Any:
    return jax.nn.sigmoid(model.row(x, reference=reference).near.r.logits)
