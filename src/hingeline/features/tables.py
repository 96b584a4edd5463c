"""Tables of tokens, as columns of text, from files or frames, or sparse rows; scaled columns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from hingeline._checks import Array, is_list, is_missing, require, require_type

CSR = {sp.csr_matrix, sp.csr_array}


class _Cut:
    """Tokens in a row, cut into sequences at ``offsets``.

    A subclass has ``_one``, one sequence of the tokens in a slice, and ``_some``, several of them.
    """

    offsets: Array

    @property
    def shape(self) -> tuple[int]:
        """The number of sequences; scikit-learn then cuts folds by indexing, not one by one."""
        return (len(self),)

    @property
    def lengths(self) -> Array:
        """Tokens of each sequence."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self: Any, which: Any) -> Any:
        if isinstance(which, (int, np.integer)):
            i = range(len(self))[int(which)]
            return self._one(slice(self.offsets[i], self.offsets[i + 1]))
        if isinstance(which, tuple) and len(which) == 2 and which[1] is Ellipsis:
            which = which[0]
        starts, lengths = self.offsets[:-1][which], self.lengths[which]
        cuts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return self._some(np.repeat(starts - cuts[:-1], lengths) + np.arange(cuts[-1]), cuts)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))


class Labels(list[Any]):
    """Outputs of sequences, an array or list for each, which NumPy takes as one array of them.

    So scikit-learn's ``cross_val_predict`` can put those of several folds together.
    """

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        out = np.empty(len(self), dtype=object)
        for i, labels in enumerate(self):
            out[i] = labels
        return out


def is_empty(x: Any) -> bool:
    """Whether a sequence has no tokens; matrices tell it otherwise."""
    return isinstance(x, (list, tuple, np.ndarray)) and is_list(x) and len(x) == 0


def is_mask(table: Any) -> bool:
    """Whether something is a boolean table: of all tokens, where one entry each is expected."""
    return isinstance(table, np.ndarray) and table.dtype == bool and table.ndim == 2


def check_entries(name: str, entries: Any, n: int) -> None:
    """Refuse what is not a list with an entry for each of n sequences."""
    fine = isinstance(entries, (Sequence, np.ndarray, TokenTable)) and is_list(entries)
    require_type(fine, name, "a list with one entry per sequence", entries)
    require(len(entries) == n, f"{name} has {len(entries)} entries, but there are {n} sequences.")


def skip_empty(X: Any, lengths: Any, find: Any, nothing: Any, **more: Any) -> Any:
    """What ``find`` gives for the sequences with tokens, and ``nothing`` for each without.

    ``more`` are lists with an entry for each sequence, tables of all tokens, or None; ``find`` is
    given what belongs to the others. None if all sequences have tokens: nothing was found then.
    """
    if lengths is not None or not isinstance(X, (list, tuple)) or (X and {*map(type, X)} <= CSR):
        return None
    empty = {i for i, x in enumerate(X) if is_empty(x)}
    if X and not empty:
        return None
    rest = [i for i in range(len(X)) if i not in empty]
    for name, part in more.items():
        if part is not None and not is_mask(part):
            check_entries(name, part, len(X))
            more[name] = [part[i] for i in rest]
    others = iter(find([X[i] for i in rest], **more) if rest else ())
    return Labels(nothing if i in empty else next(others) for i in range(len(X)))


class SparseSequences(_Cut):
    """Sequences of sparse tokens, stacked; what encoders return and ``ChainSSVM`` takes.

    The encoder stacks them once, so the estimator need not check and stack a matrix for each
    sequence. ``sequences[i]`` is a CSR matrix (tokens, features); a slice, a mask or an array of
    numbers gives sequences again.

    Parameters
    ----------
    matrix : csr_matrix of shape (tokens, features)
    offsets : int64 ndarray; sequence i has the rows ``offsets[i]`` to ``offsets[i + 1] − 1``

    Examples
    --------
    >>> import numpy as np
    >>> X = SparseSequences(sp.csr_matrix(np.eye(3)), [0, 2, 3])
    >>> X.lengths.tolist(), X[0].shape
    ([2, 1], (2, 3))
    """

    def __init__(self, matrix: sp.csr_matrix, offsets: Any) -> None:
        self.matrix = matrix if isinstance(matrix, sp.csr_matrix) else sp.csr_matrix(matrix)
        self.offsets = np.asarray(offsets, dtype=np.int64)
        n, fine = self.matrix.shape[0], self.offsets.ndim == 1 and len(self.offsets) > 0
        fine = fine and self.offsets[0] == 0 and self.offsets[-1] == n
        if not (fine and (np.diff(self.offsets) >= 0).all()):
            what = f"offsets are {self.offsets!r:.60}, but the matrix has {n} rows"
            raise ValueError(f"{what}: they must rise from 0 to that.")

    def _one(self, tokens: slice) -> Any:
        return self.matrix[tokens]

    def _some(self, tokens: Array, offsets: Array) -> SparseSequences:
        return SparseSequences(self.matrix[tokens], offsets)


def renumber(old: sp.csr_matrix, columns: Array, n_columns: int) -> sp.csr_matrix:
    """Rows by the new number of each column, −1 to drop it, in ascending order in each row."""
    indices = columns[old.indices]
    kept = indices >= 0
    indptr = np.concatenate([[0], np.cumsum(kept)])[old.indptr]
    parts = (old.data[kept], indices[kept], indptr)
    matrix = sp.csr_matrix(parts, shape=(old.shape[0], n_columns))  # int32, if that is enough
    matrix.sum_duplicates()
    return matrix


@dataclass(frozen=True)
class TokenTable(_Cut):
    """Tokens of many sentences, stored by column as indices of its distinct values.

    A word that occurs a thousand times is stored once, so features of a column are computed on
    its distinct values and spread over the tokens by indexing. A table is a sequence of
    sentences: ``table[i]`` is a list of tuples, one per token; a slice, a mask or an array of
    numbers gives a table.

    Examples
    --------
    >>> table = TokenTable.from_sentences([[("He", "PRP"), ("ran", "VBD")]], ["word", "pos"])
    >>> table.column("pos").tolist()
    ['PRP', 'VBD']
    >>> table[0]
    [('He', 'PRP'), ('ran', 'VBD')]
    """

    names: tuple[str, ...]  # of the columns
    codes: Array  # int32, (columns, tokens): numbers into values
    values: tuple[list[str], ...]  # the distinct ones of each column
    offsets: Array  # sentence i has the tokens offsets[i] to offsets[i + 1] − 1

    def __repr__(self) -> str:
        return f"TokenTable({len(self)} sentences, {self.n_tokens} tokens, columns {self.names})"

    @classmethod
    def from_columns(cls, columns: Mapping[str, Sequence[str]], offsets: Any) -> TokenTable:
        """A table from the values of all tokens, column by column."""
        builder = TableBuilder(len(columns))
        builder.extend([*columns.values()])
        return builder.table(tuple(columns), offsets)

    @classmethod
    def from_sentences(
        cls, sentences: Sequence[Sequence[Any]], names: Sequence[str] | None = None
    ) -> TokenTable:
        """A table from sentences of tokens, each a string or a tuple of strings."""
        rows: list[tuple[str, ...]] = []
        offsets = [0]
        for i, sentence in enumerate(sentences):
            if not is_list(sentence):
                what = "one string" if isinstance(sentence, str) else f"{sentence!r:.40}"
                raise TypeError(f"sentence {i} is {what}: pass a list of tokens.")
            for t in sentence:
                alone = type(t) is str or not (type(t) is tuple or is_list(t))
                rows.append((t,) if alone else tuple(t))
            offsets.append(len(rows))
        width = len(rows[0]) if rows else len(names or ())
        fine = {*map(len, rows)} == {width} and {*map(type, chain.from_iterable(rows))} == {str}
        for t, row in enumerate(() if fine else rows):
            if len(row) != width or not all(isinstance(value, str) for value in row):
                i = int(np.searchsorted(offsets, t, side="right")) - 1
                what = f"token {t - offsets[i]} of sentence {i} is {row!r}"
                raise ValueError(f"{what}: every token needs {width} strings, as the first has.")
        named = tuple(names) if names is not None else default_names(width)
        if len(named) != width:
            raise ValueError(f"names has {len(named)} entries, but tokens have {width} columns.")
        columns = ([row[k] for row in rows] for k in range(width))
        return cls.from_columns(dict(zip(named, columns, strict=True)), offsets)

    @classmethod
    def join(cls, tables: Sequence[TokenTable]) -> TokenTable:
        """Tables with the same columns, one after the other."""
        codes, values = [], []
        for k in range(len(tables[0].names)):
            number: dict[str, int] = {}
            own = [[number.setdefault(v, len(number)) for v in t.values[k]] for t in tables]
            pairs = zip(own, tables, strict=True)
            codes.append(np.concatenate([np.array(n, np.int32)[t.codes[k]] for n, t in pairs]))
            values.append(list(number))
        offsets = np.cumsum([0, *np.concatenate([table.lengths for table in tables])])
        return cls(tables[0].names, np.array(codes), tuple(values), offsets)

    @property
    def n_tokens(self) -> int:
        """Tokens of all sentences."""
        return int(self.offsets[-1])

    def position(self, column: str | int) -> int:
        """The number of a column given by name or number (from the end if negative)."""
        what = f"there is no column {column!r}: there are"
        if isinstance(column, str):
            require(column in self.names, f"{what} {', '.join(map(repr, self.names))}.")
            return self.names.index(column)
        n = len(self.names)
        require(-n <= column < n, f"{what} {n} columns.")
        return column % n

    def column(self, column: str | int) -> Array:
        """All tokens' values of one column, as an array of Python strings."""
        k = self.position(column)
        return np.array(self.values[k], dtype=object)[self.codes[k]]

    def sentences(self, column: str | int) -> list[list[str]]:
        """One column, sentence by sentence, e.g. the labels for ``fit``."""
        flat = self.column(column).tolist()
        return [flat[lo:hi] for lo, hi in pairwise(self.offsets.tolist())]

    def select(self, columns: Sequence[str | int]) -> TokenTable:
        """A table of some columns."""
        kept = [self.position(column) for column in columns]
        names, values = tuple(self.names[k] for k in kept), tuple(self.values[k] for k in kept)
        return TokenTable(names, self.codes[kept], values, self.offsets)

    def with_column(self, name: str, values: Sequence[Any]) -> TokenTable:
        """A table with a column replaced, or appended if there is none of that name.

        ``values`` are one sequence per sentence, as ``predict`` returns, or of all tokens in a row.
        """
        flat: list[Any] = list(values)
        if not all(isinstance(value, str) for value in flat):
            what = f"values has {len(flat)} sequences"
            require(len(flat) == len(self), f"{what}, but there are {len(self)} sentences.")
            for i, (sequence, n) in enumerate(zip(flat, self.lengths.tolist(), strict=True)):
                fine = not isinstance(sequence, str) and len(sequence) == n
                require(fine, f"values[{i}] must have {n} values, one per token of sentence {i}.")
            flat = [str(value) for sequence in flat for value in sequence]
        what = f"values has {len(flat)} entries"
        require(len(flat) == self.n_tokens, f"{what}, but there are {self.n_tokens} tokens.")
        added = TokenTable.from_columns({name: flat}, self.offsets)
        k = self.names.index(name) if name in self.names else len(self.names)
        codes = np.concatenate([self.codes[:k], added.codes, self.codes[k + 1 :]])
        texts = (*self.values[:k], *added.values, *self.values[k + 1 :])
        return TokenTable((*self.names[:k], name, *self.names[k + 1 :]), codes, texts, self.offsets)

    def _one(self, tokens: slice) -> Any:
        pairs = zip(self.values, self.codes[:, tokens].tolist(), strict=True)
        texts = [[values[c] for c in row] for values, row in pairs]
        return list(zip(*texts, strict=True))

    def _some(self, tokens: Array, offsets: Array) -> TokenTable:
        return TokenTable(self.names, self.codes[:, tokens], self.values, offsets)


def default_names(width: int) -> tuple[str, ...]:
    """Names of unnamed columns: the word, then numbers."""
    return tuple("word" if k == 0 else f"col{k}" for k in range(width))


class TableBuilder:
    """Gathers a table from blocks of columns of texts, or of bytes as readers of large files do.

    Values are numbered as they come, so what is kept of a token is four bytes a column.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self._numbers: list[defaultdict[Any, int]] = [defaultdict() for _ in range(width)]
        for numbers in self._numbers:
            numbers.default_factory = numbers.__len__
        self._codes: list[Array] = []

    def extend(self, columns: Sequence[Sequence[Any]]) -> None:
        """Append tokens, given column by column."""
        pairs = zip(self._numbers, columns, strict=True)
        codes = [np.fromiter(map(n.__getitem__, own), np.int32, len(own)) for n, own in pairs]
        self._codes.append(np.array(codes, np.int32).reshape(self.width, len(codes and codes[0])))

    def table(self, names: Sequence[str], offsets: Any) -> TokenTable:
        """The table of all tokens."""
        codes = np.concatenate([np.empty((self.width, 0), np.int32), *self._codes], axis=1)
        values = tuple([v if isinstance(v, str) else v.decode() for v in n] for n in self._numbers)
        return TokenTable(tuple(names), codes, values, np.asarray(offsets, dtype=np.int64))


def sentence_offsets(blank: Array) -> Array:
    """Where sentences begin among the tokens, from which lines hold no token."""
    ended = np.append(blank, True)
    ends = ended & ~np.append(True, blank)
    return np.append(0, np.cumsum(~ended)[ends]).astype(np.int64)


def from_frame(
    frame: Any,
    group: str | None = "sentence",
    label: str | None = "tag",
    columns: Sequence[str] | None = None,
) -> tuple[TokenTable | list[Array], list[list[Any]] | None]:
    """Cut a pandas or polars frame of tokens into sentences, and the labels of each.

    Sentences are a TokenTable if the columns hold strings, arrays (tokens, columns) if they hold
    numbers. The rows of a group need not be adjacent: groups come in the order of their first row,
    and the rows of a group in the order of the frame.

    Parameters
    ----------
    frame : data frame with one row per token
        Anything with ``columns`` whose ``frame[name].to_numpy()`` gives a column.
    group : str or None, default="sentence"
        The column that says which sentence a token belongs to, None if all are of one. The default
        also finds ``Sentence #``, ``sentence_id`` and their like.
    label : str or None, default="tag"; the column of labels, None if there is none
    columns : list of str, the columns to read; default: all others

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame(
    ...     {"sentence": [1, 1, 2], "word": ["Ann", "ran", "Bob"], "tag": ["B-PER", "O", "B-PER"]}
    ... )
    >>> X, y = from_frame(frame)
    >>> X[0], y
    ([('Ann',), ('ran',)], [['B-PER', 'O'], ['B-PER']])
    """
    names = [str(name) for name in getattr(frame, "columns", ())]
    if not names or not hasattr(frame, "__getitem__"):
        raise TypeError(f"frame must be a pandas or polars frame, got {type(frame).__name__}.")
    group = _find_group(frame, group)
    read = [n for n in names if n not in (group, label)] if columns is None else list(columns)
    require(read, "no columns are left to read besides group and label: name them.")
    order, offsets = _gather(frame, group)
    y = None
    if label is not None:
        how = "name one of {}, or pass label=None if there are no labels"
        labels = _values(frame, label, how)[order].tolist()
        y = [labels[lo:hi] for lo, hi in pairwise(offsets.tolist())]
    values = {name: _values(frame, name) for name in read}
    numeric = [name for name, column in values.items() if column.dtype.kind in "fiub"]
    if len(numeric) == len(read):
        stacked = np.column_stack([values[name] for name in read])[order]
        return np.split(stacked, offsets[1:-1]), y
    if numeric:
        text = next(name for name in read if name not in numeric)
        what = f"column {numeric[0]!r} holds numbers and {text!r} does not"
        raise ValueError(f"{what}: choose columns of one kind, or turn numbers into strings.")
    for name, column in values.items():
        for row, value in enumerate(column.tolist()):
            if not isinstance(value, str):
                raise ValueError(f"row {row} of column {name!r} is {value!r}, expected a string.")
    columns_ = {name: column[order].tolist() for name, column in values.items()}
    return TokenTable.from_columns(columns_, offsets), y


def to_column(labels: Sequence[Sequence[Any]], frame: Any, group: str | None = "sentence") -> Array:
    """Turn labels of sentences, as ``predict`` returns them, into a column of their frame.

    Parameters
    ----------
    labels : list of label sequences, in the order of :func:`from_frame`
    frame, group : as given to :func:`from_frame`

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"sentence": [1, 1, 2], "word": ["Ann", "ran", "Bob"]})
    >>> X, _ = from_frame(frame, label=None)
    >>> to_column([["B", "O"], ["B"]], frame).tolist()  # of tagger.predict(X), say
    ['B', 'O', 'B']
    """
    order, offsets = _gather(frame, _find_group(frame, group))
    lengths, wanted = [*map(len, labels)], np.diff(offsets).tolist()
    what = f"labels are of {len(lengths)} sentences with {sum(lengths)} tokens"
    require(lengths == wanted, f"{what}, but the frame has {len(wanted)} with {sum(wanted)}.")
    column = np.empty(len(order), dtype=object)
    column[order] = [label for sentence in labels for label in sentence]
    return np.array(column.tolist())


def _values(frame: Any, name: Any, how: str = "name one of {}") -> Array:
    what = f"a frame is expected, got {type(frame).__name__}: pass the frame and group=, the column"
    require(hasattr(frame, "columns"), f"{what} of sentences.", TypeError)
    there = ", ".join(map(repr, frame.columns))
    require(name in frame.columns, f"the frame has no column {name!r}: {how.format(there)}.")
    return np.asarray(frame[name].to_numpy())


def _find_group(frame: Any, group: str | None) -> str | None:
    """The column of sentences; in place of the default one, a usual name for it."""
    from hingeline.data.records import sentence_column

    names = [*map(str, getattr(frame, "columns", ()))]
    if group == "sentence" and group not in names and (at := sentence_column(names)) is not None:
        return names[at]
    return group


def _gather(frame: Any, group: str | None) -> tuple[Array, Array]:
    """The order that gathers the groups, and where each starts."""
    index: dict[Any, int] = {}
    how = "pass group=, the column that numbers the sentences, one of {}; if there is none, and the"
    how += " frame is one sentence, group=None"
    one = group is None and hasattr(frame, "columns")
    keys = _values(frame, frame.columns[0] if one else group, how).tolist()
    keys = [0] * len(keys) if one else keys
    for row, key in enumerate(keys):
        if is_missing(key):
            how = "every token belongs to a sentence; frame[group].ffill() repeats the one above"
            raise ValueError(f"row {row} has no group: {how}.")
        index.setdefault(key, len(index))
    numbers = np.fromiter(map(index.__getitem__, keys), dtype=np.int64, count=len(keys))
    return np.argsort(numbers, kind="stable"), np.append(0, np.cumsum(np.bincount(numbers)))


# Columns of numbers, brought to similar sizes

SCALING = ("feature_means_", "feature_scales_")  # What a model file keeps of scaled columns.


def is_dense(X: Any) -> bool:
    """Whether sequences of numbers are arrays, lists or frames, not sparse matrices."""
    first = X[0] if isinstance(X, (list, tuple)) and X else X
    return not (isinstance(first, SparseSequences) or sp.issparse(first))


def refuse_scale(encoder: Any, scale: Any) -> None:
    """Refuse to scale features that have names: words and dicts, which count."""
    what = "scale=True is for numbers, and features of words and dicts are named"
    require(encoder is None or not scale, f"{what}: leave it out.")


def scale_columns(model: Any, X: Any, weights: Array | None = None) -> Any:
    """X with columns scaled as the model does it, if it does.

    With ``weights`` of its rows X tells how: a row of weight 2 counts as two, one of 0 not at all.
    """
    named = getattr(model, "encoder_", None) is not None
    if weights is not None:
        for name in SCALING:
            vars(model).pop(name, None)
        if model._wants_scale(True) and not (named and (X.data == 1.0).all()):
            from hingeline.features.scales import learn_scales

            vars(model).update(learn_scales(model, X, weights, named))
    if SCALING[0] not in vars(model):
        return X
    if X.shape[1] > len(model.feature_means_):  # columns that came later
        more = (0, X.shape[1] - len(model.feature_means_))
        model.feature_means_ = np.pad(model.feature_means_, more)
        model.feature_scales_ = np.pad(model.feature_scales_, more, constant_values=1.0)
    means, sizes = model.feature_means_, model.feature_scales_
    if named:  # what a token lacks stays 0
        data = (X.data - means[X.indices]) / sizes[X.indices]
        return sp.csr_matrix((data.astype(X.dtype), X.indices, X.indptr), X.shape)
    if sp.issparse(X) and not means.any():
        return sp.csr_matrix(X @ sp.diags(1.0 / sizes), dtype=X.dtype)
    rows = X.toarray() if sp.issparse(X) else X
    return ((rows - means) / sizes).astype(X.dtype)
