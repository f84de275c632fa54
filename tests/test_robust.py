"""Whatever comes in: a valid prediction or a sentence; never a crash inside JAX, a NaN, or a changed input."""

import copy
import warnings

import hypothesis
import numpy as np
import pandas
import pytest
import scipy.sparse
from hypothesis import strategies as st

from partita.estimators import LabelRanker, MultilabelClassifier

# Few shapes and the smallest programs: each new shape is compiled.
SMALL = {"ensemble_size": 1, "steps": 2, "width": 2, "depth": 1, "batch_size": 8, "random_state": 0}
ROWS = st.sampled_from([12, 12, 12, 12, 12, 5, 1, 0])
LABELS = st.sampled_from([3, 3, 3, 2, 1])
ODD = [np.nan, np.inf, -np.inf, 1e300, -1e38, 1e-300]
STRANGE = [None, "a", 7, 2.5, [], [[]], [None] * 12, [{1}, 2] * 6, np.zeros((12, 2, 2)), ["a>", ">"] * 6, [{}] * 12]


@st.composite
def features(draw, n):
    rng = np.random.RandomState(draw(st.integers(0, 99)))
    x = rng.randn(n, draw(st.sampled_from([2, 2, 2, 1])))
    kind = draw(st.sampled_from(["float", "float", "int", "bool", "sparse", "frame", "float32", "object", "text"]))
    if n and draw(st.booleans()):
        x[rng.randint(n), 0] = draw(st.sampled_from(ODD))
    if kind == "sparse":
        return scipy.sparse.csr_matrix(x)
    if kind == "frame":
        return pandas.DataFrame(x)
    if kind == "text":
        return np.full(x.shape, "a")
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return x.astype(kind)


@st.composite
def sets(draw, n):
    rng, k = np.random.RandomState(draw(st.integers(0, 99))), draw(LABELS)
    y = rng.randint(0, 2, (n, k))
    kind = draw(st.sampled_from(["int", "bool", "float", "missing", "sets", "classes", "sparse", "frame", "strange"]))
    if kind == "strange":
        return draw(st.sampled_from(STRANGE))
    if kind == "sets":
        return [set(np.flatnonzero(row).tolist()) for row in y]
    if kind == "classes":
        return rng.choice(["a", "b", "c"], n)
    if kind == "missing":
        return np.where(rng.rand(n, k) < draw(st.sampled_from([0.2, 1.0])), np.nan, y)
    made = {"sparse": scipy.sparse.csr_array, "frame": pandas.DataFrame}
    return made[kind](y) if kind in made else y.astype(kind)


@st.composite
def rankings(draw, n):
    rng, k = np.random.RandomState(draw(st.integers(0, 99))), draw(LABELS)
    y = np.argsort(rng.rand(n, k), axis=1) if n else np.zeros((0, k), int)
    kind = draw(st.sampled_from(["int", "float", "missing", "strings", "choices", "ties", "frame", "wrong", "strange"]))
    if kind == "strange":
        return draw(st.sampled_from(STRANGE))
    if kind == "strings":
        return [">".join("abc"[j] for j in np.argsort(row)) for row in y]
    if kind == "choices":
        return rng.choice(["a", "b", "c"], n)
    if kind == "missing":
        return np.where(rng.rand(n, k) < draw(st.sampled_from([0.2, 1.0])), np.nan, y)
    if kind == "ties":
        return np.minimum(y, 1)
    if kind == "wrong":
        return y + draw(st.sampled_from([1, -1, 0.5]))
    return pandas.DataFrame(y) if kind == "frame" else y.astype(kind)


def same(a, b):
    if scipy.sparse.issparse(a):
        return np.array_equal(a.toarray(), b.toarray(), equal_nan=True)
    if isinstance(a, pandas.DataFrame):
        return a.equals(b)
    if isinstance(a, np.ndarray) and a.dtype != object:
        return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    return repr(a) == repr(b)


def holds(estimator, x, y):
    """A valid answer, or a ValueError or TypeError in words."""
    before = copy.deepcopy((x, y))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            estimator.fit(x, y)
            answer, p = estimator.predict(x), estimator.predict_proba(x)
    except (ValueError, TypeError) as error:
        said = str(error)
        assert len(said.split()) > 3, said
        inside = ("jax", "Traced", "broadcast", "concatenat", "pytree", "eqx", "Equinox", "dot_general")
        assert not any(word in said for word in inside), said
    else:
        n, k = x.shape[0], len(estimator.classes_)
        rows = answer.shape[0] if hasattr(answer, "shape") else len(answer)
        assert rows == n
        assert p.shape == ((n, k, k) if isinstance(estimator, LabelRanker) else (n, k))
        assert np.isfinite(p).all()
        assert (p >= 0).all()
        assert (p <= 1 + 1e-5).all()
    assert all(same(a, b) for a, b in zip(before, (x, y), strict=True)), "the input was changed"


CHECKED = [(MultilabelClassifier, sets), (LabelRanker, rankings)]


def check(cls, outputs, examples):
    settings = hypothesis.settings(max_examples=examples, deadline=None, database=None, derandomize=True)

    @settings
    @hypothesis.given(data=st.data())
    def run(data):
        n = data.draw(ROWS)
        x, y = data.draw(features(n)), data.draw(outputs(n))
        more = {"penalty": 0.01, "refit": False} if cls is LabelRanker else {}
        holds(cls(**SMALL, **more), x, y)

    run()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("cls", "outputs"), CHECKED)
def test_anything_is_answered_or_refused_in_words(cls, outputs):
    check(cls, outputs, 3)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("cls", "outputs"), CHECKED)
def test_five_hundred_cases(cls, outputs):
    check(cls, outputs, 250)
