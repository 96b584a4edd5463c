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

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from hingeline._checks import Array
from hingeline._jit import by_table, kernel
from hingeline._simd import row_max
from hingeline.inference import factor_graph
from hingeline.inference.ad3 import alternating_directions
from hingeline.inference.cut import graph_cut, is_submodular
from hingeline.inference.enumeration import enumerate_best
from hingeline.inference.factor_graph import Scored, Topologies, Topology
from hingeline.inference.messages import block_descent, keep_better, message_start
from hingeline.inference.trees import max_product

AUTO, MAX_PRODUCT, ENUMERATION, GRAPH_CUT, LP, AD3, ICM = range(7)
_WORDS = ("auto", "max-product", "enumeration", "graph-cut", "lp", "ad3", "icm")
INFERENCE = {word: code for code, word in enumerate(_WORDS)}

LOG2_FEW = 16  # ``"auto"`` enumerates up to two to the power of this many assignments.
LOG2_MOST = 24  # ``"enumeration"`` refuses more than this.
#: Passes of block descent, and the relative fall of the bound that ends them.
DESCENT_PASSES, DESCENT_TOL = 100, 1e-5
#: Passes before alternating directions, their iterations, and the residual that ends them.
FIRST_PASSES, AD3_ITERATIONS, AD3_RESIDUAL = 10, 500, 1e-4
ICM_SWEEPS = 100  # Sweeps of single changes that ``"icm"`` makes.
#: A bound this near to a score, as a share of the size of both, proves that the labels are best.
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


def _are_enumerable(graphs: Topologies, most: float = LOG2_MOST) -> Array:
    return factor_graph.log2_assignments(graphs) <= most + 1e-6


#: What methods need of all graphs. Whether scores are submodular is not known before they are:
#: graphs that could be cut are accepted, and :func:`best_assignment` refuses scores that cannot.
_NEEDS = {
    "max-product": (factor_graph.are_forests, "needs a graph without cycles"),
    "enumeration": (_are_enumerable, f"is for up to {2**LOG2_MOST} assignments"),
    "graph-cut": (factor_graph.are_binary_pairs, "needs binary variables and pairs"),
}


def make_oracle(graphs: Topologies, inference: int) -> Oracle:
    """The method of each graph; ValueError where a graph cannot be decoded so."""
    for name, (fine, need) in _NEEDS.items():
        if INFERENCE[name] == inference and not fine(graphs).all():
            wrong = np.argmin(fine(graphs))
            raise ValueError(f"graph {wrong}: inference={name!r} {need}; use 'auto'.")
    methods = np.full(len(graphs.node_ptr) - 1, inference, dtype=np.int32)
    if inference == AUTO:
        methods[~factor_graph.are_binary_pairs(graphs)] = LP
        methods[_are_enumerable(graphs, LOG2_FEW)] = ENUMERATION
        methods[factor_graph.are_forests(graphs)] = MAX_PRODUCT
    found = set(methods.tolist())
    codes = {GRAPH_CUT, AD3} if found == {AUTO} else found
    if not (found == {AUTO} or found <= {MAX_PRODUCT, ENUMERATION, LP}):
        codes = set(INFERENCE.values())  # rare: one set of kernels for all of these
    used = (Used() if code in codes else Unused() for code in range(MAX_PRODUCT, ICM + 1))
    return Oracle(methods, *used)


def _where_used(search: Callable[..., float]) -> Any:
    """Let the class of the first argument say whether kernels contain ``search``."""
    return by_table({Used: search, Unused: lambda use, scored, y: np.nan})


@_where_used
def _search_forest(use: Used, scored: Scored, y: Array) -> float:
    max_product(scored, y)
    return factor_graph.assignment_score(scored, y)


@_where_used
def _search_all(use: Used, scored: Scored, y: Array) -> float:
    enumerate_best(scored, y)
    return factor_graph.assignment_score(scored, y)


@_where_used
def _search_cut(use: Used, scored: Scored, y: Array) -> float:
    if not is_submodular(scored):
        raise ValueError(
            "inference='graph-cut' met pair tables that are not submodular: use inference='auto', "
            "which cuts where it can."
        )
    graph_cut(scored, y)
    return factor_graph.assignment_score(scored, y)


@_where_used
def _search_single_changes(use: Used, scored: Scored, y: Array) -> float:
    """From the best state of every variable alone; the bound is the sum of all best entries."""
    bound = factor_graph.top_sum(scored.graph, scored.unary, y)
    for c in range(scored.graph.scope_start.shape[0] - 1):
        size = factor_graph.table_size(scored.graph, c)
        bound += row_max(scored.tables, scored.table_start[c], size)
    factor_graph.improve(scored, y, ICM_SWEEPS)
    return bound


@_where_used
def _search_relaxed(use: Used, scored: Scored, y: Array) -> float:
    messages = np.zeros(message_start(scored.graph)[-1])
    return block_descent(scored, messages, y, DESCENT_PASSES, DESCENT_TOL)


@_where_used
def _search_relaxed_further(use: Used, scored: Scored, y: Array) -> float:
    messages = np.zeros(message_start(scored.graph)[-1])
    bound = block_descent(scored, messages, y, FIRST_PASSES, DESCENT_TOL)
    if not factor_graph.meets(scored, y, bound, AGREEMENT):
        trial = y.copy()
        bound = alternating_directions(scored, messages, trial, AD3_ITERATIONS, AD3_RESIDUAL)
        keep_better(scored, trial, 0, factor_graph.assignment_score(scored, y), y)
    return bound


# A kernel of its own: solvers that call it load it from the cache.
@kernel
def best_assignment(oracle: Oracle, g: int, scored: Scored, y: Array) -> float:
    """Best assignment that the method of graph g finds, in ``y``; an upper bound of all scores."""
    method = oracle.method[g]
    if method == AUTO:
        method = GRAPH_CUT if is_submodular(scored) else AD3
    if method == MAX_PRODUCT:
        return _search_forest(oracle.max_product, scored, y)
    if method == ENUMERATION:
        return _search_all(oracle.enumeration, scored, y)
    if method == GRAPH_CUT:
        return _search_cut(oracle.graph_cut, scored, y)
    if method == ICM:
        return _search_single_changes(oracle.icm, scored, y)
    if method == LP:
        return _search_relaxed(oracle.lp, scored, y)
    return _search_relaxed_further(oracle.ad3, scored, y)


# By SciPy's HiGHS, exactly within its tolerances (1e-6 on feasibility, no gap): the slow reference,
# in plain Python with sparse matrices. Milliseconds for a few variables, seconds for hundreds.


def map_milp(scored: Scored) -> tuple[float, Array]:
    """The best score of any assignment of a graph with finite scores, and the labels.

    Over the local polytope: marginals of variables, which are whole numbers, then of factors.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp  # slow to import

    graph = scored.graph
    sizes = [factor_graph.table_size(graph, c) for c in range(len(graph.scope_start) - 1)]
    starts = zip(scored.table_start, sizes, strict=True)
    nodes = int(graph.unary_start[-1])
    scores = np.concatenate([scored.unary[:nodes], *(scored.tables[a : a + k] for a, k in starts)])
    if not np.isfinite(scores).all():
        raise ValueError("scores must be finite: give states that are forbidden a low score")
    matrix, right = _constraints(graph, sizes)
    integrality = np.arange(len(scores)) < nodes
    unit = float(np.abs(scores).max(initial=0.0)) or 1.0  # the tolerances of HiGHS are absolute
    limits = {"bounds": Bounds(0.0, 1.0), "constraints": LinearConstraint(matrix, right, right)}
    asked = {"integrality": integrality, "options": {"mip_rel_gap": 0.0}}
    result = milp(-scores / unit, **limits, **asked)
    if result.status != 0:
        raise RuntimeError(f"HiGHS found no assignment: {result.message}")
    parts = np.split(result.x[:nodes], graph.unary_start[1:-1])
    y = np.array([np.argmax(part) for part in parts], dtype=np.int32)
    return float(factor_graph.assignment_score(scored, y)), y


def _constraints(graph: Topology, sizes: list[int]) -> tuple[Any, Array]:
    """Every variable has one state; factors agree with their variables."""
    n = len(graph.n_states)
    nodes = int(graph.unary_start[-1])
    starts = factor_graph.starts_of(graph.n_states[graph.scope])
    entries = [(np.repeat(np.arange(n), graph.n_states), np.arange(nodes), np.ones(nodes))]
    first = nodes
    for c, size in enumerate(sizes):
        lo, hi = graph.scope_start[c], graph.scope_start[c + 1]
        scope = graph.scope[lo:hi]
        digits = np.unravel_index(np.arange(size), graph.n_states[scope]) if hi > lo else ()
        for p, i, digit in zip(range(lo, hi), scope, digits, strict=True):
            states, row = np.arange(graph.n_states[i]), n + starts[p]
            entries.append((row + digit, first + np.arange(size), np.ones(size)))
            entries.append((row + states, graph.unary_start[i] + states, -np.ones(len(states))))
        if hi == lo:  # a constant, taken in full
            entries.append((np.array([n + starts[-1]]), np.array([first]), np.ones(1)))
        first += size
    constants = np.count_nonzero(np.diff(graph.scope_start) == 0)
    right = np.concatenate((np.ones(n), np.zeros(starts[-1]), [float(constants)]))
    rows, columns, values = map(np.concatenate, zip(*entries, strict=True))
    return sparse.csr_array((values, (rows, columns)), shape=(len(right), first)), right
