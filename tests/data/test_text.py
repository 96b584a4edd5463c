"""Opening and writing text: gzip, UTF-8, bounds, places of errors, atomic files."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import stat
import sys
import tracemalloc
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hingeline.data.text import ParseError, TextSource, atomic_text, number_text, open_text, shown

MANY = settings(max_examples=50, deadline=None, derandomize=True)

PACKED = gzip.compress(b"a\nb\n", mtime=0)


def lines_of(source, **limits):
    with open_text(source, **limits) as text:
        return list(text.lines())


class Dripping(io.RawIOBase):
    """A stream that gives a byte at a time, as a slow pipe may."""

    def __init__(self, data):
        self._data = io.BytesIO(data)

    def read(self, size=-1):
        return self._data.read(1)


@MANY
@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\r\ufeff")))
def test_lines_are_those_between_line_feeds(content):
    expected = content.split("\n")
    if expected[-1] == "":
        expected.pop()
    expected = list(enumerate(expected, 1))
    data = content.encode()
    assert lines_of(io.BytesIO(data)) == expected
    assert lines_of(io.StringIO(content, newline="")) == expected
    assert lines_of(io.BytesIO(gzip.compress(data))) == expected
    assert lines_of(io.BytesIO(data.replace(b"\n", b"\r\n"))) == expected
    assert lines_of(io.BytesIO(b"\xef\xbb\xbf" + data)) == expected
    assert lines_of(Dripping(data)) == expected
    assert lines_of(Dripping(gzip.compress(data))) == expected


def test_blocks_join_lines_across_reads():
    wanted = [f"line {k} " + "x" * (k % 97) for k in range(20_000)]
    data = "\n".join(wanted).encode()
    assert [line for _, line in lines_of(io.BytesIO(data))] == wanted
    assert [number for number, _ in lines_of(io.BytesIO(data))] == list(range(1, 20_001))


def test_only_line_feeds_end_lines():
    assert lines_of(io.StringIO("a\u2028b\x0bc\x85d\n")) == [(1, "a\u2028b\x0bc\x85d")]


def test_a_carriage_return_inside_a_line_is_refused():
    for data, line in ((b"a\rb\rc", 1), (b"a\r\nb\rc\r\n", 2), (b"a\n\nb\r\r\n", 3)):
        with pytest.raises(ParseError, match=f":{line}: a carriage return is inside the line; end"):
            lines_of(io.BytesIO(data))


@pytest.mark.parametrize("wrap", [lambda path: path, str], ids=["path", "str"])
def test_a_file_by_its_name(tmp_path, wrap):
    path = tmp_path / "plain.gz"  # the name says gzip, the content does not
    path.write_bytes(b"one\ntwo")
    assert lines_of(wrap(path)) == [(1, "one"), (2, "two")]
    path = tmp_path / "packed.txt"
    path.write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\n") + b"\0" * 20)
    assert lines_of(wrap(path)) == [(1, "one"), (2, "two")]


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(b"one\n"))))
    text = open_text("-")
    assert text.name == "standard input"
    assert list(text.lines()) == [(1, "one")]
    text.close()
    assert not sys.stdin.closed


def test_the_end_of_lines_and_the_mark_are_remembered():
    for data, newline, bom, final in (
        (b"a\nb", "\n", False, False),
        (b"\xef\xbb\xbfa\r\nb\r\n", "\r\n", True, True),
        (b"\r\na\r\n", "\r\n", False, True),
        (b"", "\n", False, True),
    ):
        with open_text(io.BytesIO(data)) as text:
            list(text.lines())
            assert (text.newline, text.bom, text.final_newline) == (newline, bom, final)


def test_peeking_takes_nothing():
    data = b"one\ntwo\n" * 30_000
    text = open_text(io.BytesIO(gzip.compress(data)))
    assert text.peek(5) == b"one\nt"
    assert text.peek(10**6) == data
    assert text.peek(3) == b"one"
    assert b"".join(iter(lambda: text.read(1000), b"")) == data


def test_files_are_closed_if_and_only_if_opened_here(tmp_path):
    path = tmp_path / "file"
    path.write_text("a\n")
    with open_text(path) as text:
        stream = text.stream
    assert stream.closed
    with open(path, "rb") as given:
        lines_of(given)
        assert not given.closed


@pytest.mark.parametrize(
    ("data", "line", "problem"),
    [
        (b"a\nb\n\xff\n", 3, "byte 0xff is not valid UTF-8; convert the file to UTF-8"),
        (b"a\n\xed\xa0\x80", 2, "byte 0xed is not valid UTF-8"),
        (b"a\n\xc3", 2, "byte 0xc3 is not valid UTF-8"),
        (b"\xef\xbb\xbf\xe9", 1, "byte 0xe9 is not valid UTF-8"),
        (b"a\n" + b"b" * 200 + b"\nc\n", 2, "longer than 100 bytes; break it, or raise max_"),
        (b"a\nb\n" + b"b" * 200, 3, "the line is longer than 100 bytes"),
        (b"b" * 10**6, 1, "the line is longer than 100 bytes"),
        (PACKED[:-3], 3, "the gzip data ends early; fetch or compress the file again"),
        (PACKED + b"no gzip", 3, "the gzip data is damaged"),
        (PACKED[:10] + b"\xff" * 9, 1, "the gzip data is damaged"),
    ],
)
def test_errors_name_file_and_line(tmp_path, data, line, problem):
    path = tmp_path / "some.txt"
    path.write_bytes(data)
    with pytest.raises(ParseError) as caught:
        lines_of(path, max_line=100)
    error = caught.value
    assert problem in error.problem
    assert error.file == str(path)
    assert error.line == line
    assert str(error) == f"{path}:{line}: {error.problem}"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert isinstance(error, ValueError)


def test_lone_surrogates_in_text_are_reported():
    with pytest.raises(ParseError, match="<stream>:2: byte 0xed is not valid UTF-8"):
        lines_of(io.StringIO("a\n\ud800\n"))


def test_a_gzip_bomb_is_refused_before_it_unpacks():
    bomb = gzip.compress(b"\n" * 100_000_000, 9)
    assert len(bomb) < 110_000
    tracemalloc.start()
    with pytest.raises(ParseError, match=r"more than 800 times its size in memory.*max_expansion"):
        for _ in open_text(io.BytesIO(bomb)).blocks():
            pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6


def test_the_bound_on_expansion_can_be_raised():
    bomb = gzip.compress(b"a\n" * 2_000_000, 9)
    n_lines = sum(
        len(block) for _, block in open_text(io.BytesIO(bomb), max_expansion=2e3).blocks()
    )
    assert n_lines == 2_000_000


def test_what_is_no_source_or_target():
    with pytest.raises(TypeError, match=r"source must be a path.*got int.*io.StringIO"):
        open_text(3)
    with pytest.raises(TypeError, match=r"target must be a path.*got int"), atomic_text(3):
        pass
    with pytest.raises(FileNotFoundError):
        open_text("no/such/file")

    class Odd:
        def read(self, size):
            return 3

    with pytest.raises(TypeError, match="read\\(\\) returned int"):
        lines_of(Odd())


def test_an_open_source_is_used_as_it_is():
    text = open_text(io.StringIO("a"))
    assert open_text(text) is text
    assert isinstance(text, TextSource)


# Writing ----------------------------------------------------------------------------------------


def test_a_file_appears_when_it_is_complete(tmp_path):
    path = tmp_path / "out.txt"
    path.write_text("old")
    with atomic_text(path) as out:
        out.write("näh\n")
        out.flush()
        assert path.read_text() == "old"
    assert path.read_bytes() == "näh\n".encode()
    assert os.listdir(tmp_path) == ["out.txt"]


@pytest.mark.parametrize("name", ["out.txt", "out.txt.gz"])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, name):
    path = tmp_path / name
    path.write_text("old")

    def interrupted():
        with atomic_text(path) as out:
            out.write("new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == [name]


def test_gzip_by_name_and_reproducibly(tmp_path):
    for name in ("a.gz", "b.gz"):
        with atomic_text(tmp_path / name) as out:
            out.write("text\n" * 100)
    packed = (tmp_path / "a.gz").read_bytes()
    assert packed == (tmp_path / "b.gz").read_bytes()
    assert zlib.decompress(packed, 31) == b"text\n" * 100


def test_permissions_and_links_stay(tmp_path):
    path = tmp_path / "out"
    path.write_text("old")
    path.chmod(0o640)
    (tmp_path / "link").symlink_to(path)
    with atomic_text(tmp_path / "link") as out:
        out.write("new")
    assert path.read_text() == "new"
    assert (tmp_path / "link").is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    fresh = tmp_path / "fresh"
    with atomic_text(fresh) as out:
        out.write("x")
    (tmp_path / "plain").write_text("x")
    assert fresh.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_folder_that_is_not_there_is_named_without_the_temporary_name(tmp_path):
    with pytest.raises(FileNotFoundError) as caught, atomic_text(tmp_path / "no" / "out"):
        pass
    assert caught.value.filename == str(tmp_path / "no" / "out")


def test_a_device_is_written_directly():
    with atomic_text(os.devnull) as out:
        out.write("x")


def test_standard_output_and_open_files_stay_open(monkeypatch, capsysbinary):
    with atomic_text("-") as out:
        out.write("é\n")
    assert capsysbinary.readouterr().out == "é\n".encode()
    binary, text = io.BytesIO(), io.StringIO()
    for target in (binary, text):
        with atomic_text(target) as out:
            out.write("é\n")
    assert binary.getvalue() == "é\n".encode()
    assert text.getvalue() == "é\n"


@MANY
@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53))
def test_numbers_read_back(value):
    assert float(number_text(value)) == value


def test_quoted_values_are_short():
    assert shown("short") == "'short'"
    assert len(shown("x" * 10**6)) < 50
    assert shown(b"\xff") == "'\ufffd'"
