"""Text that is written: complete or not at all, compressed by its name."""

from __future__ import annotations

import gzip
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, TextIO

from hingeline.persistence.atomic import replacing

#: What writers take: a path, ``"-"`` for standard output, or an open file.
Target = Any


@contextmanager
def atomic_text(target: Target) -> Iterator[TextIO]:
    """Open a file for writing text; it appears under its name only when it is complete.

    Written under a temporary name in the same folder and renamed at the end; removed if an
    exception leaves the block. Names that end in ``.gz`` are compressed, reproducibly.

    Parameters
    ----------
    target : path, "-" or file object
        ``"-"`` is standard output; that and open files are written directly and left open.
    """
    if isinstance(target, str) and target == "-":
        sys.stdout.flush()
        target = getattr(sys.stdout, "buffer", sys.stdout)
    if isinstance(target, (str, os.PathLike)):
        with replacing(target) as raw:
            if os.fspath(target).endswith(".gz"):
                with (
                    gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed,
                    _text_into(packed) as out,
                ):
                    yield out
            else:
                with _text_into(raw) as out:
                    yield out
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
    if number.is_integer() and abs(number) < 1e15:
        return str(int(number))
    return repr(number)
