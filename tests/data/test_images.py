"""letter.data and IDX: reading, and files that are not what they say."""

from __future__ import annotations

import gzip
import io
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hingeline.data import ParseError, read_idx, read_letters

MANY = settings(max_examples=50, deadline=None, derandomize=True)

# Letters ----------------------------------------------------------------------------------------


def letter(letter_, following, word=1, fold=0, pixels=None, end="\t"):
    pixels = np.zeros(128, int) if pixels is None else pixels
    return (
        "\t".join(["1", letter_, str(following), str(word), "1", str(fold), *map(str, pixels)])
        + end
    )


def read(*lines):
    return read_letters(io.StringIO("\n".join(lines) + "\n"))


def test_words():
    first = np.arange(128) % 2
    words = read(letter("a", 2, pixels=first), letter("b", -1, end=""), "", letter("c", -1, 2, 9))
    assert words.labels() == [["a", "b"], ["c"]]
    assert words.folds.tolist() == [0, 9]
    assert words.offsets.tolist() == [0, 2, 3]
    assert words.pixels[0].tolist() == first.tolist()
    assert words.sequences()[0].toarray().tolist() == words.pixels[:2].tolist()


def test_no_words():
    words = read_letters(io.StringIO(""))
    assert (words.pixels.shape, len(words.folds)) == ((0, 128), 0)


ODD = "expected id, letter, next id, word, position, fold (a number) and 128 pixels of 0 or 1"


@pytest.mark.parametrize(
    ("lines", "line", "problem"),
    [
        (["a b c"], 1, ODD),
        ([letter("a", -1), letter("b", -1)[:-4]], 2, ODD),
        (["", letter("a", -1, pixels=[0] * 127 + [2])], 2, ODD),
        ([letter("a", -1)[:-3] + "00"], 1, ODD),
        ([letter("a", 2), letter("b", -1, word=2)], 2, "word '2' in fold '0' begins before word"),
        ([letter("a", 2), letter("b", -1, fold=2)], 2, "word '1' in fold '2' begins before word"),
        ([letter("a", -1, fold="x")], 1, ODD),
        ([letter("a", 2), letter("b", 3)], 2, "the last word has no end; the next id of a"),
    ],
)
def test_errors_of_letters_name_the_line(lines, line, problem):
    with pytest.raises(ParseError) as caught:
        read(*lines)
    assert caught.value.problem.startswith(problem)
    assert caught.value.line == line


# IDX --------------------------------------------------------------------------------------------

CODES = {"u1": 8, "i1": 9, "i2": 11, "i4": 12, "f4": 13, "f8": 14}


def idx(array):
    head = bytes([0, 0, CODES[array.dtype.str[1:]], array.ndim])
    sizes = b"".join(n.to_bytes(4, "big") for n in array.shape)
    return head + sizes + array.astype(array.dtype.newbyteorder(">")).tobytes()


@MANY
@given(
    hnp.arrays(
        st.sampled_from(sorted(CODES)).map(np.dtype),
        hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
    )
)
def test_arrays(array):
    data = idx(array)
    for source in (data, gzip.compress(data)):
        found = read_idx(io.BytesIO(source))
        assert found.shape == array.shape
        assert np.array_equal(found, array, equal_nan=array.dtype.kind == "f")
        assert found.dtype.isnative


GOOD = idx(np.arange(6, dtype="u1").reshape(2, 3))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "the first four bytes are not those of an IDX file"),
        (b"\0\0\x08", "the first four bytes are not"),
        (b"\x01" + GOOD[1:], "the first four bytes are not"),
        (b"\0\0\x0a" + GOOD[3:], "the first four bytes are not"),
        (b"\0\0\x08\xff" + GOOD[4:], "the header declares 255 axes; at most 8 are read"),
        (GOOD[:9], "the file ends inside its header; fetch it again"),
        (GOOD[:-1], "the header declares 2 × 3 elements, 18 bytes in all, and there are 17; fetch"),
        (GOOD + b"\0", "the header declares 2 × 3 elements, 18 bytes in all, and there are more"),
        (b"\0\0\x08\x02" + b"\0" * 4 + b"\xff" * 4, "the header declares an empty array of shape"),
    ],
)
def test_errors_of_idx(data, problem):
    with pytest.raises(ParseError) as caught:
        read_idx(io.BytesIO(data))
    assert caught.value.problem.startswith(problem)
    assert str(caught.value).startswith("<stream>: ")


def test_a_header_that_declares_too_much_allocates_nothing():
    for n_axes in (1, 3, 8):
        data = bytes([0, 0, 14, n_axes]) + b"\xff" * (4 * n_axes) + b"\0" * 1000
        tracemalloc.start()
        with pytest.raises(ParseError, match="the header declares"):
            read_idx(io.BytesIO(data))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 5e6
