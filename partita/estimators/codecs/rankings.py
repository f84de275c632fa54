"""The codec of rankings: outputs as users write them, as rank vectors with a mask, and back.

Every kind is first read as ranks in competition form (tied labels have the best of the ranks that they share, NaN is
not known); one function encodes these.
"""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from ...structures import AbstractSpace
from ..names import SPACES
from .tables import (
    AbstractCodec,
    Encoded,
    class_positions,
    column_names,
    is_frame,
    list_classes,
    missing_entries,
    read_labels,
    read_numbers,
    select_columns,
)

__all__ = ["Rankings", "orderings", "shared_ranks"]

# The names of a ranking as a string, place by place; several names at one place are tied.
Places = list[list[str]]


class Rankings(AbstractCodec):
    """The encoding of rankings of one kind, learned by `fit_encode`.

    `encode` returns rank vectors (0 is best), `decode` writes them in the kind of Y.

    | kind | Y | decoded |
    |---|---|---|
    | ranks | array or frame (n, k): entry j is the rank of label j, 0 is best | array of ranks |
    | strings | "b>a>c", best first; ties together, "b>ac", or joined, "tuna>eel=squid" | strings |
    | choices | one label per row, the best one | array of ranks (n, k) |

    Ranks may have ties in competition (0, 1, 1, 3), dense (0, 1, 1, 2) or average form (0, 1.5, 1.5, 3), and NaN where
    they are not known: these labels share the remaining ranks (ties beside NaN are not read in dense form). Labels that
    a string does not name come last, tied. Several letters together are tied labels if single letters stand alone
    somewhere in Y, unless all names are numbers; else they are words. With `classes` there is no doubt.

    Examples
    --------
    >>> rankings, encoded = Rankings.fit_encode(["b>a>c", "a>bc"])
    >>> encoded.y.tolist()
    [[1, 0, 2], [0, 1, 2]]
    >>> rankings.encode(["c>b>a", "a>bc"])
    Encoded(y=array([[2, 1, 0],
           [0, 1, 2]], dtype=int32), mask=array([[0, 0, 0],
           [0, 2, 2]], dtype=int32))
    """

    @classmethod
    def fit_encode(cls, Y: Any, classes: Sequence[Hashable] | None = None) -> "tuple[Rankings, Encoded]":
        kind, values = _parse(Y)
        if kind == "ranks":
            table = _numbers(values)
            names = column_names(values, table.shape[1], classes)
            dtype = table.dtype.name if table.dtype.kind in "iu" else "int64"
            if is_frame(values):
                table = table[:, [tuple(values.columns).index(name) for name in names]]
            _check_origin(table)
            return cls(kind, names, "frame" if is_frame(values) else "array", dtype), _encoded(table)
        if kind == "strings":
            texts = _texts(values)
            places = _places(texts)
            tokens = [name for row in places.values() for tied in row for name in tied]
            form = _form(tokens, classes)
            codec = cls(kind, list_classes(_names([tokens], form), classes), form, "int64")
            return codec, codec._encode_texts(texts, places)
        codec = cls(kind, list_classes(values[~missing_entries(values)].tolist(), classes), "labels", "int64")
        return codec, codec._encode_choices(values)

    @property
    def space(self) -> AbstractSpace:
        return SPACES["rankings"](len(self.classes))

    def encode(self, Y: Any) -> Encoded:
        kind, values = _parse(Y)
        if self.kind == "strings" and kind == "choices":
            # Strings that name the best label alone.
            kind = "strings"
        if kind != self.kind:
            raise ValueError(f"Y must be of kind {self.kind!r}, as in fit; got {kind!r}. See Rankings for the kinds.")
        if kind == "strings":
            texts = _texts(values)
            return self._encode_texts(texts, _places(texts))
        if kind == "choices":
            return self._encode_choices(values)
        table = _numbers(select_columns(values, self.classes, self.form == "frame"))
        return _encoded(self._check_columns(table))

    def _encode_texts(self, texts: list[str | None], places: "dict[str | None, Places]") -> Encoded:
        first = _first_rows(texts)
        ranks = {text: _ranks(first[text], text, row, self.classes, self.form) for text, row in places.items()}
        return _encoded(np.array([ranks[text] for text in texts]))

    def _encode_choices(self, values: np.ndarray) -> Encoded:
        missing = missing_entries(values)
        rows = np.flatnonzero(~missing)
        ranks = np.where(missing[:, None], np.nan, np.ones(len(self.classes)))
        ranks[rows, class_positions(zip(rows.tolist(), values[rows].tolist(), strict=True), self.classes)] = 0
        return _encoded(ranks)

    def decode(self, y: Any) -> Any:
        y = self._check_outputs(y)
        if self.kind != "strings":
            return y.astype(self.dtype)
        return orderings(y, self.classes)


def orderings(ranks: np.ndarray, classes: Any) -> np.ndarray:
    """Write rank vectors as strings of names.

    Parameters
    ----------
    ranks : ndarray of shape (n, k)
        Rank vectors.
    classes : sequence
        The names of the labels.

    Returns
    -------
    ndarray of str
        Names joined by ">", best first; those of the same rank by "=".
    """
    names = np.array([str(name) for name in classes], object)
    order = np.argsort(ranks, axis=1, kind="stable")
    tied = np.diff(np.take_along_axis(ranks, order, axis=1), axis=1) == 0
    joints = np.where(np.pad(tied, ((0, 0), (0, 1))), "=", ">").astype(object)
    joints[:, -1] = ""
    return (names[order] + joints).sum(axis=1)


def shared_ranks(encoded: Encoded) -> np.ndarray:
    """Return rank vectors in which labels of unknown order have the least of the ranks that they share.

    Parameters
    ----------
    encoded : Encoded
        Rank vectors with a mask.

    Returns
    -------
    ndarray of shape (n, k)
        Ranks with ties.
    """
    y, mask = encoded
    if mask is None:
        return y
    same = (mask[:, :, None] == mask[:, None, :]) & (mask[:, :, None] > 0)
    return np.where(mask > 0, np.where(same, y[:, None, :], y.shape[1]).min(axis=2), y)


def _parse(Y: Any) -> tuple[str, Any]:
    """The kind of Y, and Y as a table of ranks, or as a 1-d array of strings or labels."""
    if is_frame(Y):
        table = Y if len(Y.columns) > 1 else None
    else:
        try:
            array = np.asarray(Y)
        except ValueError as error:
            raise ValueError("Y must be ranks with shape (n, k); got rows of different lengths.") from error
        if array.ndim not in (1, 2):
            shape = array.shape
            raise ValueError(f"Y must be ranks with shape (n, k), strings, or one label per row; got shape {shape}.")
        # A masked array keeps its mask, which marks what is missing.
        table = None if array.shape[1:] <= (1,) else Y if isinstance(Y, np.ma.MaskedArray) else array
    if table is not None:
        return "ranks", table
    values, _ = read_labels(Y)
    return "strings" if any(isinstance(text, str) and ">" in text for text in values) else "choices", values


def _numbers(table: Any) -> np.ndarray:
    values = read_numbers(table, "Write an order of labels as a string, best first: 'b>a>c'.")
    if not values.shape[0]:
        raise ValueError("Y has no rows; give at least one.")
    return values


def _texts(values: np.ndarray) -> list[str | None]:
    texts = [None if missing else text for text, missing in zip(values.tolist(), missing_entries(values), strict=True)]
    if wrong := [text for text in texts if not isinstance(text, str | None)]:
        raise ValueError(f"Rankings must all be strings such as 'b>a>c'; got {wrong[0]!r} among them.")
    return texts


def _first_rows(texts: list[str | None]) -> dict[str | None, int]:
    """The different texts, and the first row of each."""
    return {text: i for i, text in reversed(list(enumerate(texts)))}


def _places(texts: list[str | None]) -> dict[str | None, Places]:
    """The tied names of each place, of every different text."""
    rows = {}
    for text, i in _first_rows(texts).items():
        rows[text] = [] if text is None else [[name.strip() for name in tied.split("=")] for tied in text.split(">")]
        if not all(name for tied in rows[text] for name in tied):
            raise ValueError(f"Row {i}, {text!r}, has an empty name. Write 'b>a>c', best first, ties as 'b>a=c'.")
    return rows


def _ranks(i: int, text: str | None, places: Places, classes: tuple[Hashable, ...], form: str) -> np.ndarray:
    """The ranks of one text, the first of which is row i; labels that it does not name come last."""
    if text is None:
        return np.full(len(classes), np.nan)
    row = [_names([tied], form) for tied in places]
    names, sizes = [name for tied in row for name in tied], [len(tied) for tied in row]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"Row {i}, {text!r}, names {twice!r} more than once; a label has one place.")
    ranks = np.full(len(classes), float(len(names)))
    ranks[class_positions(((i, name) for name in names), classes)] = np.repeat(np.cumsum(sizes) - sizes, sizes)
    return ranks


def _form(tokens: list[str], classes: Sequence[Any] | None) -> str:
    """Whether names are words, or letters so that several together are tied."""
    if classes is not None:
        return "letters" if all(len(str(name)) == 1 for name in classes) else "words"
    long = [name for name in tokens if len(name) > 1]
    # In "10>2>1" the 10 is a number, not a tie of 1 and 0.
    words = len(long) == len(tokens) or all(name.isdigit() for name in tokens)
    return "words" if long and words else "letters"


def _names(row: Places, form: str) -> list[str]:
    names = [name for tied in row for name in tied]
    return names if form == "words" else [letter for name in names for letter in name if not letter.isspace()]


def _check_origin(values: np.ndarray) -> None:
    """Raise for ranks that count from 1: where all rows are incomplete, only the least of all ranks shows it."""
    missing = missing_entries(values)
    if missing.any() and not missing.all() and np.nanmin(values) == 1:
        raise ValueError("No label of Y has rank 0, the least is 1: ranks start at 0, 0 is best. Subtract 1.")


def _encoded(values: np.ndarray) -> Encoded:
    """y and the mask of ranks in any form."""
    y, mask, valid = _to_ranks(values)
    if not valid.all():
        i = int(np.argmin(valid))
        message = f"Row {i} of Y, {values[i].tolist()}, is no ranking:"
        if _to_ranks(values[i : i + 1] - 1.0)[2].all():
            raise ValueError(f"{message} ranks start at 0, 0 is best, and these at 1. Subtract 1.")
        raise ValueError(
            f"{message} expected the ranks 0..{y.shape[1] - 1}, one for each label; ties as 0, 1, 1, 3 (or 0, 1, 1, 2, "
            "or 0, 1.5, 1.5, 3), NaN where a rank is not known. For label sets use MultilabelClassifier."
        )
    return Encoded(y, mask if mask.any() else None)


def _to_ranks(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """y, the mask, and whether it is a ranking, of each row. Rows are sorted first, labels of unknown rank last."""
    n, k = values.shape
    place = np.arange(k)
    unknown = missing_entries(values)
    # Infinity stands for unknown ranks; infinite ranks of the user become -1, which is no rank.
    values = np.where(unknown, np.inf, np.where(np.isinf(values), -1, values)).astype(float)
    order = np.argsort(values, axis=1, kind="stable")
    values = np.take_along_axis(values, order, axis=1)
    known = np.isfinite(values)
    starts = np.hstack([np.ones((n, 1), bool), values[:, 1:] != values[:, :-1]])
    ends = np.hstack([starts[:, 1:], np.ones((n, 1), bool)])
    group = np.cumsum(starts, axis=1)
    within = place - np.maximum.accumulate(np.where(starts, place, 0), axis=1)
    size = 1 + within + np.minimum.accumulate(np.where(ends, place, k)[:, ::-1], axis=1)[:, ::-1] - place

    # A tie stands at the first of its ranks, at their mean, or (where all are known) at its number.
    dense = np.where(known.all(axis=1, keepdims=True) & (values == group - 1), place, -1)
    forms = [values + within, values + within - (size - 1) / 2, dense]
    valid = [_increase(ranks, known) for ranks in forms]
    ranks = np.select([rows[:, None] for rows in valid], forms, place)
    used = np.zeros((n, k), bool)
    taken = known & np.any(valid, axis=0)[:, None]
    used[np.nonzero(taken)[0], ranks[taken].astype(int)] = True
    remaining = np.argsort(used, axis=1, kind="stable")
    y, mask = np.empty((n, k), np.int32), np.empty((n, k), np.int32)
    result = np.where(known, ranks, np.take_along_axis(remaining, within, axis=1))
    np.put_along_axis(y, order, result.astype(np.int32), axis=1)
    np.put_along_axis(mask, order, np.where(size > 1, group, 0).astype(np.int32), axis=1)
    return y, mask, np.any(valid, axis=0)


def _increase(ranks: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Whether the known ranks of each row are different ones of 0, ..., k - 1, in order."""
    inside = (ranks >= 0) & (ranks < ranks.shape[1]) & (ranks == np.floor(ranks))
    rises = (ranks[:, 1:] > ranks[:, :-1]) | ~known[:, 1:]
    return (inside | ~known).all(axis=1) & rises.all(axis=1)
