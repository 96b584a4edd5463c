"""Columns of similar sizes: scale=True is a scaler before the estimator, kept in the model."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

import hingeline
from hingeline import (
    ChainSSVM,
    Graph,
    GraphSSVM,
    MulticlassSSVM,
    MultilabelSSVM,
    SegmentSSVM,
    SemiSupervisedSSVM,
    nu_path,
)
from hingeline.distributed import fit_blocks
from hingeline.distributed.shards import Sequences, merge_rows
from hingeline.evaluation.inspection import explain


def make(kind, n=60):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 5))
    y = np.argmax(X + 0.5 * rng.normal(size=(n, 5)), axis=1) % 3
    X = X * [1e-3, 1.0, 30.0, 1e4, 0.0] + [0.0, 5.0, 0.0, -1e4, 7.0]
    return X, y if kind is MulticlassSSVM else np.eye(3, dtype=int)[y]


@pytest.mark.parametrize("kind", [MulticlassSSVM, MultilabelSSVM])
@pytest.mark.parametrize("sparse", [False, True])
def test_as_a_scaler_before_it(kind, sparse, tmp_path):
    X, y = make(kind)
    X = sp.csr_matrix(X) if sparse else X
    scaler = (MaxAbsScaler() if sparse else StandardScaler()).fit(X)
    options = {"C": 0.1, "tol": 1e-8, "max_iter": 10_000, "random_state": 0}
    model = kind(scale=True, **options).fit(X, y)
    plain = kind(**options).fit(scaler.transform(X), y)
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=1e-4)
    assert model.primal_objective_ == pytest.approx(plain.primal_objective_, rel=1e-6)
    found = model.decision_function(X)
    np.testing.assert_allclose(found, plain.decision_function(scaler.transform(X)), atol=1e-3)
    other = X.toarray() if sparse else sp.csr_matrix(X)  # whatever comes later
    np.testing.assert_allclose(model.decision_function(other), found, atol=1e-9)
    model.save(tmp_path / "m.hinge")
    back = hingeline.load(tmp_path / "m.hinge")
    assert back.scale is True
    assert back.decision_function(X).tobytes() == found.tobytes()


def test_unscaled_numbers_converge():
    X, y = make(MulticlassSSVM)
    scaled = MulticlassSSVM(scale=True, random_state=0).fit(X, y)
    assert scaled.converged_
    assert scaled.score(X, y) > 0.6


def test_later_columns_stay_as_they_are(tmp_path):
    X, y = make(MulticlassSSVM)
    model = MulticlassSSVM(C=0.1, scale=True, random_state=0).partial_fit(X[:, :3], y)
    model.partial_fit(X[:, [0, 1, 2, 1]], y)
    assert model.feature_scales_[3] == 1.0
    assert model.feature_means_[3] == 0.0
    assert model.feature_scales_[2] > 20.0
    model.save(tmp_path / "m.hinge", state=True)
    assert hingeline.load(tmp_path / "m.hinge").feature_scales_.shape == (4,)


def test_a_fit_without_it_forgets(tmp_path):
    X, y = make(MulticlassSSVM)
    model = MulticlassSSVM(C=0.1, scale=True).fit(X, y)
    model.set_params(scale=False, C=1e-9).fit(X, y)
    assert not hasattr(model, "feature_scales_")
    with pytest.raises(TypeError, match="scale must be True or False"):
        MulticlassSSVM(scale="yes").fit(X, y)


def test_large_numbers_beside_indicators_in_sparse_tables():
    """A few columns must not have all of the norm that C follows; text stays as it is."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=300)
    kinds = np.eye(30)[10 * y + rng.integers(10, size=300)]  # the label
    kinds[rng.random(300) < 0.3] = 0.0
    noise = 1e4 + 1e3 * rng.normal(size=(300, 2))
    rare = np.where(rng.random((300, 1)) < 0.2, 500.0, 0.0)
    X = sp.csr_matrix(np.hstack([kinds, noise, rare]))
    model = MulticlassSSVM(random_state=0).fit(X[:200], y[:200])
    assert model.feature_scales_[:30].tolist() == [1.0] * 30
    assert model.feature_scales_[30] == pytest.approx(np.sqrt(np.mean(noise[:200, 0] ** 2)))
    assert model.feature_scales_[32] == pytest.approx(500.0)
    assert not model.feature_means_.any()
    left = MulticlassSSVM(random_state=0, scale=False).fit(X[:200], y[:200])
    assert left.score(X[200:], y[200:]) < 0.6 < 0.7 < model.score(X[200:], y[200:])
    assert not hasattr(MulticlassSSVM(C=1e-9).fit(X, y), "feature_means_")
    counts = sp.csr_matrix(rng.poisson(0.3, size=(300, 40)) * np.where(y == 0, 1, 2)[:, None])
    counts[0, 0] = 300.0  # one document full of one word
    for text in (counts.astype(float), 1e-3 * counts, X[:, :30]):
        assert not hasattr(MulticlassSSVM().fit(text, y), "feature_means_")


def test_what_a_scaler_has_brought_to_0_and_1_is_centred():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=300)
    X = rng.normal(size=(3, 5))[y] + rng.normal(size=(300, 5))
    raw = MulticlassSSVM(random_state=0, tol=1e-6).fit(X, y)
    for low, high in ((0.0, 1.0), (-1.0, 1.0), (0.5, 0.6)):
        Z = low + (high - low) * (X - X.min()) / np.ptp(X)  # one unit, as before
        model = MulticlassSSVM(random_state=0, tol=1e-6).fit(Z, y)
        assert np.mean(model.predict(Z) == raw.predict(X)) > 0.97
    indicators = (rng.random((300, 5)) < [0.6, 0.8, 0.9, 0.95, 1.0]).astype(float)
    for flat in (indicators, 2.0 * indicators - 1.0):
        assert not hasattr(MulticlassSSVM().fit(flat, y), "feature_means_")
    indicators[:, 0] = np.arange(300) % 5 == 0  # one that is rare
    mixed = np.hstack([indicators, MinMaxScaler().fit_transform(X)])
    model = MulticlassSSVM().fit(mixed, y)
    np.testing.assert_allclose(model.feature_means_, [0.0] * 5 + [*mixed[:, 5:].mean(axis=0)])
    assert model.feature_scales_[:5].tolist() == [1.0] * 5
    assert len({*model.feature_scales_[5:]}) == 1  # alike: one unit


def test_columns_that_are_mostly_zero_have_the_size_of_their_entries():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=200)
    words = (rng.random(size=(200, 20)) < 0.2) * rng.uniform(0.02, 0.2, size=20)  # as in tf-idf
    money = np.where(rng.random((200, 1)) < 0.3, 5e3, 0.0)
    money[money.argmax()] = 1e6  # one is very rich
    X = np.hstack([words, money, rng.normal(size=(200, 1))])
    sizes = MulticlassSSVM(random_state=0).fit(X, y).feature_scales_
    assert len({*sizes[:20]}) == 1  # what is small among words stays small
    assert 0.02 < sizes[0] < 0.2
    assert sizes[20] == pytest.approx(money.sum() / (money > 0.0).sum())
    assert sizes[21] == 1.0


@pytest.mark.parametrize("kind", [MulticlassSSVM, MultilabelSSVM])
def test_sparse_tables_that_are_full_are_scaled_as_dense_ones(kind):
    X, y = make(kind)
    dense = kind(random_state=0).fit(X, y)
    model = kind(random_state=0).fit(sp.csr_matrix(X), y)
    np.testing.assert_allclose(model.feature_means_, dense.feature_means_)
    np.testing.assert_array_equal(model.predict(sp.csr_matrix(X)), dense.predict(X))


@pytest.mark.parametrize("kind", [MulticlassSSVM, MultilabelSSVM])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_row_of_weight_two_counts_as_two(kind, sparse):
    X, y = make(kind)
    X[:, 2] = np.where(X[:, 2] > 20.0, 300.0, 0.0)
    X = np.hstack([X[:, :3], np.zeros((60, 4 * sparse))])  # half full, or less
    weights = np.arange(60) % 4
    given, repeated = X, np.repeat(X, weights, axis=0)
    if sparse:
        given, repeated = sp.csr_matrix(X), sp.csr_matrix(repeated)
    weighted = kind(random_state=0).fit(given, y, weights)
    plain = kind(random_state=0).fit(repeated, np.repeat(y, weights, axis=0))
    np.testing.assert_allclose(weighted.feature_scales_, plain.feature_scales_)
    np.testing.assert_allclose(weighted.feature_means_, plain.feature_means_)
    known = dict(vars(weighted))
    weighted.predict(given)
    assert weighted.feature_scales_ is known["feature_scales_"]  # prediction changes nothing


@pytest.mark.parametrize("value", [0.1, -3.3, 1234.567])
def test_columns_of_one_value_stay_one_whatever_rounding_says(value):
    """Their deviation is 0: that of a mean of many 0.1 is not, and nothing is divided by it."""

    def check(mean, size):
        assert mean in (pytest.approx(value, rel=1e-15), 0.0)
        assert size == 1.0

    X, y = make(MulticlassSSVM)
    X[:, 4] = value
    X[::7, 4] = np.nextafter(value, 1.0)  # what other sums would make of it
    later = X + [0.0, 0.0, 0.0, 0.0, 0.01]
    tokens = [X[i : i + 5] for i in range(0, 60, 5)], [y[i : i + 5] for i in range(0, 60, 5)]
    for scale in (None, True):
        for weights in (None, 1.0 + np.arange(60) % 3):
            model = MulticlassSSVM(scale=scale, tol=0.5, random_state=0).fit(X, y, weights)
            check(model.feature_means_[4], model.feature_scales_[4])
            assert (model.predict(later) == model.predict(X)).all()
        model = ChainSSVM(scale=scale, tol=0.5, random_state=0).fit(*tokens)
        check(model.feature_means_[4], model.feature_scales_[4])
    named = ChainSSVM(tol=0.5, random_state=0).fit(name_numbers(tokens[0]), tokens[1])
    assert named.feature_scales_[4] == 1.0
    parts = [[part[k::2] for part in tokens] for k in range(2)]
    told = [Sequences(model, *part, np.ones(6)).told | {"origin": None} for part in parts]
    known = merge_rows(model, told)[1]
    check(known["feature_means_"][4], known["feature_scales_"][4])


# Sequences of numbers ----------------------------------------------------------------------------


def sequences(n=40, seed=0):
    """Labels that stick together, and columns of all sizes that are far from zero."""
    rng = np.random.default_rng(seed)
    X, Y = [], []
    for _ in range(n):
        y = np.repeat(rng.integers(3, size=4), 3)
        X.append(np.eye(3)[y] + rng.normal(size=(12, 3)))
        Y.append(y.tolist())
    return X, Y


def test_dense_numbers_of_any_scale_give_the_same_chain():
    (X, y), (new, truth) = sequences(), sequences(seed=1)
    plain = ChainSSVM(random_state=0, tol=1e-6).fit(X, y)
    assert not hasattr(plain, "feature_means_")  # of the size of indicators already
    for units in (  # one unit for all columns, and one for each
        (([1.0, 1.0, 1.0], 10.0), ([100.0, 100.0, 100.0], -50.0), ([0.01, 0.01, 0.01], 0.0)),
        (([1.0, 10.0, 1.0], 10.0), ([0.01, 30.0, 1e4], [0.0, 5e3, -1e5])),
    ):
        first = None
        for sizes, shift in units:
            model = ChainSSVM(random_state=0, tol=1e-6).fit([shift + x * sizes for x in X], y)
            first = model.weights_ if first is None else first
            np.testing.assert_allclose(model.weights_, first, atol=1e-3)
            score = model.score([shift + x * sizes for x in new], truth)
            assert score == pytest.approx(plain.score(new, truth), abs=0.02)
    assert plain.score(new, truth) > 0.7
    mixed = ChainSSVM(random_state=0).fit([x * [1.0, 1.0, 50.0] for x in X], y)
    assert mixed.feature_scales_[:2].tolist() == [1.0, 1.0]
    assert mixed.feature_scales_[2] == pytest.approx(50.0 * np.concatenate(X)[:, 2].std())


def test_pixels_and_indicators_stay_as_they_are():
    """What is rare is not small: standardised, it would outweigh all else."""
    rng = np.random.default_rng(0)
    X = [(rng.random(size=(8, 6)) < 0.2).astype(float) for _ in range(20)]
    y = [x[:, 0].astype(int).tolist() for x in X]
    assert not hasattr(ChainSSVM().fit(X, y), "feature_means_")
    grey = ChainSSVM().fit([255.0 * x for x in X], y)
    assert grey.feature_scales_.tolist() == [255.0] * 6
    assert not grey.feature_means_.any()
    assert hasattr(ChainSSVM(scale=True).fit(X, y), "feature_means_")
    shares = [0.1 + 0.8 * rng.random(size=x.shape) ** 4 for x in X]  # a root mean square below ½
    assert not hasattr(ChainSSVM().fit(shares, y), "feature_means_")
    assert hasattr(ChainSSVM().fit([x - 0.3 for x in shares], y), "feature_means_")


@pytest.mark.parametrize("kind", [ChainSSVM, pytest.param(SegmentSSVM, marks=pytest.mark.slow)])
def test_a_chain_is_that_of_a_scaler_before_it(kind, tmp_path):
    X, y = sequences()
    X = [5.0 + x * [30.0, 3.0, 1e3] for x in X]
    if kind is SegmentSSVM:
        y = [["O" if k == 0 else f"I-{k}" for k in labels] for labels in y]
    model = kind(random_state=0, tol=1e-6).fit(X, y)
    scaler = StandardScaler().fit(np.concatenate(X))
    scaled = [scaler.transform(x) for x in X]
    plain = kind(C=model.C_, random_state=0, tol=1e-6).fit(scaled, y)
    assert not hasattr(plain, "feature_means_")
    np.testing.assert_allclose(plain.weights_, model.weights_, atol=1e-3)
    labels = np.concatenate(model.predict(X)).tolist()
    assert labels == np.concatenate(model.predict([sp.csr_matrix(x) for x in X])).tolist()
    model.save(tmp_path / "m.hinge")
    back = hingeline.load(tmp_path / "m.hinge")
    assert np.concatenate(back.predict(X)).tolist() == labels


def name_numbers(X, **more):
    """Sequences of numbers as dicts, without those that are 0."""
    return [[{f"x{k}": float(v) for k, v in enumerate(t) if v} | more for t in x] for x in X]


def test_numbers_in_dicts_of_any_scale(tmp_path):
    (X, y), (new, truth) = sequences(), sequences(seed=1)
    sizes, shift = np.array([0.01, 30.0, 1e3]), np.array([0.0, 500.0, -100.0])
    plain = ChainSSVM(random_state=0).fit([shift + x * sizes for x in X], y)
    dicts, others = (name_numbers([shift + x * sizes for x in part]) for part in (X, new))
    model = ChainSSVM(random_state=0).fit(dicts, y)
    np.testing.assert_allclose(model.feature_means_, plain.feature_means_, atol=1e-4)
    np.testing.assert_allclose(model.feature_scales_, plain.feature_scales_, rtol=1e-5)
    expected = plain.score([shift + x * sizes for x in new], truth)
    assert model.score(others, truth) == pytest.approx(expected, abs=0.02)
    unscaled = ChainSSVM(scale=False, tol=0.5).fit(dicts, y)
    assert model.score(others, truth) > unscaled.score(dicts, y) + 0.1
    model.save(tmp_path / "m.hinge")
    found = np.concatenate(model.predict(others)).tolist()
    assert np.concatenate(hingeline.load(tmp_path / "m.hinge").predict(others)).tolist() == found
    stream = ChainSSVM(random_state=0).partial_fit(dicts[:20], y[:20])
    stream.partial_fit(name_numbers([shift + x * sizes for x in X[20:]], late=1.0), y[20:])
    assert stream.feature_scales_[3] == 1.0
    assert stream.score(others, truth) > 0.6
    told = explain(model, dicts, index=0)
    assert told.score == pytest.approx(model.predict_nbest(dicts[:1], 1)[0][0][1])


def test_numbers_in_dicts_that_few_tokens_have():
    """What a token lacks stays 0; small counts and shares stay as they are."""
    rng = np.random.default_rng(0)
    there = [rng.random((12, 4)) < [0.2, 0.2, 0.2, 0.7] for _ in range(20)]
    X = [x * rng.integers(1, 5, x.shape) * [500.0, 1.0, 0.01, 100.0] for x in there]
    y = [x[:, 0].astype(int).tolist() for x in there]
    model = ChainSSVM(random_state=0).fit(name_numbers(X, bias=1.0), y)
    scales = dict(zip(model.feature_names_, model.feature_scales_, strict=True))
    assert not model.feature_means_.any()
    assert scales["x0"] == 2000.0
    assert scales["x1"] == scales["x2"] == scales["bias"] == 1.0
    present = np.concatenate(X)[:, 3]
    assert scales["x3"] == pytest.approx(np.sqrt(np.mean(present[present > 0] ** 2)))
    assert model.score(name_numbers(X, bias=1.0), y) == 1.0


def test_only_dense_numbers_are_scaled_unasked():
    X, y = sequences(10)
    for fitted in (
        ChainSSVM(C=0.1).fit(X, y),  # who gives a number means the features as they are
        ChainSSVM(scale=False).fit(X, y),
        ChainSSVM().fit([sp.csr_matrix(x) for x in X], y),
        ChainSSVM().fit([[f"w{k}" for k in labels] for labels in y], y),
    ):
        assert not hasattr(fitted, "feature_means_")
    asked = ChainSSVM(C=0.1, scale=True).fit([sp.csr_matrix(x) for x in X], y)
    np.testing.assert_array_equal(asked.feature_scales_, abs(np.concatenate(X)).max(axis=0))
    assert not asked.feature_means_.any()
    with pytest.raises(ValueError, match="scale=True is for numbers"):
        ChainSSVM(scale=True).fit([["a", "b"]], [["A", "B"]])
    with pytest.raises(ValueError, match="scale=True is for numbers"):
        Sequences(ChainSSVM(scale=True), [["a", "b"]], [["A", "B"]], np.ones(1))  # a block of them
    with pytest.raises(TypeError, match="scale must be True or False"):
        ChainSSVM(scale="yes").fit(X, y)


@pytest.mark.slow
def test_scaled_chains_in_blocks():
    X, y = sequences()
    X = [5.0 + 30.0 * x for x in X]
    whole = ChainSSVM(random_state=0, tol=1e-6).fit(X, y)
    parts = [(X[:15], y[:15]), (X[15:], y[15:])]
    blocks = fit_blocks(ChainSSVM(random_state=0, tol=1e-6), parts, workers=1)
    np.testing.assert_allclose(blocks.feature_means_, whole.feature_means_, rtol=1e-12)
    np.testing.assert_allclose(blocks.weights_, whole.weights_, atol=1e-3)


def test_scaled_chains_in_streams_and_explanations():
    X, y = sequences()
    X = [5.0 + 30.0 * x for x in X]
    whole = ChainSSVM(random_state=0, tol=1e-6).fit(X, y)
    stream = ChainSSVM(random_state=0, tol=1e-6).partial_fit(X[:20], y[:20])
    means = stream.feature_means_.copy()
    stream.partial_fit(X[20:], y[20:])
    np.testing.assert_array_equal(stream.feature_means_, means)  # those of the first batch
    assert stream.score(X, y) == pytest.approx(whole.score(X, y), abs=0.02)
    told = explain(whole, X, index=0)
    assert told.score == pytest.approx(whole.predict_nbest(X[:1], 1)[0][0][1])
    table = MulticlassSSVM(scale=True).fit(np.concatenate(X), np.concatenate(y))
    row = np.concatenate(X)[:1]
    assert explain(table, row[0]).score == pytest.approx(table.decision_function(row).max())


def test_scaled_numbers_with_few_labels():
    X, y = sequences()
    model = SemiSupervisedSSVM(random_state=0).fit([1e3 * x for x in X], y[:10] + [None] * 30)
    assert model.score([1e3 * x for x in X], y) > 0.7


# Graphs and sets of labels -----------------------------------------------------------------------


def squares(n=40, seed=0, nodes=(1.0, 0.0), edges=1.0):
    """Rings of four nodes; where the second feature of an edge is positive, its labels agree."""
    rng = np.random.default_rng(seed)
    ring = [(0, 1), (1, 2), (2, 3), (3, 0)]
    X, Y = [], []
    for _ in range(n):
        y = rng.integers(2, size=4)
        same = np.array([1.0 if y[a] == y[b] else -1.0 for a, b in ring])
        known = np.column_stack([np.ones(4), edges * (same + rng.normal(size=4))])
        own = np.eye(2)[y] + 0.7 * rng.normal(size=(4, 2))
        X.append(Graph(nodes[1] + own * nodes[0], ring, edge_features=known))
        Y.append(y.tolist())
    return X, Y


def fit_squares(**how):
    return GraphSSVM(inference="enumeration", random_state=0, tol=1e-6).fit(*squares(**how))


def test_graphs_of_any_scale_are_the_same_model(tmp_path):
    plain = fit_squares()
    assert not hasattr(plain, "feature_means_")
    assert not hasattr(plain, "edge_feature_scales_")
    first = None
    for how in (
        {"nodes": (np.array([1.0, 8.0]), 10.0), "edges": 30.0},
        {"nodes": (np.array([0.01, 1e4]), np.array([0.0, -1e5])), "edges": 1e-3},
    ):
        model = fit_squares(**how)
        first = model.weights_ if first is None else first
        np.testing.assert_allclose(model.weights_, first, atol=1e-3)
        assert model.edge_feature_scales_[0] == 1.0  # the constant of edges stays
        new, truth = squares(seed=1, **how)
        score = plain.score(*squares(seed=1))
        assert score > 0.85
        assert model.score(new, truth) == pytest.approx(score, abs=0.02)
        model.save(tmp_path / "m.hinge")
        back = hingeline.load(tmp_path / "m.hinge")
        for one, other in zip(
            model.decision_function(new), back.decision_function(new), strict=True
        ):
            assert one.tobytes() == other.tobytes()
    model.set_params(C=0.1).fit(*squares())  # who gives a number means the features as they are
    assert not hasattr(model, "feature_means_")
    assert not hasattr(model, "edge_feature_scales_")


def test_a_graph_model_is_that_of_a_scaler_before_it():
    X, y = squares(nodes=(np.array([30.0, 3.0]), 5.0), edges=20.0)
    model = GraphSSVM(inference="enumeration", random_state=0, tol=1e-6).fit(X, y)
    scaler = StandardScaler().fit(np.concatenate([x.node_features for x in X]))
    size = np.sqrt(np.mean([x.edge_features[:, 1] ** 2 for x in X]))
    assert model.edge_feature_scales_ == pytest.approx([1.0, size])
    scaled = [
        Graph(scaler.transform(x.node_features), x.edges, x.edge_features / [1.0, size]) for x in X
    ]
    plain = GraphSSVM(model.C_, inference="enumeration", random_state=0, tol=1e-6).fit(scaled, y)
    np.testing.assert_allclose(plain.weights_, model.weights_, atol=1e-3)
    sparse = [Graph(sp.csr_matrix(x.node_features), x.edges, x.edge_features) for x in X]
    found = np.concatenate(model.predict(X)).tolist()
    assert found == np.concatenate(model.predict(sparse)).tolist()
    assert found == np.concatenate(plain.predict(scaled)).tolist()
    unasked = GraphSSVM(inference="enumeration", random_state=0).fit(sparse, y)
    np.testing.assert_allclose(unasked.feature_means_, model.feature_means_)  # full, as dense
    assert hasattr(unasked, "edge_feature_scales_")


def weigh(X, weights):
    return [Graph(x.node_features, x.edges, x.edge_features, weights) for x in X]


def test_examples_that_weigh_nothing_have_no_say_in_scales():
    def compare(few, model):
        for name in ("feature_means_", "feature_scales_", "edge_feature_scales_"):
            found = getattr(few, name, None)
            np.testing.assert_array_equal(getattr(model, name, None), found)
        assert hasattr(few, "feature_means_")
        assert pytest.approx(few.C_) == model.C_

    X, y = make(MulticlassSSVM)
    more, labels, weights = np.vstack([X, 1e6 * X]), np.tile(y, 2), np.repeat([1.0, 0.0], len(X))
    few = MulticlassSSVM(random_state=0).fit(X, y)
    compare(few, MulticlassSSVM(random_state=0).fit(more, labels, weights))
    compare(few, MulticlassSSVM(random_state=0).partial_fit(more, labels, None, weights))
    sets = np.eye(3, dtype=int)[labels]
    few = MultilabelSSVM(random_state=0).fit(X, sets[: len(X)])
    compare(few, MultilabelSSVM(random_state=0).fit(more, sets, weights))
    X, y = sequences()
    X = [x * [1.0, 30.0, 500.0] for x in X]
    weights = np.repeat([1.0, 0.0], len(X))
    few, model = ChainSSVM(random_state=0), ChainSSVM(random_state=0)
    for change in (list, name_numbers):
        model.fit(change(X + [1e6 * x for x in X]), y + y, sample_weight=weights)
        compare(few.fit(change(X), y), model)
    (X, y), (other, labels) = squares(nodes=(30.0, 5.0), edges=20.0), squares(edges=1e6)
    few, model = (GraphSSVM(inference="enumeration", random_state=0) for _ in range(2))
    compare(few.fit(X, y), model.fit(X + other, y + labels, weights))


def test_an_example_of_weight_two_counts_as_two():
    """In scales, and in a C that follows features and losses, as if it were there twice."""

    def compare(model, X, y):
        weights = np.arange(len(X)) % 3
        once = clone(model).fit(X, y, sample_weight=weights)
        some = np.repeat(np.arange(len(X)), weights)
        twice = clone(model).fit([X[i] for i in some], [y[i] for i in some])
        for name in ("feature_means_", "feature_scales_", "edge_feature_scales_"):
            found, expected = getattr(once, name, np.zeros(0)), getattr(twice, name, np.zeros(0))
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
        assert pytest.approx(twice.C_, rel=1e-12) == once.C_

    cost = np.array([[0.0, 1.0, 3.0], [2.0, 0.0, 1.0], [5.0, 7.0, 0.0]])
    X, y = make(MulticlassSSVM)
    compare(MulticlassSSVM(loss=cost, tol=0.5), X, y)
    X, y = sequences()
    X = name_numbers([np.array([500.0, 5.0, 0.0]) + x * [30.0, 3.0, 1e3] for x in X])
    compare(ChainSSVM(loss=cost, tol=0.5), X, y)
    X, y = squares(nodes=(30.0, 5.0), edges=20.0)
    compare(GraphSSVM(loss=cost[1:, 1:], inference="enumeration", tol=0.5), X, y)


def test_losses_in_any_unit_are_the_same_model():
    """Nodes weigh their pixels: what is right for one of each is right for 500 of each."""
    X, y = squares()
    plain = fit_squares()
    model = GraphSSVM(inference="enumeration", random_state=0, tol=1e-6)
    model.fit(weigh(X, np.full(4, 500.0)), y)
    assert pytest.approx(500.0 * plain.C_) == model.C_
    np.testing.assert_allclose(model.weights_ / 500.0, plain.weights_, atol=1e-3)
    model.fit(weigh(X, [1.0, 1.0, 0.0, 1.0]), y)  # nodes that cost nothing have no say in it
    assert model.C_ == plain.C_
    sets, indicators = make(MultilabelSSVM)
    once = MultilabelSSVM(random_state=0).fit(sets, indicators).C_
    twice = MultilabelSSVM(random_state=0, loss=(2.0, "hamming")).fit(sets, indicators).C_
    assert twice == pytest.approx(2.0 * once)


@pytest.mark.slow
def test_scaled_graphs_in_blocks():
    X, y = squares(nodes=(30.0, 5.0), edges=20.0)
    X = weigh(X[:10], [1.0, 2.0, 3.0, 0.0]) + weigh(X[10:], [5.0, 1.0, 2.0, 3.0])
    weights, cost = np.arange(len(X)) % 3, [[0.0, 1.0], [4.0, 0.0]]
    estimator = GraphSSVM(inference="enumeration", loss=cost, random_state=0, tol=1e-6)
    whole = clone(estimator).fit(X, y, weights)
    parts = [(X[:15], y[:15], weights[:15]), (X[15:], y[15:], weights[15:])]
    blocks = fit_blocks(estimator, parts, workers=1)
    assert pytest.approx(whole.C_) == blocks.C_
    for name in ("feature_means_", "feature_scales_", "edge_feature_scales_"):
        np.testing.assert_allclose(getattr(blocks, name), getattr(whole, name), rtol=1e-12)
    np.testing.assert_allclose(blocks.weights_, whole.weights_, atol=1e-3)


def test_columns_of_one_unit_have_one_divisor():
    """Noise of many small columns must not become as large as what tells the classes apart."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=300)
    X = 40.0 + np.hstack(
        [16.0 * (np.eye(3)[y] + 0.3 * rng.normal(size=(300, 3)))]
        + [4.0 * rng.normal(size=(300, 200))]
    )
    model = MulticlassSSVM(random_state=0).fit(X[:100], y[:100])
    size = np.sqrt(np.mean(X[:100].var(axis=0)))
    np.testing.assert_allclose(model.feature_scales_, size)
    np.testing.assert_allclose(model.feature_means_, X[:100].mean(axis=0))
    standardised = MulticlassSSVM(scale=True, random_state=0).fit(X[:100], y[:100])
    assert model.score(X[100:], y[100:]) > standardised.score(X[100:], y[100:]) + 0.1
    other = MulticlassSSVM(random_state=0).fit(
        X[:100] * np.where(np.arange(203) == 9, 20, 1), y[:100]
    )
    assert len(set(other.feature_scales_.tolist())) == 203  # one column of another unit


def test_tables_of_any_scale(tmp_path):
    X, y = make(MulticlassSSVM)
    model = MulticlassSSVM(random_state=0, tol=1e-6).fit(X, y)
    plain = MulticlassSSVM(model.C_, random_state=0, tol=1e-6).fit(
        StandardScaler().fit_transform(X), y
    )
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=1e-3)
    assert pytest.approx(15.0 / 5.0) == model.C_  # four columns of size 1 and the constant
    model.save(tmp_path / "m.hinge")
    assert hingeline.load(tmp_path / "m.hinge").predict(X).tolist() == model.predict(X).tolist()
    for params in ({"C": 1.0}, {"scale": False}):
        kept = MulticlassSSVM(max_iter=1, random_state=0).set_params(**params)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kept.fit(1e-3 * X, y)
        assert not hasattr(kept, "feature_means_")


@pytest.mark.parametrize("nu", [0.9, "auto"])
def test_nu_on_tables_of_any_scale(nu):
    X, y = make(MulticlassSSVM)
    params = {"slack": "nu", "nu": nu, "random_state": 0, "tol": 1e-6}
    model = MulticlassSSVM(**params).fit(X, y)
    plain = MulticlassSSVM(**params).fit(StandardScaler().fit_transform(X), y)
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=1e-3 * abs(plain.coef_).max())
    assert model.converged_
    assert min(model.score(X, y), nu_path(model, X, y, [0.9]).models[0].score(X, y)) > 0.6


@pytest.mark.parametrize(("columns", "times"), [(4, 5.0), (20, 2.0), (100, 1.0)])
def test_few_columns_have_a_larger_C(columns, times):
    X = StandardScaler().fit_transform(np.random.default_rng(0).normal(size=(60, columns)))
    y = np.arange(60) % 3
    model = MulticlassSSVM(random_state=0).fit(X, y)
    assert pytest.approx(3.0 * times / (columns + 1)) == model.C_


@pytest.mark.parametrize("unit", [30.0, 1e-3])
def test_losses_of_any_unit(unit):
    """A margin of 30 asks for weights and a C 30 times as large."""
    (X, y), (table, labels) = sequences(), make(MulticlassSSVM)
    costs = 1.0 - np.eye(3)
    for kind, inputs, truth in ((ChainSSVM, X, y), (MulticlassSSVM, table, labels)):
        plain = kind(random_state=0, tol=1e-6).fit(inputs, truth)
        other = kind(loss=unit * costs, random_state=0, tol=1e-6).fit(inputs, truth)
        assert pytest.approx(unit * plain.C_) == other.C_
        np.testing.assert_allclose(other.weights_ / unit, plain.weights_, atol=1e-3)
    right_or_wrong = ChainSSVM(loss=(unit, "zero_one"), tol=0.5).fit(X, y)
    assert pytest.approx(unit * ChainSSVM(tol=0.5).fit(X, y).C_) == right_or_wrong.C_


@pytest.mark.slow
def test_losses_of_any_unit_in_blocks():
    (X, y), model = sequences(), ChainSSVM(loss=30.0 * (1.0 - np.eye(3)), random_state=0)
    blocks = fit_blocks(model, [(X[:15], y[:15]), (X[15:], y[15:])], workers=1)
    assert pytest.approx(model.fit(X, y).C_) == blocks.C_


def test_sets_of_labels_of_any_scale():
    X, y = make(MultilabelSSVM)
    model = MultilabelSSVM(random_state=0, tol=1e-6).fit(X, y)
    scaler = StandardScaler().fit(X)
    plain = MultilabelSSVM(model.C_, random_state=0, tol=1e-6).fit(scaler.transform(X), y)
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=1e-3)
    np.testing.assert_array_equal(model.predict(X), plain.predict(scaler.transform(X)))
    assert pytest.approx(model.C_) == MultilabelSSVM(random_state=0).fit(7.0 * X, y).C_
    assert not hasattr(MultilabelSSVM(0.1, random_state=0).fit(X, y), "feature_means_")


def test_sums_of_hinges_have_a_tenth_of_C_on_graphs():
    rng = np.random.default_rng(0)
    X = [Graph(rng.normal(size=(4, 3)), [(0, 1), (1, 2), (2, 3)]) for _ in range(20)]
    y = [(x.node_features[:, 0] > 0).astype(int) for x in X]
    limits = {"tol": 0.5, "max_iter": 3, "random_state": 0, "inference": "enumeration"}
    usual, summed = (GraphSSVM(slack=slack, **limits).fit(X, y) for slack in ("max", "sum"))
    assert pytest.approx(usual.C_ / 10) == summed.C_
