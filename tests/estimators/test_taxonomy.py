"""A tree of labels as a loss: brute force over the tree, and the same bits as its cost matrix."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV

import hingeline
from hingeline import ChainSSVM, MulticlassSSVM, MultilabelSSVM, Taxonomy
from hingeline.evaluation.metrics import hierarchical_scores, scorer

NAMES = ["plant", "animal/cat", "animal/cat/lion", "animal/dog"]


def walk(parents: dict, a: int, b: int) -> tuple[int, int | None]:
    """Edges between two nodes, by breadth-first search, and the highest node on the way."""
    edges = list(parents.items())
    ways = {a: [a]}
    todo = [a]
    while b not in ways:
        here = todo.pop(0)
        for pair in edges:
            if here in pair:
                other = pair[1 - pair.index(here)]
                if other not in ways:
                    ways[other] = [*ways[here], other]
                    todo.append(other)
    way = ways[b]
    top = [node for node in way if parents.get(node, "above") not in way]
    return len(way) - 1, top[0]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 30), min_size=2, max_size=12), st.randoms(use_true_random=False))
def test_costs_are_those_of_a_walk_through_the_tree(choices, random):
    """Random trees, with inner nodes and several roots (below None) among the labels."""
    parents = {k: (None, *range(k))[choice % (k + 1)] for k, choice in enumerate(choices)}
    labels = random.sample(list(parents), len(parents))
    below = {k: [j for j in parents if k in ancestors(parents, j)] for k in (*parents, None)}
    heights = {k: max(walk(parents, j, k)[0] for j in own) for k, own in below.items()}
    own_cost = {node: random.random() + 0.5 for node in heights}
    distance, height, own = (
        Taxonomy(parents, cost).to_matrix(labels) for cost in ("distance", "height", own_cost)
    )
    for i, a in enumerate(labels):
        for j, b in enumerate(labels):
            edges, top = walk(parents, a, b)
            assert distance[i, j] == edges
            assert height[i, j] == (heights[top] if a != b else 0)
            assert own[i, j] == (own_cost[top] if a != b else 0)


def ancestors(parents: dict, node: int | None) -> list:
    found = [node]
    while found[-1] is not None:
        found.append(parents[found[-1]])
    return found


def test_paths_are_read_as_a_tree():
    assert Taxonomy.from_paths(NAMES) == Taxonomy(
        {
            "plant": None,
            "animal": None,
            "animal/cat": "animal",
            "animal/cat/lion": "animal/cat",
            "animal/dog": "animal",
        }
    )
    dotted = Taxonomy.from_paths(np.array(["comp.sys.mac", "comp.sys.pc"] * 3), separator=".")
    assert dotted.ancestors("comp.sys.mac") == ("comp.sys.mac", "comp.sys", "comp")
    assert dotted.root == "comp"
    assert Taxonomy.from_paths(NAMES).root is None
    assert repr(dotted) == "Taxonomy(4 labels, cost='distance')"


def draw(n: int = 90) -> tuple[np.ndarray, np.ndarray]:
    X, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))[:n]
    return X[order], np.array(["petal/wide", "bract", "petal/long"])[y[order]]


TREE = Taxonomy.from_paths(["petal/wide", "petal/long", "bract", "leaf"])
COSTS = np.array([[0.0, 3, 3], [3, 0, 2], [3, 2, 0]])  # bract, petal/long, petal/wide


def test_classes_learn_as_with_the_cost_matrix_bit_for_bit():
    X, y = draw()
    model, same, other = (
        MulticlassSSVM(loss=loss, random_state=0).fit(X, y)
        for loss in (TREE, COSTS, COSTS.max() - COSTS - np.diag([3.0, 3, 3]))
    )
    assert np.array_equal(model.weights_, same.weights_)
    assert model.duality_gap_ == same.duality_gap_
    assert not np.array_equal(model.weights_, other.weights_)  # near and far exchanged
    scaled = MulticlassSSVM(loss=(0.5, TREE), random_state=0).fit(X, y)
    assert np.array_equal(
        scaled.weights_, MulticlassSSVM(loss=0.5 * COSTS, random_state=0).fit(X, y).weights_
    )


def test_chains_learn_as_with_the_cost_matrix_bit_for_bit():
    X, y = draw()
    X, y = [X[k : k + 3] for k in range(0, 90, 3)], [list(y[k : k + 3]) for k in range(0, 90, 3)]
    model, same, other = (
        ChainSSVM(C=0.1, tol=0.1, loss=loss, random_state=0).fit(X, y)
        for loss in (TREE, COSTS, "hamming")
    )
    assert np.array_equal(model.weights_, same.weights_)
    assert not np.array_equal(model.weights_, other.weights_)


def test_a_far_mistake_asks_for_the_wider_margin():
    """One example of each class on an axis of its own: hard margins are the losses themselves."""
    X, y = np.eye(3), ["bract", "petal/long", "petal/wide"]
    model = MulticlassSSVM(C=np.inf, loss=TREE, fit_intercept=False, tol=1e-6).fit(X, y)
    scores = model.decision_function(X)
    margins = np.diag(scores)[:, None] - scores
    assert margins == pytest.approx(COSTS, abs=1e-3)


def test_a_fold_without_a_label_and_labels_that_come_later_are_fitted():
    X, y = draw()
    some = y != "bract"
    model = MulticlassSSVM(loss=TREE, random_state=0).fit(X[some], y[some])
    assert list(model.classes_) == ["petal/long", "petal/wide"]
    online = MulticlassSSVM(1.0, loss=TREE, tol=1e-6, random_state=0)
    online.partial_fit(X[some], y[some]).partial_fit(X[~some], y[~some])
    whole = MulticlassSSVM(1.0, loss=TREE, tol=1e-6, random_state=0).fit(X, y)
    assert list(online.classes_) == ["petal/long", "petal/wide", "bract"]
    assert online.primal_objective_ == pytest.approx(whole.primal_objective_, rel=1e-5)


def test_copies_searches_and_files_keep_it(tmp_path):
    X, y = draw()
    trees = [TREE, Taxonomy(TREE.parents, cost={None: 2.0, "petal": 1.0})]
    assert clone(MulticlassSSVM(loss=TREE)).loss == TREE == pickle.loads(pickle.dumps(TREE))
    assert trees[0] != trees[1]
    search = GridSearchCV(
        MulticlassSSVM(tol=0.1, random_state=0),
        {"loss": [*trees, (2.0, TREE)]},
        scoring=scorer("hierarchical_f1", taxonomy=TREE),
        cv=3,
    ).fit(X, y)
    assert search.best_score_ > 0.7
    for tree in trees:
        model = MulticlassSSVM(loss=tree, tol=0.1, random_state=0).fit(X, y)
        model.save(tmp_path / "tree.hinge")
        again = hingeline.load(tmp_path / "tree.hinge")
        assert again.loss == tree
        assert np.array_equal(again.fit(X, y).weights_, model.weights_)


def test_what_is_no_taxonomy_is_told_in_a_sentence():
    X, y = draw()
    with pytest.raises(ValueError, match="does not know the label 'bract': add it to parents"):
        MulticlassSSVM(loss=Taxonomy.from_paths(["petal/long", "petal/wide"])).fit(X, y)
    with pytest.raises(TypeError, match="name one parent for each label"):
        Taxonomy({"petal": ["long", "wide"]})
    with pytest.raises(ValueError, match="from 'b' back to itself"):
        Taxonomy({"a": "b", "b": "c", "c": "b"})
    with pytest.raises(TypeError, match="for paths use Taxonomy"):
        Taxonomy(["a/b"])
    with pytest.raises(TypeError, match="must be a path like 'animal/cat', got 3"):
        Taxonomy.from_paths([3])
    with pytest.raises(ValueError, match="cost='depth' is not known"):
        Taxonomy({"a": "b"}, cost="depth")
    with pytest.raises(TypeError, match="cost must be 'distance', 'height' or a mapping"):
        Taxonomy({"a": "b"}, cost=2.0)
    with pytest.raises(ValueError, match="no number for 'petal', which joins 'petal/long' and"):
        MulticlassSSVM(loss=Taxonomy(TREE.parents, cost={None: 1.0})).fit(X, y)
    with pytest.raises(TypeError, match="loss must be 'hamming', a cost matrix"):
        MultilabelSSVM(loss=TREE).fit(X, np.eye(2, dtype=int)[np.arange(len(X)) % 2])


def test_hierarchical_scores_count_shared_ancestors():
    tree = Taxonomy.from_paths(NAMES)
    y_true = ["animal/cat/lion", "animal/dog", "plant"]
    y_pred = ["animal/cat", "animal/cat/lion", "animal/dog"]
    # shared 2 of (3, 2), 1 of (2, 3), 0 of (1, 2)
    found = hierarchical_scores(y_true, y_pred, tree)
    assert found == pytest.approx((3 / 7, 3 / 6, 6 / 13))
    assert hierarchical_scores([y_true], [y_pred], tree) == found
    assert hierarchical_scores(y_true, y_true, tree) == (1.0, 1.0, 1.0)
    below = Taxonomy({**tree.parents, "plant": "thing", "animal": "thing"})
    assert hierarchical_scores(y_true, y_pred, below) == found  # the root counts for nothing
    with pytest.raises(ValueError, match="does not know the label 'fish'"):
        hierarchical_scores(["plant"], ["fish"], tree)


def test_a_report_counts_the_cost_of_the_tree():
    from hingeline.report.outcome import compare

    X, y = draw()
    model = MulticlassSSVM(loss=TREE, tol=0.1, random_state=0).fit(X, y)
    wrong = np.where(y == "bract", "petal/long", y)
    outcome = compare(model, None, y, wrong, None)
    assert set(outcome.losses) == {0.0, 3.0}
