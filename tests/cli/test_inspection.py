"""explain, info, convert and import."""

from __future__ import annotations

import gzip
import json
import re
import sys

import numpy as np
import pytest

import hingeline
from cli.commands import (
    TAGS,
    conll,
    conllu,
    crfsuite,
    done,
    labels_of,
    refused,
    run,
    sentences,
    svmhmm,
    svmlight,
    write,
)
from hingeline.data import FORMATS

TRAIN, TEST = sentences(40, 0), sentences(15, 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model of tokens and one of rows, with their test files."""
    path = tmp_path_factory.mktemp("models")
    for name, content in (("t.conll", lambda d: conll(d, 0, 1, 2)), ("r.svm", svmlight)):
        write(path / f"train-{name}", content(TRAIN))
        write(path / name, content(TEST))
        done("train", path / f"train-{name}", "-m", path / f"{name[0]}.hinge")
    return path


# report -----------------------------------------------------------------------------------------


def test_the_report_says_what_the_command_says(folder, tmp_path):
    """One gap, the held-out file, early stopping as what it is, and numbers as of explain -s."""
    model, page = tmp_path / "m.hinge", tmp_path / "m.html"
    data, dev = folder / "t.conll", tmp_path / "dev.conll"
    dev.write_text(data.read_text().replace("O", "B-LOC"))
    result = json.loads(
        done("train", data, "-m", model, "--dev", dev, "--patience", 1, "--tol", "1e-9", "--json")
    )
    assert re.fullmatch(r"the held-out score .* on 0\.\d{4} for 1 pass", result["stop_reason"])
    assert "\n  dev: dev.conll " in done("info", model)
    done("report", model, dev, "-o", page)
    text = page.read_text()
    assert "Training ended before the gap was within tol: the held-out score" in text
    assert "held out" in text
    assert text.count("dev.conll") >= 2  # with what was held out, and tested on
    found = re.findall(r"(?:≤|at most)\s*([0-9.]+)\s*%", text)
    assert len(set(found)) == 1
    assert 0 <= float(found[0]) - 100 * result["relative_gap"] < 0.1 * float(found[0])  # a bound
    again = run("train", data, "-m", model, "--dev", dev, "--patience", 1, "--tol", "1e-9")
    assert f"certified gap {found[0]} % (" in again.stdout + again.stderr
    numbers = [int(n) for n in re.findall(r"Number (\d+):", text)]
    assert 0 not in numbers
    wrong = done("explain", model, dev, "-s", numbers[0])
    assert wrong
    assert "=<wbr>" in text  # a long name breaks after a sign


def test_two_models_in_one_report(folder, tmp_path):
    page, other = tmp_path / "page.html", tmp_path / "other.hinge"
    done("train", folder / "t.conll", "-m", other, "--max-iter", 1, "--quiet")
    data = folder / "t.conll"
    done("report", folder / "t.hinge", "--test", data, "--compare", other, "-o", page)
    assert "with other.hinge only" in page.read_text(encoding="utf-8")
    nowhere = tmp_path / "none" / "page.html"  # said before anything is read
    assert "--output: " in refused("report", folder / "t.hinge", "none.conll", "-o", nowhere)
    said = refused("report", folder / "t.hinge", "--compare", other, "-o", page)
    assert "--compare needs a labelled file" in said
    said = refused("report", folder / "t.hinge", data, "--test", data, "-o", page)
    assert said == "DATA and --test are the same: give one file."


def test_report(folder, tmp_path, monkeypatch):
    page = tmp_path / "page.html"
    assert str(page) in done("report", folder / "t.hinge", "--test", folder / "t.conll", "-o", page)
    assert "Most costly errors" in page.read_text(encoding="utf-8")
    monkeypatch.setitem(sys.modules, "jinja2", None)
    message = refused("report", folder / "t.hinge", "-o", tmp_path / "other.html")
    assert message.startswith("a report needs jinja2: install hingeline[plot]")
    assert not (tmp_path / "other.html").exists()


# explain ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "file", "k"), [("t.hinge", "t.conll", 3), ("r.hinge", "r.svm", 5)]
)
def test_explain(folder, model, file, k):
    lines = done("predict", folder / model, folder / file).split("\n\n" if k == 3 else "\n")
    predicted = [line.split()[-1] for line in lines[k - 1].splitlines()]
    arguments = ("explain", folder / model, folder / file, "--sequence", k)
    found = json.loads(done(*arguments, "--json"))
    assert found["chosen"] == predicted != found["other"]
    assert found["margin"] >= 0.0
    assert sum(row["contribution"] for row in found["rows"]) == pytest.approx(found["margin"])
    text = done(*arguments, "-n", 2)
    assert f"margin {found['margin']:.6g} = " in text
    assert found["rows"][0]["name"] in text
    assert f"and {len(found['rows']) - 2} more" in text


def test_features_that_are_numbers_are_those_of_the_file(folder):
    first = (folder / "r.svm").read_text().splitlines()[0].split()[1:]
    named = {f"feature {item.partition(':')[0]}" for item in first}
    rows = json.loads(done("explain", folder / "r.hinge", folder / "r.svm", "--json"))["rows"]
    assert {row["name"] for row in rows} <= {*named, "(constant)"}
    told = done("info", folder / "r.hinge", "--top", 3)
    assert "x0" not in told
    assert "layout: svmlight\n" in told
    judged = done("evaluate", folder / "r.hinge", folder / "r.svm", "--confusion")
    assert judged.startswith("accuracy  ")
    assert "token" not in judged


def test_features_are_numbered_from_0_as_in_the_file(tmp_path):
    file = write(tmp_path / "0.svm", "1 0:1 1:2\n2 0:-1 1:1\n" * 5)
    done("train", file, "-m", tmp_path / "0.hinge")
    rows = json.loads(done("explain", tmp_path / "0.hinge", file, "--json"))["rows"]
    assert {row["name"] for row in rows} <= {"feature 0", "feature 1", "(constant)"}


def test_explain_names_the_tokens(folder):
    text = done("explain", folder / "t.hinge", folder / "t.conll", "-s", 2)
    for word, _, _ in TEST[1]:
        assert word in text.split("\n\n")[0]
    message = refused("explain", folder / "t.hinge", folder / "t.conll", "-s", len(TEST) + 1)
    assert "--sequence" in message
    assert str(len(TEST)) in message


# info -------------------------------------------------------------------------------------------


def test_info(folder):
    model = hingeline.load(folder / "t.hinge")
    facts = json.loads(done("info", folder / "t.hinge", "--json"))
    assert facts["holds"] == "ChainSSVM"
    assert facts["labels"] == model.classes_.tolist()
    assert facts["features"] == model.n_features_in_
    assert facts["gap"] == model.duality_gap_ == pytest.approx(facts["primal"] - facts["dual"])
    assert facts["parameters"]["C"] == facts["C"] == model.C_
    assert facts["bytes"] == (folder / "t.hinge").stat().st_size
    assert facts["metadata"]["layout"]["format"] == "conll"
    text = done("info", folder / "t.hinge")
    assert "outputs found" not in text  # said of summed slack only
    assert "labels: B-LOC, B-PER, I-PER, O\n" in text
    assert "stopped: converged\n" in text
    assert "top features" not in text
    # What a person asks first: parameters that were set, the gap as a share; arrays if asked for.
    assert "  random_state: 0\n" in text
    assert "slack: max" not in text
    assert f"gap: {model.duality_gap_:.6g}, " in text
    assert "layout: conll, columns " in text
    assert "arrays:" not in text
    text = done("info", folder / "t.hinge", "--arrays")
    assert text.index("versions: ") < text.index("arrays:")
    assert "layout: svmlight\n" in done("info", folder / "r.hinge")  # rows have no columns


def test_info_tells_no_more_than_a_reader_wants(folder, tmp_path):
    """A pipe has no hash, and the curves of a calibration are for programs."""
    model = tmp_path / "m.hinge"
    done("train", "-", "-m", model, input=(folder / "t.conll").read_bytes())
    done("calibrate", model, folder / "t.conll", "-m", model)
    text = done("info", model)
    assert "\n  data: -\n" in text
    assert "\n  calibration: isotonic\n" in text
    facts = json.loads(done("info", model, "--json"))
    assert facts["metadata"]["calibration"]["tokens"]["margins"]
    assert "--bootstrap is for scores" in refused("report", model, "--bootstrap", 9)


def test_strongest_features_and_transitions(folder):
    model = hingeline.load(folder / "t.hinge")
    facts = json.loads(done("info", folder / "t.hinge", "--json", "--top", 1, "--transitions"))
    for k, label in enumerate(model.classes_):
        rows = [row for row in facts["top features"] if row[0] == label]
        weights = np.append(model.emission_coef_[k], model.intercept_[k])
        assert [row[2] for row in rows] == [weights.max(), weights.min()]
    moves = {(a, b): weight for a, b, weight in facts["transitions"]}
    index = model.classes_.tolist().index
    assert moves["B-PER", "I-PER"] == model.transition_coef_[index("B-PER"), index("I-PER")]
    assert moves["(start)", "O"] == model.start_coef_[index("O")]
    text = done("info", folder / "t.hinge", "--top", 1, "--transitions")
    assert f"B-PER\tI-PER\t{moves['B-PER', 'I-PER']:+.4f}" in text
    assert "no transitions" in refused("info", folder / "r.hinge", "--transitions")


@pytest.mark.parametrize("name", ["w.tsv", "w.tsv.gz"])
def test_all_weights(folder, name, tmp_path):
    model = hingeline.load(folder / "r.hinge")
    done("info", folder / "r.hinge", "--weights", tmp_path / name)
    content = (tmp_path / name).read_bytes()
    lines = (gzip.decompress(content) if name.endswith(".gz") else content).decode().splitlines()
    assert lines[0].split("\t") == ["block", "label", "feature", "weight"]
    rows = [line.split("\t") for line in lines[1:]]
    table = np.zeros_like(model.coef_)
    for block, label, feature, weight in rows:
        if block == "coef":
            table[model.classes_.tolist().index(int(label)), int(feature)] = float(weight)
    np.testing.assert_array_equal(table, model.coef_)
    message = refused("info", folder / "r.hinge", "--weights", tmp_path / "none" / name)
    assert message.endswith(f": there is no folder {tmp_path / 'none'}: make it first.")


def test_info_on_a_checkpoint(folder, tmp_path):
    from hingeline import ChainSSVM, Checkpoint

    X, y = [np.eye(3)] * 4, [["a", "b", "c"]] * 4
    ChainSSVM(tol=1e-6, callbacks=Checkpoint(tmp_path / "c", every=0)).fit(X, y)
    facts = json.loads(done("info", tmp_path / "c", "--json"))
    assert facts["holds"] == "checkpoint"
    assert facts["passes"] >= 1
    assert "passes: " in done("info", tmp_path / "c")
    assert "checkpoint" in refused("predict", tmp_path / "c", folder / "t.conll")
    assert "--top: " in refused("info", tmp_path / "c", "--top", 2)


# convert ----------------------------------------------------------------------------------------


def test_formats_are_listed():
    lines = done("convert", "--formats").splitlines()
    assert [line.split()[0] for line in lines] == list(FORMATS)


def test_there_and_back(tmp_path):
    source = write(tmp_path / "a.conll", conll(TEST, 0, 2))
    names = tmp_path / "names"
    done("convert", source, tmp_path / "a.svmhmm", "--vocabulary", names)
    numbers = [line.split()[0] for line in (tmp_path / "a.svmhmm").read_text().splitlines()]
    assert numbers == [str(TAGS[tag]) for tag in labels_of(TEST)]  # labels in sorted order
    back = done("convert", tmp_path / "a.svmhmm", "--to", "crfsuite", "--vocabulary", names)
    expected = "\n".join("".join(f"{tag}\tword={word}\n" for word, _, tag in rows) for rows in TEST)
    assert back == expected + "\n"
    # A test file gets the numbers of the training file.
    first = conll(TEST[3:4], 0, 2)
    done(
        "convert", write(tmp_path / "b.conll", first), tmp_path / "b.svmhmm", "--vocabulary", names
    )
    found = [line.split()[::2] for line in (tmp_path / "b.svmhmm").read_text().splitlines()]
    lines = (tmp_path / "a.svmhmm").read_text().splitlines()
    assert found == [line.split()[::2] for line in lines if " qid:4 " in line]


def test_conversions(tmp_path):
    source = write(tmp_path / "a.conll", conll(TEST, 0, 1, 2))
    done("convert", source, tmp_path / "a.conll.gz")
    assert gzip.decompress((tmp_path / "a.conll.gz").read_bytes()) == source.read_bytes()
    assert done("convert", source, "-t", "conll", "--columns", "word,2") == conll(TEST, 0, 2)
    assert done("convert", "-", "-", "-t", "conll", input=source.read_bytes()) == source.read_text()
    result = run("convert", source, tmp_path / "a.csv", "--vocabulary", tmp_path / "v")
    assert result.stderr == f"{tmp_path / 'v'} is not written: no features were numbered\n"
    document = write(tmp_path / "a.conllu", conllu(TEST))
    text = done("convert", document, "-t", "conll", "--columns", "form,xpos,upos")
    assert text == source.read_text()
    attributes = write(tmp_path / "a.crfsuite", crfsuite(TEST))
    assert done("convert", attributes, "-t", "crfsuite") == attributes.read_text()
    rows = write(tmp_path / "a.svm", svmlight(TEST))
    assert done("convert", rows, "-t", "svmlight") == rows.read_text()


def test_conversions_that_make_no_sense(tmp_path):
    source = write(tmp_path / "a.conll", conll(TEST, 0, 2))
    assert "does not show the format" in refused("convert", source, tmp_path / "a.b")
    assert "no format 'nope'" in refused("convert", source, "-t", "nope")
    assert "cannot be converted to svmlight" in refused("convert", source, "-t", "svmlight")
    rows = write(tmp_path / "a.svmhmm", svmhmm(TEST))
    assert "no columns" in refused("convert", rows, "-t", "crfsuite", "--columns", "0")
    target = tmp_path / "b.svmhmm"
    for vocabulary in (tmp_path / "none" / "v", source):
        refused("convert", source, target, "--vocabulary", vocabulary)
        assert not target.exists()
    assert sorted(tmp_path.iterdir()) == sorted([source, rows])


# import -----------------------------------------------------------------------------------------


def test_import_crfsuite(tmp_path):
    pycrfsuite = pytest.importorskip("pycrfsuite")
    trainer = pycrfsuite.Trainer(verbose=False)

    def tokens(rows):
        return [{f"w={word}": 1.0, "size": len(word) / 5} for word, _, _ in rows]

    for rows in TRAIN:
        trainer.append(tokens(rows), [row[2] for row in rows])
    trainer.train(str(tmp_path / "crf"))
    tagger = pycrfsuite.Tagger()
    tagger.open(str(tmp_path / "crf"))
    tagger.dump(str(tmp_path / "dump"))
    model, test = tmp_path / "m.hinge", write(tmp_path / "test", crfsuite(TEST))
    text = done("import", "crfsuite", tmp_path / "dump", "--model", model)
    assert "4 labels" in text
    expected = "".join("\n".join(tagger.tag(tokens(rows))) + "\n\n" for rows in TEST)
    assert done("predict", model, test) == expected
    assert "UTF-8" in refused("import", "crfsuite", tmp_path / "crf", "-m", tmp_path / "n.hinge")
    assert not (tmp_path / "n.hinge").exists()


def test_import_liblinear(tmp_path):
    linear = pytest.importorskip("liblinear.liblinearutil")
    train = write(tmp_path / "train.svm", svmlight(TRAIN))
    y, X = linear.svm_read_problem(str(train))
    test = write(tmp_path / "test.svm", svmlight(TEST))
    y_test, X_test = linear.svm_read_problem(str(test))
    other = linear.train(y, X, "-s 4 -q")
    linear.save_model(str(tmp_path / "linear"), other)
    expected, _, _ = linear.predict(y_test, X_test, other, "-q")
    model = tmp_path / "m.hinge"
    assert "4 labels" in done("import", "liblinear", tmp_path / "linear", "-m", model)
    assert done("predict", model, test).split() == [str(int(label)) for label in expected]
    scores = json.loads(done("evaluate", model, test, "--json"))
    assert scores["token_accuracy"] == np.mean(np.array(expected) == np.array(y_test))
    # LIBLINEAR's features are numbered from 1: an index 0 does not shift the others.
    label, rest = test.read_text().split(" ", 1)
    shifted = write(tmp_path / "shifted.svm", f"{label} 0:1 {rest}")
    assert done("predict", model, shifted) == done("predict", model, test)


def test_imports_that_fail(tmp_path):
    text = write(tmp_path / "text", "nothing\n")
    for tool in ("crfsuite", "liblinear"):
        assert f"{text}:1" in refused("import", tool, text, "-m", tmp_path / "m.hinge")
        refused("import", tool, tmp_path / "none", "-m", tmp_path / "m.hinge")
    assert list(tmp_path.iterdir()) == [text]
