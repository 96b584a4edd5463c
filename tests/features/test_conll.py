"""TokenTemplates on CoNLL-2000."""

from __future__ import annotations

import gzip
import os
import time
from pathlib import Path
from typing import Any

import pytest
from sklearn.base import clone

from hingeline.features import DictEncoder, TokenTemplates
from hingeline.features.tables import TokenTable

pytestmark = pytest.mark.data


@pytest.fixture(scope="module")
def table() -> Any:
    root = os.environ.get("HINGELINE_DATA")
    if not root:
        pytest.skip("HINGELINE_DATA does not point to the data sets")
    path = Path(root, "conll2000", "train.txt.gz")
    if not path.is_file():
        pytest.skip(f"{path} is missing")
    text = gzip.decompress(path.read_bytes()).decode()
    blocks = [block.splitlines() for block in text.split("\n\n")]
    sentences = [[tuple(line.split()[:2]) for line in b if line.strip()] for b in blocks]
    return TokenTable.from_sentences([s for s in sentences if s], ["word", "pos"])


def test_same_features_as_token_by_token(table: Any) -> None:
    """A slow and plain way to the same features."""
    table = table[:2000]
    encoder = TokenTemplates(["word[-1]|word[0]", "pos[0]|pos[1]|pos[2]", "suffix(word[0],3)"])
    encoded = encoder.fit_transform(table)

    def at(values: list[str], t: int) -> str:
        if t < 0:
            return f"_B{t}"
        return values[t] if t < len(values) else f"_B+{t - len(values) + 1}"

    attributes = []
    for sentence in table:
        words, tags = ([token[k] for token in sentence] for k in (0, 1))
        attributes.append(
            [
                [
                    f"word[-1]={at(words, t - 1)}|word[0]={words[t]}",
                    "|".join(f"pos[{k}]={at(tags, t + k)}" for k in range(3)),
                    *([f"suffix(word[0],3)={words[t][-3:]}"] if len(words[t]) >= 3 else []),
                ]
                for t in range(len(words))
            ]
        )
    other = DictEncoder()
    expected = other.fit_transform(attributes).matrix
    place = {name: k for k, name in enumerate(encoder.get_feature_names_out())}
    assert set(place) == set(other.vocabulary_)
    order = [place[name] for name in other.get_feature_names_out()]
    assert (encoded.matrix[:, order] != expected).nnz == 0


def test_encoding_takes_no_time_to_speak_of(table: Any) -> None:
    encoder = TokenTemplates()
    began = time.process_time()
    encoded = encoder.fit_transform(table)
    assert time.process_time() - began < 1.5  # 0.1 to 0.2 s, but machines differ
    assert encoded.matrix.shape[0] == 211_727
    names = set(encoder.get_feature_names_out())
    assert {f"word[0]={word}" for word in table.values[0]} <= names
    began = time.process_time()
    again = clone(encoder).restore(*encoder.to_state())
    again.transform(table[:5])
    assert time.process_time() - began < 0.3
