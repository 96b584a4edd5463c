"""Multi-label classification: sets of labels, with scores of pairs of labels."""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.special import rel_entr
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import type_of_target

from hingeline import _checks as checks
from hingeline._checks import Array
from hingeline.core.primitives import Compiled, Layout
from hingeline.core.solver import CertifiedSolver
from hingeline.estimators.base import BaseModel, BaseSSVM, TableModel, share_docs
from hingeline.estimators.graph import GraphModel, check_pairs
from hingeline.features.tables import scale_columns
from hingeline.inference.factor_graph import are_forests, join, make_topology
from hingeline.inference.map import INFERENCE
from hingeline.structures.graph_blocks import GraphProblem, layout, make_problem

#: Solvers of the relaxation keep so many bytes for every pair of labels of every example, and look
#: at so many in a second of a pass. Passes longer than this, in seconds, are worth a warning.
PAIR_BYTES, PAIRS_A_SECOND, LONG_PASS = 16, 6e6, 20.0
RELAXED = ("soft-bcfw", "dlpw", "dlpw-smooth")
#: With so few weights and a C so many times ``"scale"`` (large features that differ in scale),
#: Newton steps of ``"sdm"`` are sooner done with trees of labels than masses are.
FEW_WEIGHTS, LARGE_C = 2000, 300.0
FEW_LABELS = 15  # all pairs of more are no better than a tree, and cost 40 to 300 times as much


def read_indicator(y: Any, names: Any = None) -> tuple[Array, Array]:
    """Indicators (n, labels) as int32, and the names of the labels.

    One dimension, or one column, with two classes is a single label; the names are its classes.
    """
    y = np.asarray(y.toarray() if sp.issparse(y) else y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim == 1:
        kind = type_of_target(y, input_name="y", raise_unknown=True)
        classes, numbers = checks.number_classes(y)
        text = f"Unknown label type: {kind}. y must be indicators of shape (n_samples, n_labels)."
        checks.require(kind in ("binary", "multiclass"), text)
        what = f"Only binary classification is supported. The type of the target is {kind}."
        how = "Give indicators of shape (n_samples, n_labels), or use MulticlassSSVM."
        checks.require(len(classes) <= 2, f"{what} {how}")
        text = f"y has one class only ({classes.tolist()[0]!r}): at least 2 classes are needed."
        checks.require(len(classes) == 2, text)
        return numbers.astype(np.int32)[:, None], classes
    for bad in y[(y != 0) & (y != 1)].tolist():
        raise ValueError(f"y holds {bad!r}: indicators must be 0 or 1, one column per label.")
    classes = np.arange(y.shape[1])
    if names is not None and len(names) == y.shape[1]:
        classes = np.asarray([str(name) for name in names], dtype=object)
    return y.astype(np.int32), classes


def refuse_label_sets(y: Any) -> None:
    """Refuse y that lists the labels of every example: rows of names, or of different lengths."""
    if hasattr(y, "to_list") or getattr(getattr(y, "dtype", None), "kind", "") == "O":
        y = y.to_list() if hasattr(y, "to_list") else y.tolist()
    given = y if isinstance(y, (list, tuple)) else ()
    rows = [row for row in given if isinstance(row, (list, tuple))]
    sets = any(isinstance(row, (set, frozenset)) for row in given) or len({*map(len, rows)}) > 1
    sets = sets or any(len(row) == 0 or isinstance(row[0], str) for row in rows)
    what = "y is a list of label sets: turn it into indicators first, with"
    how = "sklearn.preprocessing.MultiLabelBinarizer().fit_transform(y)"
    checks.require(not sets, f"{what} {how}.")


def find_pairs(edges: Any, indicator: Array, weights: Array) -> Array:
    """Pairs of labels (pairs, 2), from a word or a list."""
    n_labels = indicator.shape[1]
    if isinstance(edges, str) and edges == "auto":  # a tree wants data, which blocks do not show
        edges = "tree" if n_labels > FEW_LABELS and len(indicator) > 1 else "full"
    if edges is not None and not isinstance(edges, str):
        return check_pairs(edges, "edges", n_labels, "columns of y")
    if edges == "full":
        return np.column_stack(np.triu_indices(n_labels, 1)).astype(np.int64)
    if edges == "tree":
        return chow_liu(indicator, weights)
    known = "choose one of 'auto', 'full', 'tree', 'none', or give pairs"
    checks.require(edges == "none", f"edges={edges!r} is not known; {known}.")
    return np.zeros((0, 2), dtype=np.int64)


def mutual_information(indicator: Array, weights: Array) -> Array:
    """Mutual information of every pair of labels, in nats; (labels, labels)."""
    values = np.hstack([1.0 - indicator, indicator])  # absent, present
    joint = (values * weights[:, None]).T @ values / weights.sum()
    alone = joint.diagonal()
    parts = rel_entr(joint, np.outer(alone, alone)).reshape(2, -1, 2, len(alone) // 2)
    return np.asarray(parts.sum(axis=(0, 2)))


def chow_liu(indicator: Array, weights: Array) -> Array:
    """The maximum spanning tree of mutual information (Chow and Liu 1968), (labels − 1, 2)."""
    # SciPy's tree is the least one, and 0 stands for no edge.
    tree = minimum_spanning_tree(-1.0 - mutual_information(indicator, weights)).tocoo()
    pairs = np.sort(np.column_stack([tree.row, tree.col]), axis=1)
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))].astype(np.int64)


@share_docs
@dataclass(eq=False, repr=False)
class MultilabelSSVM(ClassifierMixin, GraphModel, TableModel, BaseSSVM, BaseModel):
    """Multi-label support vector machine over a graph of labels, solved to a certificate.

    A set of labels, as indicators ``y ∈ {0, 1}^L``, has the score
    ``Σ_l x·U[l, y_l] + Σ_{(k, l) ∈ edges} T_kl[y_k, y_l]``; training minimises
    ``½‖w‖² + C Σ_i s_i·max_y [l_i(y) − w·Δf_i(y)]₊`` with the number of wrong indicators as loss.

    Parameters
    ----------
    edges : {"auto", "full", "tree", "none"} or list of pairs, default="auto"
        Pairs of labels that are scored together: all, those of the maximum spanning tree of their
        mutual information (Chow and Liu), none, or pairs of column numbers of y. ``"auto"`` is
        all for up to 15 labels, the tree for more: as good, and far cheaper. Unless a solver or its
        options are named, C is infinite, or ``slack`` is not ``"max"``, labels without pairs are
        solved one by one, and trees by masses of labels and pairs; the problem stays the same. If
        pairs form loops, training keeps 16 bytes for each pair of each example, refuses to begin
        without that memory, and warns where passes take long.
    loss : "hamming", array, or (scale, loss)
        Summed over labels: 1 for a wrong indicator, or a matrix ``[[0, a], [b, 0]]`` with the cost
        a of a label too many and b of a missing one.
    class_weight : dict or "balanced", optional
        Factors on the loss of indicators, by true value: ``{0: …, 1: …}``; "balanced" gives both
        values the same total weight, label by label. With y of one dimension they are factors on
        the weights of examples, as in :class:`hingeline.MulticlassSSVM`.

    Attributes
    ----------
    classes_ : ndarray of shape (labels,)
        Names of the labels: the columns of y if it is a data frame, else their numbers. With y of
        one dimension, its two classes.
    n_labels_ : int
    edges_ : ndarray of shape (pairs, 2)
    unary_coef_ : ndarray of shape (labels, 2, features); weights of a label's absence and presence
    coef_, intercept_ : ndarray of shape (labels, features), and (labels,)
        Weights of presence minus those of absence; of the constant feature likewise.
    pairwise_coef_ : ndarray of shape (pairs, 2, 2)
        ``[indicator of the first label, of the second]``.

    Examples
    --------
    >>> from sklearn.datasets import make_multilabel_classification
    >>> from hingeline import MultilabelSSVM
    >>> X, y = make_multilabel_classification(n_classes=4, random_state=0)
    >>> model = MultilabelSSVM(C=0.01, random_state=0).fit(X, y)
    >>> model.predict(X[:2]).shape
    (2, 4)
    """

    C: float | str = "scale"
    _: KW_ONLY
    edges: Any = "auto"

    def _times_scale(self) -> float:
        return 10.0 / 3.0  # most labels are rare, and with a small C never predicted

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on rows of features and indicators of labels, 0 and 1.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like or sparse matrix (n_samples, n_labels), or one label (n_samples,)
        sample_weight : array-like (n_samples,), optional; multiplies an example's slack, 0 drops it
        """
        self.check_parameters()
        refuse_label_sets(y)
        names = getattr(y, "columns", None)
        X, y = self._check_rows(X, y, multi_output=True)
        indicator, self.classes_ = read_indicator(y, names)
        n, self.n_labels_ = indicator.shape
        weights = checks.check_sample_weight(sample_weight, n)
        X = scale_columns(self, X, weights)
        self.edges_ = find_pairs(self.edges, indicator, weights)
        self._refuse_too_many_pairs(n)
        cost = checks.check_loss(self.loss, "hamming", 2, vector=True)
        values = [0, 1] if self.n_labels_ > 1 else self.classes_.tolist()
        node_weight = np.empty(indicator.shape)
        for k in range(self.n_labels_):
            own = checks.check_class_weight(self.class_weight, values, indicator[:, k])
            node_weight[:, k] = own[indicator[:, k]]
        if self.n_labels_ == 1:  # one variable: weight the example, as MulticlassSSVM does
            weights = weights * node_weight[:, 0]
            node_weight[:] = 1.0
            checks.require(weights.any(), "class_weight leaves every example a weight of zero.")
        self._fit_graphs(self._make(X, indicator.ravel(), cost, node_weight.ravel()), weights)
        return self

    def _refuse_too_many_pairs(self, n: int) -> None:
        """Refuse, before anything is allocated, what the machine has no memory for; or warn."""
        n_pairs = len(self.edges_)
        relaxes = self.solver == "auto" or self.solver in RELAXED
        if n_pairs < self.n_labels_ or not relaxes or self.slack != "max":
            return  # a forest, or solvers that keep nothing by pair
        what = f"{n:,} examples with {n_pairs:,} pairs of {self.n_labels_:,} labels"
        how = 'use edges="tree", or a list of fewer pairs'
        checks.require_memory(PAIR_BYTES * n * n_pairs, what, how)
        if n * n_pairs > LONG_PASS * PAIRS_A_SECOND:
            cost = f"{PAIR_BYTES * n * n_pairs / 2**30:,.1f} GiB of memory, and every pass about"
            seconds = f"{n * n_pairs / PAIRS_A_SECOND:,.0f} s of CPU time"
            checks.warn(f"{what} need {cost} {seconds}; a small gap may be out of reach: {how}.")

    def _make(
        self, X: Any, labels: Array, cost: Array, node_weight: Array | None = None
    ) -> GraphProblem:
        """One graph for all examples; the variables of an example share its row."""
        matrix = self._with_constant(checks.as_csr(X))
        n, n_labels, n_pairs = matrix.shape[0], self.n_labels_, len(self.edges_)
        graphs = join([make_topology(np.full(n_labels, 2), self.edges_)])
        templates = np.arange(n_labels), np.arange(n_pairs)  # all have weights of their own
        sizes = np.full(n_labels, 2), np.ones(n_pairs), np.full(n_pairs, 4)
        more: dict[str, Any] = {"graph": np.zeros(n), "row": np.repeat(np.arange(n), n_labels)}
        more |= {"node_weight": node_weight, "inference": INFERENCE[self.inference]}
        return make_problem(graphs, *templates, *sizes, matrix, labels, cost, **more)

    def _solver_class(self, compiled: Compiled | None) -> type[CertifiedSolver]:
        plain = self.solver == "auto" and self.slack == "max" and not self.solver_options
        if compiled is not None and plain and math.inf != self.C:
            if not len(self.edges_):
                from hingeline.solvers.by_label import ByLabel

                return ByLabel
            forest = bool(are_forests(compiled.problem.graphs).all())
            large = False
            if compiled.n_weights <= FEW_WEIGHTS and not isinstance(self.C, str):
                large = LARGE_C * self._scaled_C(compiled.problem, np.ones(compiled.n)) < self.C
            if forest and compiled.exact and not large:
                from hingeline.solvers.label_tree import LabelTree

                return LabelTree
        return super()._solver_class(compiled)

    @property
    def _layout(self) -> Layout:
        rows = int(self.n_features_in_) + bool(self.fit_intercept)
        return layout(rows, 2 * self.n_labels_, {"pairwise": (len(self.edges_), 4)})

    unary_coef_ = property(lambda self: self._split_unary(2)[0])  # (labels, 2, features), a view
    coef_ = property(lambda self: np.diff(self._split_unary(2)[0], axis=1)[:, 0])
    intercept_ = property(lambda self: np.diff(self._split_unary(2)[1], axis=1)[:, 0])
    pairwise_coef_ = property(lambda self: self._view("pairwise").reshape(-1, 2, 2))

    def _prepare(self, X: Any) -> GraphProblem:
        rows = self._new_rows(X)
        labels = np.zeros(rows.shape[0] * self.n_labels_, dtype=np.int32)
        return self._make(rows, labels, np.zeros((2, 2)))

    def _as_output(self, problem: GraphProblem, states: Array) -> Array:
        if self.n_labels_ == 1:
            return np.asarray(self.classes_[states])
        return states.reshape(-1, self.n_labels_).astype(np.int64)

    def decision_function(self, X: Any) -> Array:
        """The score with each label minus that without it, the other labels being as predicted.

        It is ``x·coef_[l] + intercept_[l]`` plus what the label's pairs with the predicted values
        of the other labels add. If inference is exact, it is positive for the predicted labels and
        no others. The shape is (n_samples, n_labels), or (n_samples,) if y had one dimension.
        """
        scores = self._conditional_scores(self._prepare(X))[0].reshape(-1, self.n_labels_, 2)
        leads = np.asarray(scores[:, :, 1] - scores[:, :, 0])
        return leads[:, 0] if self.n_labels_ == 1 else leads

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.multi_label = True
        tags.target_tags.multi_output = True
        return tags

    def _fitted_to_json(self, arrays: dict[str, Array]) -> dict[str, Any]:
        arrays["edges"] = self.edges_
        return {"n_labels": self.n_labels_}

    def _fitted_from_json(self, stored: dict[str, Any], arrays: dict[str, Array]) -> None:
        n_labels, edges = stored["n_labels"], arrays["edges"]
        fine = type(n_labels) is int and len(self.classes_) == (n_labels if n_labels > 1 else 2)
        fine = fine and edges.dtype == np.int64 and edges.ndim == 2 and edges.shape[1] == 2
        checks.require(fine, "classes_ must be as many as the labels, and edges pairs of labels")
        self.n_labels_ = n_labels
        self.edges_ = check_pairs(edges, "edges", n_labels, "columns of y")
