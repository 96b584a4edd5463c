"""The flat arrays of compiled constraints, and the counts of a labelling."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]

#: Kinds of corpus constraints.
SHARE, SEGMENTS, CHANGES, ALL_SEGMENTS = 0, 1, 2, 3


class CompiledConstraints(NamedTuple):
    """Constraints over given sequences and labels; n sequences, N tokens, K labels, G groups."""

    #: (n + 1,) where sequences begin.
    offsets: Array
    #: (N, K) cost of a label at a token: words, first and last tokens.
    unary: Array
    #: (N,) cost of a change of label between a token and its predecessor.
    change: Array
    #: (K, K) cost of a label (second index) directly after another.
    pair: Array
    #: (G, K) whether a label belongs to a group, and the same as lists.
    member: Array
    member_ptr: Array
    member_labels: Array
    #: (G,) whether a group's own counts cost anything (they may matter to repeats alone).
    counted: Array
    #: (G, longest + 2) cost of a number of tokens or of segments in a sequence.
    token_cost: Array
    segment_cost: Array
    #: (G, longest minimum + 1) cost of a segment of that length (the last: or longer).
    length_cost: Array
    #: (R, G) and (R, G + 1): groups that may not repeat, cost of a number of groups that do.
    repeat_member: Array
    repeat_cost: Array
    #: (P, 2) groups of which the first must stand before the second, (P,) cost of a breach.
    order: Array
    order_cost: Array
    #: (M, N) whether a change at a token counts for a share of changes.
    bad_change: Array
    #: (C,) corpus constraints: kind, group or row of ``bad_change``; (C, 2) the free interval;
    #: (C,) weight, power and scale of the penalty.
    corpus_kind: Array
    corpus_target: Array
    corpus_bounds: Array
    corpus_weight: Array
    corpus_power: Array
    corpus_scale: Array


class State(NamedTuple):
    """Counts of a labelling: what the constraints need to know of it."""

    #: (n, G) tokens and segments of each group in each sequence.
    tokens: Array
    segments: Array
    #: (n, G) first and last position of each group; the length and -1 where it is absent.
    first: Array
    last: Array
    #: (n, R) number of groups with more than one segment.
    repeats: Array
    #: (G,) tokens and segments in the corpus; (1 + M,) changes, and those that count.
    all_tokens: Array
    all_segments: Array
    changes: Array
    #: (1,) penalty of the instance constraints.
    penalty: Array
