"""Features of dependency arcs: templates over the columns of head and modifier, as hash codes.

A template names columns of the head (``h.form``), of the modifier (``m.xpos``) and of their
neighbours (``h.xpos+1``). What a word contributes to it is one code as a head and another as a
modifier, computed once; the code of an arc is put together where arcs are scored
(:mod:`hingeline.structures.dependency`), also with direction and distance.
"""

import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cache
from itertools import chain
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from hingeline._checks import Array, is_list, require, require_type, whole_number
from hingeline.features.tables import TokenTable

#: The first-order set of McDonald, Crammer and Pereira (2005), with both tags of CoNLL-U.
ARCS = (
    *("h.form h.xpos", "h.form", "h.xpos", "m.form m.xpos", "m.form", "m.xpos"),
    "h.form h.xpos m.form m.xpos",
    *("h.xpos m.form m.xpos", "h.form m.form m.xpos", "h.form h.xpos m.xpos"),
    *("h.form h.xpos m.form", "h.form m.form", "h.xpos m.xpos"),
    *("h.prefix h.xpos", "m.prefix m.xpos", "h.prefix m.xpos", "h.xpos m.prefix"),
    *("h.prefix m.prefix", "h.lemma m.lemma", "h.lemma m.upos", "h.upos m.lemma"),
    "h.xpos h.xpos+1 m.xpos-1 m.xpos",
    "h.xpos-1 h.xpos m.xpos-1 m.xpos",
    "h.xpos h.xpos+1 m.xpos m.xpos+1",
    "h.xpos-1 h.xpos m.xpos m.xpos+1",
    *("h.xpos h.xpos+1 m.xpos", "h.xpos-1 h.xpos m.xpos"),
    *("h.xpos m.xpos-1 m.xpos", "h.xpos m.xpos m.xpos+1"),
    "h.upos-1 h.upos h.upos+1 m.upos-1 m.upos m.upos+1",
    *("h.upos m.upos", "h.upos h.upos+1 m.upos-1 m.upos", "h.upos-1 h.upos m.upos m.upos+1"),
    *("h.upos h.feats m.upos m.feats", "h.form m.upos", "h.upos m.form"),
)
#: Fewer for labels, which have a weight each.
LABELS = (
    *("h.xpos m.xpos", "h.upos m.form", "h.lemma m.upos"),
    *("h.form", "h.xpos", "h.lemma", "h.feats"),
    *("m.form", "m.xpos", "m.lemma", "m.feats", "m.suffix"),
    *("m.xpos-1 m.xpos", "m.xpos m.xpos+1", "m.form-1 m.xpos", "m.xpos m.form+1"),
    *("m.xpos-2 m.xpos-1 m.xpos", "m.xpos m.xpos+1 m.xpos+2"),
)
COLUMNS = ("form", "lemma", "upos", "xpos", "feats")
#: Columns made from forms.
DERIVED = {"prefix": lambda form: form[:5], "suffix": lambda form: form[-3:].lower()}
_SLOT = re.compile(r"([hm])\.(\w+)([+-]\d+)?")
_STATE = ("arcs", "labels", "tags", "column_names")  # what a fit finds
_BITS, MOST_BITS = ("arc_bits", "label_bits"), 28
_NOTHING, _ROOT = "\0none", "\0root"


class ArcCodes(NamedTuple):
    """Sentences for :class:`hingeline.structures.dependency.DependencyProblem`."""

    as_head: Array
    as_modifier: Array
    tags: Array
    tag_codes: Array
    offsets: Array
    n_arc: int
    n_pair: int


class Slot(NamedTuple):
    """A column of the head or the modifier, or of a neighbour."""

    side: str
    column: str
    shift: int


def parse_template(template: str) -> tuple[Slot, ...]:
    """The parts of a template such as ``"h.form m.xpos-1 m.xpos"``."""
    found = []
    for word in template.split():
        match = _SLOT.fullmatch(word)
        if match is None:
            what = f"the template {template!r} has the part {word!r}"
            raise ValueError(f"{what}: write h. or m., a column, and +1 or -1 for a neighbour.")
        found.append(Slot(match[1], match[2], int(match[3] or 0)))
    require(found, "a template is empty: leave it out.")
    return tuple(found)


@dataclass(eq=False, repr=False)
class ArcFeatures(BaseEstimator):
    """Encoder of words for :class:`hingeline.DependencySSVM`.

    Parameters
    ----------
    arcs : sequence of str, optional
        Templates of arcs without labels. By default those of :data:`ARCS` whose columns are
        present: the first-order set of McDonald, Crammer and Pereira (2005).
    labels : sequence of str, optional; templates that have a weight for each label
        By default those of :data:`LABELS`, likewise. Templates of a single word cost least.
    between : str or None, default="upos"
        For each value of this column between head and modifier, a feature that also has the
        column's values at both; a column with few values is best.
    columns : sequence of str; the names of the columns if words are tuples
    arc_bits, label_bits : int, optional
        The tables have ``2^bits`` rows: of 8 weights for arcs, of one weight per label for labels.
        By default at least four rows per training word for arcs and half a row for labels, with 20
        and 17 bits at most.

    Attributes
    ----------
    arcs_, labels_ : list of str; the templates used
    tags_ : list of str; the values of ``between``
    column_names_ : list of str; the columns that are read
    arc_bits_, label_bits_ : int
    """

    arcs: Sequence[str] | None = None
    _: KW_ONLY
    labels: Sequence[str] | None = None
    between: str | None = "upos"
    columns: Sequence[str] = COLUMNS
    arc_bits: int | None = None
    label_bits: int | None = None

    def read(self, X: Any, empty: bool = False) -> TokenTable:
        """Sentences as a table, from dicts, tuples (``columns``), plain forms, or a table.

        Empty sentences and an empty X are refused unless ``empty`` is true.
        """
        if isinstance(X, TokenTable):
            table = X
        else:
            listed = is_list(X) and hasattr(X, "__len__")
            require_type(listed, "X", "a list of sentences", X)
            alone = isinstance(next(iter(X), None), Mapping)
            require(not alone, "X[0] is a word, not a sentence: pass [X] for one sentence.")
            for i, sentence in enumerate(X):
                require_type(is_list(sentence), f"X[{i}]", "a list of words", sentence)
            first = next((word for sentence in X for word in sentence), None)
            names = ("form",) if isinstance(first, str) else tuple(self.columns)
            if isinstance(first, Mapping):
                names = tuple(first)
                X = [[*_read_dicts(sentence, names, i)] for i, sentence in enumerate(X)]
            elif isinstance(first, tuple):
                what = f"words have {len(first)} columns, but columns= names {len(names)}"
                require(len(first) == len(names), f"{what}: pass features=ArcFeatures(columns=…).")
            table = TokenTable.from_sentences(X, names)
        require(empty or len(table), "X is empty: there are no sentences.")
        if not empty and not table.lengths.all():
            raise ValueError(f"X[{np.argmin(table.lengths)}] is an empty sentence: drop it.")
        return table

    def fit(self, X: Any, y: Any = None) -> Self:
        """Choose the templates whose columns are present, and number the tags between."""
        table = self.read(X)
        known = {*table.names, *(DERIVED if "form" in table.names else ())}
        self.arcs_ = _choose(self.arcs, ARCS, known, "arcs")
        self.labels_ = _choose(self.labels, LABELS, known, "labels")
        what = f"no template of arcs has its columns among {', '.join(table.names)}"
        require(self.arcs_, f"{what}: call them form, lemma, upos, xpos or feats, or set arcs=.")
        self.tags_: list[str] = []
        if self.between is not None and (self.between in known or self.between != "upos"):
            self.tags_ = sorted({*table.column(self.between)})
        slots = [slot for t in [*self.arcs_, *self.labels_] for slot in parse_template(t)]
        read = {"form" if slot.column in DERIVED else slot.column for slot in slots}
        read |= {str(self.between)} if self.tags_ else set()
        self.column_names_ = [name for name in table.names if name in read]
        for name, rows, most in zip(_BITS, (4.0, 0.5), (20, 17), strict=True):
            bits = getattr(self, name)
            if bits is None:
                bits = int(np.clip(np.ceil(np.log2(rows * table.n_tokens)), 8, most))
            setattr(self, f"{name}_", whole_number(name, bits, 1, MOST_BITS))
        return self

    def transform(self, X: Any) -> ArcCodes:
        """The codes of all words."""
        check_is_fitted(self, "arcs_")
        table = self.read(X, empty=True)
        hashed, labels = _hash_words(table), _by_sides(self.labels_)
        between = [f"h.{self.between} m.{self.between}"] if self.tags_ else []
        both = []
        for side in "hm":
            codes = [hashed(t, side, "arc") for t in [*self.arcs_, *between]]
            codes += [] if between else [np.zeros(table.n_tokens + 1, dtype=np.uint32)]
            codes += [hashed(t, side, "label") for t in [*labels["hm"], *labels[side]]]
            both.append(np.ascontiguousarray(np.array(codes).T))
        tags = np.full(table.n_tokens + 1, -1)
        if between:
            number = {tag: k + 1 for k, tag in enumerate(self.tags_)}
            k = table.position(str(self.between))
            of_values = np.array([number.get(v, 0) for v in table.values[k]], dtype=np.int64)
            tags[1:] = of_values[table.codes[k]]
        texts = ["\0unknown", *self.tags_]
        tag_codes = _mix(np.array([hash_text("between", text) for text in texts], dtype=np.uint32))
        n_arc = len(self.arcs_) + 1
        return ArcCodes(both[0], both[1], tags, tag_codes, table.offsets, n_arc, len(labels["hm"]))

    def describe(self, table: TokenTable, m: int, h: int) -> tuple[list[str], list[str]]:
        """Names of the features of an arc of a table's first sentence, and of those of its label.

        They are in the order of :func:`hingeline.structures.dependency.list_arc`.
        """
        words = [dict(zip(table.names, word, strict=True)) for word in table[0]]

        def value(k: int, slot: Slot) -> str:
            at = k + slot.shift - 1
            if k == 0 and slot.shift == 0:
                return "(root)"
            if k == 0 or not 0 <= at < len(words):
                return "(none)"
            known = slot.column in words[at]
            return words[at][slot.column] if known else DERIVED[slot.column](words[at]["form"])

        def name(template: str) -> str:
            slots = zip(template.split(), parse_template(template), strict=True)
            return " ".join(f"{text}={value(h if s.side == 'h' else m, s)}" for text, s in slots)

        arcs = [name(template) for template in self.arcs_]
        if self.tags_:
            column = str(self.between)
            pair = name(f"h.{column} m.{column}")
            between = [words[k - 1][column] for k in range(min(h, m) + 1, max(h, m))]
            known = dict.fromkeys(tag if tag in self.tags_ else "(unknown)" for tag in between)
            arcs += [f"{pair} between={tag}" for tag in known]
        return arcs, [*map(name, chain.from_iterable(_by_sides(self.labels_).values()))]

    def to_state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """What a model file keeps."""
        check_is_fitted(self, "arcs_")
        return {name: getattr(self, f"{name}_") for name in (*_STATE, *_BITS)}, {}

    def restore(self, meta: Any, arrays: Any) -> Self:
        """Restore the state that :meth:`to_state` returned."""
        for name in _STATE:
            texts = meta[name]
            require(type(texts) is list and {*map(type, texts)} <= {str}, f"{name} must be texts")
            setattr(self, f"{name}_", texts)
        [parse_template(t) for t in [*self.arcs_, *self.labels_]]
        for name in _BITS:
            setattr(self, f"{name}_", whole_number(name, meta[name], 1, MOST_BITS))
        return self


def _read_dicts(sentence: Any, names: Sequence[str], i: int) -> Iterator[tuple[Any, ...]]:
    for t, word in enumerate(sentence):
        if not isinstance(word, Mapping) or {*word} != {*names}:
            what = f"X[{i}][{t}] is {word!r:.80}: every word must be a dict with the keys"
            raise ValueError(f"{what} {', '.join(names)}.")
        yield tuple(word[name] for name in names)


def _choose(given: Any, usual: Sequence[str], known: set[str], name: str) -> list[str]:
    """The templates given, or of the usual ones those whose columns are there."""
    if given is None:
        return [t for t in usual if {slot.column for slot in parse_template(t)} <= known]
    require(not isinstance(given, str), f"{name} is one text: pass a list of templates.")
    for template in given:
        for slot in parse_template(template):
            what = f"the template {template!r} names the column {slot.column!r}"
            require(slot.column in known, f"{what}: words have {', '.join(sorted(known))}.")
    return list(given)


def _by_sides(templates: Sequence[str]) -> dict[str, list[str]]:
    """Templates of both words, of the head alone and of the modifier alone."""
    groups: dict[str, list[str]] = {"hm": [], "h": [], "m": []}
    for template in templates:
        sides = {slot.side for slot in parse_template(template)}
        groups["".join(sorted(sides))].append(template)
    return groups


def hash_text(name: str, value: str) -> int:
    """32 bits of a value of a column, the same in every process."""
    return zlib.crc32(f"{name}={value}".encode())


def _mix(code: Array) -> Array:
    """Spread every bit over the others (the end of MurmurHash3); in arrays products wrap."""
    code = (code ^ (code >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    code = (code ^ (code >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return code ^ (code >> np.uint32(16))


def _hash_words(table: TokenTable) -> Callable[[str, str, str], Array]:
    """A function of a template, a side and a name of weights: what every word contributes to it.

    That is 0 where the template does not ask for words on that side. The root comes first.
    """
    lengths = table.lengths
    position = np.arange(table.n_tokens) - np.repeat(table.offsets[:-1], lengths)

    @cache
    def hash_column(name: str, shift: int) -> Array:
        """Hashes of the values of all words, or of their neighbours."""
        make = DERIVED.get(name) if name not in table.names else None
        k = table.position(name if make is None else "form")
        texts = table.values[k] if make is None else map(make, table.values[k])
        of_values = np.array([hash_text(name, text) for text in texts], dtype=np.uint32)
        to = position + shift
        inside = (to >= 0) & (to < np.repeat(lengths, lengths))
        nothing = np.uint32(hash_text(name, _NOTHING))
        moved = np.where(inside, np.roll(of_values[table.codes[k]], -shift), nothing)
        root = np.uint32(hash_text(name, _ROOT) if shift == 0 else nothing)
        return np.append(root, moved).astype(np.uint32)

    def hash_template(template: str, side: str, weights: str) -> Array:
        code = np.zeros(table.n_tokens + 1, dtype=np.uint32)
        parsed = parse_template(template)
        slots = [slot for slot in parsed if slot.side == side]
        if slots:
            code += np.uint32(hash_text(weights, " ".join(map(str, parsed)) + side))
        for slot in slots:
            code = _mix(code ^ hash_column(slot.column, slot.shift)) + np.uint32(0x9E3779B9)
        return code

    return hash_template
