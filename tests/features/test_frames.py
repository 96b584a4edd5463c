"""from_frame, with pandas and polars where they are, and with the least that a frame must have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn import config_context
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from hingeline import ChainSSVM, MulticlassSSVM, MultilabelSSVM
from hingeline.features import DictEncoder, PerToken, TokenTemplates, from_frame, to_column
from hingeline.features.tables import TokenTable


class Column:
    def __init__(self, values: Any) -> None:
        self.values = values

    def to_numpy(self) -> Any:
        if all(isinstance(value, str) or value is None for value in self.values):
            return np.array(self.values, dtype=object)
        return np.array(self.values)


class Frame:
    """No more than from_frame may ask for."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self._columns = columns
        self.columns = list(columns)

    def __getitem__(self, name: str) -> Column:
        return Column(self._columns[name])


def pandas_frame(columns: Any) -> Any:
    return pytest.importorskip("pandas").DataFrame(columns)


def polars_frame(columns: Any) -> Any:
    return pytest.importorskip("polars").DataFrame(columns)


COLUMNS = {
    "sentence": ["s2", "s1", "s2", "s1", "s3"],
    "word": ["He", "A", "ran", "cat", "Stop"],
    "pos": ["P", "D", "V", "N", "V"],
    "tag": ["B", "B", "O", "I", "O"],
}


@pytest.mark.parametrize("make", [Frame, pandas_frame, polars_frame])
def test_text(make: Any) -> None:
    X, y = from_frame(make(COLUMNS))
    assert isinstance(X, TokenTable)
    assert X.names == ("word", "pos")
    assert list(X) == [[("He", "P"), ("ran", "V")], [("A", "D"), ("cat", "N")], [("Stop", "V")]]
    assert y == [["B", "O"], ["B", "I"], ["O"]]
    X, y = from_frame(make(COLUMNS), label=None, columns=["pos"])
    assert X.names == ("pos",)
    assert y is None
    assert TokenTemplates(["pos[0]"]).fit_transform(X).matrix.shape == (5, 4)


@pytest.mark.parametrize("make", [Frame, pandas_frame, polars_frame])
def test_numbers(make: Any) -> None:
    frame = {"g": [1, 1, 0], "a": [0.5, 1.5, 2.5], "b": [1, 2, 3], "tag": [7, 8, 9]}
    X, y = from_frame(make(frame), group="g")
    assert [x.tolist() for x in X] == [[[0.5, 1.0], [1.5, 2.0]], [[2.5, 3.0]]]
    assert y == [[7, 8], [9]]


@pytest.mark.parametrize("make", [Frame, pandas_frame, polars_frame])
def test_labels_go_back_to_their_rows(make: Any) -> None:
    frame = make(COLUMNS)
    _, y = from_frame(frame)
    assert y is not None
    assert to_column(y, frame).tolist() == COLUMNS["tag"]
    assert to_column([[1, 2], [3, 4], [5]], frame).tolist() == [1, 3, 2, 4, 5]
    with pytest.raises(ValueError, match="labels are of 2 sentences with 4 tokens, but the frame"):
        to_column(y[:2], frame)
    with pytest.raises(ValueError, match=r"no column 'doc': pass group=, .* one of 'sentence'"):
        to_column(y, frame, group="doc")
    with pytest.raises(TypeError, match=r"a frame is expected, got .*: pass the frame and group="):
        to_column(y, frame["sentence"])


@pytest.mark.parametrize("make", [Frame, pandas_frame, polars_frame])
def test_one_sentence_and_usual_names_of_their_column(make: Any) -> None:
    words = {name: COLUMNS[name] for name in ("word", "tag")}
    X, y = from_frame(make(words), group=None)
    assert list(X) == [[(word,) for word in COLUMNS["word"]]]
    assert y == [COLUMNS["tag"]]
    assert to_column(y, make(words), group=None).tolist() == COLUMNS["tag"]
    for name in ("Sentence #", "sentence_id"):
        frame = make({name: COLUMNS["sentence"], **words})
        X, y = from_frame(frame)
        assert X.names == ("word",)
        assert X.lengths.tolist() == [2, 2, 1]
        assert to_column(y, frame).tolist() == COLUMNS["tag"]


@pytest.mark.parametrize(
    ("columns", "params", "message"),
    [
        (
            {**COLUMNS},
            {"group": "doc"},
            "the frame has no column 'doc': pass group=, the column that",
        ),
        ({"word": ["a"], "tag": ["b"]}, {}, "one of 'word', 'tag'; .* one sentence, group=None"),
        ({**COLUMNS}, {"label": "ner"}, "no column 'ner'"),
        ({**COLUMNS}, {"columns": ["x"]}, "no column 'x'"),
        ({"sentence": [1], "tag": ["a"]}, {}, "no columns are left"),
        ({**COLUMNS, "n": [1, 2, 3, 4, 5]}, {}, "column 'n' holds numbers and 'word' does not"),
        ({**COLUMNS, "pos": ["a", None, "b", "c", "d"]}, {}, "row 1 of column 'pos' is None"),
        ({**COLUMNS, "sentence": ["a", None, "b", "c", "d"]}, {}, "row 1 has no group"),
    ],
)
def test_bad_frames(columns: Any, params: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_frame(Frame(columns), **params)


@pytest.mark.parametrize("make", [pandas_frame, polars_frame])
def test_a_list_of_frames_and_columns(make: Any) -> None:
    """As ``groupby`` gives them."""
    frames = [make({"a": [1.0, 0.0, 1.0], "b": [0.0, 2.0, 0.5]}), make({"a": [0.0], "b": [1.0]})]
    y = [["x", "y", "x"], ["y"]]
    plain = ChainSSVM(random_state=0).fit([frame.to_numpy() for frame in frames], y)
    found = ChainSSVM(random_state=0).fit(frames, [make({"y": labels})["y"] for labels in y])
    np.testing.assert_array_equal(found.weights_, plain.weights_)
    assert [labels.tolist() for labels in found.predict(frames)] == y
    words = [make({"word": list("cab"), "pos": list("xyz")}), make({"word": ["a"], "pos": ["y"]})]
    tuples = [[("c", "x"), ("a", "y"), ("b", "z")], [("a", "y")]]
    plain = ChainSSVM(random_state=0).fit(tuples, y)
    np.testing.assert_array_equal(ChainSSVM(random_state=0).fit(words, y).weights_, plain.weights_)
    plain = ChainSSVM(random_state=0).fit([list("cab"), ["a"]], y)
    columns = [frame["word"] for frame in words]
    found = ChainSSVM(random_state=0).fit(columns, y)
    np.testing.assert_array_equal(found.weights_, plain.weights_)
    for _ in range(2):
        found.partial_fit(columns, y)
    assert found.encoder_.n_features_out_ == plain.n_features_in_


@pytest.mark.parametrize("make", [pandas_frame, polars_frame])
def test_tables_and_sets_of_labels(make: Any) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 3)), np.repeat(["a", "b"], 15)
    frame = make({name: X[:, k] for k, name in enumerate("uvw")})
    labels = make({"y": y})["y"]
    plain = MulticlassSSVM(random_state=0).fit(X, y)
    found = MulticlassSSVM(random_state=0).fit(frame, labels)
    np.testing.assert_array_equal(found.weights_, plain.weights_)
    assert found.feature_names_in_.tolist() == ["u", "v", "w"]
    assert found.score(frame, labels) == plain.score(X, y)
    Y = (X[:, :2] > 0).astype(int)
    sets = make({"p": Y[:, 0], "q": Y[:, 1]})
    both = MultilabelSSVM(random_state=0).fit(frame, sets)
    other = MultilabelSSVM(random_state=0).fit(X, Y)
    np.testing.assert_array_equal(both.weights_, other.weights_)
    assert both.classes_.tolist() == ["p", "q"]
    np.testing.assert_array_equal(both.predict(frame), other.predict(X))


@pytest.mark.parametrize(("library", "make"), [("pandas", pandas_frame), ("polars", polars_frame)])
def test_set_output(library: str, make: Any) -> None:
    numbers = [np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[5.0, 9.0]])]
    frames = [make({"a": x[:, 0], "b": x[:, 1]}) for x in numbers]
    expected = PerToken(StandardScaler()).fit_transform(numbers)
    for later in (False, True):  # before and after the fit
        scaler = PerToken(StandardScaler())
        scaler = scaler.fit(frames) if later else scaler.set_output(transform=library).fit(frames)
        found = scaler.set_output(transform=library).transform(frames)
        assert [list(frame.columns) for frame in found] == [["a", "b"]] * 2
        assert {type(frame) for frame in found} == {type(frames[0])}
        for frame, array in zip(found, expected, strict=True):
            np.testing.assert_array_equal(frame.to_numpy(), array)
    y = [["x", "y"], ["y"]]
    model = make_pipeline(scaler, ChainSSVM(random_state=0)).fit(frames, y)
    plain = ChainSSVM(random_state=0).fit(expected, y)
    np.testing.assert_array_equal(model[-1].weights_, plain.weights_)
    for encoder in (TokenTemplates(), DictEncoder()):
        assert encoder.set_output(transform="default") is encoder
        with pytest.raises(ValueError, match=f"sparse tokens, not a table of {library}: leave"):
            make_pipeline(encoder, ChainSSVM()).set_output(transform=library)
    with config_context(transform_output=library):  # a setting for all leaves sequences alone
        ChainSSVM().fit([["a", "b"]], [["x", "y"]])


@pytest.mark.parametrize("make", [pandas_frame, polars_frame])
def test_columns_of_frames_keep_their_order(make: Any, tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    numbers = [rng.normal(size=(4, 2)) for _ in range(6)]
    frames = [make({"a": x[:, 0], "b": x[:, 1]}) for x in numbers]
    turned = [make({"b": x[:, 1], "a": x[:, 0]}) for x in numbers]
    y = [np.where(x[:, 0] > 0, "p", "n").tolist() for x in numbers]
    model = ChainSSVM(random_state=0).fit(frames, y)
    assert model.feature_names_in_.tolist() == model.feature_names_.tolist() == ["a", "b"]
    model.save(tmp_path / "m.hinge")
    for known in (model, ChainSSVM.load(tmp_path / "m.hinge")):
        assert known.predict(numbers)[0].tolist() == known.predict(frames)[0].tolist()
        with pytest.raises(ValueError, match="columns b, a, but ChainSSVM was fitted with a, b"):
            known.predict(turned)
    with pytest.raises(ValueError, match=r"X\[1\] has the columns b, a, but X\[0\] has a, b"):
        ChainSSVM().fit([frames[0], turned[1]], y[:2])
    assert not hasattr(model.fit(numbers, y), "feature_names_in_")


@pytest.mark.parametrize("make", [pandas_frame, polars_frame])
def test_columns_of_one_frame_and_columns_that_come_later(make: Any, tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    numbers = [rng.normal(size=(4, 3)) for _ in range(6)]
    y = [np.where(x[:, 0] > 0, "p", "n").tolist() for x in numbers]
    flat, lengths = np.concatenate(numbers), [4] * 6
    whole, turned = (make({k: flat[:, ord(k) - ord("a")] for k in names}) for names in ("ab", "ba"))
    stacked = ChainSSVM(tol=0.1).fit(whole, np.concatenate(y).tolist(), lengths)
    assert stacked.feature_names_.tolist() == ["a", "b"]
    with pytest.raises(ValueError, match="columns b, a, but ChainSSVM was fitted with a, b"):
        stacked.predict(turned, lengths)

    narrow = [make({"a": x[:, 0], "b": x[:, 1]}) for x in numbers]
    wide = [make({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2]}) for x in numbers]
    other = [make({"a": x[:, 0], "b": x[:, 1], "d": x[:, 2]}) for x in numbers]
    model = ChainSSVM(tol=0.1).partial_fit(narrow, y).partial_fit(wide, y)
    assert model.feature_names_.tolist() == ["a", "b", "c"]
    model.save(tmp_path / "m.hinge")
    with pytest.raises(ValueError, match="columns a, b, d, but ChainSSVM was fitted with a, b, c"):
        ChainSSVM.load(tmp_path / "m.hinge").predict(other)
    model = ChainSSVM(tol=0.1).partial_fit(narrow, y).partial_fit(numbers, y)
    assert model.feature_names_.tolist() == ["x0", "x1", "x2"]  # the last has no name
    model.save(tmp_path / "m.hinge")
    assert ChainSSVM.load(tmp_path / "m.hinge").predict(wide)[0].tolist() == y[0]


def test_no_frame() -> None:
    with pytest.raises(TypeError, match="frame must be a pandas or polars frame, got list"):
        from_frame([1])
    with pytest.raises(TypeError, match="from_frame"):
        TokenTemplates().fit(Frame(COLUMNS))
