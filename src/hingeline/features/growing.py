r"""Features of templates that go on being learned: by hash, or behind those known.

:class:`Hasher` has no vocabulary but a fixed number of columns, and new values are welcome. The
hash of a feature is 64 bits wide and depends on nothing but its text: with ``b(x)`` the
little-endian 8-byte BLAKE2b digest of UTF-8 text and ``m`` the finaliser of SplitMix64, it starts
as ``b(identifier)``, the identifier being the template's literals joined by NUL, and takes in each
value in turn by ``h ← m(h XOR b(value))``. The column is its lowest ``bits`` bits. The digest of a
place outside the sentence is that of ``"\0_B-1"`` and so on.

:class:`~hingeline.features.vocabulary.Vocabulary` numbers features by the sorted codes of their
values, which is small and fast but has no place for one more. In a :class:`GrowingVocabulary`
every feature has its codes and its column written down, and is found by a hash of the codes:
sorted tables whose sizes at least double from one to the next (a new one holds what a batch
brought and is merged with its smaller neighbours), so that adding features costs what they are,
not what is known, and looking up visits a handful of tables. Equal hashes of different codes are
told apart by the codes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from hingeline.features.state import get_array, get_ends
from hingeline.features.tables import TokenTable
from hingeline.features.template_text import Template
from hingeline.features.vocabulary import (
    Layout,
    Source,
    Vocabulary,
    boundary_values,
    find_edges,
    shift,
)

Array = np.ndarray[Any, Any]

#: Codes of places outside the sentence start here, whatever the number of values.
OUTSIDE = 2**30
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def digest(texts: Iterable[str]) -> Array:
    """64-bit BLAKE2b digests of texts."""
    joined = b"".join(
        blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest() for text in texts
    )
    return np.frombuffer(joined, dtype="<u8").astype(np.uint64)


def mix(h: Array) -> Array:
    """SplitMix64's finaliser, in place."""
    h ^= h >> np.uint64(30)
    h *= np.uint64(0xBF58476D1CE4E5B9)
    h ^= h >> np.uint64(27)
    h *= np.uint64(0x94D049BB133111EB)
    h ^= h >> np.uint64(31)
    return h


def find_distinct(numbers: Array) -> Array:
    """The distinct numbers, by sorting: faster than NumPy's hash table on these."""
    numbers = np.sort(numbers)
    return numbers[np.concatenate([[True], numbers[1:] != numbers[:-1]])[: len(numbers)]]


class Hasher(Layout):
    """Templates whose features are hashed."""

    def __init__(self, templates: Sequence[Template], bits: int) -> None:
        super().__init__(templates)
        self.bits = bits
        self.n_features = 2**bits

    def encode(self, table: TokenTable, count: bool) -> tuple[Array, int]:
        """(templates, tokens) columns, and by how many distinct features exceed their columns."""
        edges = find_edges(table.offsets, self.reach)
        codes = self.read_codes(table, Source.learn)
        outside = digest("\0" + value for value in boundary_values(self.reach))
        hashes = [np.concatenate([digest(source.values), outside]) for source in self.sources]
        rows, seen = [], []
        for group in self.groups:
            seed = digest(["\0".join(group.literals)])[0]
            for offsets in group.offsets:
                h = np.full(table.n_tokens, seed, dtype=np.uint64)
                missing = np.zeros(table.n_tokens, dtype=bool)
                for s, offset in zip(group.sources, offsets, strict=True):
                    source = self.sources[s]
                    near = shift(
                        codes[s], offset, edges, len(source.values), self.reach, source.marked
                    )
                    missing |= near < 0
                    if len(hashes[s]):
                        h ^= hashes[s][near]
                    mix(h)
                columns = (h & np.uint64(self.n_features - 1)).astype(np.int32)
                columns[missing] = -1
                rows.append(columns)
                if count:
                    seen.append(find_distinct(h[~missing]))
        if not count:
            return np.array(rows), 0
        features = find_distinct(np.concatenate(seen))
        used = find_distinct(features & np.uint64(self.n_features - 1))
        return np.array(rows), len(features) - len(used)


def _hash_codes(parts: Sequence[Array]) -> Array:
    """64-bit hashes of the tuples of codes."""
    h = np.full(len(parts[0]), _GOLDEN, dtype=np.uint64)
    for part in parts:
        h ^= part.astype(np.uint64)
        h += _GOLDEN
        mix(h)
    return h


class Known:
    """The features of one group: codes, columns, and tables to find them by."""

    def __init__(self, n_terms: int) -> None:
        self.count = 0
        self._codes = np.empty((0, n_terms), dtype=np.int32)
        self._columns = np.empty(0, dtype=np.int32)
        self._tables: list[tuple[Array, Array]] = []  # (sorted hashes, their features)

    @property
    def codes(self) -> Array:
        """(features, terms)."""
        return self._codes[: self.count]

    @property
    def columns(self) -> Array:
        """(features,)."""
        return self._columns[: self.count]

    def add(self, codes: Array, columns: Array) -> None:
        """Take in features that are not known yet."""
        if not len(codes):
            return
        end = self.count + len(codes)
        if end > len(self._codes):
            room = end + end // 2
            self._codes = np.concatenate(
                [self.codes, np.empty((room - self.count, codes.shape[1]), dtype=np.int32)]
            )
            self._columns = np.concatenate(
                [self.columns, np.empty(room - self.count, dtype=np.int32)]
            )
        self._codes[self.count : end] = codes
        self._columns[self.count : end] = columns
        keys = _hash_codes(list(codes.T))
        order = np.argsort(keys, kind="stable")
        table = keys[order], order + self.count
        while self._tables and len(self._tables[-1][0]) <= 2 * len(table[0]):
            larger = self._tables.pop()
            keys = np.concatenate([larger[0], table[0]])
            features = np.concatenate([larger[1], table[1]])
            order = np.argsort(keys, kind="stable")
            table = keys[order], features[order]
        self._tables.append(table)
        self.count = end

    def find(self, parts: Sequence[Array]) -> Array:
        """The feature of each tuple of codes, −1 where it is new."""
        keys = _hash_codes(parts)
        found = np.full(len(keys), -1, dtype=np.int64)
        left = np.arange(len(keys))
        for table, features in self._tables:
            wanted = keys[left]
            at = np.searchsorted(table, wanted)
            at[at == len(table)] = 0
            hit = table[at] == wanted
            candidates, places = features[at[hit]], left[hit]
            same = np.ones(len(places), dtype=bool)
            for k, part in enumerate(parts):
                same &= self._codes[candidates, k] == part[places]
            found[places[same]] = candidates[same]
            left = left[~hit]
            if not len(left):
                break
        return found


class GrowingVocabulary(Layout):
    """The features of templates, with room for more; columns in the order they were learned."""

    def __init__(self, templates: Sequence[Template]) -> None:
        super().__init__(templates)
        self.known = [Known(max(1, len(group.sources))) for group in self.groups]
        self.n_features = 0

    @classmethod
    def from_vocabulary(
        cls, templates: Sequence[Template], vocabulary: Vocabulary
    ) -> GrowingVocabulary:
        """The features of a vocabulary, under the columns they have there."""
        self = cls(templates)
        for source, old in zip(self.sources, vocabulary.sources, strict=True):
            source.values = list(old.values)
        for known, group in zip(self.known, vocabulary.groups, strict=True):
            parts = vocabulary.tuples(group)
            codes = np.zeros((group.n_features, max(1, len(group.sources))), dtype=np.int32)
            for k, s in enumerate(group.sources):
                inside = len(self.sources[s].values)
                codes[:, k] = np.where(
                    parts[k] < inside, parts[k], parts[k] - inside + OUTSIDE
                ).astype(np.int32)
            known.add(codes, group.first + np.arange(group.n_features, dtype=np.int32))
        self.n_features = vocabulary.n_features
        return self

    def learn(self, table: TokenTable, min_count: int) -> Array:
        """Number new features of the table behind the known ones; the columns of all."""
        return self._rows(table, min_count)

    def look_up(self, table: TokenTable) -> Array:
        """(groups or more, tokens) columns, −1 for features that are not known."""
        return self._rows(table, None)

    def _rows(self, table: TokenTable, min_count: int | None) -> Array:
        read = Source.look_up if min_count is None else Source.learn_more
        codes = self.read_codes(table, read)
        edges = find_edges(table.offsets, self.reach)
        n, at = table.n_tokens, 0
        out = np.empty((sum(len(group.offsets) for group in self.groups), n), dtype=np.int32)
        for group, known in zip(self.groups, self.known, strict=True):
            parts = self.find_parts(group, codes, edges, n, OUTSIDE)
            numbers = np.full(len(parts[0]), -1, dtype=np.int32)
            there = np.ones(len(parts[0]), dtype=bool)
            for part in parts:
                there &= part >= 0
            whole = there.all()
            if not whole:
                parts = [part[there] for part in parts]
            found = known.find(parts)
            if min_count is not None and (found < 0).any():
                found = self._learn(known, parts, found, min_count)
            columns = np.full(len(found), -1, dtype=np.int32)
            columns[found >= 0] = known.columns[found[found >= 0]]
            if whole:
                numbers = columns
            else:
                numbers[there] = columns
            out[at : at + len(group.offsets)] = numbers.reshape(len(group.offsets), n)
            at += len(group.offsets)
        return out

    def _learn(self, known: Known, parts: list[Array], found: Array, min_count: int) -> Array:
        new = np.flatnonzero(found < 0)
        there = [part[new] for part in parts]
        _, first, counts = np.unique(_hash_codes(there), return_index=True, return_counts=True)
        first = np.sort(first[counts >= min_count])
        codes = np.stack([part[first] for part in there], axis=1)
        columns = self.n_features + np.arange(len(first), dtype=np.int32)
        known.add(codes, columns)
        self.n_features += len(first)
        found[new] = known.find(there)
        return found

    # The features themselves ---------------------------------------------------------------

    def names(self) -> Array:
        """Names of all features, in the order of their columns."""
        out = np.empty(self.n_features, dtype=object)
        for group, known in zip(self.groups, self.known, strict=True):
            codes = known.codes.T
            parts = [
                np.where(code >= OUTSIDE, code - OUTSIDE + len(self.sources[s].values), code)
                for s, code in zip(group.sources, codes, strict=False)
            ]
            out[known.columns] = self.name_features(group, parts or list(codes))
        return out

    # Storage -------------------------------------------------------------------------------

    def to_arrays(self) -> dict[str, Array]:
        """Values once, features as codes and columns."""
        return {
            **self.pack_values(),
            "codes": np.concatenate([known.codes.reshape(-1) for known in self.known]),
            "columns": np.concatenate([known.columns for known in self.known]),
            "group_ends": np.cumsum([known.count for known in self.known], dtype=np.int64),
        }

    @classmethod
    def from_arrays(cls, templates: Sequence[Template], arrays: Any) -> GrowingVocabulary:
        """What ``to_arrays`` returned, checked; ``ValueError`` if it does not fit."""
        self = cls(templates)
        self.take_values(arrays)
        columns = get_array(arrays, "columns", np.int32)
        codes = get_array(arrays, "codes", np.int32)
        ends = get_ends(arrays, "group_ends", len(columns))
        if len(ends) != len(self.groups):
            raise ValueError("array 'group_ends' of the encoder does not fit its templates.")
        if not np.array_equal(np.sort(columns), np.arange(len(columns))):
            raise ValueError("array 'columns' of the encoder must number the features.")
        at = lo = 0
        for group, known, hi in zip(self.groups, self.known, ends.tolist(), strict=True):
            terms = max(1, len(group.sources))
            part = codes[at : at + (hi - lo) * terms]
            if len(part) != (hi - lo) * terms:
                raise ValueError("array 'codes' of the encoder is too short.")
            part = part.reshape(-1, terms)
            for k in range(terms):
                inside = len(self.sources[group.sources[k]].values) if group.sources else 1
                fine = (part[:, k] >= 0) & (part[:, k] < inside)
                fine |= (part[:, k] >= OUTSIDE) & (part[:, k] < OUTSIDE + 2 * self.reach)
                if not fine.all():
                    raise ValueError("array 'codes' of the encoder names values it does not have.")
            known.add(part, columns[lo:hi])
            if not np.array_equal(known.find(list(part.T)), np.arange(hi - lo)):
                raise ValueError("array 'codes' of the encoder holds a feature twice.")
            at += (hi - lo) * terms
            lo = hi
        if at != len(codes):
            raise ValueError("array 'codes' of the encoder is too long.")
        self.n_features = len(columns)
        return self
