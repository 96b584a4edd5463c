"""TokenTemplates: features of tokens from templates over their columns, as people write them.

Templates are CRF++ and Wapiti files, or strings such as ``"word[-1]"``. They name functions of
words, which are computed once per distinct value of a column. A function maps a string to a
string, or to None where it has nothing to say: a prefix of a word that is too short, a test that
fails. None gives no feature, alone or in a conjunction.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from itertools import chain, groupby
from typing import Any, Self
from unicodedata import category

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from hingeline._checks import Array, is_list, require, require_type, retell, whole_number
from hingeline.features.input import Encoder, get_meta, name_two_kinds
from hingeline.features.tables import SparseSequences, TokenTable
from hingeline.features.vocabulary import Hasher, Vocabulary

Value = str | None
Function = Callable[[str], Value]

MOST_BITS = 30  # Column numbers are int32.
FARTHEST = 1000  # Templates look at most this far from their token.


class _Classes(dict[int, str]):
    """Character -> what it looks like, filled as characters turn up."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        kinds = {"X": character.isupper(), "x": character.isalpha(), "d": character.isdigit()}
        self[code] = next((kind for kind, fits in kinds.items() if fits), character)
        return self[code]


_CLASSES = _Classes()


@lru_cache(maxsize=2**14)
def _collapse(shape: str) -> str:
    return "".join(character for character, _ in groupby(shape))


def _test(test: Callable[[str], Any]) -> Function:
    return lambda text: "" if test(text) else None


def _find(regex: str, otherwise: Value = None) -> Function:
    search = re.compile(regex).search
    return lambda text: match.group() if (match := search(text)) else otherwise


# fmt: off
#: name -> what its argument is (nothing, a count, an optional word or a regular expression), and
#: the function for an argument.
FUNCTIONS: dict[str, tuple[Value, Callable[[Any], Function]]] = {
    "lower": (None, lambda _: str.lower),
    "upper": (None, lambda _: str.upper),
    "prefix": ("count", lambda n: lambda text: text[:n] if len(text) >= n else None),
    "suffix": ("count", lambda n: lambda text: text[-n:] if len(text) >= n else None),
    "shape": ("collapse", lambda collapse: lambda text: (
        _collapse(text.translate(_CLASSES)) if collapse else text.translate(_CLASSES))),
    "isdigit": (None, lambda _: _test(str.isdigit)),
    "isupper": (None, lambda _: _test(str.isupper)),
    "istitle": (None, lambda _: _test(str.istitle)),
    "match": ("regex", lambda regex: _test(re.compile(regex).search)),
    "find": ("regex", _find),
}
#: Wapiti's commands, which give a value even where nothing matches; only its templates have them.
_WAPITI: dict[str, Callable[[Any], Function]] = {
    "%t": lambda regex: lambda text: "true" if re.search(regex, text) else "false",
    "%m": lambda regex: _find(regex, otherwise=""),
}
# fmt: on
#: These have no value: a feature is there or it is not.
TESTS = frozenset({"isdigit", "isupper", "istitle", "match"})


@dataclass(frozen=True)
class Call:
    """One function with its argument, as a template names it."""

    name: str
    argument: str | int | None = None

    @property
    def is_test(self) -> bool:
        """Whether it only says yes or nothing."""
        return self.name in TESTS

    def apply(self, values: Sequence[Value]) -> list[Value]:
        """What the function makes of every value."""
        make = _WAPITI.get(self.name) or FUNCTIONS[self.name][1]
        function = make(self.argument)
        return [None if value is None else function(value) for value in values]


def check_call(name: str, argument: str | int | None) -> Call:
    """A call with its argument checked; a ``ValueError`` says what is wrong with it."""
    require(name in FUNCTIONS, f"there is no function {name!r}: there are {', '.join(FUNCTIONS)}")
    wanted = FUNCTIONS[name][0]
    require(wanted or argument is None, f"{name} takes no second argument, got {argument!r}")
    if wanted == "count" and not (isinstance(argument, int) and argument >= 1):
        raise ValueError(f"{name} needs a number of characters ≥ 1, e.g. {name}(word[0],3)")
    if wanted == "collapse" and argument not in (None, "collapse"):
        raise ValueError(f"{name} takes no argument or collapse, got {argument!r}")
    if wanted == "regex":
        if not isinstance(argument, str):
            raise ValueError(f"{name} needs a regular expression, e.g. {name}(word[0],'^[A-Z]')")
        with retell(f"{argument!r} is not a regular expression: ", "", re.error):
            re.compile(argument)
    return Call(name, argument)


@dataclass(frozen=True)
class Term:
    """A value near the token: a column, what is computed of it, and how far away."""

    column: int
    calls: tuple[Call, ...]
    offset: int

    def __post_init__(self) -> None:
        what = f"position {self.offset} is farther than {FARTHEST} tokens away"
        require(abs(self.offset) <= FARTHEST, what)


@dataclass(frozen=True)
class Template:
    """Terms with the text around them: ``literals[0] value literals[1] value …`` is the name.

    Templates with the same literals share their features, as CRF++'s do: a bag of words.
    """

    text: str
    literals: tuple[str, ...]
    terms: tuple[Term, ...]

    @property
    def sources(self) -> tuple[tuple[int, tuple[Call, ...]], ...]:
        """The terms without their positions."""
        return tuple((term.column, term.calls) for term in self.terms)


def parse_templates(templates: str | Sequence[str], names: Sequence[str]) -> list[Template]:
    """Templates from the text of a file or a list of strings, for columns of these names."""
    if isinstance(templates, str):
        lines = [(k, line.strip()) for k, line in enumerate(templates.splitlines(), 1)]
        found = [(f"template line {k}, ", line) for k, line in lines if line and line[0] != "#"]
        what = "the template text has no template: write lines such as U00:%x[0,0]."
    else:
        for k, text in enumerate(templates):
            if not isinstance(text, str):
                raise TypeError(f"templates[{k}] must be a string, got {text!r}.")
        found = [(f"templates[{k}]=", text) for k, text in enumerate(templates)]
        what = 'templates is empty: list strings such as "word[0]".'
    parse = _parse_line if isinstance(templates, str) else _parse_python
    parsed: list[Template] = []
    for where, text in found:
        with retell(f"{where}{text!r}: ", "."):
            parsed += parse(text, names)
    require(parsed, what)
    first: dict[tuple[str, ...], Template] = {}
    for template in parsed:
        other = first.setdefault(template.literals, template)
        what = f"templates {other.text!r} and {template.text!r} have the same identifier but read"
        require(other.sources == template.sources, f"{what} different columns: give each its own.")
    return list(dict.fromkeys(parsed))


# Strings such as "word[-1]|lower(word[0])"

_WORD = r"\s*([^\s\[\](),|'\"]+)\s*"
_FUNCTION = re.compile(_WORD + r"\(")
_COLUMN = re.compile(_WORD + r"(?:\[\s*([+-]?\d+)\s*\]\s*)?")
_COMMA = re.compile(",")
_ARGUMENT = re.compile(rf"""\s*(['"])((?:(?!\1)[^\\]|\\.)*)\1\s*|{_WORD}""")
_CLOSE = re.compile(r"\)\s*")
_BAR = re.compile(r"\|")


def _parse_python(text: str, names: Sequence[str]) -> list[Template]:
    at = 0

    def take(pattern: re.Pattern[str], problem: str = "") -> re.Match[str] | None:
        nonlocal at
        match = pattern.match(text, at)
        require(match or not problem, problem)
        at = match.end() if match else at
        return match

    terms: list[Term] = []
    while not terms or take(_BAR):
        functions = []
        while head := take(_FUNCTION):
            functions.append(head[1])
        column: Any = take(_COLUMN, "a column such as word[0] or a function of one is missing")
        name, offset = column.groups()
        hint = f"{name}(word[0])" if name in FUNCTIONS else f"{name}[0]"
        require(offset is not None, f"{name!r} needs a position, e.g. {hint}")
        position = _find_column(name, names)
        calls = []
        for function in reversed(functions):
            argument: str | int | None = None
            if take(_COMMA):
                match: Any = take(_ARGUMENT, "an argument is missing after the comma")
                quote, quoted, word = match.groups()
                argument = quoted.replace(f"\\{quote}", quote) if quote else word
                argument = int(word) if word and word.isdecimal() else argument
            take(_CLOSE, "a closing ) is missing")
            calls.append(check_call(function, argument))
        terms.append(Term(position, tuple(calls), int(offset)))
    require(at == len(text), f"{text[at:]!r} was not expected")
    written = [_write_term(term, names) for term in terms]
    tests = [bool(term.calls) and term.calls[-1].is_test for term in terms]
    pieces = [text if test else f"{text}=" for text, test in zip(written, tests, strict=True)]
    literals = (pieces[0], *(f"|{piece}" for piece in pieces[1:]), "")
    return [Template("|".join(written), literals, tuple(terms))]


def _find_column(name: str, names: Sequence[str]) -> int:
    """The number of a column given by name or, where no column has that name, by number."""
    if name in names:
        return list(names).index(name)
    what = f"there is no column {name!r}: there are {', '.join(map(repr, names))}"
    require(name.isdecimal(), what)
    what = f"there is no column {name}: there are {len(names)}, counted from 0"
    require(int(name) < len(names), what)
    return int(name)


def _write_term(term: Term, names: Sequence[str]) -> str:
    """The one way to write a term."""
    text = f"{names[term.column]}[{term.offset}]"
    for call in term.calls:
        argument = "" if call.argument is None else f",{call.argument}"
        if FUNCTIONS[call.name][0] == "regex":
            quoted = str(call.argument).replace("'", "\\'")
            argument = f",'{quoted}'"
        text = f"{call.name}({text}{argument})"
    return text


# Files of CRF++ and Wapiti

_MACRO = re.compile(r'%(.)\[([@*]?)([+-]?\d+),(\d+)(?:,"((?:[^"\\]|\\.)*)")?\]')
#: Wapiti's classes of characters; a capital is the complement.
_WAPITI_CLASSES = {
    "a": r"[^\W\d_]", "d": r"\d", "l": r"[a-z]", "p": r"[!-/:-@\[-`{-~]", "s": r"\s", "u": r"[A-Z]",
    "w": r"[^\W_]", "A": r"[\W\d_]", "D": r"\D", "L": r"[^a-z]", "P": r"[^!-/:-@\[-`{-~]",
    "S": r"\S", "U": r"[^A-Z]", "W": r"[\W_]",
}  # fmt: skip
_PAIRS = "observations on pairs of labels are not part of the chain"


def _parse_line(line: str, names: Sequence[str]) -> list[Template]:
    """The template of a line; none for a plain B."""
    kind = line[0].upper()
    what = 'for strings such as "word[-1]|word[0]" pass a list'
    require(kind in "UB*", f"a template starts with U (or is a plain B); {what}")
    require(kind != "*", f"Wapiti's * is a U and a B template in one, and {_PAIRS}; write it as U")
    if kind == "B":
        what = f"{_PAIRS}, whose label pairs have one weight each"
        require("%" not in line, f"{what}; write a plain B and the observation as U")
        return []
    literals, terms, at = [], [], 0
    for macro in _MACRO.finditer(line):
        command, mark, offset, column, regex = macro.groups()
        literals.append(line[at : macro.start()])
        at = macro.end()
        what = f"Wapiti's {'absolute' if mark == '@' else 'indirect'} position {mark}{offset} is"
        require(not mark, f"{what} not supported; use a position relative to the token")
        fine = command in ("xX" if regex is None else "tTmM")
        require(fine, f"{macro.group()} is not %x[row,col] nor %t or %m")
        calls = [] if regex is None else [Call(f"%{command.lower()}", _translate(regex))]
        calls += [Call("lower")] if command.isupper() else []
        what = f"there is no column {column}; there are {len(names)}"
        require(int(column) < len(names), f"{what}, counted from 0 and without the labels")
        terms.append(Term(int(column), tuple(calls), int(offset)))
    literals.append(line[at:])
    require("%" not in "".join(literals), "a % is not part of a %x[row,col]")
    return [Template(line, tuple(literals), tuple(terms))]


def _translate(regex: str) -> str:
    """Wapiti's regular expression as Python's: ``^ $ . * ?`` and classes; its * is lazy."""
    out: list[str] = []
    pieces = re.findall(r"\\.|.", regex, re.DOTALL)
    for k, piece in enumerate(pieces, 1):
        if len(piece) == 2:
            out.append(_WAPITI_CLASSES.get(piece[1]) or re.escape(piece[1]))
        elif piece in "*?":
            fine = out and out[-1] not in ("^", "*?", "?")
            require(fine, f"{piece} repeats nothing; write \\{piece}")
            out.append("*?" if piece == "*" else "?")
        elif piece == "$" and k == len(pieces):
            out.append(r"\Z")
        else:
            out.append(piece if piece == "." or (piece == "^" and k == 1) else re.escape(piece))
    return "".join(out)


def _holds_characters(table: TokenTable) -> bool:
    """Whether tokens (five or more) are characters: 3/4 of them and of their values, on average."""
    counts = np.bincount(table.codes[0], minlength=len(table.values[0]))
    marks = (map(category, value[1:]) for value in table.values[0])  # that belong to the letter
    single = np.array([all(kind[0] == "M" for kind in kinds) for kinds in marks])
    share = (single[counts > 0].mean() + counts @ single / table.n_tokens) / 2
    return table.n_tokens >= 5 and bool(share >= 0.75)


def default_templates(n_columns: int, characters: bool = False) -> list[str]:
    """The templates of ``templates="default"``, by column number.

    Kept small: on held-out training sentences of CoNLL-2000, prefixes, lower case and flags beside
    tags moved chunk F1 by less than 0.1 either way and cost time; without tags (parts of speech of
    UD English) prefixes and lower case do help. Where characters are cut into words, n-grams that
    begin or end at the token or beside it tell most; of 3 characters only, a point less.
    """
    if characters:
        spans = [(0, 0), *((-k, 0) for k in (1, 2, 3)), *((0, k) for k in (1, 2, 3))]
        spans += [*((-k, -1) for k in (1, 2, 3, 4)), *((1, k) for k in (1, 2, 3, 4))]
        templates = ["|".join(f"0[{o}]" for o in range(a, b + 1)) for a, b in spans]
        near = [f"shape(0[{o}])" for o in (-1, 0, 1)]
        templates += [near[1], "|".join(near[:2]), "|".join(near[1:]), "|".join(near)]
    else:
        templates = [f"0[{o}]" for o in (-2, -1, 0, 1, 2)] + ["0[-1]|0[0]", "0[0]|0[1]"]
        templates += ["shape(0[0],collapse)", *(f"suffix(0[0],{k})" for k in (2, 3, 4))]
        if n_columns == 1:
            templates += ["lower(0[0])", *(f"prefix(0[0],{k})" for k in (1, 2, 3))]
    if n_columns > 1:
        tags = [f"1[{o}]" for o in (-2, -1, 0, 1, 2)]
        for width in (1, 2, 3):
            templates += ["|".join(tags[k : k + width]) for k in range(6 - width)]
    return templates


@dataclass(eq=False, repr=False)
class TokenTemplates(Encoder, auto_wrap_output_keys=None):  # type: ignore[call-arg]
    """Features of tokens from templates over their columns.

    Every template gives each token at most one feature, with value 1, named after the values of
    its terms at that token. Functions of words are computed once per distinct word, so encoding a
    corpus takes a fraction of a second.

    Parameters
    ----------
    templates : "default", str or list of str
        A list of templates, or the text of a CRF++ or Wapiti template file; see Notes. The
        default reads the first two columns only: words at −2…2, pairs with the neighbours, shape
        and suffixes of 2 to 4 characters; from a second column values, pairs and triples within
        −2…2; without one, also lower case and prefixes of 1 to 3 characters. If ``fit`` meets
        single characters (three in four of tokens and distinct values, on average, of five tokens
        or more), it reads n-grams of up to 4 that begin or end at the token or beside it, and
        shapes within −1…1, instead of words; a mark belongs to the letter before it.
    min_count : int, default=1; drop features of fewer training tokens than this
    hash_bits : int, optional
        Instead of a vocabulary, hash features into ``2**hash_bits`` columns (at most 2³⁰); the
        hash, 64 bits from BLAKE2b digests, is stable across runs, machines and versions.
        Features that share a column add up. Values not seen in training have features, too.
    dtype : {np.float32, np.float64}, default=np.float32; type of the values

    Attributes
    ----------
    templates_ : list of str; the templates in use
    column_names_ : tuple of str; names of the columns at ``fit``
    n_features_out_ : int; width of the encoding
    hash_collisions_ : int
        With ``hash_bits``: distinct features of the training data minus columns they fill.

    Notes
    -----
    A template in a list is terms joined by ``|``. A term is a column by name or number with a
    position relative to the token, ``word[-1]``, or a function of a term:

    ``lower(t)``, ``upper(t)``
        In lower or upper case.
    ``prefix(t,n)``, ``suffix(t,n)``
        The first or last n characters; nothing if there are fewer.
    ``shape(t)``, ``shape(t,collapse)``
        Characters replaced by X, x, d (capital, other letter, digit); ``collapse`` shortens runs
        to one.
    ``isdigit(t)``, ``isupper(t)``, ``istitle(t)``, ``match(t,'regex')``
        Tests (``re.search``); they give a feature only where they hold.
    ``find(t,'regex')``
        The first piece of text that matches; nothing if none does.

    A position outside the sentence has the value ``_B-1``, ``_B-2``, … before it and ``_B+1``, …
    after it; a test fails there. A conjunction with a term without a value gives no feature.

    In the text of a file, ``U`` lines are templates with ``%x[row,column]``, Wapiti's ``%X`` and
    ``%t``/``%m`` with its regular expressions; ``#`` starts a comment. A plain ``B`` is accepted:
    a chain always has label pairs. Lines that differ only in their rows share features.

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

    templates: Any = "default"
    _: KW_ONLY
    min_count: int = 1
    hash_bits: int | None = None
    dtype: Any = np.float32

    def _learn(self, X: Any, more: bool) -> SparseSequences:
        if more:
            table = self._known_columns(X)
            return self._sequences(self._encoding.learn_more(table, int(self.min_count)), table)
        table = as_table(X)
        default = isinstance(self.templates, str) and self.templates == "default"
        kind = (len(table.names), _holds_characters(table)) if default else ()
        self._set_up(default_templates(*kind) if kind else self.templates, table.names)
        return self._sequences(self._encoding.learn(table, int(self.min_count)), table)

    def _look_up(self, X: Any) -> SparseSequences:
        table = self._known_columns(X)
        return self._sequences(self._encoding.look_up(table), table)

    n_features_out_ = property(lambda self: self._encoding.n_features)
    hash_collisions_ = property(lambda self: self._encoding.collisions)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Names such as ``"word[-1]=the"``; numbers if hashed. The argument is ignored."""
        check_is_fitted(self, "n_features_out_")
        return self._encoding.names()

    def seen_values(self, column: int = 0) -> set[str] | None:
        """Values of a column that were met in training; None where features do not tell."""
        for source in getattr(self._encoding, "sources", ()) if self.hash_bits is None else ():
            if source.column == column and not source.calls:
                return set(source.codes)
        return None

    def _set_up(self, templates: Any, names: tuple[str, ...]) -> list[Template]:
        parsed = parse_templates(templates, names)
        self._resolved = templates if isinstance(templates, str) else list(templates)
        self.templates_ = [template.text for template in parsed]
        self.column_names_ = tuple(names)
        bits = self.hash_bits
        self._encoding: Vocabulary | Hasher
        self._encoding = Vocabulary(parsed) if bits is None else Hasher(parsed, int(bits))
        return parsed

    def _sequences(self, columns: Array, table: TokenTable) -> SparseSequences:
        """Tokens that have a one in each of their columns (templates, tokens), −1 for none."""
        kind = np.int32 if columns.size < 2**31 else np.int64
        indices, missing = columns.T.ravel(), columns < 0
        indptr: Array = np.arange(table.n_tokens + 1, dtype=kind) * len(columns)
        if missing.any():
            indices = indices[indices >= 0]
            indptr[1:] -= np.cumsum(missing.sum(axis=0, dtype=kind))
        parts = np.ones(len(indices), dtype=np.dtype(self.dtype)), indices, indptr
        matrix = sp.csr_matrix(parts, shape=(table.n_tokens, self.n_features_out_))
        matrix.sum_duplicates()  # and sort, where the columns of a token do not rise by themselves
        return SparseSequences(matrix, table.offsets)

    def _known_columns(self, X: Any) -> TokenTable:
        table = as_table(X)
        here, then = (", ".join(map(repr, t)) for t in (table.names, self.column_names_))
        what = f"X has the columns {here}, but the templates were fitted on {then}"
        # Only a table says which of its columns are which.
        fine = table is X or len(table.names) <= len(self.column_names_)
        require(fine, f"{what}: leave the others out.")
        if table.names == self.column_names_ or len(table.names) == len(self.column_names_) == 1:
            return table
        used = self._encoding.used_columns
        wanted = [self.column_names_[k] for k in used]
        if set(wanted) <= set(table.names):
            # Columns that no template reads may be missing; any other stands in for them.
            places = dict(zip(used, wanted, strict=True))
            return table.select([places.get(k, 0) for k in range(len(self.column_names_))])
        if len(table.names) == len(self.column_names_):
            return table
        missing = next(name for name in wanted if name not in table.names)
        raise ValueError(f"{what} and read {missing!r}.")

    def _count(self, X: Any) -> tuple[SparseSequences, Array]:
        nothing = isinstance(X, (list, tuple)) and not X
        table = TokenTable.from_sentences([]) if nothing else as_table(X, empty=True)
        if table.n_tokens:
            found = self._learn(table, False)
        else:  # which columns there are, and so which templates, other blocks know
            self.templates_, self.column_names_ = [], ()
            bits = self.hash_bits
            self._encoding = Vocabulary([]) if bits is None else Hasher([], int(bits))
            found = self._sequences(np.empty((0, 0), dtype=np.int32), table)
        counts = np.bincount(found.matrix.indices, found.matrix.data, self.n_features_out_)
        return found, counts.astype(np.int64)

    def _merge(self, encoders: Sequence[Self], counts: Sequence[Array]) -> list[Array]:
        names = {e.column_names_: k for k, e in reversed([*enumerate(encoders)]) if e.column_names_}
        require(names, "X is empty: no block has a token.")
        (columns, first), *others = sorted(names.items(), key=lambda item: item[1])
        for other, k in others:
            what = f"block {k} has the columns {', '.join(other)}, but block {first} has"
            raise ValueError(f"{what} {', '.join(columns)}: all blocks must have the same.")
        for k, e in enumerate(encoders):
            what = f"of blocks {first} and {k}, only one has characters as tokens: name the"
            fine = not e.column_names_ or e.templates_ == encoders[first].templates_
            require(fine, f"{what} templates, TokenTemplates([...]) or --template FILE.")
        parsed = self._set_up(encoders[first]._resolved, columns)
        if isinstance(self._encoding, Hasher):
            # Features of two blocks may collide, too: there are at least as many.
            self._encoding.collisions = max(encoder.hash_collisions_ for encoder in encoders)
            found = [np.arange(self._encoding.n_features)] * len(encoders)
        else:
            nothing = Vocabulary(parsed)
            nothing.open_numberings()
            blocks: list[Any] = [e._encoding if e.column_names_ else nothing for e in encoders]
            found = self._encoding.merge(blocks, counts, int(self.min_count))
        return found

    def _check_parameters(self) -> None:
        super()._check_parameters()
        bits = self.hash_bits
        if bits is not None:
            whole_number("hash_bits", bits, 1, MOST_BITS)
            what = "min_count needs a vocabulary, and hash_bits keeps none"
            require(self.min_count == 1, f"{what}: set one of them.")
        if not isinstance(self.templates, (str, list, tuple)):
            what = "templates must be 'default', the text of a template file or a list of strings"
            raise TypeError(f"{what}, got {self.templates!r}.")

    def to_state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """The learned state, as metadata that JSON can hold, and arrays."""
        check_is_fitted(self, "n_features_out_")
        meta = {"templates": self._resolved, "columns": list(self.column_names_)}
        if isinstance(self._encoding, Hasher):
            return {**meta, "hash_collisions": int(self.hash_collisions_)}, {}
        return {**meta, "grown": self._encoding.grown}, self._encoding.to_arrays()

    def restore(self, meta: Any, arrays: Any) -> Self:
        """Restore what :meth:`to_state` returned; ``ValueError`` if that is inconsistent."""
        self._check_parameters()
        names = get_meta(meta, "columns", list, "a list of names")
        texts = get_meta(meta, "templates", (str, list), "text or a list of templates")
        if not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
            raise ValueError("the encoder's columns must be names, each once.")
        with retell("the encoder's metadata are not valid: ", "", TypeError):
            parsed = self._set_up(texts, tuple(names))
        if isinstance(self._encoding, Hasher):
            self._encoding.collisions = get_meta(meta, "hash_collisions", int, "a number")
        else:
            grown = get_meta(meta, "grown", bool, "true or false")
            self._encoding = Vocabulary.from_arrays(parsed, arrays, grown)
        return self


def as_table(X: Any, empty: bool = False) -> TokenTable:
    """Sentences as a table; what is no sentence is refused, and X without a token unless asked."""
    if isinstance(X, TokenTable):
        return X
    if hasattr(X, "columns") and not isinstance(X, Mapping):
        raise TypeError("X is a frame: cut it into sentences with hingeline.features.from_frame.")
    fine = hasattr(X, "__len__") and is_list(X) and not isinstance(X, Mapping)
    hint = ": pass list(X)" if hasattr(X, "__next__") else ""
    require(fine, f"X must be a list of sentences, got {type(X).__name__}{hint}.", TypeError)
    texts = (isinstance(x, np.ndarray) and x.ndim and x.dtype.kind in "OU" for x in X)
    X = [x.tolist() if text else x for x, text in zip(X, texts, strict=True)]
    require(X, "X is empty: there are no sequences.")
    require_type(isinstance(X[0], (list, tuple)), "X[0]", "a list of tokens", X[0])
    kinds = set(map(type, chain.from_iterable(X)))
    if wrong := [kind for kind in kinds if not issubclass(kind, (str, tuple, list))]:
        hint = ": pass words, or fit with DictEncoder" if issubclass(wrong[0], Mapping) else ""
        at = ((i, t, x) for i, sentence in enumerate(X) for t, x in enumerate(sentence))
        i, t, token = next(place for place in at if isinstance(place[2], tuple(wrong)))
        what = f"token {t} of X[{i}] is {token!r:.40}, of type {type(token).__name__}"
        raise TypeError(f"{what}; templates read strings or tuples of strings{hint}.")
    if len({issubclass(kind, str) for kind in kinds}) > 1:
        how = "give every token as a string, or each as a tuple of columns"
        raise TypeError(f"{name_two_kinds(X)}: {how}.")
    require(kinds or empty, "X[0] is an empty sequence: drop it.")
    return TokenTable.from_sentences(X)
