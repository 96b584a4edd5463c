"""Bracketed trees: shapes, depth, errors by line, round trips."""

from __future__ import annotations

import copy
import io
import os
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hingeline.data import ParseError, Tree, iter_trees, read_trees, write_trees

MANY = settings(max_examples=50, deadline=None, derandomize=True)

PENN = """
( (S
    (NP-SBJ (NNP Vinken) )
    (VP (VBZ is)
      (NP (NN chairman)))
    (. .) ))
(X (A b))(Y c)
"""


def read(text):
    return read_trees(io.StringIO(text))


def test_trees_over_lines_and_on_one_line():
    trees = read(PENN)
    assert [str(tree) for tree in trees] == [
        "(S (NP-SBJ (NNP Vinken)) (VP (VBZ is) (NP (NN chairman))) (. .))",
        "(X (A b))",
        "(Y c)",
    ]
    sentence = trees[0]
    assert sentence.label == "S"
    assert [child.label for child in sentence.children] == ["NP-SBJ", "VP", "."]
    assert sentence.leaves() == [("Vinken", "NNP"), ("is", "VBZ"), ("chairman", "NN"), (".", ".")]
    assert [node.label for node in sentence.nodes()][:3] == ["S", "NP-SBJ", "NNP"]
    assert trees[2].word == "c"
    assert read("") == []


def test_trees_come_one_by_one():
    source = iter_trees(io.StringIO("(A b)\n(A c)\n)"))
    assert next(source) == Tree("A", word="b")
    assert next(source) == Tree("A", word="c")
    with pytest.raises(ParseError, match=":3: a closing bracket"):
        next(source)


names = st.text(
    st.characters(codec="utf-8", exclude_characters=" \t\n\r\v\f()\ufeff"), min_size=1, max_size=5
)
trees = st.recursive(
    st.builds(lambda label, word: Tree(label, word=word), names, names),
    lambda inner: st.builds(Tree, names, st.lists(inner, min_size=1, max_size=3)),
    max_leaves=12,
)


@MANY
@given(st.lists(trees, max_size=4))
def test_round_trip(given_trees):
    out = io.BytesIO()
    write_trees(out, given_trees)
    assert read_trees(io.BytesIO(out.getvalue())) == given_trees
    spread = out.getvalue().replace(b" (", b"\n  (").replace(b")", b" )\r\n")
    assert read_trees(io.BytesIO(spread)) == given_trees


@MANY
@given(trees, trees)
def test_equality_is_that_of_the_text(a, b):
    assert (a == b) == (str(a) == str(b))
    assert copy.deepcopy(a) == pickle.loads(pickle.dumps(a)) == a
    assert hash(copy.deepcopy(a)) == hash(a)


def test_depth_is_no_problem(tmp_path):
    depth = 20_000
    text = "(a " * depth + "x" + ")" * depth
    (tree,) = read(text)
    assert str(tree) == text
    assert tree == read(text)[0]
    assert hash(tree) == hash(pickle.loads(pickle.dumps(tree)))
    assert repr(tree).startswith("<Tree (a (a (a")
    assert len(repr(tree)) < 80
    write_trees(tmp_path / "deep", [tree])
    assert read_trees(tmp_path / "deep") == [tree]
    del tree


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("(A b)\n(S (A b)\n", 2, "an opening bracket is never closed; add ')'"),
        ("(S\n(A b)\n(B\n", 3, "an opening bracket is never closed"),
        ("(A b))\n", 1, "a closing bracket has no opening one; remove it or add '('"),
        ("(A b)\nword (A b)", 2, "'word' is outside brackets; is this a file of trees?"),
        ("\n()\n", 2, "the brackets are empty; give every node a label and a word or children"),
        ("(NP)\n", 1, "'NP' has no word; give every node"),
        ("(A b c)\n", 1, "the word 'c' stands next to other parts of its node; give every word"),
        ("(A (B c) d)\n", 1, "the word 'd' stands next to other parts"),
        ("(A b\n(C d))\n", 2, "the word 'b' stands next to other parts"),
        ("(S ( (A b)))\n", 1, "a node has no label; only a bracket around a whole tree"),
        ("( (A b)\n(A c))\n", 2, "a node has no label"),
        ("(" * 100_000, 1, "an opening bracket is never closed"),
    ],
)
def test_errors_name_the_line(text, line, problem):
    with pytest.raises(ParseError) as caught:
        read(text)
    assert caught.value.problem.startswith(problem)
    assert caught.value.line == line


def test_trees_do_not_change():
    tree = Tree("A", word="b")
    with pytest.raises(AttributeError, match=r"cannot (assign|delete)"):
        tree.label = "B"
    with pytest.raises(AttributeError, match=r"cannot (assign|delete)"):
        del tree.word
    for arguments in ({}, {"word": "x", "children": [tree]}):
        with pytest.raises(ValueError, match="must have either children or a word"):
            Tree("A", **arguments)
    assert tree != "(A b)"


@pytest.mark.parametrize("text", ["", "a b", "(", "a\n"])
def test_what_cannot_be_read_back_is_not_written(tmp_path, text):
    for tree in (Tree("A", word=text), Tree(text, [Tree("A", word="b")])):
        with pytest.raises(ValueError, match=r"tree 0 has .*write -LRB-"):
            write_trees(tmp_path / "out", [tree])
    assert os.listdir(tmp_path) == []
