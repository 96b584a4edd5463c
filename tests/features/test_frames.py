"""from_frame, with pandas and polars where they are, and with the least that a frame must have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hingeline.features import TokenTemplates, from_frame, to_column
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


@pytest.mark.parametrize(
    ("columns", "params", "message"),
    [
        ({**COLUMNS}, {"group": "doc"}, "group asks for 'doc', which the frame does not have"),
        ({**COLUMNS}, {"label": "ner"}, "label asks for 'ner'"),
        ({**COLUMNS}, {"columns": ["x"]}, "columns asks for 'x'"),
        ({"sentence": [1], "tag": ["a"]}, {}, "no columns are left"),
        ({**COLUMNS, "n": [1, 2, 3, 4, 5]}, {}, "column 'n' holds numbers and 'word' does not"),
        ({**COLUMNS, "pos": ["a", None, "b", "c", "d"]}, {}, "row 1 of column 'pos' is None"),
        ({**COLUMNS, "sentence": ["a", None, "b", "c", "d"]}, {}, "row 1 has no group"),
    ],
)
def test_bad_frames(columns: Any, params: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_frame(Frame(columns), **params)


def test_no_frame() -> None:
    with pytest.raises(TypeError, match="frame must be a pandas or polars frame, got list"):
        from_frame([1])
    with pytest.raises(TypeError, match="from_frame"):
        TokenTemplates().fit(Frame(COLUMNS))
