"""From what people have, text, dicts or numbers, to stacked tokens, and what encoders share."""

import contextlib
import numbers
from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import chain, pairwise
from operator import attrgetter
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted

from hingeline import _checks as checks
from hingeline._checks import Array, is_list, is_missing, require, require_type, show
from hingeline._files import pack_texts, unpack_texts
from hingeline.features.tables import CSR, SparseSequences, TokenTable, is_empty

_DECLARE = "pass all labels as classes= at the first call"


def check_lengths(lengths: Any, n_tokens: int) -> Array:
    """Lengths of the sequences of a stacked matrix, as offsets."""
    try:
        array = np.asarray(lengths)
    except ValueError:  # lists of different lengths
        array = np.empty((0, 0))
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TypeError("lengths must be a vector of integers, one per sequence.")
    require(len(array) != 0, "lengths is empty: there are no sequences.")
    for i in np.flatnonzero(array <= 0):
        raise ValueError(f"lengths[{i}] is {array[i]}: drop empty sequences.")
    what = f"lengths sum to {int(array.sum())}, but X has {n_tokens} rows"
    require(array.sum() == n_tokens, f"{what}: they must agree.")
    return np.concatenate([[0], np.cumsum(array)]).astype(np.int64)


def stack_sequences(X: Any, lengths: Any = None) -> tuple[sp.csr_matrix, Array]:
    """All tokens as CSR rows, and the offsets of the sequences."""
    if isinstance(X, SparseSequences):
        require(lengths is None, "X is cut into sequences already: leave lengths out.")
        for k in np.flatnonzero(X.lengths == 0):
            raise ValueError(f"X[{k}] is an empty sequence: drop it.")
        require(len(X), "X is empty: there are no sequences.")
        return checks.numeric_matrix(X.matrix, "X"), X.offsets
    if lengths is not None:
        matrix = _token_rows(X, "X")
        return matrix, check_lengths(lengths, matrix.shape[0])
    if sp.issparse(X) or (isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype != object):
        one = "sparse matrix" if sp.issparse(X) else "two-dimensional array"
        what = f"X is one {one}: pass lengths= to say where its sequences end, or a list of"
        raise ValueError(f"{what} {'matrices' if sp.issparse(X) else 'arrays'}, one per sequence.")
    if not (is_list(X) and hasattr(X, "__len__")):
        how = ": pass list(X)" if hasattr(X, "__next__") else ""
        raise TypeError(f"X must be a list of sequences, got {type(X).__name__}{how}.")
    require(len(X) != 0, "X is empty: there are no sequences.")
    at_once = _stack_at_once(X)
    if at_once is not None:
        return at_once
    parts: list[Any] = []
    for i, x in enumerate(X):
        part = None if is_empty(x) else _token_rows(x, f"X[{i}]")
        if part is None or part.shape[0] == 0:
            raise ValueError(f"X[{i}] is an empty sequence: drop it.")
        if parts and part.shape[1] != parts[0].shape[1]:
            what = f"X[{i}] has {part.shape[1]} features, but X[0] has {parts[0].shape[1]}"
            raise ValueError(f"{what}: all sequences must have the same features.")
        parts.append(part)
    return _stack_csr(parts)


def _token_rows(x: Any, where: str) -> sp.csr_matrix:
    """Tokens as rows of numbers; integers alone are numbers of words, as other libraries take."""
    if isinstance(x, (list, tuple, np.ndarray)) and is_list(x) and len(x):
        what = f"{where} holds the number {show(x[0])} as a token"
        how = "pass strings if numbers stand for words, or a list of features for each token"
        require(not isinstance(x[0], numbers.Integral), f"{what}: {how}.")
    return checks.numeric_matrix(x, where)


def _stack_at_once(X: Any) -> tuple[sp.csr_matrix, Array] | None:
    """Sequences that are all CSR or all dense, of one width, stacked and checked together.

    None where anything is unusual: the thorough way, one by one, then finds out what.
    """
    sparse = {*map(type, X)} <= CSR
    if not sparse and not all(isinstance(x, np.ndarray) and x.dtype.kind in "fiub" for x in X):
        return None
    try:
        stacked, offsets = _stack_csr(X) if sparse else (np.concatenate(X), _offsets(X))
        usual = stacked.ndim == 2 and np.diff(offsets).all()
        return (checks.numeric_matrix(stacked, "X"), offsets) if usual else None
    except (BufferError, TypeError, ValueError):
        return None


def _offsets(arrays: Any) -> Array:
    """Where arrays begin and end that stand in a row."""
    return np.cumsum(np.fromiter(chain([0], map(len, arrays)), np.int64, len(arrays) + 1))


def _join(arrays: Sequence[Array]) -> Array:
    """Arrays in a row; where they are many, small and of one type, as bytes, far sooner."""
    kinds = {*map(attrgetter("dtype"), arrays)}
    if len(kinds) > 1 or arrays[0].dtype.hasobject:
        return np.concatenate(arrays)
    return np.frombuffer(bytearray().join(arrays), arrays[0].dtype)  # type: ignore[arg-type]


def _stack_csr(matrices: Any) -> tuple[sp.csr_matrix, Array]:
    """Matrices below each other, and their offsets; far faster than ``scipy.sparse.vstack``."""
    # One walk over the matrices: they lie anywhere in memory, and that is what takes the time.
    read = attrgetter("indptr", "data", "indices", "shape")
    each, values, columns, shapes = zip(*map(read, matrices), strict=True)
    own, cuts, data, indices = _join(each), _offsets(each), _join(values), _join(columns)
    sizes = own[cuts[1:] - 1].astype(np.int64)
    whole = len(data) == len(indices) == sizes.sum() and not own[cuts[:-1]].any()
    widths = {shape[1:] for shape in {*shapes}}
    if not whole or len(widths) != 1:
        raise ValueError("matrices with room to spare, or of several widths.")
    kind = indices.dtype if len(data) < 2**31 else np.int64  # SciPy copies where types differ
    indptr = own.astype(kind) + np.repeat((np.cumsum(sizes) - sizes).astype(kind), np.diff(cuts))
    kept = np.ones(len(own), dtype=bool)
    kept[cuts[1:-1]] = False  # these repeat the end of the matrix before
    parts = data, indices, indptr[kept]
    shape = (len(own) - len(each), *widths.pop())
    return sp.csr_matrix(parts, shape=shape), cuts - np.arange(len(cuts))


def with_constant(matrix: sp.csr_matrix) -> sp.csr_matrix:
    """A column of ones appended; faster than ``scipy.sparse.hstack``, most of all for few rows."""
    (n, d), total = matrix.shape, len(matrix.data) + matrix.shape[0]
    kind = matrix.indptr.dtype if total < 2**31 else np.dtype(np.int64)
    indptr = matrix.indptr + np.arange(n + 1, dtype=kind)
    old = np.ones(total, dtype=bool)
    old[indptr[1:] - 1] = False
    data, indices = np.ones(total, matrix.data.dtype), np.full(total, d, matrix.indices.dtype)
    data[old], indices[old] = matrix.data, matrix.indices
    return sp.csr_matrix((data, indices, indptr), shape=(n, d + 1))


def stack_labels(
    y: Any, offsets: Array, lengths: Any = None, words: tuple[str, str] = ("sequence", "token")
) -> list[Any]:
    """All labels in one list, checked against the sequences, or what ``words`` calls them."""
    whole, part = words
    require(offsets[-1] > 0, f"X has no {part}s: there is nothing to compare with y.")
    if lengths is not None:
        flat = plain_labels(y)
        what = f"y has {len(flat)} labels, but X has {offsets[-1]} rows"
        require(len(flat) == offsets[-1], f"{what}: one label per row.")
        return flat
    listed = is_list(y) and hasattr(y, "__len__") and not hasattr(y, "columns")
    require_type(listed, "y", "a list of label sequences", y)
    y = y.to_list() if hasattr(y, "to_list") else y
    what = f"X has {len(offsets) - 1} {whole}s and y has {len(y)}"
    if len(y) == offsets[-1] and not isinstance(y[0], (list, tuple, np.ndarray)):
        how = f"cut y like X, one list for each {whole}"
        raise ValueError(f"{what} labels, one for each {part}: {how}.")
    require(len(y) == len(offsets) - 1, f"{what}: there must be as many.")
    flat = []
    for i, (labels, n) in enumerate(zip(y, np.diff(offsets).tolist(), strict=True)):
        if hasattr(labels, "to_list") or hasattr(labels, "__array__"):
            labels = labels.to_list() if hasattr(labels, "to_list") else np.asarray(labels)
        if isinstance(labels, (str, bytes)) or not isinstance(labels, (Sequence, np.ndarray)):
            how = f"a list of {n} labels, one for each {part} of X[{i}]"
            raise TypeError(f"y[{i}] is {labels!r:.40}, expected {how}.")
        if isinstance(labels, np.ndarray) and labels.ndim > 1:
            what = f"y[{i}] has shape {labels.shape}, expected {n} labels in one dimension"
            raise ValueError(f"{what}: pass y[{i}].ravel().")
        if len(labels) != n:
            what = f"X[{i}] has {n} {part}s and y[{i}] has {len(labels)} labels"
            raise ValueError(f"{what}: they must have the same length.")
        flat.extend(labels.tolist() if isinstance(labels, np.ndarray) else labels)
    return plain_labels(flat)


def plain_labels(labels: Any) -> list[Any]:
    """Labels as a list of Python objects: NumPy's own scalars compare and hash differently."""
    flat = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    if any(issubclass(kind, np.generic) for kind in set(map(type, flat))):
        flat = [label.item() if isinstance(label, np.generic) else label for label in flat]
    return flat


def find_classes(labels: list[Any], offsets: Array | None = None) -> tuple[Array, Array]:
    """The distinct labels, sorted where they can be, and the number of each of the given ones."""
    try:
        distinct = list(dict.fromkeys(labels))
    except TypeError as error:
        how = "labels are text or numbers, y[i][t] that of token t of X[i]"
        raise TypeError(f"y holds a label that is not hashable ({error}): {how}.") from None
    for label in distinct:
        if is_missing(label):
            where = "y holds"
            if offsets is not None:
                at = next(t for t, other in enumerate(labels) if is_missing(other))
                i = int(np.searchsorted(offsets, at, side="right")) - 1
                where = f"y[{i}][{at - int(offsets[i])}] is"
            raise ValueError(f"{where} {label!r}: every token needs a label.")
    with contextlib.suppress(TypeError):  # mixed types stay in the order of first occurrence
        distinct.sort()
    if distinct[:1] == [-100] and distinct[1:2] != [-99]:
        how = "cut the padding off, or these tokens are learnt as a label of their own"
        checks.warn(f"y holds -100, which other libraries ignore: {how}.")
    classes = np.empty(len(distinct), dtype=object)
    classes[:] = distinct
    with contextlib.suppress(ValueError):  # tuples beside texts
        if (plain := np.asarray(distinct)).ndim == 1 and plain.tolist() == distinct:
            classes = plain
    return classes, number_labels(labels, classes)


def number_labels(labels: list[Any], classes: Array, how: str = _DECLARE) -> Array:
    """The numbers of labels; a ``ValueError`` names one that has none, and ``how`` to go on."""
    index = {label: k for k, label in enumerate(classes.tolist())}
    try:
        return np.fromiter(map(index.__getitem__, labels), dtype=np.int32, count=len(labels))
    except KeyError as error:
        what = f"y holds {error.args[0]!r}, which is not among classes_"
        raise ValueError(f"{what}: {how}.") from None


def _plain(X: Any, lengths: Any = None) -> Any:
    """Columns of frames as lists, frames of single sequences as arrays or lists of tuples."""
    if lengths is None and hasattr(X, "columns"):
        how = "hingeline.features.from_frame(frame, group=..., label=...)"
        row = ", or pass the column that holds a list of tokens in each row"
        raise TypeError(f"X is a frame: cut it into sequences with {how}{row}.")
    if hasattr(X, "groups") and hasattr(X, "agg"):
        how = "frame.groupby(sentence)[column].agg(list)"
        raise TypeError(f"X is a frame in groups: pass the lists of one column, {how}.")
    what = "X is one string: pass a list of sequences, each a list of tokens, such as [X.split()]."
    require(not isinstance(X, str), what, TypeError)
    how = "X is a list of sequences, [X] if it is a single one"
    if hasattr(X, "to_list"):
        X, how = X.to_list(), "cut the column, such as frame.groupby(sentence)[column].agg(list)"
    if lengths is not None or not isinstance(X, (list, tuple)):
        return X
    if {*map(type, X)} <= {*CSR, list, tuple, np.ndarray}:  # nearly always
        return X
    X = [_plain_sequence(x) if hasattr(x, "to_numpy") else x for x in X]
    for i, x in enumerate(X):
        if isinstance(x, str) and len(x.split()) > 1:
            raise TypeError(f"X[{i}] is one string: cut it into tokens, such as X[{i}].split().")
        if isinstance(x, dict) and (lists := [name for name in x if is_list(x[name])]):
            what = f"X[{i}] is a dict with the lists {', '.join(map(repr, lists)):.80}"
            how = "of a sentence, pass one, X=[x[name] for x in X]; of one token, pass [X]"
            raise TypeError(f"{what}: {how}.")
        if isinstance(x, (str, bytes, dict, numbers.Real)):
            what = f"X[{i}] is {x!r:.40}, one token or number, not a sequence of tokens"
            raise TypeError(f"{what}: {how}.")
    return X


def _plain_sequence(x: Any) -> Any:
    """A sequence that is a column or a frame of its own, as ``groupby`` gives them."""
    values = x.to_numpy()
    if values.dtype.kind in "fiub" or values.ndim == 1:
        return values if values.dtype.kind in "fiub" else values.tolist()
    what = "a sequence is a frame with texts and numbers: keep its columns of texts, or of numbers"
    require(len({isinstance(value, str) for value in values[:1].ravel()}) < 2, f"{what}.")
    return [*map(tuple, values.tolist())]


def frame_names(X: Any) -> Array | None:
    """The names of the columns where X is a frame, or a list of them with the same columns."""
    frames = [X] if hasattr(X, "columns") else X
    if not isinstance(frames, (list, tuple)) or not frames or not hasattr(frames[0], "columns"):
        return None
    names = [*map(str, frames[0].columns)]
    for i, x in enumerate(frames):
        own = [*map(str, getattr(x, "columns", names))]
        what = f"X[{i}] has the columns {', '.join(own)}, but X[0] has {', '.join(names)}"
        require(own == names, f"{what}: all frames must have the same columns.")
    return np.array(names, dtype=object)


def learn_tokens(features: Any, X: Any, lengths: Any) -> tuple[Any, sp.csr_matrix, Array]:
    """The fitted encoder (None for numbers), all tokens as CSR rows, the offsets of sequences."""
    encoder, X = choose_encoder(features, X, lengths)
    if encoder is None:
        return None, *stack_sequences(X, lengths)
    return encoder, *stack_sequences(encoder.fit_transform(cut(X, lengths)))


def choose_encoder(features: Any, X: Any, lengths: Any = None) -> tuple[Any, Any]:
    """An encoder that is not fitted (None for numbers), a clone of the one given; plain input."""
    encodes = hasattr(features, "fit_transform") and hasattr(features, "transform")
    if features is not None and (isinstance(features, type) or not encodes):
        raise TypeError(f"features must be an encoder such as TokenTemplates(), got {features!r}.")
    X = _plain(X, lengths)
    return (_choose_encoder(X, lengths) if features is None else clone(features)), X


def known_tokens(encoder: Any, X: Any, lengths: Any, grow: bool = False) -> tuple[Any, Array]:
    """Tokens as CSR rows by a fitted encoder, which may grow; features that are ready stay such."""
    X = _plain(X, lengths)
    if encoder is None or _is_ready(encoder, X, lengths):
        return stack_sequences(X, lengths)
    learns = grow and hasattr(encoder, "partial_fit_transform")
    encode = encoder.partial_fit_transform if learns else encoder.transform
    return stack_sequences(encode(cut(X, lengths)))


def _is_ready(encoder: Any, X: Any, lengths: Any) -> bool:
    """Whether X are features already, not what the encoder reads."""
    if not isinstance(encoder, Encoder) or _choose_encoder(X, lengths) is not None:
        return False
    first = X[0] if isinstance(X, (list, tuple)) and X else X
    return isinstance(first, (SparseSequences, np.ndarray)) or sp.issparse(first)


def name_reader(encoder: Any) -> str:
    """What a model reads that was given numbers, to be said after what is wrong with these."""
    known = {"TokenTemplates": "words", "DictEncoder": "dicts or lists of features"}
    kind = known.get(type(encoder).__name__, "what its encoder takes")
    return "" if encoder is None else f": the model reads {kind}, and X holds numbers"


def refuse_words(encoder: Any, X: Any, lengths: Any) -> None:
    """Refuse words where features were learned from dicts or lists: none would be known."""
    if lengths is None and type(encoder).__name__ == "DictEncoder" and isinstance(X, (list, tuple)):
        sentence = X[0] if len(X) else ()
        if isinstance(sentence, (list, tuple)) and sentence and isinstance(sentence[0], str):
            what = f"X[0][0] is {sentence[0]!r:.40}, a word"
            how = "the model was fitted on features of tokens; make them for new tokens, too"
            raise TypeError(f"{what}, but {how}.")


def _choose_encoder(X: Any, lengths: Any) -> Any:
    """The encoder for X, from its first token that tells; None for numbers.

    Words, alone or in columns (tuples, or lists that are all as long), go through templates; dicts,
    sets and lists of named features (``"suffix=ing"``) or of any number of them are features.
    """
    from hingeline.features.dicts import DictEncoder
    from hingeline.features.templates import TokenTemplates

    if isinstance(X, TokenTable):
        return TokenTemplates()
    numeric = isinstance(X, np.ndarray) and X.dtype.kind not in "OU"
    if numeric or not isinstance(X, (list, tuple, np.ndarray)):
        return None
    sentences = cut(X, lengths)
    for sentence in sentences:
        if sp.issparse(sentence) or not is_list(sentence) or isinstance(sentence, Mapping):
            return None  # not a list of tokens; the check of sequences says so
        for token in sentence:
            if token is None or (isinstance(token, float) and token != token):
                continue  # a missing word, which the check of words names
            if isinstance(token, str):
                return TokenTemplates()
            if isinstance(token, (bytes, dict, set, frozenset)):
                return _without_words(sentences, DictEncoder())
            if not isinstance(token, (list, tuple)):
                return None
            if len(token):
                if not isinstance(token[0], (str, bytes)):
                    return None
                columns = isinstance(token, tuple) or _are_columns(sentences, len(token))
                return TokenTemplates() if columns else _without_words(sentences, DictEncoder())
    return None


def _without_words(sentences: Any, encoder: Any) -> Any:
    """The encoder, unless words stand beside lists or dicts of features."""
    whole = (sentence for sentence in sentences if isinstance(sentence, (list, tuple)))
    if str in {*map(type, chain.from_iterable(whole))}:
        how = "give every token as a string, or each as its features"
        raise TypeError(f"{name_two_kinds(sentences)}: {how}.")
    return encoder


def name_two_kinds(X: Any) -> str:
    """The first token of X that is a string, and the first that is none."""
    tokens = [(i, t, token) for i, x in enumerate(X) if is_list(x) for t, token in enumerate(x)]
    first = [next(at for at in tokens if isinstance(at[2], str) == text) for text in (True, False)]
    return ", but ".join(f"X[{i}][{t}] is {show(token)}" for i, t, token in first)


def _are_columns(sentences: Any, width: int) -> bool:
    """Whether lists of strings are columns of a table, not features: as many, and without names."""
    tokens = [token for sentence in sentences if is_list(sentence) for token in sentence]
    if any(not isinstance(token, list) or len(token) != width for token in tokens):
        return False
    named = (any(isinstance(x, str) and "=" in x[1:-1] for x in token) for token in tokens)
    return not all(named)


def cut(X: Any, lengths: Any) -> Any:
    """Stacked tokens as sequences."""
    if lengths is None:
        return X
    cut = isinstance(X, (TokenTable, SparseSequences))
    require(not cut, "X is cut into sequences already: leave lengths out.")
    offsets = check_lengths(lengths, X.shape[0] if hasattr(X, "shape") else len(X))
    return [X[lo:hi] for lo, hi in pairwise(offsets.tolist())]


class Encoder(  # type: ignore[call-arg]
    TransformerMixin, BaseEstimator, auto_wrap_output_keys=None
):
    """Encodes sentences as sparse tokens, by features that are learned from sentences.

    A subclass has the parameters ``min_count`` and ``dtype``, and ``_learn`` and ``_look_up``,
    which take sentences and return them encoded; the second argument of ``_learn`` says whether to
    keep known features. ``to_state`` returns what was learned, for ``restore`` of an equal encoder.
    """

    def fit(self, X: Any, y: Any = None) -> Any:
        """Learn the features of sentences, given as the class takes them; y is ignored."""
        self.fit_transform(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> SparseSequences:
        """Learn the features of sentences and encode them in the same pass; see :meth:`fit`."""
        self._check_parameters()
        return self._learn(X, False)

    def transform(self, X: Any) -> SparseSequences:
        """Encode sentences by the known features; others are left out."""
        check_is_fitted(self, "n_features_out_")
        return self._look_up(X)

    def partial_fit_transform(self, X: Any) -> SparseSequences:
        """Encode sentences and learn new features; known ones keep their columns.

        New features get columns after the known ones, if at least ``min_count`` tokens of these
        sentences have them. Hashed features already have their columns.
        """
        if not hasattr(self, "n_features_out_"):
            return self.fit_transform(X)
        return self._learn(X, True)

    def count(self, X: Any) -> tuple[Self, SparseSequences, Array]:
        """Learn all features of one block of data; those of all blocks are then merged.

        Returns a fitted clone that knows all features of X (which may be empty), X encoded by it,
        and how often each column occurs, in the sense of ``min_count``.
        """
        check_mergeable(self)
        encoder = clone(self)
        encoder._check_parameters()
        encoder.min_count = 1
        found, counts = encoder._count(X)
        encoder.min_count = self.min_count
        return encoder, found, counts

    def set_output(self, *, transform: Any = None) -> Self:
        """Refuse frames: encoders return sequences of sparse tokens, which frames cannot hold."""
        what = f"{type(self).__name__} gives sequences of sparse tokens, not a table of {transform}"
        how = "leave set_output out; transform(X).matrix is a matrix of all tokens"
        require(transform in (None, "default"), f"{what}: {how}.")
        return self

    def _check_parameters(self) -> None:
        checks.whole_number("min_count", self.min_count, 1)
        dtype = self.dtype
        with contextlib.suppress(TypeError):
            if dtype is not None and np.dtype(dtype).name in ("float32", "float64"):
                return
        raise ValueError(f"dtype must be np.float32 or np.float64, got {dtype!r}.")


def check_mergeable(encoder: Any) -> None:
    """Refuse an encoder that cannot learn from blocks of data, one by one."""
    if not isinstance(encoder, Encoder) or not hasattr(encoder, "_merge"):
        what = f"{type(encoder).__name__} cannot learn its features from blocks of data"
        how = "TokenTemplates (hash_bits= learns none) or DictEncoder, or fit it beforehand"
        raise ValueError(f"{what}: use {how} and pass the numbers that it gives.")


def _stack_rows(X: Any) -> tuple[Any, Array | None]:
    """The tokens of sequences, and where these begin; None where X are rows, not sequences."""
    if isinstance(X, SparseSequences):
        return X.matrix, X.offsets
    if not isinstance(X, (list, tuple, np.ndarray)) or not len(X):
        return X, None
    if not sp.issparse(X[0]) and np.ndim(X[0]) != 2:
        return X, None
    frames = hasattr(X[0], "columns")  # of pandas or polars
    parts = [part if frames or sp.issparse(part) else np.asarray(part) for part in X]
    for i, part in enumerate(parts):
        if len(part.shape) != 2 or part.shape[1] != parts[0].shape[1]:
            what = f"X[{i}] has shape {part.shape}, but X[0] has {parts[0].shape}"
            form = "an array (tokens, features), all with the same features"
            raise ValueError(f"{what}: a sequence is {form}.")
    offsets = np.cumsum([0, *(part.shape[0] for part in parts)])
    if frames:
        return concat_frames(parts), offsets
    sparse = any(sp.issparse(part) for part in parts)
    return sp.vstack(parts, format="csr") if sparse else np.concatenate(parts), offsets


def concat_frames(frames: Any) -> Any:
    """Frames of pandas or polars, one below the other."""
    return import_module(type(frames[0]).__module__.partition(".")[0]).concat(frames)


class PerToken(  # type: ignore[call-arg]
    TransformerMixin, BaseEstimator, auto_wrap_output_keys=None
):
    """A transformer of rows, applied to the tokens of sequences.

    With :class:`sklearn.preprocessing.PolynomialFeatures` of degree 2, which makes of each token x
    ``(1, x, upper triangle of x xᵀ)``, a chain has the emissions of a Gaussian hidden Markov model:
    a linear score of these is any quadratic function of x. The 1 is the constant that
    ``ChainSSVM(fit_intercept=True)`` would add.

    Parameters
    ----------
    transformer : scikit-learn transformer
        Fitted on all tokens, one row each; a list of label sequences becomes one label per row.

    Attributes
    ----------
    transformer_ : the fitted transformer

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.preprocessing import StandardScaler
    >>> from hingeline.features import PerToken
    >>> X = [np.array([[1.0], [3.0]]), np.array([[2.0]])]
    >>> PerToken(StandardScaler(with_std=False)).fit_transform(X)
    [array([[-1.],
           [ 1.]]), array([[0.]])]
    >>> from sklearn.preprocessing import PolynomialFeatures
    >>> PerToken(PolynomialFeatures(2)).fit_transform([np.array([[2.0, 3.0]])])
    [array([[1., 2., 3., 4., 6., 9.]])]
    """

    def __init__(self, transformer: Any) -> None:
        self.transformer = transformer

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the transformer on all tokens.

        X is a list of arrays, sparse matrices or frames (tokens, features), or SparseSequences;
        y is None or a list of label sequences.
        """
        tokens, offsets = _stack_rows(X)
        if y is not None and offsets is not None:
            y = [label for labels in y for label in labels]
        self.transformer_ = clone(self.transformer).fit(tokens, y)
        return self

    def transform(self, X: Any) -> Any:
        """Transform all tokens and cut them into sequences again."""
        check_is_fitted(self, "transformer_")
        tokens, offsets = _stack_rows(X)
        new = self.transformer_.transform(tokens)
        if offsets is None:
            return new
        if sp.issparse(new):
            return SparseSequences(new, offsets)
        if hasattr(new, "columns"):
            return [new[lo:hi] for lo, hi in pairwise(offsets.tolist())]
        return np.split(np.asarray(new), offsets[1:-1])

    def set_output(self, *, transform: Any = None) -> Self:
        """Return a frame ("pandas", "polars") per sequence, as scikit-learn's transformers do."""
        for inner in (self.transformer, getattr(self, "transformer_", self.transformer)):
            inner.set_output(transform=transform)
        return self

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """The names that the transformer gives."""
        check_is_fitted(self, "transformer_")
        return np.asarray(self.transformer_.get_feature_names_out(input_features), dtype=object)


def pack_strings(name: str, texts: Sequence[str]) -> dict[str, Array]:
    """Texts as UTF-8 bytes in one array ``name``, and the end of each in ``name_ends``."""
    return dict(zip((name, f"{name}_ends"), pack_texts(texts), strict=True))


def get_array(arrays: Mapping[str, Any], name: str, dtype: Any) -> Array:
    """A one-dimensional array of this very dtype."""
    require(isinstance(arrays, Mapping) and name in arrays, f"the encoder has no array {name!r}.")
    array = arrays[name]
    if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype != np.dtype(dtype):
        raise ValueError(f"array {name!r} of the encoder must be a vector of {np.dtype(dtype)}.")
    return array


def get_ends(arrays: Mapping[str, Any], name: str, total: int) -> Array:
    """Ends of consecutive pieces: not falling, and ending at ``total``."""
    ends = get_array(arrays, name, np.int64)
    rises = (ends[1:] >= ends[:-1]).all() and ends.min(initial=0) == 0
    rises = rises and ends.max(initial=0) == total
    require(rises, f"array {name!r} of the encoder must rise from 0 to {total}.")
    return ends


def get_strings(arrays: Mapping[str, Any], name: str) -> list[str]:
    """The texts that :func:`pack_strings` packed."""
    data, ends = get_array(arrays, name, np.uint8), get_array(arrays, f"{name}_ends", np.int64)
    with checks.retell(f"array {name!r} of the encoder holds no UTF-8 texts: ", "."):
        return unpack_texts(data, ends)


def get_meta(meta: Any, name: str, kind: type | tuple[type, ...], what: str) -> Any:
    """An entry of the metadata with its type checked."""
    require(isinstance(meta, Mapping), "the encoder's metadata must be a mapping.")
    value = meta.get(name)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"the encoder's metadata need {name!r}, {what}, got {value!r:.100}.")
    return value
