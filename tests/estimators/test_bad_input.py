"""Bad input gets one clear sentence that names the place and what to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

from hingeline import (
    SSVM,
    ChainSSVM,
    DependencySSVM,
    EarlyStopping,
    Graph,
    GraphSSVM,
    MulticlassSSVM,
    MultilabelSSVM,
    SegmentSSVM,
    Structure,
)
from hingeline.constraints import MinLength
from hingeline.evaluation.inspection import explain
from hingeline.evaluation.metrics import evaluate, iou_score
from hingeline.features import (
    ArcFeatures,
    DictEncoder,
    SegmentTemplates,
    SparseSequences,
    TokenTable,
    TokenTemplates,
    from_frame,
)

X = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0], [2.0, 0.5]])
Y = np.array([0, 1, 2, 0])
SEQUENCES = [X, X[:2], X[1:]]
LABELS = [["a", "b", "c", "a"], ["a", "b"], ["b", "c", "a"]]


def changed(array: Any, value: float) -> Any:
    copy = np.array(array, dtype=float)
    copy[1, 1] = value
    return copy


def check(error: Any, pieces: Any) -> None:
    """The message holds every piece, in whatever case, and is one sentence of our own."""
    message = str(error.value)
    for piece in pieces:
        assert piece.lower() in message.lower(), message
    assert "\n" not in message.strip()
    assert len(message) < 300


@pytest.mark.parametrize("change", ["index", "negative", "start", "end", "short"])
@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csc_array])
def test_broken_sparse_matrices(kind: Any, change: str) -> None:
    """Kernels, and SciPy where it converts, would read and write beyond the ends of arrays."""
    rows = kind(X)
    if change == "index":
        rows.indices[-1] = 4
    elif change == "negative":
        rows.indices[0] = -7
    elif change == "short":
        rows.data = rows.data[:-1].copy()
    else:
        rows.indptr[1 if change == "start" else -1] = -3 if change == "start" else 2_000_000_000
    for where, fit in {
        "X": lambda: MulticlassSSVM().fit(rows, Y),
        "X[0]": lambda: ChainSSVM().fit([rows, *SEQUENCES[1:]], LABELS),
        "node_features": lambda: Graph(rows, []),
    }.items():
        with pytest.raises(ValueError, match="sparse matrix") as error:
            fit()
        check(error, [f"{where} is a sparse matrix whose indices do not fit its shape"])


# Parameters, for all estimators ------------------------------------------------------------------

PARAMETERS = [
    ({"C": 0.0}, ValueError, ["C must be greater than 0", "0.0", "hard margin"]),
    ({"C": -1.0}, ValueError, ["C must be greater than 0", "-1.0"]),
    ({"C": float("nan")}, ValueError, ["C must be greater than 0", "nan"]),
    ({"C": "1"}, TypeError, ["C must be a number", "'1'"]),
    ({"C": None}, TypeError, ["C must be a number", "None"]),
    ({"C": True}, TypeError, ["C must be a number", "True"]),
    ({"solver": "smo"}, ValueError, ["solver='smo'", "'auto', 'sdm', 'sdcd'"]),
    ({"solver": None}, ValueError, ["solver=None", "'auto', 'sdm', 'sdcd'"]),
    ({"slack": "mean"}, ValueError, ["slack='mean'", "'max', 'squared', 'sum'"]),
    (
        {"slack": "sum", "solver": "sdm"},
        ValueError,
        ["solver='sdm' does not solve slack='sum'", "'auto', 'sdcd'", "'max' or 'squared'"],
    ),
    ({"solver": "sdcd"}, ValueError, ["solver='sdcd' does not solve slack='max'", "'sdm'"]),
    ({"violators": "all"}, ValueError, ["violators='all' needs slack='sum'"]),
    ({"slack": "sum", "violators": 0}, ValueError, ["violators must be greater than 0"]),
    ({"slack": "sum", "violators": 2.5}, TypeError, ["violators must be an integer", "2.5"]),
    ({"slack": "sum", "violators": "most"}, ValueError, ["'most'", "'argmax', 'all'"]),
    ({"slack": "sum", "solver_options": {"violators": "all"}}, ValueError, ["'violators'"]),
    ({"slack": "sum", "solver_options": {"delta": 1e-4}}, ValueError, ["'delta'"]),
    (
        {"slack": "sum", "solver_options": {"schedule": "published", "precision": 0.5}},
        ValueError,
        ["'precision'"],
    ),
    ({"solver": "one-slack", "solver_options": {"kappa1": 3}}, ValueError, ["'kappa1'"]),
    *(
        (
            {**slack, "solver": "sdm", "solver_options": {name: 2}},
            ValueError,
            [f"'{name}'", "no effect on solver='sdm'", f"slack={slack['slack']!r}", "leave it out"],
        )
        for slack in ({"slack": "squared"}, {"slack": "nu", "nu": 0.5})
        for name in ("stage_factor", "stage_sweeps")
    ),
    (
        {"slack": "sum", "solver_options": {"schedule": "fast"}},
        ValueError,
        ["solver_options['schedule']='fast'", "'improved', 'published'"],
    ),
    ({"rescale": "none"}, ValueError, ["rescale='none'", "'margin', 'slack'"]),
    ({"nu": 0.5}, ValueError, ["nu=0.5", "slack='nu'", "set C"]),
    ({"tol": 0.0}, ValueError, ["tol must be greater than 0"]),
    ({"tol": float("nan")}, ValueError, ["tol must be greater than 0"]),
    ({"tol": float("inf")}, ValueError, ["tol must be"]),
    ({"max_iter": 0}, ValueError, ["max_iter must be greater than 0"]),
    ({"max_iter": 1.5}, TypeError, ["max_iter must be an integer", "1.5"]),
    ({"max_time": -1}, ValueError, ["max_time must be greater than 0"]),
    ({"max_time": "1"}, TypeError, ["max_time must be a number"]),
    ({"n_jobs": 0}, ValueError, ["n_jobs=0", "1 for one thread"]),
    ({"n_jobs": 1.5}, TypeError, ["n_jobs must be None or an integer"]),
    ({"callbacks": [3]}, TypeError, ["callbacks must be callable", "3"]),
    ({"callbacks": 3}, TypeError, ["callbacks must be", "3"]),
    ({"solver_options": {"blok": 3}}, ValueError, ["'blok'", "it knows", "precision"]),
    (
        {"solver": "fsmo", "solver_options": {"precision": 0.1}},
        ValueError,
        ["'precision'", "solver='fsmo'", "epsilon"],
    ),
    ({"solver_options": [("block", 3)]}, TypeError, ["solver_options must be a mapping"]),
    ({"solver_options": {"precision": "x"}}, TypeError, ["solver_options['precision']", "number"]),
    ({"solver_options": {"precision": -1}}, ValueError, ["solver_options['precision']"]),
    (
        {"solver": "fsmo", "solver_options": {"block": 1.5}},
        TypeError,
        ["solver_options['block']", "integer"],
    ),
    (
        {"solver": "fsmo", "solver_options": {"inner_rounds": 2.5}},
        TypeError,
        ["solver_options['inner_rounds']", "integer"],
    ),
    ({"random_state": "seed"}, ValueError, ["random_state='seed'", "give an integer"]),
    ({"random_state": -1}, ValueError, ["random_state=-1", "give an integer"]),
    ({"C": 10**400}, ValueError, ["C must be greater than 0"]),
    ({"tol": 10**400}, ValueError, ["tol must be greater than 0 and finite"]),
    ({"C": np.eye(30)}, TypeError, ["C must be a number, got array"]),
    ({"max_iter": pd.DataFrame(np.eye(3))}, TypeError, ["max_iter must be an integer"]),
    *(
        ({name: np.eye(30)}, ValueError, [f"{name}=array"])
        for name in ("slack", "solver", "violators", "rescale")
    ),
    ({"verbose": "yes"}, TypeError, ["verbose must be", "'yes'"]),
]


@pytest.mark.parametrize(("params", "kind", "pieces"), PARAMETERS, ids=lambda p: str(p)[:40])
@pytest.mark.parametrize("name", ["multiclass", "chain", "custom"])
def test_parameters(python_multiclass: Any, name: str, params: Any, kind: Any, pieces: Any) -> None:
    model: Any
    if name == "multiclass":
        model, data = MulticlassSSVM(**params), (X, Y)
    elif name == "chain":
        model, data = ChainSSVM(**params), (SEQUENCES, LABELS)
    else:
        model, data = SSVM(python_multiclass(), **params), (list(X), list(Y))
    with pytest.raises(kind) as error:
        model.fit(*data)
    check(error, pieces)
    assert not hasattr(model, "weights_")


# MulticlassSSVM ----------------------------------------------------------------------------------

MULTICLASS = [
    ("one dimension", {}, (X[0], Y), ValueError, ["2D array"]),
    ("three dimensions", {}, (X[None], Y), ValueError, ["dim 3"]),
    ("ragged", {}, ([[1.0, 2.0], [1.0]], [0, 1]), ValueError, []),
    ("different lengths", {}, (X, Y[:3]), ValueError, ["inconsistent", "4", "3"]),
    ("two-dimensional y", {}, (X, np.ones((4, 2))), ValueError, ["y should be a 1d array"]),
    ("NaN", {}, (changed(X, np.nan), Y), ValueError, ["X contains NaN"]),
    ("inf", {}, (changed(X, np.inf), Y), ValueError, ["X contains infinity"]),
    ("sparse NaN", {}, (sp.csr_matrix(changed(X, np.nan)), Y), ValueError, ["X contains NaN"]),
    ("empty", {}, (X[:0], Y[:0]), ValueError, ["0 sample"]),
    ("no features", {}, (X[:, :0], Y), ValueError, ["0 feature"]),
    ("one class", {}, (X, [1, 1, 1, 1]), ValueError, ["one class only", "1", "2 classes"]),
    ("strings", {}, ([["a", "b"]] * 4, Y), TypeError, ["X[0] is ['a', 'b']"]),
    ("large C", {"C": 1e300}, (X, Y), ValueError, ["C times the weights", "overflow", "lower C"]),
    ("dicts", {}, ([{"a": 1.0}] * 4, Y), TypeError, ["X[0] is {'a': 1.0}", "DictVectorizer"]),
    ("complex", {}, (X + 1j, Y), ValueError, ["complex"]),
    ("None in y", {}, (X, [0, None, 1, 2]), (ValueError, TypeError), ["y", "None"]),
    ("NaN in y", {}, (X, [0, np.nan, 1, 2]), ValueError, ["y[1] is nan", "needs a label"]),
    ("continuous y", {}, (X, [0.5, 1.5, 2.5, 0.1]), ValueError, ["Unknown label type"]),
    ("no y", {}, (X, None), ValueError, ["requires y", "None"]),
    (
        "sample_weight below 0",
        {},
        (X, Y, [1, 1, -1, 1]),
        ValueError,
        ["sample_weight must be finite"],
    ),
    ("sample_weight NaN", {}, (X, Y, [1, 1, np.nan, 1]), ValueError, ["sample_weight must be"]),
    (
        "sample_weight short",
        {},
        (X, Y, [1, 1]),
        ValueError,
        ["sample_weight has shape (2,)", "4 examples"],
    ),
    (
        "sample_weight zero",
        {},
        (X, Y, np.zeros(4)),
        ValueError,
        ["sample_weight is zero everywhere"],
    ),
    ("sample_weight words", {}, (X, Y, ["a"] * 4), (TypeError, ValueError), ["sample_weight"]),
    (
        "cost matrix of another size",
        {"loss": np.ones((2, 2)) - np.eye(2)},
        (X, Y),
        ValueError,
        ["loss has shape (2, 2)", "3 classes", "(3, 3)", "classes_"],
    ),
    ("costs per class", {"loss": [1.0, 2.0, 3.0]}, (X, Y), ValueError, ["loss has shape (3,)"]),
    (
        "negative cost",
        {"loss": [[0, 1, 1], [1, 0, -1], [1, 1, 0]]},
        (X, Y),
        ValueError,
        ["loss", "non-negative"],
    ),
    ("cost of truth", {"loss": np.ones((3, 3))}, (X, Y), ValueError, ["loss", "zero diagonal"]),
    ("NaN cost", {"loss": np.full((3, 3), np.nan)}, (X, Y), ValueError, ["loss must be finite"]),
    ("unknown loss", {"loss": "hamming"}, (X, Y), ValueError, ["loss='hamming'", "'zero_one'"]),
    ("loss scale", {"loss": (-1.0, "zero_one")}, (X, Y), ValueError, ["loss scale must be"]),
    ("loss of no kind", {"loss": object()}, (X, Y), TypeError, ["loss must be 'zero_one'"]),
    (
        "class_weight word",
        {"class_weight": "even"},
        (X, Y),
        ValueError,
        ["class_weight must be 'balanced' or a dict, got 'even'"],
    ),
    (
        "class_weight below 0",
        {"class_weight": {1: -2.0}},
        (X, Y),
        ValueError,
        ["class_weight[1]", "-2.0"],
    ),
    ("class_weight list", {"class_weight": [1, 2, 3]}, (X, Y), TypeError, ["class_weight must be"]),
    (
        "class_weight zero",
        {"class_weight": {0: 0, 1: 0, 2: 0}},
        (X, Y),
        ValueError,
        ["class_weight", "zero"],
    ),
]


@pytest.mark.parametrize(
    ("params", "data", "kind", "pieces"),
    [row[1:] for row in MULTICLASS],
    ids=[row[0] for row in MULTICLASS],
)
def test_multiclass(params: Any, data: Any, kind: Any, pieces: Any) -> None:
    with pytest.raises(kind) as error:
        MulticlassSSVM(**params).fit(*data)
    for piece in pieces:
        assert piece.lower() in str(error.value).lower()


@pytest.mark.parametrize(
    ("table", "pieces"),
    [
        ([["a", "b"], ["c"]], ["X[0] is ['a', 'b']", "TfidfVectorizer(analyzer=list)"]),
        (pd.DataFrame({"a": [1.0, 2.0], "s": ["x", "y"]}), ["column 's'", "'x'", "OneHotEncoder"]),
        (pl.DataFrame({"a": [1.0, 2.0], "s": ["x", "y"]}), ["column 's'", "'x'", "OneHotEncoder"]),
    ],
)
def test_texts_among_numbers(table: Any, pieces: Any) -> None:
    for model in (MulticlassSSVM(), MultilabelSSVM()):
        with pytest.raises(TypeError) as error:
            model.fit(table, np.array([0, 1]))
        check(error, pieces)


@pytest.mark.parametrize(
    "column", [pd.Series, pl.Series, lambda y: np.array([*map(set, y), 0])[:-1]]
)
def test_label_sets_in_a_column(column: Any) -> None:
    with pytest.raises(ValueError) as error:
        MultilabelSSVM().fit(X, column([["a"], ["b", "c"], [], ["a"]]))
    check(error, ["list of label sets", "MultiLabelBinarizer"])


def test_padding_of_other_libraries_is_told() -> None:
    y = [[0, 1, -100, -100], [0, 1], [1, 0, -100]]
    with pytest.warns(UserWarning, match="y holds -100.*cut the padding off"):
        assert -100 in ChainSSVM(random_state=0).fit(SEQUENCES, y).classes_


def test_labels_may_be_tensors_of_other_libraries() -> None:
    class Tensor:
        def __init__(self, values: Any) -> None:
            self.values = np.array(values)

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return self.values

        def __len__(self) -> int:
            return len(self.values)

    model = ChainSSVM(random_state=0).fit(
        SEQUENCES, [Tensor([0, 1, 2, 0][: len(x)]) for x in SEQUENCES]
    )
    assert model.classes_.tolist() == [0, 1, 2]


def test_tuples_and_texts_are_labels_side_by_side() -> None:
    y = [[("a", 1), "b", "b", "c"], ["b", "b"], ["b", "c", "b"]]
    model = ChainSSVM(random_state=0).fit(SEQUENCES, y)
    assert model.classes_.tolist() == [("a", 1), "b", "c"]


# ChainSSVM ---------------------------------------------------------------------------------------

STACKED = np.concatenate(SEQUENCES)
FLAT = [label for labels in LABELS for label in labels]
SLACKED = {"rescale": "slack"}
SQUARED = {"slack": "squared"}
CHAIN = [
    ("one array", {}, (X, LABELS), ValueError, ["X is one two-dimensional array", "lengths="]),
    ("one sparse matrix", {}, (sp.csr_matrix(X), FLAT), ValueError, ["one sparse", "lengths="]),
    (
        "vector as sequence",
        {},
        ([X, X[0]], LABELS[:2]),
        ValueError,
        ["X[1] has shape (2,)", "two dimensions"],
    ),
    ("ragged rows", {}, ([X, [[1.0, 2.0], [1.0]]], LABELS[:2]), ValueError, ["X[1] is ragged"]),
    (
        "features differ",
        {},
        ([X, np.ones((2, 3))], LABELS[:2]),
        ValueError,
        ["X[1] has 3 features", "X[0] has 2"],
    ),
    (
        "ragged lengths",
        {},
        (STACKED, FLAT, [[4], [2, 3]]),
        TypeError,
        ["lengths must be a vector of integers"],
    ),
    (
        "no label",
        {},
        (SEQUENCES, [*LABELS[:2], ["a", None, "b"]]),
        ValueError,
        ["y[2][1] is None", "needs a label"],
    ),
    (
        "NaN label",
        {},
        (SEQUENCES, [*LABELS[:2], ["a", "b", np.nan]]),
        ValueError,
        ["y[2][2] is nan", "needs a label"],
    ),
    (
        "no word",
        {},
        ([["a", "b"], ["a", None]], LABELS[1:2] * 2),
        TypeError,
        ["token 1 of X[1] is None", "strings"],
    ),
    ("more X than y", {}, (SEQUENCES, LABELS[:2]), ValueError, ["3 sequences", "y has 2"]),
    (
        "labels missing",
        {},
        (SEQUENCES, [LABELS[0], ["a"], LABELS[2]]),
        ValueError,
        ["X[1] has 2 tokens", "y[1] has 1"],
    ),
    ("NaN", {}, ([X, changed(X, np.nan)], [LABELS[0]] * 2), ValueError, ["X[1] contains NaN"]),
    ("inf", {}, ([X, changed(X, -np.inf)], [LABELS[0]] * 2), ValueError, ["X[1]", "infinity"]),
    (
        "sparse NaN",
        {},
        ([X, sp.csr_matrix(changed(X, np.nan))], [LABELS[0]] * 2),
        ValueError,
        ["X[1] contains NaN"],
    ),
    (
        "empty sequence",
        {},
        ([X, np.ones((0, 2))], [LABELS[0], []]),
        ValueError,
        ["X[1] is an empty sequence", "drop it"],
    ),
    (
        "empty sparse sequence",
        {},
        ([X, sp.csr_matrix((0, 2))], [LABELS[0], []]),
        ValueError,
        ["X[1] is an empty sequence"],
    ),
    ("empty list", {}, ([X, []], [LABELS[0], []]), ValueError, ["X[1] is an empty sequence"]),
    ("nothing", {}, ([], []), ValueError, ["X is empty"]),
    (
        "dicts among arrays",
        {},
        ([X, [{"w": 1}, {"w": 2}]], [LABELS[0], ["a", "b"]]),
        TypeError,
        ["X[1][0] is {'w': 1}", "DictVectorizer"],
    ),
    (
        "a dict's value",
        {},
        ([[{"w": "a"}], [{"w": "b"}, {"w": None}]], [["a"], ["a", "b"]]),
        TypeError,
        ["token 1 of X[1]", "NoneType", "'w'"],
    ),
    (
        "arrays among dicts",
        {},
        ([[{"w": 1}], X], [["a"], LABELS[0]]),
        TypeError,
        ["token 0 of X[1]"],
    ),
    ("no encoder", {"features": "pos"}, ([X], [LABELS[0]]), TypeError, ["features must be an enc"]),
    ("a class", {"features": DictEncoder}, ([X], [LABELS[0]]), TypeError, ["features must be an"]),
    (
        "strings in an array",
        {},
        ([np.array([["a", "b"]])], [["a"]]),
        TypeError,
        ["X[0] has dtype", "numbers"],
    ),
    (
        "objects",
        {},
        ([np.array([[object()]], dtype=object)], [["a"]]),
        TypeError,
        ["X[0] has dtype object"],
    ),
    ("complex", {}, ([X + 1j], [LABELS[0]]), TypeError, ["X[0] has dtype complex128"]),
    ("a string", {}, ("abc", LABELS), TypeError, ["X is one string"]),
    ("a dict", {}, ({"a": X}, LABELS), TypeError, ["X must be a list of sequences", "dict"]),
    ("None", {}, (None, LABELS), TypeError, ["X must be a list of sequences", "NoneType"]),
    ("a number inside", {}, ([X, 3.0], LABELS[:2]), TypeError, ["X[1] is 3.0"]),
    ("None in y", {}, ([X], [["a", None, "b", "a"]]), ValueError, ["None", "needs a label"]),
    ("NaN in y", {}, ([X], [[0.0, np.nan, 1.0, 0.0]]), ValueError, ["nan", "needs a label"]),
    ("y is None", {}, (SEQUENCES, None), TypeError, ["y must be a list", "NoneType"]),
    ("None for a sequence", {}, (SEQUENCES, [LABELS[0], None, LABELS[2]]), TypeError, ["y[1]"]),
    (
        "y not nested",
        {},
        (SEQUENCES, ["abca", "ab", "bca"]),
        TypeError,
        ["y[0] is 'abca'", "4 labels"],
    ),
    (
        "unhashable label",
        {},
        ([X], [[["a"], "b", "a", "a"]]),
        TypeError,
        ["y", "label", "hashable"],
    ),
    ("lengths short", {}, (STACKED, FLAT, [4, 2]), ValueError, ["lengths sum to 6", "9 rows"]),
    ("lengths of 0", {}, (STACKED, FLAT, [4, 0, 5]), ValueError, ["lengths[1] is 0"]),
    ("lengths below 0", {}, (STACKED, FLAT, [4, -1, 6]), ValueError, ["lengths[1] is -1"]),
    ("lengths of floats", {}, (STACKED, FLAT, [4.0, 5.0]), TypeError, ["lengths", "integers"]),
    ("lengths empty", {}, (STACKED, FLAT, np.array([], int)), ValueError, ["lengths is empty"]),
    ("stacked y short", {}, (STACKED, FLAT[:-1], [4, 5]), ValueError, ["y has 8 labels", "9 rows"]),
    (
        "sample_weight below 0",
        {},
        (SEQUENCES, LABELS, None, [1, -1, 1]),
        ValueError,
        ["sample_weight must be finite"],
    ),
    (
        "sample_weight per token",
        {},
        (SEQUENCES, LABELS, None, np.ones(9)),
        ValueError,
        ["sample_weight has shape (9,)", "3 examples"],
    ),
    (
        "cost matrix of another size",
        {"loss": np.ones((2, 2)) - np.eye(2)},
        (SEQUENCES, LABELS),
        ValueError,
        ["loss has shape (2, 2)", "3 classes"],
    ),
    (
        "costs of another size",
        {"loss": [1.0, 2.0]},
        (SEQUENCES, LABELS),
        ValueError,
        ["loss has shape (2,)"],
    ),
    (
        "negative cost",
        {"loss": [1.0, -1.0, 1.0]},
        (SEQUENCES, LABELS),
        ValueError,
        ["loss", "non-negative"],
    ),
    ("unknown loss", {"loss": "f1"}, (SEQUENCES, LABELS), ValueError, ["loss='f1'", "'hamming'"]),
    (
        "slack rescaling with costs",
        {**SLACKED, "loss": [1.0, 2.0, 3.0]},
        (SEQUENCES, LABELS),
        ValueError,
        ["rescale='slack'", "not plain Hamming", "rescale='margin'"],
    ),
    (
        "squared slack with costs",
        {**SQUARED, "loss": [1.0, 2.0, 3.0]},
        (SEQUENCES, LABELS),
        ValueError,
        ["slack='squared'", "not plain Hamming", "slack='max'"],
    ),
    (
        "slack rescaling with class weights",
        {**SLACKED, "class_weight": {"a": 2.0}},
        (SEQUENCES, LABELS),
        ValueError,
        ["rescale='slack'", "not plain Hamming"],
    ),
]


@pytest.mark.parametrize(
    ("params", "data", "kind", "pieces"), [row[1:] for row in CHAIN], ids=[row[0] for row in CHAIN]
)
def test_chain(params: Any, data: Any, kind: Any, pieces: Any) -> None:
    with pytest.raises(kind) as error:
        ChainSSVM(**params).fit(*data)
    check(error, pieces)


# SSVM --------------------------------------------------------------------------------------------


class NoLoss(Structure):
    exact = False

    def joint_feature(self, x: Any, y: Any) -> Any:
        return np.ones(2)

    def decode(self, x: Any, w: Any, y_true: Any, loss_scale: float) -> Any:
        return y_true if len(y_true) else np.array([0])


class Plain(NoLoss):
    def loss(self, y_true: Any, y: Any) -> float:
        return float(y_true[0] != y[0])


class Table(Plain):
    def joint_feature(self, x: Any, y: Any) -> Any:
        return np.ones((2, 2))


class NotANumber(Plain):
    def joint_feature(self, x: Any, y: Any) -> Any:
        return np.array([1.0, np.nan])


class FarOff(Plain):
    def joint_feature(self, x: Any, y: Any) -> Any:
        return np.array([x[0], 1.0])


class Costly(Plain):
    def loss(self, y_true: Any, y: Any) -> float:
        return 1.0


class Scalar(Plain):
    def decode(self, x: Any, w: Any, y_true: Any, loss_scale: float) -> Any:
        return 0


class LengthOfX(Plain):
    def joint_feature(self, x: Any, y: Any) -> Any:
        return np.ones(len(x))


class Growing(Plain):
    def joint_feature(self, x: Any, y: Any) -> Any:
        x *= 2
        return x


class Listed(Plain):
    def joint_feature(self, x: Any, y: Any) -> Any:
        return [1.0, 2.0]


class LossOfArrays(Plain):
    def loss(self, y_true: Any, y: Any) -> Any:
        return y_true != y


class Forgetful(Plain):
    def decode(self, x: Any, w: Any) -> Any:
        return np.array([0])


class Narrow(Plain):
    def loss(self, y: Any) -> float:
        return 0.0


class LooksAtTheTruth(Plain):
    def decode(self, x: Any, w: Any, y_true: Any, loss_scale: float) -> Any:
        return np.array([y_true[0]])


INPUTS = list(X)
OUTPUTS = [0, 1, 2, 0]
CUSTOM = [
    ("no structure", None, {}, (INPUTS, OUTPUTS), TypeError, ["structure is missing", "Structure"]),
    ("a class", Plain, {}, (INPUTS, OUTPUTS), TypeError, ["structure must be an instance"]),
    ("any object", 3, {}, (INPUTS, OUTPUTS), TypeError, ["structure must be an instance", "3"]),
    ("no loss", NoLoss(), {}, (INPUTS, OUTPUTS), TypeError, ["NoLoss lacks loss", "joint_feature"]),
    (
        "bare structure",
        Structure(),
        {},
        (INPUTS, OUTPUTS),
        TypeError,
        ["lacks joint_feature, loss, decode"],
    ),
    (
        "few arguments",
        Forgetful(),
        {},
        (INPUTS, OUTPUTS),
        TypeError,
        ["Forgetful.decode(x: 'Any', w: 'Any')", "must take (x, w, y_true, loss_scale)"],
    ),
    ("loss of one", Narrow(), {}, (INPUTS, OUTPUTS), TypeError, ["must take (y_true, y)"]),
    ("lengths", Plain(), {}, (INPUTS, OUTPUTS[:2]), ValueError, ["X has 4", "y has 2"]),
    ("empty", Plain(), {}, ([], []), ValueError, ["X is empty"]),
    ("large C", Plain(), {"C": 1e300}, (INPUTS, OUTPUTS), ValueError, ["C times", "lower C"]),
    ("no list", Plain(), {}, (3, OUTPUTS), TypeError, ["X and y must be lists"]),
    ("None for y", Plain(), {}, (INPUTS, None), TypeError, ["X and y must be lists"]),
    ("None in y", Plain(), {}, (INPUTS, [0, None, 1, 0]), TypeError, ["NoneType", "pack()"]),
    ("strings in y", Plain(), {}, (INPUTS, ["a"] * 4), TypeError, ["Plain.pack()", "str"]),
    ("floats in y", Plain(), {}, (INPUTS, [0.5] * 4), TypeError, ["Plain.pack()", "float"]),
    ("tables in y", Plain(), {}, (INPUTS, [np.eye(2, dtype=int)] * 4), TypeError, ["pack()"]),
    ("ragged in y", Plain(), {}, (INPUTS, [[[0], [1, 2]]] * 4), TypeError, ["pack()", "list"]),
    ("table of features", Table(), {}, (INPUTS, OUTPUTS), ValueError, ["joint_feature", "(2, 2)"]),
    ("NaN", NotANumber(), {}, (INPUTS, OUTPUTS), ValueError, ["joint_feature(X[0], y[0])", "NaN"]),
    ("NaN later", FarOff(), {}, ([[1], [np.nan]], [0, 1]), ValueError, ["(X[1], y[1])", "NaN"]),
    ("1e200", FarOff(), {}, ([[1], [1e200]], [0, 1]), ValueError, ["above 1e100", "scale"]),
    ("true loss", Costly(), {}, (INPUTS, OUTPUTS), ValueError, ["loss(y[0], y[0]) is 1"]),
    ("changes x", Growing(), {}, ([X[0].copy()], [0]), ValueError, ["neither change x and y"]),
    ("list", Listed(), {}, (INPUTS, OUTPUTS), TypeError, ["y[0]) must be an array, got list"]),
    ("array of losses", LossOfArrays(), {}, (INPUTS, OUTPUTS), TypeError, ["must be a number"]),
    ("scalar", Scalar(), {}, (INPUTS, OUTPUTS), TypeError, ["decode returns", "1 ints"]),
    (
        "features of other lengths",
        LengthOfX(),
        {},
        ([np.ones(2), np.ones(3)], [0, 1]),
        ValueError,
        ["joint_feature", "length"],
    ),
    (
        "no decode_by_loss",
        Plain(),
        {"rescale": "slack"},
        (INPUTS, OUTPUTS),
        ValueError,
        ["rescale='slack'", "Plain, which lacks decode_by_loss()", "rescale='margin'"],
    ),
    (
        "no decode_by_loss, squared",
        Plain(),
        {"slack": "squared"},
        (INPUTS, OUTPUTS),
        ValueError,
        ["slack='squared'", "decode_by_loss()"],
    ),
    (
        "sample_weight below 0",
        Plain(),
        {},
        (INPUTS, OUTPUTS, [1, 1, 1, -1]),
        ValueError,
        ["sample_weight must be finite"],
    ),
]


@pytest.mark.parametrize(
    ("structure", "params", "data", "kind", "pieces"),
    [row[1:] for row in CUSTOM],
    ids=[row[0] for row in CUSTOM],
)
def test_custom(structure: Any, params: Any, data: Any, kind: Any, pieces: Any) -> None:
    with pytest.raises(kind) as error:
        SSVM(structure, **params).fit(*data)
    check(error, pieces)


def test_a_decode_that_wants_the_truth_to_predict() -> None:
    with pytest.raises(IndexError) as error:
        SSVM(LooksAtTheTruth()).fit(INPUTS, OUTPUTS)
    assert "y_true is then empty" in error.value.__notes__[0]


def test_compiled_structures_want_arrays(compiled_chain: Any) -> None:
    y = [[0, 1], [1, 2]]
    bad: Any
    for bad in ([np.ones((2, 2)), np.ones(2)], [np.ones((2, 2)), "ab"], [{"a": 1}, {"b": 2}]):
        with pytest.raises(TypeError, match=r"X\[[01]\].*compiled.*plain Python"):
            SSVM(compiled_chain()).fit(bad, y)


# What is no list at all, and labels that are missing in other words ------------------------------

POINT = np.array(1.0)
WORDS = [[{"form": "dogs"}, {"form": "bark"}]]
NAN = float("nan")
ROWS = [{"tokens": ["dogs", "bark"], "ner_tags": [0, 0]}]
TAGGER = lambda: ChainSSVM(tol=0.5).fit([["a", "b"]] * 3, [["A", "B"]] * 3)  # noqa: E731


class Wordless(Structure):
    """Forgets to return the loss."""

    def joint_feature(self, x: Any, y: Any) -> Any:
        return x

    def loss(self, y_true: Any, y: Any) -> Any:
        pass

    def decode(self, x: Any, w: Any, y_true: Any, loss_scale: float) -> Any:
        return np.array([0])


ODD = [
    (lambda: Graph.from_image("x.png"), TypeError, "image is 'x.png': pass its pixels as numbers"),
    (lambda: ChainSSVM().fit(ROWS, [["O", "O"]]), TypeError, r"X\[0\] is a dict with the lists"),
    (
        lambda: ChainSSVM().fit([{"word": "a", "ends": ["a"]}], [["O"]]),
        TypeError,
        r"the lists 'ends': of a sentence, pass one, .*; of one token, pass \[X\]",
    ),
    (
        lambda: ChainSSVM().fit([pd.DataFrame({"sentence": [1], "word": ["a"]})], [["O"]]),
        ValueError,
        "a frame with texts and numbers: keep its columns of texts",
    ),
    (
        lambda: from_frame(pd.DataFrame({"sentence": [1], "word": ["a"]})),
        ValueError,
        "no column 'tag': .*, or pass label=None",
    ),
    (lambda: SSVM(Wordless()).fit(X, [0] * 4), TypeError, r"y\[0\]\) must be a number, got None"),
    (
        lambda: SegmentSSVM(segment_features=SegmentTemplates(lexicon={"c": [("a", "b")]})).fit(
            [["a"]], [["O"]]
        ),
        TypeError,
        "phrases, all strings",
    ),
    (lambda: EarlyStopping(None, X, X, scoring="f1"), ValueError, "scoring: name='f1' is not"),
    (lambda: explain(TAGGER(), [["a"], ["b", "a"]]), ValueError, "index= says which"),
    (lambda: ChainSSVM().fit([[None, "a"]], [["O", "O"]]), TypeError, r"token 0 of X\[0\] is None"),
    (lambda: ChainSSVM().fit([[NAN, "a"]], [["O", "O"]]), TypeError, r"token 0 of X\[0\] is nan"),
    (
        lambda: ChainSSVM().fit([["a"]], [["O"]]).predict(iter([["a"]])),
        TypeError,
        r"pass list\(X\)",
    ),
    (
        lambda: from_frame(pd.DataFrame({"sentence": [1.0, NAN], "word": ["a", "b"]}), label=None),
        ValueError,
        "row 1 has no group: every token belongs to a sentence; frame.group..ffill",
    ),
    (
        lambda: ChainSSVM().fit(pl.DataFrame({"words": [["a"], ["b"]]}), [["O"], ["O"]]),
        TypeError,
        "or pass the column that holds a list",
    ),
    (lambda: ChainSSVM().fit(POINT, LABELS), TypeError, "X must be a list of sequences"),
    (lambda: ChainSSVM().fit([POINT], LABELS[:1]), ValueError, r"X\[0\] has shape \(\)"),
    (lambda: ChainSSVM().fit(SEQUENCES, POINT), TypeError, "y must be a list of label seq"),
    (lambda: ChainSSVM().fit([X], [["a", "b", pd.NA, "a"]]), ValueError, r"y\[0\]\[2\] is <NA>"),
    (lambda: ChainSSVM().fit([X], [[pd.NaT, "b", "b", "a"]]), ValueError, r"y\[0\]\[0\] is NaT"),
    (lambda: GraphSSVM().fit(POINT, LABELS), TypeError, "X must be a list of hingeline.Graph"),
    (lambda: DependencySSVM().fit(WORDS, POINT), TypeError, "y must be a list of trees"),
    (lambda: DependencySSVM().fit(WORDS, [None]), TypeError, r"y\[0\] is None: a tree is"),
    (lambda: DependencySSVM().fit([None], [[]]), TypeError, r"X\[0\] must be a list of words"),
    (lambda: MulticlassSSVM().fit(X, pd.Series(["a", None, "b", "a"])), ValueError, r"y\[1\] is "),
    (lambda: MulticlassSSVM().fit(X, np.array(["a", 1, 2, "b"], object)), TypeError, "not both"),
    (lambda: MulticlassSSVM().fit(X, [1, 1, 1, 1]), ValueError, r"one class only \(1\)"),
    (lambda: MulticlassSSVM().partial_fit(["a b"], [1]), TypeError, "TfidfVectorizer"),
    (lambda: DictEncoder().fit_transform([POINT]), TypeError, r"X\[0\] must be a list of tokens"),
    (lambda: TokenTemplates().fit([[]]), ValueError, r"X\[0\] is an empty sequence"),
    (lambda: TAGGER().predict_nbest([[]], 1), ValueError, r"X\[0\] is an empty sequence"),
    (lambda: TokenTemplates().fit(POINT), TypeError, "X must be a list of sentences"),
    (lambda: TokenTable.from_sentences([None]), TypeError, "sentence 0 is None"),
    (lambda: TokenTable.from_sentences([["a", None]]), ValueError, "token 1 of sentence 0"),
    (lambda: SparseSequences(X, []), ValueError, "offsets are array"),
    (lambda: SparseSequences(X, [0, 3, 2, 4]), ValueError, "must rise from 0"),
    (lambda: evaluate(POINT, POINT), TypeError, "y_true must be a list"),
    (lambda: iou_score([["a"]], [["a"]], void_label="a"), ValueError, "nothing to judge by"),
]


@pytest.mark.parametrize(("call", "kind", "message"), ODD)
def test_odd_input(call: Any, kind: Any, message: str) -> None:
    with pytest.raises(kind, match=message):
        call()


def test_whole_numbers_may_be_those_of_numpy() -> None:
    """As searches over ``np.arange`` give them."""
    two = np.int64(2)
    assert MinLength("a", length=two).violation(["x"], ["a"]) == 1.0
    SegmentTemplates(words=True, min_count=two).fit([["a"]], [[(0, 1, "X")]])
    TokenTemplates(hash_bits=two).fit([["a"]])
    assert ArcFeatures(arc_bits=two).fit([[{"form": "a"}]]).arc_bits_ == 2
    with pytest.raises(ValueError, match="arc_bits must be an integer from 1 to 28, got True"):
        ArcFeatures(arc_bits=True).fit([[{"form": "a"}]])


# Prediction --------------------------------------------------------------------------------------


def test_unfitted() -> None:
    for call in (
        MulticlassSSVM().predict,
        MulticlassSSVM().decision_function,
        lambda data: MulticlassSSVM().score(data, Y),
        lambda data: MulticlassSSVM().coef_,
        lambda data: ChainSSVM().predict([data]),
        lambda data: ChainSSVM().decision_function([data]),
        lambda data: ChainSSVM().score([data], [LABELS[0]]),
        lambda data: ChainSSVM().transition_coef_,
        lambda data: ChainSSVM().with_weights(np.zeros(3)),
    ):
        with pytest.raises(NotFittedError, match="not fitted"):
            call(X)


def test_prediction_with_other_features() -> None:
    classifier = MulticlassSSVM().fit(X, Y)
    with pytest.raises(ValueError, match=r"X has 3 features.*2 features"):
        classifier.predict(np.ones((1, 3)))
    tagger = ChainSSVM().fit(SEQUENCES, LABELS)
    with pytest.raises(ValueError, match=r"X has 3 features.*fitted with 2"):
        tagger.predict([np.ones((1, 3))])
    with pytest.raises(ValueError, match=r"X\[1\] has 3 features"):
        tagger.decision_function([X, np.ones((1, 3))])
    with pytest.raises(ValueError, match="lengths="):
        tagger.predict(X)
    for model, kind in (
        (TAGGER(), "words"),
        (ChainSSVM(tol=0.5).fit(WORDS, [LABELS[0][:2]]), "dic"),
    ):
        with pytest.raises(ValueError, match=f"the model reads {kind}.*, and X holds numbers"):
            model.predict([np.ones((2, 99))])
    with pytest.raises(ValueError, match=r"3 sequences and y has 2"):
        tagger.score(SEQUENCES, LABELS[:2])
    with pytest.raises(ValueError, match=r"X\[0\] contains NaN"):
        tagger.predict([changed(X, np.nan)])


def test_score_of_a_structure_with_other_lengths(python_multiclass: Any) -> None:
    model = SSVM(python_multiclass()).fit(INPUTS, OUTPUTS)
    with pytest.raises(ValueError, match=r"X has 4.*y has 2"):
        model.score(INPUTS, OUTPUTS[:2])
