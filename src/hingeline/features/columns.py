"""Arithmetic on whole columns of codes: shifting, combining and numbering them.

A *source* is a column with functions applied: its distinct values have the codes 0, 1, …; −1 is
"no value". Behind them come the codes of places outside the sentence: with reach R the token d
before the sentence has code ``n + d − 1``, the token d behind it ``n + R + d − 1``. A conjunction
of sources is one int64 in mixed radix; where that would overflow, the codes so far are numbered
first, so that any number of terms is possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

#: Keys stay below this.
LIMIT = 2**62
#: A direct table may have this many entries, or this many times those it is made from.
SMALL_TABLE = 2**16
TABLE_RATIO = 16


def sentence_edges(offsets: Array, reach: int) -> tuple[list[Array], list[Array]]:
    """For k < reach, the tokens at place k of their sentence, and at place k from its end."""
    lengths = np.diff(offsets)
    first, last = [], []
    for k in range(reach):
        long = lengths > k
        first.append(offsets[:-1][long] + k)
        last.append(offsets[1:][long] - 1 - k)
    return first, last


def shifted(
    codes: Array,
    offset: int,
    edges: tuple[list[Array], list[Array]],
    n_values: int,
    reach: int,
    marked: bool,
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


def stages(radices: Sequence[int]) -> list[int]:
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
