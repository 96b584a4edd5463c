"""The best assignment of any factor graph: which kernel, and what its answer is worth.

``"auto"`` takes an exact kernel where there is one: max-product on forests, enumeration of few
assignments, graph cut where the scores are submodular at this moment. Elsewhere it relaxes:
``"lp"``, block descent, may stop above the optimum of the relaxation, and ``"ad3"`` goes on from
there to the optimum. That is cheap for pairs of binary variables, where it is the choice (90
variables with all pairs: block descent leaves a gap that a few iterations close), and dear with
more states, where ``"auto"`` takes ``"lp"``. Their bounds may lie above the score of the labels.

Every method returns a number that no assignment's score exceeds (up to rounding), except ``"icm"``,
which knows no better one than the sum of all factors' best entries. Exact methods return the score
of their labels itself. Scores must be finite.

Which methods a problem needs is known from its graphs before anything is compiled, and is part of
the *type* of its :class:`Oracle`: kernels contain no other methods.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hingeline._jit import by_class, helper, kernel
from hingeline.inference.ad3 import alternating_directions
from hingeline.inference.cut import graph_cut, is_submodular
from hingeline.inference.enumeration import enumerate_best
from hingeline.inference.factor_graph import (
    Scored,
    Topologies,
    are_binary_pairs,
    are_forests,
    assignment_score,
    log2_assignments,
    table_size,
)
from hingeline.inference.icm import improve
from hingeline.inference.messages import block_descent, keep_better, message_start, top_sum
from hingeline.inference.trees import max_product

Array = np.ndarray[Any, Any]

AUTO, MAX_PRODUCT, ENUMERATION, GRAPH_CUT, LP, AD3, ICM, MILP = range(8)
INFERENCE = {
    "auto": AUTO,
    "max-product": MAX_PRODUCT,
    "enumeration": ENUMERATION,
    "graph-cut": GRAPH_CUT,
    "lp": LP,
    "ad3": AD3,
    "icm": ICM,
    "milp": MILP,  # Python only: hingeline.inference.milp
}

#: ``"auto"`` enumerates up to two to the power of this many assignments.
LOG2_FEW = 16
#: ``"enumeration"`` refuses more than this.
LOG2_MOST = 24
#: Passes of block descent, and the relative fall of the bound that ends them.
DESCENT_PASSES, DESCENT_TOL = 100, 1e-5
#: Passes before alternating directions, their iterations, and the residual that ends them.
FIRST_PASSES, AD3_ITERATIONS, AD3_RESIDUAL = 10, 500, 1e-4
#: Sweeps of single changes that ``"icm"`` makes.
ICM_SWEEPS = 100
#: Bound and score this near, relative to their size, are the same number, rounded.
AGREEMENT = 1e-9


class Used(NamedTuple):
    """A method that some graph of the problem needs."""


class Unused(NamedTuple):
    """A method that no graph of the problem needs: kernels are compiled without it."""


class Oracle(NamedTuple):
    """How each graph of a problem is decoded."""

    method: Array  # (graphs,) int32; AUTO remains where the scores decide: graph cut or AD3
    max_product: Used | Unused
    enumeration: Used | Unused
    graph_cut: Used | Unused
    lp: Used | Unused
    ad3: Used | Unused
    icm: Used | Unused


#: The oracle of solvers that do not decode: their kernels are the same whatever the method is.
NO_ORACLE = Oracle(np.empty(0, dtype=np.int32), *[Unused()] * 6)


def refuse_method(graphs: Topologies, method: str) -> str | None:
    """Why a method cannot be used on some of the graphs, or None if it can.

    Whether the scores are submodular is not known before they are: graphs that could be cut are
    accepted, and :func:`best_assignment` raises ValueError where their scores cannot.
    """
    if method not in INFERENCE:
        return f"inference={method!r} is not one of {', '.join(map(repr, INFERENCE))}"
    fine, need = {
        "max-product": (are_forests, "needs a graph without cycles"),
        "enumeration": (_are_enumerable, f"is for up to {2**LOG2_MOST} assignments"),
        "graph-cut": (are_binary_pairs, "needs binary variables and pairs"),
    }.get(method, (None, ""))
    wrong: Any = [] if fine is None else np.flatnonzero(~fine(graphs))
    return f"graph {wrong[0]}: inference={method!r} {need}; use 'auto'" if len(wrong) else None


def _are_enumerable(graphs: Topologies, most: float = LOG2_MOST) -> Array:
    return log2_assignments(graphs) <= most + 1e-6


def make_oracle(graphs: Topologies, inference: int) -> Oracle:
    """The method of each graph; ValueError where a graph cannot be decoded so."""
    methods = np.full(len(graphs.node_ptr) - 1, inference, dtype=np.int32)
    if inference == AUTO:
        methods[~are_binary_pairs(graphs)] = LP
        methods[_are_enumerable(graphs, LOG2_FEW)] = ENUMERATION
        methods[are_forests(graphs)] = MAX_PRODUCT
    why = refuse_method(graphs, next(name for name in INFERENCE if INFERENCE[name] == inference))
    if why is not None:
        raise ValueError(f"{why}.")
    found = set(methods.tolist())
    codes = {GRAPH_CUT, AD3} if found == {AUTO} else found
    if not (found == {AUTO} or found <= {MAX_PRODUCT, ENUMERATION, LP}):
        codes = set(INFERENCE.values())  # rare: one set of kernels for all of these
    used = (Used() if code in codes else Unused() for code in range(MAX_PRODUCT, MILP))
    return Oracle(methods, *used)


@helper
def agree(bound: float, score: float) -> bool:
    """Whether the bound proves that the labels with this score are best."""
    return bound - score <= AGREEMENT * (1.0 + abs(score))


# Methods, compiled where they are used ---------------------------------------------------------


@helper
def _leave_out(use: Unused, scored: Scored, messages: Array, y: Array) -> float:
    return np.nan


def _where_used(search: Callable[..., float]) -> Callable[..., float]:
    """Let the class of the first argument say whether kernels contain ``search``."""
    chosen: dict[type, Callable[..., float]] = {Used: helper(search), Unused: _leave_out}

    def stub(use: Any, scored: Scored, messages: Array, y: Array) -> float:
        return chosen[type(use)](use, scored, messages, y)

    return by_class(stub, chosen.get)


@_where_used
def _search_forest(use: Used, scored: Scored, messages: Array, y: Array) -> float:
    max_product(scored, y)
    return assignment_score(scored, y)


@_where_used
def _search_all(use: Used, scored: Scored, messages: Array, y: Array) -> float:
    enumerate_best(scored, y)
    return assignment_score(scored, y)


@_where_used
def _search_cut(use: Used, scored: Scored, messages: Array, y: Array) -> float:
    if not is_submodular(scored):
        raise ValueError(
            "inference='graph-cut' met pair tables that are not submodular: use inference='auto', "
            "which cuts where it can."
        )
    graph_cut(scored, y)
    return assignment_score(scored, y)


@_where_used
def _search_single_changes(use: Used, scored: Scored, messages: Array, y: Array) -> float:
    """From the best state of every variable alone; the bound is the sum of all best entries."""
    bound = top_sum(scored.graph, scored.unary, y)
    for c in range(scored.graph.scope_start.shape[0] - 1):
        at = scored.table_start[c]
        best = scored.tables[at]
        for k in range(1, table_size(scored.graph, c)):
            best = max(best, scored.tables[at + k])
        bound += best
    improve(scored, y, ICM_SWEEPS)
    return bound


@_where_used
def _search_relaxed(use: Used, scored: Scored, messages: Array, y: Array) -> float:
    return block_descent(scored, messages, y, DESCENT_PASSES, DESCENT_TOL)


@_where_used
def _search_relaxed_further(use: Used, scored: Scored, messages: Array, y: Array) -> float:
    bound = block_descent(scored, messages, y, FIRST_PASSES, DESCENT_TOL)
    score = assignment_score(scored, y)
    if not agree(bound, score):
        trial = y.copy()
        bound = alternating_directions(scored, messages, trial, AD3_ITERATIONS, AD3_RESIDUAL)
        keep_better(scored, trial, 0, score, y)
    return bound


# A kernel of its own: solvers that call it load it from the cache.
@kernel
def best_assignment(oracle: Oracle, g: int, scored: Scored, messages: Array, y: Array) -> float:
    """Best assignment that the method of graph g finds, in ``y``; an upper bound of all scores.

    Parameters
    ----------
    oracle, g
        The methods, and the number of the graph among those that :func:`make_oracle` was given.
    scored : Scored
        The graph with its scores, which must be finite.
    messages : ndarray of float64
        Where ``"lp"`` and ``"ad3"`` begin and what they leave for the next call, of the size
        ``message_start(graph)[-1]``; or empty: begin at zero and keep nothing.
    y : ndarray of int32
        Receives the labels. Whether they are best: ``agree(bound, assignment_score(scored, y))``.
    """
    method = oracle.method[g]
    if method == AUTO:
        method = GRAPH_CUT if is_submodular(scored) else AD3
    if method == MAX_PRODUCT:
        return _search_forest(oracle.max_product, scored, messages, y)
    if method == ENUMERATION:
        return _search_all(oracle.enumeration, scored, messages, y)
    if method == GRAPH_CUT:
        return _search_cut(oracle.graph_cut, scored, messages, y)
    if method == ICM:
        return _search_single_changes(oracle.icm, scored, messages, y)
    if messages.shape[0] == 0:
        messages = np.zeros(message_start(scored.graph)[scored.graph.scope.shape[0]])
    if method == LP:
        return _search_relaxed(oracle.lp, scored, messages, y)
    return _search_relaxed_further(oracle.ad3, scored, messages, y)
