"""Tag schemes, against seqeval, conlleval's rules and an independent reading of each scheme."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conlleval import chunks
from hingeline.schemes import (
    SCHEMES,
    convert_scheme,
    detect_scheme,
    explain_invalid,
    is_tag,
    scheme_name,
    spans,
    valid_moves,
)

PREFIXES = {
    "IO": "I",
    "IOB1": "BI",
    "IOB2": "BI",
    "IOE1": "IE",
    "IOE2": "IE",
    "IOBES": "BIES",
    "BILOU": "BILU",
}


def tags_of(scheme: str, types: tuple[str, ...] = ("X", "Y-z")) -> list[str]:
    return ["O"] + [f"{prefix}-{kind}" for prefix in PREFIXES[scheme] for kind in types]


def all_sequences(tags, longest=3):
    for length in range(1, longest + 1):
        yield from map(list, itertools.product(tags, repeat=length))


def write_naively(found, length, scheme):
    """Labels of spans, token by token, straight from the definitions of the schemes."""
    labels = []
    for t in range(length):
        mine = [span for span in found if span[1] <= t < span[2]]
        if not mine:
            labels.append("O")
            continue
        kind, first, stop = mine[0]
        is_first, is_last = t == first, t == stop - 1
        touches_before = any(s[0] == kind and s[2] == first for s in found)
        touches_after = any(s[0] == kind and s[1] == stop for s in found)
        prefix = "I"
        if scheme == "IOB1" and is_first and touches_before:
            prefix = "B"
        elif scheme == "IOE1" and is_last and touches_after:
            prefix = "E"
        elif scheme == "IOB2" and is_first:
            prefix = "B"
        elif scheme == "IOE2" and is_last:
            prefix = "E"
        elif scheme in ("IOBES", "BILOU"):
            number = 2 * is_first + is_last
            prefix = "IEBS"[number] if scheme == "IOBES" else "ILBU"[number]
        labels.append(f"{prefix}-{kind}")
    return labels


@st.composite
def segmentations(draw, types=("X", "Y-z")):
    """Spans that do not overlap, in order, and the length of the sequence."""
    found, t = [], 0
    for kind, length in draw(
        st.lists(st.tuples(st.sampled_from((None, *types)), st.integers(1, 3)), max_size=6)
    ):
        if kind is not None:
            found.append((kind, t, t + length))
        t += length
    return found, t


# Reading -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", [name for name in SCHEMES if name != "IO"])
def test_strict_reading_is_seqevals(scheme):
    reference = pytest.importorskip("seqeval.scheme")
    for labels in all_sequences(tags_of(scheme)):
        entities = reference.Tokens(labels, getattr(reference, scheme)).entities
        expected = [(e.tag, e.start, e.end) for e in entities]
        assert spans(labels, scheme, mode="strict") == expected, labels


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_strict_reading_of_longer_sequences_is_seqevals(data):
    reference = pytest.importorskip("seqeval.scheme")
    scheme = data.draw(st.sampled_from([name for name in SCHEMES if name != "IO"]))
    labels = data.draw(st.lists(st.sampled_from([*tags_of(scheme), "I"]), max_size=25))
    entities = reference.Tokens(labels, getattr(reference, scheme)).entities
    assert spans(labels, scheme, mode="strict") == [(e.tag, e.start, e.end) for e in entities]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_default_reading_is_seqevals(scheme):
    reference = pytest.importorskip("seqeval.metrics.sequence_labeling")
    # seqeval's default mode does not know L and U and loses spans; they mean what E and S do.
    known = str.maketrans("LU", "ES")
    for labels in all_sequences([*tags_of(scheme), "I"]):
        entities = reference.get_entities(
            [label[0].translate(known) + label[1:] for label in labels]
        )
        assert spans(labels) == [(kind, i, j + 1) for kind, i, j in entities], labels
        assert spans(labels, scheme) == spans(labels)


@pytest.mark.parametrize("scheme", ["IO", "IOB1", "IOB2", "IOE1", "IOE2"])
def test_default_reading_is_conllevals(scheme):
    for labels in all_sequences(tags_of(scheme), longest=4):
        assert spans(labels) == chunks(labels), labels


@settings(deadline=None)
@given(segmentations(), st.sampled_from(SCHEMES))
def test_both_modes_read_what_the_scheme_writes(segmentation, scheme):
    found, length = segmentation
    labels = write_naively(found, length, scheme)
    if scheme == "IO":  # neighbours of one type are one span
        merged = []
        for kind, first, stop in found:
            if merged and merged[-1][0] == kind and merged[-1][2] == first:
                first = merged.pop()[1]
            merged.append((kind, first, stop))
        found = merged
    assert spans(labels, scheme) == found
    # seqeval's strict mode, which ours equals, loses valid spans of IOE1; see below.
    if scheme != "IOE1":
        assert spans(labels, scheme, mode="strict") == found


def test_strict_mode_loses_what_seqeval_loses():
    assert spans(["E-X", "I-X"], "IOE1") == [("X", 0, 1), ("X", 1, 2)]
    assert spans(["E-X", "I-X"], "IOE1", mode="strict") == [("X", 1, 2)]


def test_strict_mode_finds_the_scheme():
    assert spans(["B-X", "O", "I-X"], mode="strict") == [("X", 0, 1)]
    assert spans(["S-X", "B-X", "O"], mode="strict") == [("X", 0, 1)]
    assert spans(["O", "O"], mode="strict") == []
    assert spans([], mode="strict") == []


def test_tags_without_type_and_arrays():
    assert spans(["B", "I", "O", "B"]) == [("_", 0, 2), ("_", 3, 4)]
    assert spans(np.array(["B-a-b", "I-a-b"])) == [("a-b", 0, 2)]
    assert spans(("I-a", "I-b")) == [("a", 0, 1), ("b", 1, 2)]


def test_bad_labels_and_names_are_refused():
    with pytest.raises(ValueError, match="'NN' is not a span tag"):
        spans(["NN", "O"])
    with pytest.raises(ValueError, match="3 is not a span tag"):
        spans([3])
    with pytest.raises(
        ValueError, match="'S-X' is not a tag of IOB2, whose prefixes are B, I and O"
    ):
        spans(["S-X"], "IOB2", mode="strict")
    with pytest.raises(ValueError, match=r"scheme must be one of IO, IOB1.*got 'IOB'"):
        spans(["O"], "IOB")
    with pytest.raises(ValueError, match="mode must be 'default' or 'strict', got 'lax'"):
        spans(["O"], mode="lax")
    with pytest.raises(ValueError, match="needs a scheme"):
        spans(["B-X", "S-X", "U-X"], mode="strict")


def test_names_of_schemes():
    assert [scheme_name(name) for name in ("bio", "BIOES", "biluo", "iob1")] == [
        "IOB2",
        "IOBES",
        "BILOU",
        "IOB1",
    ]
    assert is_tag("B-foo-bar")
    assert not is_tag("NP")
    assert not is_tag("Bfoo")
    assert not is_tag(None)


# Validity ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES)
def test_valid_sequences_are_those_that_some_spans_write(scheme):
    tags = tags_of(scheme)
    start, move, end = valid_moves(tags, scheme)
    length = 4 if len(tags) < 6 else 3

    def segment(t):
        """All sets of spans over the tokens t to the end."""
        if t == length:
            yield []
            return
        for rest in segment(t + 1):
            yield rest
        for stop in range(t + 1, length + 1):
            for rest in segment(stop):
                for kind in ("X", "Y-z"):
                    yield [(kind, t, stop), *rest]

    written = {tuple(write_naively(found, length, scheme)) for found in segment(0)}
    for numbers in itertools.product(range(len(tags)), repeat=length):
        valid = start[numbers[0]] and end[numbers[-1]]
        valid = valid and all(move[a, b] for a, b in itertools.pairwise(numbers))
        labels = [tags[k] for k in numbers]
        assert valid == (tuple(labels) in written), labels
        assert valid == (explain_invalid(labels, scheme) == []), labels


def test_moves_follow_the_order_of_the_classes():
    classes = np.array(["I-NP", "O", "B-VP", "B-NP"])
    start, move, end = valid_moves(classes, "IOB2")
    assert start.tolist() == [False, True, True, True]
    assert move[:, 0].tolist() == [True, False, False, True]
    assert move[:, 1:].all()
    assert end.all()
    assert start.dtype == move.dtype == end.dtype == bool


def test_moves_refuse_foreign_labels():
    with pytest.raises(ValueError, match="'E-X' is not a tag of IOB2"):
        valid_moves(["O", "E-X"], "IOB2")
    with pytest.raises(ValueError, match="'NN' is not a span tag"):
        valid_moves(["O", "NN"], "IOB2")


@pytest.mark.parametrize(
    ("scheme", "labels", "sentences"),
    [
        ("IOB2", "O I-X", ["I-X at token 1 follows O; IOB2 wants B-X there."]),
        ("IOB2", "I-X", ["I-X at token 0 starts the sequence; IOB2 wants B-X there."]),
        ("IOB1", "O B-X", ["B-X at token 1 follows O; IOB1 wants I-X there."]),
        ("IOE2", "I-X O", ["I-X at token 0 is followed by O; IOE2 wants E-X there."]),
        ("IOE2", "I-X", ["I-X at token 0 ends the sequence; IOE2 wants E-X there."]),
        ("IOE1", "E-X O", ["E-X at token 0 is followed by O; IOE1 wants I-X there."]),
        (
            "BILOU",
            "O I-X B-X L-X",
            ["I-X at token 1 follows O and is followed by B-X; BILOU wants U-X there."],
        ),
        ("IOB2", "O E-X", ["E-X at token 1 is not a tag of IOB2, whose prefixes are B, I and O."]),
    ],
)
def test_sentences_name_the_place_and_the_remedy(scheme, labels, sentences):
    assert explain_invalid(labels.split(), scheme) == sentences


@settings(deadline=None)
@given(st.data())
def test_following_the_advice_makes_a_sequence_valid(data):
    scheme = data.draw(st.sampled_from(SCHEMES))
    labels = data.draw(st.lists(st.sampled_from(tags_of(scheme)), max_size=12))
    repaired = list(labels)
    for sentence in explain_invalid(labels, scheme):
        token = int(sentence.split(" at token ")[1].split()[0])
        repaired[token] = sentence.split(" wants ")[1].split()[0]
    assert explain_invalid(repaired, scheme) == []
    assert repaired == convert_scheme(labels, scheme, scheme)


# Conversion --------------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    segmentations(),
    st.sampled_from([name for name in SCHEMES if name != "IO"]),
    st.sampled_from(SCHEMES),
)
def test_conversion_keeps_the_spans(segmentation, source, target):
    found, length = segmentation
    labels = write_naively(found, length, source)
    assert convert_scheme(labels, source, target) == write_naively(found, length, target)


def test_conversion_of_many_and_without_type():
    touching = [["B-X"], ["B-X", "B-X"]]  # but not across sequences
    assert convert_scheme(touching, "IOB2", "IOB1") == [["I-X"], ["I-X", "B-X"]]
    assert convert_scheme(touching, "IOB2", "IOE1") == [["I-X"], ["E-X", "I-X"]]
    assert convert_scheme([["B", "I"], ["O", "B"]], "BIO", "BIOES") == [["B", "E"], ["O", "S"]]
    assert convert_scheme(np.array(["B-X", "B-X"]), "IOB2", "IO") == ["I-X", "I-X"]
    assert convert_scheme([], "IOB2", "IOBES") == []
    with pytest.raises(ValueError, match="'U-X' is not a tag of IOB2"):
        convert_scheme(["U-X"], "IOB2", "IOBES")


# Detection ---------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(segmentations(), min_size=1, max_size=4), st.sampled_from(SCHEMES))
def test_a_detected_scheme_reads_the_same_spans(parts, scheme):
    sequences = [write_naively(found, length, scheme) for found, length in parts]
    if {label[0] for labels in sequences for label in labels} <= {"O"}:
        assert detect_scheme(sequences) is None
        return
    detected = detect_scheme(sequences)
    assert detected is not None
    for labels in sequences:
        assert explain_invalid(labels, detected) == []


@pytest.mark.parametrize(
    ("labels", "scheme"),
    [
        ({"O", "B-X", "I-X"}, "IOB2"),
        ({"O", "B-X"}, "IOB2"),
        ({"O", "B-X", "I-X", "I-Y"}, "IOB1"),  # IOB2 cannot have I-Y without B-Y
        ({"O", "B-X", "I-X", "B-Y"}, "IOB2"),  # IOB1 cannot have B-Y without I-Y
        ({"O", "B-X", "I-Y"}, "IOB2"),  # neither can: in doubt IOB2
        ({"O", "I-X", "E-X"}, "IOE2"),
        ({"O", "I-X", "I-Y", "E-X"}, "IOE1"),
        ({"O", "I-X"}, "IO"),
        ({"O", "S-X"}, "IOBES"),
        ({"B-X", "E-X"}, "IOBES"),
        ({"O", "U-X"}, "BILOU"),
        ({"B", "I", "O"}, "IOB2"),
        ({"B", "I", "E", "S"}, "IOBES"),
        ({"O"}, None),
        (set(), None),
        ({"NN", "VBD", "IN"}, None),
        ({"B-X", "NN"}, None),
        ({"B-X", "L-X", "S-X"}, None),
        ({1, 2}, None),
        (np.array(["B-X", "I-X", "O"]), "IOB2"),
        ([["I-X", "O", "I-X"], ["I-X", "B-X"]], "IOB1"),
        ([["B-X", "O", "B-X", "I-X"]], "IOB2"),
        ([["I-X", "E-X", "I-X", "O"]], "IOE1"),
        ([["I-X", "E-X", "O"]], "IOE2"),
        ([["B-X", "I-X", "O", "B-X"], ["O", "I-X"]], "IOB2"),  # fewer breaches
        ([("B-X", "O"), np.array(["O", "O"])], "IOB2"),
        ([[], ["I-X"]], "IO"),
    ],
)
def test_detection(labels, scheme):
    assert detect_scheme(labels) == scheme
