"""Labelling of graphs: one label per node, with scores of pairs along edges."""

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import compress
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from hingeline import _checks as checks
from hingeline._checks import Array
from hingeline.core import registry
from hingeline.core.primitives import Compiled, Layout
from hingeline.core.solver import CertifiedSolver
from hingeline.estimators.base import BaseModel, BaseSSVM, share_docs
from hingeline.features.input import find_classes, stack_labels, stack_sequences
from hingeline.features.scales import choose_edge_scales, measure_columns
from hingeline.features.tables import Labels, scale_columns
from hingeline.inference.factor_graph import join, make_topology, starts_of
from hingeline.inference.map import INFERENCE, map_milp
from hingeline.structures import graph, graph_blocks
from hingeline.structures.graph_blocks import GraphProblem

#: The default for ``slack="max"`` where decoding all graphs once takes longer than so many seconds:
#: visits of whole graphs are worth more than those of their factors while there are some of them.
LOOPY_DEFAULT, CHEAP_SECONDS = "soft-bcfw", 1.0
WEIGHT_BYTES = 32  # A weight is kept by the solver, of the best weights, and in averages.
COUNTS = ("node_types", "edge_types", "edge_features")  # What a fitted model has ``n_…_`` of.


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """One graph: nodes with features, edges, and optionally weights, types and factors.

    Parameters
    ----------
    node_features : array-like or sparse matrix of shape (nodes, features)
    edges : array-like of int, shape (m, 2), default=()
        Pairs of nodes, each pair once. The order of the two nodes matters: scores of a pair of
        labels are not symmetric.
    edge_features : array-like of shape (m, edge features), optional
        Each has its own table of weights over pairs of labels. Without them every edge has the
        constant 1; to keep it together with features of your own, add a column of ones.
    node_weights : array-like of shape (nodes,), optional
        Cost of a wrong label at each node, e.g. the pixels of a superpixel; 1 by default.
    node_types, edge_types : array-like of int, optional
        Nodes and edges of different types have weights of their own; all are 0 by default.
    factors : dict of {name: array-like of int, shape (count, order)}, optional
        Sets of nodes that are scored together, by a table over all combinations of their labels;
        sets with the same name share it.

    Examples
    --------
    >>> from hingeline import Graph
    >>> Graph([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], edges=[(0, 1), (1, 2)])
    Graph(3 nodes, 2 features, 2 edges)
    """

    node_features: Any
    edges: Any = ()
    edge_features: Any = None
    node_weights: Any = None
    node_types: Any = None
    edge_types: Any = None
    factors: Any = None

    def __post_init__(self) -> None:
        features = checks.numeric_rows(self.node_features, "node_features")
        n = features.shape[0]
        checks.require(n != 0, "node_features has no rows: a graph needs at least one node.")
        edges = check_pairs(self.edges, "edges", n)
        found = {"node_features": features, "edges": edges}
        if self.edge_features is not None:
            own = checks.numeric_rows(self.edge_features, "edge_features")
            own = own.toarray() if sp.issparse(own) else own
            what = f"edge_features has {len(own)} rows, but there are {len(edges)} edges"
            checks.require(len(own) == len(edges), f"{what}: give one row per edge.")
            found["edge_features"] = own.astype(np.float64)
        weights = np.ones(n) if self.node_weights is None else self.node_weights
        found["node_weights"] = checks.as_weights("node_weights", weights, n, "node")
        for name, count in (("node_types", n), ("edge_types", len(edges))):
            given = getattr(self, name)
            types = np.zeros(count, dtype=np.int64) if given is None else np.asarray(given)
            text = f"{name} has shape {types.shape}, expected ({count},): one each."
            checks.require(types.shape == (count,), text)
            fine = not count or (types.dtype.kind in "iu" and types.min() >= 0)
            checks.require(fine, f"{name} must be integers ≥ 0.", TypeError)
            found[name] = types.astype(np.int64)
        factors = {} if self.factors is None else self.factors
        what = f"factors must be a dict of {{name: sets of nodes}}, got {type(factors).__name__}"
        how = "those under one name share their weights"
        checks.require(isinstance(factors, Mapping), f"{what}: {how}.", TypeError)
        for name in factors:
            text = f"factors has the name {name!r}: use text."
            checks.require(isinstance(name, str), text, TypeError)
        own = {name: _sets(v, f"factors[{name!r}]", n) for name, v in factors.items()}
        vars(self).update(found, factors=own)  # frozen for everyone else

    @classmethod
    def from_image(cls, image: Any, regions: Any = None) -> Self:
        """An image as a graph of pixels or regions (superpixels), with edges between neighbours.

        Parameters
        ----------
        image : array-like of shape (rows, columns) or (rows, columns, features)
        regions : array-like of int, shape (rows, columns), optional
            The region of each pixel, from 0 on. A region's features are the means over its pixels,
            its weight is their number. Without regions, the pixels are the nodes, row by row;
            edges to the right have type 0, edges downwards type 1.
        """
        how = "pass its pixels as numbers, such as matplotlib.image.imread(path)"
        pixels = checks.as_floats(image, f"image is {image!r:.40}: {how}.")
        what = f"image has shape {pixels.shape}, expected (rows, columns[, features])"
        shape = pixels.shape[:2]
        checks.require(pixels.ndim in (2, 3) and 0 not in shape, f"{what}, at least one pixel.")
        pixels = pixels.reshape(len(pixels) * shape[1], *pixels.shape[2:] or (1,))
        node = np.arange(len(pixels)).reshape(shape)
        if regions is not None:
            how = f"an integer for each of {shape[0]} × {shape[1]} pixels, 0, 1, … without gaps"
            checks.as_floats(regions, f"regions must hold {how}.")
            node = np.asarray(regions)
            found = np.unique(node)  # not counts, which a number too large would ask memory for
            fine = node.shape == shape and node.dtype.kind in "iu"
            fine = fine and np.array_equal(found, np.arange(len(found)))
            checks.require(fine, f"regions must hold {how}.")
        pairs = [(node[:, :-1], node[:, 1:]), (node[:-1], node[1:])]
        right, down = (np.column_stack([a.ravel(), b.ravel()]) for a, b in pairs)
        edges = np.concatenate([right, down])
        if regions is None:
            return cls(pixels, edges, edge_types=np.repeat([0, 1], [len(right), len(down)]))
        sizes = np.bincount(node.ravel())
        means = [np.bincount(node.ravel(), column) / sizes for column in pixels.T]
        edges = np.unique(np.sort(edges, axis=1), axis=0)
        return cls(np.column_stack(means), edges[edges[:, 0] < edges[:, 1]], node_weights=sizes)

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return int(self.node_features.shape[0])

    @property
    def n_edges(self) -> int:
        """Number of edges."""
        return len(self.edges)

    def subgraph(self, kept: Any) -> "Graph":
        """The graph of the nodes where ``kept`` is true, with the edges and factors among them."""
        kept = np.asarray(kept, dtype=bool)
        what = f"kept has shape {kept.shape}, but there are {self.n_nodes} nodes."
        checks.require(kept.shape == (self.n_nodes,), what)
        number = np.cumsum(kept) - 1
        whole = kept[self.edges].all(axis=1)
        parts = {"node_weights": kept, "node_types": kept, "edge_features": whole}
        parts["edge_types"] = whole
        some = {n: getattr(self, n)[k] for n, k in parts.items() if getattr(self, n) is not None}
        factors = {name: number[s[kept[s].all(axis=1)]] for name, s in self.factors.items()}
        return Graph(self.node_features[kept], number[self.edges[whole]], **some, factors=factors)

    def __repr__(self) -> str:
        width = self.node_features.shape[1]
        more = "".join(f", {len(s)} of {name!r}" for name, s in self.factors.items())
        return f"Graph({self.n_nodes} nodes, {width} features, {self.n_edges} edges{more})"


def check_pairs(values: Any, name: str, n: int, members: str = "nodes") -> Array:
    """Pairs of numbers below n, each pair once; ``members`` says what is numbered."""
    pairs = _sets(values, name, n, members, 2)
    low, high = np.sort(pairs, axis=1).T
    _, first = np.unique(low * n + high, return_index=True)
    if len(first) < len(pairs):
        k = int(np.setdiff1d(np.arange(len(pairs)), first)[0])
        what = f"{name}[{k}] joins {tuple(pairs[k].tolist())}, as an earlier pair does"
        raise ValueError(f"{what}: give each pair once, in one direction.")
    return pairs


def _sets(values: Any, name: str, n: int, members: str = "nodes", width: int = 0) -> Array:
    """Sets of numbers below n, one a row, all different, of any ``width`` where that is 0."""
    try:
        sets = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} is ragged: its rows must have the same length.") from error
    if sets.size == 0:
        return np.zeros((0, width or (sets.shape[1] if sets.ndim == 2 else 0)), dtype=np.int64)
    shape = "(m, 2)" if width == 2 else "(count, order)"
    if sets.ndim != 2 or (width and sets.shape[1] != width):
        raise ValueError(f"{name} has shape {sets.shape}, expected {shape}.")
    if sets.dtype.kind not in "iu":
        raise TypeError(f"{name} has dtype {sets.dtype}, expected integers: numbers of {members}.")
    ordered = np.sort(sets, axis=1)
    for wrong, why in (
        ((sets < 0) | (sets >= n), f", but the {members} are 0 to {n - 1}."),
        (ordered[:, 1:] == ordered[:, :-1], f": give {members} that are different."),
    ):
        for k in np.flatnonzero(wrong.any(axis=1)):
            raise ValueError(f"{name}[{k}] is {tuple(sets[k].tolist())}{why}")
    return sets.astype(np.int64)


class Decoded(NamedTuple):
    """Outputs found for some graphs; ``bounds − scores`` is how far they can be from the best."""

    labels: Any  # as predict gives them
    scores: Array
    bounds: Array  # on the score of any labelling, from above
    exact: Array  # where the labelling is the best


@dataclass(eq=False, repr=False, kw_only=True)
class GraphModel:
    """What the estimators over graphs share: how they are trained, and decoding with its bounds.

    They provide ``_prepare``, which gives the kernels new inputs, and ``_as_output``, which makes
    of the states of all variables what ``predict`` returns.

    Parameters
    ----------
    C : float, "scale" or "auto", default="scale"
        As in :class:`hingeline.ChainSSVM`; ``"scale"`` is 3 over the mean squared norm of a node's
        features, a tenth of that with ``slack="sum"``, and 10 over the norm of a row for sets of
        labels. ``float("inf")``, a hard margin, needs exact inference.
    slack : {"max", "sum", "nu"}, default="max"
        As in :class:`hingeline.ChainSSVM`; ``"sum"`` over the outputs that decoding finds.
    inference : str, default="auto"
        How the best labelling is found, in training and prediction. ``"auto"`` is exact where the
        graph allows it (forests, few labellings, …); elsewhere the relaxed problem is solved, and
        its solution rounded: see :meth:`certify`.
    solver : str, default="auto"
        ``"auto"`` is ``"sdm"`` for forests and where decoding all graphs once takes about a second
        at most (judged by sizes and inference), and ``"soft-bcfw"`` for more and larger graphs: it
        trains the LP relaxation with constraints softened by ``solver_options={"rho": …}``, so that
        primal and dual are those of that problem. Options must belong to the solver that is
        chosen. See :class:`hingeline.ChainSSVM` for the others.
    scale : bool, optional
        Bring columns to similar sizes, as in :class:`hingeline.ChainSSVM`; columns of edges are
        divided by their root mean square, and not centred. Weights are those of scaled features.

    Attributes
    ----------
    oracle_exact_ : bool
        Whether decoding finds the best labelling, whatever the weights are. Otherwise the primal
        objective is an upper bound, and so is the gap. False for solvers of the relaxation, which
        decode nothing: their certificate is that of another problem.
    integrality_gap_ : float
        If decoding is not exact: how much of the primal comes from bounds above the scores of the
        labellings found, for the final weights; in its units. 0: these labellings are the best.
    relaxed_objective_, relaxed_gap_, fractional_, soft_rho_, structured_objective_ : float
        For solvers of the relaxation: LP-relaxed objective of the weights, an upper bound on its
        distance to the optimum, share of variables that are not integral, the last ρ, and the
        objective with the exact hinge where decoding all examples exactly is cheap.
    """

    loss: Any = "hamming"
    inference: str = "auto"
    class_weight: Any = None
    fit_intercept: bool = True
    scale: bool | None = None

    def _check_values(self: Any) -> None:
        super()._check_values()  # type: ignore[misc]
        checks.one_of("inference", self.inference, tuple(INFERENCE))
        self._refuse_without_oracle(False, "graphs")

    def _solver_class(self: Any, compiled: Compiled | None) -> type[CertifiedSolver]:
        if compiled is not None and self.solver == "auto" and self.slack == "max":
            problem = compiled.problem
            named = self.inference != "auto" and graph_blocks.decodes_exactly(problem)
            slow = graph_blocks.decoding_seconds(problem) > CHEAP_SECONDS
            loopy = slow and not (math.inf == self.C or named)
            chosen = registry.find(LOOPY_DEFAULT if loopy else "auto", self.slack)
            super()._check_options(chosen, chosen.name)  # type: ignore[misc]
            return chosen
        return super()._solver_class(compiled)  # type: ignore[misc]

    def _check_options(self: Any, solver: type[CertifiedSolver], name: str) -> None:
        """Refuse options; those of any choice of ``"auto"`` pass until the data are known."""
        check = super()._check_options  # type: ignore[misc]
        if name == "auto" and self.slack == "max":
            with contextlib.suppress(ValueError):
                return check(registry.find(LOOPY_DEFAULT, self.slack), LOOPY_DEFAULT)
        check(solver, name)

    _compile = staticmethod(graph.compile_problem)

    def _fit_graphs(self: Any, problem: GraphProblem, weights: Array) -> None:
        if math.inf == self.C and not graph_blocks.decodes_exactly(problem):
            what = "C=inf (a hard margin) needs exact inference, which these graphs do not allow"
            raise ValueError(f"{what} with inference={self.inference!r}: choose a finite C.")
        self._fit_problem(problem, weights)

    def _decode(self: Any, problem: GraphProblem) -> tuple[Array, Array, Array, Array]:
        """States of all variables; upper bounds and values of examples, and where they meet."""
        n = len(problem.graph)
        states = np.zeros(problem.offsets[-1], dtype=np.int32)
        bounds, values, tight = np.zeros(n), np.zeros(n), np.zeros(n, dtype=bool)
        self._over(graph.decode_all, problem, states, bounds, values, tight)
        return states, np.maximum(bounds, values), values, tight

    def predict(self: Any, X: Any) -> Any:
        """The best labelling that inference finds, for X as in :meth:`fit`.

        For graphs, a list with one array of labels per graph; for sets of labels, indicators
        (n_samples, n_labels), or classes (n_samples,) if y had one dimension.
        """
        problem = self._prepare(X)
        return self._as_output(problem, self._decode(problem)[0])

    def certify(self: Any, X: Any, *, settle: bool = False) -> Decoded:
        """Labels as in :meth:`predict`, their scores, upper bounds, and which are proven best.

        ``settle`` uses integer programming (HiGHS) to find the best labelling where inference did
        not prove one: exact, but slow for large graphs.
        """
        problem = self._prepare(X)
        states, bounds, scores, exact = self._decode(problem)
        if settle:
            for i in np.flatnonzero(~exact).tolist():
                bounds[i], y = map_milp(graph.score_graph(problem, i, self.weights_, 0.0))
                states[problem.offsets[i] : problem.offsets[i + 1]] = y
                scores[i], exact[i] = bounds[i], True
        return Decoded(self._as_output(problem, states), scores, bounds, exact)

    def _conditional_scores(self: Any, problem: GraphProblem) -> tuple[Array, Array]:
        """Scores over (variable, state), the other variables as predicted; starts of examples."""
        states = self._decode(problem)[0]
        graphs = problem.graphs
        last = graphs.node_ptr[1:] + np.arange(len(graphs.node_ptr) - 1)
        start = starts_of(graphs.unary_start[last][problem.graph])
        out = np.empty(start[-1])
        self._over(graph.conditional_scores_all, problem, states, start, out)
        return out, start

    def _split_unary(self: Any, n_states: int) -> tuple[Array, Array]:
        """Views of weights, (groups, states, features) and, of the constant, (groups, states)."""
        table, d = self._view("unary"), self.n_features_in_
        table = table.reshape(len(table), -1, n_states).transpose(1, 2, 0)
        constant = table[:, :, d] if self.fit_intercept else np.zeros(table.shape[:2])
        return table[:, :, :d], constant


def check_graphs(X: Any, fitted: Sequence[int] = ()) -> tuple[list[Graph], int, int]:
    """Graphs with the same features of nodes and of edges, those fitted with; how many these are.

    Edges without features count as edges with 0 of them.
    """
    one = isinstance(X, Graph)
    checks.require(not one, "X is one Graph: pass a list of graphs, [graph].", TypeError)
    fine = isinstance(X, (Sequence, np.ndarray)) and checks.is_list(X)
    checks.require(fine, f"X must be a list of hingeline.Graph, got {type(X).__name__}.", TypeError)
    checks.require(len(X) > 0, "X is empty: there are no graphs.")
    kinds = zip(("node", "edge"), fitted, strict=False)
    known = {kind: (width, f"the model was fitted with {width}") for kind, width in kinds}
    for i, x in enumerate(X):
        if not isinstance(x, Graph):
            what = f"X[{i}] is a {type(x).__name__}, expected a hingeline.Graph"
            raise TypeError(f"{what}: Graph(node_features, edges), or Graph.from_image(pixels).")
        widths = {"node": x.node_features.shape[1]}
        if x.n_edges or x.edge_features is not None:
            widths["edge"] = 0 if x.edge_features is None else x.edge_features.shape[1]
        for kind, width in widths.items():
            expected, whose = known.setdefault(kind, (width, f"X[{i}] has {width}"))
            what = f"X[{i}] has {width} {kind} features, but {whose}"
            checks.require(width == expected, f"{what}: all graphs must have the same features.")
    return list(X), known["node"][0], known.get("edge", (0, ""))[0]


def stack_features(graphs: list[Graph]) -> tuple[sp.csr_matrix, bool, Array]:
    """Features of all nodes, whether those of all graphs are dense, and features of all edges."""
    rows = [x.node_features for x in graphs]
    edges = [x.edge_features for x in graphs if x.n_edges and x.edge_features is not None]
    dense = not any(map(sp.issparse, rows))
    return stack_sequences(rows)[0], dense, np.concatenate(edges or [np.empty((0, 0))])


@share_docs
@dataclass(eq=False, repr=False)
class GraphSSVM(GraphModel, BaseSSVM, BaseModel):
    """Structured SVM for graphs, solved to a certificate.

    The score of labels y for the nodes of a graph is
    ``Σ_i x_i·U[y_i] + Σ_{(i, j)} z_ij·T[y_i, y_j] + Σ_c T_c[y_c]``, over nodes, edges and the
    larger sets of nodes that ``Graph.factors`` names; training minimises
    ``½‖w‖² + C Σ_g s_g·max_y [l_g(y) − w·Δf_g(y)]₊``.

    Parameters
    ----------
    loss : "hamming", array, Taxonomy, or (scale, loss)
        Summed over nodes, times ``Graph.node_weights``: 1 for a wrong label, one cost per true
        label, a cost matrix (true, predicted) in the order of ``classes_``, or a
        :class:`hingeline.Taxonomy`.
    class_weight : dict or "balanced", optional; factors on the loss of nodes, by true label
    void_label : label, optional
        Marks nodes whose label is unknown: training leaves them out, with their edges and factors,
        and :meth:`score` does not count them. Predictions label all nodes, never as void.

    Attributes
    ----------
    classes_ : ndarray
    unary_coef_ : ndarray of shape (labels, features); with node types, (types, labels, features)
    intercept_ : ndarray of shape (labels,), or (types, labels)
    feature_means_, feature_scales_, edge_feature_scales_ : ndarray; if columns were scaled
    pairwise_coef_ : ndarray of shape (labels, labels)
        ``[label of the first node, label of the second]``; with edge features
        (features, labels, labels), with edge types one of these for each type.
    factor_coef_ : dict of ndarray; tables of ``Graph.factors`` by name, (labels, labels, …)
    factor_orders_ : dict of int; how many nodes a factor of this name has
    n_edge_features_, n_edge_types_, n_node_types_ : int; as in the training graphs

    Examples
    --------
    >>> import numpy as np
    >>> from hingeline import Graph, GraphSSVM
    >>> X = [Graph([[1.0], [1.0], [-1.0]], edges=[(0, 1), (1, 2)]), Graph([[-1.0], [1.0]])]
    >>> y = [["sky", "sky", "grass"], ["grass", "sky"]]
    >>> model = GraphSSVM(C=10.0, random_state=0).fit(X, y)
    >>> [list(map(str, labels)) for labels in model.predict(X)]
    [['sky', 'sky', 'grass'], ['grass', 'sky']]
    """

    C: float | str = "scale"
    _: KW_ONLY
    void_label: Any = None

    def _times_scale(self) -> float:
        return 0.1 if self.slack == "sum" else 1.0  # the sum is of many hinges

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on graphs.

        Parameters
        ----------
        X : list of Graph
        y : list of label sequences, one label per node
        sample_weight : array-like, one per graph, optional; multiplies a graph's slack; 0 drops it
        """
        self.check_parameters()
        graphs, self.n_features_in_, self.n_edge_features_ = check_graphs(X)
        labels = self._node_labels(graphs, y)
        weights = checks.check_sample_weight(sample_weight, len(graphs))
        # Weights are for all there is, also where training leaves it out.
        self._count_types(graphs)
        graphs, labels, some = self._drop_void(graphs, labels)
        checks.require(some, f"y holds nothing but the void label {self.void_label!r}.")
        weights = weights[some]
        text = "sample_weight is zero wherever y holds labels that are not void."
        checks.require(weights.any(), text)
        self.classes_, numbers = find_classes(labels)
        nodes, dense, edges = stack_features(graphs)
        dense = dense and self._wants_scale(True)
        each = np.repeat(weights, [x.n_nodes for x in graphs])
        scale_columns(self, nodes.toarray() if dense else nodes, each)
        types = f"types of nodes up to {self.n_node_types_ - 1:,}, of edges up to "
        what = f"{self._layout.size:,} weights ({types}{self.n_edge_types_ - 1:,}, and factors)"
        how = "number types 0, 1, … without gaps, and let factors join fewer nodes"
        checks.require_memory(WEIGHT_BYTES * self._layout.size, what, how)
        self.__dict__.pop("edge_feature_scales_", None)
        if edges.size and self._wants_scale(True):
            each = np.repeat(weights, [x.n_edges for x in graphs])
            if (counted := each > 0.0).any():
                found = measure_columns(edges[counted], each[counted])
                self.__dict__.update(choose_edge_scales(self, *found))
        # Examples are held out whole, and some options count them.
        apart = (self.solver, self.slack) == ("auto", "max") and not self.solver_options
        apart = apart and self.C != "auto"
        problem = self._make(graphs, numbers, checks.weigh_costs(self, numbers), apart)
        starts = starts_of(np.array([x.n_nodes for x in graphs]))
        owner = np.searchsorted(starts, problem.offsets[:-1], side="right") - 1
        self._fit_graphs(problem, weights[owner])
        return self

    def _drop_void(
        self, graphs: list[Graph], labels: list[Any]
    ) -> tuple[list[Graph], list[Any], list[int]]:
        """Graphs and labels without nodes of the void label; which graphs have others at all."""
        void = self.void_label
        every = np.array([void is None or label != void for label in labels])
        known = np.split(every, np.cumsum([x.n_nodes for x in graphs[:-1]]))
        some = [i for i, own in enumerate(known) if own.any()]
        graphs = [graphs[i] if known[i].all() else graphs[i].subgraph(known[i]) for i in some]
        return graphs, [*compress(labels, every)], some

    def _count_types(self, graphs: list[Graph]) -> None:
        """Find out which weights these graphs ask for."""
        orders: dict[str, int] = {}
        counts = {"node_types": 1, "edge_types": 1}
        for i, x in enumerate(graphs):
            for name, scopes in x.factors.items():
                order = scopes.shape[1]
                if order and orders.setdefault(name, order) != order:
                    what = f"X[{i}].factors[{name!r}] joins {order} nodes, but others of that name"
                    raise ValueError(f"{what} join {orders[name]}: use another name.")
            for name, count in counts.items():
                counts[name] = max(count, 1 + int(getattr(x, name).max(initial=0)))
        self.n_node_types_, self.n_edge_types_ = counts.values()
        self.factor_orders_ = {name: orders[name] for name in sorted(orders)}

    def _make(
        self, graphs: list[Graph], labels: Array, cost: Array, apart: bool = False
    ) -> GraphProblem:
        """The problem; ``apart``: as in :func:`.make_problem`."""
        k = len(self.classes_)
        featured = self.n_edge_features_ > 0
        sizes = getattr(self, "edge_feature_scales_", 1.0)
        topologies, factor_templates, values = [], [], []
        for x in graphs:
            factor_templates.append(x.edge_types)
            sets = [x.edges]
            if featured and x.n_edges:
                values.append((x.edge_features / sizes).ravel())
            for j, name in enumerate(self.factor_orders_):
                if len(x.factors.get(name, ())):
                    sets.append(x.factors[name])
                    factor_templates.append(np.full(len(sets[-1]), self.n_edge_types_ + j))
                    values.append(np.ones(len(sets[-1])))
            scopes = x.edges if len(sets) == 1 else [s for own in sets for s in own.tolist()]
            topologies.append(make_topology(np.full(x.n_nodes, k), scopes))
        orders = [*[2] * self.n_edge_types_, *self.factor_orders_.values()]
        widths = np.ones(len(orders), dtype=int)
        widths[: self.n_edge_types_] = max(1, self.n_edge_features_)
        node_types = np.concatenate([x.node_types for x in graphs])
        templates = node_types, np.concatenate(factor_templates)
        counts = np.full(self.n_node_types_, k), widths, np.array([k**order for order in orders])
        matrix = checks.as_csr(scale_columns(self, stack_features(graphs)[0]))
        known = (join(topologies), *templates, *counts, self._with_constant(matrix), labels, cost)
        more: dict[str, Any] = {"node_weight": np.concatenate([x.node_weights for x in graphs])}
        if featured:
            more["factor_start"] = starts_of(widths[templates[1]])
            more["factor_values"] = np.concatenate([*values, np.empty(0)])
        more |= {"inference": INFERENCE[self.inference], "apart": apart}
        return graph_blocks.make_problem(*known, **more)

    def _node_labels(self, graphs: list[Any], y: Any) -> list[Any]:
        """Labels of the nodes of all graphs in a row."""
        offsets = starts_of(np.array([x.n_nodes for x in graphs]))
        return stack_labels(y, offsets, words=("graph", "node"))

    @property
    def _layout(self) -> Layout:
        """Where the blocks of ``weights_`` lie: unary ones by feature, tables row by row."""
        k = len(self.classes_)
        tables = {"pairwise": (self.n_edge_types_ * max(1, self.n_edge_features_), k * k)}
        tables |= {f"factor/{name}": (1, k**order) for name, order in self.factor_orders_.items()}
        rows = int(self.n_features_in_) + bool(self.fit_intercept)
        return graph_blocks.layout(rows, self.n_node_types_ * k, tables)

    def _by_type(self, part: int) -> Array:
        table = self._split_unary(len(self.classes_))[part]
        return table[0] if self.n_node_types_ == 1 else table

    unary_coef_ = property(lambda self: self._by_type(0))  # ([types,] labels, features), a view
    intercept_ = property(lambda self: self._by_type(1))  # zero without a constant

    @property
    def pairwise_coef_(self) -> Array:
        """Weights of pairs of labels: a view; see the class for its shape."""
        k = len(self.classes_)
        types = () if self.n_edge_types_ == 1 else (self.n_edge_types_,)
        features = (self.n_edge_features_,) if self.n_edge_features_ else ()
        return self._view("pairwise").reshape((*types, *features, k, k))

    @property
    def factor_coef_(self) -> dict[str, Array]:
        """Tables of larger sets of nodes, by name: views."""
        k, orders = len(self.classes_), self.factor_orders_.items()
        return {name: self._view(f"factor/{name}").reshape((k,) * order) for name, order in orders}

    def _prepare(self, X: Any) -> GraphProblem:
        check_is_fitted(self, "weights_")
        graphs, *_ = check_graphs(X, (self.n_features_in_, self.n_edge_features_))
        known = {"node_types": self.n_node_types_, "edge_types": self.n_edge_types_}
        for i, x in enumerate(graphs):
            for name, most in known.items():
                largest = int(getattr(x, name).max(initial=0))
                what = f"X[{i}].{name} holds {largest}, but the model knows 0 to {most - 1}."
                checks.require(largest < most, what)
            for name, scopes in x.factors.items():
                order, known_orders = scopes.shape[1], self.factor_orders_
                what = f"X[{i}].factors[{name!r}] joins {order} nodes, which the model was not"
                fine = not len(scopes) or known_orders.get(name) == order
                checks.require(fine, f"{what} fitted with; it knows {known_orders}.")
        k = len(self.classes_)
        n_nodes = sum(x.n_nodes for x in graphs)
        return self._make(graphs, np.zeros(n_nodes, dtype=np.int32), np.zeros((k, k)))

    def predict(self, X: Any) -> list[Array]:
        """Labels of the nodes of every graph, one array each: the best that inference finds."""
        check_is_fitted(self, "weights_")
        return super().predict(X) if not isinstance(X, (list, tuple)) or X else Labels()

    def _as_output(self, problem: GraphProblem, states: Array) -> list[Array]:
        return Labels(np.split(self.classes_[states], problem.offsets[1:-1]))

    def decision_function(self, X: Any) -> list[Array]:
        """Score of every label of every node, with the other nodes as predicted.

        One array (nodes, labels) for each graph of X. Terms that do not depend on the node's label
        are left out.
        """
        scores, start = self._conditional_scores(self._prepare(X))
        return [own.reshape(-1, len(self.classes_)) for own in np.split(scores, start[1:-1])]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of the nodes that are labelled correctly, without void ones.

        Nodes count by ``Graph.node_weights``: for superpixels weighted by size, pixel accuracy.
        """
        found = self.predict(X)
        weights = checks.check_sample_weight(sample_weight, len(found))
        truth = self._node_labels(X, y)
        guess = [label for own in found for label in own.tolist()]
        each = np.concatenate([w * x.node_weights for w, x in zip(weights, X, strict=True)])
        each *= [self.void_label is None or label != self.void_label for label in truth]
        checks.require(each.any(), "there is no node to judge by: all are void or weigh nothing.")
        # Not arrays: labels of different types must not become equal.
        return float(np.average([a == b for a, b in zip(guess, truth, strict=True)], weights=each))

    def _fitted_to_json(self, arrays: dict[str, Array]) -> dict[str, Any]:
        if hasattr(self, "edge_feature_scales_"):
            arrays["edge_feature_scales_"] = self.edge_feature_scales_
        counts: dict[str, Any] = {name: getattr(self, f"n_{name}_") for name in COUNTS}
        return counts | {"factors": [*map(list, self.factor_orders_.items())]}

    def _fitted_from_json(self, stored: dict[str, Any], arrays: dict[str, Array]) -> None:
        counts = [stored[name] for name in COUNTS]
        orders = dict(stored["factors"])
        fine = all(type(n) is int and n >= 0 for n in (*counts, *orders.values()))
        fine = fine and min(counts[:2]) > 0 and max(orders.values(), default=0) <= 30
        fine = fine and all(isinstance(name, str) for name in orders)
        checks.require(fine, "types, edge features and orders of named factors must be counts")
        self.n_node_types_, self.n_edge_types_, self.n_edge_features_ = counts
        self.factor_orders_ = orders
        if "edge_feature_scales_" in arrays:
            self.edge_feature_scales_ = sizes = arrays["edge_feature_scales_"]
            fine = sizes.dtype == np.float64 and sizes.shape == (counts[2],)
            fine = fine and bool((sizes > 0.0).all() and np.isfinite(sizes).all())
            checks.require(fine, "edge_feature_scales_ must be a number for every feature")
