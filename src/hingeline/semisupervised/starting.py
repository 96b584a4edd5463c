"""Labels that label switching starts from.

As printed, (8), these are the best labellings without constraints. Single switches seldom lead
from there to labels that keep the constraints: to move the end of a segment, or to give up a second
one, several labels must change at once, and the first of these switches costs more than it gains.
A beam search over ``C_u/u · w·f(x, y) − penalty(y)``, which sees whole segments, starts much lower;
switching then adds what the beam leaves out, the slack and the corpus-level constraints.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline._numba import kernel
from hingeline.constraints.prediction import without_corpus
from hingeline.constraints.search import beam_search
from hingeline.semisupervised.penalties import Penalties
from hingeline.solvers.parallel import Workers
from hingeline.structures.chain import moves, position_scores
from hingeline.structures.chain_prediction import decode_all
from hingeline.structures.chain_problem import ChainProblem

Array = np.ndarray[Any, Any]

STARTS = ("beam", "viterbi")

#: Hypotheses of the beam.
WIDTH = 8
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


def constrained_labels(
    problem: ChainProblem,
    first: int,
    w: Array,
    scale: float,
    penalties: Penalties,
    workers: Workers,
    width: int = WIDTH,
) -> Array:
    """Labels by beam search under the instance constraints, Python predicates left out."""
    n = len(problem.offsets) - 1 - first
    compiled = without_corpus(penalties.compiled)
    scores = np.empty(compiled.unary.shape)
    labels = np.zeros(len(scores), dtype=np.int32)
    table = move_scores(problem, w)[:, : problem.n_labels]
    transitions = np.ascontiguousarray(np.maximum(scale * table, -_FORBIDDEN))

    def search(part: Array, scratch: Array) -> None:
        score_all(problem, first, part, w, scores)
        own = compiled.offsets[part[0] : part[-1] + 2]  # parts are ranges of sequences
        rows = slice(own[0], own[-1])
        np.maximum(scale * scores[rows], -_FORBIDDEN, out=scores[rows])
        beam_search(compiled._replace(offsets=own), scores, transitions, labels, width)

    workers.map(search, np.arange(n))
    return labels
