"""The codec of rankings: outputs as users write them, as rank vectors with what is unknown in them, and back.

Every kind is first read as ranks in competition form (tied labels hold the best of the ranks they share, NaN is not
known); one function makes of these an output y and what of it is free.
"""

from collections.abc import Hashable, Sequence
from typing import Any

import equinox as eqx
import numpy as np

from ..structures import Permutations
from .tables import Encoded, absent_entries, columns, is_frame, labels, located, numbers, ordered, selected

__all__ = ["Rankings", "orderings"]


class Rankings(eqx.Module):
    """Rankings of one kind, learned by `fit`: `encode` gives rank vectors (0 is best), `decode` answers in kind.

    | kind | Y | decoded |
    |---|---|---|
    | ranks | array or frame (n, k): entry j is the rank of label j, 0 is best | array of ranks |
    | strings | "b>a>c", best first; ties together, "b>ac", or joined, "tuna>eel=squid" | strings |
    | choices | one label per row, the best one | array of ranks (n, k) |

    Ranks may have ties in competition (0, 1, 1, 3), dense (0, 1, 1, 2) or average form (0, 1.5, 1.5, 3), and NaN where
    they are not known: these labels share the ranks left over (ties beside NaN are not read in dense form). Labels that
    a string does not name come last, tied. Several letters together are tied labels if single letters stand alone
    somewhere in Y, unless all names are numbers; else they are words. `classes` settles it.

    >>> rankings = Rankings.fit(["b>a>c", "a>bc"])
    >>> rankings.encode(["c>b>a", "a>bc"])
    Encoded(y=array([[2, 1, 0],
           [0, 1, 2]], dtype=int32), free=array([[0, 0, 0],
           [0, 2, 2]], dtype=int32))
    """

    kind: str = eqx.field(static=True)
    classes: tuple[Hashable, ...] = eqx.field(static=True)
    form: str = eqx.field(static=True)
    dtype: str = eqx.field(static=True)

    @classmethod
    def fit(cls, Y: Any, classes: Sequence[Hashable] | None = None) -> "Rankings":
        """Learn kind and labels of Y. `classes` names the columns of ranks; else it lists all labels, in order."""
        kind = _kind(Y)
        if kind == "ranks":
            values = _ranks(Y)
            _check_origin(values)
            _read(values)
            dtype = values.dtype.name if values.dtype.kind in "iu" else "int64"
            return cls(kind, columns(Y, values.shape[1], classes), "frame" if is_frame(Y) else "array", dtype)
        if kind == "strings":
            rows = {text: _tokens(i, text) for text, i in _first(_texts(Y)).items()}
            form = _form([name for row in rows.values() for tied in row for name in tied], classes)
            seen = ordered((name for row in rows.values() for name in _names(row, form)), classes)
            made = cls(kind, seen, form, "int64")
            made.encode(Y)
            return made
        values, _ = labels(Y)
        return cls(kind, ordered(values[~absent_entries(values)].tolist(), classes), "labels", "int64")

    @property
    def space(self) -> Permutations:
        return Permutations(len(self.classes))

    def encode(self, Y: Any) -> Encoded:
        """Y as rank vectors. Frames are matched by their columns' names."""
        kind, k = _kind(Y), len(self.classes)
        if self.kind == "strings" and kind == "choices":
            # Strings that name the best label alone.
            kind = "strings"
        if kind != self.kind:
            raise ValueError(f"Y must be of kind {self.kind!r}, as in fit; got {kind!r}. See Rankings for the kinds.")
        if kind == "ranks":
            values = _ranks(selected(Y, self.classes, self.form == "frame"))
            if values.shape[1] != k:
                raise ValueError(f"Y must have {k} columns, as in fit; got {values.shape[1]}.")
            return _read(values)
        if kind == "strings":
            texts = _texts(Y)
            classes, form = self.classes, self.form
            known = {text: _parsed(i, text, classes, form) for text, i in _first(texts).items()}
            return _read(np.array([known[text] for text in texts]))
        values, _ = labels(Y)
        missing = absent_entries(values)
        rows = np.flatnonzero(~missing)
        ranks = np.where(missing[:, None], np.nan, np.ones(k))
        ranks[rows, located(zip(rows.tolist(), values[rows].tolist(), strict=True), self.classes)] = 0
        return _read(ranks)

    def decode(self, y: Any) -> Any:
        """Rank vectors of shape (n, k) in the kind of Y, an array of ranks for choices."""
        y = np.asarray(y)
        if y.ndim != 2 or y.shape[1] != len(self.classes):
            raise ValueError(f"y must have shape (n, {len(self.classes)}); got {y.shape}.")
        if self.kind != "strings":
            return y.astype(self.dtype)
        return orderings(y, self.classes)


def orderings(y: np.ndarray, classes: Any) -> np.ndarray:
    """Rank vectors as strings of names, best first."""
    names = np.array([str(name) for name in classes], object)
    return np.array([">".join(order) for order in names[np.argsort(y, axis=1)]], object)


def _kind(Y: Any) -> str:
    if is_frame(Y):
        return "ranks" if len(Y.columns) > 1 else _of_labels(Y)
    try:
        shape = np.asarray(Y).shape
    except ValueError as error:
        raise ValueError("Y must be ranks with shape (n, k); got rows of different lengths.") from error
    if len(shape) not in (1, 2):
        raise ValueError(f"Y must be ranks with shape (n, k), strings, or one label per row; got shape {shape}.")
    return "ranks" if shape[1:] > (1,) else _of_labels(Y)


def _of_labels(Y: Any) -> str:
    return "strings" if any(isinstance(text, str) and ">" in text for text in labels(Y)[0]) else "choices"


def _ranks(Y: Any) -> np.ndarray:
    values = numbers(Y, "Write an order of labels as a string, best first: 'b>a>c'.")
    if not values.shape[0]:
        raise ValueError("Y has no rows; give at least one.")
    return values


def _texts(Y: Any) -> list[str | None]:
    values, _ = labels(Y)
    made = [None if gone else text for text, gone in zip(values.tolist(), absent_entries(values), strict=True)]
    if wrong := [text for text in made if not isinstance(text, str | None)]:
        raise ValueError(f"Rankings must all be strings such as 'b>a>c'; got {wrong[0]!r} among them.")
    return made


def _first(texts: list[str | None]) -> dict[str | None, int]:
    """The different texts, and the first row of each."""
    return {text: i for i, text in reversed(list(enumerate(texts)))}


def _tokens(i: int, text: str | None) -> list[list[str]]:
    """The tied names of each place."""
    places = [] if text is None else [[name.strip() for name in tied.split("=")] for tied in text.split(">")]
    if not all(name for tied in places for name in tied):
        raise ValueError(f"Row {i}, {text!r}, has an empty name. Write 'b>a>c', best first, ties as 'b>a=c'.")
    return places


def _parsed(i: int, text: str | None, classes: tuple[Hashable, ...], form: str) -> np.ndarray:
    """The ranks that a string says; those of labels that it does not name come last."""
    if text is None:
        return np.full(len(classes), np.nan)
    row = [_names([tied], form) for tied in _tokens(i, text)]
    names, sizes = [name for tied in row for name in tied], [len(tied) for tied in row]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"Row {i}, {text!r}, names {twice!r} more than once; a label has one place.")
    ranks = np.full(len(classes), float(len(names)))
    ranks[located(((i, name) for name in names), classes)] = np.repeat(np.cumsum(sizes) - sizes, sizes)
    return ranks


def _form(tokens: list[str], classes: Sequence[Any] | None) -> str:
    """Whether names are words, or letters so that several together are tied."""
    if classes is not None:
        return "letters" if all(len(str(name)) == 1 for name in classes) else "words"
    long = [name for name in tokens if len(name) > 1]
    # "10>2>1" are numbers: ten is not a tie of one and nought.
    words = len(long) == len(tokens) or all(name.isdigit() for name in tokens)
    return "words" if long and words else "letters"


def _names(row: list[list[str]], form: str) -> list[str]:
    names = [name for tied in row for name in tied]
    return names if form == "words" else [letter for name in names for letter in name if not letter.isspace()]


def _check_origin(values: np.ndarray) -> None:
    """Where all rows are incomplete, only the least of all numbers tells that they count from 1."""
    missing = absent_entries(values)
    if missing.any() and not missing.all() and np.nanmin(values) == 1:
        raise ValueError("No label of Y has rank 0, the least is 1: ranks start at 0, 0 is best. Subtract 1.")


def _read(values: np.ndarray) -> Encoded:
    """y and what is free, of ranks in any form."""
    y, free, fine = _placed(values)
    if not fine.all():
        i = int(np.argmin(fine))
        said = f"Row {i} of Y, {values[i].tolist()}, is no ranking:"
        if _placed(values[i : i + 1] - 1.0)[2].all():
            raise ValueError(f"{said} ranks start at 0, 0 is best, and these at 1. Subtract 1.")
        raise ValueError(
            f"{said} expected the ranks 0..{y.shape[1] - 1}, one for each label; ties as 0, 1, 1, 3 (or 0, 1, 1, 2, or "
            "0, 1.5, 1.5, 3), NaN where a rank is not known. For label sets use MultilabelClassifier."
        )
    return Encoded(y, free if free.any() else None)


def _placed(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(y, free, whether it is a ranking) of each row. All is done on sorted rows, those of unknown rank last."""
    n, k = values.shape
    place = np.arange(k)
    unknown = absent_entries(values)
    # Infinity is for the unknown; who gave it gets a rank that there is not.
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
    fine = [_increase(ranks, known) for ranks in forms]
    ranks = np.select([found[:, None] for found in fine], forms, place)
    used = np.zeros((n, k), bool)
    ok = known & np.any(fine, axis=0)[:, None]
    used[np.nonzero(ok)[0], ranks[ok].astype(int)] = True
    left = np.argsort(used, axis=1, kind="stable")
    y, free = np.empty((n, k), np.int32), np.empty((n, k), np.int32)
    found = np.where(known, ranks, np.take_along_axis(left, within, axis=1))
    np.put_along_axis(y, order, found.astype(np.int32), axis=1)
    np.put_along_axis(free, order, np.where(size > 1, group, 0).astype(np.int32), axis=1)
    return y, free, np.any(fine, axis=0)


def _increase(ranks: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Whether the known ranks of each row are different ones of 0, ..., k - 1, in order."""
    inside = (ranks >= 0) & (ranks < ranks.shape[1]) & (ranks == np.floor(ranks))
    rises = (ranks[:, 1:] > ranks[:, :-1]) | ~known[:, 1:]
    return (inside | ~known).all(axis=1) & rises.all(axis=1)
