"""Sets of labels on the command line."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
from sklearn.metrics import f1_score, hamming_loss

import hingeline
from cli.commands import conll, done, refused, run, sentences, write

NAMES = ["happy", "sad, very", "loud"]
FAST = ("-C", "1", "--edges", "tree", "--json")


def rows(n, seed):
    """Features that tell two labels; the third goes with the first."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 2, (n, 3)).astype(float)
    Y = np.column_stack([X[:, 0], X[:, 1], X[:, 0] * X[:, 2]]).astype(int)
    return X, Y


def arff(X, Y, order=(0, 1, 2, 3, 4, 5)):
    """Attributes in some order; 3 to 5 are the labels."""
    kinds = [f"@attribute {name} numeric" for name in "abc"]
    kinds += [f"@attribute '{name}' {{0,1}}" for name in NAMES]
    table = np.hstack([X, Y])
    lines = ["@relation r", *(kinds[k] for k in order), "@data"]
    lines += [",".join(f"{row[k]:g}" for k in order) for row in table]
    return "\n".join(lines) + "\n"


def libsvm(X, Y, first=1):
    lines = []
    for x, y in zip(X, Y, strict=True):
        pairs = " ".join(f"{k + first}:{v:g}" for k, v in enumerate(x) if v)
        lines.append(f"{','.join(map(str, np.flatnonzero(y)))} {pairs}\n")
    return "".join(line if line.strip() else f" {first}:0\n" for line in lines)


XML = "<labels>" + "".join(f'<label name="{name}"></label>' for name in NAMES) + "</labels>\n"
TRAIN, TEST = rows(60, 0), rows(25, 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of both formats, and a model of each."""
    path = tmp_path_factory.mktemp("sets")
    write(path / "mood.xml", XML)
    write(path / "mood-train.arff", arff(*TRAIN))
    write(path / "mood-test.arff.gz", arff(*TEST))
    write(path / "train.svm", libsvm(*TRAIN))
    write(path / "test.svm", libsvm(*TEST))
    for name, file in (("arff", "mood-train.arff"), ("svm", "train.svm")):
        found = json.loads(done("train", path / file, "-m", path / f"{name}.hinge", *FAST))
        assert found["relative_gap"] < 0.05
    return path


def indicators(text):
    """Predicted lines as indicators."""
    found = [[name in row for name in NAMES] for row in csv.reader(io.StringIO(text))]
    return np.array(found, dtype=int)


def test_predictions_are_those_of_python(folder):
    model = hingeline.load(folder / "arff.hinge")
    assert model.classes_.tolist() == NAMES
    assert model.get_params()["edges"] == "tree"
    fresh = hingeline.MultilabelSSVM(1.0, edges="tree", tol=0.05, random_state=0).fit(*TRAIN)
    expected = fresh.predict(TEST[0])
    text = done("predict", folder / "arff.hinge", folder / "mood-test.arff.gz")
    assert len(text.splitlines()) == len(expected)
    np.testing.assert_array_equal(indicators(text), expected)
    assert {1, 2} <= set(expected.sum(axis=1).tolist())
    assert "" in text.splitlines()  # the empty set
    numbers = done("predict", folder / "svm.hinge", folder / "test.svm").splitlines()
    wanted = [",".join(map(str, np.flatnonzero(row))) for row in expected]
    assert numbers == wanted


def test_evaluate(folder):
    arguments = ("evaluate", folder / "arff.hinge", folder / "mood-test.arff.gz")
    found = json.loads(done(*arguments, "--json"))
    predicted = indicators(done("predict", *arguments[1:]))
    assert found["rows"] == 25
    assert found["hamming_loss"] == pytest.approx(hamming_loss(TEST[1], predicted))
    assert found["hamming_loss"] < 0.2
    each = f1_score(TEST[1], predicted, average=None, zero_division=0.0)
    assert [found["by_label"][name]["f1"] for name in NAMES] == pytest.approx(each.tolist())
    assert found["macro_f1"] == pytest.approx(each.mean())
    text = done(*arguments)
    assert f"hamming loss     {found['hamming_loss']:.4f}" in text
    assert "loud" not in text
    assert "loud" in done(*arguments, "--labels")
    other = json.loads(done("evaluate", folder / "svm.hinge", folder / "test.svm", "--json"))
    assert other["example_f1"] == pytest.approx(found["example_f1"])
    mixed = json.loads(
        done("evaluate", folder / "arff.hinge", folder / "test.svm", "-f", "multilabel", "--json")
    )
    assert mixed["by_label"] == found["by_label"]


def test_attributes_are_found_by_name_and_labels_may_be_missing(folder, tmp_path):
    expected = done("predict", folder / "arff.hinge", folder / "mood-test.arff.gz")
    turned = write(tmp_path / "other.arff", arff(*TEST, order=(4, 2, 0, 5, 1, 3)))
    assert done("predict", folder / "arff.hinge", turned) == expected
    bare = arff(*TEST, order=(0, 1, 2))
    assert done("predict", folder / "arff.hinge", "-", input=bare) == expected
    file = write(tmp_path / "bare.arff", bare)
    assert "no labels" in refused("evaluate", folder / "arff.hinge", file)
    file = write(tmp_path / "some.arff", arff(*TEST, order=(0, 1, 2, 3)))
    assert "but not sad, very" in refused("predict", folder / "arff.hinge", file)
    file = write(tmp_path / "less.arff", arff(*TEST, order=(0, 1, 3, 4, 5)))
    assert "has no attribute c" in refused("predict", folder / "arff.hinge", file)


def test_features_that_count_from_0(folder, tmp_path):
    write(tmp_path / "train.svm", libsvm(*TRAIN, first=0))
    done("train", tmp_path / "train.svm", "-m", tmp_path / "m.hinge", *FAST)
    only = write(tmp_path / "test.svm", "0 1:1\n")  # the second feature
    assert done("predict", tmp_path / "m.hinge", only) == "1\n"


def test_labels_file_by_option(folder, tmp_path):
    file = write(tmp_path / "rows.arff", arff(*TRAIN))
    arguments = ("train", file, "-m", tmp_path / "m.hinge", *FAST)
    assert "rows.xml" in refused(*arguments)
    done(*arguments, "--label", folder / "mood.xml")
    first = hingeline.load(tmp_path / "m.hinge")
    done("train", "-", *arguments[2:], "--label", "-3", input=arff(*TRAIN))
    second = hingeline.load(tmp_path / "m.hinge")
    assert second.classes_.tolist() == NAMES
    np.testing.assert_array_equal(first.weights_, second.weights_)


def test_grid_on_held_out_rows(folder, tmp_path):
    found = json.loads(
        done(
            "train", folder / "mood-train.arff", "-m", tmp_path / "m.hinge", "--edges", "none",
            "--no-scale", "--grid", "C=0.0001,1", "--dev", folder / "mood-test.arff.gz", "--json",
        )
    )  # fmt: skip
    assert found["C"] == 1.0
    assert found["tried"][0]["dev"] < found["tried"][1]["dev"]
    assert len(hingeline.load(tmp_path / "m.hinge").edges_) == 0


def test_one_label(tmp_path):
    X, Y = TRAIN
    file = write(tmp_path / "one.svm", libsvm(X, Y[:, :1]))
    options = ("-m", tmp_path / "m.hinge", "-f", "multilabel", "-C", "1", "--json")
    done("train", file, *options)
    lines = done("predict", tmp_path / "m.hinge", file).splitlines()
    assert lines == ["0" if y else "" for y in Y[:, 0]]
    assert json.loads(done("evaluate", tmp_path / "m.hinge", file, "--json"))["example_f1"] == 1.0


def test_info(folder):
    facts = json.loads(done("info", folder / "arff.hinge", "--json"))
    assert facts["labels"] == NAMES
    assert facts["pairs of labels"] == 2
    top = done("info", folder / "arff.hinge", "--top", 1)
    assert "\n  happy\ta\t+" in top  # as the attributes are called
    for option in (("--transitions",), ("--weights", folder / "w.tsv")):
        assert str(option[0]) in refused("info", folder / "arff.hinge", *option)


@pytest.mark.parametrize(
    "options",
    [
        ("--template", "t"), ("--columns", "a,b"), ("--use", "a"), ("--hash-bits", 8),
        ("--min-count", 2), ("--scheme", "IOB2"), ("--keep-state",), ("--rescale", "slack"),
        ("--violators", "all", "--slack", "sum"),
        ("--edges", "ring"),
    ],
)  # fmt: skip
def test_options_that_make_no_sense(folder, tmp_path, options):
    write(tmp_path / "t", "x\n")
    options = [str(tmp_path / "t") if o == "t" else o for o in options]
    said = refused("train", folder / "mood-train.arff", "-m", tmp_path / "m.hinge", *options)
    assert options[0].removeprefix("--") in said
    assert not (tmp_path / "m.hinge").exists()


def test_the_report_names_labels_as_the_file_does(folder, tmp_path):
    page = tmp_path / "mood.html"
    done("report", folder / "arff.hinge", "--test", folder / "mood-test.arff.gz", "-o", page)
    assert '<th scope="row"><bdi>sad, very</bdi>' in page.read_text()


def test_what_other_commands_refuse(folder, tmp_path):
    model, test = folder / "arff.hinge", folder / "mood-test.arff.gz"
    assert "hingeline explain does not support" in refused("explain", model, test)
    assert "--margin" in refused("predict", model, test, "--margin")
    for option in (("--strict",), ("--bootstrap", 9), ("--confusion",), ("--scheme", "IOB2")):
        assert str(option[0]) in refused("evaluate", model, test, *option)
    assert "--bootstrap" in refused("report", model, "--test", test, "--bootstrap", 9)
    assert "cannot learn from more data" in refused(
        "update", model, test, "-m", tmp_path / "m.hinge"
    )
    words = write(tmp_path / "train.conll", conll(sentences(5, 0), 0, 2))
    said = refused("train", words, "-m", tmp_path / "m.hinge", "--edges", "tree")
    assert said.startswith("--edges")


def test_bad_files(folder, tmp_path):
    file = write(tmp_path / "f", "7 1:1\n")
    said = refused("evaluate", folder / "svm.hinge", file)
    assert "label 7" in said
    assert str(file) in said
    file = write(tmp_path / "f", "0,1999999999 1:1\n1 2:1\n")
    assert "number them from 0" in refused("train", file, "-m", tmp_path / "m.hinge")
    file = write(
        tmp_path / "f.arff", arff(TEST[0], TEST[1]).replace("{0,1}", "{0,1,2}") + "0,0,0,2,0,0\n"
    )
    assert "row 26" in refused("evaluate", folder / "arff.hinge", file)
    model = hingeline.load(folder / "arff.hinge")
    layout = {**model.metadata_["layout"], "labels": ["a", "b"]}
    model.save(tmp_path / "m.hinge", metadata={"layout": layout})
    assert "makes no sense" in refused("predict", tmp_path / "m.hinge", file)


def test_a_model_that_was_saved_in_python(folder, tmp_path):
    hingeline.MultilabelSSVM(1.0, edges="tree").fit(*TRAIN).save(tmp_path / "m.hinge")
    lines = done("predict", tmp_path / "m.hinge", folder / "test.svm").splitlines()
    assert lines == done("predict", folder / "svm.hinge", folder / "test.svm").splitlines()


@pytest.mark.slow
def test_dense_tables_are_scaled(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3)) * [1e-3, 1.0, 1e4]
    Y = (X / [1e-3, 1.0, 1e4] > 0).astype(int)
    names = [*("@attribute a real", "@attribute b real", "@attribute c real")]
    names += [f"@attribute l{k} {{0,1}}" for k in range(3)]
    rows = [",".join([*(f"{v:.9g}" for v in x), *map(str, y)]) for x, y in zip(X, Y, strict=True)]
    file = write(tmp_path / "t.arff", "\n".join(["@relation r", *names, "@data", *rows, ""]))
    model = tmp_path / "m.hinge"
    result = run("train", file, "-m", model, "--label", "-3")
    assert result.exit_code == 0
    assert (
        "Columns far from size 1 are scaled, here and in predict; --no-scale leaves"
        in result.stderr
    )
    assert hingeline.load(model).scale is not False
    scores = json.loads(done("evaluate", model, file, "--json"))
    assert scores["hamming_loss"] < 0.05
    result = run("train", file, "-m", model, "--label", "-3", "--no-scale", "--max-iter", 5)
    assert "--no-scale" not in result.stderr
    assert hingeline.load(model).scale is False
