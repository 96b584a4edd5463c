"""SegmentTemplates: features of whole segments, by the words in them."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from hingeline._checks import Array, is_list, require, whole_number
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
    """Features of whole segments, in addition to those of their tokens.

    Each has the value 1 and its own weight for every label. They are learned from the spans of the
    training data; a segment has a feature wherever the same words occur, as a span or not.

    Parameters
    ----------
    seen : bool, default=False
        Whether the words are a span of a label somewhere in the training data (for a training
        sentence: in another one). This is a lexicon made of the training spans.
    words : bool, default=False; the words themselves
    shape : bool, default=False; the shapes of the words, for spans of up to five
    first_last : bool, default=False; the first and the last word, for spans of two or more
    lexicon : dict of name to phrases, optional
        Whether the words are a phrase of this list, words separated by spaces.
    column : str or int, default=0
        Where the words are: a column of tuples or tables, a key of dicts.
    min_count : int, default=1; drop features of fewer training spans than this, except lexicons
    lower : bool, default=True; whether case is ignored, except in shapes

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
        whole_number("min_count", self.min_count, 1)
        known: Any = self.lexicon.values() if isinstance(self.lexicon, Mapping) else [None]
        fine = all(is_list(texts) and all(isinstance(t, str) for t in texts) for texts in known)
        if self.lexicon is not None and not fine:
            what = "lexicon must be a dict of names to lists or sets of phrases, all strings"
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

        Returns offsets by the last token of a segment (tokens + 1,), and for each feature of the
        segments that end there the length and the number of the feature, in order of length.
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
        """Features of the segments of other sentences, as :meth:`fit_transform` returns them."""
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
        """The learned state, as metadata that JSON can hold, and arrays."""
        check_is_fitted(self, "n_features_out_")
        texts = [f"{template}\t{text}" for template, text, _ in self._entries]
        features = np.array([feature for *_, feature in self._entries], dtype=np.int64)
        arrays = pack_strings("texts", texts) | {"features": features}
        return {}, arrays | pack_strings("names", self._names)

    def restore(self, meta: Any, arrays: Any) -> Self:
        """Restore what :meth:`to_state` returned; ``ValueError`` if that is inconsistent."""
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
