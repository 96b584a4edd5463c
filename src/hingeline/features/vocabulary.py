"""The features that templates found in training, and how tokens are numbered by them.

A *source* is a column with functions applied: its distinct values have the codes 0, 1, …; −1 is
"no value". Behind them come the codes of places outside the sentence: with reach R the token d
before the sentence has code ``n + d − 1``, the token d behind it ``n + R + d − 1``. A
conjunction of sources is one int64 in mixed radix; where that would overflow, the codes so far
are numbered first, so that any number of terms is possible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np

from hingeline.features.state import get_array, get_ends, get_strings, pack_strings
from hingeline.features.tables import TokenTable
from hingeline.features.template_text import Call, Template, apply_calls

Array = np.ndarray[Any, Any]
Edges = tuple[list[Array], list[Array]]

#: Keys stay below this.
LIMIT = 2**62
#: A direct table may have this many entries, or this many times those it is made from.
SMALL_TABLE = 2**16
TABLE_RATIO = 16


def find_edges(offsets: Array, reach: int) -> Edges:
    """For k < reach, the tokens at place k of their sentence, and at place k from its end."""
    lengths = np.diff(offsets)
    first, last = [], []
    for k in range(reach):
        long = lengths > k
        first.append(offsets[:-1][long] + k)
        last.append(offsets[1:][long] - 1 - k)
    return first, last


def shift(
    codes: Array, offset: int, edges: Edges, n_values: int, reach: int, marked: bool
) -> Array:
    """The codes ``offset`` tokens away; boundary codes, or −1 if not ``marked``, outside."""
    if offset == 0:
        return codes
    out = np.empty_like(codes)
    far = abs(offset)
    if offset < 0:
        out[far:] = codes[:-far]
        base = n_values
    else:
        out[:-far] = codes[far:]
        base = n_values + reach
    for k, tokens in enumerate(edges[0 if offset < 0 else 1][:far]):
        out[tokens] = base + far - k - 1 if marked else -1
    return out


@dataclass
class Numbering:
    """Keys and their numbers: key → place among the sorted ``keys``, or −1."""

    keys: Array
    size: int
    _table: Array | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_table": None}

    def number(self, keys: Array) -> Array:
        """int64 numbers of keys; −1 for −1 and for keys that are not known."""
        if self.size <= max(SMALL_TABLE, TABLE_RATIO * len(self.keys)):
            if self._table is None:
                # The last entry answers for the key −1.
                self._table = np.full(self.size + 1, -1, dtype=np.int64)
                self._table[self.keys] = np.arange(len(self.keys))
            return self._table[keys]
        if len(self.keys) == 0:
            return np.full(len(keys), -1, dtype=np.int64)
        at = np.searchsorted(self.keys, keys)
        at[at == len(self.keys)] = 0
        at[self.keys[at] != keys] = -1
        return at


def learn_numbering(keys: Array, size: int, min_count: int) -> tuple[Numbering, Array]:
    """Number the keys that occur often enough, and return the numbers of all keys."""
    if size <= max(SMALL_TABLE, 4 * len(keys)):
        counts = np.bincount(keys + 1, minlength=size + 1)[1:]
        known = np.flatnonzero(counts >= min_count)
        table = np.full(size + 1, -1, dtype=np.int64)
        table[known] = np.arange(len(known))
        return Numbering(known, size), table[keys]
    distinct, numbers, counts = np.unique(keys, return_inverse=True, return_counts=True)
    kept = (distinct >= 0) & (counts >= min_count)
    if kept.all():
        return Numbering(distinct, size), numbers
    renumbered = np.where(kept, np.cumsum(kept) - 1, -1)
    return Numbering(distinct[kept], size), renumbered[numbers]


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


def split(keys: Array, radices: Sequence[int]) -> list[Array]:
    """The codes that ``combine`` made keys of."""
    parts = []
    for radix in reversed(radices[1:]):
        keys, part = np.divmod(keys, radix)
        parts.append(part)
    return [keys, *reversed(parts)]


def plan_stages(radices: Sequence[int]) -> list[int]:
    """How many terms each key takes: as many as fit, each stage but the first one less.

    The first term of a later stage is the number of the stage before, of which there are fewer
    than 2³¹.
    """
    taken, product = [0], 1
    for radix in radices:
        if product * radix >= LIMIT and taken[-1]:
            taken.append(0)
            product = 2**31
        taken[-1] += 1
        product *= radix
    return taken


@dataclass
class Source:
    """A column with functions applied, and the distinct values it had in training."""

    column: int
    calls: tuple[Call, ...]
    values: list[str] = field(default_factory=list)
    _index: dict[str, int] | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_index": None}

    @property
    def marked(self) -> bool:
        """Whether places outside the sentence count as values; a test merely fails there."""
        return not (self.calls and self.calls[-1].is_test)

    def learn(self, values: Sequence[str]) -> Array:
        """Take over the values of a column; returns the code of each."""
        results = apply_calls(self.calls, values)
        index: dict[str | None, int] = {value: k for k, value in enumerate(dict.fromkeys(results))}
        if None in index:
            index = {v: k for k, v in enumerate(v for v in index if v is not None)}
            index[None] = -1
        codes = np.fromiter(map(index.__getitem__, results), dtype=np.int32, count=len(results))
        self.values = [value for value in index if value is not None]
        self._index = None
        return codes

    def learn_more(self, values: Sequence[str]) -> Array:
        """Take over the values that are new, behind those known; returns the code of each."""
        index = self._known()
        for result in apply_calls(self.calls, values) if self.calls else values:
            if result is not None and result not in index:
                index[result] = len(self.values)
                self.values.append(result)
        return self.look_up(values)

    def _known(self) -> dict[str, int]:
        if self._index is None:
            self._index = {value: k for k, value in enumerate(self.values)}
        return self._index

    def look_up(self, values: Sequence[str]) -> Array:
        """The code of each value of a column, −1 where it is new."""
        known = self._known().get
        results: Any = apply_calls(self.calls, values) if self.calls else values
        return np.fromiter((known(r, -1) for r in results), dtype=np.int32, count=len(values))


@dataclass
class Group:
    """Templates that share their features; nearly always one."""

    literals: tuple[str, ...]
    sources: tuple[int, ...]
    offsets: list[tuple[int, ...]]
    numberings: list[Numbering] = field(default_factory=list)
    first: int = 0

    @property
    def n_features(self) -> int:
        """How many features the templates have."""
        return len(self.numberings[-1].keys)


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
        self.groups = list(groups.values())
        reaches = [abs(o) for group in self.groups for offsets in group.offsets for o in offsets]
        self.reach = max(reaches, default=0)
        self.shared = any(len(group.offsets) > 1 for group in self.groups)

    def used_columns(self) -> list[int]:
        """The columns that templates read."""
        return sorted({source.column for source in self.sources})

    def read_codes(
        self, table: TokenTable, read: Callable[[Source, Sequence[str]], Array]
    ) -> list[Array]:
        """Codes of all tokens, source by source; ``read`` gives those of the distinct values."""
        found = {k: _find_values(table, k) for k in self.used_columns()}
        codes = []
        for source in self.sources:
            values, tokens = found[source.column]
            codes.append(read(source, values)[tokens])
        return codes

    def find_parts(
        self, group: Group, codes: list[Array], edges: Edges, n: int, outside: int | None = None
    ) -> list[Array]:
        """The codes of each term, for all templates of the group one after the other.

        Places outside the sentence have the codes from ``outside`` on, by default those behind
        the values. A template without terms is one feature that every token has.
        """
        parts = []
        for k, s in enumerate(group.sources):
            source = self.sources[s]
            base = len(source.values) if outside is None else outside
            seen = [
                shift(codes[s], offsets[k], edges, base, self.reach, source.marked)
                for offsets in group.offsets
            ]
            parts.append(seen[0] if len(seen) == 1 else np.concatenate(seen))
        return parts or [np.zeros(n * len(group.offsets), dtype=np.int32)]

    def name_features(self, group: Group, parts: Sequence[Array]) -> list[str]:
        """Names of a group's features, from the codes of each term."""
        columns = []
        for s, part in zip(group.sources, parts, strict=False):
            values = np.empty(len(self.sources[s].values) + 2 * self.reach, dtype=object)
            values[:] = [*self.sources[s].values, *boundary_values(self.reach)]
            columns.append(values[part].tolist())
        if not columns:
            return [group.literals[0]] * len(parts[0])
        if len(columns) == 1:
            before, after = group.literals
            return [before + value + after for value in columns[0]]
        form = "{}".join(p.replace("{", "{{").replace("}", "}}") for p in group.literals)
        return list(map(form.format, *columns))

    def pack_values(self) -> dict[str, Array]:
        """The values of all sources as arrays."""
        values, ends = pack_strings([v for source in self.sources for v in source.values])
        sizes = np.cumsum([len(s.values) for s in self.sources], dtype=np.int64)
        return {"values": values, "values_ends": ends, "source_ends": sizes}

    def take_values(self, arrays: Any) -> None:
        """Give the sources their stored values; ``ValueError`` if these do not fit."""
        values = get_strings(arrays, "values")
        ends = get_ends(arrays, "source_ends", len(values))
        if len(ends) != len(self.sources):
            raise ValueError(
                f"array 'source_ends' of the encoder has {len(ends)} entries, but the templates "
                f"need {len(self.sources)}."
            )
        for source, lo, hi in zip(self.sources, [0, *ends.tolist()], ends.tolist(), strict=False):
            source.values = values[lo:hi]
            source._index = {value: k for k, value in enumerate(source.values)}
            if len(source._index) != hi - lo:
                raise ValueError("array 'values' of the encoder holds a value twice.")


class Vocabulary(Layout):
    """Features by number: learned from a table, then looked up.

    The columns of a group are consecutive, in the order of the codes of their values.
    """

    # Encoding ------------------------------------------------------------------------------

    def learn(self, table: TokenTable, min_count: int) -> Array:
        """Number the table's features; returns (groups or more, tokens) column numbers."""
        rows = self._rows(table, self.read_codes(table, Source.learn), min_count)
        if min_count > 1:
            self._drop_unused_values()
        return rows

    def look_up(self, table: TokenTable) -> Array:
        """Column numbers of the table's features, −1 for those that are not known."""
        return self._rows(table, self.read_codes(table, Source.look_up), None)

    def _rows(self, table: TokenTable, codes: list[Array], min_count: int | None) -> Array:
        edges = find_edges(table.offsets, self.reach)
        n, at, first = table.n_tokens, 0, 0
        out = np.empty((sum(len(group.offsets) for group in self.groups), n), dtype=np.int32)
        for group in self.groups:
            parts = self.find_parts(group, codes, edges, n)
            numbers = self._number(group, parts, min_count)
            if min_count is not None:
                group.first = first
                first += group.n_features
            rows = out[at : at + len(group.offsets)].reshape(-1)
            np.add(numbers, group.first, out=rows, casting="unsafe")
            if numbers.min(initial=0) < 0:
                rows[numbers < 0] = -1
            at += len(group.offsets)
        return out

    def _radices(self, group: Group) -> list[int]:
        sizes = [len(self.sources[s].values) + 2 * self.reach for s in group.sources]
        return sizes or [1]

    def _number(self, group: Group, parts: list[Array], min_count: int | None) -> Array:
        """Numbers of the tuples in ``parts``; learned first unless ``min_count`` is None."""
        radices = self._radices(group)
        counts = plan_stages(radices)
        numbers = np.empty(0, dtype=np.int64)
        learned: list[Numbering] = []
        at = 0
        for stage, count in enumerate(counts):
            block, sizes = parts[at : at + count], radices[at : at + count]
            if stage:
                before = learned[-1] if min_count is not None else group.numberings[stage - 1]
                block, sizes = [numbers, *block], [len(before.keys), *sizes]
            keys = combine(block, sizes)
            if min_count is None:
                numbers = group.numberings[stage].number(keys)
            else:
                least = min_count if stage == len(counts) - 1 else 1
                numbering, numbers = learn_numbering(keys, prod(sizes), least)
                learned.append(numbering)
            at += count
        if min_count is not None:
            group.numberings = learned
        return numbers

    # The features themselves ---------------------------------------------------------------

    @property
    def n_features(self) -> int:
        """Features of all groups."""
        return sum(group.n_features for group in self.groups)

    def tuples(self, group: Group) -> list[Array]:
        """The codes of a group's features, one array per term."""
        radices = self._radices(group)
        counts = plan_stages(radices)
        ends = list(accumulate(counts))
        parts: list[Array] = []
        numbers: Any = slice(None)
        for stage in range(len(counts) - 1, -1, -1):
            sizes = radices[ends[stage] - counts[stage] : ends[stage]]
            keys = group.numberings[stage].keys[numbers]
            if stage:
                before = len(group.numberings[stage - 1].keys)
                numbers, *block = split(keys, [before, *sizes])
            else:
                block = split(keys, sizes)
            parts = [*block, *parts]
        return parts

    def _drop_unused_values(self) -> None:
        """Forget values that no remaining feature has; the order of the features stays."""
        tuples = [self.tuples(group) for group in self.groups]
        used = [np.zeros(len(s.values) + 2 * self.reach, dtype=bool) for s in self.sources]
        for group, parts in zip(self.groups, tuples, strict=True):
            for s, part in zip(group.sources, parts, strict=False):
                used[s][part] = True
        renumber = []
        for source, kept in zip(self.sources, used, strict=True):
            kept[len(source.values) :] = True
            renumber.append(np.cumsum(kept) - 1)
            source.values = [v for v, keep in zip(source.values, kept, strict=False) if keep]
            source._index = None
        for group, parts in zip(self.groups, tuples, strict=True):
            if group.sources:
                new = [renumber[s][p] for s, p in zip(group.sources, parts, strict=True)]
                self._number(group, new, 1)

    def names(self) -> Array:
        """Names of all features, as an array of Python strings."""
        out = np.empty(self.n_features, dtype=object)
        for group in self.groups:
            names = self.name_features(group, self.tuples(group))
            out[group.first : group.first + group.n_features] = names
        return out

    # Storage -------------------------------------------------------------------------------

    def to_arrays(self) -> dict[str, Array]:
        """Values once, features as keys; with the templates this is all there is to know."""
        keys = [numbering.keys for group in self.groups for numbering in group.numberings]
        return {
            **self.pack_values(),
            "keys": np.concatenate(keys),
            "key_ends": np.cumsum([len(k) for k in keys], dtype=np.int64),
        }

    @classmethod
    def from_arrays(cls, templates: Sequence[Template], arrays: Any) -> Vocabulary:
        """What ``to_arrays`` returned, checked; ``ValueError`` if it does not fit."""
        self = cls(templates)
        self.take_values(arrays)
        keys = get_array(arrays, "keys", np.int64)
        cuts = [0, *get_ends(arrays, "key_ends", len(keys)).tolist()]
        at = first = 0
        for group in self.groups:
            radices = self._radices(group)
            size, done = 1, 0
            for count in plan_stages(radices):
                if at + 1 >= len(cuts):
                    raise ValueError("array 'key_ends' of the encoder has too few entries.")
                size *= prod(radices[done : done + count])
                part = keys[cuts[at] : cuts[at + 1]]
                if len(part) and (part[0] < 0 or part[-1] >= size or (np.diff(part) <= 0).any()):
                    raise ValueError("array 'keys' of the encoder does not fit its templates.")
                group.numberings.append(Numbering(part, size))
                size = len(part)
                done += count
                at += 1
            group.first = first
            first += group.n_features
        if at + 1 != len(cuts):
            raise ValueError("array 'key_ends' of the encoder has too many entries.")
        return self


def boundary_values(reach: int) -> list[str]:
    """Values of places outside the sentence, in the order of their codes."""
    before = [f"_B-{d}" for d in range(1, reach + 1)]
    return before + [f"_B+{d}" for d in range(1, reach + 1)]


def _find_values(table: TokenTable, column: int) -> tuple[Sequence[str], Array]:
    """The values of a column that occur, and each token's place among them.

    A slice of a table keeps all values of the table; those that do not occur must cost nothing.
    """
    codes, values = table.codes[column], table.values[column]
    if len(values) > len(codes):
        present, tokens = np.unique(codes, return_inverse=True)
        return [values[code] for code in present.tolist()], tokens
    occurs = np.zeros(len(values), dtype=bool)
    occurs[codes] = True
    if not occurs.all():
        codes = (np.cumsum(occurs) - 1)[codes]
        values = [value for value, there in zip(values, occurs.tolist(), strict=True) if there]
    return values, codes
