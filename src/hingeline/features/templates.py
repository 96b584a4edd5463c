"""TokenTemplates: features of tokens from templates over their columns."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from hingeline._checks import check_dtype, check_min_count
from hingeline.features.growing import GrowingVocabulary, Hasher
from hingeline.features.state import check_kind, get_meta
from hingeline.features.tables import SparseSequences, TokenTable, sequences_from_columns
from hingeline.features.template_text import parse_templates
from hingeline.features.vocabulary import Vocabulary

Array = np.ndarray[Any, Any]

#: Column numbers are int32.
MOST_BITS = 30


def default_templates(n_columns: int) -> list[str]:
    """The templates of ``templates="default"``, by column number.

    Kept small: on held-out training sentences of CoNLL-2000, prefixes, lower case and flags beside
    tags moved chunk F1 by less than 0.1 either way and cost time; without tags (parts of speech of
    UD English) prefixes and lower case do help.
    """
    templates = [f"0[{o}]" for o in (-2, -1, 0, 1, 2)] + ["0[-1]|0[0]", "0[0]|0[1]"]
    templates += ["shape(0[0],collapse)", *(f"suffix(0[0],{k})" for k in (2, 3, 4))]
    if n_columns == 1:
        templates += ["lower(0[0])", *(f"prefix(0[0],{k})" for k in (1, 2, 3))]
    else:
        tags = [f"1[{o}]" for o in (-2, -1, 0, 1, 2)]
        for width in (1, 2, 3):
            templates += ["|".join(tags[k : k + width]) for k in range(6 - width)]
    return templates


class TokenTemplates(  # type: ignore[call-arg]
    TransformerMixin, BaseEstimator, auto_wrap_output_keys=None
):
    """Features of tokens from templates over their columns.

    Every template gives each token at most one feature, of value 1: what the template's terms
    are there. Columns are encoded as a whole, and functions of words are computed once per
    distinct word, so that a corpus takes a fraction of a second.

    Parameters
    ----------
    templates : "default", str or list of str
        A list of templates, or the text of a CRF++ or Wapiti template file; see Notes. The
        default reads the first two columns only: words at −2…2, pairs with the neighbours, shape
        and suffixes of 2 to 4 characters; of a second column values, pairs and triples within
        −2…2; with no second column also lower case and prefixes of 1 to 3 characters.
    min_count : int, default=1
        Drop features that fewer training tokens have.
    hash_bits : int, optional
        Instead of a vocabulary, hash features into ``2**hash_bits`` columns (at most 2³⁰); the
        hash, 64 bits from BLAKE2b digests, is stable across runs, machines and versions.
        Features that share a column add up. Values not seen in training count, too.
    dtype : {np.float32, np.float64}, default=np.float32
        Type of the values.

    Attributes
    ----------
    templates_ : list of str
        The templates in use.
    column_names_ : tuple of str
        Names of the columns at ``fit``.
    n_features_out_ : int
        Width of the encoding.
    hash_collisions_ : int
        With ``hash_bits``: distinct features of the training data minus columns they fill.

    Notes
    -----
    A template in a list is terms joined by ``|``. A term is a column by name or number with a
    position relative to the token, ``word[-1]``, or a function of a term:

    ``lower(t)``, ``upper(t)``
        Without case.
    ``prefix(t,n)``, ``suffix(t,n)``
        The first or last n characters; nothing if there are fewer.
    ``shape(t)``, ``shape(t,collapse)``
        Characters replaced by X, x, d (capital, other letter, digit); collapsed: runs as one.
    ``isdigit(t)``, ``isupper(t)``, ``istitle(t)``, ``match(t,'regex')``
        Tests; a feature only where they hold (``re.search``).
    ``find(t,'regex')``
        The first piece of text that matches; nothing if none does.

    A place outside the sentence has the value ``_B-1``, ``_B-2``, … before and ``_B+1``, …
    behind it; a test fails there. A conjunction with a term that has nothing gives no feature.

    In the text of a file, ``U`` lines are templates with ``%x[row,column]``, Wapiti's ``%X`` and
    ``%t``/``%m`` with its regular expressions; ``#`` starts a comment. A plain ``B`` is accepted:
    a chain always has label pairs. Lines with the same text but for their rows share features.

    At ``transform`` columns are found by name, or by position where the names differ and the
    number of columns does not. Features not seen at ``fit`` are left out.

    Examples
    --------
    >>> from hingeline.features import TokenTemplates
    >>> encoder = TokenTemplates(["word[-1]|word[0]", "suffix(word[0],2)"])
    >>> X = encoder.fit_transform([["the", "cat"]])
    >>> X.matrix.toarray()
    array([[0., 1., 1., 0.],
           [1., 0., 0., 1.]], dtype=float32)
    >>> encoder.get_feature_names_out()[:2].tolist()
    ['word[-1]=the|word[0]=cat', 'word[-1]=_B-1|word[0]=the']
    """

    _encoding: Vocabulary | GrowingVocabulary | Hasher

    def __init__(
        self,
        templates: Any = "default",
        *,
        min_count: int = 1,
        hash_bits: int | None = None,
        dtype: Any = np.float32,
    ) -> None:
        self.templates = templates
        self.min_count = min_count
        self.hash_bits = hash_bits
        self.dtype = dtype

    def fit(self, X: Any, y: Any = None) -> TokenTemplates:
        """Learn the features of sentences.

        Parameters
        ----------
        X : TokenTable, or list of sentences of strings or tuples of strings
        y : ignored

        Returns
        -------
        self
        """
        self.fit_transform(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> SparseSequences:
        """Learn the features of sentences and encode them in the same pass.

        Parameters
        ----------
        X, y : as for :meth:`fit`

        Returns
        -------
        SparseSequences
        """
        self._check_parameters()
        table = as_table(X)
        default = isinstance(self.templates, str) and self.templates == "default"
        self._set_up(
            default_templates(len(table.names)) if default else self.templates, table.names
        )
        if isinstance(self._encoding, Hasher):
            columns, self.hash_collisions_ = self._encoding.encode(table, count=True)
        else:
            columns = self._encoding.learn(table, int(self.min_count))
        self.n_features_out_ = self._encoding.n_features
        return self._sequences(columns, table)

    def transform(self, X: Any) -> SparseSequences:
        """Encode sentences by the features known.

        Parameters
        ----------
        X : as for :meth:`fit`

        Returns
        -------
        SparseSequences
        """
        check_is_fitted(self, "templates_")
        table = self._known_columns(as_table(X))
        if isinstance(self._encoding, Hasher):
            return self._sequences(self._encoding.encode(table, count=False)[0], table)
        return self._sequences(self._encoding.look_up(table), table)

    def partial_fit_transform(self, X: Any) -> SparseSequences:
        """Encode sentences and learn features that are new; known ones keep their columns.

        New features get the columns behind the known ones, if at least ``min_count`` tokens of
        these sentences have them. Hashed features have their columns already.

        Parameters
        ----------
        X : as for :meth:`fit`

        Returns
        -------
        SparseSequences
        """
        if not hasattr(self, "templates_"):
            return self.fit_transform(X)
        if isinstance(self._encoding, Hasher):
            return self.transform(X)
        table = self._known_columns(as_table(X))
        growing = self._encoding
        if isinstance(growing, Vocabulary):
            parsed = parse_templates(self._resolved, self.column_names_)
            self._encoding = growing = GrowingVocabulary.from_vocabulary(parsed, growing)
        columns = growing.learn(table, int(self.min_count))
        self.n_features_out_ = growing.n_features
        return self._sequences(columns, table)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Names such as ``"word[-1]=the|word[0]=cat"``; numbers where features are hashed.

        Parameters
        ----------
        input_features : ignored
        """
        check_is_fitted(self, "templates_")
        if isinstance(self._encoding, Hasher):
            return np.array([f"hash{k}" for k in range(self.n_features_out_)], dtype=object)
        return self._encoding.names()

    def _set_up(self, templates: Any, names: tuple[str, ...]) -> None:
        parsed = parse_templates(templates, names)
        self._resolved = templates if isinstance(templates, str) else list(templates)
        self.templates_ = [template.text for template in parsed]
        self.column_names_ = tuple(names)
        self._encoding = (
            Vocabulary(parsed) if self.hash_bits is None else Hasher(parsed, int(self.hash_bits))
        )

    def _sequences(self, columns: Array, table: TokenTable) -> SparseSequences:
        tidy = isinstance(self._encoding, Vocabulary) and not self._encoding.shared
        return sequences_from_columns(
            columns, table.offsets, self.n_features_out_, np.dtype(self.dtype), tidy
        )

    def _known_columns(self, table: TokenTable) -> TokenTable:
        if table.names == self.column_names_ or len(table.names) == len(self.column_names_) == 1:
            return table
        used = self._encoding.used_columns()
        wanted = [self.column_names_[k] for k in used]
        if set(wanted) <= set(table.names):
            # Columns that no template reads may be missing; any other stands in for them.
            places = dict(zip(used, wanted, strict=True))
            return table.select([places.get(k, 0) for k in range(len(self.column_names_))])
        if len(table.names) == len(self.column_names_):
            return table
        missing = next(name for name in wanted if name not in table.names)
        raise ValueError(
            f"X has the columns {', '.join(map(repr, table.names))}, but the templates were fitted "
            f"on {', '.join(map(repr, self.column_names_))} and read {missing!r}."
        )

    def _check_parameters(self) -> None:
        check_min_count(self.min_count)
        bits = self.hash_bits
        if bits is not None:
            if not isinstance(bits, numbers.Integral) or not 1 <= bits <= MOST_BITS:
                raise ValueError(
                    f"hash_bits must be None or an integer from 1 to {MOST_BITS}, got {bits!r}."
                )
            if self.min_count != 1:
                raise ValueError(
                    "min_count needs the vocabulary that hash_bits does without: set one of them."
                )
        check_dtype(self.dtype)
        if not isinstance(self.templates, (str, list, tuple)):
            raise TypeError(
                f"templates must be 'default', the text of a template file or a list of strings, "
                f"got {self.templates!r}."
            )

    # Storage -------------------------------------------------------------------------------

    def to_state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """The fitted encoder as metadata that JSON can hold, and arrays."""
        check_is_fitted(self, "templates_")
        meta = {
            "encoder": "TokenTemplates",
            "version": 1,
            "parameters": {
                "templates": self.templates
                if isinstance(self.templates, str)
                else list(self.templates),
                "min_count": int(self.min_count),
                "hash_bits": None if self.hash_bits is None else int(self.hash_bits),
                "dtype": np.dtype(self.dtype).name,
            },
            "templates": self._resolved,
            "columns": list(self.column_names_),
        }
        if isinstance(self._encoding, Hasher):
            meta["hash_collisions"] = int(self.hash_collisions_)
            return meta, {}
        if isinstance(self._encoding, GrowingVocabulary):
            meta["grown"] = True
        return meta, self._encoding.to_arrays()

    @classmethod
    def from_state(cls, meta: Any, arrays: Any) -> TokenTemplates:
        """The encoder that :meth:`to_state` described; ``ValueError`` if that is inconsistent."""
        check_kind(meta, "TokenTemplates")
        parameters = get_meta(meta, "parameters", dict, "a mapping")
        expected = {"templates", "min_count", "hash_bits", "dtype"}
        if set(parameters) != expected:
            raise ValueError(f"the encoder's parameters must be {', '.join(sorted(expected))}.")
        names = get_meta(meta, "columns", list, "a list of names")
        texts = get_meta(meta, "templates", (str, list), "text or a list of templates")
        if not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
            raise ValueError("the encoder's columns must be names, each once.")
        encoder = cls(**parameters)
        try:
            encoder.dtype = np.dtype(str(parameters["dtype"])).type
            encoder._check_parameters()
            encoder._set_up(texts, tuple(names))
        except TypeError as error:
            raise ValueError(f"the encoder's metadata are not valid: {error}") from None
        if isinstance(encoder._encoding, Hasher):
            encoder.hash_collisions_ = get_meta(meta, "hash_collisions", int, "a number")
        else:
            parsed = parse_templates(texts, names)
            grown = get_meta(meta, "grown", bool, "true or false") if "grown" in meta else False
            encoder._encoding = (
                GrowingVocabulary.from_arrays(parsed, arrays)
                if grown
                else Vocabulary.from_arrays(parsed, arrays)
            )
        encoder.n_features_out_ = encoder._encoding.n_features
        return encoder


def as_table(X: Any) -> TokenTable:
    """Sentences as a table; what is no sentence is refused."""
    if isinstance(X, TokenTable):
        return X
    if hasattr(X, "columns") and not isinstance(X, Mapping):
        raise TypeError("X is a frame: cut it into sentences with hingeline.features.from_frame.")
    if isinstance(X, (str, bytes, Mapping)) or not hasattr(X, "__len__"):
        raise TypeError(f"X must be a list of sentences, got {type(X).__name__}.")
    if len(X) and isinstance(X[0], (list, tuple)):
        kinds = set(map(type, chain.from_iterable(X)))
        wrong = [kind for kind in kinds if not issubclass(kind, (str, tuple, list))]
        if wrong:
            hint = ": use DictEncoder" if issubclass(wrong[0], Mapping) else ""
            raise TypeError(
                f"X holds tokens of type {wrong[0].__name__}; templates read strings or tuples of "
                f"strings{hint}."
            )
    elif len(X):
        raise TypeError(f"X[0] must be a list of tokens, got {type(X[0]).__name__}.")
    return TokenTable.from_sentences(X)
