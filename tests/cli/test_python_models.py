"""Models that were saved in Python, without a word on files, at the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp

from cli.commands import done, refused, write
from hingeline import SSVM, ChainSSVM, Graph, GraphSSVM, MulticlassSSVM
from hingeline.data import write_crfsuite, write_svmhmm, write_svmlight
from hingeline.features import TokenTemplates
from hingeline.features.tables import SparseSequences

WORDS = [["Ann", "ran"], ["Bob", "sat", "Eve"], ["the", "Ann"]] * 8
LABELS = [["B-PER" if word in ("Ann", "Bob", "Eve") else "O" for word in s] for s in WORDS]


def accuracy(model, file, *options):
    return json.loads(done("evaluate", model, file, "--json", *options))["token_accuracy"]


def test_words(tmp_path):
    model, file = tmp_path / "m.hinge", tmp_path / "test.txt"
    ChainSSVM(features=TokenTemplates(["0[0]"])).fit(WORDS, LABELS).save(model)
    pairs = [zip(*both, strict=True) for both in zip(WORDS, LABELS, strict=True)]
    write(file, "\n".join("".join(f"{w} {t}\n" for w, t in s) for s in pairs))
    assert accuracy(model, file) == 1.0
    plain = write(tmp_path / "plain.txt", "\n".join("\n".join(s) + "\n" for s in WORDS))
    assert done("predict", model, plain).splitlines()[0].split() == ["Ann", "B-PER"]


def test_dicts(tmp_path):
    model, file = tmp_path / "m.hinge", tmp_path / "test.crfsuite"
    X = [[{"word": word} for word in sentence] for sentence in WORDS]
    ChainSSVM().fit(X, LABELS).save(model)
    write_crfsuite(file, X, LABELS)
    assert accuracy(model, file) == 1.0
    words = write(tmp_path / "test.conll", "Ann O\nran O\n\nBob O\nsat O\n" * 5)
    said = refused("predict", model, words)
    assert "holds columns of words (conll), but the model takes sequences" in said


@pytest.mark.parametrize("format", ["auto", "svmhmm"])
def test_numbers(tmp_path, format):
    model, file = tmp_path / "m.hinge", tmp_path / "test.svmhmm"
    vocabulary = sorted({word for sentence in WORDS for word in sentence})
    rows = np.array([[word == w for w in vocabulary] for s in WORDS for word in s], dtype=float)
    offsets = np.cumsum([0, *map(len, WORDS)])
    X = SparseSequences(sp.csr_matrix(rows), offsets)
    ChainSSVM(C=10.0).fit(X, LABELS).save(model)
    write_svmhmm(file, X, LABELS)
    assert accuracy(model, file, "--format", format) == 1.0


def test_rows(tmp_path):
    model, file = tmp_path / "m.hinge", tmp_path / "test.svmlight"
    X, y = np.array([[1.0, 0.0], [0.0, 1.0]] * 10), np.array([1, 2] * 10)
    MulticlassSSVM().fit(X, y).save(model)
    write_svmlight(file, X, y)
    assert done("predict", model, file).split() == [str(label) for label in y]


@pytest.mark.parametrize("command", ["info", "report", "predict"])
def test_models_of_own_structures_are_for_python(tmp_path, command, python_multiclass):
    model, data = tmp_path / "m.hinge", write(tmp_path / "test", "a O\n")
    X, y = [*np.eye(3)], [0, 1, 2]
    SSVM(python_multiclass(), max_iter=2, tol=0.5).fit(X, y).save(model)
    said = refused(command, model, *([data] if command == "predict" else []))
    what = f"{model} holds the weights of a structure of your own, not its code"
    assert said == f"{what}: use it in Python."


@pytest.mark.parametrize("options", [(), ("--nbest", "2"), ("--margin",)])
def test_models_of_graphs_are_for_python(tmp_path, options):
    model = tmp_path / "m.hinge"
    graphs = [Graph(np.eye(2), [(0, 1)]), Graph(-np.eye(2), [(0, 1)])]
    GraphSSVM(solver="sdm").fit(graphs, [[0, 1], [1, 0]]).save(model)
    file = write(tmp_path / "test.svmhmm", "0 qid:1 1:1\n1 qid:1 2:1\n")
    said = refused("predict", model, file, *options)
    assert "model of graphs" in said
    assert "in Python" in said
