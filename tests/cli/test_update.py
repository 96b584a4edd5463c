"""``hingeline update``: models that go on learning from files."""

from __future__ import annotations

import json

import numpy as np
import pytest

import hingeline
from cli.commands import conll, crfsuite, done, refused, run, sentences, svmhmm, svmlight, write
from hingeline.evaluation.inspection import weights_table

# isort: split
from marks import slow

FORMATS = {
    "conll": lambda data: conll(data, 0, 1, 2),
    "crfsuite": crfsuite,
    "svmhmm": svmhmm,
    "svmlight": svmlight,
}


@pytest.fixture
def files(tmp_path):
    """The same sentences in two files and in one; labels and words of the second are more."""
    first = [rows for rows in sentences(40, 1) if not any(r[2] == "B-LOC" for r in rows)]
    second = sentences(20, 2)

    def of(name):
        form = FORMATS[name]
        return [
            write(tmp_path / f"{k}.{name}", form(part))
            for k, part in enumerate((first, second, [*first, *second]))
        ]

    return of


def weights(model):
    """Every weight by the names of what it belongs to."""
    return {
        (row.block, str(row.feature), str(row.label)): row.weight for row in weights_table(model)
    }


@pytest.mark.parametrize("name", ["conll", slow("crfsuite"), slow("svmhmm"), "svmlight"])
def test_an_update_reaches_the_solution_of_all_data(files, tmp_path, name):
    first, second, both = files(name)
    m1, m2, m3 = (tmp_path / f"{k}.hinge" for k in range(3))
    options = ["--format", name, "--tol", "1e-6", "-C", "0.1"]  # an update keeps C
    done("train", first, "-m", m1, *options, "--keep-state")
    result = json.loads(done("update", m1, second, "-m", m2, "--json"))
    assert result["converged"]
    assert result["new_labels"] == 1
    assert (result["new_features"] > 0) == (name in ("conll", "crfsuite"))
    done("train", both, "-m", m3, *options)
    updated, whole = hingeline.load(m2), hingeline.load(m3)
    assert updated.primal_objective_ == pytest.approx(whole.primal_objective_, rel=1e-5)
    mine, theirs = weights(updated), weights(whole)
    apart = [mine.get(key, 0.0) - theirs.get(key, 0.0) for key in {*mine, *theirs}]
    assert np.linalg.norm(apart) <= 1e-2 * np.linalg.norm(list(theirs.values()))
    sources = updated.metadata_["data"]
    assert [source["name"] for source in sources] == [first.name, second.name]


def test_updates_one_after_the_other(files, tmp_path):
    first, second, _ = files("conll")
    model = tmp_path / "m.hinge"
    done("train", first, "-m", model, "--keep-state")
    n = hingeline.load(model).n_examples_
    for k in range(1, 4):
        text = done("update", model, second, "-m", model, "--passes", 1)
        assert "no certificate" in text
        assert hingeline.load(model).n_examples_ == n + 20 * k
    done("update", model, second, "-m", model, "--memory", 30)
    assert hingeline.load(model).n_examples_ == 30
    facts = json.loads(done("info", model, "--json"))
    assert facts["training state"] == "30 examples"
    told = run("update", model, second, "-m", model, "--no-keep-state").stderr
    assert "holds no training state: it cannot be updated again." in told
    assert "training state" not in json.loads(done("info", model, "--json"))
    assert json.loads(done("evaluate", model, second, "--json"))["token_accuracy"] > 0.8


def test_what_is_refused(files, tmp_path):
    first, second, _ = files("conll")
    bare, model, out = (tmp_path / f"{k}.hinge" for k in ("bare", "model", "out"))
    done("train", first, "-m", bare)
    done("train", first, "-m", model, "--keep-state")
    sentence = refused("update", bare, second, "-m", out)
    assert "no training state" in sentence
    assert "--keep-state" in sentence
    for options, word in [
        (["--C", "2"], "--C"),
        (["--template", str(first)], "--template"),
        (["--scheme", "IOB2"], "--scheme"),
        (["--dev", str(first)], "--dev"),
        (["--hash-bits", "10"], "--hash-bits"),
    ]:
        result = run("update", model, second, "-m", out, *options)
        assert result.exit_code == 2
        assert f"no such option: {word}" in result.stderr
    assert "less than the 20" in refused("update", model, second, "-m", out, "--memory", 5)
    assert "No such file" in refused("update", tmp_path / "none", second, "-m", out)
    plain = write(tmp_path / "plain.txt", conll(sentences(3, 3), 0, 1))
    refused("update", model, plain, "-m", out)
    assert not out.exists()


@pytest.mark.slow
def test_summed_slack(files, tmp_path):
    first, second, _ = files("svmhmm")
    model, after = tmp_path / "m.hinge", tmp_path / "n.hinge"
    options = ("--slack", "sum", "--violators", "2", "-C", "0.05", "--tol", "0.01")
    line = done("train", first, "-m", model, *options, "--keep-state")
    assert "gap over the outputs found" in line
    trained = hingeline.load(model)
    assert (trained.slack, trained.violators) == ("sum", 2)
    assert 0 <= trained.restricted_gap_ <= 0.01 * trained.restricted_objective_
    assert np.isnan(trained.duality_gap_)
    result = json.loads(done("update", model, second, "-m", after, "--json"))
    assert result["relative_gap"] is None
    assert 0 <= result["restricted_gap"] <= 0.01
    stream = json.loads(done("update", model, second, "-m", after, "--json", "--passes", "2"))
    assert stream["restricted_gap"] is None
    assert "outputs found" in done("info", model)
    for wrong in ("0", "some"):
        assert "violators" in refused("train", first, "-m", after, "--violators", wrong)
