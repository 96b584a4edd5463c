"""Tables of weights: every weight once, under the right names."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from hingeline import SSVM, ChainSSVM, MulticlassSSVM
from hingeline.core.primitives import stack_blocks
from hingeline.evaluation.inspection import WeightRow, weights_table, write_weights


@pytest.fixture(scope="module")
def chain():
    X = [np.eye(3)[[0, 1, 2]], np.eye(3)[[2, 1]]]
    return ChainSSVM(C=10.0, random_state=0).fit(X, [["a", "b", "a"], ["a", "c"]])


def test_every_weight_is_there_once(chain):
    rows = list(weights_table(chain))
    assert len(set(rows)) == len(rows) == np.count_nonzero(chain.weights_)
    labels = {"a": 0, "b": 1, "c": 2}
    blocks = {
        "emission": lambda row: chain.emission_coef_[labels[row.label], row.feature],
        "intercept": lambda row: chain.intercept_[labels[row.label]],
        "transition": lambda row: chain.transition_coef_[labels[row.label], labels[row.feature]],
        "start": lambda row: chain.start_coef_[labels[row.label]],
        "end": lambda row: chain.end_coef_[labels[row.label]],
    }
    assert {row.block for row in rows} == set(blocks)
    for row in rows:
        assert row.weight == blocks[row.block](row)
        if row.block in ("intercept", "start", "end"):
            assert row.feature == ""


def test_rows_of_tables_that_have_no_names_are_numbered():
    class Model(BaseEstimator):
        classes_ = np.array(["a", "b"])
        weights_ = np.array([1.0, 0.0, 2.0, 3.0, 4.0, 0.0])
        _layout = stack_blocks({"rhyme": 2, "intercept": 1}, 2, 2)

        def fit(self, X, y):
            raise NotImplementedError

    rows = [("rhyme", "a", 0, 1.0), ("rhyme", "a", 1, 2.0), ("rhyme", "b", 1, 3.0)]
    assert list(weights_table(Model())) == [*rows, ("intercept", "a", "", 4.0)]


def test_names_come_from_the_encoder_or_the_data():
    y = np.arange(21) % 3
    X = np.array([[0.0, 5.0], [5.0, 0.0], [-5.0, -5.0]])[y]
    model = MulticlassSSVM(tol=0.1).fit(X + np.linspace(-1, 1, 42).reshape(21, 2), y)
    assert {row.feature for row in weights_table(model) if row.block == "coef"} == {0, 1}
    model.feature_names_in_ = np.array(["x", "y"], dtype=object)
    rows = [row for row in weights_table(model) if row.block == "coef"]
    assert rows[0] == WeightRow("coef", 0, "x", model.coef_[0, 0])
    assert rows[-1] == WeightRow("coef", 2, "y", model.coef_[2, 1])

    class Encoder:
        def get_feature_names_out(self):
            return np.array(["p", "q"])

    model.encoder_ = Encoder()
    assert {row.feature for row in weights_table(model) if row.block == "coef"} == {"p", "q"}


def test_many_rows(chain):
    """More than are taken at once."""
    rng = np.random.default_rng(0)
    model = MulticlassSSVM()
    model.classes_ = np.array([0, 1, 2])
    model.n_features_in_ = 10_000
    table = np.zeros((10_001, 4))
    table[:, :3] = rng.integers(-1, 2, size=(10_001, 3))
    model.weights_ = table.ravel()
    rows = list(weights_table(model))
    back = np.zeros((10_001, 4))
    for row in rows:
        back[10_000 if row.block == "intercept" else row.feature, row.label] = row.weight
    assert np.array_equal(back, table)
    assert len(rows) == np.count_nonzero(table)


@pytest.mark.parametrize("name", ["weights.tsv", "weights.tsv.gz"])
def test_text(chain, tmp_path, name):
    path = tmp_path / name
    count = write_weights(path, chain)
    content = path.read_bytes()
    text = (gzip.decompress(content) if name.endswith("gz") else content).decode()
    head, *lines = text.removesuffix("\n").split("\n")
    assert head == "block\tlabel\tfeature\tweight"
    rows = list(weights_table(chain))
    assert len(lines) == len(rows) == count
    for line, row in zip(lines, rows, strict=True):
        block, label, feature, weight = line.split("\t")
        assert (block, label, feature) == (row.block, str(row.label), str(row.feature))
        assert float(weight) == row.weight
    write_weights(path, chain)
    assert path.read_bytes() == content
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_odd_names_stay_on_their_line(tmp_path):
    model = MulticlassSSVM(fit_intercept=False)
    model.classes_ = np.array(["a\tb", "c\nd", "\\n\r"], dtype=object)
    model.n_features_in_ = 1
    model.weights_ = np.array([1.0, 2.0, 3.0, 0.0])
    write_weights(tmp_path / "w", model)
    lines = (tmp_path / "w").read_bytes().decode().split("\n")
    assert lines[1:] == ["coef\ta\\tb\t0\t1.0", "coef\tc\\nd\t0\t2.0", "coef\t\\\\n\\r\t0\t3.0", ""]


def test_refusals(tmp_path):
    with pytest.raises(TypeError, match="the weights of SSVM have no names"):
        write_weights(tmp_path / "w", SSVM())
    with pytest.raises(NotFittedError):
        write_weights(tmp_path / "w", ChainSSVM())
    assert list(tmp_path.iterdir()) == []
