"""The data of a block: read where the block lives, posed once all blocks are known.

Labels, and the names of features with their counts, are told to the driver, which merges them in
the order of the blocks and tells every block its own columns among all of them. The driver never
sees an example.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from hingeline import _checks as checks
from hingeline._checks import Array, require
from hingeline.core.primitives import Compiled, sum_losses
from hingeline.data.formats import detect_format, find_format
from hingeline.data.labelled import (
    ROWS,
    SEQUENCES,
    SETS,
    File,
    Layout,
    length_of,
    open_once,
    read_labelled,
)
from hingeline.data.text import open_text
from hingeline.estimators.allowed import choose_scheme
from hingeline.estimators.base import scale_C, weigh_rows
from hingeline.estimators.chain import ChainSSVM
from hingeline.estimators.custom import SSVM
from hingeline.estimators.graph import GraphSSVM, check_graphs, choose_edge_scales, stack_features
from hingeline.estimators.multiclass import MulticlassSSVM
from hingeline.estimators.multilabel import (
    MultilabelSSVM,
    find_pairs,
    read_indicator,
    refuse_label_sets,
)
from hingeline.features.input import (
    check_mergeable,
    choose_encoder,
    concat_frames,
    find_classes,
    number_labels,
    stack_labels,
    stack_sequences,
)
from hingeline.features.scales import choose_scales, no_zeros, settle
from hingeline.features.tables import (
    SparseSequences,
    TokenTable,
    is_dense,
    refuse_scale,
    renumber,
    scale_columns,
)


class FilePart(NamedTuple):
    """The name of a file, and how it is read."""

    path: str
    format: str = "auto"
    columns: Sequence[str] | None = None
    use: Sequence[str] | None = None
    label: str | None = None
    first: tuple[str, str] | None = None  # the first of all files and its format, if known

    def read(self) -> tuple[Any, Any, Layout] | None:
        """X, y and where they are in the file; None for a file without a byte."""
        path, name, columns, use, label, first = self
        source = open_once(path)
        with open_text(source) as text:
            if not text.peek(1):
                return None
            found = find_format(detect_format(text) if name == "auto" else name)
        if first is not None:
            merge_layouts([(first[0], Layout(first[1], "")), (path, Layout(found.name, ""))])
        known = (*SEQUENCES, *ROWS, *SETS)
        what = f"{path} holds {found.kind} ({found.name}), not sequences or rows"
        require(found.name in known, f"{what}: convert it first (hingeline convert).")
        require(columns is None or found.name == "conll", f"columns are for conll, not {path}.")
        file = File(path, open_once(path), found)
        return read_labelled(file, columns, use, label, whole=False)[:3]


def merge_layouts(found: Sequence[tuple[str, Layout]]) -> Layout:
    """The layout of files, given with their names, that are learnt from together."""
    path, first = found[0]
    for other, layout in found[1:]:
        what = f"{path} is {first.format} and {other} is {layout.format}"
        require(layout.format == first.format, f"{what}: give files of one format, or name it.")
        a, b = (", ".join([*one.columns, one.label]) for one in (first, layout))
        what = f"{path} has the columns {a} and {other} has {b}"
        require(a == b, f"{what}: all files must have the same columns.")
    based = [layout.zero_based for _, layout in found]
    labels = max((layout.labels for _, layout in found), key=len)
    return replace(first, zero_based=any(based) if None not in based else None, labels=labels)


Origin = tuple[str, Layout]  # the first file of a block, and the layout of all of them


def read_parts(parts: Sequence[Any]) -> tuple[Any, Any, Any, Origin | None]:
    """X, y and the weights of all parts, one after the other, and which files they come from."""
    found, layouts = [], []
    for part in parts:
        if isinstance(part, FilePart):
            if (read := part.read()) is None:
                continue
            X, y, layout = read
            layouts.append((part.path, layout))
            weights = None
        else:
            X, y, weights = _take_part(part)
        if n := length_of(X):
            w = np.ones(n)
            if weights is not None:
                w = checks.as_weights("sample_weight", weights, n, "example")
            found.append((X, y, w))
    origin = (layouts[0][0], merge_layouts(layouts)) if layouts else None
    if not found:
        return None, None, None, origin
    Xs, ys, weights = zip(*found, strict=True)
    return _join(Xs), _join_labels(ys), np.concatenate(weights), origin


def _take_part(part: Any) -> tuple[Any, Any, Any]:
    if hasattr(part, "compute"):  # dask.delayed, or a part of a bag
        part = part.compute(scheduler="synchronous")
    if isinstance(part, tuple) and len(part) in (2, 3):
        return part if len(part) == 3 else (*part, None)
    if isinstance(part, list) and all(isinstance(p, tuple) and len(p) == 2 for p in part):
        return [x for x, _ in part], [y for _, y in part], None
    what = f"a part of the source is a {type(part).__name__}"
    how = "each must be the name of a file, (X, y), (X, y, sample_weight), or a list of pairs"
    raise TypeError(f"{what}: {how} (x, y).")


def _join(Xs: Sequence[Any]) -> Any:
    """Inputs of several parts, one after the other."""
    first = Xs[0]
    if len(Xs) == 1:
        return first
    if sp.issparse(first):
        return sp.vstack([widen(x, 0, max(X.shape[1] for X in Xs)) for x in Xs], format="csr")
    if all(isinstance(X, TokenTable) and X.names == first.names for X in Xs):
        return TokenTable.join(Xs)
    if all(isinstance(X, SparseSequences) for X in Xs):
        lengths = np.concatenate([X.lengths for X in Xs])
        return SparseSequences(_join([X.matrix for X in Xs]), np.cumsum([0, *lengths]))
    if isinstance(first, np.ndarray):
        return np.concatenate(Xs)
    if hasattr(first, "columns"):
        return concat_frames(Xs)
    return [x for X in Xs for x in X]


def _join_labels(ys: Sequence[Any]) -> Any:
    if len(ys) == 1 or sp.issparse(ys[0]) or hasattr(ys[0], "columns"):
        return _join(ys)
    if not all(isinstance(y, np.ndarray) and y.ndim for y in ys):
        return [label for y in ys for label in y]
    if ys[0].ndim == 2:  # files of label sets end where the last label is
        width = max(y.shape[1] for y in ys)
        ys = [np.pad(y, ((0, 0), (0, width - y.shape[1]))) for y in ys]
    return np.concatenate(ys)


def widen(matrix: Any, first: int, width: int) -> sp.csr_matrix:
    """A sparse matrix of so many columns, from the column ``first`` on."""
    m = sp.csr_matrix(matrix[:, first:] if first else matrix)
    return sp.csr_matrix((m.data, m.indices, m.indptr), (m.shape[0], width))


class Shard:
    """The examples of one block; subclasses know an estimator."""

    #: What the driver must know of this block before any block can be posed.
    told: dict[str, Any]
    weights: Array  # of the examples
    #: What ``C="scale"`` is made of, once the block is posed.
    sums: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)

    #: Of what blocks told: attributes that all of them and the fitted estimator have, and what each
    #: block is told (estimator, told); then a block's problem and the weights of its examples.
    merge: Callable[[Any, list[dict[str, Any]]], tuple[dict[str, Any], list[Any]]]
    pose: Callable[..., tuple[Compiled, Array]]

    def compile(self, estimator: Any, problem: Any, weights: Array) -> tuple[Compiled, Array]:
        """The problem for solvers, and the weights of its examples; the sums are kept."""
        rows = weigh_rows(problem, weights)
        with np.errstate(over="ignore"):
            squares = np.square(problem.values, dtype=np.float64)
            total = float((squares * np.repeat(rows, np.diff(problem.indptr))).sum())
        n, losses = float(rows.sum()), sum_losses(problem, weights)
        self.sums = total + (0.0 if estimator.fit_intercept else n), n, *losses
        return estimator._compile(problem), weights


def merge_classes(estimator: Any, told: list[dict[str, Any]]) -> dict[str, Any]:
    """``classes_`` of all blocks; balanced weights as a mapping, since no block can count alone."""
    counts: Counter[Any] = Counter()
    for one in told:
        counts.update(one["labels"])
    texts = {isinstance(label, str) for label in counts}
    what = "labels are texts in some parts and numbers in others"
    require(len(texts) < 2, f"{what}: give one kind.")
    classes, _ = find_classes(list(counts))
    labels = classes.tolist()
    alike: dict[str, str] = {}
    for label in filter(lambda label: isinstance(label, str), labels):
        other = alike.setdefault(label.casefold(), label)
        if other != label:
            checks.warn(f"the labels {other!r} and {label!r} differ by case only: is one misspelt?")
    known: dict[str, Any] = {"classes_": classes}
    if isinstance(estimator.class_weight, str):
        numbers = np.repeat(np.arange(len(classes)), [counts[c] for c in labels])
        weights = checks.check_class_weight(estimator.class_weight, labels, numbers)
        known["class_weight"] = dict(zip(labels, weights.tolist(), strict=True))
    return known


def merge_widths(told: list[dict[str, Any]], what: str = "features") -> int:
    """How many columns blocks have, which must agree."""
    widths = {one["width"]: k for k, one in enumerate(told)}
    if len(widths) > 1:
        (a, i), (b, j), *_ = sorted(widths.items())
        raise ValueError(
            f"block {i} has {a} {what} and block {j} has {b}: all parts must have the same columns."
        )
    return int(next(iter(widths)))


def merge_columns(told: list[dict[str, Any]]) -> tuple[int, int]:
    """The first of the columns, 1 where files count from 1, and how many there are from it on.

    Sparse files end where the last feature with a value is.
    """
    bases = [one["origin"] and one["origin"][1].zero_based for one in told]
    if bases[0] is None and not all(one.get("sparse") for one in told):
        merge_widths(told)
    first = int(bases[0] is not None and not any(bases))
    return first, max(one["width"] for one in told) - first


def measure_rows(
    estimator: Any, matrix: sp.csr_matrix, sparse: bool, weights: Array
) -> dict[str, Any]:
    """What a block tells of its rows, that is, if they are scaled, of their columns.

    Largest sizes of sparse ones; count, means, squares, entries, largest and least of others. A
    row counts by its weight.
    """
    told: dict[str, Any] = {"width": matrix.shape[1], "sparse": sparse}
    some = np.flatnonzero(weights)
    if not estimator._wants_scale(not sparse) or not len(some):
        return told
    matrix, weights = sp.csr_matrix(matrix[some]), weights[some]
    if sparse:
        return told | {"sums": abs(matrix).max(axis=0).toarray().ravel()}
    rows, n = matrix.toarray(), float(weights.sum())
    with np.errstate(over="ignore", invalid="ignore"):  # refused later
        mean, filled = (np.einsum("i,ij->j", weights, of) for of in (rows, rows != 0.0))
        squares = np.einsum("i,ij->j", weights, np.square(rows - mean / n))
    return told | {"sums": (n, mean / n, squares, filled, rows.max(axis=0), rows.min(axis=0))}


def merge_rows(estimator: Any, told: list[dict[str, Any]]) -> tuple[int, dict[str, Any]]:
    """The first of the columns, and how many there are; their means and scales if asked for."""
    first, width = merge_columns(told)
    known: dict[str, Any] = {"n_features_in_": width}
    sums = [one["sums"] for one in told if "sums" in one]
    if not sums:
        return first, known
    if any(isinstance(one, tuple) for one in sums):
        what = "some parts are dense and others sparse, which scale=True treats differently"
        require(all(isinstance(one, tuple) for one in sums), f"{what}: give one kind.")
        return first, known | choose_scales(estimator, *merge_spread(sums))
    wide = [np.pad(one[first:], (0, width + first - len(one))) for one in sums]
    mean, sizes = np.zeros(width), np.max(wide, axis=0)
    return first, known | {"feature_means_": mean, "feature_scales_": no_zeros(sizes)}


def merge_spread(sums: list[Any]) -> tuple[Array, ...]:
    """Of dense columns of all blocks what :func:`measure_columns` tells of one array."""
    n, mean, squares, filled, most, least = sums[0]
    for count, own, more, also, high, low in sums[1:]:
        shift, n, filled = own - mean, n + count, filled + also
        mean = mean + shift * (count / n)
        squares = squares + more + shift**2 * (count * (n - count) / n)
        most, least = np.maximum(most, high), np.minimum(least, low)
    return settle(mean, np.sqrt(squares / n), filled / n, most, least)


def number_own(estimator: Any, labels: list[Any]) -> Array:
    """Labels by their numbers among those of all blocks."""
    return number_labels(labels, estimator.classes_)


def merge_encoders(
    encoders: Sequence[Any], counts: Sequence[Array], min_count: int
) -> tuple[Any, list[Array]]:
    """The encoder that a fit on all blocks of data, in their order, would give.

    ``encoders`` and ``counts`` are what ``count`` of an encoder returned for each block. Also
    returns the new columns of each block's features, −1 for features that are too rare, for
    :func:`hingeline.features.tables.renumber`. Hash collisions are those of the block with most.
    """
    require(len(encoders), "encoders is empty: there are no blocks.")
    first = encoders[0]
    check_mergeable(first)
    for k, encoder in enumerate(encoders):
        if type(encoder) is not type(first) or encoder.get_params() != first.get_params():
            what = f"block {k} was counted by {encoder!r}, block 0 by {first!r}"
            raise ValueError(f"{what}: count all blocks by one encoder.")
    merged = clone(first).set_params(min_count=min_count)
    merged._check_parameters()
    return merged, merged._merge(encoders, counts)


class Sequences(Shard):
    """For :class:`hingeline.ChainSSVM`."""

    def __init__(self, estimator: Any, X: Any, y: Any, weights: Array) -> None:
        self.weights = weights
        encoder, X = choose_encoder(estimator.features, X)
        counts = np.zeros(0, dtype=np.int64)
        refuse_scale(encoder, estimator.scale)
        if encoder is not None:
            check_mergeable(encoder)
            encoder, X, counts = encoder.count(X)
        self.matrix, self.offsets = stack_sequences(X)
        self.flat = stack_labels(y, self.offsets)
        self.told = {"labels": Counter(self.flat), "encoder": encoder, "counts": counts}
        if encoder is None:
            each = np.repeat(weights, np.diff(self.offsets))
            self.told |= measure_rows(estimator, self.matrix, not is_dense(X), each) | {
                "sparse": False
            }

    @staticmethod
    def merge(estimator: Any, told: list[dict[str, Any]]) -> tuple[dict[str, Any], list[Any]]:
        known = merge_classes(estimator, told) | {"encoder_": None}
        known["scheme_"] = None if estimator.scheme == "none" else estimator.scheme
        kinds = {type(one["encoder"]) for one in told}
        if len(kinds) > 1:
            words = {type(None): "numbers"}
            names = " and ".join(sorted(words.get(kind, kind.__name__) for kind in kinds))
            raise ValueError(f"blocks hold different kinds of tokens ({names}): give one kind.")
        if told[0]["encoder"] is None:
            first, more = merge_rows(estimator, told)
            return known | more, [first] * len(told)
        encoders, counts = zip(*((one["encoder"], one["counts"]) for one in told), strict=True)
        encoder, columns = merge_encoders(encoders, counts, encoders[0].min_count)
        known |= {"encoder_": encoder, "n_features_in_": encoder.n_features_out_}
        return known, columns

    def pose(self, estimator: Any, own: Any) -> tuple[Compiled, Array]:
        change = widen if isinstance(own, int) else renumber
        matrix = change(self.matrix, own, estimator.n_features_in_)
        matrix = checks.as_csr(scale_columns(estimator, matrix))
        labels = number_own(estimator, self.flat)
        if estimator.scheme_ is not None:  # each block checks its labels
            choose_scheme(estimator.scheme, estimator.classes_, labels, self.offsets)
        problem = estimator._make(estimator._with_constant(matrix), self.offsets, labels)
        return self.compile(estimator, problem, self.weights)


class Rows(Shard):
    """For :class:`hingeline.MulticlassSSVM`."""

    def __init__(self, estimator: Any, X: Any, y: Any, weights: Array) -> None:
        self.weights = weights
        checks.refuse_none(y)
        self.matrix, self.y = checks.numeric_matrix(X, "X"), np.asarray(y)
        n = self.matrix.shape[0]
        text = f"X has {n} rows and y has {self.y.shape}: give one label per row."
        require(self.y.shape == (n,), text)
        self.told = measure_rows(estimator, self.matrix, sp.issparse(X), weights)
        self.told["labels"] = Counter(self.y.tolist())

    @staticmethod
    def merge(estimator: Any, told: list[dict[str, Any]]) -> tuple[dict[str, Any], list[Any]]:
        first, known = merge_rows(estimator, told)
        known |= merge_classes(estimator, told)
        classes = known["classes_"].tolist()
        text = f"y has one class only ({classes[0]!r}): at least 2 classes are needed."
        require(len(classes) > 1, text)
        return known, [first] * len(told)

    def pose(self, estimator: Any, own: Any) -> tuple[Compiled, Array]:
        wide = widen(self.matrix, own, estimator.n_features_in_)
        rows = estimator._with_constant(checks.as_csr(scale_columns(estimator, wide)))
        labels, classes = number_own(estimator, self.y.tolist()), estimator.classes_.tolist()
        by_class = checks.check_class_weight(estimator.class_weight, classes, labels)
        problem = estimator._make(rows, None, labels)
        return self.compile(estimator, problem, by_class[labels] * self.weights)


class LabelSets(Shard):
    """For :class:`hingeline.MultilabelSSVM`."""

    def __init__(self, estimator: Any, X: Any, y: Any, weights: Array) -> None:
        self.weights = weights
        for name, value, how in (
            ("class_weight", estimator.class_weight is not None, "leave it out"),
            ("edges", estimator.edges == "tree", "name the pairs, or use 'full' or 'none'"),
        ):
            require(not value, f"{name} needs all rows together, which blocks do not have: {how}.")
        self.matrix = checks.numeric_matrix(X, "X")
        self.told = measure_rows(estimator, self.matrix, sp.issparse(X), weights)
        refuse_label_sets(y)
        found = read_indicator(y, getattr(y, "columns", None))
        self.indicator, self.told["classes"] = found
        self.told["n_labels"] = self.indicator.shape[1]  # one label has two classes

    @staticmethod
    def merge(estimator: Any, told: list[dict[str, Any]]) -> tuple[dict[str, Any], list[Any]]:
        first, known = merge_rows(estimator, told)
        most = max(told, key=lambda one: one["n_labels"])
        n, classes = most["n_labels"], most["classes"]
        if told[0]["origin"] is None:  # files end where the last label is
            merge_widths([{"width": one["n_labels"]} for one in told], "labels")
        same = n > 1 or all(np.array_equal(one["classes"], classes) for one in told)
        require(same, "parts have different classes: give each part examples of both.")
        none = np.zeros((1, n), dtype=np.int64)  # pairs do not depend on the data here
        known |= {"classes_": classes, "n_labels_": n}
        known["edges_"] = find_pairs(estimator.edges, none, np.ones(1))
        return known, [first] * len(told)

    def pose(self, estimator: Any, own: Any) -> tuple[Compiled, Array]:
        more = estimator.n_labels_ - self.indicator.shape[1]
        labels = np.pad(self.indicator, ((0, 0), (0, more))).ravel()
        wide = scale_columns(estimator, widen(self.matrix, own, estimator.n_features_in_))
        cost = checks.check_loss(estimator.loss, "hamming", 2, vector=True)
        problem = estimator._make(wide, labels, cost, np.ones(len(labels)))
        return self.compile(estimator, problem, self.weights)


class Graphs(Shard):
    """For :class:`hingeline.GraphSSVM`."""

    counts = ("n_node_types_", "n_edge_types_", "factor_orders_")

    def __init__(self, estimator: Any, X: Any, y: Any, weights: Array) -> None:
        self.weights = weights
        self.graphs, width, edge_width = check_graphs(X)
        labels = estimator._node_labels(self.graphs, y)
        estimator._count_types(self.graphs)
        self.graphs, self.labels, self.some = estimator._drop_void(self.graphs, labels)
        what = f"a block holds nothing but the void label {estimator.void_label!r}"
        require(self.some, f"{what}: leave its parts out, or deal them to fewer blocks.")
        nodes, dense, edges = stack_features(self.graphs)
        own = weights[self.some]
        each = np.repeat(own, [x.n_nodes for x in self.graphs])
        self.told = measure_rows(estimator, nodes, not dense, each)
        self.told |= {"width": width, "sparse": False}
        self.told |= {name: getattr(estimator, name) for name in self.counts}
        if edges.size:
            each = np.repeat(own, [x.n_edges for x in self.graphs])
            told = measure_rows(estimator, checks.as_csr(edges), False, each)
            self.told |= {"edge sums": told["sums"]} if "sums" in told else {}
        self.told["labels"] = Counter(self.labels)
        self.told["edges"] = edge_width if any(x.n_edges for x in self.graphs) else None

    @staticmethod
    def merge(estimator: Any, told: list[dict[str, Any]]) -> tuple[dict[str, Any], list[Any]]:
        known = merge_classes(estimator, told) | merge_rows(estimator, told)[1]
        if spreads := [one["edge sums"] for one in told if "edge sums" in one]:
            known |= choose_edge_scales(estimator, *merge_spread(spreads))
        edges = [{"width": one["edges"]} for one in told if one["edges"] is not None]
        known["n_edge_features_"] = merge_widths(edges, "edge features") if edges else 0
        orders: dict[str, int] = {}
        for one in told:
            for name, order in one["factor_orders_"].items():
                what = f"factors[{name!r}] join {order} nodes here and {orders.get(name)} there"
                require(orders.setdefault(name, order) == order, f"{what}: use another name.")
        known["factor_orders_"] = {name: orders[name] for name in sorted(orders)}
        for name in Graphs.counts[:2]:
            known[name] = max(one[name] for one in told)
        return known, [None] * len(told)

    def pose(self, estimator: Any, own: Any) -> tuple[Compiled, Array]:
        numbers = number_own(estimator, self.labels)
        problem = estimator._make(self.graphs, numbers, checks.weigh_costs(estimator, numbers))
        return self.compile(estimator, problem, self.weights[self.some])


class Own(Shard):
    """For :class:`hingeline.SSVM`, with a structure of the user's."""

    def __init__(self, estimator: Any, X: Any, y: Any, weights: Array) -> None:
        self.weights = weights
        self.X = X
        self.outputs, self.width = estimator._pack(X, y)
        self.told = {"width": self.width}

    @staticmethod
    def merge(estimator: Any, told: list[dict[str, Any]]) -> tuple[dict[str, Any], list[Any]]:
        return {"n_features_in_": merge_widths(told, "joint features")}, [None] * len(told)

    def pose(self, estimator: Any, own: Any) -> tuple[Compiled, Array]:
        return estimator._compile_own(self.X, self.outputs, self.width), self.weights


KINDS = {
    ChainSSVM: Sequences,
    MulticlassSSVM: Rows,
    MultilabelSSVM: LabelSets,
    GraphSSVM: Graphs,
    SSVM: Own,
}


def kind_of(estimator: Any) -> type[Shard]:
    """The kind of shard for an estimator; others than ours are refused."""
    if type(estimator) not in KINDS:
        names = ", ".join(kind.__name__ for kind in KINDS)
        raise TypeError(f"blocks are for {names}, not for {type(estimator).__name__}.")
    return KINDS[type(estimator)]


def make_shard(estimator: Any, X: Any, y: Any, weights: Any, origin: Any) -> Shard | None:
    """The examples of a block, None where there are none."""
    if X is None:
        return None
    shard = kind_of(estimator)(estimator, X, y, weights)  # type: ignore[call-arg]
    shard.told["origin"] = origin
    return shard


def choose_C(estimator: Any, sums: list[tuple[float, ...]]) -> float:
    """C as a number, from what the blocks measured."""
    if not isinstance(estimator.C, str):
        return float(estimator.C)
    squares, count, losses, costly = (sum(one) for one in zip(*sums, strict=True))
    # As if all tokens were one with that norm.
    require(count, "sample_weight is zero everywhere: nothing is left to train on.")
    row = np.array([np.sqrt(squares / count)])
    by_features = scale_C(row, np.array([0, 1]), True) * estimator._times_scale()
    return by_features * (losses / costly if costly else 1.0)
