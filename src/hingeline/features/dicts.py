"""DictEncoder: the feature dicts and lists that python-crfsuite's users have."""

import math
import numbers
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, compress, islice
from typing import Any, Self
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sp
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from sklearn.utils.validation import check_is_fitted

from hingeline._checks import Array, is_list, require, require_type
from hingeline._jit import ask_memory, build_as, helper, kernel
from hingeline.features.input import Encoder, get_strings, pack_strings
from hingeline.features.tables import SparseSequences, renumber


class _BadToken(Exception):
    """What is wrong with a token; its place is added where it is known."""


# Tokens are read by a kernel that holds the GIL and asks the interpreter's own C functions for the
# items of dicts and lists and for hashes, which strings keep; none of these runs Python code, and
# references are borrowed, so that nothing changes meanwhile. An *atom* is a string, or key and
# value of a dict, and known by 64 bits of their hashes: n atoms mix up two with a probability of
# n²/2⁶⁵, 3e-8 for a million. Only types that are exactly str, dict, list, bool or a number listed
# here are read so; a token with anything else is left to :func:`attributes`.

_NUMBERS = (float, int, np.float64, np.float32, np.int64, np.int32, np.bool_)
#: Addresses of what :func:`read_tokens` compares an object or its type with.
_KINDS = np.array([*map(id, (None, True, str, dict, list, bool, *_NUMBERS))], dtype=np.int64)
#: Whether objects are laid out as it expects them.
_READABLE = (
    sys.implementation.name == "cpython"
    and getattr(sys, "_is_gil_enabled", lambda: True)()
    and object.__basicsize__ == 16
    and not config.DISABLE_JIT
)
#: What C calls the types that its functions return.
_C_TYPES = {types.int32: ir.IntType(32), types.int64: ir.IntType(64)}
_C_TYPES |= {types.float64: ir.DoubleType(), types.void: ir.VoidType()}
#: In place of a value's hash: a number, or none at all.
NUMBER, ALONE = 0x5BD1E9955BD1E995, 0x2545F4914F6CDD1D
SPREAD = 0x1E3779B97F4A7C15  # odd, so that no two values of a key fall together
TOGETHER = 2**10  # Sentences that are read together: X may be a generator.
BUFFER = 2**15  # Attributes that one call reads at most.
SHORT = 64  # A row of the matrix with more entries is sorted by SciPy.
MOST_ATOMS = 2**21  # A table with more atoms is not kept for the next call.


def _c_function(name: str, result: Any) -> Any:
    """A function of the interpreter's C interface, of addresses; only kernels can call it."""

    def build(builder: Any, *addresses: Any) -> Any:
        kind = ir.FunctionType(_C_TYPES[result], [ir.IntType(64)] * len(addresses))
        function = cgutils.get_or_insert_function(builder.module, kind, name)
        found = builder.call(function, addresses)
        return None if result == types.void else found

    return build_as(lambda *addresses: None, build, result)


def _load_type(builder: Any, address: Any) -> Any:
    """The address of an object's type: the word behind the count of references."""
    word = ir.IntType(64)
    place = builder.add(address, word(object.__basicsize__ - 8))
    return builder.load(builder.inttoptr(place, word.as_pointer()))


def _ask_memory(builder: Any, address: Any) -> None:
    """Ask for what stands at an address, without waiting for it."""
    ask_memory(builder, builder.inttoptr(address, ir.IntType(8).as_pointer()))


_type_of: Any = build_as(lambda address: None, _load_type, types.int64)
_prefetch: Any = build_as(lambda address: None, _ask_memory, types.void)
_take_gil = _c_function("PyGILState_Ensure", types.int32)
_give_gil_back = _c_function("PyGILState_Release", types.void)
_next_item = _c_function("PyDict_Next", types.int32)
_dict_size = _c_function("PyDict_Size", types.int64)
_list_size = _c_function("PyList_Size", types.int64)
_list_item = _c_function("PyList_GetItem", types.int64)
_hash = _c_function("PyObject_Hash", types.int64)
_float = _c_function("PyFloat_AsDouble", types.float64)
_append = _c_function("PyList_Append", types.int32)
_error = _c_function("PyErr_Occurred", types.int64)
_clear_error = _c_function("PyErr_Clear", types.void)


@helper
def _atom(table: Array, state: Array, key: int) -> int:
    """The number of an atom, which may be a new one; rows of the table are keys and numbers."""
    mask = table.shape[0] - 1
    at = key & mask
    while table[at, 1] > 0:
        if table[at, 0] == key:
            return table[at, 1] - 1
        at = (at + 1) & mask
    state[0] += 1
    table[at, 0] = key
    table[at, 1] = state[0]
    return state[0] - 1


@kernel
def read_tokens(
    kinds: Array,
    sentences: Array,
    at: Array,
    small: Array,
    table: Array,
    state: Array,
    room: Array,
    out: Array,
    weights: Array,
    counts: Array,
    new: Array,
) -> None:
    """Read the lists ``sentences`` from token ``at[1]`` of list ``at[0]`` on, as far as it goes.

    That is until a token needs more than this; ``at`` becomes its place. ``state`` has the numbers
    of atoms, of attributes and of tokens written, ``small`` the rows of a table that became too
    small. ``new`` are the addresses of two lists, which get the keys of new atoms and their values,
    None where these are no strings.
    """
    mask = table.shape[0] - 1
    for row in range(small.shape[0]):
        if small[row, 1] > 0:
            free = small[row, 0] & mask
            while table[free, 1] > 0:
                free = (free + 1) & mask
            table[free, 0] = small[row, 0]
            table[free, 1] = small[row, 1]
    none, true, string, dictionary = kinds[0], kinds[1], kinds[2], kinds[3]
    array, truth = kinds[4], kinds[5]
    item, names, values, keys = room[0], room[1], room[2], room[3]
    where = item.ctypes.data
    gil = np.int64(_take_gil())
    p = 0
    read = 0
    plain = True
    while plain and at[0] < sentences.shape[0]:
        sentence = sentences[at[0]]
        length = _list_size(sentence)
        for t in range(at[1], length):
            _prefetch(_list_item(sentence, t))
        while plain and at[1] < length:
            token = _list_item(sentence, at[1])
            kind = _type_of(token)
            n = 1
            if kind == dictionary:
                n = _dict_size(token)
            elif kind == array:
                n = _list_size(token)
            else:
                plain = kind == string
            if not plain or p + n > len(out) or read == len(counts):
                plain = False
                break
            # In steps for all attributes, so that memory is asked for many objects at a time.
            item[0] = 0
            for j in range(n):
                if kind == dictionary:
                    _next_item(token, where, where + 8, where + 16)
                    names[j] = item[1]
                    values[j] = item[2]
                    _prefetch(item[2])
                else:
                    names[j] = _list_item(token, j) if kind == array else token
                    values[j] = none
            for j in range(n):
                keys[j] = _type_of(values[j])
            for j in range(n):
                value, of = values[j], keys[j]
                second = NUMBER
                weight = 1.0
                if of == string:
                    second = _hash(value)
                elif kind != dictionary:
                    second = ALONE
                elif of == truth:
                    weight = 1.0 if value == true else 0.0
                else:
                    known = False
                    for number in kinds[6:]:
                        known = known or of == number
                    if known:
                        weight = _float(value)
                        known = np.isfinite(weight)
                        if weight == -1.0 and _error() != 0:  # too large
                            _clear_error()
                            known = False
                    plain = plain and known
                if of != string:
                    values[j] = none
                plain = plain and _type_of(names[j]) == string
                if not plain:
                    break
                keys[j] = _hash(names[j]) ^ (second * SPREAD)
                _prefetch(table.ctypes.data + 16 * (keys[j] & mask))
                weights[p + j] = weight
            if plain:
                for j in range(n):
                    before = state[0]
                    out[p + j] = _atom(table, state, keys[j])
                    if state[0] > before:
                        _append(new[0], names[j])
                        _append(new[1], values[j])
                counts[read] = n
                p += n
                read += 1
                at[1] += 1
        if plain:
            at[0] += 1
            at[1] = 0
    state[1] = p
    state[2] = read
    _give_gil_back(gil)


@kernel
def lay_out_rows(
    columns: Array,
    atoms: Array,
    weights: Array,
    counts: Array,
    seen: Array,
    indices: Array,
    data: Array,
    lengths: Array,
) -> int:
    """Write CSR rows without zeros and unknown columns, short ones sorted; the number of entries.

    ``columns`` are those of atoms. ``seen``, if it has entries, counts how often each occurs.
    """
    end = q = 0
    for row in range(counts.shape[0]):
        begin = q
        for p in range(end, end + counts[row]):
            column, weight = columns[atoms[p]], weights[p]
            if column < 0:
                continue
            if len(seen) > 0:
                seen[column] += 1
            if weight == 0.0:
                continue
            k = q
            while k > begin and indices[k - 1] > column and q - begin < SHORT:
                indices[k] = indices[k - 1]
                data[k] = data[k - 1]
                k -= 1
            indices[k] = column
            data[k] = weight
            q += 1
        end += counts[row]
        lengths[row] = q - begin
    return q


class _Atoms:
    """The atoms met so far, and the column of each; −1 where the vocabulary does not have it."""

    def __init__(self, vocabulary: dict[str, int]) -> None:
        self.vocabulary = vocabulary
        self.size = len(vocabulary)  # when the columns were looked up
        self.columns = np.empty(2 * BUFFER, dtype=np.int32)
        self.table = np.zeros((4 * BUFFER, 2), dtype=np.int64)
        self.state = np.zeros(3, dtype=np.int64)
        self.room = np.empty((4, BUFFER), dtype=np.int64)
        self.out = np.empty(BUFFER, dtype=np.int32), np.empty(BUFFER), np.empty(BUFFER, np.int64)

    def serves(self, vocabulary: dict[str, int], grow: bool) -> bool:
        """Whether what is known here is still right."""
        count = int(self.state[0])
        same = self.vocabulary is vocabulary and self.size == len(vocabulary)
        return same and count <= MOST_ATOMS and not (grow and (self.columns[:count] < 0).any())

    def read(self, sentences: Array, at: Array, grow: bool) -> tuple[Array, ...]:
        """Columns of atoms; atoms, weights, attributes of each token, from place ``at`` on."""
        count, small = int(self.state[0]), self.table[:0]
        if count + BUFFER > len(self.columns):
            small, self.table = self.table, np.zeros((2 * len(self.table), 2), dtype=np.int64)
            self.columns = np.resize(self.columns, len(self.table) // 2)
        keys, values = list[str](), list[str | None]()
        new = np.array([id(keys), id(values)], dtype=np.int64)
        known = (small, self.table, self.state, self.room)
        read_tokens(_KINDS, sentences, at, *known, *self.out, new)
        names = [k if v is None else f"{k}:{v}" for k, v in zip(keys, values, strict=True)]
        self.columns[count : count + len(names)] = _columns(self.vocabulary, names, grow)
        _, written, tokens = self.state.tolist()
        atoms, weights, counts = self.out
        return self.columns, atoms[:written], weights[:written], counts[:tokens]


#: Encoder -> the atoms that it met, so that the next call finds them. Hashes differ between
#: processes, and an encoder's attributes should not change when it is used.
_MET: WeakKeyDictionary[Any, _Atoms] = WeakKeyDictionary()


def _columns(vocabulary: dict[str, int], names: list[str], grow: bool) -> list[int]:
    """Columns of attributes; new ones get the next, or −1."""
    if grow:
        return [vocabulary.setdefault(name, len(vocabulary)) for name in names]
    return [vocabulary.get(name, -1) for name in names]


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
    what = f"has a value of type {type(value).__name__} for {name!r}"
    raise _BadToken(f"{what}: use a string, a number, a bool, a dict or a list of strings")


def attributes(token: Any) -> Iterator[tuple[str, float]]:
    """Attributes of a token and their weights, one by one, nested ones joined by ``:``."""
    if not isinstance(token, dict):
        token = (token,) if isinstance(token, (str, bytes)) else token
        what = f"is of type {type(token).__name__}: a token is a dict"
        fine = isinstance(token, (list, tuple, set, frozenset))
        require(fine, f"{what}, a list of strings or a string", _BadToken)
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

    An attribute that a token has twice counts twice. Unlike in python-crfsuite, a token that is a
    string is one attribute, not a list of characters.

    Parameters
    ----------
    min_count : int, default=1; drop attributes of fewer training tokens than this
    dtype : {np.float32, np.float64}, default=np.float32; type of the values

    Attributes
    ----------
    vocabulary_ : dict; attribute -> column, in the order of first occurrence
    n_features_out_ : int; width of the encoding

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

    def _count(self, X: Any) -> tuple[SparseSequences, Array]:
        self.vocabulary_: dict[str, int] = {}
        return self._encode(X, self.vocabulary_, grow=True, count=True)

    def _merge(self, encoders: Sequence[Self], counts: Sequence[Array]) -> list[Array]:
        names = dict.fromkeys(chain.from_iterable(encoder.vocabulary_ for encoder in encoders))
        all_names = self._know([*names]).vocabulary_
        places = [np.array([*map(all_names.get, e.vocabulary_)], np.int64) for e in encoders]
        totals = np.zeros(len(all_names), dtype=np.int64)
        for at, count in zip(places, counts, strict=True):
            totals[at] += count
        often = totals >= self.min_count
        self._know([*compress(names, often.tolist())])
        columns = np.where(often, np.cumsum(often) - 1, -1)
        return [columns[at] for at in places]

    def _look_up(self, X: Any) -> SparseSequences:
        return self._encode(X, self.vocabulary_)[0]

    def _encode(
        self, X: Any, vocabulary: dict[str, int], grow: bool = False, count: bool = False
    ) -> tuple[SparseSequences, Array]:
        """Sentences as rows; how often attributes occur, if they are to be counted."""
        require_type(is_list(X) and not isinstance(X, Mapping), "X", "a list of sentences", X)
        # Taken out meanwhile: another thread makes its own.
        atoms = _MET.pop(self, None)
        if atoms is None or not atoms.serves(vocabulary, grow):
            atoms = _Atoms(vocabulary)
        lengths = list[int]()
        seen = np.zeros(0, dtype=np.int64)
        parts = [(np.empty(0, self.dtype), np.empty(0, np.int32), np.empty(0, np.int64))]
        rest = iter(X)
        while sentences := [*islice(rest, TOGETHER)]:
            if {*map(type, sentences)} != {list}:
                sentences = [_tokens(x, i) for i, x in enumerate(sentences, len(lengths))]
            for columns, found, weights, counts in _read(sentences, len(lengths), atoms, grow):
                if count and len(seen) < len(vocabulary):
                    seen = np.append(seen, np.zeros(len(vocabulary), dtype=np.int64))
                data, indices = np.empty(len(found)), np.empty(len(found), dtype=np.int32)
                sizes = np.empty_like(counts)
                n = lay_out_rows(columns, found, weights, counts, seen, indices, data, sizes)
                parts.append((data[:n].astype(self.dtype), indices[:n].copy(), sizes))
            lengths += map(len, sentences)
        atoms.size = len(vocabulary)
        _MET[self] = atoms
        data, indices, sizes = (np.concatenate(part) for part in zip(*parts, strict=True))
        kind = np.int32 if len(data) < 2**31 else np.int64
        indptr = np.cumsum(np.append(0, sizes), dtype=kind)
        arrays = data, indices.astype(kind, copy=False), indptr
        matrix = sp.csr_matrix(arrays, shape=(len(sizes), len(vocabulary)))
        matrix.sum_duplicates()
        return SparseSequences(matrix, np.cumsum([0, *lengths])), seen[: len(vocabulary)]

    def _learn(self, X: Any, more: bool) -> SparseSequences:
        """Encode sentences, and number attributes that are new behind those known."""
        vocabulary = self.vocabulary_ if more else {}
        known = len(vocabulary)
        try:
            found, seen = self._encode(X, vocabulary, grow=True, count=self.min_count > 1)
        except BaseException:
            _shorten(vocabulary, known)
            raise
        if self.min_count > 1 and len(vocabulary) > known:
            often = seen >= self.min_count
            often[:known] = True
            new = [*islice(reversed(vocabulary), len(vocabulary) - known)][::-1]
            _shorten(vocabulary, known)
            for name in compress(new, often[known:].tolist()):
                vocabulary[name] = len(vocabulary)
            columns = np.where(often, np.cumsum(often) - 1, -1)
            matrix = renumber(found.matrix, columns, len(vocabulary))
            found = SparseSequences(matrix, found.offsets)
        self.vocabulary_ = vocabulary
        return found

    n_features_out_ = property(lambda self: len(self.vocabulary_))

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """The attributes, in the order of their columns; ``input_features`` is ignored."""
        check_is_fitted(self, "vocabulary_")
        return np.array(list(self.vocabulary_), dtype=object)

    def to_state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """The learned state, as metadata that JSON can hold, and arrays."""
        check_is_fitted(self, "vocabulary_")
        return {}, pack_strings("attributes", list(self.vocabulary_))

    def restore(self, meta: Any, arrays: Any) -> Self:
        """Restore what :meth:`to_state` returned; ``ValueError`` if that is inconsistent."""
        self._check_parameters()
        return self._know(get_strings(arrays, "attributes"))

    @classmethod
    def from_vocabulary(cls, names: Iterable[str]) -> Self:
        """A fitted encoder whose columns are these attributes, in this order."""
        names = list(names)
        for k, name in enumerate(names):
            if not isinstance(name, str):
                raise TypeError(f"names[{k}] must be a string, got {name!r:.40}.")
        return cls()._know(names)

    def _know(self, names: list[str]) -> Self:
        self.vocabulary_ = {name: k for k, name in enumerate(names)}
        fine = len(self.vocabulary_) == len(names)
        require(fine, "the encoder has an attribute twice: give each once.")
        return self


def _shorten(vocabulary: dict[str, int], count: int) -> None:
    """Forget the attributes learned last, until so many are left."""
    while len(vocabulary) > count:
        vocabulary.popitem()


def _tokens(sentence: Any, i: int) -> list[Any]:
    if not is_list(sentence):
        what = f"X[{i}] must be a list of tokens, got {type(sentence).__name__}: a sentence is"
        raise TypeError(f"{what} a list of dicts, of lists of strings or of strings.")
    return [*sentence]


def _read(
    sentences: list[list[Any]], first: int, atoms: _Atoms, grow: bool
) -> Iterator[tuple[Array, ...]]:
    """Tokens in pieces, as atoms read them; ``first`` is the first sentence's number."""
    addresses = np.fromiter(map(id, sentences), dtype=np.int64, count=len(sentences))
    at = np.zeros(2, dtype=np.int64)  # a sentence and a token of it
    run = 1 if _READABLE else BUFFER  # tokens read in Python before the kernel tries again
    while True:
        if _READABLE:
            yield (piece := atoms.read(addresses, at, grow))
            run = 1 if len(piece[-1]) > run else 2 * run
        i, t = at.tolist()
        if i == len(sentences):
            return
        found = list[tuple[str, float]]()
        counts = list[int]()
        for token in sentences[i][t : t + run]:
            before = len(found)
            try:
                found.extend(attributes(token))
            except _BadToken as error:
                raise TypeError(f"token {t + len(counts)} of X[{first + i}] {error}.") from None
            counts.append(len(found) - before)
        columns = _columns(atoms.vocabulary, [name for name, _ in found], grow)
        weights = np.array([weight for _, weight in found], dtype=np.float64)
        each = np.arange(len(found), dtype=np.int32)
        yield np.array(columns, dtype=np.int32), each, weights, np.array(counts, dtype=np.int64)
        t += len(counts)
        at[:] = (i, t) if t < len(sentences[i]) else (i + 1, 0)
