"""Each kind of bad input gets its own sentence, before anything is compiled."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from cases import COUPLINGS, FEATURES, model

from partita import inference, objectives, samplers, training
from partita.budget import TooLargeError
from partita.couplings import Bilinear, LinearQuadratic, Symmetric
from partita.divergences import KL, ChiSquare, Tsallis
from partita.model import EBM, Bound, Energy, Network, Residual, Shifted, Table
from partita.networks import MLP, Linear
from partita.structures import Cube, Hypercube, KSubsets, Mixture, Permutations, ProductBernoulli, Simplex, Uniform
from partita.training import Solver, fit

N = 6
X = np.random.default_rng(0).normal(size=(N, FEATURES))
SETS = np.tile([0, 1, 1, 0], (N, 1))
RANKS = np.tile([3, 1, 0, 2], (N, 1))


class NoWork(objectives.AbstractObjective):
    """An objective that must never be reached."""

    def loss(self, model, state, batch, *, key):
        raise AssertionError("work was started on bad input")


def ask(question, f=None, **options):
    return question(model(COUPLINGS["unary"], f=f), X, **options)


def fit_bad(name, data, *, tau=None, **options):
    ebm = model(COUPLINGS[name])
    ebm = ebm if tau is None else EBM(ebm.g, tau)
    fit(Solver(NoWork()), ebm, data, key=jax.random.key(0), **{"steps": 5, **options})


def with_value(array, value, dtype=float):
    changed = array.astype(dtype)
    changed[2, 1] = value
    return changed


rows = training.Rows

BAD_DATA = {
    "nan feature": ("unary", (with_value(X, np.nan), SETS), "1 values that are NaN or infinite"),
    "infinite feature": ("unary", (with_value(X, np.inf), SETS), "1 values that are NaN or infinite"),
    "too large for float32": ("unary", (1e300 * X, SETS), "NaN or infinite as float32; impute, drop or rescale"),
    "nan in sparse": (
        "unary",
        rows(scipy.sparse.csr_matrix(with_value(X, np.nan)), SETS, batch_size=2),
        "1 values that are NaN or infinite",
    ),
    "text features": ("unary", (np.full((N, FEATURES), "a"), SETS), "x must hold numbers"),
    "flat features": ("unary", (X[:, 0], SETS), r"x must have rows and features.*got shape \(6,\)"),
    "empty": ("unary", (X[:0], SETS[:0]), r"data are empty: x has shape \(0, 3\)"),
    "one row": ("unary", (X[:1], SETS[:1]), "data have one row.*at least 2"),
    "label out of range": (
        "unary",
        (X, with_value(SETS, 5)),
        r"1 of 6 rows of y are not in Hypercube.*row 2: \[0, 5, 1",
    ),
    "rankings for sets": ("unary", (X, RANKS), "6 of 6 rows of y are not in Hypercube.*Permutations"),
    "sets for rankings": ("birkhoff", (X, SETS), "6 of 6 rows of y are not in Permutations.*a permutation of 0..3"),
    "ranks from one": ("birkhoff", (X, RANKS + 1), "not in Permutations.*a permutation of 0..3, 0 is best"),
    "wrong set size": ("subsets", (X, np.eye(N, 5, dtype=int)), "not in KSubsets"),
    "two classes at once": ("classes", (X, SETS), "not in Simplex"),
    "fractions": ("unary", (X, SETS + 0.5), "y must hold integers; got float64 with fractions"),
    "nan label": ("unary", (X, with_value(SETS, np.nan)), "fractions, NaN or infinity"),
    "text labels": ("unary", (X, np.full((N, 4), "yes")), "y must hold integers; got dtype <U3"),
    "too few labels": ("unary", (X, SETS[:, :3]), r"y must have shape \(6, 4\).*got \(6, 3\)"),
    "too few rows of y": ("unary", (X, SETS[:4]), r"y must have shape \(6, 4\).*got \(4, 4\)"),
    "flat y": ("unary", (X, SETS[:, 0]), r"y must have shape \(6, 4\).*got \(6,\)"),
    "negative weight": ("unary", rows(X, SETS, weight=[1, 1, -1, 1, 1, 1]), "non-negative.*from -1"),
    "nan weight": ("unary", rows(X, SETS, weight=[1, 1, np.nan, 1, 1, 1]), "weight must be finite"),
    "all weights zero": ("unary", rows(X, SETS, weight=np.zeros(N)), "not all zero"),
    "too few weights": ("unary", rows(X, SETS, weight=[1, 1]), r"shape \(6,\), one per row; got \(2,\)"),
    "too many features": ("unary", (np.hstack([X, X]), SETS), r"h does not take x of shape \(6,\)"),
    "batch of nothing": ("unary", rows(X, SETS, batch_size=0), "between 1 and the number of rows, 6; got 0"),
    "batch larger than the data": ("unary", rows(X, SETS, batch_size=7), "number of rows, 6; got 7"),
    "full batch of sparse": ("unary", rows(scipy.sparse.csr_matrix(X), SETS), "sparse x dense; give a batch_size"),
    "reference of another kind": (
        "unary",
        rows(X, SETS, reference=ProductBernoulli(jnp.zeros((N, 4)))),
        "reference is a ProductBernoulli, but the model's q is a Uniform",
    ),
    "class numbers": ("classes", (X, SETS[:, 0]), r"one-hot rows.*np.eye\(4"),
    "empty stream": ("unary", training.Stream([]), "brought no rows at all"),
    "stream of changing size": (
        "unary",
        training.Stream([(X, SETS), (X[:3], SETS[:3])]),
        r"batches of one shape; got .*\(3, 3\).* after .*\(6, 3\)",
    ),
    "nan in a stream": ("unary", training.Stream([(with_value(X, np.nan), SETS)]), "NaN or infinite"),
}


@pytest.mark.parametrize(("name", "data", "message"), BAD_DATA.values(), ids=BAD_DATA)
def test_bad_data(name, data, message):
    with pytest.raises((ValueError, TypeError), match=message):
        fit_bad(name, data)


BAD_CALLS = {
    "k = 1 sets": (lambda: Hypercube(1), r"k >= 2 labels; got k = 1.*Simplex\(2\)"),
    "k = 1 rankings": (lambda: Permutations(1), "k >= 2 labels; got k = 1. One label has only one ranking"),
    "k = 1 subsets": (lambda: KSubsets(1, 1), "k >= 2 labels; got k = 1"),
    "k = 1 classes": (lambda: Simplex(1), "k >= 2 labels; got k = 1"),
    "k = 1 polytope": (lambda: model(Bilinear(Cube(1))), "k >= 2 labels; got k = 1"),
    "no draws": (lambda: objectives.MinMin(0), "num_samples >= 1.*got 0"),
    "negative draws": (lambda: objectives.MinMin(-3), "num_samples >= 1.*got -3"),
    "unknown draws": (lambda: objectives.MinMin(3, "each"), "'per-row' or 'shared'; got 'each'"),
    "2^174 sets": (lambda: Hypercube(174).elements(), r"about 10\^52 elements.*limit is 1,073,741,824.*sample"),
    "2^174 states": (
        lambda: fit(
            Solver(objectives.ExactMLE()),
            model(LinearQuadratic(Symmetric(174), shared=True)),
            (X, np.zeros((N, 174), int)),
            steps=1,
            key=jax.random.key(0),
        ),
        r"about 10\^52 outputs.*enumeration reaches 1,048,576.*MinMin",
    ),
    "zero learning rate": (lambda: Solver(NoWork(), learning_rate=0.0), "learning_rate must be positive; got 0"),
    "nan learning rate": (lambda: Solver(NoWork(), learning_rate=float("nan")), "must be positive; got nan"),
    "negative tau rate": (lambda: Solver(NoWork(), tau_learning_rate=-1.0), "tau_learning_rate must be positive"),
    "negative penalty": (lambda: Solver(NoWork(), penalty=-1.0), "penalty must be non-negative; got -1"),
    "no steps": (lambda: fit_bad("unary", (X, SETS), steps=0), "steps and every must be at least 1"),
    "patience without validation": (lambda: fit_bad("unary", (X, SETS), patience=3), "patience needs a validation"),
    "table of another length": (lambda: fit_bad("unary", (X, SETS), tau=Table(5)), "holds 5 values.*6 rows"),
    "table of nothing": (lambda: Table(0), "at least 1; got 0"),
    "table with a stream": (
        lambda: fit_bad("unary", training.Stream([(X, SETS)]), tau=Table(N)),
        "Table needs a data set of known length",
    ),
    "tau for other features": (
        lambda: fit_bad("unary", (X, SETS), tau=Network(MLP(7, (), key=jax.random.key(0)))),
        r"tau does not take x of shape \(3,\)",
    ),
    "h of another shape": (
        lambda: fit(
            Solver(NoWork()),
            EBM(Energy(Linear(FEATURES, 5, key=jax.random.key(0)), COUPLINGS["unary"]), Table(N)),
            (X, SETS),
            steps=1,
            key=jax.random.key(0),
        ),
        r"h gives logits of shape \(5,\), but Bilinear needs \(4,\)",
    ),
    "q on another space": (
        lambda: model(COUPLINGS["unary"], q=Uniform(Hypercube(5))),
        r"q is a measure on Hypercube\(k=5\), but g scores Hypercube\(k=4\)",
    ),
    "nan reference": (
        lambda: training.batch(
            model(COUPLINGS["unary"], q=ProductBernoulli(jnp.zeros(4))),
            X,
            SETS,
            reference=ProductBernoulli(jnp.full((N, 4), jnp.nan)),
        ),
        "logits of a reference are NaN in places",
    ),
    "bound under another f": (
        lambda: EBM(model(COUPLINGS["unary"]).g, Bound(), f=ChiSquare()),
        r"model\.Bound is a bound of the log-partition under KL; f is ChiSquare.*model\.Network",
    ),
    "defense of all": (
        lambda: objectives.SurrogateProposal(1.0),
        "share of draws from q, at least 0 and below 1; got 1.0",
    ),
    "negative defense": (lambda: objectives.SurrogateProposal(-0.1), "at least 0 and below 1; got -0.1"),
    "nan defense": (lambda: objectives.SurrogateProposal(float("nan")), "at least 0 and below 1; got nan"),
    "mixture of one": (lambda: Mixture(Uniform(Hypercube(4)), Uniform(Hypercube(4)), 1.0), "between 0 and 1; got 1.0"),
    "proposal on another space": (
        lambda: fit(
            Solver(objectives.MinMin(proposal=Uniform(Hypercube(5)))),
            model(COUPLINGS["unary"]),
            (X, SETS),
            steps=1,
            key=jax.random.key(0),
        ),
        r"The proposal is a measure on Hypercube\(k=5\), but the model is on Hypercube\(k=4\)",
    ),
    "no surrogate": (
        lambda: fit(
            Solver(objectives.MinMin()),
            model(COUPLINGS["classes"]),
            (X, np.eye(N, 4, dtype=int)),
            steps=1,
            key=jax.random.key(0),
        ),
        "No surrogate serves a Bilinear coupling on Simplex.*proposal=None",
    ),
    "residual under another f": (
        lambda: EBM(model(COUPLINGS["unary"]).g, Residual(MLP(4, (), key=jax.random.key(0))), f=ChiSquare()),
        r"model\.Residual corrects.*under ChiSquare has none.*model\.Network",
    ),
    "shifted table of another length": (
        lambda: fit_bad("unary", (X, SETS), tau=Shifted(Table(5), jnp.asarray(0.5))),
        "holds 5 values.*6 rows",
    ),
    "shifted table with a stream": (
        lambda: fit_bad("unary", training.Stream([(X, SETS)]), tau=Shifted(Table(N), jnp.asarray(0.5))),
        "Table needs a data set of known length",
    ),
    "one draw": (lambda: samplers.ImportanceSampling(1), r"num >= 2 draws.*got 1, 0\.05"),
    "draws from q alone": (lambda: samplers.ImportanceSampling(10, 1.0), r"defense in \[0, 1\); got 10, 1\.0"),
    "one particle": (lambda: samplers.SequentialMonteCarlo(1), "at least 2 particles.*got 1, 50, None"),
    "one chain": (lambda: samplers.AnnealedImportanceSampling(1), "at least 2 chains.*got 1, 50, None"),
    "no temperature": (lambda: samplers.AnnealedImportanceSampling(2, 0), "1 temperature.*got 2, 0, None"),
    "no move": (lambda: samplers.AnnealedImportanceSampling(2, 1, 0), "1 move; got 2, 1, 0"),
    "unknown method": (
        lambda: ask(inference.log_prob, y=SETS, method="laplace"),
        "'importance', 'annealed', 'sequential', or an estimator of partita.samplers; got 'laplace'",
    ),
    "no key": (
        lambda: ask(inference.log_partition, method="annealed"),
        r"method='annealed' draws: give a key, as in key=jax\.random\.key\(0\)",
    ),
    "annealing under another f": (
        lambda: ask(inference.log_partition, f=ChiSquare(), method="annealed", key=jax.random.key(0)),
        "needs f = KL, but f is ChiSquare",
    ),
    "certain normalization": (
        lambda: ask(inference.normalization, key=jax.random.key(0), confidence=1.0),
        r"confidence must be between 0 and 1.*got 1\.0, 0\.25",
    ),
    "no tolerance": (
        lambda: ask(inference.normalization, key=jax.random.key(0), tolerance=0.0),
        r"tolerance positive; got 0\.99, 0\.0",
    ),
    "normalization by one draw": (
        lambda: ask(inference.normalization, key=jax.random.key(0), num=1),
        "num >= 2 draws",
    ),
    "recalibration by one draw": (
        lambda: ask(inference.recalibrate, key=jax.random.key(0), num=1),
        "num >= 2 draws",
    ),
    "alpha = 1": (lambda: Tsallis(1.0), r"alpha != 1.*use KL\(\)"),
    "bound below the start": (lambda: KL(bound=-1.0), r"f'\(1\) = 0 < c"),
    "network without width": (lambda: MLP(3, 2, width=0, key=jax.random.key(0)), "width must be at least 1; got 0"),
}


@pytest.mark.parametrize(("call", "message"), BAD_CALLS.values(), ids=BAD_CALLS)
def test_bad_calls(call, message):
    with pytest.raises((ValueError, TooLargeError), match=message):
        call()


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.int64, np.float32, np.float64])
def test_whole_numbers_of_any_type_are_welcome(dtype):
    ebm = model(COUPLINGS["unary"])
    np.testing.assert_array_equal(training.batch(ebm, X, SETS.astype(dtype)).y, SETS)
    np.testing.assert_array_equal(training.batch(ebm, X.tolist(), SETS.tolist()).y, SETS)
