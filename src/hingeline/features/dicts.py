"""DictEncoder: the feature dicts and lists that python-crfsuite's users have."""

from __future__ import annotations

import math
import numbers
from array import array
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from hingeline._checks import Array
from hingeline.features.input import Encoder, check_kind, get_meta, get_strings, pack_strings
from hingeline.features.tables import SparseSequences

#: Numbers kept in a list before they move to an array.
FLUSH = 2**16


class _BadToken(Exception):
    """What is wrong with a token; its place is added where it is known."""


class _Atoms(dict[Any, int]):
    """A string, or ``(key, value)`` of a dict -> where its column and weight stand.

    What is known is found at the speed of a dict. Numbers are not remembered, each token may have
    its own.
    """

    def __init__(self, vocabulary: dict[str, int], grow: bool) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.grow = grow
        self.columns = array("i")
        self.weights = array("d")

    def add(self, name: str, weight: float = 1.0) -> int:
        """Number an attribute with a weight."""
        vocabulary = self.vocabulary
        if self.grow:
            column = vocabulary.setdefault(name, len(vocabulary))
        else:
            column = vocabulary.get(name, -1)
        self.columns.append(column)
        self.weights.append(weight)
        return len(self.columns) - 1

    def __missing__(self, item: Any) -> int:
        if not isinstance(item, tuple):
            self[item] = atom = self.add(_text(item))
            return atom
        key, value = item
        name = _text(key)
        if isinstance(value, (str, bytes)):
            self[item] = atom = self.add(f"{name}:{_text(value)}")
        elif isinstance(value, (tuple, frozenset)):
            raise TypeError  # hashable, yet read like lists
        else:
            atom = self.add(name, _weight(name, value))
            if isinstance(value, bool):
                self[item] = atom
        return atom


def _text(name: Any) -> str:
    if isinstance(name, str):
        return name
    if isinstance(name, bytes):
        try:
            return name.decode("utf-8")
        except UnicodeDecodeError:
            raise _BadToken(f"has the bytes {name!r}, which are not UTF-8") from None
    raise _BadToken(f"has {name!r:.40} where a string is needed")


def _weight(name: str, value: Any) -> float:
    if isinstance(value, (numbers.Real, np.bool_)):
        try:
            weight = float(value)
        except OverflowError:
            weight = math.inf
        if math.isfinite(weight):
            return weight
        raise _BadToken(f"has the number {value!r:.40} for {name!r}: replace or drop it")
    raise _BadToken(
        f"has a value of type {type(value).__name__} for {name!r}: use a string, a number, a bool, "
        "a dict or a list of strings"
    )


def _strings(token: Any) -> Any:
    """A token that is a collection of strings, or what is wrong with it."""
    if not isinstance(token, (list, tuple, set, frozenset)):
        raise _BadToken(
            f"is of type {type(token).__name__}: a token is a dict, a list of strings or a string"
        )
    for name in token:
        if not isinstance(name, (str, bytes)):
            raise _BadToken(f"has {name!r:.40} where a string is needed")
    return token


def attributes(token: Any) -> Iterator[tuple[str, float]]:
    """Attributes of a token and their weights, one by one, nested ones joined by ``:``."""
    if not isinstance(token, dict):
        for name in token:
            yield _text(name), 1.0
        return
    for key, value in token.items():
        name = _text(key)
        if isinstance(value, (str, bytes)):
            yield f"{name}:{_text(value)}", 1.0
        elif isinstance(value, (dict, list, tuple, set, frozenset)):
            for inner, weight in attributes(value):
                yield f"{name}:{inner}", weight
        else:
            yield name, _weight(name, value)


class DictEncoder(Encoder, auto_wrap_output_keys=None):  # type: ignore[call-arg]
    """Features of tokens from dicts or lists, as python-crfsuite and sklearn-crfsuite take them.

    A token is a dict, a list (tuple, set) of strings, or one string:

    ========================= ===========================
    ``{"w": "cat"}``          ``w:cat`` with value 1
    ``{"x": 2.5}``            ``x`` with value 2.5
    ``{"x": True}``           ``x`` with value 1
    ``{"x": False}``          ``x`` with value 0
    ``{"p": {"q": 1}}``       ``p:q`` with value 1
    ``{"p": ["a", "b"]}``     ``p:a`` and ``p:b``
    ``["a", "b"]``            ``a`` and ``b``
    ``"a"``                   ``a``
    ========================= ===========================

    An attribute that a token has twice counts twice. Unlike python-crfsuite, a token that is one
    string is one attribute, not its characters. Tokens are read once, and an attribute's text is
    made once per distinct ``(key, value)``.

    Parameters
    ----------
    min_count : int, default=1
        Drop attributes that fewer training tokens have.
    dtype : {np.float32, np.float64}, default=np.float32
        Type of the values.

    Attributes
    ----------
    vocabulary_ : dict
        Attribute -> column, in the order of first occurrence.
    n_features_out_ : int
        Width of the encoding.

    Examples
    --------
    >>> from hingeline.features import DictEncoder
    >>> encoder = DictEncoder()
    >>> encoder.fit_transform([[{"w": "the", "len": 3}, {"w": "cat"}]]).matrix.toarray()
    array([[1., 3., 0.],
           [0., 0., 1.]], dtype=float32)
    >>> encoder.get_feature_names_out().tolist()
    ['w:the', 'len', 'w:cat']
    """

    def __init__(self, *, min_count: int = 1, dtype: Any = np.float32) -> None:
        self.min_count = min_count
        self.dtype = dtype

    def _learn(self, X: Any) -> SparseSequences:
        return self._extend(X, {})

    def _learn_more(self, X: Any) -> SparseSequences:
        return self._extend(X, self.vocabulary_)

    def _look_up(self, X: Any) -> SparseSequences:
        return self._sequences(*_encode(X, _Atoms(self.vocabulary_, grow=False)))

    def _extend(self, X: Any, vocabulary: dict[str, int]) -> SparseSequences:
        """Encode sentences, and number attributes that are new behind those known."""
        known = len(vocabulary)
        try:
            columns, *rest = _encode(X, _Atoms(vocabulary, grow=True))
        except BaseException:
            _shorten(vocabulary, known)
            raise
        if self.min_count > 1 and len(vocabulary) > known:
            often = np.bincount(columns, minlength=len(vocabulary)) >= self.min_count
            often[:known] = True
            columns = np.where(often, np.cumsum(often) - 1, -1)[columns]
            new = [*islice(reversed(vocabulary), len(vocabulary) - known)][::-1]
            _shorten(vocabulary, known)
            for name, keep in zip(new, often[known:].tolist(), strict=True):
                if keep:
                    vocabulary[name] = len(vocabulary)
        self.vocabulary_ = vocabulary
        self.n_features_out_ = len(vocabulary)
        return self._sequences(columns, *rest)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """The attributes, in the order of their columns; ``input_features`` is ignored."""
        check_is_fitted(self, "vocabulary_")
        names = np.empty(len(self.vocabulary_), dtype=object)
        names[:] = list(self.vocabulary_)
        return names

    def _sequences(
        self, columns: Array, weights: Array, counts: Array, offsets: Array
    ) -> SparseSequences:
        kept = (columns >= 0) & (weights != 0.0)
        if not kept.all():
            tokens = np.repeat(np.arange(len(counts)), counts)
            counts = np.bincount(tokens[kept], minlength=len(counts))
            columns, weights = columns[kept], weights[kept]
        indptr = np.concatenate([[0], np.cumsum(counts)])
        index_dtype = np.int32 if len(columns) < 2**31 else np.int64
        matrix = sp.csr_matrix(
            (
                weights.astype(np.dtype(self.dtype)),
                columns.astype(index_dtype),
                indptr.astype(index_dtype),
            ),
            shape=(len(counts), self.n_features_out_),
        )
        matrix.sum_duplicates()
        return SparseSequences(matrix, offsets)

    def to_state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """The fitted encoder as metadata that JSON can hold, and arrays."""
        meta = {
            **self._describe(),
            "min_count": int(self.min_count),
            "dtype": np.dtype(self.dtype).name,
        }
        names, ends = pack_strings(list(self.vocabulary_))
        return meta, {"attributes": names, "attributes_ends": ends}

    @classmethod
    def from_state(cls, meta: Any, arrays: Any) -> DictEncoder:
        """The encoder that :meth:`to_state` described; ``ValueError`` if that is inconsistent."""
        check_kind(meta, "DictEncoder")
        count = get_meta(meta, "min_count", int, "a number")
        dtype = get_meta(meta, "dtype", str, "float32 or float64")
        if dtype not in ("float32", "float64"):
            raise ValueError(f"the encoder's dtype must be float32 or float64, got {dtype!r:.100}.")
        encoder = cls(min_count=count, dtype=np.dtype(dtype).type)
        encoder._check_parameters()
        return encoder._know(get_strings(arrays, "attributes"))

    @classmethod
    def from_vocabulary(cls, names: Iterable[str]) -> DictEncoder:
        """A fitted encoder whose columns are these attributes, in this order."""
        names = list(names)
        for k, name in enumerate(names):
            if not isinstance(name, str):
                raise TypeError(f"names[{k}] must be a string, got {name!r:.40}.")
        return cls()._know(names)

    def _know(self, names: list[str]) -> DictEncoder:
        self.vocabulary_ = {name: k for k, name in enumerate(names)}
        if len(self.vocabulary_) != len(names):
            raise ValueError("the encoder has an attribute twice: give each once.")
        self.n_features_out_ = len(names)
        return self


def _shorten(vocabulary: dict[str, int], count: int) -> None:
    """Forget the attributes learned last, until so many are left."""
    while len(vocabulary) > count:
        vocabulary.popitem()


def _encode(X: Any, atoms: _Atoms) -> tuple[Array, Array, Array, Array]:
    """Columns and weights of all attributes, attributes of each token, cuts of the sentences."""
    if isinstance(X, (str, bytes, Mapping)) or not hasattr(X, "__iter__"):
        raise TypeError(f"X must be a list of sentences, got {type(X).__name__}.")
    atom = atoms.__getitem__
    found, counts, offsets = array("i"), array("i"), array("q", [0])
    part: list[int] = []  # lists grow faster than arrays, but take more memory
    before = 0
    for i, sentence in enumerate(X):
        if isinstance(sentence, (str, bytes, dict)) or not hasattr(sentence, "__iter__"):
            raise TypeError(
                f"X[{i}] must be a list of tokens, got {type(sentence).__name__}: a sentence is a "
                "list of dicts, of lists of strings or of strings."
            )
        for t, token in enumerate(sentence):
            try:
                if isinstance(token, dict):
                    try:
                        part.extend(map(atom, token.items()))
                    except TypeError:  # a list, set or dict among the values
                        del part[before:]
                        part.extend(atoms.add(*attribute) for attribute in attributes(token))
                elif isinstance(token, (str, bytes)):
                    part.append(atom(token))
                else:
                    part.extend(map(atom, _strings(token)))
            except _BadToken as error:
                raise TypeError(f"token {t} of X[{i}] {error}.") from None
            counts.append(len(part) - before)
            before = len(part)
        offsets.append(len(counts))
        if before > FLUSH:
            found.fromlist(part)
            part.clear()
            before = 0
    found.fromlist(part)
    which = np.array(found, dtype=np.int32)
    columns = np.array(atoms.columns, dtype=np.int32)[which]
    weights = np.array(atoms.weights, dtype=np.float64)[which]
    return columns, weights, np.array(counts, dtype=np.int64), np.array(offsets, dtype=np.int64)
