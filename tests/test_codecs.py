"""What users have comes back in kind; what is missing or tied is mask, and nothing else. Judges: scipy, enumeration."""

import copy
import itertools
import math
import pickle

import jax
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import MultiLabelBinarizer

from partita.estimators.codecs import LabelSets, Rankings, to_frame
from partita.structures import Hypercube, Permutations, Simplex

RNG = np.random.default_rng(0)
NAN = np.nan
SETTINGS = settings(max_examples=60, deadline=None, derandomize=True)


class ArrayLike:
    """What can be made an array, and nothing else."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype)

    def __array_function__(self, *_):
        raise TypeError("Make an array of it first.")

    def equals(self, other):
        return np.array_equal(self.values, other.values)


ZERO_ONE = np.array([[0, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1, 1]])
FRAME = pd.DataFrame(ZERO_ONE, columns=["sad", "angry", "calm"])
SETS = [{"b"}, {"a", "c"}, set(), {"a", "b", "c"}]

# kind, Y: decode(encode(Y)) is Y.
SAME = {
    "int64": ("matrix", ZERO_ONE),
    "int8": ("matrix", ZERO_ONE.astype(np.int8)),
    "bool": ("matrix", ZERO_ONE.astype(bool)),
    "csr matrix": ("sparse", scipy.sparse.csr_matrix(ZERO_ONE)),
    "csc array": ("sparse", scipy.sparse.csc_array(ZERO_ONE.astype(np.float32))),
    "coo bool": ("sparse", scipy.sparse.coo_array(ZERO_ONE.astype(bool))),
    "sets": ("sets", SETS),
    "tuples": ("sets", [("b",), ("a", "c"), (), ("a", "b", "c")]),
    "sets of numbers": ("sets", [{3}, {1, 2}, {2, 3}]),
    "tuples of numbers": ("sets", [(1, 3), (2,)]),
    "integers": ("classes", np.array([7, 3, 7, 5])),
    "small integers": ("classes", np.array([7, 3, 7, 5], np.uint8)),
    "strings": ("classes", np.array(["spam", "ham", "spam"])),
    "objects": ("classes", np.array(["spam", "ham", "spam"], object)),
    "booleans": ("classes", np.array([True, False, True])),
    "whole floats": ("classes", np.array([2.0, -1.0, 2.0])),
    "column": ("classes", np.array([[2], [0], [1]])),
    "column of strings": ("classes", np.array([["b"], ["a"]])),
}
# kind, Y, what is decoded.
ALIKE = {
    "float matrix": ("matrix", ZERO_ONE.astype(float), ZERO_ONE),
    "lists of numbers": ("matrix", ZERO_ONE.tolist(), ZERO_ONE),
    "rows of a list": ("matrix", list(ZERO_ONE), ZERO_ONE),
    "objects as matrix": ("matrix", ZERO_ONE.astype(object), ZERO_ONE),
    "array-like": ("matrix", ArrayLike(ZERO_ONE), ZERO_ONE),
    "array-like classes": ("classes", ArrayLike(np.array([3, 1])), np.array([3, 1])),
    "jax": ("matrix", jax.numpy.asarray(ZERO_ONE), ZERO_ONE.astype(np.int32)),
    "pandas": ("frame", FRAME, ZERO_ONE),
    "polars": ("frame", pl.DataFrame(ZERO_ONE, schema=["a", "b", "c"]), ZERO_ONE),
    "pandas Boolean": ("frame", FRAME.astype("boolean"), ZERO_ONE),
    "polars Boolean": ("frame", pl.DataFrame(ZERO_ONE.astype(bool), schema=["a", "b", "c"]), ZERO_ONE.astype(bool)),
    "frozen sets": ("sets", tuple(map(frozenset, SETS)), SETS),
    "lists": ("sets", [["c", "a"], ["b"], []], [("a", "c"), ("b",), ()]),
    "series of lists": ("sets", pd.Series([[2, 1], [3, 2]]), [(1, 2), (2, 3)]),
    "polars lists": ("sets", pl.Series([["b", "a"], []]), [("a", "b"), ()]),
    "object array of sets": ("sets", np.array([*SETS, None], object)[:-1], SETS),
    "series": ("classes", pd.Series(["x", "y", "x"]), np.array(["x", "y", "x"], object)),
    "category": ("classes", pd.Series(["x", "y", "x"], dtype="category"), np.array(["x", "y", "x"], object)),
    "polars series": ("classes", pl.Series([3, 1]), np.array([3, 1])),
    "list of strings": ("classes", ["x", "yy"], np.array(["x", "yy"])),
    "frame of one column": ("classes", pd.DataFrame({"y": [1, 4]}), np.array([[1], [4]])),
}


def same(a, b):
    if scipy.sparse.issparse(b):
        assert type(a).__name__.replace("csr", "") == type(b).__name__[3:]
        assert a.format == "csr"
        a, b = a.toarray(), b.toarray()
        b = b if b.dtype.kind in "iub" else b.astype(int)
    if isinstance(b, np.ndarray):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    else:
        assert a == b
        assert [type(row) for row in a] == [type(row) for row in b]


def kept(Y):
    """A copy to compare with: frames and arrays by their own equality."""
    return copy.deepcopy(Y)


def unchanged(Y, before):
    if scipy.sparse.issparse(Y):
        assert Y.format == before.format
        assert Y.dtype == before.dtype
        return (before != Y).nnz == 0
    if hasattr(Y, "equals"):
        return Y.equals(before)
    return all(np.array_equal(a, b) for a, b in zip(Y, before, strict=True))


def fit(kind, Y, **options):
    """A codec. It encodes Y while it is learned as it does afterwards."""
    codec, encoded = kind.fit_encode(Y, **options)
    np.testing.assert_equal(tuple(encoded), tuple(codec.encode(Y)))
    return codec


ROUND_TRIPS = {**{name: (kind, Y, Y) for name, (kind, Y) in SAME.items()}, **ALIKE}


@pytest.mark.parametrize(("kind", "Y", "expected"), ROUND_TRIPS.values(), ids=ROUND_TRIPS)
def test_label_sets_come_back_in_kind(kind, Y, expected):
    before = kept(Y)
    codec = fit(LabelSets, Y)
    y, mask = codec.encode(Y)
    assert codec.kind == kind
    assert mask is None
    assert y.dtype.kind == "i"
    assert codec.space == (Simplex if kind == "classes" else Hypercube)(len(codec.classes))
    assert all(codec.space.contains(row) for row in y)
    same(codec.decode(y), expected)
    same(pickle.loads(pickle.dumps(codec)).decode(y), expected)
    assert unchanged(Y, before)


@SETTINGS
@given(st.lists(st.sets(st.sampled_from("abcdef")), min_size=1, max_size=8))
def test_sets_are_those_of_scikit_learn(rows):
    made = MultiLabelBinarizer(classes=list("abcdef")).fit_transform(rows)
    codec = fit(LabelSets, rows, classes="abcdef")
    np.testing.assert_array_equal(codec.encode(rows).y, made)
    assert codec.decode(made) == rows
    seen = sorted(set().union(*rows))
    if len(seen) > 1:
        assert fit(LabelSets, rows).classes == tuple(seen)


HOLES = np.array([[0, 1, NAN], [NAN, NAN, NAN], [1, 0, 1], [NAN, 1, 0]])
MISSING = {
    "NaN": HOLES,
    "float32": HOLES.astype(np.float32),
    "None": np.where(np.isnan(HOLES), None, HOLES.astype(object)),
    "lists": [[None if np.isnan(v) else v for v in row] for row in HOLES],
    "masked": np.ma.MaskedArray(np.nan_to_num(HOLES, nan=7).astype(int), np.isnan(HOLES)),
    "pandas NaN": pd.DataFrame(HOLES, columns=list("abc")),
    "pandas NA": pd.DataFrame(HOLES, columns=list("abc")).astype("Int64"),
    "pandas boolean NA": pd.DataFrame(HOLES, columns=list("abc")).astype("boolean"),
    "polars null": pl.DataFrame(
        {name: [None if np.isnan(v) else int(v) for v in column] for name, column in zip("abc", HOLES.T, strict=True)}
    ),
    "polars boolean null": pl.DataFrame(
        {name: [None if np.isnan(v) else bool(v) for v in column] for name, column in zip("abc", HOLES.T, strict=True)}
    ),
    "sparse": scipy.sparse.csr_array(HOLES),
}


@pytest.mark.parametrize("Y", MISSING.values(), ids=MISSING)
def test_missing_labels_are_free_and_zero(Y):
    before = kept(Y)
    y, mask = fit(LabelSets, Y).encode(Y)
    np.testing.assert_array_equal(mask, np.isnan(HOLES))
    np.testing.assert_array_equal(y, np.nan_to_num(HOLES))
    if not isinstance(Y, np.ndarray | list) and not scipy.sparse.issparse(Y):
        assert unchanged(Y, before)


@pytest.mark.parametrize("gone", [None, NAN, pd.NA], ids=repr)
def test_a_missing_set_is_free_as_a_whole(gone):
    codec = fit(LabelSets, [gone, {"a"}, {"b"}, set()])
    y, mask = codec.encode([gone, {"a"}, set()])
    assert y.tolist() == [[0, 0], [1, 0], [0, 0]]
    assert mask.tolist() == [[1, 1], [0, 0], [0, 0]]


def test_frames_are_matched_by_name_and_tables_serve_one_another():
    codec = fit(LabelSets, FRAME)
    assert codec.classes == ("sad", "angry", "calm")
    for Y in (FRAME[["calm", "sad", "angry"]], pl.from_pandas(FRAME[["calm", "sad", "angry"]]), ZERO_ONE, FRAME):
        np.testing.assert_array_equal(codec.encode(Y).y, ZERO_ONE)
    np.testing.assert_array_equal(codec.encode(scipy.sparse.csr_array(ZERO_ONE)).y, ZERO_ONE)
    np.testing.assert_array_equal(fit(LabelSets, ZERO_ONE).encode(FRAME).y, ZERO_ONE)
    reordered = fit(LabelSets, FRAME, classes=["calm", "angry", "sad"])
    np.testing.assert_array_equal(reordered.encode(FRAME).y, ZERO_ONE[:, ::-1])


def test_classes_may_be_given():
    assert fit(LabelSets, ZERO_ONE, classes=["x", "y", "z"]).classes == ("x", "y", "z")
    codec = fit(LabelSets, ["b", "b"], classes=["long name", "b"])
    assert codec.encode(["b"]).y.tolist() == [[0, 1]]
    assert codec.decode([[1, 0]]).tolist() == ["long name"]
    assert fit(LabelSets, [[1, 2], [3]], classes=[3, 2, 1, 0]).encode([[1, 2]]).y.tolist() == [[0, 1, 1, 0]]


def test_labels_that_never_change_are_fine():
    assert fit(LabelSets, np.zeros((3, 2), int)).encode([[1, 1]]).y.tolist() == [[1, 1]]


BAD_SETS = {
    "ranks": (
        [[0.0, 5.0], [1.0, 0.0]],
        r"^Y must be 0/1 with shape \(n, k\); got float64 with values up to 5.0. For rank",
    ),
    "minus one": (np.array([[-1, 1], [1, 1]]), "got int64 with values such as -1. For rankings"),
    "fractions": (np.array([[0.5, 1], [1, 1]]), "got float64 with values such as 0.5"),
    "infinite": (np.array([[np.inf, 1], [1, 1]]), "values up to inf"),
    "sparse twos": (scipy.sparse.csr_array(2 * ZERO_ONE), "values up to 2"),
    "three axes": (np.zeros((2, 2, 2)), r"got shape \(2, 2, 2\)"),
    "a number": (3, r"got shape \(\)"),
    "no rows": (np.zeros((0, 3), int), r"k >= 2 labels; got shape \(0, 3\)"),
    "no classes": ([], "no rows"),
    "sparse column": (scipy.sparse.csr_array([[1], [0]]), r"k >= 2 labels; got shape \(2, 1\)"),
    "text": (np.array([["a", "b"], ["c", "d"]]), "must hold numbers; got <U1 with 'a'"),
    "text in a frame": (pd.DataFrame({"a": [1, 0], "b": ["yes", "no"]}), "must hold numbers; got object with 'yes'"),
    "twin columns": (pd.DataFrame(ZERO_ONE, columns=["a", "b", "a"]), "different; got 'a' more than once"),
    "string for a set": ([{"a"}, "abc"], r"Row 1 is the string 'abc'.*letter by letter. Write the set \{'abc'\}"),
    "number for a set": ([{"a", "b"}, 3], "Row 1 must be a set of labels.*got 3"),
    "None in a set": ([["a", None], ["b"]], "Row 0 has the label None"),
    "set in a set": ([[["a"], "b"], ["b"]], r"Row 0 has the label \['a'\]"),
    "mixed labels": ([{"a"}, {1}], "of one type; got int and str. Make them all strings"),
    "one label": ([{"a"}, set()], r"At least 2 classes.* only one was seen in Y: \['a'\]"),
    "one class": (np.array([3, 3]), r"At least 2 classes.* only one was seen in Y: \[3\]"),
    "continuous": (np.array([0.5, 1.5]), "^Unknown label type: continuous.*got 0.5"),
    "continuous column": (np.array([[0.5], [1.5]]), "^Unknown label type: continuous"),
    "continuous objects": (np.array([1, 1.5], object), "^Unknown label type: continuous"),
    "infinite classes": (np.array([np.inf, 1]), "^Unknown label type: continuous"),
    "missing class": (np.array([1, NAN, 2]), r"Row 1 has no class"),
    "masked class": (np.ma.MaskedArray([1, 2, 3], [False, True, False]), "Row 1 has no class"),
    "NaN beside text": (["a", NAN, "b"], r"Row 1 has no class"),
    "mixed classes": (["a", 1, "b"], "of one type; got int and str"),
    "dates": (np.array(["2020-01-01"], "datetime64[D]"), r"integers, strings or booleans; got datetime64\[D\]"),
    "objects": (np.array([{}, {}], object), r"integers, strings or booleans; got \{\} of type dict"),
}


@pytest.mark.parametrize(("Y", "message"), BAD_SETS.values(), ids=BAD_SETS)
def test_what_is_no_label_set_is_refused(Y, message):
    with pytest.raises(ValueError, match=message):
        fit(LabelSets, Y)


BAD_NEW_SETS = {
    "another k": (ZERO_ONE, ZERO_ONE[:, :2], "must have 3 columns, as in fit; got 2"),
    "column gone": (
        FRAME,
        FRAME[["sad", "calm"]],
        r"columns \['sad', 'angry', 'calm'\] of fit; \['angry'\] are missing",
    ),
    "column new": (FRAME, FRAME.assign(new=1), r"columns \['new'\], which were not there in fit"),
    "another kind": (ZERO_ONE, SETS, "kind 'matrix', as in fit; got 'sets'"),
    "classes for sets": (SETS, np.array(["a", "b"]), "kind 'sets', as in fit; got 'classes'"),
    "matrix for classes": (np.array([0, 1]), ZERO_ONE, "kind 'classes', as in fit; got 'matrix'"),
    "new label": (
        SETS,
        [{"a"}, {"z"}],
        r"Row 1 has the label 'z', which was not seen in fit; labels are 'a', 'b', 'c'",
    ),
    "new class": (np.array([0, 1]), np.array([1, 5]), "Row 1 has the label 5, which was not seen"),
    "of many": (np.arange(12), np.array([12]), r"labels are 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, \.\.\.\."),
}


@pytest.mark.parametrize(("Y", "new", "message"), BAD_NEW_SETS.values(), ids=BAD_NEW_SETS)
def test_new_label_sets_must_be_like_the_old(Y, new, message):
    with pytest.raises(ValueError, match=message):
        fit(LabelSets, Y).encode(new)


def test_bad_classes_and_answers_are_refused():
    with pytest.raises(ValueError, match=r"must name the 3 columns of Y, \[0, 1, 2\]; got \['a', 'b'\]"):
        fit(LabelSets, ZERO_ONE, classes=["a", "b"])
    with pytest.raises(ValueError, match=r"must name the 3 columns of Y, \['sad', 'angry', 'calm'\]"):
        fit(LabelSets, FRAME, classes=["a", "b", "c"])
    with pytest.raises(ValueError, match="Y has 'c', which is not among the classes"):
        fit(LabelSets, SETS, classes=["a", "b"])
    with pytest.raises(ValueError, match=r"y must have shape \(n, 3\); got \(1, 2\)"):
        fit(LabelSets, SETS).decode(np.zeros((1, 2)))
    with pytest.raises(ValueError, match=r"y must have shape \(n, 2\); got \(2,\)"):
        fit(Rankings, [[0, 1]]).decode([0, 1])


def completions(y, mask):
    """All rank vectors that y and mask allow: each group in any order on its own ranks."""
    mask = np.zeros_like(y) if mask is None else mask
    found = {tuple(y)}
    for group in set(mask.tolist()) - {0}:
        members = np.flatnonzero(mask == group)
        new = set()
        for z, order in itertools.product(found, itertools.permutations(y[members])):
            z = np.array(z)
            z[members] = order
            new.add(tuple(z))
        found = new
    return {tuple(int(rank) for rank in z) for z in found}


def rankings_of(k):
    return set(itertools.permutations(range(k)))


def extensions(levels):
    """Rankings that agree with an order with ties: whoever has the lower level has the lower rank."""
    pairs = list(itertools.permutations(range(len(levels)), 2))
    return {z for z in rankings_of(len(levels)) if all(z[a] < z[b] for a, b in pairs if levels[a] < levels[b])}


LEVELS = st.integers(2, 5).flatmap(lambda k: st.lists(st.integers(0, 4), min_size=k, max_size=k))


@SETTINGS
@given(LEVELS, st.sampled_from(["min", "dense", "average"]))
def test_ties_are_all_their_linear_extensions(levels, method):
    ranks = scipy.stats.rankdata(levels, method) - 1
    y, mask = fit(Rankings, [ranks]).encode([ranks])
    assert completions(y[0], None if mask is None else mask[0]) == extensions(levels)
    assert (mask is None) == (len(set(levels)) == len(levels))


@SETTINGS
@given(st.integers(2, 5).flatmap(lambda k: st.permutations(range(k))), st.integers(0, 31))
def test_unknown_ranks_are_all_that_are_left(ranks, holes):
    """Rank 0 is always known here: alone, incomplete rows that start at 1 are refused."""
    known = [rank == 0 or not holes >> j & 1 for j, rank in enumerate(ranks)]
    row = [float(rank) if seen else NAN for rank, seen in zip(ranks, known, strict=True)]
    y, mask = fit(Rankings, [row]).encode([row])
    agree = {
        z
        for z in rankings_of(len(ranks))
        if all(z[j] == rank for j, (rank, seen) in enumerate(zip(ranks, known, strict=True)) if seen)
    }
    assert completions(y[0], None if mask is None else mask[0]) == agree


@SETTINGS
@given(st.lists(st.permutations(range(4)), min_size=1, max_size=6), st.sampled_from(["letters", "words", "numbers"]))
def test_strings_come_back(rows, form):
    names = {"letters": "abcd", "words": ["tuna", "eel", "squid", "egg"], "numbers": ["9", "10", "11", "8"]}[form]
    texts = [">".join(names[j] for j in order) for order in rows]
    codec = fit(Rankings, texts)
    assert codec.kind == "strings"
    assert codec.classes == tuple(sorted(names))
    y, mask = codec.encode(texts)
    assert mask is None
    assert codec.decode(y).tolist() == texts
    place = [[order.index(names.index(name)) for name in codec.classes] for order in rows]
    assert y.tolist() == place


# string, levels of the labels a, b, c, d
TIED_STRINGS = {
    "d>a>bc": (1, 2, 2, 0),
    "ab>cd": (0, 0, 1, 1),
    " b > a = c >d": (1, 0, 1, 2),
    "c": (1, 1, 0, 1),
    "b>a": (1, 0, 2, 2),
    "a>b>c": (0, 1, 2, 3),
    "b c>a>d": (1, 0, 0, 2),
    "abcd": (0, 0, 0, 0),
}


def test_tied_and_unnamed_labels_of_strings():
    codec = fit(Rankings, list(TIED_STRINGS))
    assert codec.classes == ("a", "b", "c", "d")
    y, mask = codec.encode(list(TIED_STRINGS))
    for i, levels in enumerate(TIED_STRINGS.values()):
        assert completions(y[i], mask[i]) == extensions(levels)
    # A series of strings that have no ">" at all, and a missing one, of a codec that knows strings.
    y, mask = codec.encode(pd.Series(["d", None], dtype="str"))
    assert completions(y[0], mask[0]) == extensions((1, 1, 1, 0))
    assert completions(y[1], mask[1]) == rankings_of(4)


def test_words_and_letters_are_told_apart():
    assert fit(Rankings, ["tuna>eel=squid", "eel>tuna"]).classes == ("eel", "squid", "tuna")
    assert fit(Rankings, ["e>f>abcdg"]).classes == tuple("abcdefg")
    assert fit(Rankings, ["10>9", "1>2"]).classes == ("1", "10", "2", "9")
    codec = fit(Rankings, ["x>eel"], classes=["eel", "x", "tuna"])
    assert codec.classes == ("eel", "x", "tuna")
    assert codec.encode(["x>eel"]).y.tolist() == [[1, 0, 2]]
    assert codec.encode(["x>eel"]).mask is None
    assert fit(Rankings, ["ab>cd"], classes="abcd").encode(["ab>cd"]).mask.tolist() == [[1, 1, 2, 2]]
    y, mask = fit(Rankings, ["tuna>eel=squid"]).encode(["tuna>eel=squid"])
    assert completions(y[0], mask[0]) == extensions((1, 1, 0))


@pytest.mark.parametrize(
    "Y",
    [
        np.array([3, 1, 2, 1]),
        np.array([[3], [1], [2], [1]]),
        pd.Series([3, 1, 2, 1]),
        pl.Series([3, 1, 2, 1]),
        np.array(["c", "a", "b", "a"]),
        [3.0, 1.0, 2.0, 1.0],
    ],
    ids=["ints", "column", "pandas", "polars", "strings", "floats"],
)
def test_choices_name_the_best_label_only(Y):
    codec = fit(Rankings, Y)
    assert codec.kind == "choices"
    y, mask = codec.encode(Y)
    for row, groups, best in zip(y, mask, [2, 0, 1, 0], strict=True):
        assert completions(row, groups) == {z for z in rankings_of(3) if z[best] == 0}
    np.testing.assert_array_equal(codec.decode(y), y)
    # Of two labels the other one is last.
    y, mask = fit(Rankings, [0, 1]).encode([1, None])
    assert completions(y[0], mask[0]) == {(1, 0)}
    assert completions(y[1], mask[1]) == rankings_of(2)


RANKS = np.array([[0, 1, 2, 3], [3, 1, 0, 2], [2, 3, 1, 0]])


@pytest.mark.parametrize(
    "Y",
    [
        RANKS,
        RANKS.astype(np.int8),
        RANKS.astype(float),
        RANKS.tolist(),
        pd.DataFrame(RANKS, columns=list("abcd")),
        pl.DataFrame(RANKS, schema=list("abcd")),
    ],
    ids=["int64", "int8", "float", "lists", "pandas", "polars"],
)
def test_ranks_come_back(Y):
    before = kept(Y)
    codec = fit(Rankings, Y)
    assert codec.space == Permutations(4)
    assert codec.classes == (tuple("abcd") if hasattr(Y, "columns") else (0, 1, 2, 3))
    y, mask = codec.encode(Y)
    assert mask is None
    decoded = codec.decode(y)
    assert decoded.dtype == (np.int8 if getattr(Y, "dtype", None) == np.int8 else np.int64)
    np.testing.assert_array_equal(decoded, RANKS)
    assert unchanged(Y, before)


def test_frames_of_ranks_are_matched_by_name():
    frame = pd.DataFrame(RANKS, columns=list("abcd"))
    np.testing.assert_array_equal(fit(Rankings, frame).encode(frame[list("dbca")]).y, RANKS)
    assert fit(Rankings, frame, classes="dcba").encode(frame).y.tolist() == RANKS[:, ::-1].tolist()


def test_ties_beside_unknown_ranks_are_read_in_competition_or_average_form():
    codec = fit(Rankings, [[0, 1, 2, 3, 4]])
    for row in ([0, 1, 1, NAN, NAN], [0, 1.5, 1.5, NAN, NAN]):
        y, mask = codec.encode([row])
        assert completions(y[0], mask[0]) == extensions((0, 1, 1, 2, 2))
    y, mask = codec.encode([[NAN] * 5])
    assert len(completions(y[0], mask[0])) == math.factorial(5)
    masked = np.ma.MaskedArray([[4, 3, 2, 1, 0]], [[1, 1, 0, 0, 0]])
    y, mask = codec.encode(masked)
    assert completions(y[0], mask[0]) == {(4, 3, 2, 1, 0), (3, 4, 2, 1, 0)}
    with pytest.raises(ValueError, match=r"Row 0 of Y, \[0.0, 1.0, 1.0, 2.0, nan\], is no ranking"):
        codec.encode([[0, 1, 1, 2, NAN]])


BAD_RANKINGS = {
    "from one": ([[0, 1, 2], [3, 1, 2]], r"Row 1 of Y, \[3, 1, 2\], is no ranking: ranks start at 0.*Subtract 1"),
    "ties from one": ([[1, 1, 3]], "ranks start at 0"),
    "incomplete from one": ([[1, 2, NAN, NAN], [NAN, 1, 2, NAN]], "the least is 1: ranks start at 0"),
    "gap": (
        [[0, 1, 2], [0, 1, 3]],
        r"Row 1 of Y, \[0, 1, 3\], is no ranking: expected the ranks 0\.\.2.*ties as 0, 1, 1",
    ),
    "negative": ([[0, -1, 1]], r"Row 0 of Y, \[0, -1, 1\], is no ranking"),
    "minus infinity": ([[0, -np.inf, 1]], "Row 0 of Y, .* is no ranking"),
    "infinite": ([[0, np.inf, 1]], r"\[0.0, inf, 1.0\], is no ranking"),
    "fraction": ([[0, 1.25, 2]], "is no ranking"),
    "text": ([["b", "a"], ["a", "b"]], "must hold numbers; got <U1 with 'b'. Write an order .* 'b>a>c'"),
    "ragged": ([[0, 1], [0]], "rows of different lengths"),
    "three axes": (np.zeros((2, 2, 2)), r"got shape \(2, 2, 2\)"),
    "no rows": (np.zeros((0, 3)), "no rows"),
    "twice": (["a>b", "a>b>a"], "Row 1, 'a>b>a', names 'a' more than once"),
    "empty name": (["a>b", "a>>b"], "Row 1, 'a>>b', has an empty name"),
    "empty tie": (["a>b="], "Row 0, 'a>b=', has an empty name"),
    "empty string": (["a>b", " "], "Row 1, ' ', has an empty name"),
    "number among strings": (["a>b", 3], "all be strings such as 'b>a>c'; got 3"),
    "one choice": ([2, 2], "At least 2 classes.*only one was seen"),
    "continuous": ([0.5, 1.0], "^Unknown label type: continuous"),
}


@pytest.mark.parametrize(("Y", "message"), BAD_RANKINGS.values(), ids=BAD_RANKINGS)
def test_what_is_no_ranking_is_refused(Y, message):
    with pytest.raises(ValueError, match=message):
        fit(Rankings, Y)


BAD_NEW_RANKINGS = {
    "another k": (RANKS, [[0, 1]], "must have 4 columns, as in fit; got 2"),
    "another kind": (RANKS, ["a>b"], "kind 'ranks', as in fit; got 'strings'"),
    "new letter": (["a>b"], ["b>c"], "Row 0 has the label 'c', which was not seen in fit"),
    "new word": (["tuna>eel"], ["eel>tuna", "crab>eel"], "Row 1 has the label 'crab'"),
    "new choice": ([0, 1], [1, 2], "Row 1 has the label 2"),
    "twice": (["a>b"], ["b>a", "a=a"], "Row 1, 'a=a', names 'a' more than once"),
}


@pytest.mark.parametrize(("Y", "new", "message"), BAD_NEW_RANKINGS.values(), ids=BAD_NEW_RANKINGS)
def test_new_rankings_must_be_like_the_old(Y, new, message):
    with pytest.raises(ValueError, match=message):
        fit(Rankings, Y).encode(new)


def test_answers_are_framed():
    assert to_frame(ZERO_ONE, list("abc"), "default") is ZERO_ONE
    pandas = to_frame(ZERO_ONE, ["a", 1, ("b", 2)], "pandas")
    assert list(pandas.columns) == ["a", 1, ("b", 2)]
    polars = to_frame(ZERO_ONE, ["a", 1, "c"], "polars")
    assert polars.columns == ["a", "1", "c"]
    for frame in (pandas, polars):
        np.testing.assert_array_equal(frame.to_numpy(), ZERO_ONE)
    with pytest.raises(ValueError, match="'pandas', 'polars' or 'default'; got 'arrow'"):
        to_frame(ZERO_ONE, "abc", "arrow")
