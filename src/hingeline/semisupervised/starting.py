"""What a semi-supervised fit starts from: sequences with labels first, and labels to switch.

As printed, (8), label switching starts from the best labellings without constraints. Single
switches seldom lead from there to labels that keep the constraints: to move the end of a segment,
or to give up a second one, several labels must change at once, and the first of these switches
costs more than it gains. A beam search over ``C_u/u · w·f(x, y) − penalty(y)``, which sees whole
segments, starts much lower, with prices on labels where their shares in the corpus are constrained;
switching then adds what the beam leaves out, the slack and the other corpus-level constraints.
"""

from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from hingeline._checks import Array, check_class_weight, check_sample_weight, is_list, require
from hingeline._jit import kernel
from hingeline.constraints.decode import climb_with_predicates, search_by_beam
from hingeline.constraints.penalties import Penalties
from hingeline.constraints.switches import SHARE
from hingeline.core.primitives import PART, Workers
from hingeline.estimators.allowed import choose_scheme
from hingeline.estimators.chain import scale_C
from hingeline.features.input import find_classes, learn_tokens, number_labels, plain_labels
from hingeline.features.tables import TokenTable
from hingeline.structures.chain import ChainProblem, layout_of, position_scores
from hingeline.structures.chain_batch import decode_all

BEAM_WIDTH = 8  # Hypotheses of the beam.
#: Prices of labels are changed so often in one call, by this times the logarithm of how far a share
#: is off; shares need not be met more closely than the tolerance.
PRICE_CHANGES = 4
PRICE_STEP = 0.3
SHARE_TOLERANCE = 0.002
BEAM_FORBIDDEN = 1e13  # What a forbidden label or move costs in the beam, where it must be finite.


@dataclass
class PartlyLabelled:
    """Encoded sequences, those with labels first."""

    model: Any  # knows its encoder, classes and scheme by now
    order: Array  # numbers of the sequences as the caller counts them
    first: int  # how many are labelled
    matrix: sp.csr_matrix
    offsets: Array
    labels: Array  # of the labelled tokens
    weights: Array  # of the labelled sequences
    seen: list[list[Any]]  # what constraints see of the sequences

    @property
    def n(self) -> int:
        """Number of sequences."""
        return len(self.order)

    @property
    def words(self) -> list[list[Any]]:
        """What constraints see of the unlabelled sequences."""
        return self.seen[self.first :]

    def make_problem(self, lo: int, hi: int) -> Any:
        """The sequences ``lo ≤ i < hi``; unlabelled tokens have label 0 for the time being."""
        a, b = int(self.offsets[lo]), int(self.offsets[hi])
        padded = np.zeros(b - a, dtype=np.int32)
        known = self.labels[a:b]
        padded[: len(known)] = known
        model = self.model
        if isinstance(getattr(model, "class_weight", None), str):
            # Balance what is labelled, not what is to be labelled.
            model, classes = copy(model), model.classes_.tolist()
            found = check_class_weight(model.class_weight, classes, self.labels)
            model.class_weight = dict(zip(classes, found.tolist(), strict=True))
        tokens = model._with_constant(self.matrix[a:b])
        return model._make(tokens, self.offsets[lo : hi + 1] - a, padded)

    def restore_order(self, labels: Array) -> list[Array]:
        """Labels of all sequences in the caller's order, for those of the unlabelled tokens."""
        numbers = np.concatenate([self.labels, labels])
        parts = np.split(self.model.classes_[numbers], self.offsets[1:-1])
        return [parts[place] for place in np.argsort(self.order)]


def prepare(
    model: Any, X: Any, y: Any, lengths: Any, sample_weight: Any, words: Any, classes: Any
) -> PartlyLabelled:
    """Fit the model's encoder on all sequences, find the classes, and put labelled ones first."""
    encoder, matrix, offsets = learn_tokens(model.features, X, lengths)
    known, flat = split_labels(y, offsets, lengths)
    require(flat, "y is None for all sequences: at least one must be labelled to begin from.")
    order = np.concatenate([np.flatnonzero(known), np.flatnonzero(~known)])
    first = int(known.sum())
    if model.C == "scale":
        model.C = scale_C(matrix.data, matrix.indptr, False)
    model.encoder_ = encoder
    model.n_features_in_ = matrix.shape[1]
    declared = [] if classes is None else plain_labels(classes)
    model.classes_, index = find_classes([*declared, *flat])
    labels = number_labels(flat, index)
    sizes = np.diff(offsets)[order]
    ends = np.cumsum(sizes)
    rows = np.arange(ends[-1]) + np.repeat(offsets[:-1][order] - (ends - sizes), sizes)
    inner = np.concatenate([[0], ends]).astype(np.int64)
    model.scheme_ = choose_scheme(model.scheme, model.classes_, labels, inner[: first + 1])
    weights = check_sample_weight(sample_weight, len(known))[order[:first]]
    seen = find_words(X, words, order, offsets)
    return PartlyLabelled(model, order, first, matrix[rows], inner, labels, weights, seen)


def split_labels(y: Any, offsets: Array, lengths: Any) -> tuple[Array, list[Any]]:
    """Which sequences have labels, and the labels of these, one after the other.

    A sequence without labels is None in y, or None for each of its tokens where y is flat.
    """
    if isinstance(y, (str, bytes)) or not hasattr(y, "__len__"):
        what = "y must be a list of label sequences with None for unlabelled ones"
        raise TypeError(f"{what}, got {type(y).__name__}.")
    n = len(offsets) - 1
    parts = list(y)
    nested = len(parts) == n and all(part is None or is_list(part) for part in parts)
    if lengths is not None and not nested:
        flat = plain_labels(y)
        if len(flat) != offsets[-1]:
            what = f"y has {len(flat)} labels, but X has {offsets[-1]} rows"
            raise ValueError(f"{what}: one label per row, None for those of unlabelled sequences.")
        parts = [flat[lo:hi] for lo, hi in pairwise(offsets.tolist())]
    text = f"X has {n} sequences and y has {len(parts)}: they must have one length."
    require(len(parts) == n, text)
    known = np.zeros(n, dtype=bool)
    labels: list[Any] = []
    for i, (part, size) in enumerate(zip(parts, np.diff(offsets).tolist(), strict=True)):
        if part is None:
            continue
        if not is_list(part):
            raise TypeError(f"y[{i}] must be a sequence of labels or None, got {part!r}.")
        holes = [label is None for label in part]
        if holes and all(holes):
            continue
        if any(holes):
            what = f"y[{i}] has labels for some of its tokens only (none at {holes.index(True)})"
            raise ValueError(f"{what}: give all of them, or None for the sequence.")
        text = f"X[{i}] has {size} tokens and y[{i}] has {len(part)} labels"
        require(len(part) == size, f"{text}: they must have one length.")
        known[i] = True
        labels.extend(plain_labels(part))
    return known, labels


def find_words(X: Any, words: Any, chosen: Array, offsets: Array) -> list[list[Any]]:
    """What constraints see of the chosen sequences: the words given, or those in X.

    A token that is a tuple or list of strings is a row of columns, the first of which is the
    word. Numbers have no words: None stands for each.
    """
    sizes = np.diff(offsets)
    seen: Any = X if words is None else words
    if isinstance(seen, TokenTable):
        column = seen.column(0).tolist()
        seen = [column[lo:hi] for lo, hi in pairwise(seen.offsets.tolist())]
    if words is not None:
        text = f"words must have one list of words for each of the {len(sizes)} sequences of X."
        require(hasattr(seen, "__len__") and len(seen) == len(sizes), text)
        for i in chosen.tolist():
            text = f"words[{i}] has {len(seen[i])} words, but X[{i}] has {sizes[i]} tokens."
            require(len(seen[i]) == sizes[i], text)
    elif (
        not isinstance(seen, (list, tuple))
        or len(seen) != len(sizes)
        or sp.issparse(seen[0])
        or (isinstance(seen[0], np.ndarray) and seen[0].dtype.kind not in "OU")
    ):
        return [[None] * int(sizes[i]) for i in chosen.tolist()]

    def word(token: Any) -> Any:
        is_row = isinstance(token, (tuple, list)) and token and isinstance(token[0], str)
        return token[0] if is_row else token

    return [[word(token) for token in seen[i]] for i in chosen.tolist()]


@kernel
def score_all(problem: ChainProblem, first: int, order: Array, w: Array, out: Array) -> None:
    """Scores (tokens, labels) of the sequences ``first + i``, without transitions."""
    start = problem.offsets[first]
    for i in order:
        scores = position_scores(problem, first + i, w, 0.0)
        lo = problem.offsets[first + i] - start
        for t in range(scores.shape[0]):
            for k in range(problem.n_labels):
                out[lo + t, k] = scores[t, k]


def find_best_labels(problem: ChainProblem, first: int, w: Array, workers: Workers) -> Array:
    """Labels without loss and constraints, (8), of the sequences from number ``first`` on."""
    n = len(problem.offsets) - 1
    y = np.empty(problem.offsets[-1], dtype=np.int32)
    values = np.empty(n)
    workers.over(np.arange(first, n), decode_all, problem, PART, w, y, values)
    return y[problem.offsets[first] :].copy()


@dataclass
class ConstrainedLabels:
    """Labels by beam search under the instance constraints, and climbing under Python predicates.

    The problem's sequences from number ``first`` on are labelled; ``scale`` is what a unit of score
    is worth beside the penalties, and ``width`` the number of hypotheses of the beam.
    """

    problem: ChainProblem
    first: int
    w: Array
    scale: float
    penalties: Penalties
    workers: Workers
    width: int = BEAM_WIDTH

    def __post_init__(self) -> None:
        problem, first, w = self.problem, self.first, self.w
        self.compiled = self.penalties.compiled
        self.scores: Array = np.empty(self.compiled.unary.shape)
        table = layout_of(problem)["transition"].table(w)
        if len(problem.move_mask):
            table = table + problem.move_mask[:, : problem.n_labels]
        self.transitions = np.ascontiguousarray(np.maximum(self.scale * table, -BEAM_FORBIDDEN))
        self.sequences = np.arange(len(problem.offsets) - 1 - first)
        self.workers.over(self.sequences, score_all, problem, first, PART, w, self.scores)

    def find(self, prices: Array | None = None) -> Array:
        """The best labels found, where labels may have prices: numbers added to their scores."""
        compiled = self.compiled
        labels = np.zeros(len(self.scores), dtype=np.int32)
        added = np.zeros(self.scores.shape[1]) if prices is None else prices
        scores = np.maximum(self.scale * (self.scores + added), -BEAM_FORBIDDEN)

        def search(part: Array, scratch: Array) -> None:
            own = compiled.offsets[part[0] : part[-1] + 2]  # parts are ranges of sequences
            own_tables = compiled._replace(offsets=own)
            search_by_beam(own_tables, scores, self.transitions, labels, self.width)

        self.workers.map(search, self.sequences)
        if self.penalties.predicates:
            return climb_with_predicates(self.penalties, scores, self.transitions, labels)
        return labels

    def find_with_shares(self, prices: Array) -> Array:
        """Labels with prices such that the shares of labels in the corpus are as asked for.

        To mend a share whole segments must be relabelled, in the sequences where that costs least;
        single switches cannot. A price on a label does: the multipliers of the corpus-level
        :class:`~hingeline.constraints.Share` constraints. The search starts from ``prices``
        (labels,), where it writes what it ends with, and returns, of all labels met, those of the
        highest score minus penalty, corpus constraints included.
        """
        compiled = self.penalties.compiled
        asked = (compiled.corpus_kind == SHARE) & (compiled.corpus_price[:, 1] > 0.0)
        shares = [
            (compiled.member[compiled.corpus_target[j]] != 0, *compiled.corpus_bounds[j])
            for j in np.flatnonzero(asked)
        ]
        best = labels = self.find(prices)
        if not shares:
            return best
        value = self.value(best)
        for _ in range(PRICE_CHANGES):
            found = np.bincount(labels, minlength=len(prices)) / len(labels)
            step = np.zeros(len(prices))
            for member, low, high in shares:
                share = found[member].sum()
                wanted = min(max(share, low), high)
                if abs(wanted - share) > SHARE_TOLERANCE:
                    step[member] += np.log((wanted + SHARE_TOLERANCE) / (share + SHARE_TOLERANCE))
            if not step.any():
                break
            prices += PRICE_STEP * step
            labels = self.find(prices)
            reached = self.value(labels)
            if reached > value:
                best, value = labels, reached
        return best

    def value(self, labels: Array) -> float:
        """Score minus penalty, without prices."""
        moves = self.transitions[labels[:-1], labels[1:]]
        moves[self.compiled.offsets[1:-1] - 1] = 0.0  # from one sequence to the next
        own = self.scale * float(self.scores[np.arange(len(labels)), labels].sum())
        return own + float(moves.sum()) - self.penalties.total(labels)
