"""Features are brought to one scale whatever their size; columns that are no numbers are named."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from sklearn.preprocessing import StandardScaler

from partita.estimators import MultilabelClassifier
from partita.estimators.rows import Scaler, check_columns, read_features, scale_features

RNG = np.random.default_rng(0)
NAN = np.nan


def unchanged(x, before):
    return x.format == before.format and x.dtype == before.dtype and (before != x).nnz == 0


X = RNG.normal(3, 2, (50, 4)) * [1, 10, 1e-6, 1e5]


def test_dense_columns_are_standardized():
    """Judge: scikit-learn; 1e-6 is ten times the rounding of float32."""
    before = X.copy()
    scaler = Scaler.fit(X)
    expected = StandardScaler().fit(X).transform(X)
    assert scaler(X).dtype == np.float32
    np.testing.assert_allclose(scaler(X), expected, atol=1e-6)
    exact = Scaler.fit(X, dtype="float64")(X)
    assert exact.dtype == np.float64
    np.testing.assert_allclose(exact, expected, atol=1e-12)
    np.testing.assert_array_equal(X, before)
    np.testing.assert_allclose(scaler(X.tolist()), expected, atol=1e-6)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(scaler))(X), scaler(X))


def test_weights_count_rows():
    repeats = RNG.integers(0, 4, 50)
    weighted = Scaler.fit(X, 0.5 * repeats, dtype="float64")
    repeated = Scaler.fit(np.repeat(X, repeats, axis=0), dtype="float64")
    np.testing.assert_allclose(weighted(X), repeated(X), atol=1e-12)
    # A row without weight does not count, whatever it holds.
    aside = Scaler.fit(np.vstack([X, np.full(4, 1e300)]), np.append(np.ones(50), 0), dtype="float64")
    np.testing.assert_allclose(aside(X), Scaler.fit(X, dtype="float64")(X), atol=1e-12)
    sparse = scipy.sparse.csr_array(X)
    weighted = Scaler.fit(sparse, 0.5 * repeats, dtype="float64")
    repeated = Scaler.fit(scipy.sparse.csr_array(np.repeat(X, repeats, axis=0)), dtype="float64")
    np.testing.assert_allclose(weighted(sparse).toarray(), repeated(sparse).toarray(), rtol=1e-12)


@pytest.mark.parametrize("value", [0.0, 0.1, 7.0, -1e10, 1e300, 1e-300])
def test_constant_columns_are_centered_only(value):
    scaler = Scaler.fit(np.full((30, 1), value))
    assert scaler.scale == 1
    assert (scaler(np.full((30, 1), value)) == 0).all()


@pytest.mark.parametrize("value", [0.1, 1e10, 1e300])
def test_rounding_is_not_blown_up(value):
    noisy = value * (1 + 1e-8 * RNG.normal(size=(100, 1)))
    assert np.abs(Scaler.fit(noisy)(noisy)).max() < 1e-6


@pytest.mark.parametrize("size", [1e-300, 1e-150, 1e150, 1e300])
@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
def test_huge_and_tiny_values_are_scaled_safely(size, kind):
    x = RNG.normal(size=(40, 2))
    plain, huge = (Scaler.fit(kind(z), dtype="float64")(kind(z)) for z in (x, size * x))
    if size < 1e-290:
        assert np.isfinite(huge.data if scipy.sparse.issparse(huge) else huge).all()
    else:
        np.testing.assert_allclose(*(z.toarray() if scipy.sparse.issparse(z) else z for z in (huge, plain)), rtol=1e-9)


def test_absurd_values_are_clipped():
    scaler = Scaler.fit(X)
    absurd = np.tile([[1e300], [-1e300], [1.7e308]], 4)
    assert scaler(absurd).tolist() == [[10.0] * 4, [-10.0] * 4, [10.0] * 4]
    assert (Scaler.fit(X, clip=2.0)(absurd)[0] == 2).all()
    assert np.abs(Scaler.fit(X, clip=float("inf"))(X + 1e9)).max() > 1e6


@pytest.mark.parametrize("form", [scipy.sparse.csr_array, scipy.sparse.csc_matrix, scipy.sparse.coo_array])
def test_sparse_columns_are_divided_by_their_root_mean_square(form):
    dense = X * (RNG.uniform(size=X.shape) < 0.3) * [1, 1, 1, 0]
    x = form(dense)
    before = x.copy()
    scaler = Scaler.fit(x)
    made = scaler(x)
    assert made.format == "csr"
    assert made.dtype == np.float32
    assert made.nnz == x.nnz
    size = np.sqrt(np.mean(dense**2, axis=0))
    np.testing.assert_allclose(made.toarray(), dense / np.where(size > 0, size, 1), rtol=1e-6)
    # Dense rows of the same features are scaled alike, and not clipped.
    np.testing.assert_allclose(scaler(100 * dense), 100 * made.toarray(), rtol=1e-6)
    assert unchanged(x, before)


def test_tensors_stay_as_they_are():
    x = RNG.normal(5, 100, size=(6, 2, 3))
    np.testing.assert_array_equal(Scaler.fit(x, dtype="float64")(x), x)


def test_what_cannot_be_read_is_refused():
    for x, message in [
        (np.where(X > 4, NAN, X), "Input X contains NaN"),
        (scipy.sparse.csr_array([[np.inf, 1], [0, 1]]), "Input X contains infinity"),
        (np.where(X > 4, -np.inf, X), "Input X contains infinity"),
        (X[0], r"Expected 2D array, got 1D"),
        (X[:0], r"Found array with 0 sample"),
    ]:
        with pytest.raises(ValueError, match=message):
            read_features(x, MultilabelClassifier(), fitting=True)


@pytest.mark.parametrize("x", [1e300 * X, scipy.sparse.csr_array(1e300 * X), 1e300 * X[:, :, None]])
def test_finite_values_that_overflow_are_refused(x):
    """Without a scale, and where an unseen value is huge beside its column; where values are clipped they are not."""
    with pytest.raises(ValueError, match="X has values that are too large for float32"):
        scale_features(x, None, "float32")
    assert np.isfinite(scale_features(x, None, "float64").values.data).all()
    small = x * 1e-300
    if isinstance(x, np.ndarray) and x.ndim == 2:
        assert np.abs(scale_features(x, Scaler.fit(small), "float32").values).max() == 10
    else:
        with pytest.raises(ValueError, match="too large for float32"):
            scale_features(x, Scaler.fit(small), "float32")


def test_what_cannot_be_scaled_is_refused():
    for x, message in [
        (X[0], r"shape \(n, d\); got shape \(4,\)"),
        (X[:0], r"got shape \(0, 4\)"),
    ]:
        with pytest.raises(ValueError, match=message):
            Scaler.fit(x)
    scaler = Scaler.fit(X)
    with pytest.raises(ValueError, match=r"features of shape \(4,\), as in fit; got \(3,\)"):
        scaler(X[:, :3])
    with pytest.raises(ValueError, match="dense in fit; sparse ones cannot be centered"):
        scaler(scipy.sparse.csr_array(X))
    with pytest.raises(ValueError, match="clip must be positive; got 0"):
        Scaler.fit(X, clip=0.0)
    for weight in (np.ones(3), -np.ones(50), np.zeros(50), np.full(50, NAN)):
        with pytest.raises(ValueError, match="weight must be 50 finite numbers, not negative nor all zero"):
            Scaler.fit(X, weight)


def test_columns_that_are_no_numbers_are_named():
    good = pd.DataFrame({"a": [1, 2], "b": [0.5, None], "c": [True, False], "d": pd.array([1, None], dtype="Int64")})
    good["e"] = pd.Series([1, 2.5], dtype=object)
    check_columns(good)
    polars = pl.DataFrame({"a": [1, None], "b": [0.5, 1], "c": [True, False]})
    check_columns(polars)
    check_columns(X)
    bad = good.assign(city=["Bonn", "Rome"], size=pd.Categorical([1, 2]), day=pd.to_datetime(["2020-01-01"] * 2))
    with pytest.raises(ValueError, match=r"'city': .*'size': 'category'.*'day': 'datetime64.*Encode them first"):
        check_columns(bad)
    with pytest.raises(ValueError, match=r"\{'e': 'object'\}"):
        check_columns(good.assign(e=pd.Series([1, "x"], dtype=object)))
    with pytest.raises(ValueError, match=r"\{'city': 'String'\}"):
        check_columns(polars.with_columns(city=pl.Series(["Bonn", "Rome"])))
