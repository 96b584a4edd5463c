"""Two models on the same data: signs, counts, and chances against plain computations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from hingeline import MultilabelSSVM
from hingeline.evaluation.metrics import evaluate
from hingeline.report import render_report
from hingeline.report.errors import mcnemar


@pytest.fixture(scope="module")
def duel(chain):
    """(model, true, own, other): the model's own labels are better."""
    model, _, y = chain
    rng = np.random.default_rng(0)

    def spoil(share):
        return [
            [rng.choice(["B-NP", "I-NP", "B-VP", "O"]) if rng.random() < share else t for t in s]
            for s in y
        ]

    return model, y, spoil(0.1), spoil(0.4)


def numbers(row):
    return [float(cell.replace("−", "-")) for cell in row]


def test_a_better_model_has_positive_differences(duel, page_of, rows_of):
    model, y, own, other = duel
    root, found = page_of(model, y_true=y, y_pred=own, compare={"other": other})
    assert found[4] == "comparison"
    rows = {row[0]: row[1:] for row in rows_of(root, "Scores")}
    a, b = evaluate(y, own), evaluate(y, other)
    for name, score in (("token accuracy", "token_accuracy"), ("span F1", "span_f1")):
        values = [100 * getattr(side, score) for side in (a, b)]
        assert numbers(rows[name][:2]) == pytest.approx(values, abs=0.006)
        assert float(rows[name][2]) == pytest.approx(values[0] - values[1], abs=0.006)
        assert values[0] > values[1]
        low, high = numbers(rows[name][3].split(" to "))
        assert 0 < low < values[0] - values[1] < high
        assert float(rows[name][4]) < 0.01
    by_type = {score.name: score for score in a.per_type}
    assert numbers(rows["F1 of NP"][:1]) == pytest.approx([100 * by_type["NP"].f1], abs=0.006)
    # The other way round all signs turn.
    root, _ = page_of(model, y_true=y, y_pred=other, compare={"own": own})
    turned = {row[0]: row[1:] for row in rows_of(root, "Scores")}
    for name, row in rows.items():
        assert float(turned[name][2].replace("−", "-")) == -float(row[2].replace("−", "-"))


def test_who_is_right(duel, page_of, rows_of):
    model, y, own, other = duel
    root, _ = page_of(model, y_true=y, y_pred=own, compare={"other": other}, n_errors=6)
    right = [[s == list(t) for s, t in zip(y, side, strict=True)] for side in (own, other)]
    only = sum(a and not b for a, b in zip(*right, strict=True))
    theirs = sum(b and not a for a, b in zip(*right, strict=True))
    rows = rows_of(root, "Who is right")
    assert [int(c) for c in rows[0][2:4]] == [only, theirs]
    assert sum(map(int, rows[1][1:])) == sum(map(len, y))
    groups = root.one(id="comparison").all("details")
    assert f"({only})" in groups[0].one("summary").text
    assert len(groups[0].all("li")) == min(only, 3)
    # Where only this model is right, the errors shown are the other's.
    for cell in groups[0].all("li")[0].all("span", class_="x"):
        assert cell.one("span", class_="y").text != cell.one("span", class_="z").text
    assert all("id" not in li.attrs for li in groups[0].all("li"))


@pytest.mark.parametrize(("only", "theirs"), [(0, 0), (3, 3), (10, 2), (2, 10), (40, 0)])
def test_mcnemar(only, theirs):
    n, k = only + theirs, min(only, theirs)
    expected = min(1.0, 2 * binom.cdf(k, n, 0.5)) if n else 1.0
    assert mcnemar(only, theirs) == pytest.approx(expected)


def test_equal_models_do_not_differ(duel, page_of, rows_of):
    model, y, own, _ = duel
    root, _ = page_of(model, y_true=y, y_pred=own, compare={"<b>same</b>": own})
    for row in rows_of(root, "Scores"):
        assert (row[3], row[4], row[5]) == ("0.00", "0.00 to 0.00", "1.000")
    assert "<b>same</b> only" in root.one(id="comparison").text


def test_single_labels(flat, page_of, rows_of):
    model, X, y = flat
    own, other = model.predict(X).copy(), model.predict(X).copy()
    other[:20] = np.roll(other[:20], 1)
    root, _ = page_of(model, y_true=y, y_pred=own, compare={"other": other})
    rows = {row[0]: row[1:] for row in rows_of(root, "Scores")}
    assert float(rows["accuracy"][2]) == pytest.approx(
        100 * (np.mean(own == y) - np.mean(other == y)), abs=0.006
    )
    assert float(rows["accuracy"][2]) > 0


def test_sets_of_labels(page_of, rows_of):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = (X > 0).astype(int)
    model = MultilabelSSVM(C=1.0, random_state=0).fit(X, y)
    other = y ^ (rng.random(y.shape) < 0.3)
    root, _ = page_of(model, y_true=y, y_pred=y, compare={"other": other})
    rows = {row[0]: row[1:] for row in rows_of(root, "Scores")}
    share = 100 * (y == other).mean()
    assert numbers(rows["indicators right"][:3]) == pytest.approx(
        [100.0, share, 100 - share], abs=0.006
    )
    f1 = 200 * (y & other)[:, 1].sum() / (y[:, 1].sum() + other[:, 1].sum())
    assert float(rows["F1 of 1"][1]) == pytest.approx(f1, abs=0.006)


def test_bad_comparisons(chain):
    model, _, y = chain
    with pytest.raises(ValueError, match="compare must be a dict of one name"):
        render_report(model, y_true=y, y_pred=y, compare=y)
    with pytest.raises(ValueError, match="with y_true and y_pred"):
        render_report(model, compare={"other": y})
    with pytest.raises(ValueError, match="40 sequences and y_pred has 39"):
        render_report(model, y_true=y, y_pred=y, compare={"other": y[1:]})
