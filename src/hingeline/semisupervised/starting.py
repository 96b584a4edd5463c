"""Labels that label switching starts from.

As printed, (8), these are the best labellings without constraints. Single switches seldom lead
from there to labels that keep the constraints: to move the end of a segment, or to give up a second
one, several labels must change at once, and the first of these switches costs more than it gains.
A beam search over ``C_u/u · w·f(x, y) − penalty(y)``, which sees whole segments, starts much lower,
with prices on labels where their shares in the corpus are constrained; switching then adds
what the beam leaves out, the slack and the other corpus-level constraints.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline._jit import kernel
from hingeline.constraints.decode import beam_search, without_corpus
from hingeline.constraints.penalties import Penalties
from hingeline.constraints.switches import SHARE
from hingeline.core.workers import Workers
from hingeline.structures.chain import ChainProblem, moves, position_scores
from hingeline.structures.chain_batch import decode_all

Array = np.ndarray[Any, Any]

STARTS = ("beam", "viterbi")

#: Hypotheses of the beam.
WIDTH = 8
#: Prices of labels are changed so often in one call, by this times the logarithm of how far a share
#: is off; shares need not be met more closely than the tolerance.
PRICE_CHANGES = 4
PRICE_STEP = 0.3
SHARE_TOLERANCE = 0.002
#: What a forbidden label or move costs in the beam, where it must be finite.
_FORBIDDEN = 1e13


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


@kernel
def move_scores(problem: ChainProblem, w: Array) -> Array:
    """Transition weights, ``−inf`` where a move is forbidden."""
    return moves(problem, w).copy()


def best_labels(problem: ChainProblem, first: int, w: Array, workers: Workers) -> Array:
    """Labels without loss and constraints, (8), of the sequences from number ``first`` on."""
    n = len(problem.offsets) - 1
    y = np.empty(problem.offsets[-1], dtype=np.int32)
    values = np.empty(n)
    workers.map(lambda part, scratch: decode_all(problem, part, w, y, values), np.arange(first, n))
    return y[problem.offsets[first] :].copy()


class ConstrainedLabels:
    """Labels by beam search under the instance constraints, Python predicates left out.

    Parameters
    ----------
    problem : ChainProblem
        Its sequences from number ``first`` on are to be labelled.
    first : int
    w : ndarray
        Flat weights.
    scale : float
        What a unit of score is worth beside the penalties.
    penalties : Penalties
        Of these sequences.
    workers : Workers
    width : int
        Hypotheses of the beam.
    """

    def __init__(
        self,
        problem: ChainProblem,
        first: int,
        w: Array,
        scale: float,
        penalties: Penalties,
        workers: Workers,
        width: int = WIDTH,
    ) -> None:
        self.penalties = penalties
        self.compiled = without_corpus(penalties.compiled)
        self.scale, self.width, self.workers = scale, width, workers
        self.scores: Array = np.empty(self.compiled.unary.shape)
        table = move_scores(problem, w)[:, : problem.n_labels]
        self.transitions = np.ascontiguousarray(np.maximum(scale * table, -_FORBIDDEN))
        self.sequences = np.arange(len(problem.offsets) - 1 - first)
        workers.map(
            lambda part, scratch: score_all(problem, first, part, w, self.scores), self.sequences
        )

    def find(self, prices: Array | None = None) -> Array:
        """The best labels found, where labels may have prices: numbers added to their scores."""
        compiled = self.compiled
        labels = np.zeros(len(self.scores), dtype=np.int32)
        added = np.zeros(self.scores.shape[1]) if prices is None else prices
        scores = np.maximum(self.scale * (self.scores + added), -_FORBIDDEN)

        def search(part: Array, scratch: Array) -> None:
            own = compiled.offsets[part[0] : part[-1] + 2]  # parts are ranges of sequences
            own_tables = compiled._replace(offsets=own)
            beam_search(own_tables, scores, self.transitions, labels, self.width)

        self.workers.map(search, self.sequences)
        return labels

    def with_shares(self, prices: Array) -> Array:
        """Labels with prices such that the shares of labels in the corpus are as asked for.

        To mend a share whole segments must be relabelled, in the sequences where that costs least;
        single switches cannot. A price on a label does: the multipliers of the corpus-level
        :class:`~hingeline.constraints.Share` constraints.

        Parameters
        ----------
        prices : ndarray of shape (labels,)
            Where the search for prices starts; what it ends with is written here.

        Returns
        -------
        int32 ndarray
            Of all labels met, those of the highest score minus penalty, corpus constraints
            included.
        """
        compiled = self.penalties.compiled
        asked = (compiled.corpus_kind == SHARE) & (compiled.corpus_weight > 0.0)
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
