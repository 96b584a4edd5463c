"""Features of what is more than a token: of whole segments, and of dependency arcs."""

import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from itertools import chain
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from hingeline._checks import Array, is_list, require
from hingeline.features.input import get_array, get_strings, pack_strings
from hingeline.features.tables import TokenTable
from hingeline.features.templates import Call

#: Shapes of longer spans are none: they are as many as there are spans.
LONGEST_SHAPE = 5
TRIES = ("words", "shape", "first_last")
END = None  # The key of a trie's node under which the features of the phrase that ends there stand.

Spans = Sequence[Sequence[tuple[int, int, Any]]]


def read_words(X: Any, column: str | int) -> list[list[str]]:
    """The texts of one column, sentence by sentence."""
    if isinstance(X, TokenTable):
        return X.sentences(column)
    found: list[list[str]] = []
    for i, sentence in enumerate(X):
        found.append([])
        for t, token in enumerate(sentence):
            word = token
            if not isinstance(token, str):
                with suppress(LookupError, TypeError):
                    word = token[column]
            if not isinstance(word, str):
                what = f"X[{i}][{t}] has no text in column {column!r}, which features of segments"
                raise ValueError(f"{what} read: name it by SegmentTemplates(column=...).")
            found[-1].append(word)
    return found


@dataclass(eq=False, repr=False)
class SegmentTemplates(BaseEstimator):
    """Features of whole segments: what a span of words is, beyond what its tokens are.

    Each has the value 1 and weights of its own for every label. What is learned are the spans of
    the training data; a feature is there wherever the same words stand, span or not.

    Parameters
    ----------
    seen : bool, default=False
        Whether the words are, somewhere in the training data, a span of a label; in the training
        data themselves: in another sentence. A lexicon made of the training spans.
    words : bool, default=False; the words themselves
    shape : bool, default=False; the shapes of the words, of spans of up to five
    first_last : bool, default=False; the first and the last word, of spans of two or more
    lexicon : dict of name to phrases, optional
        Whether the words are a phrase of this list, words separated by blanks.
    column : str or int, default=0
        Where the words are: a column of tuples or tables, a key of dicts.
    min_count : int, default=1; what fewer training spans have is left out; not for lexicons
    lower : bool, default=True; whether case is ignored, but for shapes

    Attributes
    ----------
    n_features_out_ : int

    Examples
    --------
    >>> from hingeline.features import SegmentTemplates
    >>> templates = SegmentTemplates(lexicon={"city": ["Rio de Janeiro", "Lima"]})
    >>> ends, lengths, features = templates.fit_transform([["from", "Rio", "de", "Janeiro"]], [[]])
    >>> ends.tolist(), lengths.tolist(), templates.get_feature_names_out().tolist()
    ([0, 0, 0, 0, 1], [3], ['lexicon=city'])
    """

    seen: bool = False
    words: bool = False
    shape: bool = False
    first_last: bool = False
    lexicon: Any = None
    column: str | int = 0
    min_count: int = 1
    lower: bool = True

    def _check(self) -> None:
        fine = isinstance(self.min_count, int) and self.min_count >= 1
        require(fine, f"min_count must be an integer ≥ 1, got {self.min_count!r}.")
        fine = isinstance(self.lexicon, Mapping) and all(map(is_list, self.lexicon.values()))
        if self.lexicon is not None and not fine:
            what = "lexicon must be a dict of names to lists or sets of phrases"
            raise TypeError(f"{what}, got {self.lexicon!r:.60}.")

    @property
    def reads_words(self) -> bool:
        """Whether there is anything to learn but lengths."""
        return bool(self.seen or self.words or self.shape or self.first_last or self.lexicon)

    def fit(self, X: Any, spans: Spans) -> Self:
        """Learn from sentences and their spans; see :meth:`fit_transform`."""
        self.fit_transform(X, spans)
        return self

    def fit_transform(self, X: Any, spans: Spans) -> tuple[Array, Array, Array]:
        """Learn from sentences and their spans (first token, token after the last, label).

        Returns offsets by the last token of a segment (tokens + 1,), and for each feature of a
        segment that ends there its length and the number of the feature, lengths rising.
        """
        self._check()
        sentences = self._read(X)
        own = Counter[tuple[str, str, Any]]()  # template, text, label
        for (texts, shapes), found in zip(sentences, spans, strict=True):
            for first, stop, label in found:
                phrase = texts[first:stop]
                own["seen", " ".join(phrase), label] += self.seen
                own["words", " ".join(phrase), None] += self.words
                if self.shape and stop - first <= LONGEST_SHAPE:
                    own["shape", " ".join(shapes[first:stop]), None] += 1
                if self.first_last and stop - first > 1:
                    own["first_last", f"{phrase[0]} {phrase[-1]}", None] += 1
        entries = []  # template, text, name of the feature
        for name, phrases in (self.lexicon or {}).items():
            known = {" ".join(self._fold(phrase).split()) for phrase in phrases}
            entries += [("words", text, f"lexicon={name}") for text in sorted(known)]
        for (template, text, label), count in own.items():
            if count >= self.min_count:
                name = f"{template}={text if template != 'seen' else label}"
                entries.append(("words" if template == "seen" else template, text, name))
        names = list(dict.fromkeys(name for _, _, name in entries))
        number = {name: k for k, name in enumerate(names)}
        self._learn([(a, text, number[name]) for a, text, name in entries], names)
        alone = self._find_alone(sentences, spans, own, number) if self.seen else [set()] * len(X)
        return self._encode(sentences, alone)

    def _find_alone(
        self, sentences: Any, spans: Spans, own: Counter[Any], number: dict[str, int]
    ) -> list[set[tuple[str, int]]]:
        """What was seen in one sentence only, sentence by sentence: phrases with their features."""
        alone = []
        for (texts, _), found in zip(sentences, spans, strict=True):
            here = Counter(("seen", " ".join(texts[a:b]), label) for a, b, label in found)
            single = [key for key, count in here.items() if own[key] == count]
            alone.append({(key[1], number.get(f"seen={key[2]}", -1)) for key in single})
        return alone

    def transform(self, X: Any) -> tuple[Array, Array, Array]:
        """Features of the segments of other sentences, as :meth:`fit_transform` gives them."""
        check_is_fitted(self, "n_features_out_")
        sentences = self._read(X)
        return self._encode(sentences, [set()] * len(sentences))

    def _fold(self, text: str) -> str:
        return text.lower() if self.lower else text

    def _read(self, X: Any) -> list[tuple[list[str], list[str]]]:
        """Words of each sentence, in lower case if that is wanted, and their shapes."""
        shape = Call("shape", "collapse")
        return [
            ([*map(self._fold, words)], [*map(str, shape.apply(words))] if self.shape else [])
            for words in read_words(X, self.column)
        ]

    def _learn(self, entries: list[tuple[str, str, int]], names: list[str]) -> None:
        self._entries, self._names = entries, names
        self.n_features_out_ = len(names)
        self._tries: dict[str, dict[Any, Any]] = {name: {} for name in TRIES}
        for template, text, feature in entries:
            node = self._tries[template]
            for word in text.split(" "):
                node = node.setdefault(word, {})
            node.setdefault(END, []).append(feature)

    def _encode(
        self, sentences: Any, alone: list[set[tuple[str, int]]]
    ) -> tuple[Array, Array, Array]:
        rows: list[tuple[int, int, int]] = []  # last token, length, feature
        at = 0
        for (texts, shapes), own in zip(sentences, alone, strict=True):
            for s, length, found in self._match(texts, shapes):
                if own:
                    text = " ".join(texts[s : s + length])
                    found = [f for f in found if (text, f) not in own]
                rows += [(at + s + length - 1, length, f) for f in found]
            at += len(texts)
        ends, lengths, features = np.array(rows, dtype=np.int64).reshape(-1, 3).T
        order = np.lexsort((features, lengths, ends))
        offsets = np.searchsorted(ends[order], np.arange(at + 1))
        return offsets, lengths[order].astype(np.int32), features[order].astype(np.int32)

    def _match(self, texts: list[str], shapes: list[str]) -> Iterator[tuple[int, int, list[int]]]:
        """Start, length and features of the segments of a sentence that have any."""
        for trie, symbols in ((self._tries["words"], texts), (self._tries["shape"], shapes)):
            for s in range(len(symbols)):
                node = trie
                for t in range(s, len(symbols)):
                    node = node.get(symbols[t])  # type: ignore[assignment]
                    if node is None:
                        break
                    if END in node:
                        yield s, t - s + 1, node[END]
        for s, word in enumerate(texts if self._tries["first_last"] else ()):
            lasts = self._tries["first_last"].get(word, {})
            for t in range(s + 1, len(texts)) if lasts else ():
                if texts[t] in lasts:
                    yield s, t - s + 1, lasts[texts[t]][END]

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Names such as ``"seen=LOC"`` and ``"words=rio de janeiro"``; the argument is ignored."""
        check_is_fitted(self, "n_features_out_")
        return np.array(self._names, dtype=object)

    def to_state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """What was learned, as metadata that JSON can hold, and arrays."""
        check_is_fitted(self, "n_features_out_")
        texts, ends = pack_strings([f"{template}\t{text}" for template, text, _ in self._entries])
        names, name_ends = pack_strings(self._names)
        features = np.array([feature for *_, feature in self._entries], dtype=np.int64)
        arrays = {"texts": texts, "texts_ends": ends, "features": features}
        return {}, {**arrays, "names": names, "names_ends": name_ends}

    def restore(self, meta: Any, arrays: Any) -> Self:
        """Know what :meth:`to_state` gave; ``ValueError`` if that is inconsistent."""
        self._check()
        parts = [text.partition("\t") for text in get_strings(arrays, "texts")]
        names = get_strings(arrays, "names")
        features = get_array(arrays, "features", np.int64).tolist()
        fine = len(features) == len(parts) and {*features} <= {*range(len(names))}
        fine = fine and {part[0] for part in parts} <= {*TRIES}
        require(fine, "the entries of the segment templates do not fit their names.")
        pairs = zip(parts, features, strict=True)
        self._learn([(part[0], part[2], f) for part, f in pairs], names)
        return self


# Arcs. A template names columns of the head (h.form), of the modifier (m.xpos) and of their
# neighbours (h.xpos+1). What a word contributes to it is one code as a head and another as a
# modifier, computed once; the code of an arc is put together where arcs are scored
# (hingeline.structures.dependency), also with direction and distance.

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
_BITS = ("arc_bits", "label_bits")
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
        Templates of arcs without labels. By default :data:`ARCS`, those of them whose columns are
        there: the first-order set of McDonald, Crammer and Pereira (2005).
    labels : sequence of str, optional; templates that have a weight for each label
        By default :data:`LABELS`, likewise. Those of one word alone cost least.
    between : str or None, default="upos"
        For each value that this column has between head and modifier, a feature with the values of
        both: best a column of few values.
    columns : sequence of str; the names of the columns where words are tuples
    arc_bits, label_bits : int, optional
        The tables have ``2^bits`` rows, of 8 weights and of one for each label. By default at least
        four rows for each word of training, and half a row for labels: 20 and 17 bits at most.

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
        """Sentences as a table: of dicts, of tuples (``columns``), of plain forms, or a table.

        Sentences without words are refused unless they may be ``empty``.
        """
        if isinstance(X, TokenTable):
            table = X
        else:
            if isinstance(X, (str, bytes, Mapping)) or not hasattr(X, "__len__"):
                raise TypeError(f"X must be a list of sentences, got {type(X).__name__}.")
            first = next((word for sentence in X for word in sentence), None)
            names = ("form",) if isinstance(first, str) else tuple(self.columns)
            if isinstance(first, Mapping):
                names = tuple(first)
                X = [[*_read_dicts(sentence, names, i)] for i, sentence in enumerate(X)]
            elif isinstance(first, tuple):
                what = f"words have {len(first)} columns, and columns= names {len(names)}"
                require(len(first) == len(names), f"{what}: name every column in ArcFeatures.")
            table = TokenTable.from_sentences(X, names)
        require(len(table), "X is empty: there are no sentences.")
        if not empty and not table.lengths.all():
            raise ValueError(f"X[{np.argmin(table.lengths)}] is an empty sentence: drop it.")
        return table

    def fit(self, X: Any, y: Any = None) -> Self:
        """Choose the templates whose columns are there, and number the tags between."""
        table = self.read(X)
        known = {*table.names, *(DERIVED if "form" in table.names else ())}
        self.arcs_ = _choose(self.arcs, ARCS, known, "arcs")
        self.labels_ = _choose(self.labels, LABELS, known, "labels")
        require(self.arcs_, f"no template of arcs has its columns among {', '.join(table.names)}.")
        self.tags_: list[str] = []
        if self.between is not None and (self.between in known or self.between != "upos"):
            self.tags_ = sorted({*table.column(self.between)})
        slots = [slot for t in [*self.arcs_, *self.labels_] for slot in parse_template(t)]
        read = {"form" if slot.column in DERIVED else slot.column for slot in slots}
        read |= {str(self.between)} if self.tags_ else set()
        self.column_names_ = [name for name in table.names if name in read]
        for name, rows, most in zip(_BITS, (4.0, 0.5), (20, 17), strict=True):
            given = getattr(self, name)
            usual = int(np.clip(np.ceil(np.log2(rows * table.n_tokens)), 8, most))
            setattr(self, f"{name}_", _check_bits(name, usual if given is None else given))
        return self

    def transform(self, X: Any) -> ArcCodes:
        """The codes of all words."""
        check_is_fitted(self, "arcs_")
        table = self.read(X, empty=True)
        hashes, labels = _Hashes(table), _by_sides(self.labels_)
        between = [f"h.{self.between} m.{self.between}"] if self.tags_ else []
        both = []
        for side in "hm":
            codes = [hashes.code(t, side, "arc") for t in [*self.arcs_, *between]]
            codes += [] if between else [np.zeros(table.n_tokens + 1, dtype=np.uint32)]
            codes += [hashes.code(t, side, "label") for t in [*labels["hm"], *labels[side]]]
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
            if k == 0:
                return "(none)" if slot.shift else "(root)"
            if not 0 <= at < len(words):
                return "(none)"
            word = words[at]
            known = slot.column in word
            return str(word[slot.column] if known else DERIVED[slot.column](word["form"]))

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
        """Take over what :meth:`to_state` gave."""
        for name in _STATE:
            texts = meta[name]
            require(type(texts) is list and {*map(type, texts)} <= {str}, f"{name} must be texts")
            setattr(self, f"{name}_", texts)
        [parse_template(t) for t in [*self.arcs_, *self.labels_]]
        self.arc_bits_, self.label_bits_ = (_check_bits(name, meta[name]) for name in _BITS)
        return self


def _check_bits(name: str, bits: Any) -> int:
    fine = isinstance(bits, (int, np.integer)) and 1 <= bits <= 28
    require(fine, f"{name} must be a whole number from 1 to 28, or None, got {bits!r:.40}.")
    return int(bits)


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


class _Hashes:
    """Columns of a table as hashes, shifted on request."""

    def __init__(self, table: TokenTable) -> None:
        self.table = table
        self.known: dict[tuple[str, int], Array] = {}
        lengths = table.lengths
        self.position = np.arange(table.n_tokens) - np.repeat(table.offsets[:-1], lengths)
        self.length = np.repeat(lengths, lengths)

    def column(self, name: str, shift: int) -> Array:
        """Hashes of the values of all words, or of their neighbours; the root's come first."""
        if (name, shift) not in self.known:
            make = DERIVED.get(name) if name not in self.table.names else None
            k = self.table.position(name if make is None else "form")
            texts = self.table.values[k] if make is None else map(make, self.table.values[k])
            of_values = np.array([hash_text(name, text) for text in texts], dtype=np.uint32)
            hashes = of_values[self.table.codes[k]]
            to = self.position + shift
            inside = (to >= 0) & (to < self.length)
            nothing = np.uint32(hash_text(name, _NOTHING))
            moved = np.where(inside, np.roll(hashes, -shift), nothing)
            root = np.uint32(hash_text(name, _ROOT) if shift == 0 else nothing)
            self.known[name, shift] = np.append(root, moved).astype(np.uint32)
        return self.known[name, shift]

    def code(self, template: str, side: str, table: str) -> Array:
        """What words contribute to a template on one side; 0 where it does not ask for them."""
        code = np.zeros(self.table.n_tokens + 1, dtype=np.uint32)
        parsed = parse_template(template)
        slots = [slot for slot in parsed if slot.side == side]
        if slots:
            code += np.uint32(hash_text(table, " ".join(map(str, parsed)) + side))
        for slot in slots:
            code = _mix(code ^ self.column(slot.column, slot.shift)) + np.uint32(0x9E3779B9)
        return code
