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
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline._jit import helper, kernel
from hingeline.inference import (
    ad3,
    enumeration,
    icm,
)
from hingeline.inference import (
    cut as graph_cut,
)
from hingeline.inference import (
    messages as lp,
)
from hingeline.inference import (
    trees as max_product,
)
from hingeline.inference.factor_graph import Topology, assignment_score, table_size
from hingeline.inference.messages import message_start, top_sum

Array = np.ndarray[Any, Any]

AUTO = 0
MAX_PRODUCT = 1
ENUMERATION = 2
GRAPH_CUT = 3
LP = 4
AD3 = 5
ICM = 6
MILP = 7  # Python only: hingeline.inference.milp
INFERENCE = {
    "auto": AUTO,
    "max-product": MAX_PRODUCT,
    "enumeration": ENUMERATION,
    "graph-cut": GRAPH_CUT,
    "lp": LP,
    "ad3": AD3,
    "icm": ICM,
    "milp": MILP,
}

#: ``"auto"`` enumerates up to this many assignments.
FEW = 2**16
#: ``"enumeration"`` refuses more than this.
MOST = 2**24
#: Passes of block descent, and the relative fall of the bound that ends them.
PASSES = 100
TOL = 1e-5
#: Passes before alternating directions, their iterations, and the residual that ends them.
FIRST_PASSES = 10
ITERATIONS = 500
RESIDUAL = 1e-4
#: Bound and score this near, relative to their size, are the same number, rounded.
AGREEMENT = 1e-9


def refuse_method(graph: Topology, method: str) -> str | None:
    """Why a method cannot be used on a graph, or None if it can.

    Whether the scores are submodular is not known before they are: graphs that could be cut are
    accepted, and :func:`best_assignment` raises ValueError where their scores cannot.
    """
    if method not in INFERENCE:
        return f"inference={method!r} is not one of {', '.join(map(repr, INFERENCE))}"
    if method == "max-product" and not max_product.is_forest(graph):
        return "inference='max-product' needs a graph without cycles; use 'auto'"
    if method == "enumeration" and enumeration.n_assignments(graph) > MOST:
        return f"inference='enumeration' is for up to {MOST} assignments; use 'auto'"
    if method == "graph-cut" and not graph_cut.is_binary_pairwise(graph):
        return "inference='graph-cut' needs binary variables and pairs; use 'auto'"
    return None


@helper
def agree(bound: float, score: float) -> bool:
    """Whether the bound proves that the labels with this score are best."""
    return bound - score <= AGREEMENT * (1.0 + abs(score))


@helper
def choose_method(graph: Topology, tables: Array, table_start: Array) -> int:
    """What ``"auto"`` means for this graph and these scores."""
    if max_product.is_forest(graph):
        return MAX_PRODUCT
    if enumeration.n_assignments(graph) <= FEW:
        return ENUMERATION
    if not graph_cut.is_binary_pairwise(graph):
        return LP
    return GRAPH_CUT if graph_cut.is_submodular(graph, tables, table_start) else AD3


@helper
def _from_unaries(
    graph: Topology, unary: Array, tables: Array, table_start: Array, y: Array
) -> float:
    """The best state of every variable alone; the sum of all best entries."""
    bound = top_sum(graph, unary, y)
    for c in range(graph.scope_start.shape[0] - 1):
        at = table_start[c]
        best = tables[at]
        for k in range(1, table_size(graph, c)):
            best = max(best, tables[at + k])
        bound += best
    return bound


# A kernel of its own: solvers that call it load it from the cache.
@kernel
def best_assignment(
    graph: Topology,
    unary: Array,
    tables: Array,
    table_start: Array,
    method: int,
    messages: Array,
    y: Array,
) -> float:
    """Best assignment that ``method`` finds, in ``y``; an upper bound of all scores.

    Parameters
    ----------
    graph, unary, tables, table_start
        Graph and finite float64 scores, see :mod:`hingeline.inference.factor_graph`.
    method : int
        A value of ``INFERENCE`` other than that of ``"milp"``, not refused by
        :func:`refuse_method`.
    messages : ndarray of float64
        Where ``"lp"`` and ``"ad3"`` begin and what they leave for the next call, of the size
        ``message_start(graph)[-1]``; or empty: begin at zero and keep nothing.
    y : ndarray of int32
        Receives the labels. Whether they are best: ``agree(bound, assignment_score(…, y))``.
    """
    if method == AUTO:
        method = choose_method(graph, tables, table_start)
    elif method == GRAPH_CUT and not graph_cut.is_submodular(graph, tables, table_start):
        raise ValueError(
            "inference='graph-cut' met pair tables that are not submodular: use inference='auto', "
            "which cuts where it can."
        )
    if method == MAX_PRODUCT:
        max_product.max_product(graph, unary, tables, table_start, y)
    elif method == ENUMERATION:
        enumeration.enumerate_best(graph, unary, tables, table_start, y)
    elif method == GRAPH_CUT:
        graph_cut.graph_cut(graph, unary, tables, table_start, y)
    elif method == ICM:
        bound = _from_unaries(graph, unary, tables, table_start, y)
        icm.improve(graph, unary, tables, table_start, y, 100)
        return bound
    else:
        if messages.shape[0] == 0:
            messages = np.zeros(message_start(graph)[graph.scope.shape[0]])
        passes = FIRST_PASSES if method == AD3 else PASSES
        bound = lp.block_descent(graph, unary, tables, table_start, messages, y, passes, TOL)
        score = assignment_score(graph, unary, tables, table_start, y)
        if method == AD3 and not agree(bound, score):
            trial = y.copy()
            bound = ad3.alternating_directions(
                graph, unary, tables, table_start, messages, trial, ITERATIONS, RESIDUAL
            )
            lp.keep_better(graph, unary, tables, table_start, trial, 0, score, y)
        return bound
    return assignment_score(graph, unary, tables, table_start, y)
