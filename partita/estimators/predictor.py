"""Predictions, probabilities and draws of a fitted estimator."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import equinox as eqx
import jax
import numpy as np
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from .. import budget, decisions, inference, persistence
from ..decisions import AbstractRule, MicroF1
from ..inference import Normalization
from ..inference.rows import over_rows
from ..model import EBM, Table
from ..objectives.fenchel_young import AbstractFenchelYoung
from ..types import Key, PyTree
from . import answers, names
from .base import AbstractEstimator
from .codecs import Encoded, to_frame
from .rows import RowReader, read_known

if TYPE_CHECKING:
    from typing import Self
else:
    # As in `base`.
    Self = Any

BURN_IN = 100

Method = TypeVar("Method", bound=Callable)


class _Pair(NamedTuple):
    y: Any
    probability: np.ndarray


class TopK(_Pair):
    """The most probable outputs of each row and their probabilities: the pair (y, probability), with the method.

    Attributes
    ----------
    y : {ndarray of shape (n_rows, k, n_labels), list of lists}
        Outputs in the kind of y, in falling order of probability.
    probability : ndarray of shape (n_rows, k)
        Their probabilities.
    method : {"exact", "search"}
        How the outputs were found; a search may miss some.
    """

    method: str

    def __new__(cls, y: Any, probability: np.ndarray, method: str) -> "TopK":
        pair = super().__new__(cls, y, probability)
        pair.method = method
        return pair


def needs_fit(method: Method) -> Method:
    """A method that raises on estimators that are not fitted, and runs in the precision of the fit."""

    @functools.wraps(method)
    def wrapper(self, *args, **options):
        check_is_fitted(self, "ebm_")
        with self._context():
            return method(self, *args, **options)

    return cast(Method, wrapper)


class AbstractPredictor(AbstractEstimator):
    """The methods of fitted estimators, for any kind of output."""

    @needs_fit
    def predict(self, X: Any, given: Any = None) -> Any:
        """Predict the output that is best for the `decision`.

        Parameters
        ----------
        X : {array-like, sparse matrix, frame} of shape (n_rows, n_features)
            Features, as in `fit`.
        given : {dict, array-like of shape (n_rows, n_labels)}, default=None
            What is known of y: {label: value} for all rows, or a table with NaN where nothing is known. Values are 0 or
            1 for label sets, ranks for rankings.

        Returns
        -------
        y : {ndarray, sparse matrix, frame, list}
            One output per row, in the kind of the y of `fit`, or the frame that `set_output` asks for.
        """
        y = self._decide(*self._model(X, given))
        return self._to_frame(self.codec_.decode(y), X)

    @needs_fit
    def predict_proba(self, X: Any, given: Any = None) -> Any:
        """Compute the marginal probabilities of single labels.

        Parameters
        ----------
        X : {array-like, sparse matrix, frame} of shape (n_rows, n_features)
            Features, as in `fit`.
        given : {dict, array-like of shape (n_rows, n_labels)}, default=None
            What is known of y, as in `predict`.

        Returns
        -------
        p : {ndarray, frame} of shape (n_rows, n_labels) or (n_rows, n_labels, n_labels)
            P(label j is on) at [i, j] for label sets, P(label j has rank r) at [i, j, r] for rankings.
        """
        p = np.asarray(answers.marginals(*self._model(X, given), key=self._key()), float)
        return self._to_frame(p, X) if p.ndim == 2 else p

    @needs_fit
    def log_prob(self, X: Any, y: Any, method: Any = "auto") -> np.ndarray:
        """Compute log p(y|x), the log of the joint probability of each row's whole output.

        Parameters
        ----------
        X : {array-like, sparse matrix, frame} of shape (n_rows, n_features)
            Features, as in `fit`.
        y : {array-like, sparse matrix, frame, list}
            One output per row, written as the y of `fit`. Where labels or ranks are missing, the probabilities of all
            outputs that agree are summed.
        method : str or object, default="auto"
            How p is normalized: exactly where it can be, else by the learned log-partition; or any method of
            `inference.log_partition`.

        Returns
        -------
        log_p : ndarray of shape (n_rows,)
            In nats, at most 0 up to rounding.
        """
        x, model, reference = self._model(X)
        y, mask = self.codec_.encode(y)
        method = answers.normalizer(model, x, method, "log_prob")
        if mask is not None and method == "learned":
            # tau does not normalize sums over missing labels: both sums are estimated from the same draws.
            method = "importance"
        options = {"reference": reference, "mask": mask, "key": self._key()}
        return np.asarray(inference.log_prob(model, x, y, method=method, **options), float)

    @needs_fit
    def energy(self, X: Any, y: Any) -> np.ndarray:
        """Compute the energies g(x, y), which compare outputs for the same x.

        For the logistic loss p = q exp(g) / Z. After a fit on preferences, the model agrees with those pairs where
        `energy(X, y) > energy(X, worse)`.

        Parameters
        ----------
        X : {array-like, sparse matrix, frame} of shape (n_rows, n_features)
            Features, as in `fit`.
        y : {array-like, sparse matrix, frame, list}
            One output per row without missing labels or ties, written as the y of `fit`.

        Returns
        -------
        g : ndarray of shape (n_rows,)
            Energies; higher is more probable.
        """
        x, model, _ = self._model(X)
        check_consistent_length(X, y)
        y, mask = self.codec_.encode(y)
        if mask is not None:
            raise ValueError("energy needs whole outputs, without missing labels or ties; log_prob takes those too.")
        return np.asarray(over_rows(answers.energy, model, x, y), float)

    @needs_fit
    def log_partition(self, X: Any, method: Any = "auto") -> np.ndarray:
        """Compute the log-partition of each row, relative to the reference.

        Parameters
        ----------
        X : {array-like, sparse matrix, frame} of shape (n_rows, n_features)
            Features, as in `fit`.
        method : str or object, default="auto"
            Exact where it can be, else the learned tau; or any method of `inference.log_partition`.

        Returns
        -------
        value : ndarray of shape (n_rows,)
            In nats.
        """
        x, model, reference = self._model(X)
        method = answers.normalizer(model, x, method, "log_partition")
        return np.asarray(inference.log_partition(model, x, method=method, reference=reference, key=self._key()), float)

    @needs_fit
    def log_partition_with_error(self, X: Any, method: Any = "auto") -> inference.LogPartition:
        """Compute the log-partition of each row as `log_partition` does, with an estimate of its error.

        Parameters
        ----------
        X : {array-like, sparse matrix, frame} of shape (n_rows, n_features)
            Features, as in `fit`.
        method : str or object, default="auto"
            As for `log_partition`.

        Returns
        -------
        value, error : ndarray of shape (n_rows,)
            In nats.
        """
        x, model, reference = self._model(X)
        method = answers.normalizer(model, x, method, "log_partition")
        result = inference.log_partition_with_error(model, x, method=method, reference=reference, key=self._key())
        return inference.LogPartition(*(np.asarray(part, float) for part in result))

    @needs_fit
    def sample(self, X: Any, n: int = 1, given: Any = None, random_state: int | None = None) -> Any:
        """Draw outputs from p(y|x).

        Draws are independent where exact sums are fast enough. Elsewhere they come from four Markov chains, with a
        warning where the chains disagree.

        Parameters
        ----------
        X : {array-like, sparse matrix, frame} of shape (n_rows, n_features)
            Features, as in `fit`.
        n : int, default=1
            How many draws for each row.
        given : {dict, array-like of shape (n_rows, n_labels)}, default=None
            What is known of y, as in `predict`.
        random_state : int, default=None
            The seed; by default that of `fit`, so that the same call gives the same draws.

        Returns
        -------
        y : {ndarray of shape (n_rows, n, n_labels), list}
            Draws in the kind of y: an array, or a list of n outputs for each row.
        """
        x, model, reference = self._model(X, given)
        key = self._key() if random_state is None else jax.random.key(random_state)
        if budget.is_exact_in_time(model, x.shape[0]):
            y = inference.sample(model, x, n, key=key, reference=reference)
        else:
            y, r_hat = inference.sample_chains(model, x, n, burn_in=BURN_IN, key=key, reference=reference)
            answers.warn_of_chains(np.asarray(r_hat))
        return self._decode_all(np.asarray(y))

    @needs_fit
    def top_k(self, X: Any, k: int, given: Any = None) -> TopK:
        """Find the k most probable outputs of each row.

        Parameters
        ----------
        X : {array-like, sparse matrix, frame} of shape (n_rows, n_features)
            Features, as in `fit`.
        k : int
            How many outputs for each row.
        given : {dict, array-like of shape (n_rows, n_labels)}, default=None
            What is known of y, as in `predict`.

        Returns
        -------
        TopK
            The pair (y, probability). Where fewer than k outputs are possible, the rest have probability 0.
        """
        x, model, reference = self._model(X, given)
        normalizer = answers.normalizer(model, x, "auto", "top_k")
        exactly = normalizer == "exact" or answers.has_assignments(model)
        options = {"method": "exact" if exactly else "search", "normalizer": normalizer}
        best = inference.top_k(model, x, k, key=self._key(), reference=reference, **options)
        if not exactly:
            answers.warn(model, x, "top_k", "the outputs are found by local search, which may miss some")
        return TopK(self._decode_all(np.asarray(best.y)), np.exp(np.asarray(best.log_prob, float)), best.method)

    @needs_fit
    def normalization(self, X: Any, num: int = 1000) -> Normalization:
        """Check whether the probabilities that `log_prob` gives sum to one.

        Parameters
        ----------
        X : {array-like, sparse matrix, frame} of shape (n_rows, n_features)
            Features, as in `fit`.
        num : int, default=1000
            How many draws for each row, where exact sums take too long.

        Returns
        -------
        inference.Normalization
            The mass of each row with its interval, and a verdict on all rows.
        """
        x, model, reference = self._model(X)
        method, index = "sampled", None
        if budget.is_exact_in_time(model, x.shape[0]):
            # log_prob uses exact log-partitions here: they become a tau with a value for each row.
            method = "exact"
            tau, index = inference.log_partition(model, x, reference=reference), np.arange(x.shape[0])
            table = eqx.tree_at(lambda table: table.values, Table(x.shape[0]), tau - model.f.start)
            with jax.enable_x64(True):
                f = model.f.sharpened()
            model = EBM(model.g, table, q=model.q, f=f, surrogate=model.surrogate)
        options = {"method": method, "key": self._key(), "num": num, "index": index}
        return inference.normalization(model, x, reference=reference, **options)

    @needs_fit
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Score the predictions: subset accuracy of label sets, mean Kendall tau of rankings.

        Parameters
        ----------
        X : {array-like, sparse matrix, frame} of shape (n_rows, n_features)
            Features, as in `fit`.
        y : {array-like, sparse matrix, frame, list}
            The true outputs, written as the y of `fit`.
        sample_weight : array-like of shape (n_rows,), default=None
            How much each row counts.

        Returns
        -------
        float
            At most 1, which is perfect.
        """
        scores = self._scores(self.codec_.encode(y), Encoded(self._decide(*self._model(X)), None))
        return float(np.average(scores, weights=sample_weight))

    def set_output(self, *, transform: str | None = None) -> Self:
        """Choose the type of table that `predict` and `predict_proba` return.

        Parameters
        ----------
        transform : {"default", "pandas", "polars"}, default=None
            Arrays, or frames with a column for each label; None changes nothing.

        Returns
        -------
        self : object
            The estimator.
        """
        if transform is not None:
            if transform not in ("default", "pandas", "polars"):
                raise ValueError(f"transform must be 'default', 'pandas' or 'polars'; got {transform!r}.")
            # Where scikit-learn keeps it, so that `clone` keeps it too.
            self._sklearn_output_config = {"transform": transform}
        return self

    def save(self, path: Any) -> None:
        """Write the fitted estimator to a file that `partita.load` reads.

        Parameters
        ----------
        path : str or path-like
            The file. A fitted reference of scikit-learn goes to a second file, with the suffix `.sklearn`.
        """
        check_is_fitted(self, "ebm_")
        persistence.save(self, path)

    def _model(self, X: Any, given: Any = None) -> tuple[Any, EBM, PyTree]:
        """Scaled x, the model, conditioned on `given`, and the reference of each row."""
        x, raw = RowReader(self, self.codec_, self.scaler_).features(X)
        reference = self.reference_(raw)
        if given is None:
            return x, self.ebm_, reference
        known = read_known(given, self.codec_, x.shape[0])
        model, reference = inference.given(self.ebm_, x, known, reference=reference)
        return x, model, reference

    def _decide(self, x: Any, model: EBM, reference: PyTree) -> np.ndarray:
        if isinstance(self.objective_, AbstractFenchelYoung) and model is self.ebm_:
            return np.asarray(inference.relaxed_mode(model, x, self.objective_.regularizer))
        rule = self._rule(model)
        if rule is None:
            return answers.modes(x, model, reference, key=self._key())
        if isinstance(rule, decisions.Hamming | MicroF1 | decisions.Borda):
            return rule(np.asarray(answers.marginals(x, model, reference, key=self._key()))).y
        return rule(answers.evidence(rule, x, model, reference, key=self._key())).y

    def _rule(self, model: EBM) -> AbstractRule | None:
        """The rule of the decision; None for the mode, which is also the decision for one class per row."""
        if isinstance(self.decision, AbstractRule):
            return self.decision
        if self.decision == "mode" or names.is_one_class(model.space):
            return None
        if self.decision != "micro_f1":
            return decisions.RULES[self.decision]
        if self.threshold_ is None:
            raise ValueError("decision='micro_f1' needs a threshold, which `fit` learns: fit with this decision.")
        return MicroF1(self.threshold_)

    def _decode_all(self, y: np.ndarray) -> Any:
        """Several outputs for each row, in the kind of y."""
        rows = [self.codec_.decode(outputs) for outputs in y]
        return np.stack(rows) if all(isinstance(row, np.ndarray) for row in rows) else rows

    def _to_frame(self, answer: Any, X: Any) -> Any:
        """Predictions as the table that `set_output` chose, with the index of X."""
        container = getattr(self, "_sklearn_output_config", {}).get("transform", "default")
        columns = [str(label) for label in self.codec_.classes]
        if not isinstance(answer, np.ndarray) or answer.shape[1:] != (len(columns),):
            return answer
        table: Any = to_frame(answer, columns, container)
        return table.set_axis(X.index) if container == "pandas" and hasattr(X, "iloc") else table

    def _key(self) -> Key:
        """The key of the fit: the same call returns the same result."""
        return jax.random.key(self.seed_)
