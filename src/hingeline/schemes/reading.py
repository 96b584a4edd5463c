"""Spans of tokens from labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hingeline.schemes.moves import detect_scheme
from hingeline.schemes.tags import (
    NO_TYPE,
    encode,
    find_scheme,
    number_types,
    plain,
    refuse_foreign,
    scheme_name,
    split_tag,
)

Array = np.ndarray[Any, Any]
Span = tuple[str, int, int]


def span_arrays(
    classes: Sequence[Any], codes: Array, offsets: Array, scheme: str | None, mode: str = "default"
) -> tuple[list[str], Array, Array, Array]:
    """Spans of many sequences at once, as arrays; :func:`spans` says what the arguments mean.

    Parameters
    ----------
    classes : sequence of str
        The distinct labels.
    codes : int ndarray of shape (tokens,)
        Numbers into ``classes``.
    offsets : int ndarray of shape (sequences + 1,)
        Sequence i has the tokens ``offsets[i]`` to ``offsets[i + 1] − 1``.
    scheme : str or None
        Needed in strict mode only.
    mode : {"default", "strict"}

    Returns
    -------
    types : list of str
        Names of the types of span.
    kind, first, stop : int ndarrays of shape (spans,)
        Number into ``types``, first token and the one after the last, counted over all sequences.
    """
    if mode not in ("default", "strict"):
        raise ValueError(f"mode must be 'default' or 'strict', got {mode!r}.")
    tags = [split_tag(label) for label in classes] + [("O", "")]
    starts, inside, ends = _strict_tables(tags, scheme) if mode == "strict" else _tables(tags)
    types = sorted({kind or NO_TYPE for prefix, kind in tags if prefix != "O"})
    number = {kind: k for k, kind in enumerate(types)}
    type_of = np.array([number.get(kind or NO_TYPE, -1) for _, kind in tags], dtype=np.int64)

    empty = np.zeros(0, dtype=np.int64)
    if len(codes) == 0:
        return types, empty, empty, empty
    cuts = offsets[:-1][np.diff(offsets) > 0]
    before = np.concatenate([codes[-1:], codes[:-1]])
    before[cuts] = len(classes)
    after = np.concatenate([codes[1:], codes[:1]])
    after[cuts[1:] - 1] = len(classes)
    after[-1] = len(classes)

    # A run is a stretch of tokens each of which goes on with the one before. A span reaches from
    # the first token of a run that can start one to the run's end, and counts if it may end there.
    breaks = ~inside[before, codes]
    run = np.cumsum(breaks) - 1
    stops = np.append(np.flatnonzero(breaks)[1:], len(codes))
    first = np.flatnonzero(starts[before, codes])
    first = first[np.diff(run[first], prepend=-1) > 0]
    stop = stops[run[first]]
    whole = ends[codes[stop - 1], after[stop - 1]]
    first, stop = first[whole], stop[whole]
    return types, type_of[codes[first]], first, stop


def _tables(tags: list[tuple[str, str]]) -> tuple[Array, Array, Array]:
    """Where a span starts, goes on and may end, by neighbouring labels: the lenient reading."""
    prefixes = np.array([{"L": "E", "U": "S"}.get(prefix, prefix) for prefix, _ in tags])
    kinds = number_types([kind for _, kind in tags])
    tagged = prefixes != "O"
    open_before = np.isin(prefixes, ["B", "I"])
    goes_on = np.isin(prefixes, ["I", "E"])
    inside = open_before[:, None] & goes_on & (kinds[:, None] == kinds)
    return tagged & ~inside, inside, np.ones_like(inside)


def _strict_tables(tags: list[tuple[str, str]], scheme: str | None) -> tuple[Array, Array, Array]:
    if scheme is None:
        if all(prefix == "O" for prefix, _ in tags):
            return _tables(tags)
        raise ValueError("strict mode needs a scheme: pass scheme=.")
    name, rules = find_scheme(scheme)
    refuse_foreign(tags, name)
    prefixes = np.array([prefix for prefix, _ in tags])
    kinds = number_types([kind for _, kind in tags])
    same = kinds[:, None] == kinds
    condition = {"=": same, "!": ~same, "*": np.ones_like(same)}

    def table(pairs: list[str]) -> Array:
        mask = np.zeros_like(same)
        for pair in pairs:
            left, right = ((prefixes == pair[k]) | (pair[k] == ".") for k in (0, 1))
            mask |= left[:, None] & right & condition[pair[2]]
        return mask

    return table(rules.starts), table(rules.inside), table(rules.ends)


def spans(labels: Sequence[Any], scheme: str | None = None, mode: str = "default") -> list[Span]:
    """Spans of one sequence.

    Parameters
    ----------
    labels : sequence of str
    scheme : str, optional
        One of :data:`SCHEMES`; in strict mode the default is what :func:`detect_scheme` says of
        these labels.
    mode : {"default", "strict"}, default="default"
        ``"default"`` reads labels as conlleval and seqeval do: a span that starts or ends in a
        way the scheme forbids still counts, and the scheme does not matter. ``"strict"`` is
        seqeval's strict mode: only spans that the scheme allows count (of IOE1 it loses some
        that are allowed, such as a span of one token before another of its type).

    Returns
    -------
    list of (type, first token, token after the last)
        The type is ``"_"`` where tags have none.

    Examples
    --------
    >>> spans(["B-NP", "I-NP", "O", "I-VP"])
    [('NP', 0, 2), ('VP', 3, 4)]
    >>> spans(["B-NP", "I-NP", "O", "I-VP"], "IOB2", mode="strict")
    [('NP', 0, 2)]
    """
    if scheme is not None:
        scheme = scheme_name(scheme)
    elif mode == "strict":
        scheme = detect_scheme([plain(labels)])
    classes, codes, offsets = encode([plain(labels)])
    types, kind, first, stop = span_arrays(classes, codes, offsets, scheme, mode)
    names = [types[k] for k in kind.tolist()]
    return list(zip(names, first.tolist(), stop.tolist(), strict=True))
