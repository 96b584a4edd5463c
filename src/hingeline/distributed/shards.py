"""The data of a block: read where the block lives, posed once all blocks are known.

Labels, and the names of features with their counts, are told to the driver, which merges them in
the order of the blocks and tells every block its own columns among all of them. The driver never
sees an example.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from hingeline import _checks as checks
from hingeline._checks import Array, require
from hingeline.data.formats import read_any
from hingeline.estimators.allowed import choose_scheme
from hingeline.estimators.chain import ChainSSVM, scale_C
from hingeline.estimators.multiclass import MulticlassSSVM
from hingeline.estimators.multilabel import MultilabelSSVM, find_pairs, read_indicator
from hingeline.features.input import (
    check_mergeable,
    choose_encoder,
    find_classes,
    merge_encoders,
    number_labels,
    stack_labels,
    stack_sequences,
)
from hingeline.features.tables import renumber


class FilePart(NamedTuple):
    """The name of a file, and how it is read."""

    path: str
    options: tuple[tuple[str, Any], ...]


def read_parts(parts: Sequence[Any]) -> tuple[Any, Any]:
    """X and y of all parts, one after the other."""
    pairs = [_read_part(part) for part in parts]
    pairs = [(X, y) for X, y in pairs if _length(X)]
    if not pairs:
        return None, None
    if len(pairs) == 1:
        return pairs[0]
    Xs, ys = zip(*pairs, strict=True)
    first = Xs[0]
    if sp.issparse(first):
        width = max(X.shape[1] for X in Xs)
        X = sp.vstack(
            [sp.csr_matrix((x.data, x.indices, x.indptr), (x.shape[0], width)) for x in Xs]
        )
    elif isinstance(first, np.ndarray):
        X = np.concatenate(Xs)
    else:
        X = [x for some in Xs for x in _as_list(some)]
    flat = all(isinstance(y, np.ndarray) and y.ndim for y in ys)
    return X, np.concatenate(ys) if flat else [label for y in ys for label in y]


def _read_part(part: Any) -> tuple[Any, Any]:
    if isinstance(part, FilePart):
        path, options = part
        return _read_file(path, **dict(options))
    if hasattr(part, "compute"):  # dask.delayed, or a part of a bag
        part = part.compute(scheduler="synchronous")
    if isinstance(part, tuple) and len(part) == 2:
        return part
    if isinstance(part, list) and all(isinstance(p, tuple) and len(p) == 2 for p in part):
        return [x for x, _ in part], [y for _, y in part]
    what = f"a part of the source is a {type(part).__name__}"
    raise TypeError(f"{what}: each must be the name of a file, (X, y), or a list of pairs (x, y).")


def _read_file(
    path: str,
    format: str = "auto",
    columns: Sequence[str] | None = None,
    use: Sequence[str] | None = None,
    label: str | None = None,
) -> tuple[Any, Any]:
    """X and y of a file; in columns of words the last is the label, in CoNLL-U the tag."""
    found, data = read_any(path, format, names=columns)
    if found.kind == "tokens":
        treebank = found.name == "conllu"
        label = label or ("upos" if treebank else data.names[-1])
        others = ["form"] if treebank else [name for name in data.names if name != label]
        return data.select(list(use or others)), data.sentences(label)
    if found.kind == "multilabel":
        return data.X, np.asarray(data.Y.toarray(), dtype=np.int64)
    if found.kind not in ("sequences", "flat"):
        raise ValueError(f"{path} holds {found.kind} ({found.name}), not sequences or rows.")
    require(data.y is not None, f"{path} has no labels to learn from.")
    return data.X, data.y


def _length(X: Any) -> int:
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def _as_list(X: Any) -> list[Any]:
    """Sequences one by one; of a table, as tuples of its columns."""
    return X if isinstance(X, list) else [*X]


class Shard:
    """The examples of one block; subclasses know an estimator."""

    def tell(self) -> dict[str, Any]:
        """What the driver must know of this block before any block can be posed."""
        raise NotImplementedError

    @staticmethod
    def merge(estimator: Any, told: list[dict[str, Any]]) -> tuple[dict[str, Any], list[Any]]:
        """Attributes that all blocks and the fitted estimator have, and what each block is told."""
        raise NotImplementedError

    def pose(self, estimator: Any, own: Any) -> tuple[Any, Array]:
        """The problem, and weights of its examples."""
        raise NotImplementedError

    def measure(self, problem: Any) -> tuple[float, float]:
        """Sums that ``C="scale"`` is made of."""
        return 0.0, 0.0


def merge_classes(estimator: Any, told: list[dict[str, Any]]) -> dict[str, Any]:
    """``classes_`` of all blocks; balanced weights as a mapping, since no block can count alone."""
    counts: Counter[Any] = Counter()
    for one in told:
        counts.update(one["labels"])
    classes, index = find_classes(list(counts))
    known: dict[str, Any] = {"classes_": classes}
    if isinstance(estimator.class_weight, str):
        numbers = np.repeat(np.arange(len(classes)), [counts[c] for c in index])
        weights = checks.check_class_weight(estimator.class_weight, list(index), numbers)
        known["class_weight"] = dict(zip(index, weights.tolist(), strict=True))
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


class Sequences(Shard):
    """For :class:`hingeline.ChainSSVM`."""

    def __init__(self, estimator: Any, X: Any, y: Any) -> None:
        encoder, X = choose_encoder(estimator.features, X)
        self.counts = np.zeros(0, dtype=np.int64)
        if encoder is None:
            self.encoder = None
            self.matrix, self.offsets = stack_sequences(X)
        else:
            check_mergeable(encoder)
            self.encoder, rows, self.counts = encoder.count(X)
            self.matrix, self.offsets = stack_sequences(rows)
        self.flat = stack_labels(y, self.offsets)

    def tell(self) -> dict[str, Any]:
        known = {"labels": Counter(self.flat), "width": self.matrix.shape[1]}
        return known | {"encoder": self.encoder, "counts": self.counts}

    @staticmethod
    def merge(estimator: Any, told: list[dict[str, Any]]) -> tuple[dict[str, Any], list[Any]]:
        known = merge_classes(estimator, told) | {"encoder_": None}
        if estimator.scheme == "auto":
            how = "give the scheme by its name, such as scheme='IOB2'"
            raise ValueError(f"scheme='auto' looks at all labels together, blocks cannot: {how}.")
        known["scheme_"] = estimator.scheme  # each block checks its labels
        kinds = {type(one["encoder"]) for one in told}
        if len(kinds) > 1:
            names = " and ".join(sorted(kind.__name__ for kind in kinds))
            raise ValueError(f"blocks hold different kinds of tokens ({names}): give one kind.")
        if told[0]["encoder"] is None:
            known["n_features_in_"] = merge_widths(told)
            return known, [None] * len(told)
        encoders, counts = zip(*((one["encoder"], one["counts"]) for one in told), strict=True)
        encoder, columns = merge_encoders(encoders, counts, encoders[0].min_count)
        known |= {"encoder_": encoder, "n_features_in_": encoder.n_features_out_}
        return known, columns

    def pose(self, estimator: Any, own: Any) -> tuple[Any, Array]:
        matrix = self.matrix
        if own is not None:
            matrix = renumber(matrix, own, estimator.n_features_in_)
        index = {label: k for k, label in enumerate(estimator.classes_.tolist())}
        labels = number_labels(self.flat, index)
        if estimator.scheme is not None:
            choose_scheme(estimator.scheme, estimator.classes_, labels, self.offsets)
        rows = estimator._with_constant(matrix)
        self.constant = bool(estimator.fit_intercept)
        return estimator._make(rows, self.offsets, labels), np.ones(len(self.offsets) - 1)

    def measure(self, problem: Any) -> tuple[float, float]:
        n = len(problem.indptr) - 1
        with np.errstate(over="ignore"):
            squares = float(np.square(problem.values, dtype=np.float64).sum())
        return squares + (0.0 if self.constant else n), float(n)


class Rows(Shard):
    """For :class:`hingeline.MulticlassSSVM`."""

    def __init__(self, estimator: Any, X: Any, y: Any) -> None:
        if estimator.scale:
            how = "scale the files beforehand, or leave it out"
            raise ValueError(f"scale=True looks at all rows together, blocks cannot: {how}.")
        checks.refuse_none(y)
        self.matrix, self.y, self.sparse = checks.as_csr(X), np.asarray(y), sp.issparse(X)
        n = self.matrix.shape[0]
        text = f"X has {n} rows and y has {self.y.shape}: give one label per row."
        require(self.y.shape == (n,), text)
        checks.check_finite(self.matrix.data, "X")

    def tell(self) -> dict[str, Any]:
        known = {"labels": Counter(self.y.tolist()), "width": self.matrix.shape[1]}
        return known | {"sparse": self.sparse}

    @staticmethod
    def merge(estimator: Any, told: list[dict[str, Any]]) -> tuple[dict[str, Any], list[Any]]:
        known = merge_classes(estimator, told)
        # Sparse files end where the last feature with a value is.
        known["n_features_in_"] = max(one["width"] for one in told)
        if not all(one["sparse"] for one in told):
            merge_widths(told)
        text = f"y has one class only ({known['classes_'][0]!r}): at least 2 classes are needed."
        require(len(known["classes_"]) > 1, text)
        return known, [None] * len(told)

    def pose(self, estimator: Any, own: Any) -> tuple[Any, Array]:
        m = self.matrix
        wide = sp.csr_matrix((m.data, m.indices, m.indptr), (m.shape[0], estimator.n_features_in_))
        index = {label: k for k, label in enumerate(estimator.classes_.tolist())}
        labels = number_labels(self.y.tolist(), index)
        by_class = checks.check_class_weight(estimator.class_weight, list(index), labels)
        return estimator._make(estimator._with_constant(wide), None, labels), by_class[labels]


class LabelSets(Shard):
    """For :class:`hingeline.MultilabelSSVM`."""

    def __init__(self, estimator: Any, X: Any, y: Any) -> None:
        for name, value, how in (
            ("scale", estimator.scale, "scale the files beforehand"),
            ("class_weight", estimator.class_weight is not None, "leave it out"),
            ("edges", estimator.edges == "tree", "name the pairs, or use 'full' or 'none'"),
        ):
            require(not value, f"{name} looks at all rows together, blocks cannot: {how}.")
        self.matrix = checks.as_csr(X)
        self.indicator, self.classes = read_indicator(np.asarray(y), None)

    def tell(self) -> dict[str, Any]:
        return {"width": self.matrix.shape[1], "classes": self.classes}

    @staticmethod
    def merge(estimator: Any, told: list[dict[str, Any]]) -> tuple[dict[str, Any], list[Any]]:
        labels = merge_widths([{"width": len(one["classes"])} for one in told], "labels")
        none = np.zeros((1, labels), dtype=np.int64)  # pairs do not depend on the data here
        known = {"classes_": told[0]["classes"], "n_labels_": labels}
        known["edges_"] = find_pairs(estimator.edges, none, np.ones(1))
        return known | {"n_features_in_": merge_widths(told)}, [None] * len(told)

    def pose(self, estimator: Any, own: Any) -> tuple[Any, Array]:
        weights = np.ones(len(self.indicator))
        cost = checks.check_loss(estimator.loss, "hamming", 2, vector=True)
        each = np.ones(self.indicator.size)
        return estimator._make(self.matrix, self.indicator.ravel(), cost, each), weights


KINDS = {ChainSSVM: Sequences, MulticlassSSVM: Rows, MultilabelSSVM: LabelSets}


def kind_of(estimator: Any) -> type[Shard]:
    """The kind of shard for an estimator; others than ours are refused."""
    if type(estimator) not in KINDS:
        names = ", ".join(kind.__name__ for kind in KINDS)
        raise TypeError(f"blocks are for {names}, not for {type(estimator).__name__}.")
    return KINDS[type(estimator)]


def make_shard(estimator: Any, X: Any, y: Any) -> Shard | None:
    """The examples of a block, None where there are none."""
    return None if X is None else kind_of(estimator)(estimator, X, y)  # type: ignore[call-arg]


def choose_C(estimator: Any, sums: list[tuple[float, float]]) -> float:
    """C as a number, from what the blocks measured."""
    if not isinstance(estimator.C, str):
        return float(estimator.C)
    squares, count = (sum(one) for one in zip(*sums, strict=True))
    # As if all tokens were one with that norm.
    row = np.array([np.sqrt(squares / count)])
    return scale_C(row, np.array([0, 1]), True)
