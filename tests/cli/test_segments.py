"""``--task segments``: spans learnt as wholes, from files and back."""

from __future__ import annotations

import json

import pytest

from cli.commands import done, refused, write

WORDS = ["from", "New", "York", "to", "Lima", "and", "San", "Remo"]
TAGS = ["O", "B-LOC", "I-LOC", "O", "B-LOC", "O", "B-LOC", "I-LOC"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("segments")
    pairs = list(zip(WORDS, TAGS, strict=True))
    starts = [0, 3, 5]
    text = "".join("".join(f"{w} {t}\n" for w, t in pairs[k:]) + "\n" for k in starts * 3)
    write(folder / "a.conll", text)
    done(
        "train", folder / "a.conll", "--task", "segments", "--model", folder / "a.hinge", "--quiet"
    )
    return folder / "a.conll", folder / "a.hinge"


def test_a_file_is_learnt_predicted_judged_and_explained(files):
    data, model = files
    found = done("predict", model, data).splitlines()
    assert [line.split()[1:] for line in found[:8]] == [[tag, tag] for tag in TAGS]
    assert json.loads(done("evaluate", model, data, "--json"))["span_f1"] == 1.0
    assert done("predict", model, data, "--nbest", "2").count("rank 2") == 9
    assert "length" in done("explain", model, data, "-n", "100")
    assert "SegmentSSVM" in done("info", model)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["train", "DATA", "--task", "segments", "--model", "NEW", "--loss", "zero_one"], "loss"),
        (["train", "DATA", "--task", "segments", "--model", "NEW", "--scheme", "IOBES"], "I-LOC"),
        (
            ["train", "DATA", "--task", "segments", "--model", "NEW", "--workers", "2"],
            "blocks are for",
        ),
    ],
)
def test_what_segments_lack_is_refused(files, tmp_path, command, message):
    names = {"MODEL": files[1], "DATA": files[0], "NEW": tmp_path / "b.hinge"}
    assert message in refused(*(names.get(word, word) for word in command))
