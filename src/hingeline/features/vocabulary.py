r"""The features that templates find in tokens, by number: learned, or hashed.

A *source* is a column with functions applied: its distinct values have the codes 0, 1, …; −1 is
"no value". Behind them come the codes of places outside the sentence: with room for n values and
reach R the token d before the sentence has code ``n + d − 1``, the token d behind it
``n + R + d − 1``. A conjunction of sources is one int64 key in mixed radix; where that would
overflow, the codes so far are numbered first, so that any number of terms is possible.

:class:`Vocabulary` numbers the features of its first table in the order of their keys, group by
group, and those it learns later behind them, in the order of their occurrence. Where the values of
a source outgrow its room, the room doubles and all keys are made anew: what is learned later costs
what it is, not what is known.

:class:`Hasher` has no vocabulary but a fixed number of columns, and new values are welcome. The
hash of a feature is 64 bits wide and depends on nothing but its text: with ``b(x)`` the
little-endian 8-byte BLAKE2b digest of UTF-8 text and ``m`` the finaliser of SplitMix64, it starts
as ``b(identifier)``, the identifier being the template's literals joined by NUL, and takes in each
value in turn by ``h ← m(h XOR b(value))``. The column is its lowest ``bits`` bits. The digest of a
place outside the sentence is that of ``"\0_B-1"`` and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from itertools import chain, repeat
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from hingeline._checks import Array, require, warn
from hingeline.features.input import get_array, get_ends, get_strings, pack_strings
from hingeline.features.tables import TokenTable

if TYPE_CHECKING:
    from hingeline.features.templates import Call, Template

_ENOUGH = 20  # Tokens of which one at least should be known.

Edges = tuple[list[Array], list[Array]]

LIMIT = 2**62  # Keys stay below this.
#: A direct table may have this many entries, or this many times those it is made from.
SMALL_TABLE = 2**16
TABLE_RATIO = 16


class Numbering:
    """Keys from 0 to ``size`` − 1 and their numbers, with room for more.

    They are kept as sorted runs whose lengths at least double from one to the next: a new one
    holds what a batch brought and is merged with its smaller neighbours. Where keys are dense a
    direct table finds them faster.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.count = 0
        self._runs: list[tuple[Array, Array]] = []
        self._table: Array | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_table": None}

    def items(self) -> tuple[Array, Array]:
        """All keys and their numbers."""
        runs = [(np.empty(0, np.int64), np.empty(0, np.int32)), *self._runs]
        keys, numbers = zip(*runs, strict=True)
        return np.concatenate(keys), np.concatenate(numbers)

    def add(self, keys: Array, numbers: Array) -> None:
        """Take in keys that are not known yet."""
        if not len(keys):
            return
        self.count += len(keys)
        if self._table is not None:
            self._table[keys] = numbers
        while True:
            order = np.argsort(keys, kind="stable")
            keys, numbers = keys[order], numbers[order]
            if not self._runs or len(self._runs[-1][0]) > 2 * len(keys):
                break
            older = self._runs.pop()
            keys, numbers = np.append(older[0], keys), np.append(older[1], numbers)
        self._runs.append((keys, numbers))

    def look_up(self, keys: Array) -> Array:
        """Numbers of keys; −1 for −1 and for keys that are not known."""
        if self.size <= max(SMALL_TABLE, TABLE_RATIO * self.count):
            if self._table is None:
                # The last entry answers for the key −1.
                self._table = np.full(self.size + 1, -1, dtype=np.int32)
                for known, numbers in self._runs:
                    self._table[known] = numbers
            return self._table[keys]
        found = np.full(len(keys), -1, dtype=np.int32)
        for known, numbers in self._runs:
            at = np.searchsorted(known, keys)
            at[at == len(known)] = 0
            found = np.where(known[at] == keys, numbers[at], found)
        return found

    def learn(self, keys: Array, min_count: int, first: int, counts: Array | None = None) -> Array:
        """Number the first keys that occur often enough, or ``counts`` times; numbers of all."""
        if self.size <= max(SMALL_TABLE, 4 * len(keys)):
            known = np.flatnonzero(np.bincount(keys + 1, counts, self.size + 1)[1:] >= min_count)
            self.add(known, np.arange(first, first + len(known), dtype=np.int32))
            return self.look_up(keys)
        distinct, places = np.unique(keys, return_inverse=True)
        kept = (distinct >= 0) & (np.bincount(places, counts, len(distinct)) >= min_count)
        numbers = np.where(kept, np.cumsum(kept) + (first - 1), -1).astype(np.int32)
        self.add(distinct[kept], numbers[kept])
        return numbers[places]

    def learn_more(self, keys: Array, min_count: int, first: int) -> Array:
        """Number new keys that occur often enough as they come; the numbers of all."""
        found = self.look_up(keys)
        new = np.flatnonzero((found < 0) & (keys >= 0))
        if len(new):
            _, at, counts = np.unique(keys[new], return_index=True, return_counts=True)
            at = new[np.sort(at[counts >= min_count])]
            self.add(keys[at], np.arange(first, first + len(at), dtype=np.int32))
            found[new] = self.look_up(keys[new])
        return found


def combine(parts: Sequence[Array], radices: Sequence[int]) -> Array:
    """Codes as int64 keys in mixed radix; −1 where any of them is −1."""
    key = parts[0].astype(np.int64)
    missing = key < 0
    for part, radix in zip(parts[1:], radices[1:], strict=True):
        key *= radix
        key += part
        missing |= part < 0
    key[missing] = -1
    return key


@dataclass
class Source:
    """A column with functions applied, and the distinct values it has had."""

    column: int
    calls: tuple[Call, ...]
    codes: dict[Any, int] = field(default_factory=dict)  # of its values, in order
    room: int = 0

    @property
    def marked(self) -> bool:
        """Whether places outside the sentence count as values; a test merely fails there."""
        return not (self.calls and self.calls[-1].is_test)

    def take(self, values: Iterable[str]) -> None:
        """Have these values and no others."""
        self.codes = {value: k for k, value in enumerate(values)}
        self.room = len(self.codes)

    def learn(self, values: Sequence[str]) -> Array:
        """Take over the values of a column, and forget all others; returns the code of each."""
        self.codes = {}
        found = self.look_up(values, grow=True)
        self.room = len(self.codes)
        return found

    def look_up(self, values: Sequence[str], grow: bool = False) -> Array:
        """The code of each value of a column; new ones are taken over, or have −1."""
        results: Sequence[str | None] = values
        for call in self.calls:
            results = call.apply(results)
        for result in dict.fromkeys(results) if grow else ():
            if result is not None:
                self.codes.setdefault(result, len(self.codes))
        return self._find(results)

    def _find(self, results: Collection[str | None]) -> Array:
        found = map(self.codes.get, results, repeat(-1))
        return np.fromiter(found, dtype=np.int32, count=len(results))


@dataclass
class Group:
    """Templates that share their features; nearly always one."""

    literals: tuple[str, ...]
    sources: tuple[int, ...]
    offsets: list[tuple[int, ...]]
    numberings: list[Numbering] = field(default_factory=list)


class Layout:
    """Which sources and groups a list of templates needs; the same for the same templates."""

    def __init__(self, templates: Sequence[Template]) -> None:
        numbers: dict[Any, int] = {}
        groups: dict[tuple[str, ...], Group] = {}
        for template in templates:
            which = tuple(numbers.setdefault(s, len(numbers)) for s in template.sources)
            group = groups.setdefault(template.literals, Group(template.literals, which, []))
            group.offsets.append(tuple(term.offset for term in template.terms))
        self.sources = [Source(column, calls) for column, calls in numbers]
        self.used_columns = sorted({source.column for source in self.sources})
        self.groups = list(groups.values())
        self.reach = max((abs(term.offset) for t in templates for term in t.terms), default=0)

    def read_codes(
        self, table: TokenTable, read: Callable[[Source, Sequence[str]], Array]
    ) -> tuple[list[Array], Edges]:
        """Codes of all tokens, source by source, and for k < reach the k-th of sentences' ends.

        ``read`` gives the codes of distinct values.
        """
        found = {k: _find_values(table, k) for k in self.used_columns}
        own = [(source, *found[source.column]) for source in self.sources]
        codes = [read(source, values)[tokens] for source, values, tokens in own]
        starts, ends, lengths = table.offsets[:-1], table.offsets[1:], table.lengths
        first = [starts[lengths > k] + k for k in range(self.reach)]
        return codes, (first, [ends[lengths > k] - 1 - k for k in range(self.reach)])

    def shift(self, s: int, codes: list[Array], offset: int, edges: Edges) -> Array:
        """The codes of a source ``offset`` tokens away; a test has none outside the sentence."""
        if offset == 0:
            return codes[s]
        source, behind, far = self.sources[s], offset > 0, abs(offset)
        out = np.roll(codes[s], -offset)
        base = source.room + behind * self.reach
        for k, tokens in enumerate(edges[behind][:far]):
            out[tokens] = base + far - k - 1 if source.marked else -1
        return out

    def boundary_values(self) -> list[str]:
        """Values of places outside the sentence, in the order of their codes."""
        return [f"_B{sign}{d}" for sign in "-+" for d in range(1, self.reach + 1)]


class Vocabulary(Layout):
    """Features by number, in a group's last numbering: learned from tables, then looked up."""

    def __init__(self, templates: Sequence[Template]) -> None:
        super().__init__(templates)
        self.n_features = 0
        self.grown = False  # learned from more than one table

    def learn(self, table: TokenTable, min_count: int) -> Array:
        """Number the table's features; returns (templates, tokens) columns."""
        codes, edges = self.read_codes(table, Source.learn)
        self.open_numberings()
        rows = self._rows(table, codes, edges, Numbering.learn, min_count)
        self._forget_unused(min_count)
        return rows

    def merge(
        self, blocks: Sequence[Vocabulary], counts: Sequence[Array], min_count: int
    ) -> list[Array]:
        """Number the features of blocks as ``learn`` would those of all their tables in a row.

        Their order follows from that in which values first occur. Returns the new columns of each
        block's features, −1 for those too rare.
        """
        outside = np.arange(2 * self.reach)
        codes: list[list[Array]] = []  # by source and block: own code -> code here
        for s, source in enumerate(self.sources):
            own = [block.sources[s].codes for block in blocks]
            source.take(dict.fromkeys(chain.from_iterable(own)))
            codes.append([np.append(source._find(v), source.room + outside) for v in own])
        self.open_numberings()
        found = [np.empty(block.n_features, dtype=np.int64) for block in blocks]
        for g, group in enumerate(self.groups):
            tuples, places = zip(*(b._tuples(b.groups[g]) for b in blocks), strict=True)
            often = np.concatenate([c[at] for c, at in zip(counts, places, strict=True)])
            parts = [
                np.concatenate([new[old[k]] for new, old in zip(codes[s], tuples, strict=True)])
                for k, s in enumerate(group.sources)
            ] or [np.zeros(len(often), dtype=np.int32)]
            columns = self._number(group, parts, partial(Numbering.learn, counts=often), min_count)
            pieces = np.split(columns, np.cumsum([*map(len, places)])[:-1])
            for new, at, piece in zip(found, places, pieces, strict=True):
                new[at] = piece
        self._forget_unused(min_count)
        return found

    def open_numberings(self) -> None:
        """Number nothing so far, with room for all that the sources' values can make."""
        for group in self.groups:
            group.numberings = [Numbering(prod(radices)) for _, radices in self._plan(group)]

    def _forget_unused(self, min_count: int) -> None:
        """Forget the values that no feature has, which is so only where some are too rare."""
        if min_count > 1:
            used = [np.zeros(source.room + 2 * self.reach, dtype=bool) for source in self.sources]
            for group in self.groups:
                for s, part in zip(group.sources, self._tuples(group)[0], strict=False):
                    used[s][part] = True
            self._recode(kept=used)

    def learn_more(self, table: TokenTable, min_count: int) -> Array:
        """Number new features of the table behind the known ones; the columns of all."""
        codes, edges = self.read_codes(table, partial(Source.look_up, grow=True))
        self.grown = True
        rooms = [s.room if len(s.codes) <= s.room else 2 * len(s.codes) for s in self.sources]
        if rooms != [source.room for source in self.sources]:
            self._recode(rooms)
        return self._rows(table, codes, edges, Numbering.learn_more, min_count)

    def look_up(self, table: TokenTable) -> Array:
        """Columns of the table's features, −1 for those that are not known."""
        codes, edges = self.read_codes(table, Source.look_up)
        for source, own in zip(self.sources, codes, strict=True):
            if not source.calls and len(own) >= _ENOUGH and own.max() < 0:
                name, value = table.names[source.column], table.values[source.column][0]
                what = f"no value of column {name!r} occurred in training, such as {value!r:.40}"
                warn(f"{what}: are these the columns of training?")
        return self._rows(table, codes, edges, None, 1)

    def _rows(
        self, table: TokenTable, codes: list[Array], edges: Edges, learn: Any, min_count: int
    ) -> Array:
        rows = []
        for group in self.groups:
            parts = [
                np.concatenate([self.shift(s, codes, near[k], edges) for near in group.offsets])
                for k, s in enumerate(group.sources)
            ]  # a template without terms is one feature that every token has
            parts = parts or [np.zeros(table.n_tokens * len(group.offsets), dtype=np.int32)]
            rows.append(self._number(group, parts, learn, min_count).reshape(-1, table.n_tokens))
        return np.concatenate(rows)

    def _number(self, group: Group, parts: list[Array], learn: Any, min_count: int) -> Array:
        """Columns of the tuples in ``parts``, learned first if ``learn`` says how."""
        last = group.numberings[-1]
        if learn is None:
            return last.look_up(self._last_keys(group, parts, Numbering.look_up))
        keys = self._last_keys(group, parts, lambda own, keys: learn(own, keys, 1, own.count))
        before = last.count
        columns: Array = learn(last, keys, min_count, self.n_features)
        self.n_features += last.count - before
        return columns

    def _last_keys(
        self, group: Group, parts: list[Array], number: Callable[[Numbering, Array], Array]
    ) -> Array:
        """Keys of tuples in a group's last numbering; keys in the others get numbers on the way."""
        before: list[Array] = []
        for stage, (terms, radices) in enumerate(self._plan(group), 1):
            keys = combine([*before, *parts[terms]], radices)
            if stage < len(group.numberings):
                before = [number(group.numberings[stage - 1], keys)]
        return keys

    def _plan(self, group: Group) -> list[tuple[slice, list[int]]]:
        """Which terms each key takes, as many as fit, and its radices."""
        sizes = [self.sources[s].room + 2 * self.reach for s in group.sources] or [1]
        stages: list[tuple[slice, list[int]]] = []
        start = 0
        radices: list[int] = []
        for k, size in enumerate(sizes):
            if k > start and prod(radices) * size >= LIMIT:
                stages.append((slice(start, k), radices))
                start, radices = k, [2**31]  # first the number of the key before: fewer than that
            radices = [*radices, size]
        return [*stages, (slice(start, len(sizes)), radices)]

    def _tuples(self, group: Group) -> tuple[list[Array], Array]:
        """The codes of a group's features, one array per term, and their columns."""
        keys, columns = group.numberings[-1].items()
        parts: list[Array] = []
        for stage, (_, radices) in reversed([*enumerate(self._plan(group))]):
            block: list[Array] = [*np.unravel_index(keys, radices)]  # what ``combine`` combined
            if stage:
                known, numbers = group.numberings[stage - 1].items()
                keys = known[np.argsort(numbers)][block.pop(0)]
            parts = [*block, *parts]
        return parts, columns

    def _recode(self, rooms: Iterable[int] = repeat(0), kept: list[Array] | None = None) -> None:
        """Give sources more room, forget values that are not kept, renew all keys, no column."""
        found = [self._tuples(group) for group in self.groups]
        renumber = []
        for s, (source, room) in enumerate(zip(self.sources, rooms, strict=False)):
            before, outside = source.room, np.arange(2 * self.reach)
            keep = np.ones(before, bool) if kept is None else kept[s][:before]
            if kept is not None:
                source.take([v for v, there in zip(source.codes, keep, strict=True) if there])
            source.room = max(room, len(source.codes))
            renumber.append(np.append(np.cumsum(keep) - 1, source.room + outside))
        self.open_numberings()
        for group, (parts, columns) in zip(self.groups, found, strict=True):
            if group.sources:
                parts = [renumber[s][p] for s, p in zip(group.sources, parts, strict=True)]
            keys = self._last_keys(group, parts, lambda own, keys: own.learn(keys, 1, 0))
            group.numberings[-1].add(keys, columns)

    def names(self) -> Array:
        """Names of all features, as an array of Python strings."""
        out = np.empty(self.n_features, dtype=object)
        for group in self.groups:
            parts, columns = self._tuples(group)
            texts = []
            for s, part in zip(group.sources, parts, strict=False):
                codes, room = self.sources[s].codes, self.sources[s].room
                values = [*codes, *[""] * (room - len(codes)), *self.boundary_values()]
                texts.append(map(values.__getitem__, part.tolist()))
            form = "{}".join(p.replace("{", "{{").replace("}", "}}") for p in group.literals)
            out[columns] = [*map(form.format, *texts)] if texts else group.literals[0]
        return out

    def to_arrays(self) -> dict[str, Array]:
        """Values once, features as rising keys; columns where these do not rise with the keys."""
        if self.grown:
            self._recode()
        items = [numbering.items() for group in self.groups for numbering in group.numberings]
        columns = [group.numberings[-1].items()[1] for group in self.groups]
        return {
            **pack_strings("values", [v for source in self.sources for v in source.codes]),
            "source_ends": np.cumsum([len(s.codes) for s in self.sources], dtype=np.int64),
            "keys": np.concatenate([keys for keys, _ in items]),
            "key_ends": np.cumsum([len(keys) for keys, _ in items], dtype=np.int64),
            **({"columns": np.concatenate(columns).astype(np.int64)} if self.grown else {}),
        }

    @classmethod
    def from_arrays(cls, templates: Sequence[Template], arrays: Any, grown: bool) -> Vocabulary:
        """What ``to_arrays`` returned, checked; ``ValueError`` if it does not fit."""
        self = cls(templates)
        self.grown = grown
        values = get_strings(arrays, "values")
        ends = get_ends(arrays, "source_ends", len(values)).tolist()
        what = f"array 'source_ends' of the encoder has {len(ends)} entries, but the templates need"
        require(len(ends) == len(self.sources), f"{what} {len(self.sources)}.")
        for source, lo, hi in zip(self.sources, [0, *ends], ends, strict=False):
            source.take(values[lo:hi])
            require(source.room == hi - lo, "array 'values' of the encoder holds a value twice.")
        keys = get_array(arrays, "keys", np.int64)
        key_ends = get_ends(arrays, "key_ends", len(keys))
        self.open_numberings()
        fine = len(key_ends) == sum(len(group.numberings) for group in self.groups)
        require(fine, "array 'key_ends' of the encoder does not fit its templates.")
        columns = get_array(arrays, "columns", np.int64) if grown else np.arange(len(keys))
        fine = not grown or np.array_equal(np.sort(columns), np.arange(len(columns)))
        require(fine, "array 'columns' of the encoder must number the features.")
        pieces = iter(np.split(keys, key_ends[:-1]))
        for group in self.groups:
            for stage, own in enumerate(group.numberings):
                part, limit = next(pieces), own.size
                if stage:  # a key's first part numbers the keys of the stage before
                    limit = group.numberings[stage - 1].count * (own.size // 2**31)
                if len(part) and (part[0] < 0 or part[-1] >= limit or (np.diff(part) <= 0).any()):
                    raise ValueError("array 'keys' of the encoder does not fit its templates.")
                if own is not group.numberings[-1]:
                    own.add(part, np.arange(len(part), dtype=np.int32))
            first, self.n_features = self.n_features, self.n_features + len(part)
            if self.n_features > len(columns):
                break
            own.add(part, columns[first : self.n_features].astype(np.int32))
        fine = not grown or self.n_features == len(columns)
        require(fine, "array 'columns' of the encoder does not fit its keys.")
        return self


def _find_values(table: TokenTable, column: int) -> tuple[Sequence[str], Array]:
    """The values of a column as they first occur, and each token's place among them."""
    codes, values = table.codes[column], table.values[column]
    if len(values) > len(codes):  # of a slice, which keeps all: others must cost nothing
        present, codes = np.unique(codes, return_inverse=True)
        values = [values[code] for code in present.tolist()]
    first = np.full(len(values), len(codes))
    np.minimum.at(first, codes, np.arange(len(codes)))
    if len(values) and first[-1] < len(codes) and (first[1:] > first[:-1]).all():
        return values, codes
    order = np.argsort(first)[: np.count_nonzero(first < len(codes))]
    places = np.empty(len(values), dtype=np.int32)
    places[order] = np.arange(len(order))
    return [values[k] for k in order.tolist()], places[codes]


def digest(texts: Iterable[str]) -> Array:
    """64-bit BLAKE2b digests of texts."""
    encoded = (text.encode("utf-8", "surrogatepass") for text in texts)
    joined = b"".join(blake2b(data, digest_size=8).digest() for data in encoded)
    return np.frombuffer(joined, dtype="<u8").astype(np.uint64)


def mix(h: Array) -> None:
    """SplitMix64's finaliser, in place."""
    h ^= h >> np.uint64(30)
    h *= np.uint64(0xBF58476D1CE4E5B9)
    h ^= h >> np.uint64(27)
    h *= np.uint64(0x94D049BB133111EB)
    h ^= h >> np.uint64(31)


def _find_distinct(numbers: Array) -> Array:
    """The distinct numbers, by sorting: faster than NumPy's hash table on these."""
    numbers = np.sort(numbers)
    return numbers[np.concatenate([[True], numbers[1:] != numbers[:-1]])[: len(numbers)]]


class Hasher(Layout):
    """Features by hash."""

    def __init__(self, templates: Sequence[Template], bits: int) -> None:
        super().__init__(templates)
        self.n_features = 2**bits
        self.collisions = 0  # by how many distinct features exceed the columns they fill

    def learn(self, table: TokenTable, min_count: int) -> Array:
        """The columns of a table, (templates, tokens), and its collisions."""
        seen: list[Array] = []
        rows = self.look_up(table, seen)
        features = _find_distinct(np.concatenate(seen))
        used = _find_distinct(features & np.uint64(self.n_features - 1))
        self.collisions = len(features) - len(used)
        return rows

    def learn_more(self, table: TokenTable, min_count: int) -> Array:
        """The columns of a table: all features have theirs already."""
        return self.look_up(table)

    def look_up(self, table: TokenTable, seen: list[Array] | None = None) -> Array:
        """The columns of a table; distinct hashes are appended to ``seen``."""
        # On a copy: threads do not meet here, and nothing of the table stays or is stored.
        layout = copy(self)
        layout.sources = [*map(copy, self.sources)]
        codes, edges = layout.read_codes(table, Source.learn)
        outside = digest("\0" + value for value in self.boundary_values())
        hashes = [np.concatenate([digest(source.codes), outside]) for source in layout.sources]
        rows = []
        for group in self.groups:
            seed = digest(["\0".join(group.literals)])[0]
            for offsets in group.offsets:
                h = np.full(table.n_tokens, seed, dtype=np.uint64)
                missing = np.zeros(table.n_tokens, dtype=bool)
                for s, offset in zip(group.sources, offsets, strict=True):
                    near = layout.shift(s, codes, offset, edges)
                    missing |= near < 0
                    if len(hashes[s]):
                        h ^= hashes[s][near]
                    mix(h)
                columns = (h & np.uint64(self.n_features - 1)).astype(np.int32)
                columns[missing] = -1
                rows.append(columns)
                if seen is not None:
                    seen.append(_find_distinct(h[~missing]))
        return np.array(rows)

    def names(self) -> Array:
        """Numbers: what a hash came from is not known."""
        return np.array([f"hash{k}" for k in range(self.n_features)], dtype=object)
