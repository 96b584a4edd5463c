"""Which errors a page shows, what they are filtered by, and where the confusion matrix leads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hingeline import Graph, GraphSSVM, MultilabelSSVM
from hingeline.evaluation.metrics import multilabel_scores, pair_labels
from hingeline.report import render_report
from hingeline.report.errors import find_filter, find_span_errors
from hingeline.report.outcome import compare
from hingeline.schemes import spans

TAGS = st.sampled_from(["B-A", "I-A", "B-B", "I-B", "O"])
SEQUENCES = st.lists(
    st.lists(st.tuples(TAGS, TAGS), min_size=1, max_size=8), min_size=1, max_size=4
)


def expected_errors(true, predicted):
    """Kinds of the wrong spans of one sequence, pair by pair."""
    a, b = spans(true, "IOB2"), spans(predicted, "IOB2")
    found = []
    for side, other, name in ((a, b, "missed"), (b, a, "extra")):
        found += [name for _, lo, hi in side if all(h <= lo or hi <= x for _, x, h in other)]
    for kind, lo, hi in a:
        for other, first, stop in b:
            if max(lo, first) < min(hi, stop) and (kind, lo, hi) != (other, first, stop):
                ends = (lo, hi) == (first, stop)
                found.append("type" if ends else "ends" if kind == other else "both")
    return sorted(found)


@given(SEQUENCES)
def test_span_errors_against_a_loop(sequences):
    true, predicted = ([[pair[k] for pair in s] for s in sequences] for k in (0, 1))
    found = find_span_errors(pair_labels(true, predicted), "IOB2")
    for i, (a, b) in enumerate(zip(true, predicted, strict=True)):
        assert sorted(kind for own, kind in found if own == i) == expected_errors(a, b)


def errors_of(root):
    """(number, keys) of every error on the page."""
    marked = [e for e in root.one(id="errors").all() if "data-keys" in e.attrs]
    return {e.attrs["id"]: e.attrs["data-keys"].split() for e in marked}


def test_the_matrix_leads_to_sentences_with_that_confusion(chain, page_of):
    model, X, y = chain
    predicted = model.predict(X)
    root, _ = page_of(model, y_true=y, y_pred=predicted, n_errors=2)
    assert "numbered from 1, as for hingeline explain -s." in root.one(id="errors").text
    shown = errors_of(root)
    labels = sorted({label for s in (*y, *predicted) for label in s})
    (table,) = [t for t in root.all("table") if t.one("caption").text == "Confusion matrix"]
    links = 0
    for a, tr in enumerate(table.one("tbody").all("tr")):
        for b, td in enumerate(tr.all("td")):
            if not (found := td.all("a")):
                assert a == b or td.text == "·" or links >= 2
                continue
            links += 1
            name, key = found[0].attrs["href"][1:], found[0].attrs["data-key"]
            assert key in shown[name]
            i = int(name.removeprefix("error-")) - 1
            assert (labels[a], labels[b]) in zip(y[i], predicted[i], strict=True)
    assert links >= 4
    options = {o.attrs["value"] for o in root.one(id="filter").all("option")}
    assert {key for keys in shown.values() for key in keys} <= options


def test_keys_of_sentences_are_what_is_wrong(chain):
    model, *_ = chain
    true = [["B-NP", "I-NP", "O"], ["B-VP", "O"], ["O"], ["B-NP", "I-NP"]]
    predicted = [["B-NP", "O", "O"], ["B-NP", "O"], ["O"], ["B-NP", "I-NP"]]
    found = find_filter(compare(model, None, true, predicted, None))
    names = {f"l{k}": label for k, label in enumerate(found.labels)}
    assert sorted(found.keys) == [0, 1]
    assert {names.get(key, key) for key in found.keys[0] if key[0] != "p"} == {"I-NP", "O", "ends"}
    assert {names.get(key, key) for key in found.keys[1] if key[0] != "p"} == {
        "B-VP",
        "B-NP",
        "type",
    }
    assert found.kinds == {"ends": 1, "type": 1}


def test_every_confusion_has_examples(make_chain, page_of):
    """A rare confusion that is in no costly sentence is on the page all the same."""
    model, *_ = make_chain(["a", "b", "c"], n=10)
    true = [["a", "a", "a"]] * 30 + [["c", "a"]]
    predicted = [["b", "b", "b"]] * 30 + [["a", "a"]]
    root, _ = page_of(model, y_true=true, y_pred=predicted, n_errors=3)
    shown = errors_of(root)
    assert "error-31" in shown
    assert len(shown) == 3 + 1
    more = root.one(id="errors").one("details")
    assert [li.attrs["id"] for li in more.all("li")] == ["error-31"]


def test_no_filter_without_errors(chain, page_of):
    model, _, y = chain
    root, _ = page_of(model, y_true=y, y_pred=y)
    assert root.all(id="filter") == []


def test_everything_folds_and_opens_by_the_keyboard(chain, page_of):
    model, X, y = chain
    root, sections = page_of(model, y_true=y, y_pred=model.predict(X))
    chapters = root.all("details", class_="chapter")
    assert [d.one("section").attrs["id"] for d in chapters] == sections
    opened = [d.one("section").attrs["id"] for d in chapters if "open" in d.attrs]
    assert opened == ["model", "evaluation", "errors"]
    for fold in root.all("details"):
        first = next(c for c in fold.children if not isinstance(c, str))
        assert first.tag == "summary"
        assert first.text.strip()


# Sets of labels ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sets():
    """(model, X, y) of sets of labels."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    y = (X[:, :3] + 0.7 * rng.normal(size=(60, 3)) > 0).astype(int)
    model = MultilabelSSVM(C=0.1, random_state=0).fit(X, y)
    model.classes_ = np.array(["<b>", "two", "three"], dtype=object)
    return model, X, y


def test_sets(sets, page_of, rows_of):
    model, X, y = sets
    predicted = model.predict(X)
    root, found = page_of(model, y_true=y, y_pred=predicted, n_errors=4)
    assert found == ["model", "convergence", "evaluation", "errors", "weights", "provenance"]
    scores = multilabel_scores(y, predicted)
    summary = dict(rows_of(root, "Summary"))
    assert summary["hamming loss"] == f"{100 * scores.hamming_loss:.2f}\u00a0%"
    assert summary["example F1"] == f"{100 * scores.example_f1:.2f}\u00a0%"
    rows = rows_of(root, "Labels")
    assert [row[0] for row in rows] == ["<b>", "two", "three"]
    right = int((y[:, 1] & predicted[:, 1]).sum())
    assert rows[1][1] == f"{100 * right / predicted[:, 1].sum():.2f}"
    assert rows[1][2] == f"{100 * right / y[:, 1].sum():.2f}"
    about = root.one(id="errors").text
    assert "numbered from 1." in about  # explain has nothing to say of sets
    assert "hingeline explain" not in about
    errors = rows_of(root, "Errors")
    losses = (y != predicted).sum(axis=1)
    assert [float(row[1]) for row in errors] == sorted(losses, reverse=True)[:4]
    names = np.array(["<b>", "two", "three"])
    for number, _, missing, surplus, both in errors:
        i = int(number) - 1
        masks = (y[i] & ~predicted[i], predicted[i] & ~y[i], y[i] & predicted[i])
        expected = [", ".join(names[mask.astype(bool)]) or "–" for mask in masks]
        assert [missing, surplus, both] == expected
        keys = errors_of(root)[f"error-{number}"]
        assert ("absent" in keys, "surplus" in keys) == (missing != "–", surplus != "–")
    pairs = rows_of(root, "Pairs of labels")
    assert len(pairs) == 3
    a, b = [*names].index(pairs[0][0]), [*names].index(pairs[0][1])
    assert pairs[0][2:4] == [
        str((y[:, a] & y[:, b]).sum()),
        str((predicted[:, [a, b]].all(1)).sum()),
    ]
    cards = root.all("article")
    assert [card.one("h4").text for card in cards] == [*names]


def test_affinities_of_sets_keep_their_sign(sets, page_of, rows_of):
    model, *_ = sets
    root, _ = page_of(model)
    from hingeline.report import label_affinities

    table = label_affinities(model)
    rows = rows_of(root, "Label (rows)")
    assert rows[0][1] == ""  # not with itself
    shown = float(rows[0][2].replace("−", "-").replace("·", "0"))
    assert np.sign(shown) == np.sign(np.round(table[0, 1], 6))


def test_a_single_label(page_of, rows_of):
    X = np.array([[0.0], [1.0], [2.0], [3.0]] * 5)
    y = np.array(["no", "no", "yes", "yes"] * 5)
    model = MultilabelSSVM(random_state=0).fit(X, y)
    root, _ = page_of(model, y_true=y, y_pred=y[::-1])
    assert rows_of(root, "Labels")[0][0] == "yes"
    assert rows_of(root, "Labels")[0][2] == "0.00"


def test_bad_sets(sets):
    model, _, y = sets
    with pytest.raises(ValueError, match=r"y_pred has shape \(60, 2\), expected \(examples, 3\)"):
        render_report(model, y_true=y, y_pred=y[:, :2])
    with pytest.raises(ValueError, match="60 examples and y_pred has 59"):
        render_report(model, y_true=y, y_pred=y[1:])


# Graphs ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pictures():
    """(model, X, y): rows of pixels, some of which nobody has labelled."""
    rng = np.random.default_rng(0)
    y = [["sky"] * 3 + ["grass"] * 2 + ["void"] for _ in range(8)]
    X = []
    for labels in y:
        features = np.array([[1.0, 0.0] if s == "sky" else [0.0, 1.0] for s in labels])
        noisy = features + 0.9 * rng.normal(size=features.shape)
        X.append(Graph(noisy, edges=[(k, k + 1) for k in range(5)]))
    model = GraphSSVM(C=1.0, void_label="void", random_state=0).fit(X, y)
    return model, X, y


def test_graphs(pictures, page_of, rows_of):
    model, X, y = pictures
    predicted = [labels[::-1] for labels in model.predict(X)]  # surely with errors
    root, _ = page_of(model, y_true=y, y_pred=predicted, regions=[(2, 3)] * 8, n_errors=3)
    known = [[(a, b) for a, b in zip(s, t, strict=True) if a != "void"]
             for s, t in zip(y, predicted, strict=True)]  # fmt: skip
    flat = [pair for pairs in known for pair in pairs]
    share = np.mean([a == b for a, b in flat])
    assert dict(rows_of(root, "Summary"))["node accuracy"] == f"{100 * share:.2f}\u00a0%"
    rows = {row[0]: row for row in rows_of(root, "Nodes by label")}
    assert set(rows) == {"sky", "grass"}
    both = sum(a == b == "sky" for a, b in flat)
    union = sum("sky" in pair for pair in flat)
    assert rows["sky"][4] == f"{100 * both / union:.2f}"
    assert "hingeline explain" not in root.one(id="errors").text
    images = root.one(id="errors").all("img")
    assert len(images) == len(errors_of(root))
    assert all(image.attrs["alt"] for image in images)
    table = model.pairwise_coef_
    k = np.unravel_index(np.argmax(table), table.shape)
    weights = rows_of(root, "First node")
    decimals = max(len(c.partition(".")[2]) for row in weights for c in row[1:])
    value = float(weights[k[0]][1 + k[1]].replace("−", "-").replace("·", "0"))
    assert value == pytest.approx(table[k], abs=0.6 * 10.0**-decimals)


def test_graphs_without_pictures_say_what_is_confused(pictures, page_of):
    model, _, y = pictures
    wrong = [["grass", *labels[1:]] for labels in y]
    root, _ = page_of(model, y_true=y, y_pred=wrong, n_errors=1)
    item = root.one(id="error-1")
    assert "sky taken for→ grass: 1" in " ".join(item.one("ul").text.split())
    with pytest.raises(ValueError, match="regions has 1 entries and y_true has 8"):
        render_report(model, y_true=y, y_pred=wrong, regions=[(2, 3)])
    with pytest.raises(ValueError, match=r"regions\[\d\]: truth has 6 labels, but shape=\(3, 3\)"):
        render_report(model, y_true=y, y_pred=wrong, regions=[(3, 3)] * 8)
    with pytest.raises(ValueError, match="pass regions with them"):
        render_report(model, y_true=y, y_pred=wrong, images=[None])
