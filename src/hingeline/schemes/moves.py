"""Which labels a scheme lets follow one another, and which scheme labels follow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from hingeline.schemes.tags import (
    RULES,
    encode,
    find_scheme,
    is_nested,
    is_tag,
    number_types,
    plain,
    refuse_foreign,
    split_tag,
)

Array = np.ndarray[Any, Any]


def valid_moves(classes: Sequence[Any], scheme: str) -> tuple[Array, Array, Array]:
    """Which labels may start a sequence, follow one another, and end it.

    Parameters
    ----------
    classes : sequence of str
        The labels, in the order of the masks.
    scheme : str
        One of :data:`SCHEMES`.

    Returns
    -------
    start : bool ndarray of shape (labels,)
    move : bool ndarray of shape (labels, labels)
        ``move[a, b]``: may b follow a?
    end : bool ndarray of shape (labels,)

    Examples
    --------
    >>> start, move, end = valid_moves(["B-NP", "I-NP", "O"], "IOB2")
    >>> start.tolist(), move[:, 1].tolist(), end.tolist()
    ([True, False, True], [True, True, False], [True, True, True])
    """
    name, rules = find_scheme(scheme)
    tags = [split_tag(label) for label in classes]
    refuse_foreign(tags, name)
    # The place before the first token and after the last acts as one more O.
    tags.append(("O", ""))
    opens = [rules.opens.get(prefix, True) for prefix, _ in tags]
    closes = [rules.closes.get(prefix, True) for prefix, _ in tags]
    outside = np.array([prefix == "O" for prefix, _ in tags])
    kinds = number_types([kind for _, kind in tags])
    same = (kinds[:, None] == kinds) & ~outside[:, None] & ~outside
    between = _mask(closes, False)[:, None] & _mask(opens, False)
    within = _mask(closes, True)[:, None] & _mask(opens, True) & same
    moves = between | within
    prefixes = np.array([prefix for prefix, _ in tags])
    if name == "IOB1":
        moves &= same | (prefixes != "B")
    if name == "IOE1":
        moves &= same | (prefixes != "E")[:, None]
    return moves[-1, :-1], moves[:-1, :-1], moves[:-1, -1]


def _mask(values: list[bool | None], excluded: bool) -> Array:
    return np.array([value is not excluded for value in values])


def detect_scheme(labels: Iterable[Any]) -> str | None:
    """Name of the scheme that labels are tagged in.

    L or U mean BILOU; S, or B together with E, mean IOBES; B means IOB1 or IOB2, E means IOE1 or
    IOE2, and I alone means IO. Of two candidates the one that fewer neighbouring labels break is
    taken, of equals IOB2 and IOE2. Given only the distinct labels, IOB1 is what has a type with
    I but without B, and no type with B but without I (IOE1 likewise with E).

    Parameters
    ----------
    labels : list of sequences of labels, or iterable of labels
        An iterable of labels is taken for the distinct labels in any order; pass ``[labels]`` for
        one sequence.

    Returns
    -------
    str or None
        One of :data:`SCHEMES`; None if some label is no span tag, if prefixes do not go together,
        or if all labels are ``O``.

    Examples
    --------
    >>> detect_scheme([["I-PER", "O", "I-LOC", "B-LOC"]])
    'IOB1'
    >>> detect_scheme({"B-NP", "I-NP", "O"})
    'IOB2'
    >>> detect_scheme({"NN", "VBD"}) is None
    True
    """
    items = list(labels)
    if not is_nested(items):
        return detect_from_arrays(items, None, None)
    return detect_from_arrays(*encode([plain(sequence) for sequence in items]))


def detect_from_arrays(
    classes: Sequence[Any], codes: Array | None, offsets: Array | None
) -> str | None:
    """:func:`detect_scheme` for numbered labels; without ``codes``, from the labels alone."""
    if not all(is_tag(label) for label in classes):
        return None
    tags = {split_tag(label) for label in classes}
    prefixes = {prefix for prefix, _ in tags} - {"O"}
    for name in ("IO", "IOB2", "IOE2", "IOBES", "BILOU"):
        if prefixes and prefixes <= set(RULES[name].opens):
            break
    else:
        return None
    if name not in ("IOB2", "IOE2"):
        return name
    rival = {"IOB2": "IOB1", "IOE2": "IOE1"}[name]
    if codes is None or offsets is None:
        marked = {kind for prefix, kind in tags if prefix in "BE"}
        plainly = {kind for prefix, kind in tags if prefix == "I"}
        return rival if marked < plainly else name
    broken = [_count_broken(classes, codes, offsets, scheme) for scheme in (name, rival)]
    return rival if broken[1] < broken[0] else name


def _count_broken(classes: Sequence[Any], codes: Array, offsets: Array, scheme: str) -> int:
    """How many neighbours, first and last labels a scheme forbids."""
    start, move, end = valid_moves(classes, scheme)
    filled = np.diff(offsets) > 0
    first, last = offsets[:-1][filled], offsets[1:][filled] - 1
    inner = np.ones(len(codes), dtype=bool)
    inner[first] = False
    here = np.flatnonzero(inner)
    broken = (~move[codes[here - 1], codes[here]]).sum()
    return int(broken + (~start[codes[first]]).sum() + (~end[codes[last]]).sum())
