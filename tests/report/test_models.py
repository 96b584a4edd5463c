"""What a page says of each kind of model, against the model itself."""

from __future__ import annotations

import re

import numpy as np
import pytest

from hingeline import SSVM, ChainSSVM, SegmentSSVM
from hingeline.evaluation.metrics import evaluate
from hingeline.report import render_report

SECTIONS = ["model", "convergence", "evaluation", "errors", "weights", "provenance"]


def test_chain(chain, page_of, rows_of):
    model, X, y = chain
    predicted = model.predict(X)
    tokens = [[f"w{i}.{t}" for t in range(len(x))] for i, x in enumerate(X)]
    root, sections = page_of(model, y_true=y, y_pred=predicted, tokens=tokens, n_errors=3)
    assert sections == SECTIONS
    found = evaluate(y, predicted)
    summary = dict(rows_of(root, "Summary"))
    assert summary["token accuracy"] == f"{100 * found.token_accuracy:.2f}\u00a0%"
    assert summary["span F1"] == f"{100 * found.span_f1:.2f}\u00a0%"
    types = rows_of(root, "Spans by type")
    assert [row[0] for row in types] == ["NP", "VP", "micro", "macro", "weighted"]
    assert types[0][1] == f"{100 * found.per_type[0].precision:.2f}"
    confusion = rows_of(root, "Confusion")
    shown = [[int(c.replace(",", "").replace("·", "0")) for c in row[1:]] for row in confusion]
    assert shown == found.confusion.tolist()
    (table,) = [t for t in root.all("table") if t.one("caption").text == "Confusion matrix"]
    for a, tr in enumerate(table.one("tbody").all("tr")):
        for b, td in enumerate(tr.all("td")):
            right = td.attrs.get("class", "").startswith("b")
            assert right == (a == b and found.confusion[a, b] > 0)
    # The costliest sentences, each token with its labels.
    losses = [
        sum(a != b for a, b in zip(s, t, strict=True)) for s, t in zip(y, predicted, strict=True)
    ]
    listed = root.all("ol", class_="errors")[0]
    sentences = listed.all("div", class_="sentence")
    assert len(sentences) == 3
    which = listed.all("p", class_="which")
    numbers = [int(re.search(r"Number (\d+)", p.text)[1]) - 1 for p in which]  # from 1
    assert [losses[i] for i in numbers] == sorted(losses, reverse=True)[:3]
    first = numbers[0]
    cells = sentences[0].all("span", class_="t")
    assert [c.one("bdi").text for c in cells] == tokens[first]
    for cell, a, b in zip(cells, y[first], predicted[first], strict=True):
        labels = [label.text for label in cell.all("span", class_="l")]
        wrong = "x" in cell.attrs["class"].split()
        assert wrong == (a != b)
        assert labels == ([f"true {a}", f"predicted {b}"] if wrong else [a])


def test_transitions_are_the_models(chain, page_of, rows_of):
    model = chain[0].with_weights(10 * chain[0].weights_)
    root, _ = page_of(model)
    rows = rows_of(root, "From label")
    assert [row[0] for row in rows] == ["(start)", *model.classes_]
    shown = [[c.replace("−", "-").replace("·", "0") for c in row[1:-1]] for row in rows]
    expected = np.vstack([model.start_coef_, model.transition_coef_])
    decimals = max(len(c.partition(".")[2]) for row in shown for c in row)
    assert decimals >= 1
    last = 0.501 * 10.0**-decimals
    np.testing.assert_allclose(np.array(shown, dtype=float), expected, rtol=0, atol=last)
    (table,) = root.all("table", class_="matrix")
    largest = np.unravel_index(np.argmax(expected), expected.shape)
    cell = table.one("tbody").all("tr")[largest[0]].all("td")[largest[1]]
    assert cell.attrs["class"].startswith("b")
    smallest = np.unravel_index(np.argmin(expected), expected.shape)
    cell = table.one("tbody").all("tr")[smallest[0]].all("td")[smallest[1]]
    assert cell.attrs["class"].startswith("o")


@pytest.mark.parametrize(("scale", "units"), [(1e-4, "10⁻⁵"), (1e5, "10⁴")])
def test_transitions_of_another_size_have_units(chain, scale, units, page_of, rows_of):
    model, *_ = chain
    plain = np.abs(
        np.concatenate([model.transition_coef_.ravel(), model.start_coef_, model.end_coef_])
    )
    model = model.with_weights(model.weights_ * (0.5 / plain.max()) * scale)
    root, _ = page_of(model)
    assert f"in units of {units}" in root.text
    cells = [c for row in rows_of(root, "From label") for c in row[1:] if c not in ("·", "")]
    assert max(abs(float(c.replace("−", "-"))) for c in cells) == 5.0
    assert max(map(len, cells)) <= 5


def test_forbidden_moves_are_marked(make_chain, page_of, rows_of):
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(3, 2)) for _ in range(10)]
    y = [["B-A", "I-A", "O"], ["O", "B-A", "I-A"]] * 5
    model = ChainSSVM(scheme="IOB2", random_state=0).fit(X, y)
    root, _ = page_of(model)
    rows = {row[0]: row[1:] for row in rows_of(root, "From label")}
    assert [rows["O"][1], rows["(start)"][1]] == ["×", "×"]  # to I-A
    assert rows["B-A"][1] != "×"
    assert "forbidden by IOB2" in root.text


def test_features_by_label(flat, page_of):
    model, *_ = flat
    names = ["one", "two", "three", "four", "five"]
    root, _ = page_of(model, n_features=2, feature_names=names)
    cards = root.all("article")
    assert [card.one("h4").text for card in cards] == ["left", "middle", "right"]
    for card, weights, constant in zip(cards, model.coef_, model.intercept_, strict=True):
        for table, sign in zip(card.all("table"), (1, -1), strict=True):
            rows = [[c.text for c in tr.children] for tr in table.all("tr")]
            ranked = sorted(zip([*weights, constant], [*names, "(constant)"], strict=True))
            ranked = [(w, n) for w, n in ranked[::-sign] if sign * w > 0][:2]
            assert [row[0] for row in rows] == [name for _, name in ranked]
            shown = [float(row[1].replace("−", "-")) for row in rows]
            np.testing.assert_allclose(shown, [w for w, _ in ranked], atol=0.005)


def test_flat(flat, page_of, rows_of):
    model, X, y = flat
    predicted = model.predict(X).copy()
    predicted[3] = "left" if y[3] != "left" else "right"
    texts = [f"text {i}" for i in range(len(y))]
    root, sections = page_of(model, y_true=y, y_pred=predicted, tokens=texts)
    assert sections == SECTIONS
    assert [row[0] for row in rows_of(root, "Summary")] == ["accuracy"]
    errors = rows_of(root, "Errors")
    assert ["4", "1", y[3], predicted[3], "text 3"] in errors  # from 1
    assert len(errors) == min(20, int((predicted != y).sum()))
    assert root.all("table", class_="matrix")  # the confusions, but no transitions
    assert "From label" not in root.text


def test_own_structure(python_chain, page_of, rows_of):
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(3, 2)) for _ in range(5)]
    y = [rng.integers(0, 3, 3) for _ in X]
    model = SSVM(python_chain(), max_iter=2, tol=0.9).fit(X, y)
    root, sections = page_of(model, y_true=y, y_pred=model.predict(X), n_features=4)
    assert sections == SECTIONS
    shown = [(int(k), float(w.replace("−", "-"))) for k, w in rows_of(root, "The 4 largest")]
    order = np.argsort(-np.abs(model.weights_))[:4]
    assert [k for k, _ in shown] == order.tolist()
    np.testing.assert_allclose([w for _, w in shown], model.weights_[order], atol=0.01)
    assert "structure PythonChain" in root.one("header").text
    # Weights that were put into a new estimator have neither certificate nor curve.
    other = SSVM(python_chain())
    other.weights_ = model.weights_
    root, sections = page_of(other)
    assert sections == ["model", "convergence", "weights", "provenance"]
    assert "No gap is certified: weights were set by hand." in root.text


def test_spans_are_compared_as_tags():
    X, spans = [["Ann", "ran"], ["Bob", "sat"]] * 4, [[(0, 1, "PER")]] * 8
    model = SegmentSSVM(tol=0.5, random_state=0).fit(X, spans)
    with pytest.raises(ValueError, match=r"y_true holds spans.* pass model.to_tags"):
        render_report(model, y_true=spans, y_pred=model.predict(X), tokens=X)
    y = [model.to_tags([x], own) for x, own in zip(X, spans, strict=True)]
    assert "span F1" in render_report(model, y_true=y, y_pred=y, tokens=X)
