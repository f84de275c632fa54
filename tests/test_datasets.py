"""Files of data are read as they were written, real ones have the sizes of the paper, and garbage gets one sentence."""

import bz2
import gzip
import io
import re
import string
import sys

import numpy as np
import polars
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from paper.protocol import dev_split
from partita import datasets
from partita.datasets import DataError, formats, read
from partita.datasets.reading import parse
from partita.estimators.codecs import LabelSets

SLOW = ("calhousing", "delicious", "fried", "pendigits", "sushi", "sushi_one_hot", "tmc2007-500")
HERE = [name for name in datasets.names() if name != "mediamill"]
EACH = [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in HERE]


def table(matrix):
    return matrix.toarray() if scipy.sparse.issparse(matrix) else matrix


def write(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


# The real sets.


@pytest.mark.parametrize("name", EACH)
def test_a_real_set_is_what_the_table_says(name, data_dir):
    found, known = datasets.load(name, folder=data_dir, download=False), datasets.entry(name)
    assert found.x.shape == (sum(known.rows), known.features)
    assert found.y.shape == (sum(known.rows), known.k)
    assert found.train == (known.rows[0] if len(known.rows) == 2 else None)
    assert len(found.feature_names) == known.features
    assert len(set(found.classes)) == known.k
    assert (found.task, found.note) == (known.task, known.note)
    assert scipy.sparse.issparse(found.x) == scipy.sparse.issparse(found.y) == known.sparse
    if known.task == "ranking":
        np.testing.assert_array_equal(np.sort(found.y, axis=1), np.tile(np.arange(known.k), (len(found.y), 1)))
    else:
        assert found.y.dtype == np.int32
        assert set(np.unique(table(found.y))) == {0, 1}
    assert all(state.verdict == "good" for state in datasets.check(name, folder=data_dir))


def test_yeast_is_the_same_in_both_formats(data_dir):
    yeast = datasets.load("yeast", folder=data_dir)
    folder = data_dir / "multilabel" / "yeast"
    parts = [read(folder / f"yeast_{part}.svm.gz", task="multilabel") for part in ("train", "test")]
    np.testing.assert_array_equal(np.vstack([table(part.x) for part in parts]), yeast.x)
    np.testing.assert_array_equal(np.vstack([table(part.y) for part in parts]), yeast.y)


def test_the_first_ranks_of_glass_are_those_of_the_file(data_dir):
    # "b>a>e>c>d>f": b is best, then a, e, c, d, f.
    lines = (data_dir / "label_ranking" / "glass.txt").read_text().splitlines()[1:]
    y = datasets.load("glass", folder=data_dir).y
    orders = ["".join(np.array(list("abcdef"))[np.argsort(ranks)]) for ranks in y]
    assert orders == [line.split(",")[-1].replace(">", "") for line in lines if line]


def test_codes_of_places_are_numbers(data_dir):
    first = b"\n".join((data_dir / "label_ranking" / "sushi.txt").read_bytes().splitlines()[:3])
    sushi = parse(first, "sushi.txt", task="ranking", labels=None, coded=datasets.entry("sushi").coded)
    assert sushi.x[1].tolist() == [1, 1, 214, 26, 6, 1, 26, 6, 1, 0]


# (train, dev, test) of the paper, and the labels per row of its train part; cal500 on a split of our own.
SIZES = {
    "birds": (134, 45, 172, 1.9627),
    "cal500": (300, 101, 101, 26.12),
    "emotions": (293, 98, 202, 1.8294),
    "scene": (908, 303, 1196, 1.0628),
    "yeast": (1125, 375, 917, 4.1742),
}


@pytest.mark.parametrize("name", SIZES)
def test_splits_have_the_sizes_of_the_paper(name, data_dir):
    rows = datasets.split(datasets.load(name, folder=data_dir))
    train, dev = dev_split(len(rows.y))
    sizes = len(train), len(dev), len(rows.x_test)
    assert (*sizes, round(rows.y[train].sum(axis=1).mean(), 4)) == SIZES[name]
    assert len(rows.x) == len(rows.y) == len({*train, *dev})
    assert len(rows.x_test) == len(rows.y_test)


def test_only_cal500_is_always_split_by_the_same_seed(data_dir):
    for name, same in {"cal500": True, "emotions": True, "iris": False}.items():
        found = datasets.load(name, folder=data_dir)
        one, other = datasets.split(found), datasets.split(found, seed=1)
        assert np.array_equal(one.x_test, other.x_test) == same
        rows = np.vstack([np.hstack(pair) for pair in (one[:2], one[2:])])
        everything = np.hstack([found.x, found.y])
        np.testing.assert_array_equal(rows[np.lexsort(rows.T)], everything[np.lexsort(everything.T)])


def test_names_are_those_of_a_task(unchecked):
    assert {*datasets.names("ranking"), *datasets.names("multilabel")} == {*datasets.names()}
    assert "vowel" in datasets.names("ranking")
    assert "vowel" not in datasets.names("multilabel")
    with pytest.raises(ValueError, match=r"no data set 'yeest'.*Did you mean 'yeast'"):
        datasets.load("yeest")
    with pytest.raises(ValueError, match="task must be 'multilabel', 'ranking' or None; got 'regression'"):
        datasets.names("regression")


def test_caveats_are_told():
    assert "401 / 101" in datasets.entry("cal500").note
    assert "never to be compared" in datasets.entry("mediamill_reduced").note
    assert "first use" in datasets.entry("mediamill").note
    assert repr(datasets.Dataset("a", "ranking", np.ones((2, 3)), np.ones((2, 2)), (), ("u", "v"))) == (
        "Dataset('a', 'ranking', 2 rows, 3 features, 2 labels, train=None)"
    )


# What is written is read.

ARFF = """% Made by hand.
@RELATION 'two words'

@attribute 'Common Nighthawk' NUMERIC
@Attribute "it's" Real
@attribute it\\'s {1, 2,3}
@ATTRIBUTE l_1 {0,1}
@attribute 'l 2' { 0, 1 }
@DATA
% A comment among the rows.
0.5,-1e-3,1,0,1

-2, 7 ,'3',1,0
"""
SPARSE_ARFF = """@relation r
@attribute a numeric
@attribute b {0,1}
@attribute l {0,1}
@attribute m {0,1}
@data
{0 2.5,3 1}
{}
{ 1 1, 2 1 }
{2 0,3 1}
"""


def test_dense_arff(tmp_path):
    found = read(write(tmp_path, "a.arff", ARFF), task="multilabel", labels=2)
    assert found.x.tolist() == [[0.5, -1e-3, 1], [-2, 7, 3]]
    assert found.y.tolist() == [[0, 1], [1, 0]]
    assert found.feature_names == ("Common Nighthawk", "it's", "it\\'s")
    assert found.classes == ("l_1", "l 2")
    assert (found.name, found.train) == ("a.arff", None)


def test_sparse_arff(tmp_path):
    found = read(write(tmp_path, "a.ARFF.gz", gzip.compress(SPARSE_ARFF.encode())), task="multilabel", labels=2)
    assert scipy.sparse.issparse(found.x)
    assert scipy.sparse.issparse(found.y)
    assert found.x.toarray().tolist() == [[2.5, 0], [0, 0], [0, 1], [0, 0]]
    assert found.y.toarray().tolist() == [[0, 1], [0, 0], [1, 0], [0, 1]]
    by_name = read(tmp_path / "a.ARFF.gz", task="multilabel", labels=["m"])
    assert by_name.feature_names == ("a", "b", "l")


def test_libsvm(tmp_path):
    path = write(tmp_path, "a.svm.bz2", bz2.compress(b"1,3 2:0.5 1:-1e2 # said\n 3:1\n\n2:4\r\n0\n"))
    found = read(path, task="multilabel")
    assert found.x.toarray().tolist() == [[-100, 0.5, 0], [0, 0, 1], [0, 4, 0], [0, 0, 0]]
    assert found.y.toarray().tolist() == [[0, 1, 0, 1], [0] * 4, [0] * 4, [1, 0, 0, 0]]
    assert found.feature_names == ()
    assert found.classes == ("0", "1", "2", "3")
    wide = read(path, task="multilabel", labels=6, features=5)
    assert (wide.x.shape, wide.y.shape) == ((4, 5), (4, 6))


def test_label_sets_in_csv(tmp_path):
    path = write(tmp_path, "a.csv", '\ufeff"a, b",c,u,v\r\n1,2,1,False\r\n\r\n"3", 4,0,true\r\n')
    found = read(path, task="multilabel", labels=2)
    assert found.x.tolist() == [[1, 2], [3, 4]]
    assert found.y.tolist() == [[1, 0], [0, 1]]
    assert found.y.dtype == np.int32
    assert (found.feature_names, found.classes) == (("a, b", "c"), ("u", "v"))
    named = read(path, task="multilabel", labels=["v", "u"])
    assert (named.y.tolist(), named.classes) == ([[0, 1], [1, 0]], ("v", "u"))
    with pytest.raises(DataError, match="line 2: expected a number in the column 'v', got 'False'"):
        read(path, task="multilabel", labels="u")


def test_missing_labels_are_nan(tmp_path):
    found = read(write(tmp_path, "a.csv", "a,u,v\n1,?,1\n2,0,\n"), task="multilabel", labels=2)
    np.testing.assert_array_equal(found.y, [[np.nan, 1], [0, np.nan]])
    np.testing.assert_array_equal(LabelSets.fit_encode(found.y)[1].mask, [[1, 0], [0, 1]])


def test_rankings_are_ranks_and_ties_share_the_least(tmp_path):
    strict = read(write(tmp_path, "a.txt", "A1,ranking\r\n1,b>a>c\r\n2,c>b>a\r\n"), task="ranking")
    assert strict.y.tolist() == [[1, 0, 2], [2, 1, 0]]
    assert (strict.classes, strict.feature_names) == (("a", "b", "c"), ("A1",))
    tied = read(write(tmp_path, "b.csv", "likes,x\ne>f>abcdg,1\na>b>c>d>e>f>g,2\n"), task="ranking", labels="likes")
    assert tied.y.tolist() == [[2, 2, 2, 2, 0, 1, 2], [0, 1, 2, 3, 4, 5, 6]]
    assert tied.classes == tuple("abcdefg")
    some = read(tmp_path / "b.csv", task="ranking", labels="likes", classes="gfedcbah")
    assert some.y.tolist() == [[2, 1, 0, 2, 2, 2, 2, 7], [6, 5, 4, 3, 2, 1, 0, 7]]
    words = read(write(tmp_path, "c.csv", "x,y\n1,tuna>eel>squid\n2,eel>squid>tuna\n"), task="ranking")
    assert (words.classes, words.y.tolist()) == (("eel", "squid", "tuna"), [[1, 2, 0], [0, 1, 2]])
    arff = "@relation r\n@attribute x real\n@attribute y string\n@data\n1,'b>a'\n2,a>b\n"
    assert read(write(tmp_path, "d.arff", arff), task="ranking").y.tolist() == [[1, 0], [0, 1]]


def test_files_of_features_only(tmp_path):
    path = write(tmp_path, "a.csv", "x,y\n1,2\n3,4\n")
    for task in ("multilabel", "ranking"):
        found = read(path, task=task, labels=0)
        assert found.x.tolist() == [[1, 2], [3, 4]]
        assert found.y.shape == (2, 0)
    lines = read(write(tmp_path, "a.svm", "1:2 3:4\n9,x 2:1\n"), task="multilabel", labels=0, features=4)
    assert (lines.x.shape, lines.y.shape) == ((2, 4), (2, 0))
    sparse = read(write(tmp_path, "a.arff", SPARSE_ARFF), task="ranking", labels=0)
    assert (sparse.x.shape, sparse.y.shape) == ((4, 4), (4, 0))


def test_features_by_their_names(tmp_path):
    path = write(tmp_path, "a.csv", "id,x,u,v,y\nfirst,1,0,1,2\nsecond,3,1,0,4\n")
    found = read(path, task="multilabel", labels=["v", "u"], features=["y", "x"])
    assert (found.x.tolist(), found.y.tolist()) == ([[2, 1], [4, 3]], [[1, 0], [0, 1]])
    assert (found.feature_names, found.classes) == (("y", "x"), ("v", "u"))
    with pytest.raises(
        DataError, match=r"a\.csv: expected one column 'z', got 0; the last are 'id', 'x', 'u', 'v', 'y'"
    ):
        read(path, task="multilabel", labels=0, features=["x", "z"])
    sparse = read(write(tmp_path, "a.arff", SPARSE_ARFF), task="multilabel", labels=0)
    turned = read(tmp_path / "a.arff", task="multilabel", labels=0, features=sparse.feature_names[::-1])
    np.testing.assert_array_equal(turned.x.toarray(), sparse.x.toarray()[:, ::-1])
    lines = write(tmp_path, "a.svm", "1 1:5\n")
    for task, labels, k in (("multilabel", ["0", "1", "2"], 3), ("ranking", 0, 0)):
        found = read(lines, task=task, labels=labels, features=["y", "x"])
        assert (found.x.toarray().tolist(), found.y.shape) == ([[5, 0]], (1, k))


def test_parquet(tmp_path):
    frame = polars.DataFrame({"a": [0.1, 2e300], "b": [1, 2], "u": [True, False], "v": [0, None], "r": ["a>b", "b>a"]})
    frame.drop("r").write_parquet(tmp_path / "a.parquet")
    sets = read(tmp_path / "a.parquet", task="multilabel", labels=["u", "v"])
    assert sets.x.tolist() == [[0.1, 1], [2e300, 2]]
    np.testing.assert_array_equal(sets.y, [[1, 0], [0, np.nan]])
    frame.drop("u", "v").write_parquet(tmp_path / "b.parquet")
    assert read(tmp_path / "b.parquet", task="ranking").y.tolist() == [[0, 1], [1, 0]]
    frame.with_columns(polars.Series("a", [1.0, None])).write_parquet(tmp_path / "c.parquet")
    with pytest.raises(DataError, match=r"c.parquet, row 2: expected a number in the column 'a', got ''\."):
        read(tmp_path / "c.parquet", task="ranking")
    polars.DataFrame({"a": [[1, 2]], "r": ["a>b"]}).write_parquet(tmp_path / "d.parquet")
    with pytest.raises(DataError, match=r"d.parquet cannot be read as a parquet file of plain columns: .*\."):
        read(tmp_path / "d.parquet", task="ranking")


def test_parquet_without_polars_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ModuleNotFoundError, match="pip install polars"):
        read(write(tmp_path, "a.parquet", b"PAR1"), task="ranking")


def as_csv(x, y):
    rows = [",".join(map(repr, [*features, *labels])) for features, labels in zip(x.tolist(), y.tolist(), strict=True)]
    return "\n".join([",".join(f"c{j}" for j in range(x.shape[1] + y.shape[1])), *rows]).encode()


def as_arff(x, y):
    names, *rows = as_csv(x, y).decode().split("\n")
    header = [f"@attribute {name} numeric" for name in names.split(",")]
    return "\n".join([*header, "@data", *rows]).encode()


def as_sparse_arff(x, y):
    header = as_arff(x, y).decode().split("@data")[0]
    cells = [[f"{j} {v!r}" for j, v in enumerate(row) if v] for row in np.hstack([x, y]).tolist()]
    return "\n".join([header, "@data", *("{" + ",".join(row) + "}" for row in cells)]).encode()


def as_libsvm(x, y):
    def line(features, labels):
        cells = [f"{j + 1}:{v!r}" for j, v in enumerate(features) if v]
        return " ".join([",".join(str(j) for j, on in enumerate(labels) if on), *cells])

    # A line of neither is blank, and no row: a last feature that is never 0 prevents it.
    return "\n".join(line(*row) for row in zip(x.tolist(), y.tolist(), strict=True)).encode()


def as_parquet(x, y):
    file = io.BytesIO()
    polars.DataFrame(np.hstack([x, y]), schema=[f"c{j}" for j in range(x.shape[1] + y.shape[1])]).write_parquet(file)
    return file.getvalue()


WRITERS = {
    "a.csv": as_csv,
    "a.arff": as_arff,
    "sparse.arff": as_sparse_arff,
    "a.libsvm": as_libsvm,
    "a.parquet": as_parquet,
}
FINITE = st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize("name", WRITERS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_what_is_written_is_read_bit_for_bit(name, data):
    n, d, k = (data.draw(st.integers(1, 4)) for _ in range(3))
    x = np.array(data.draw(st.lists(FINITE | st.just(0.0), min_size=n * d, max_size=n * d))).reshape(n, d)
    x = np.hstack([x, np.ones((n, 1))])
    y = np.array(data.draw(st.lists(st.integers(0, 1), min_size=n * k, max_size=n * k))).reshape(n, k)
    found = parse(WRITERS[name](x, y), name, task="multilabel", labels=k, features=d + 1)
    np.testing.assert_array_equal(table(found.x), x)
    np.testing.assert_array_equal(table(found.y), y)


# What is not so gets one sentence, with the line.

HEAD = "@relation r\n@attribute a numeric\n@attribute l {0,1}\n"
SETS, RANKED = {"task": "multilabel", "labels": 1}, {"task": "ranking"}
BAD = {
    "no file at all": ("a.csv", "", SETS, "a.csv is empty."),
    "blank": ("a.arff", " \n\r\n", SETS, "a.arff is empty."),
    "nothing but a quote": ("a.csv", '""\n', SETS, "a.csv is empty."),
    "header only": ("a.csv", "a,b\n", SETS, "a.csv has columns, but no rows."),
    "no header": ("a.csv", "1,2\n3,4\n", SETS, "a.csv, line 1: expected the names of the columns, got numbers"),
    "short row": ("a.csv", "a,b\n1,0\n2\n", SETS, "a.csv, line 3: expected 2 fields, got 1."),
    "long row": ("a.csv", "a,b\r\n1,0,\r\n", SETS, "a.csv, line 2: expected 2 fields, got 3."),
    "text": ("a.csv", "a,b\n1,0\nred,0\n", SETS, "a.csv, line 3: expected a number in the column 'a', got 'red'."),
    "no feature": ("a.csv", "a,b\n1,0\n,0\n", SETS, "a.csv, line 3: expected a number in the column 'a', got ''."),
    "underscore": ("a.csv", "a,b\n1_0,0\n", SETS, "line 2: expected a number in the column 'a', got '1_0'."),
    "decimal comma": ("a.csv", 'a,b\n"1,5",0\n', SETS, "line 2: expected a number in the column 'a', got '1,5'."),
    "infinite": ("a.csv", "a,b\n1e999,0\n", SETS, "line 2: expected a number in the column 'a', got '1e999'."),
    "not finite": ("a.csv", "a,b\nnan,0\n", SETS, "line 2: expected a number in the column 'a', got 'nan'."),
    "label 2": ("a.csv", "a,b\n1,0\n1,2\n", SETS, "a.csv, line 3: expected 0 or 1 in the label 'b', got 2."),
    "label text": ("a.csv", "a,b\n1,yes\n", SETS, "a.csv, line 2: expected a number in the column 'b', got 'yes'."),
    "too many labels": ("a.csv", "a,b\n1,0\n", {**SETS, "labels": 2}, "a.csv has 2 columns, features and labels to"),
    "less than none": ("a.csv", "a,b\n1,0\n", {**SETS, "labels": -1}, "a.csv has 2 columns, features and labels to"),
    "no features left": (
        "a.csv",
        "a,b\n1,0\n",
        {**SETS, "labels": ["b", "a"]},
        "a.csv: expected some features, got 0.",
    ),
    "other features": ("a.csv", "a,b\n1,0\n", {**SETS, "features": 3}, "a.csv: expected 3 features, got 1."),
    "nothing but a ranking": ("a.csv", "r\na>b\n", RANKED, "a.csv: expected some features, got 0."),
    "semicolons": ("a.csv", "a;b\n1;0\n", SETS, "a.csv, line 1: expected columns separated by commas, got ';'."),
    "unknown label": ("a.csv", "a,b\n1,0\n", {**SETS, "labels": ["c"]}, "a.csv: expected one column 'c', got 0;"),
    "label twice": ("a.csv", "a,b,b\n1,0,0\n", {**SETS, "labels": ["b"]}, "a.csv: expected one column 'b', got 2;"),
    "latin-1": ("a.csv", b"a,b\n1,0\n\xe9,1\n", SETS, "a.csv, line 3: expected text in UTF-8, got the byte 0xe9"),
    "utf-16": ("a.csv", "a,b\n1,0\n".encode("utf-16"), SETS, "a.csv, line 1: expected text, got binary data or UTF-16"),
    "huge field": ("a.csv", "a,b\n" + "1" * 200_000 + ",0\n", SETS, "a.csv, line 2: field larger than field limit"),
    "long text": ("a.csv", "a,b\n" + "x" * 90 + ",0\n", SETS, f"got '{'x' * 37}...'."),
    "no gzip": ("a.csv.gz", "a,b\n1,0\n", SETS, "a.csv.gz is no whole .gz file"),
    "half a gzip": ("a.csv.gz", gzip.compress(b"a,b\n1,0\n")[:-9], SETS, "a.csv.gz is no whole .gz file"),
    "broken gzip": ("a.csv.gz", gzip.compress(b"a,b\n")[:10] + b"\xff" * 30, SETS, "a.csv.gz is no whole .gz file"),
    "empty gzip": ("a.csv.gz", b"", SETS, "a.csv.gz is empty."),
    "gzip of nothing": ("a.csv.gz", gzip.compress(b""), SETS, "a.csv.gz is empty."),
    "half a bzip2": ("a.svm.bz2", bz2.compress(b"0 1:1\n")[:-4], SETS, "a.svm.bz2 is no whole .bz2 file"),
    "no parquet": ("a.parquet", "a,b\n", SETS, "a.parquet is no whole parquet file"),
    "hollow parquet": ("a.parquet", b"PAR1" + b"\1" * 40 + b"PAR1", SETS, "a.parquet cannot be read as a parquet file"),
    "unknown kind": ("a.xls", "a", SETS, "a.xls: expected a file that ends in .csv, .txt, .arff, .parquet, .libsvm"),
    "no @data": ("a.arff", HEAD, SETS, "a.arff has no @data line."),
    "no attributes": ("a.arff", "@data\n1,0\n", SETS, "a.arff, line 1: expected @attribute lines before @data"),
    "no header line": (
        "a.arff",
        "x\n" + HEAD,
        SETS,
        "a.arff, line 1: expected @relation, @attribute or @data, got 'x'",
    ),
    "unknown type": ("a.arff", HEAD + "@attribute m blob\n@data\n", SETS, "a.arff, line 4: expected the type numeric"),
    "no type": ("a.arff", "@attribute a\n@data\n", SETS, "a.arff, line 1: expected the type numeric.*got ''"),
    "open quote": ("a.arff", "@attribute 'a numeric\n", SETS, "a.arff, line 1: expected @attribute name type, got"),
    "no ARFF rows": ("a.arff", HEAD + "@data\n% none\n", SETS, "a.arff has columns, but no rows."),
    "short ARFF row": ("a.arff", HEAD + "@data\n\n1\n", SETS, "a.arff, line 6: expected 2 fields, got 1."),
    "ARFF text": ("a.arff", HEAD + "@data\n1,0\n%\n?,0\n", SETS, "a.arff, line 7: expected a number in the column 'a'"),
    "open ARFF quote": ("a.arff", HEAD + "@data\n'1,0\n1,0\n", SETS, "a.arff, line 6: expected 2 fields, got 1."),
    "mixed rows": ("a.arff", HEAD + "@data\n{0 1}\n1,0\n", SETS, "a.arff, line 6: expected a sparse row"),
    "sparse index": ("a.arff", HEAD + "@data\n{0 1}\n{2 1}\n", SETS, "line 6: expected an index from 0 to 1, got 2."),
    "negative index": ("a.arff", HEAD + "@data\n{-1 1}\n", SETS, "line 5: expected an index from 0 to 1, got -1."),
    "half an index": ("a.arff", HEAD + "@data\n{0.5 1}\n", SETS, "line 5: expected an index from 0 to 1, got 0.5."),
    "index twice": ("a.arff", HEAD + "@data\n{1 1,0 2,0 3}\n", SETS, "a.arff, line 5: 0 is named twice."),
    "lonely index": ("a.arff", HEAD + "@data\n{0 1}\n{0}\n", SETS, "line 6: expected index number, got '0'."),
    "empty cell": ("a.arff", HEAD + "@data\n{0 1,}\n", SETS, "line 5: expected index number, got ''."),
    "sparse text": ("a.arff", HEAD + "@data\n{0 red}\n", SETS, "line 5: expected index number, got '0 red'."),
    "sparse label": (
        "a.arff",
        HEAD + "@data\n{0 1}\n{1 3}\n",
        SETS,
        "line 6: expected 0 or 1 in the label 'l', got 3.",
    ),
    "sparse ranking": ("a.arff", HEAD + "@data\n{0 1}\n", RANKED, "a.arff: sparse rows hold label sets, and no rank"),
    "index 0": ("a.svm", "1 0:1\n", SETS, "a.svm, line 1: expected an index from 1 to 2147483647, got 0."),
    "index beyond": ("a.svm", "0 3:1\n", {**SETS, "features": 2}, "line 1: expected an index from 1 to 2, got 3."),
    "no value": ("a.svm", "0 1:1\n0 2\n", SETS, "a.svm, line 2: expected index:number, got '2'."),
    "two values": ("a.svm", "0 1:1:2\n", SETS, "a.svm, line 1: expected index:number, got '1:1:2'."),
    "query": ("a.svm", "0 qid:1 1:2\n", SETS, "a.svm, line 1: expected index:number, got 'qid:1'."),
    "label beyond": ("a.svm", "0 1:1\n1 1:1\n", SETS, "a.svm, line 2: expected a label from 0 to 0, got 1."),
    "label below": ("a.svm", "-1 1:1\n", {"task": "multilabel"}, "line 1: expected a label from 0 to 999999, got -1."),
    "half a label": (
        "a.svm",
        "0.5 1:1\n",
        {"task": "multilabel"},
        "line 1: expected a label from 0 to 999999, got 0.5",
    ),
    "empty label": ("a.svm", "0, 1:1\n", SETS, "a.svm, line 1: expected label, got ''."),
    "no labels": ("a.svm", "1:1\n", {"task": "multilabel"}, "a.svm names no label; expected lines such as"),
    "no features": ("a.svm", "0\n", {"task": "multilabel"}, "a.svm names no feature; expected lines such as"),
    "comments": ("a.svm", "# none\n", SETS, "a.svm has no rows."),
    "LIBSVM ranking": ("a.svm", "0 1:1\n", RANKED, "a.svm: LIBSVM files hold label sets, and no rankings."),
    "no ranking": ("a.csv", "a,b\n1,2\n", RANKED, "a.csv, line 2: expected rankings such as 'b>a>c' in the column 'b'"),
    "letter twice": ("a.csv", "a,r\n1,a>b\n2,b>b\n", RANKED, "a.csv, line 3: 'b>b', names 'b' more than once"),
    "tied twice": ("a.csv", "a,r\n1,a>b>c\n\n2,b>bc\n", RANKED, "a.csv, line 4: 'b>bc', names 'b' more than once"),
    "no letter": ("a.csv", "a,r\n1,a>b\n2,a>>b\n", RANKED, "a.csv, line 3: 'a>>b', has an empty name."),
    "empty ranking": ("a.csv", "a,r\n1,a>b\n2,\n", RANKED, "a.csv, line 3: '', has an empty name."),
    "one letter": ("a.csv", "a,r\n1,a>a\n", RANKED, "a.csv: At least 2 classes are needed"),
    "no such column": ("a.csv", "a,r\n1,a>b\n", {**RANKED, "labels": "s"}, "a.csv: expected one column 's', got 0;"),
}


def check_sentence(error, name):
    """It begins with the file's name, is one line, and ends as a sentence does."""
    said = str(error)
    assert said.startswith(name)
    assert said.endswith(".")
    assert "\n" not in said
    assert len(said) < 400


@pytest.mark.parametrize(("name", "content", "asked", "said"), BAD.values(), ids=BAD)
def test_garbage_gets_one_sentence(name, content, asked, said, tmp_path):
    with pytest.raises(DataError, match=re.escape(said).replace(r"\.\*", ".*")) as caught:
        read(write(tmp_path, name, content), **asked)
    check_sentence(caught.value, name)


def test_an_archive_that_unpacks_without_end_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "LARGEST", 1000)
    for pack, name in ((gzip.compress, "a.csv.gz"), (bz2.compress, "a.csv.bz2")):
        with pytest.raises(DataError, match=f"{name} unpacks to more than 1000 bytes"):
            read(write(tmp_path, name, pack(b"1" * 1001)), task="ranking")


def test_a_letter_that_a_known_set_does_not_have():
    with pytest.raises(DataError, match="line 3: expected a ranking of the labels a to c, got 'd' in 'a>b>d'"):
        parse(b"x,ranking\n1,a>b>c\n2,a>b>d\n", "iris.txt", task="ranking", labels=None, classes="abc")


def test_what_is_asked_is_checked(unchecked, tmp_path):
    path = write(tmp_path, "a.csv", "a,b\n1,0\n")
    with pytest.raises(ValueError, match="task must be 'multilabel' or 'ranking'; got 'sets'"):
        read(path, task="sets")
    with pytest.raises(ValueError, match="labels must be the number of label columns"):
        read(path, task="multilabel")
    with pytest.raises(ValueError, match="labels must name the column of rankings, or be None for the last one; got 2"):
        read(path, task="ranking", labels=2)
    with pytest.raises(ValueError, match="labels must be their number; got 'b'"):
        read(write(tmp_path, "a.svm", "0 1:1\n"), task="multilabel", labels="b")
    for wrong in ({"labels": -1}, {"features": 0}):
        with pytest.raises(ValueError, match=r"(labels|features) must be a number of columns; got (-1|0)\."):
            read(tmp_path / "a.svm", task="multilabel", **wrong)
    with pytest.raises(FileNotFoundError, match=r"absent\.csv"):
        read(tmp_path / "absent.csv", task="ranking")


X, Y = np.array([[0.5, -2.0], [0.0, 3.0], [1e9, 1.0]]), np.array([[1, 0], [0, 1], [1, 1]])
ALPHABETS = [string.printable, "0123456789.,:-+e\n >", "@attribute data{}',%01 \n\"", "ab>=,\n\r\t0 é\x1f\u2028"]


@st.composite
def garbage(draw, name):
    """Bytes of any kind, text of the format's letters, or a good file of which a piece was replaced."""
    if draw(st.booleans()):
        good = WRITERS[name](X, Y)
        start, stop = sorted((draw(st.integers(0, len(good))), draw(st.integers(0, len(good)))))
        return (
            good[:start]
            + draw(st.binary(max_size=9) | st.sampled_from([b",", b"\n", b"0 1", b"{", b":"]))
            + good[stop:]
        )
    text = draw(st.lists(st.text(draw(st.sampled_from(ALPHABETS)), max_size=60), max_size=3))
    header = draw(st.sampled_from(["", HEAD + "@data\n", "a,b\n"]))
    return draw(st.binary(max_size=80) | st.just((header + "".join(text)).encode()))


@pytest.mark.parametrize("name", WRITERS)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_whatever_the_bytes_are_it_is_read_or_gets_one_sentence(name, data):
    content, task = data.draw(garbage(name)), data.draw(st.sampled_from(["multilabel", "ranking"]))
    try:
        found = parse(content, name, task=task, labels=2 if task == "multilabel" else None)
    except DataError as error:
        check_sentence(error, name)
    else:
        assert found.x.shape[0] == found.y.shape[0] > 0
        assert np.isfinite(table(found.x)).all()
