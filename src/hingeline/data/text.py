"""Text for readers (gzip, UTF-8, bounded memory, places of errors) and writers (all or nothing)."""

import gzip
import io
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import IO, Any, TextIO, cast

from hingeline._files import replacing

#: What readers and writers take: a path, ``"-"`` for standard input or output, or an open file;
#: readers also take a :class:`TextSource`.
File = Any

MAX_LINE = 2**20  # Bytes of the longest line that is read.
#: Largest ratio of decompressed to compressed bytes; files of text stay below 20.
MAX_EXPANSION = 50

_BLOCK = 2**18
_FETCH = 2**16
_FREE = 2**20  # Decompressed bytes that are harmless whatever their ratio.
#: Bytes of memory that a reader may take for any gzip file, and for a larger one for each of its
#: bytes; files of text and of features stay below 200.
_FREE_MEMORY = 80 * 10**6
_MAX_KEPT = 800
_LINE = 64  # Bytes that any reader may keep of a line beside its text.
_GZIP = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_AGAIN = "fetch or compress the file again."
LONE_RETURN = "a carriage return is inside the line; end lines with LF or CRLF (tr '\\r' '\\n')."
_RAISE = "if that is right, raise max_expansion of open_text or unpack the file."


class ParseError(ValueError):
    """A file that cannot be read; the message is ``FILE:LINE: what is wrong; remedy``."""

    def __init__(self, file: str, line: int | None, problem: str) -> None:
        super().__init__(file, line, problem)
        self.file = file
        self.line = line  # from 1; None where the file has no lines
        self.problem = problem  # with the remedy, without the place

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.problem}"


@dataclass(eq=False, repr=False)
class TextSource(AbstractContextManager["TextSource"]):
    """A file that is read once, from front to back, and can be peeked into.

    Opened by :func:`open_text`. Gzip is recognised by its first bytes. Text is UTF-8, with or
    without a byte order mark, with lines that end in LF or CRLF. Memory is bounded, so a small
    file that unpacks to a huge one is refused.
    """

    stream: IO[Any]
    name: str
    max_line: int = MAX_LINE
    max_expansion: float = MAX_EXPANSION
    owned: bool = False  # whether to close the stream
    system: Any = None  # of fsspec, where the file is one of it
    bom: bool = False  # known after the first line, as is how lines end
    newline: str = "\n"
    final_newline: bool = True  # known after the last line
    line: int | None = None  # the line being read
    first: int = 1  # number of the first line
    _ahead: bytes = b""
    _packed: bytes = b""
    _gzip: gzip.GzipFile | None = None
    _bytes_in: int = 0
    _bytes_out: int = 0
    _bytes_kept: int = 0

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file if it was opened by :func:`open_text`."""
        if self.owned:
            self.stream.close()

    def error(self, problem: str, line: int | None = None) -> ParseError:
        """An error to raise, at a line of this file; by default the last one read, 0 for none."""
        return ParseError(self.name, self.line if line is None else line or None, problem)

    def require(self, fine: Any, problem: str, line: int | None = None) -> None:
        """Raise such an error unless ``fine`` is true."""
        if not fine:
            raise self.error(problem, line)

    def refuse_binary(self, head: bytes) -> None:
        """Refuse a file that does not begin like UTF-8 text."""
        wide = head[:2] in (b"\xff\xfe", b"\xfe\xff")
        self.require(not wide, "the file is UTF-16; convert it (iconv -f UTF-16 -t UTF-8).", 0)
        what = "the file is neither text nor IDX; unpack it, or write it as text."
        self.require(b"\0" not in head, what, 0)

    def keep(self, size: int) -> None:
        """Count memory taken for objects, which short lines of a small gzip file could fill."""
        self._bytes_kept += size
        if self._gzip is None or self.max_expansion > MAX_EXPANSION:
            return
        if self._bytes_kept > max(_FREE_MEMORY, _MAX_KEPT * self._bytes_in):
            what = f"the gzip data takes more than {_MAX_KEPT} times its size in memory"
            raise self.error(f"{what}; {_RAISE}")

    def peek(self, size: int) -> bytes:
        """The next bytes, decompressed, without taking them; fewer only at the end."""
        while len(self._ahead) < size and (piece := self._next_piece()):
            self._ahead += piece
        return self._ahead[:size]

    def read(self, size: int = _BLOCK) -> bytes:
        """At most ``size`` of the next bytes, decompressed; none only at the end."""
        piece = self._ahead or self._next_piece()
        self._ahead = piece[size:]
        return piece[:size]

    def blocks(self) -> Iterator[tuple[int, list[bytes]]]:
        """Lines as valid UTF-8 without their ends, many at a time, and the number of the first."""
        self.line = self.first
        for number, data in self.pieces(size=1):
            if number == self.first and data == _BOM:
                self.bom = True
                break
            self.final_newline = data.endswith(b"\n")
            whole = data if self.final_newline else data.removesuffix(b"\r") + b"\n"
            lines = self._split(whole, number)
            self.keep(_LINE * len(lines))
            yield number, lines
            self.line = number + len(lines)
        self.line = max(self.first, self.line - 1)

    def pieces(
        self, ends: Callable[[bytes, bytes], bool] | None = None, size: int = _BLOCK
    ) -> Iterator[tuple[int, bytes]]:
        """All bytes, in pieces of at least ``size``, and the number of each one's first line.

        A piece ends between two lines, where ``ends`` is given two of which it says so.
        """
        number, held, goal, more = self.first, b"", size, True
        while more:
            while more and len(held) < goal:
                piece = self.read()
                held, more = held + piece, bool(piece)
            cut = len(held)
            if more and ends is None:
                cut = held.rfind(b"\n") + 1
            elif more and ends is not None:
                lines = held.split(b"\n")
                pairs = range(len(lines) - 2, 0, -1)
                k = next((k for k in pairs if ends(lines[k - 1], lines[k])), 0)
                cut = sum(map(len, lines[:k])) + k
            if not cut and len(held) > self.max_line and b"\n" not in held:
                raise self._too_long(number)
            goal = size if cut else 2 * len(held)
            if cut:
                yield number, held[:cut]
                number += held.count(b"\n", 0, cut)
                held = held[cut:]

    def lines(self) -> Iterator[tuple[int, str]]:
        """Number and text of every line, without its end."""
        for number, line in self.byte_lines():
            yield number, line.decode()

    def byte_lines(self) -> Iterator[tuple[int, bytes]]:
        """The same without decoding, for readers that mostly want numbers."""
        for first, block in self.blocks():
            for self.line, line in enumerate(block, first):
                yield self.line, line

    def _split(self, data: bytes, number: int) -> list[bytes]:
        if number == self.first:
            self.bom = data.startswith(_BOM)
            data = data.removeprefix(_BOM)
            if data[data.index(b"\n") - 1 :][:2] == b"\r\n":
                self.newline = "\r\n"
        if not data.isascii():
            try:
                data.decode()
            except UnicodeDecodeError as error:
                if number == self.first:
                    self.refuse_binary(data)
                what = f"byte 0x{data[error.start]:02x} is not valid UTF-8"
                at = number + data.count(b"\n", 0, error.start)
                remedy = "convert the file to UTF-8 (iconv -f WINDOWS-1252 -t UTF-8, say)."
                raise self.error(f"{what}; {remedy}", at) from None
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n")
            at = number + data.count(b"\n", 0, max(0, data.find(b"\r")))
            self.require(b"\r" not in data, LONE_RETURN, at)
        lines = data.split(b"\n")
        lines.pop()
        if len(data) > self.max_line:
            for k, line in enumerate(lines):
                if len(line) > self.max_line:
                    raise self._too_long(number + k)
        return lines

    def _too_long(self, number: int) -> ParseError:
        limit = f"{self.max_line:,} bytes; break it, or raise max_line of open_text in Python."
        return self.error(f"the line is longer than {limit}", number)

    def _next_piece(self) -> bytes:
        """The next decompressed bytes from the file; none at the end."""
        if not self._bytes_in:
            self._fill()
            if self._packed.startswith(_GZIP):
                self._gzip = gzip.GzipFile(fileobj=cast(Any, SimpleNamespace(read=self._fetch)))
        if self._gzip is None:
            return self._fetch()
        try:
            piece = self._gzip.read1(_BLOCK)
        except EOFError:
            raise self.error(f"the gzip data ends early; {_AGAIN}") from None
        except (zlib.error, gzip.BadGzipFile) as error:
            raise self.error(f"the gzip data is damaged ({error}); {_AGAIN}") from None
        self._bytes_out += len(piece)
        if self._bytes_out > max(_FREE, self.max_expansion * self._bytes_in):
            what = f"the gzip data grows more than {self.max_expansion:g} times when unpacked"
            raise self.error(f"{what}; {_RAISE}")
        return piece

    def _fetch(self, size: int = _FETCH) -> bytes:
        self._fill()
        piece, self._packed = self._packed[:size], self._packed[size:]
        return piece

    def _fill(self) -> None:
        """Have two bytes at hand, by which gzip is known, unless the file ends."""
        while len(self._packed) < 2 and (piece := self.stream.read(_FETCH)):
            if isinstance(piece, str):
                # A lone surrogate becomes bytes that are not UTF-8, and is reported with its line.
                piece = piece.encode("utf-8", "surrogatepass")
            if not isinstance(piece, (bytes, bytearray)):
                raise TypeError(f"{self.name}: read() returned {type(piece).__name__}, not bytes.")
            self._bytes_in += len(piece)
            self._packed += piece


def open_text(
    source: File, *, max_line: int = MAX_LINE, max_expansion: float = MAX_EXPANSION
) -> TextSource:
    r"""Open a file for the readers of this package, all of which take its result.

    Parameters
    ----------
    source : path, "-" for standard input, file object or TextSource
    max_line : int, bytes of the longest line allowed
    max_expansion : float, largest ratio of decompressed to compressed bytes after a megabyte

    Examples
    --------
    >>> import io
    >>> with open_text(io.StringIO("a\nb\n")) as source:
    ...     list(source.lines())
    [(1, 'a'), (2, 'b')]
    """
    if isinstance(source, TextSource):
        return source
    owned = False
    stream: Any
    if isinstance(source, str) and source == "-":
        stream, name = getattr(sys.stdin, "buffer", sys.stdin), "standard input"
        if hasattr(stream, "isatty") and stream.isatty():
            end = "Ctrl-Z and Enter" if os.name == "nt" else "Ctrl-D"
            print(f"Reading from the keyboard; end with {end} on a new line.", file=sys.stderr)
            stream = io.BytesIO(stream.read())  # at once: to read on after the end is to wait again
    elif isinstance(source, (str, os.PathLike)):
        stream, name, owned = open(source, "rb"), os.fspath(source), True  # noqa: SIM115
    elif hasattr(source, "read"):
        given = getattr(source, "name", None)
        stream, name = source, given if isinstance(given, str) else "<stream>"
    else:
        what = f"source must be a path, '-' or an open file, got {type(source).__name__}"
        raise TypeError(f"{what}: for text in memory pass io.StringIO(text).")
    return TextSource(stream, name, max_line, max_expansion, owned)


def shown(value: str | bytes, limit: int = 40) -> str:
    """A value from a file, quoted for a message and shortened if it is long."""
    text = value[: limit + 1]
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    quoted = repr(text)
    short = len(text) <= limit and len(quoted) <= limit + 20
    return quoted if short else f"{repr(text[:limit])[:limit]}…{quoted[-1]}"


@contextmanager
def atomic_text(target: File) -> Iterator[TextIO]:
    """Open a file for writing text; it appears under its name only when it is complete.

    Names that end in ``.gz`` are compressed, reproducibly. Standard output (``"-"``) and open
    files are written directly and left open.
    """
    if isinstance(target, str) and target == "-":
        sys.stdout.flush()
        target = getattr(sys.stdout, "buffer", sys.stdout)
    if isinstance(target, (str, os.PathLike)):
        with replacing(target) as raw, ExitStack() as stack:
            stream: Any = raw
            if os.fspath(target).endswith(".gz"):
                stream = stack.enter_context(gzip.GzipFile("", "wb", fileobj=raw, mtime=0))
            yield stack.enter_context(_text_into(stream))
    elif isinstance(target, io.TextIOBase):
        yield target  # type: ignore[misc]
        target.flush()
    elif hasattr(target, "write"):
        with _text_into(target) as out:
            yield out
    else:
        raise TypeError(f"target must be a path, '-' or an open file, got {type(target).__name__}.")


@contextmanager
def _text_into(stream: IO[Any] | gzip.GzipFile) -> Iterator[TextIO]:
    """Text that goes into a stream of bytes, which stays open."""
    wrapper = io.TextIOWrapper(stream, encoding="utf-8", newline="\n")
    try:
        yield wrapper
        wrapper.flush()
    finally:
        with suppress(ValueError, OSError):
            wrapper.detach()


def number_text(value: float) -> str:
    """The shortest text that reads back as the same number; whole numbers without a point."""
    number = float(value)
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)
