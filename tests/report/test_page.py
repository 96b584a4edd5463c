"""The page as a whole: well formed, self-contained, complete, and honest about what is missing."""

from __future__ import annotations

import gzip
import math
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction import DictVectorizer

from hingeline import ChainSSVM, MulticlassSSVM, report
from hingeline._words import show
from hingeline.evaluation.metrics import evaluate
from hingeline.modelfile.foreign import import_liblinear
from hingeline.report import render_report, sections, write_report
from hingeline.report.sections import Facts, certificate_words, parameter_text, read_facts

SECTIONS = ["model", "convergence", "evaluation", "errors", "weights", "provenance"]


# Missing parts -----------------------------------------------------------------------------------


def test_model_only(chain, page_of):
    _, sections = page_of(chain[0])
    assert sections == ["model", "convergence", "weights", "provenance"]


def test_evaluation_only_has_no_errors(chain, page_of, rows_of):
    model, X, y = chain
    found = evaluate(y, model.predict(X), bootstrap=20)
    root, sections = page_of(model, evaluation=found)
    assert sections == [s for s in SECTIONS if s != "errors"]
    low, high = found.intervals["token_accuracy"]
    assert rows_of(root, "Summary")[0][2] == f"{100 * low:.2f} to {100 * high:.2f}\u00a0%"


def test_without_tokens_errors_have_positions(chain, page_of):
    model, X, y = chain
    root, _ = page_of(model, y_true=y, y_pred=model.predict(X), n_errors=1)
    cells = root.all("ol", class_="errors")[0].all("span", class_="t")
    assert [c.one("bdi").text for c in cells] == [str(t) for t in range(len(cells))]


def test_no_errors(chain, page_of):
    model, _, y = chain
    root, _ = page_of(model, y_true=y, y_pred=y)
    assert "There are no errors." in root.one(id="errors").text
    assert "No label is confused" in root.text
    _, sections = page_of(model, y_true=y, y_pred=y, n_errors=0)
    assert "errors" not in sections


def test_no_features(flat, page_of):
    _, sections = page_of(flat[0], n_features=0)
    assert "weights" not in sections


def test_stored_and_replaced_weights(chain, tmp_path, page_of):
    model, *_ = chain
    model.save(tmp_path / "exact.hinge")
    assert render_report(ChainSSVM.load(tmp_path / "exact.hinge")) == render_report(model)
    model.save(tmp_path / "small.hinge", dtype="float16")
    root, _ = page_of(ChainSSVM.load(tmp_path / "small.hinge"))
    assert "No gap is certified: weights were rounded" in root.text
    assert "changed since" in root.one(id="convergence").text
    root, _ = page_of(model.with_weights(model.weights_))
    assert "No gap is certified: weights were replaced." in root.text
    assert root.all("svg") == []


def test_imported_model(page_of):
    text = (
        "solver_type MCSVM_CS\nnr_class 3\nlabel 1 2 3\nnr_feature 2\nbias -1\nw\n"
        "1 0 -1 \n0.5 2 0 \n"
    )
    root, _ = page_of(import_liblinear(text))
    assert "No gap is certified: weights were imported from LIBLINEAR." in root.text
    assert "not recorded" in root.one("header").text


@pytest.mark.slow
def test_many_labels_are_summed_up(make_chain, page_of, rows_of):
    labels = [f"label-{k:02d}" for k in range(70)]
    model, X, y = make_chain(labels, n=40, length=20, max_iter=2, tol=10.0)
    root, _ = page_of(model, y_true=y, y_pred=model.predict(X))
    found = evaluate(y, model.predict(X))
    confusion = rows_of(root, "Confusion")
    assert len(confusion) == 31
    assert confusion[-1][0] == f"{len(found.labels) - 30} others"
    total = sum(int(c.replace(",", "")) for row in confusion for c in row[1:] if c != "·")
    assert total == found.n_tokens
    assert len(rows_of(root, "From label")) == 31
    assert len(root.all("article")) == 60
    assert len(rows_of(root, "Tokens by label")) == 50


# Words -------------------------------------------------------------------------------------------


def facts(primal, gap, reason="converged", **more):
    more["relative_gap"] = gap / primal
    return Facts(primal, primal - gap, gap, 3, True, True, reason, [], 0.01, **more)


def test_certificate_in_words():
    # (P − D)/P, as the model's own.
    figure, sentence = certificate_words(facts(100.0, 0.8))
    assert figure == "≤\u00a00.80\u00a0%"
    assert sentence.endswith("at most 0.80\u00a0% of the objective can still be gained.")
    assert certificate_words(facts(2.0, 1.0))[0] == "≤\u00a050\u00a0%"
    assert certificate_words(facts(5.0, 0.0))[0] == "0\u00a0%"
    assert certificate_words(facts(5.0, 5.0))[0] == "no bound"
    assert "keep every margin" in certificate_words(facts(math.inf, math.inf))[1]
    assert "not exact" in certificate_words(facts(5.0, math.nan, oracle_bounds=False))[1]
    part, words = certificate_words(facts(5.0, 1.0, oracle_bounds=True, integrality_gap=0.5))
    assert "20" in part
    assert "at most 20" in words
    assert "50" in words
    assert "between the bounds of decoding and the outputs found" in words
    words = certificate_words(facts(5.0, 1.0, oracle_bounds=True, integrality_gap=1.0))[1]
    assert "not exact: all of the gap is" in words
    sentence = certificate_words(facts(5.0, math.nan, reason="weights were replaced"))[1]
    assert sentence == "No gap is certified: weights were replaced."


def test_the_certified_bound_holds(flat):
    """The optimum, from a fit to a far smaller gap, is within the bound that is stated."""
    _, X, y = flat
    rough = MulticlassSSVM(tol=0.3, random_state=0).fit(X, y)
    exact = MulticlassSSVM(tol=1e-9, max_iter=100_000, random_state=0).fit(X, y)
    figure, _ = certificate_words(read_facts(rough))
    most = float(figure.removeprefix("≤\u00a0").removesuffix("\u00a0%"))
    gained = 100 * (1 - exact.primal_objective_ / rough.primal_objective_)
    assert 0 <= gained <= most


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "None"),
        (0.1, "0.1"),
        (1 / 3, "0.3333333333333333"),
        (np.float64(0.5), "0.5"),
        (math.inf, "inf"),
        (True, "True"),
        ("<b>", "'<b>'"),
        (np.zeros((3, 3)), "array of shape (3, 3)"),
        ({"a": [1, object()]}, "{'a': [1, object]}"),
        (print, "print"),
        ((2.0, "hamming"), "(2, 'hamming')"),
    ],
)
def test_parameters_are_the_same_on_every_machine(value, shown):
    assert parameter_text(value) == shown


def test_changed_parameters_stand_out(make_chain, page_of, rows_of):
    model, *_ = make_chain(["a", "b"], n=5, callbacks=[lambda state: None])
    root, _ = page_of(model)
    rows = {row[0]: row[1:] for row in rows_of(root, "Parameters")}
    assert rows["tol"] == ["0.05", "0.01"]
    assert rows["slack"] == ["'max'", ""]
    assert "0x" not in root.text


# Hostile text ------------------------------------------------------------------------------------


def test_hostile_text_is_text(make_chain, hostile, page_of):
    model, X, y = make_chain(hostile, n=30, max_iter=2, tol=10.0, n_features=len(hostile))
    rng = np.random.default_rng(0)
    tokens = [[hostile[k] for k in rng.integers(0, len(hostile), len(x))] for x in X]
    predicted = [labels[::-1] for labels in y]
    first = hostile[0]
    root, _ = page_of(
        model,
        y_true=y,
        y_pred=predicted,
        tokens=tokens,
        title=first,
        command=f"{first}\n{hostile[2]}",
        data={first: {"name": hostile[1], "sha256": hostile[2]}},
        date=first,
        feature_names=hostile,
    )
    assert root.one("h1").text == first
    assert root.one("head").one("title").text == first
    assert root.one("pre").text == f"{first}\n{hostile[2]}"
    chips = [li.text for li in root.one("ul", class_="chips").all("li")]
    assert first in chips
    assert hostile[4] in chips  # right-to-left letters stay
    assert "\u202e" not in root.text
    assert root.one("style").text == page_of(model)[0].one("style").text


def test_right_to_left_sentences(make_chain, page_of):
    model, *_ = make_chain(["a", "b"], n=5)
    root, _ = page_of(
        model,
        y_true=[["a", "b"], ["a", "a"]],
        y_pred=[["b", "a"], ["b", "a"]],
        tokens=[["שלום", "world"], ["hello", "עולם"]],
    )
    boxes = root.one("ol", class_="errors").all("div", class_="sentence")
    assert [box.attrs["dir"] for box in boxes] == ["rtl", "ltr"]


def test_flat_model_with_hostile_labels(hostile, page_of):
    rng = np.random.default_rng(0)
    labels = np.array(hostile, dtype=object)[rng.integers(0, 4, 30)]
    model = MulticlassSSVM(tol=1.0).fit(rng.normal(size=(30, 2)), labels.astype(str))
    page_of(model, y_true=labels, y_pred=labels[::-1], tokens=list(labels))


# Files -------------------------------------------------------------------------------------------


def test_write(chain, tmp_path):
    model, X, y = chain
    path = tmp_path / "report.html"
    assert write_report(path, model, y_true=y, y_pred=model.predict(X)) == path
    expected = render_report(model, y_true=y, y_pred=model.predict(X))
    assert path.read_text(encoding="utf-8") == expected
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_a_failed_report_leaves_the_old_one(chain, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("old")
    with pytest.raises(ValueError, match="without y_pred"):
        write_report(path, chain[0], y_true=[["O"]])
    monkeypatch.setattr("os.replace", lambda *a: (_ for _ in ()).throw(OSError(28, "No space")))
    with pytest.raises(OSError, match="No space"):
        write_report(path, chain[0])
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_bad_paths(chain, tmp_path):
    with pytest.raises(ValueError, match=r"must end in \.html or \.htm"):
        write_report(tmp_path / "report.pdf", chain[0])
    with pytest.raises(FileNotFoundError, match="no folder"):
        write_report(tmp_path / "missing" / "report.html", chain[0])


def test_style_has_screen_print_and_dark(chain, page_of):
    model, X, y = chain
    root, _ = page_of(model, y_true=y, y_pred=model.predict(X))
    style = root.one("style").text
    assert "@media print" in style
    assert "@media screen and (prefers-color-scheme: dark)" in style
    assert "url(" not in style
    assert "@import" not in style
    assert style.count("{") == style.count("}")
    used = {name for e in root.all() for name in e.attrs.get("class", "").split()}
    assert used <= set(re.findall(r"\.([a-z][a-z0-9]*)", style))


@pytest.fixture(scope="module")
def template():
    return report._load_template().environment.from_string(
        '<p title="{{ value }}">{{ value }}</p><b title="{{ value | show }}">{{ value | show }}</b>'
    )


@given(st.text(st.characters(), max_size=40))  # surrogates and controls too
def test_whatever_the_template_prints_is_text(template, parse, value):
    root = parse(template.render(value=value))
    plain, shown = root.children
    for element in (plain, shown):
        assert all(isinstance(child, str) for child in element.children)
        assert element.attrs["title"] == element.text
    assert shown.text == show(value)
    assert not set(plain.text) & set("\n\t\x00\u202e\ud800")


def test_tables_have_captions_and_scopes(chain, page_of):
    model, X, y = chain
    root, _ = page_of(model, y_true=y, y_pred=model.predict(X))
    (table,) = [t for t in root.all("table") if t.one("caption").text == "Spans by type"]
    (box,) = [d for d in root.all("div") if d.attrs.get("aria-label") == "Spans by type"]
    assert table in box.children
    rows = table.one("tbody").all("tr")
    assert {th.attrs["scope"] for th in table.one("thead").all("th")} == {"col"}
    assert [[c.tag for c in tr.children] for tr in rows] == [["th"] + ["td"] * 4] * len(rows)
    assert {tr.children[0].attrs["scope"] for tr in rows} == {"row"}
    assert [tr.attrs.get("class") for tr in rows] == [None, None, "sum", "sum", "sum"]
    assert {td.attrs["class"] for td in table.all("td")} == {"n"}


@pytest.mark.parametrize("name", ["jinja2", "matplotlib"])
def test_without_the_extra(chain, name, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=rf"a report needs {name}.*hingeline\[plot\]"):
        write_report(tmp_path / "report.html", chain[0])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.skipif("HINGELINE_DATA" not in os.environ, reason="HINGELINE_DATA is not set")
def test_size_on_chunks(parse, tmp_path):
    """A page of a CoNLL-2000 model, with 15 features for and against each label."""
    folder = Path(os.environ["HINGELINE_DATA"]) / "conll2000"
    if not (folder / "train.txt.gz").exists():
        pytest.skip(f"{folder} has no train.txt.gz")
    sequences = {}
    for part in ("train", "test"):
        with gzip.open(folder / f"{part}.txt.gz", "rt", encoding="utf-8") as file:
            blocks = file.read().strip().split("\n\n")
        sequences[part] = [[line.split() for line in block.split("\n")] for block in blocks]
    train = sequences["train"][:1500]
    encoder = DictVectorizer()

    def encode(sentence):
        return [
            {f"{k}:{sentence[t + k][0]}": 1.0 for k in (-1, 0, 1) if 0 <= t + k < len(sentence)}
            for t in range(len(sentence))
        ]

    encoder.fit([token for sentence in train for token in encode(sentence)])
    X, X_test = (
        [encoder.transform(encode(s)) for s in part] for part in (train, sequences["test"])
    )
    y, y_test = ([[t[2] for t in s] for s in part] for part in (train, sequences["test"]))
    model = ChainSSVM(random_state=0, max_iter=3, tol=1.0).fit(X, y)
    path = write_report(
        tmp_path / "chunks.html",
        model,
        y_true=y_test,
        y_pred=model.predict(X_test),
        tokens=[[t[0] for t in s] for s in sequences["test"]],
        data={"training": folder / "train.txt.gz"},
        feature_names=encoder.get_feature_names_out(),
    )
    assert path.stat().st_size < 500_000
    parse(path.read_text(encoding="utf-8"))


def luminance(rgb):
    parts = [c / 3294.6 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in rgb]
    return np.dot(parts, [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("mode", [0, 1])
def test_contrast(mode):
    """Whatever is written has a contrast of at least 4.5 to 1, in light and dark."""
    style = (Path(sections.__file__).parent / "style.css.j2").read_text()
    found = {}
    for name in ("text", "muted", "back", "blue", "orange"):
        values = re.findall(rf"--{name}: (#[0-9a-f]{{3,6}}|\d+ \d+ \d+)", style)
        colour = values[mode].strip()
        if colour[0] == "#":
            digits = colour[1:] * (2 if len(colour) == 4 else 1)
            colour = " ".join(str(int(digits[k : k + 2], 16)) for k in (0, 2, 4))
        found[name] = np.array([int(n) for n in colour.split()])

    def over(name, share):
        return found["back"] + share * (found[name] - found["back"])

    deepest = 0.06 + 0.44  # of a cell
    assert "0.06 + 0.44" in style
    pairs = [(name, found["back"]) for name in ("text", "muted", "blue", "orange")]
    pairs += [(name, over("orange", 0.1)) for name in ("text", "blue", "orange")]  # what is wrong
    pairs += [("text", over(name, deepest)) for name in ("blue", "orange")]
    pairs += [("text", over(name, 0.22)) for name in ("blue", "orange")]  # bars
    for name, behind in pairs:
        low, high = sorted([luminance(found[name]), luminance(behind)])
        assert (high + 0.05) / (low + 0.05) >= 4.5, (name, behind)
