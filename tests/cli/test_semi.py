"""``hingeline semi``, and ``--constraints`` of all commands."""

from __future__ import annotations

import json
import math
import os
import warnings
from pathlib import Path

import numpy as np
import pytest

import hingeline
from cli.commands import conll, conllu, crfsuite, done, refused, run, sentences, svmlight, write
from hingeline import ChainSSVM, SemiSupervisedSSVM
from hingeline.constraints import Penalties, check, load_constraints
from hingeline.constraints.base import InstanceConstraint
from hingeline.constraints.files import read_rule
from hingeline.data import read_conll
from hingeline.features.templates import TokenTemplates

LABELLED, UNLABELLED, TEST = sentences(6, 1), sentences(40, 2), sentences(30, 3)
CONSTRAINTS = """
[defaults]
weight = 10

[[words]]
words = ["Rome", "Oslo"]
label = "B-LOC"

[[words]]
words = ["ran", "sat", "to", "the"]
label = "O"

[[words]]
words = ["Ann", "Bob", "Eve"]
label = "B-PER"

[[follows]]
label = "I-PER"
after = ["B-PER", "I-PER"]

[[label_shares]]
slack = 0.5
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("few")
    write(path / "few", conll(LABELLED, 0, 2))
    write(path / "text.gz", conll(UNLABELLED, 0))
    write(path / "more", conll(sentences(5, 4), 0, 2))
    write(path / "test", conll(TEST, 0, 2))
    write(path / "c.toml", CONSTRAINTS)
    return path


@pytest.fixture(scope="module")
def trained(folder):
    """The model of a small annealing, and what the command printed."""
    command = ["semi", folder / "few", "-m", folder / "m.hinge", "--unlabelled", folder / "text.gz"]
    command += ["--unlabelled", folder / "more", "--constraints", folder / "c.toml"]
    command += ["--unlabelled-C", "10,0.1,1", "--dev", folder / "test", "--tol", "0.1"]
    result = run(*command)
    assert result.exit_code == 0, result.output
    return folder / "m.hinge", result, command


@pytest.fixture(scope="module")
def in_python(folder):
    """The same fit without the command line."""
    parts = [read_conll(folder / name) for name in ("few", "text.gz", "more")]
    X = [[(word,) for word in words] for part in parts for words in part.sentences(0)]
    y = [*parts[0].sentences(1), *[None] * (len(parts[1]) + len(parts[2]))]
    base = ChainSSVM(tol=0.1, random_state=0, features=TokenTemplates())
    constraints = load_constraints(folder / "c.toml", parts[0].sentences(1))
    model = SemiSupervisedSSVM(base, constraints, C_u=[0.1, 1, 10], random_state=0)
    test = read_conll(folder / "test")
    return model.fit(X, y, dev=(test.select([0]), test.sentences(1))), test


def test_the_fit_is_that_of_the_estimator(folder, trained, in_python):
    model, result, _ = trained
    expected, test = in_python
    found = hingeline.load(model)
    np.testing.assert_allclose(found.weights_, expected.weights_, rtol=1e-9, atol=1e-12)
    assert found.metadata_["semisupervised"]["selected"] == expected.selected_
    lines = result.stderr.splitlines()
    head = next(k for k, line in enumerate(lines) if line.split()[:2] == ["C_u", "objective"])
    rows = [line.split() for line in lines[head + 1 : head + 5]]
    assert [float(row[0]) for row in rows] == [0, 0.1, 1, 10]
    for row, step in zip(rows, expected.steps_, strict=True):
        assert float(row[1]) == pytest.approx(step.objective, rel=1e-4)
        assert float(row[2]) == pytest.approx(step.violations, rel=1e-4)
        assert float(row[3]) == pytest.approx(100 * step.dev_score, abs=0.01)
    chosen = expected.steps_[expected.selected_]
    assert lines[head + 5].startswith("chosen: ")
    assert "the best on the held-out data" in lines[head + 5]
    assert f"C_u={chosen.C_u:g}" in result.stdout
    assert "no certificate" in result.stdout
    accuracy = json.loads(done("evaluate", model, folder / "test", "--json"))["token_accuracy"]
    assert (
        accuracy
        == pytest.approx(chosen.dev_score)
        == expected.score(test.select([0]), test.sentences(1))
    )


def test_what_was_read_is_said(trained, folder):
    _, result, _ = trained
    tokens = sum(map(len, UNLABELLED))
    assert f"text.gz: 40 sequences, {tokens} tokens (unlabelled)" in result.stderr
    assert "more: 5 sequences" in result.stderr
    assert "(its labels are not read)" in result.stderr
    assert "c.toml: 8 constraints" in result.stderr


def test_json_and_choice_without_labels(folder, tmp_path):
    model = tmp_path / "m.hinge"
    command = ["semi", folder / "few", "-m", model, "--unlabelled", folder / "text.gz", "--json"]
    command += ["--constraints", folder / "c.toml", "--unlabelled-C", "1,10"]
    result = json.loads(done(*command))
    steps = result["steps"]
    assert [step["C_u"] for step in steps] == [0, 1, 10]
    assert result["select"] == "violations"
    assert result["C_u"] == steps[result["selected"]]["C_u"]
    costs = [step["violations"] for step in steps]
    reach = min(costs) + 0.02 * (costs[0] - min(costs))
    assert result["selected"] == next(k for k, cost in enumerate(costs) if cost <= reach)
    assert all(step["dev_score"] is None for step in steps)
    assert result["relative_gap"] is None
    assert "convex" in result["why_no_gap"]
    assert result["unlabelled"]["sequences"] == 40
    assert result["unlabelled"]["tokens"] == sum(map(len, UNLABELLED))
    assert len(result["constraints"]["titles"]) == 8
    last = json.loads(done(*command, "--select", "last"))
    assert (last["selected"], last["C_u"]) == (2, 10)


def test_info_and_report_tell_of_the_annealing(trained, folder, tmp_path):
    model, _, _ = trained
    text = done("info", model)
    tokens = sum(map(len, UNLABELLED)) + sum(map(len, sentences(5, 4)))
    assert f"unlabelled: 45 sequences, {tokens} tokens" in text
    assert "constraints: 8 of c.toml" in text
    assert "gap: nan" in text
    assert "not a convex problem" in text
    assert len([line for line in text.splitlines() if line.endswith("  chosen")]) == 1
    assert "label_counts: " in text
    assert "{" not in text  # no raw records
    facts = json.loads(done("info", model, "--json"))
    assert facts["gap"] == "nan"
    record = facts["metadata"]["semisupervised"]
    assert facts["primal"] == record["steps"][record["selected"]]["objective"]
    page = tmp_path / "m.html"
    done("report", model, "--test", folder / "test", "-o", page)
    html = page.read_text()
    assert "No gap is certified: the labels of unlabelled sequences" in html
    assert "45 sequences" in html
    assert "8 of c.toml" in html
    assert "have been changed since" not in html


def test_a_record_that_makes_no_sense_is_left_alone(folder, tmp_path):
    done("train", folder / "few", "-m", tmp_path / "m.hinge", "-q")
    model = hingeline.load(tmp_path / "m.hinge")
    gap = model.duality_gap_
    for record in (3, {}, {"steps": [], "selected": 0}, {"steps": [{"C_u": "x"}], "selected": 0}):
        model.save(tmp_path / "odd.hinge", metadata={**model.metadata_, "semisupervised": record})
        facts = json.loads(done("info", tmp_path / "odd.hinge", "--json"))
        assert facts["gap"] == gap
        assert "annealing" not in facts
        assert done("predict", tmp_path / "odd.hinge", folder / "test")
    for rules in ([{"kind": "words", "words": "("}], 3, None, {"kind": "words"}):
        record = {"weights": "learned", "rules": rules}
        model.save(tmp_path / "odd.hinge", metadata={**model.metadata_, "semisupervised": record})
        assert "fresh copy" in refused("predict", tmp_path / "odd.hinge", folder / "test")


# Constraints in prediction ----------------------------------------------------------------------


def test_prediction_under_constraints(folder, trained):
    model, _, _ = trained
    rules = write(folder / "hard.toml", '[[words]]\nwords = ["x"]\nlabel = "B-LOC"\nhard = true\n')
    plain = done("predict", model, folder / "test").split("\n")
    bound = done("predict", model, folder / "test", "--constraints", rules).split("\n")
    assert len(plain) == len(bound)
    xs = [line.split() for line in bound if line.startswith("x ")]
    assert xs
    assert {row[-1] for row in xs} == {"B-LOC"}
    assert any(line.startswith("x ") and not line.endswith("B-LOC") for line in plain)
    result = json.loads(done("evaluate", model, folder / "test", "--json", "--constraints", rules))
    wrong = sum(row[1] != "B-LOC" for row in xs)
    assert result["constraints"] == [
        {"name": result["constraints"][0]["name"], "true": wrong, "predicted": 0}
    ]
    text = done("evaluate", model, folder / "test", "--constraints", rules)
    assert "violations of" in text


def test_prediction_uses_the_weights_that_were_learned(folder, trained, in_python):
    model, _, _ = trained
    expected, test = in_python
    stored = [read_rule(r) for r in hingeline.load(model).metadata_["semisupervised"]["rules"]]
    assert stored == [r for r in expected.constraints_ if isinstance(r, InstanceConstraint)]
    assert all(0.0 < rule.weight < 10.0 for rule in stored)  # what is printed is 1000
    X = [[(word,) for word in words] for words in test.sentences(0)]
    for more, constrained in ((), True), (("--constraints", "none"), False):
        lines = done("predict", model, folder / "test", *more).splitlines()
        labels = expected.predict(X, constrained=constrained)
        assert [line.split()[-1] for line in lines if line.strip()] == [*np.concatenate(labels)]
        scores = json.loads(done("evaluate", model, folder / "test", "--json", *more))
        right = np.concatenate(labels) == np.concatenate(test.sentences(1))
        assert scores["token_accuracy"] == pytest.approx(right.mean())


def test_shares_are_those_of_the_labelled_set(folder, trained):
    rules = write(folder / "shares.toml", "[[label_shares]]\n")
    result = json.loads(
        done("evaluate", trained[0], folder / "test", "--json", "--constraints", rules)
    )
    labels = [[[row[2] for row in rows] for rows in data] for data in (LABELLED, TEST)]
    words = [[row[0] for row in rows] for rows in TEST]
    expected = check(load_constraints(rules, labels[0]), words, labels[1])
    found = {row["name"]: row["true"] for row in result["constraints"]}
    assert found == pytest.approx({r.constraint.title: r.violation for r in expected.rows})
    assert max(found.values()) > 0.0


def test_constraints_work_with_supervised_models(folder, tmp_path):
    model = tmp_path / "m.hinge"
    done("train", folder / "few", "-m", model, "-q")
    rules = write(
        tmp_path / "r.toml", '[[starts_with]]\nlabels = ["B-LOC", "B-ORG"]\nhard = true\n'
    )
    result = run("predict", model, folder / "test", "--constraints", rules)
    assert result.exit_code == 0
    assert "names labels that are not in the model: B-ORG; they are left out" in result.stderr
    firsts = [block.split("\n")[0] for block in result.stdout.strip().split("\n\n")]
    assert {line.split()[-1] for line in firsts} == {"B-LOC"}
    both = ("predict", model, folder / "test", "--constraints", rules, "--margin")
    assert "--nbest and --constraints cannot be combined" in refused(*both)


def labels_in(rule):
    """All labels that a constraint names, in groups or alone."""
    todo = [getattr(rule, n, ()) for n in ("labels", "label", "after", "first", "second")]
    while todo:
        part = todo.pop()
        if isinstance(part, tuple):  # labels are; what words come after is a pattern
            todo += [(a,) if isinstance(a, str) else a for a in part if not isinstance(a, str)]
            yield from (a for a in part if isinstance(a, str))


def test_unknown_labels_are_those_that_compiling_leaves_out():
    for name in ("citations", "seminars"):
        constraints = load_constraints(name)
        classes = ["author", "title", "O", "B-location"]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            Penalties(constraints, [["a", "b"]], classes)
        listed = str(caught[0].message).split(": ")[1].split(";")[0]
        unknown = Penalties(constraints, [], classes, unknown="ignore").unknown
        assert [repr(label) for label in unknown] == listed.split(", ")
        named = {label for rule in constraints for label in labels_in(rule)}
        assert unknown == sorted(named - set(classes))


def test_training_names_labels_that_are_missing(folder, tmp_path):
    rules = write(tmp_path / "r.toml", '[[words]]\nwords = ["x"]\nlabel = ["O", "B-ORG"]\n')
    command = ["semi", folder / "few", "-m", tmp_path / "m.hinge", "--constraints", rules]
    command += ["--unlabelled", folder / "text.gz", "--unlabelled-C", 1]
    result = run(*command)
    assert result.exit_code == 0, result.output
    assert "not in" in result.stderr
    assert result.stderr.count("B-ORG") == 1
    assert json.loads(done(*command, "--json"))["unknown_labels"] == ["B-ORG"]


# hingeline check --------------------------------------------------------------------------------


def test_check_names_the_lines(tmp_path):
    text = "-DOCSTART- O\n\na A\nb B\n\n\na B\nb B\n\na A\n\na B\n"
    file = write(tmp_path / "f", text)
    rules = write(tmp_path / "r.toml", '[[starts_with]]\nlabels = ["A"]\n')
    result = run("check", file, "--constraints", rules)
    assert result.exit_code == 1
    assert f"2 of 4  2000  {file}:7, {file}:12" in result.stdout
    found = json.loads(run("check", file, "--constraints", rules, "--json").stdout)
    assert found["ok"] is False
    assert found["constraints"][0]["sequences"] == [2, 4]
    assert found["constraints"][0]["lines"] == [7, 12]
    piped = run("check", "-", "--constraints", rules, input=text)
    assert "sequence 2, sequence 4" in piped.stdout
    kept = write(tmp_path / "kept.toml", '[[starts_with]]\nlabels = ["A", "B", "C"]\n')
    result = run("check", file, "--constraints", kept)
    assert result.exit_code == 0
    assert "not in" in result.stderr


def test_check_reads_conllu(tmp_path):
    file = write(tmp_path / "f.conllu", conllu(TEST))
    rules = write(tmp_path / "r.toml", '[[starts_with]]\nlabels = ["B-LOC"]\n')
    found = json.loads(run("check", file, "--constraints", rules, "--json").stdout)
    broken = [i for i, rows in enumerate(TEST) if rows[0][2] != "B-LOC"]
    assert found["constraints"][0]["sequences"] == [i + 1 for i in broken]
    lines = file.read_text().splitlines()
    starts = [n for n, line in enumerate(lines, start=1) if line.startswith("1\t")]
    assert found["constraints"][0]["lines"] == [starts[i] for i in broken]


# What is refused --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--select", "dev"], "pass --dev FILE"),
        (["--select", "best"], "--select best is not known"),
        (["--unlabelled-C", "1,x"], "--unlabelled-C: expected"),
        (["--unlabelled-C", "1,-2"], "--unlabelled-C must be greater than 0, got -2"),
        (["--C", "inf"], "C"),
        (["--unlabelled", "-", "--unlabelled", "-"], "cannot be read twice"),
        (["--unlabelled", "none"], "none: No such file"),
        (["--unlabelled", "empty"], "empty is empty"),
        (["--unlabelled", "wide"], "wide has 3 columns"),
    ],
)
def test_what_does_not_go_together(folder, tmp_path, monkeypatch, options, words):
    monkeypatch.chdir(tmp_path)
    for name in ("few", "text.gz", "c.toml", "test"):
        os.link(folder / name, tmp_path / name)
    write(tmp_path / "empty", "")
    write(tmp_path / "wide", conll(UNLABELLED, 0, 1, 2))
    command = ["semi", "few", "-m", "new.hinge", "--constraints", "c.toml"]
    if "--unlabelled" not in options:
        command += ["--unlabelled", "text.gz"]
    assert words in refused(*command, *options)
    assert not Path("new.hinge").exists()


def test_a_folder_is_no_file_of_constraints(folder, tmp_path):
    said = refused("check", folder / "few", "--constraints", tmp_path)
    assert said.startswith(f"--constraints: {tmp_path} is a folder")


def test_what_there_is_to_choose_by(folder, tmp_path):
    few, model = folder / "few", tmp_path / "m.hinge"
    unlabelled = ["--unlabelled", folder / "text.gz"]
    assert "--constraints FILE or --dev FILE" in refused("semi", few, "-m", model, *unlabelled)
    assert "name another file" in refused(
        "semi", few, "-m", folder / "text.gz", *unlabelled, "--constraints", "citations"
    )
    result = run("semi", few, "-m", model, "--constraints", folder / "c.toml")
    assert result.exit_code == 2
    assert "--unlabelled" in result.stderr


@pytest.mark.parametrize("command", ["semi", "predict", "evaluate", "check"])
def test_wrong_constraints_are_explained_with_their_line(folder, trained, tmp_path, command):
    def said(source):
        arguments = {
            "semi": ["semi", folder / "few", "-m", tmp_path / "new", "--unlabelled"]
            + [folder / "text.gz"],
            "predict": ["predict", trained[0], folder / "test"],
            "evaluate": ["evaluate", trained[0], folder / "test"],
            "check": ["check", folder / "test"],
        }[command]
        return refused(*arguments, "--constraints", source)

    bad = write(tmp_path / "bad.toml", '\n[[word]]\nwords = ["x"]\nlabel = "O"\n')
    assert "bad.toml:2: there is no constraint [[word]] (did you mean words?)" in said(bad)
    bad = write(tmp_path / "bad.toml", "[[words]]\nwords = [x]\n")
    assert "bad.toml:2: this is not TOML" in said(bad)
    assert "no such file" in said(tmp_path / "none.toml")
    assert "names no constraint" in said(write(tmp_path / "empty.toml", ""))


def test_files_without_words_are_refused(folder, tmp_path):
    train = write(tmp_path / "a.crfsuite", crfsuite(LABELLED))
    rows = write(tmp_path / "a.svmlight", svmlight(LABELLED))
    for file, form in ((train, "crfsuite"), (rows, "svmlight")):
        model = tmp_path / f"{form}.hinge"
        done("train", file, "-m", model, "-q", "-f", form)
        for command in (
            ["semi", file, "-m", tmp_path / "x", "--unlabelled", file, "-f", form],
            ["predict", model, file],
            ["evaluate", model, file],
            ["check", file, "-f", form],
        ):
            said = refused(*command, "--constraints", folder / "c.toml")
            assert "is for conll, conllu, csv, jsonl files" in said


# Real data --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.data
def test_citations(tmp_path):
    root = os.environ.get("HINGELINE_DATA")
    if not root:
        pytest.skip("HINGELINE_DATA is not set")
    data = Path(root) / "citations"
    table = read_conll(data / "citations_train.tsv.gz")[:20]
    rows = ["".join(f"{a}\t{b}\n" for a, b in sentence) for sentence in table]
    few = write(tmp_path / "few.tsv", "\n".join(rows))
    model, test = tmp_path / "m.hinge", data / "citations_test.tsv.gz"
    command = ["semi", few, "-m", model, "--unlabelled", data / "citations_unlabelled.txt.gz"]
    command += ["--constraints", "citations", "--unlabelled-C", "1,10"]
    result = json.loads(done(*command, "--dev", data / "citations_dev.tsv.gz", "--json"))
    assert result["unlabelled"] == {
        "sequences": 1000,
        "tokens": 34767,
        "files": ["citations_unlabelled.txt.gz"],
    }
    supervised, *_, last = result["steps"]
    assert last["violations"] < 0.3 * supervised["violations"]
    assert last["dev_score"] > supervised["dev_score"] + 0.03
    assert math.isclose(result["C_u"], 10)
    plain = json.loads(done("evaluate", model, test, "--json"))
    bound = json.loads(done("evaluate", model, test, "--json", "--constraints", "citations"))
    assert plain["token_accuracy"] > 0.8
    assert bound["token_accuracy"] > plain["token_accuracy"] - 0.01
    assert sum(row["predicted"] for row in bound["constraints"]) < 20
