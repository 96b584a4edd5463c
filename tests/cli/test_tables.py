"""Tables of numbers (CSV, TSV) as rows: training, prediction, and what is refused."""

from __future__ import annotations

import json
import random
import re

import pytest

import hingeline
from cli.commands import done, refused, run, write

# isort: split
from marks import slow


def table(n, seed, sign=",", columns=("size", "weight", "kind")):
    """Examples whose numbers tell the kind; the second column is a thousand times as large."""
    rng, lines = random.Random(seed), [sign.join(columns)]
    for k in range(n):
        row = {"": str(k), "id": str(k), "kind": rng.choice("abc")}
        row["class"] = str("abc".index(row["kind"]))
        place = "abc".index(row["kind"])
        row["size"] = f"{place + rng.gauss(0, 0.1):.3f}"
        row["weight"] = f"{1000 * (place == 1) + rng.gauss(0, 100):.1f}"
        lines.append(sign.join(row[name] for name in columns))
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    train, path = write(folder / "train.csv", table(60, 0)), folder / "m.hinge"
    told = run("train", train, "-m", path).stderr
    assert "60 rows (table)" in told
    assert re.search(r"\ntraining, C=[\d.]+: pass 1, gap", told)  # as lines of chains do
    assert re.search(r"\ntraining, C=[\d.]+: converged after", told)
    return path


def accuracy(model, file):
    return json.loads(done("evaluate", model, file, "--json"))["token_accuracy"]


def test_a_table_is_learnt(model, tmp_path):
    layout = hingeline.load(model).metadata_["layout"]
    assert (layout["columns"], layout["label"]) == (["size", "weight"], "kind")
    assert accuracy(model, write(tmp_path / "test.csv", table(60, 1))) >= 0.95
    assert "weight" in done("info", model, "--top", 1)
    other = write(tmp_path / "other.csv", table(60, 1, ";", ("", "weight", "kind", "size")))
    assert accuracy(model, other) >= 0.95


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        (("id", "size", "weight", "class"), ()),
        slow(("class", "size", "weight"), ("--label", "class")),
        slow(("kind", "size", "weight"), ()),
    ],
)
def test_where_the_label_is(columns, options, tmp_path):
    file, path = write(tmp_path / "file.tsv", table(60, 0, "\t", columns)), tmp_path / "m.hinge"
    done("train", file, "-m", path, *options)
    assert hingeline.load(path).metadata_["layout"]["columns"] == ["size", "weight"]
    assert accuracy(path, file) >= 0.95


def test_predict_appends_a_column(model, tmp_path):
    for columns in (("size", "weight", "kind"), ("weight", "id", "size")):
        text = table(30, 1, ",", columns).replace("\n", "\r\n")
        lines = done("predict", model, write(tmp_path / "file.csv", text)).splitlines()
        assert [line.rpartition(",")[0] for line in lines] == text.splitlines()
        assert lines[0].endswith(",predicted")
        assert {line[-1] for line in lines[1:]} == {*"abc"}
    two = [tmp_path / "file.csv", write(tmp_path / "two.csv", text)]
    assert "files with headers cannot be joined" in refused("predict", model, *two)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("size,weight,kind\n1,2,a\n1,,b\n", ":3: 'weight' is '', not a finite number; correct it"),
        ("size,weight,kind\n1,2,a\n1,2,\n", ":3: there is no label (kind); drop the row"),
        ("size,weight,kind\n1,2,a\n1,2,b\n" * 2, ":4: 'size' is 'size', not a finite number"),
        ("size,weight,kind\n" + "1,2,a\n" * 20 + "1,b\n", ":22: expected 3 fields"),
    ],
)
def test_what_is_refused(text, message, tmp_path):
    file = write(tmp_path / "file.csv", text)
    options = ("--format", "table", "--label", "kind")
    assert message in refused("train", file, "-m", tmp_path / "m.hinge", *options)


@pytest.mark.parametrize("options", [["-q"], ["--json"]])
def test_a_warning_is_never_left_out(options, tmp_path):
    """Four labels of which a row has any: nothing can be learnt, and the certificate is fine."""
    text = "a,k\n" + "".join(f"{i % 5},k{i // 5 % 4}\n" for i in range(80))
    result = run("train", write(tmp_path / "t.csv", text), "-m", tmp_path / "m.hinge", *options)
    assert result.exit_code == 0
    assert "no weights are better than 0" in result.stderr
    assert "Add features, or use --slack sum." in result.stderr
    assert "pass" not in result.stderr
    assert "no weights" not in result.stdout


def test_doubts_and_missing_columns(model, tmp_path):
    file = write(tmp_path / "file.csv", table(60, 0, ",", ("class", "size", "weight")))
    told = run("train", file, "-m", tmp_path / "m.hinge", "--max-iter", 1).stderr
    assert "58 different labels: is weight the column of the labels (--label)?" in told
    text = "age,city,class\n" + "".join(f"{i},{'AB'[i % 2]},{i % 3}\n" for i in range(9))
    told = run("train", write(file, text), "-m", tmp_path / "m.hinge").stderr
    assert "The labels are the column city: --label class takes another." in told
    file = write(tmp_path / "few.csv", table(5, 0, ",", ("size", "kind")))
    assert "there is no column 'weight': there are size, kind." in refused("predict", model, file)
    none = "there is no column 'x': there are size, kind."
    assert none in refused("train", file, "-m", tmp_path / "m.hinge", "--label", "x")
