"""Train, predict and evaluate on files of every format."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

import hingeline
from cli.commands import (
    TAGS,
    conll,
    conllu,
    crfsuite,
    done,
    idx,
    labels_of,
    letters,
    refused,
    sentences,
    svmhmm,
    svmlight,
    write,
)
from hingeline.evaluation.calibration import CalibratedChain

TRAIN, TEST = sentences(40, 0), sentences(15, 1)
TRUE = labels_of(TEST)
NUMBERS = [str(TAGS[tag]) for tag in TRUE]
LETTERS = ["abcd"[TAGS[tag] - 1] for tag in TRUE]


def last_column(text):
    return [line.split()[-1] for line in text.splitlines() if line]


def upos(text):
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [line.split("\t")[3] for line in lines]


def one_each(text):
    return [line for line in text.splitlines() if line]


#: Format -> name of the file, its content, how labels are read from what predict writes, truth.
CASES = {
    "conll, two columns": ("{}.conll", lambda d: conll(d, 0, 2), last_column, TRUE),
    "conll, three columns": ("{}.txt", lambda d: conll(d, 0, 1, 2), last_column, TRUE),
    "conll, gzipped": ("{}.conll.gz", lambda d: conll(d, 0, 1, 2), last_column, TRUE),
    "conllu": ("{}.conllu", conllu, upos, TRUE),
    "crfsuite": ("{}.crfsuite", crfsuite, one_each, TRUE),
    "svmhmm": ("{}.svmhmm", svmhmm, one_each, NUMBERS),
    "svmlight": ("{}.svm", svmlight, one_each, NUMBERS),
    "letters": ("{}.data", letters, one_each, LETTERS),
}


def spans(tags):
    """Spans of IOB2 tags, which are all valid here."""
    found, start = set(), None
    for t, tag in enumerate([*tags, "O"]):
        if start is not None and not tag.startswith("I-"):
            found.add((start, t, tags[start][2:]))
            start = None
        if tag.startswith("B-"):
            start = t
    return found


@pytest.mark.parametrize("case", CASES)
def test_round_trip(case, tmp_path):
    name, content, parse, truth = CASES[case]
    train = write(tmp_path / name.format("train"), content(TRAIN))
    test = write(tmp_path / name.format("test"), content(TEST))
    model, output = tmp_path / "m.hinge", tmp_path / "predicted"
    result = json.loads(done("train", train, "--model", model, "--json"))
    assert result["converged"]
    assert 0.0 <= result["relative_gap"] <= 0.05
    assert done("predict", model, test, "-o", output) == ""
    predicted = parse(output.read_text())
    assert len(predicted) == len(truth)
    right = np.mean([a == b for a, b in zip(predicted, truth, strict=True)])
    assert right > 0.75
    assert done("predict", model, test) == output.read_text()
    scores = json.loads(done("evaluate", model, test, "--json"))
    assert scores["token_accuracy"] == pytest.approx(right)
    assert {row["label"]: row["support"] for row in scores["per_label"]} == {
        label if case != "svmlight" else int(label): truth.count(label) for label in set(truth)
    }
    assert sorted(tmp_path.iterdir()) == sorted([train, test, model, output])


def test_the_output_is_the_input_and_a_column(tmp_path):
    train = write(tmp_path / "train.conll", conll(TRAIN, 0, 1, 2))
    test = write(tmp_path / "test.conll", conll(TEST, 0, 1, 2))
    done("train", train, "-m", tmp_path / "m.hinge")
    lines = done("predict", tmp_path / "m.hinge", test).splitlines()
    before = test.read_text().splitlines()
    assert [line.rsplit(" ", 1)[0] if line else "" for line in lines] == before
    with_margin = done("predict", tmp_path / "m.hinge", test, "--margin").splitlines()
    assert [line.rsplit(" ", 1)[0] if line else "" for line in with_margin] == lines
    assert min(float(line.split()[-1]) for line in with_margin if line) >= 0.0


@pytest.mark.slow
def test_spans_are_counted_as_by_hand(tmp_path):
    train = write(tmp_path / "train.conll", conll(TRAIN, 0, 2))
    test = write(tmp_path / "test.conll", conll(TEST, 0, 2))
    done("train", train, "-m", tmp_path / "m.hinge", "--scheme", "IOB2")
    blocks = done("predict", tmp_path / "m.hinge", test).strip().split("\n\n")
    true, found, common = 0, 0, 0
    for block, rows in zip(blocks, TEST, strict=True):
        a, b = spans([row[2] for row in rows]), spans(last_column(block))
        true, found, common = true + len(a), found + len(b), common + len(a & b)
    scores = json.loads(done("evaluate", tmp_path / "m.hinge", test, "--json"))
    assert scores["scheme"] == "IOB2"
    assert scores["span_precision"] == pytest.approx(common / found)
    assert scores["span_recall"] == pytest.approx(common / true)
    assert scores["span_f1"] == pytest.approx(2 * common / (found + true))
    text = done("evaluate", tmp_path / "m.hinge", test, "--confusion", "--labels")
    assert f"span f1            {scores['span_f1']:.4f}" in text
    for row in scores["per_type"]:
        assert f"{row['type']}  " in text


@pytest.mark.parametrize("columns", [(0, 2), (0, 1, 2)])
def test_a_file_without_labels(columns, tmp_path):
    train = write(tmp_path / "train.conll", conll(TRAIN, *columns))
    labelled = write(tmp_path / "test.conll", conll(TEST, *columns))
    bare = write(tmp_path / "bare.conll", conll(TEST, *columns[:-1]))
    model = tmp_path / "m.hinge"
    done("train", train, "-m", model)
    predicted = done("predict", model, bare)
    assert last_column(predicted) == last_column(done("predict", model, labelled))
    assert len(predicted.split("\n")[0].split()) == len(columns)
    assert "no labels to compare with" in refused("evaluate", model, bare)


def test_conllu_keeps_everything_else(tmp_path):
    train = write(tmp_path / "train.conllu", conllu(TRAIN))
    bare = write(tmp_path / "bare.conllu", conllu(TEST, upos=False))
    model = tmp_path / "m.hinge"
    done("train", train, "-m", model)
    predicted = done("predict", model, bare)
    assert "_" not in upos(predicted)
    for line, before in zip(predicted.split("\n"), bare.read_text().split("\n"), strict=True):
        fields = line.split("\t")
        assert "\t".join([*fields[:3], "_", *fields[4:]] if len(fields) > 1 else fields) == before
    # Labels that are missing are no labels.
    assert "no labels to compare with" in refused("evaluate", model, bare)
    assert "no labels to learn from" in refused("train", bare, "-m", tmp_path / "n.hinge")
    # Another column can be learnt.
    done("train", train, "-m", model, "--label", "xpos", "--use", "form,upos")
    scores = json.loads(done("evaluate", model, train, "--json"))
    assert {row["label"] for row in scores["per_label"]} == {"N", "V"}


def test_idx(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 80)
    X = rng.integers(0, 60, (80, 4, 3))
    X[np.arange(80), y] += 100
    for name, part in (("train", slice(60)), ("t10k", slice(60, None))):
        write(tmp_path / f"{name}-images-idx3-ubyte", idx(X[part]))
        write(tmp_path / f"{name}-labels-idx1-ubyte", idx(y[part]))
    model = tmp_path / "m.hinge"
    done("train", tmp_path / "train-images-idx3-ubyte", "-m", model)
    test = tmp_path / "t10k-images-idx3-ubyte"
    predicted = done("predict", model, test).split()
    assert predicted == [str(label) for label in y[60:]]
    assert json.loads(done("evaluate", model, test, "--json"))["token_accuracy"] == 1.0
    # Images alone can be labelled, but not learnt from.
    alone = write(tmp_path / "images", test.read_bytes())
    assert done("predict", model, alone).split() == predicted
    assert "no labels to compare" in refused("evaluate", model, alone)
    assert "labels-idx1-ubyte" in refused("train", alone, "-m", tmp_path / "n.hinge")


@pytest.mark.parametrize("content", [svmhmm, svmlight])
def test_features_keep_their_numbers(content, tmp_path):
    """Whether numbers begin at 0 is seen in the training file; a test file may lack its 0."""
    model = tmp_path / "m.hinge"
    expected = None
    for first in (0, 1):
        train = write(tmp_path / "train", content(TRAIN, first))
        assert (" 0:1 " in train.read_text()) == (first == 0)
        done("train", train, "-m", model)
        lines = content(TEST, first).splitlines(keepends=True)
        # The word of the lowest number is left out, and features that training has not seen come.
        kept = [line for line in lines if f" {first}:1 " not in line]
        assert 0 < len(kept) < len(lines)
        test = write(tmp_path / "test", "".join(line[:-1] + " 90:1\n" for line in kept))
        predicted = done("predict", model, test)
        expected = expected or predicted
        assert predicted == expected
        assert json.loads(done("evaluate", model, test, "--json"))["token_accuracy"] > 0.8
    # An index 0 that training has not seen is a feature that training has not seen.
    plain = write(tmp_path / "test", content(TEST, 1))
    expected = done("predict", model, plain)
    head = 2 if content is svmhmm else 1
    rows = [line.split() for line in plain.read_text().splitlines()]
    more = "".join(" ".join([*row[:head], "0:5", *row[head:]]) + "\n" for row in rows)
    assert done("predict", model, write(tmp_path / "test", more)) == expected


def test_the_file_is_what_the_library_loads(tmp_path):
    train = write(tmp_path / "train.crfsuite", crfsuite(TRAIN))
    done("train", train, "-m", tmp_path / "m.hinge", "-C", 0.3)
    model = hingeline.load(tmp_path / "m.hinge")
    tokens = [[{f"w={word}": 1.0, "size": len(word) / 5} for word, _, _ in rows] for rows in TEST]
    write(tmp_path / "test.crfsuite", crfsuite(TEST))
    predicted = one_each(done("predict", tmp_path / "m.hinge", tmp_path / "test.crfsuite"))
    assert predicted == [label for labels in model.predict(tokens) for label in labels]
    # A model of the library's own does not know its files: they tell by themselves.
    model.save(tmp_path / "plain.hinge")
    arguments = ("predict", tmp_path / "plain.hinge", tmp_path / "test.crfsuite")
    assert one_each(done(*arguments)) == predicted
    assert one_each(done(*arguments, "--format", "crfsuite")) == predicted


def test_best_labellings(tmp_path):
    train = write(tmp_path / "train.conll", conll(TRAIN, 0, 2))
    test = write(tmp_path / "test.conll", conll(TEST, 0))
    done("train", train, "-m", tmp_path / "m.hinge")
    text = done("predict", tmp_path / "m.hinge", test, "--nbest", 3)
    heads = [line.split() for line in text.splitlines() if line.startswith("#")]
    assert len(heads) == 3 * len(TEST)
    scores = [float(head[-1]) for head in heads]
    assert all(a >= b for k, (a, b) in enumerate(itertools.pairwise(scores)) if k % 3 < 2)
    first = [block for block in text.split("\n\n") if " rank 1 " in block]
    tags = [line.split("\t")[1] for block in first for line in block.splitlines()[1:]]
    assert tags == last_column(done("predict", tmp_path / "m.hinge", test))


def test_a_calibrated_model_says_how_likely_it_is_right(tmp_path):
    train, dev, test = (tmp_path / name for name in ("train.conll", "dev.conll", "test.conll"))
    for path, data in ((train, TRAIN), (dev, sentences(30, 2)), (test, TEST)):
        write(path, conll(data, 0, 2))
    model = tmp_path / "m.hinge"
    done("train", train, "--model", model, "--keep-state")
    plain = done("predict", model, test)
    assert "learns it from held-out data" in refused("predict", model, test, "--probability")
    assert "probabilities from 30 sequences" in done("calibrate", model, dev, "--model", model)
    assert done("predict", model, test) == plain
    lines = done("predict", model, test, "--probability").splitlines()
    assert [line.rsplit(" ", 1)[0] if line else "" for line in lines] == plain.splitlines()
    found = [float(line.split()[-1]) for line in lines if line]
    calibrated = CalibratedChain.load(model)
    X = [[(word,) for word, *_ in sentence] for sentence in TEST]
    assert found == pytest.approx(np.concatenate(calibrated.predict_proba_tokens(X)), abs=6e-5)
    assert "cannot be combined" in refused("predict", model, test, "--probability", "--margin")
    done("report", model, "--test", test, "-o", tmp_path / "m.html")
    assert "Share of right labels by probability" in (tmp_path / "m.html").read_text()
    done("update", model, dev, "--model", model)  # the training state is still there
