"""DependencySSVM: what it learns, what it refuses, and that its certificate is true."""

from __future__ import annotations

import io
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score

import hingeline
from hingeline import DependencySSVM
from hingeline.data import read_conllu, write_conllu
from hingeline.evaluation.inspection import explain
from hingeline.evaluation.metrics import attachment_scores
from hingeline.features import ArcFeatures
from hingeline.inference.dependencies import find_crossing
from hingeline.modelfile.files import ModelFileError
from hingeline.report import draw_parse

# isort: split
from naive import all_trees

SMALL = ArcFeatures(arc_bits=10, label_bits=8)


def make_treebank(n: int, crossing: bool = False, seed: int = 0):
    """Sentences like "the old dog sees the cat" and, crossing, "a hearing today came on trade"."""
    rng = np.random.default_rng(seed)
    X, y = [], []

    def add(sentence, tree, form, tag, head, label):
        sentence.append({"form": form, "upos": tag, "xpos": tag[:1]})
        tree.append((head, label))

    for _ in range(n):
        sentence, tree = [], []
        adjectives = int(rng.integers(3))
        noun, verb = adjectives + 2, adjectives + 3
        add(sentence, tree, "the", "DET", noun, "det")
        for _ in range(adjectives):
            add(sentence, tree, rng.choice(["old", "big"]), "ADJ", noun, "amod")
        add(sentence, tree, rng.choice(["dog", "cat", "man"]), "NOUN", verb, "nsubj")
        add(sentence, tree, rng.choice(["sees", "hears"]), "VERB", 0, "root")
        if rng.random() < 0.7:
            add(sentence, tree, "a", "DET", verb + 2, "det")
            add(sentence, tree, rng.choice(["bone", "cat"]), "NOUN", verb, "obj")
        if crossing:  # the relative clause of the subject stands behind the verb's object
            add(sentence, tree, "that", "PRON", len(tree) + 2, "nsubj")
            add(sentence, tree, "barks", "VERB", noun, "acl")
        X.append(sentence)
        y.append(tree)
    return X, y


@pytest.fixture(scope="module")
def treebank():
    return make_treebank(40)


@pytest.fixture(scope="module")
def parser(treebank):
    return DependencySSVM(features=SMALL, tol=0.05, random_state=0).fit(*treebank)


def test_it_learns_a_small_grammar(parser):
    X, y = make_treebank(30, seed=1)
    assert parser.projective_
    assert parser.score(X, y) == 1.0
    assert parser.duality_gap_ <= 0.05 * parser.primal_objective_


def test_the_certificate_is_true(treebank):
    """The primal by the definition: hinges of all trees with all labels that may be there."""
    pairs = [pair for pair in zip(*treebank, strict=True) if len(pair[0]) <= 4][:5]
    X, y = map(list, zip(*pairs, strict=True))
    tight = DependencySSVM(0.05, features=SMALL, tol=1e-6, random_state=0).fit(X, y)
    labels = tight.classes_.tolist()
    slack = 0.0
    for x, tree in pairs:
        length = len(x)
        table = np.full((length, length + 1, len(labels)), -np.inf)
        wrong = np.ones_like(table)
        for m, h, k in np.ndindex(table.shape):
            if h != m + 1 and (tight.below_root_ if h == 0 else tight.elsewhere_)[k]:
                weights = tight.arc_weights(x, m + 1, h, labels[k])
                table[m, h, k] = sum(w.weight for w in weights)
            wrong[m, h, k] = tree[m] != (h, labels[k])
        own = table[wrong == 0].sum()
        best = (table + wrong).max(axis=2)
        values = [best[range(length), heads].sum() for heads in all_trees(length, True)]
        slack += max(values) - own
    primal = 0.5 * tight.weights_ @ tight.weights_ + 0.05 * slack
    assert tight.primal_objective_ == pytest.approx(primal, rel=1e-9)
    assert tight.dual_objective_ <= primal
    assert tight.duality_gap_ <= 1e-6 * primal


def test_weights_do_not_depend_on_threads(treebank, parser):
    again = clone(parser).set_params(n_jobs=2).fit(*treebank)
    assert np.array_equal(again.weights_, parser.weights_)
    assert again.predict(treebank[0]) == parser.predict(treebank[0])


def test_crossing_arcs():
    X, y = make_treebank(40, crossing=True)
    free = DependencySSVM(C=0.1, features=SMALL, tol=0.05, random_state=0).fit(X, y)
    assert not free.projective_
    assert free.score(X, y) > 0.95
    with pytest.raises(ValueError, match=r"y\[0\] has crossing arcs.*pass 'prediction' or False"):
        clone(free).set_params(projective=True).fit(X, y)
    without = free.set_params(projective="prediction").predict(X)
    assert not clone(free).fit(X, y).projective_
    assert without != y
    heads, offsets = [h for tree in without for h, _ in tree], np.cumsum([0, *map(len, X)])
    assert find_crossing(np.array(heads), offsets) == -1


def test_loss_of_heads_alone(treebank):
    model = DependencySSVM(loss="heads", features=SMALL, tol=0.05, random_state=0).fit(*treebank)
    found = attachment_scores(treebank[1], model.predict(treebank[0]))
    assert found.uas == 1.0
    assert model.duality_gap_ <= 0.05 * model.primal_objective_


def test_best_trees_margin_and_explanation(parser, treebank):
    X = treebank[0][:5]
    best = parser.predict_nbest(X, 3)
    assert [b[0][0] for b in best] == parser.predict(X)
    for i, trees in enumerate(best):
        for tree, value in trees:
            weights = [parser.arc_weights(X[i], t + 1, *arc) for t, arc in enumerate(tree)]
            assert value == pytest.approx(sum(w.weight for arc in weights for w in arc), abs=1e-9)
    margins = parser.predict_margin(X)
    assert margins == pytest.approx([b[0][1] - b[1][1] for b in best])
    told = explain(parser, X, index=1)
    assert told.margin == pytest.approx(margins[1])
    assert [tuple(a) for a in told.other] == best[1][1][0]
    against = explain(parser, X[1], against=best[1][2][0])
    assert against.margin == pytest.approx(best[1][0][1] - best[1][2][1])
    names = {row.name for row in against.rows}
    assert any(name.startswith("h.upos") or name.startswith("m.") for name in names)


def test_files_pickle_and_folds(parser, treebank, tmp_path):
    X, y = treebank
    report = parser.save(tmp_path / "parser.hinge", check=(X, y))
    assert report["exact"]
    assert report["changed_predictions"] == 0.0
    for other in (hingeline.load(tmp_path / "parser.hinge"), pickle.loads(pickle.dumps(parser))):
        assert other.predict(X) == parser.predict(X)
        assert other.duality_gap_ == parser.duality_gap_
        assert np.array_equal(other.weights_, parser.weights_)
    model = DependencySSVM(features=SMALL, tol=0.3, random_state=0)
    assert cross_val_score(model, X, y, cv=2).min() > 0.9


def test_a_file_that_is_not_whole_is_refused(parser, tmp_path):
    parser.save(tmp_path / "parser.hinge")
    raw = (tmp_path / "parser.hinge").read_bytes()
    broken = raw.replace(b'below_root\\":[false', b'below_root\\":[12345', 1)
    assert broken != raw
    (tmp_path / "parser.hinge").write_bytes(broken)
    with pytest.raises(ModelFileError):
        hingeline.load(tmp_path / "parser.hinge")


def test_words_in_other_forms(parser, treebank):
    X, y = treebank
    rows = [[tuple(word.values()) for word in s] for s in X]
    columns = ArcFeatures(columns=("form", "upos", "xpos"), arc_bits=10, label_bits=8)
    again = DependencySSVM(features=columns, tol=0.05, random_state=0).fit(rows, y)
    assert np.array_equal(again.weights_, parser.weights_)
    forms = [[word["form"] for word in s] for s in X]
    plain = DependencySSVM(features=SMALL, tol=0.1, random_state=0).fit(forms, y)
    assert plain.encoder_.tags_ == []
    assert plain.score(forms, y) > 0.9
    tree, value = plain.predict_nbest(forms[:1], 1)[0][0]
    weights = [w for t, arc in enumerate(tree) for w in plain.arc_weights(forms[0], t + 1, *arc)]
    assert value == pytest.approx(sum(w.weight for w in weights), abs=1e-9)
    assert parser.predict([*X[:1], [], *X[1:2]]) == [
        *parser.predict(X[:1]),
        [],
        *parser.predict(X[1:2]),
    ]
    assert parser.predict_nbest([[]], 2) == [[]]
    assert parser.predict([]) == parser.predict_nbest([], 2) == []
    with pytest.raises(ValueError, match="X has no words: there is nothing to score"):
        parser.score([], [])


WORD = [{"form": "a", "upos": "X"}, {"form": "b", "upos": "X"}]


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (
            [WORD],
            [[(0, "root"), (3, "x")]],
            r"y\[0\]\[1\] has the head 3, but the sentence has 2 words",
        ),
        ([WORD], [[(0, "root"), (-1, "x")]], r"y\[0\]\[1\] has the head -1"),
        ([WORD], [[(0, "root"), (2, "x")]], r"y\[0\]\[1\] has the head 2"),
        ([WORD], [[(2, "x"), (1, "x")]], r"y\[0\] is not a tree: the heads above word 1 form"),
        ([WORD], [[(0, "root"), (0, "root")]], r"y\[0\] has 2 words with the head 0"),
        ([WORD], [[(0, "root")]], r"y\[0\] has 1 words and X\[0\] has 2"),
        ([WORD, []], [[(0, "r"), (1, "x")], []], r"X\[1\] is an empty sentence: drop it"),
        ([], [], "X is empty"),
        (WORD, [[(0, "root")]], r"X\[0\] is a word, not a sentence: pass \[X\]"),
        ([[{"word": "a"}]], [[(0, "root")]], "columns among word: call them form"),
        ([WORD], [], "X has 1 sentences and y has 0 trees"),
        (
            [[*WORD, {"form": "c"}]],
            [[(0, "r"), (1, "x"), (1, "x")]],
            r"X\[0\]\[2\] is .* keys form",
        ),
        ([[("a", "X")]], [[(0, "root")]], "words have 2 columns, but columns= names 5"),
    ],
)
def test_bad_trees_and_sentences(X, y, message):
    with pytest.raises(ValueError, match=message):
        DependencySSVM().fit(X, y)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"projective": "maybe"}, "projective must be True, False, 'auto' or 'prediction'"),
        ({"loss": "hamming"}, "loss"),
        ({"slack": "squared"}, "no exact oracle for DependencySSVM"),
        ({"features": ArcFeatures(["h.word"])}, "names the column 'word': words have form"),
        ({"features": ArcFeatures(["head.form"])}, "has the part 'head.form'"),
        ({"features": ArcFeatures(between="form2")}, "there is no column 'form2'"),
        ({"features": ArcFeatures(arc_bits=40)}, "arc_bits must be an integer from 1 to 28"),
        ({"C": -1.0}, "C"),
    ],
)
def test_bad_parameters(parameters, message):
    with pytest.raises(ValueError, match=message):
        DependencySSVM(**parameters).fit([WORD], [[(0, "root"), (1, "x")]])


def test_bad_types(treebank):
    X, y = treebank
    with pytest.raises(TypeError, match="features must be an ArcFeatures"):
        DependencySSVM(features="all").fit(X, y)
    with pytest.raises(TypeError, match=r"y\[0\]\[0\] is 3: it must be a pair"):
        DependencySSVM().fit(X, [[3] * len(tree) for tree in y])
    with pytest.raises(NotFittedError):
        DependencySSVM().predict(X)


CONLLU = """# text = vámonos al mar
1-2\tvámonos\t_\t_\t_\t_\t_\t_\t_\tMulti=Yes
1\tvamos\tir\tVERB\t_\t_\t0\troot\t_\t_
2\tnos\tnosotros\tPRON\t_\t_\t1\tobj\t_\t_
2.1\tya\tya\tADV\t_\t_\t_\t_\t1:advmod\t_
3-4\tal\t_\t_\t_\t_\t_\t_\t_\t_
3\ta\ta\tADP\t_\t_\t5\tcase\t_\t_
4\tel\tel\tDET\t_\t_\t5\tdet\t_\t_
5\tmar\tmar\tNOUN\t_\t_\t1\tobl:to\t_\tSpaceAfter=No

"""


def test_conllu_in_and_out(tmp_path):
    document = read_conllu(io.StringIO(CONLLU))
    trees = document.trees()
    assert trees == [[(0, "root"), (1, "obj"), (5, "case"), (5, "det"), (1, "obl:to")]]
    model = DependencySSVM(C=1.0, features=SMALL, random_state=0).fit(document.table, trees)
    path = tmp_path / "out.conllu"
    write_conllu(path, document.with_trees(model.predict(document.table)))
    assert path.read_text() == CONLLU
    write_conllu(path, document.with_trees([[(2, "x"), (0, "y"), (2, "x"), (2, "x"), (2, "x")]]))
    changed, lines = Path(path).read_text().splitlines(), CONLLU.splitlines()
    assert [a for a, b in zip(changed, lines, strict=True) if a == b] == [
        line for line in lines if not line.split("\t")[0].isdigit()
    ]
    blank = read_conllu(io.StringIO(CONLLU.replace("\t5\tdet", "\t_\t_")))
    with pytest.raises(ValueError, match="the head of word 4 of sentence 1 is '_'; write"):
        blank.trees()


def test_attachment_as_the_evaluation_of_2018_counts():
    truth = [[(2, "nsubj:pass"), (0, "root"), (2, "punct")], [(0, "root")]]
    found = [[(2, "nsubj"), (0, "root"), (1, "punct")], [(0, "x")]]
    scores = attachment_scores(truth, found)
    assert scores == (0.75, 0.5, 0.25, 4)
    words = [[True, True, False], [True]]
    assert attachment_scores(truth, found, words) == pytest.approx((1.0, 2 / 3, 1 / 3, 3))
    with pytest.raises(ValueError, match="tree 0 has 3 words"):
        attachment_scores(truth, [[], []])


def test_pictures():
    words, tree = ["I", "<saw>", "it", "today"], [(2, "nsubj"), (0, "root"), (2, "obj"), (2, "adv")]
    assert draw_parse(words, tree).splitlines() == [
        "    ┌─► I      nsubj",
        "┌─┬─┴── <saw>  root",
        "│ └───► it     obj",
        "└─────► today  adv",
    ]
    svg = draw_parse(words, tree, "svg")
    assert svg.count("<path d=") == 1 + len(words)
    assert "&lt;saw&gt;" in svg
    assert "<saw>" not in svg
    with pytest.raises(ValueError, match="word 2 has the head 2"):
        draw_parse(["a", "b"], [(0, "r"), (2, "x")])
    with pytest.raises(ValueError, match="format"):
        draw_parse(words, tree, "png")


@pytest.mark.data
@pytest.mark.slow
def test_a_part_of_the_english_treebank():
    """500 sentences of UD English EWT; all of them are in benchmarks/dependencies.py."""
    folder = os.environ.get("HINGELINE_DATA")
    if not folder:
        pytest.skip("HINGELINE_DATA is not set")
    file = f"{folder}/ud_english_ewt/en_ewt-ud-%s.conllu.gz"
    train, dev = (read_conllu(file % part) for part in ("train", "dev"))
    model = DependencySSVM(projective="prediction", tol=0.05, random_state=0)
    model.fit(train.table[:500], train.trees()[:500])
    assert model.duality_gap_ <= 0.05 * model.primal_objective_
    scores = attachment_scores(dev.trees(), model.predict(dev.table))
    assert scores.uas > 0.75
    assert scores.las > 0.70
