r"""Features by hash: no vocabulary, a fixed number of columns, new values welcome.

The hash of a feature is 64 bits wide and depends on nothing but its text: with ``b(x)`` the
little-endian 8-byte BLAKE2b digest of UTF-8 text and ``m`` the finaliser of SplitMix64, it starts
as ``b(identifier)``, the identifier being the template's literals joined by NUL, and takes in
each value in turn by ``h ← m(h XOR b(value))``. The column is its lowest ``bits`` bits. The
digest of a place outside the sentence is that of ``"\0_B-1"`` and so on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from hingeline.data.tokens import TokenTable
from hingeline.features.columns import sentence_edges, shifted
from hingeline.features.template_text import Template
from hingeline.features.vocabulary import Layout, boundary_values, distinct_values

Array = np.ndarray[Any, Any]


def digests(texts: Iterable[str]) -> Array:
    """64-bit BLAKE2b digests of texts."""
    joined = b"".join(
        blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest() for text in texts
    )
    return np.frombuffer(joined, dtype="<u8").astype(np.uint64)


def mixed(h: Array) -> Array:
    """SplitMix64's finaliser, in place."""
    h ^= h >> np.uint64(30)
    h *= np.uint64(0xBF58476D1CE4E5B9)
    h ^= h >> np.uint64(27)
    h *= np.uint64(0x94D049BB133111EB)
    h ^= h >> np.uint64(31)
    return h


def distinct(numbers: Array) -> Array:
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
        edges = sentence_edges(table.offsets, self.reach)
        per_value = distinct_values(table, self.used_columns())
        outside = digests("\0" + value for value in boundary_values(self.reach))
        codes, hashes = [], []
        for source in self.sources:
            values, tokens = per_value[source.column]
            codes.append(source.learn(values)[tokens])
            hashes.append(np.concatenate([digests(source.values), outside]))
        rows, seen = [], []
        for group in self.groups:
            seed = digests(["\0".join(group.literals)])[0]
            for offsets in group.offsets:
                h = np.full(table.n_tokens, seed, dtype=np.uint64)
                missing = np.zeros(table.n_tokens, dtype=bool)
                for s, offset in zip(group.sources, offsets, strict=True):
                    source = self.sources[s]
                    near = shifted(
                        codes[s], offset, edges, len(source.values), self.reach, source.marked
                    )
                    missing |= near < 0
                    if len(hashes[s]):
                        h ^= hashes[s][near]
                    mixed(h)
                columns = (h & np.uint64(self.n_features - 1)).astype(np.int32)
                columns[missing] = -1
                rows.append(columns)
                if count:
                    seen.append(distinct(h[~missing]))
        if not count:
            return np.array(rows), 0
        features = distinct(np.concatenate(seen))
        used = distinct(features & np.uint64(self.n_features - 1))
        return np.array(rows), len(features) - len(used)
