"""Files beside others, files that are there completely or not at all, and texts packed for them."""

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from hingeline._checks import Array, require

try:
    import fcntl
except ImportError:  # Windows: temporary files of killed processes stay
    fcntl = None  # type: ignore[assignment]

_SHARE = 200  # Bytes of a file's name that its temporary one begins with; names may have 255.


def check_target(path: str | os.PathLike[str], formats: Sequence[str] = ()) -> Path:
    """The place of a file to write, links followed; ``formats`` are the endings it may have."""
    path, no = Path(path), f"cannot write {path}"
    endings = " or ".join(f".{name}" for name in formats)
    fine = not formats or path.suffix.lower().lstrip(".") in formats
    require(fine, f"{no}: its name must end in {endings}.")
    target = path.resolve()  # a link stays a link
    folder, there = path.parent, target.is_file() or not target.exists()
    what = f"{no}: there is no folder {folder}: make it first."
    require(folder.is_dir(), what, FileNotFoundError)
    what = "it is a folder" if target.is_dir() else "it exists and is not a file"
    require(there, f"{no}: {what}: name a file.", FileExistsError)
    what = f"{no}: no permission to write in {target.parent}: name another folder."
    require(os.access(target.parent, os.W_OK), what, PermissionError)
    return target


def file_beside(source: Any, *replacements: tuple[str, str]) -> Any:
    """A file in the same folder whose name follows from the source's, if there is one."""
    system = getattr(source, "system", None)  # of fsspec
    if system is None and not isinstance(source, (str, os.PathLike)):
        return None
    path = str(source if system is None else source.name)
    start = max(path.rfind("/"), path.rfind(os.sep)) + 1
    for old, new in replacements:
        candidate = path[:start] + path[start:].replace(old, new)
        if old in path[start:] and (system or os.path).exists(candidate):
            return Path(candidate) if system is None else system.open(candidate, "rb")
    return None


@contextlib.contextmanager
def _named(path: str | os.PathLike[str], beside: bool = False) -> Iterator[None]:
    """Errors of the system name this file where they name none, or one ``beside`` it."""
    try:
        yield
    except OSError as error:
        if error.errno is None or (error.filename is not None and not beside):
            raise
        raise type(error)(error.errno, error.strerror, os.fspath(path)) from None


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write that takes the place of ``path`` once it is complete and on disk.

    Where anything goes wrong, ``path`` stays as it was and nothing is left behind. What a process
    that was killed while it wrote ``path`` left behind, ``.NAME.….tmp``, is removed. A device or a
    pipe is written to as it is: to replace /dev/null would take it from everybody.
    """
    target = Path(os.path.realpath(path))  # a link keeps pointing to what is replaced
    if target.exists() and not target.is_file():
        with _named(path), open(target, "wb") as device:  # refused for a folder
            yield device
        return
    beginning = os.fsdecode(b"." + os.fsencode(target.name)[:_SHARE] + b".")
    _remove_stale(target.parent, beginning)
    with _named(path, beside=True):
        file, temporary = _create(target.parent, beginning)
    try:
        with _named(path), file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if target.exists():  # who may read it stays as it was
                shutil.copymode(target, temporary)
            if fcntl is None:  # Windows does not rename open files
                file.close()
            os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    if hasattr(os, "O_DIRECTORY"):  # the new name is on disk only when its folder is
        with contextlib.suppress(OSError):
            folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


def _create(folder: Path, beginning: str) -> tuple[BinaryIO, Path]:
    """A new temporary file, locked as long as it is open."""
    while True:
        temporary = folder / f"{beginning}{secrets.token_hex(8)}.tmp"
        file = open(temporary, "xb")  # noqa: SIM115
        if fcntl is None:
            return file, temporary
        with contextlib.suppress(OSError):  # file systems without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        if temporary.exists():  # else another process took it for stale before it was locked
            return file, temporary
        file.close()


def _remove_stale(folder: Path, beginning: str) -> None:
    """Remove temporary files that no living process holds."""
    if fcntl is None:
        return
    pattern = re.compile(re.escape(beginning) + r"[0-9a-f]{16}\.tmp")
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if pattern.fullmatch(name):
                with contextlib.suppress(OSError), open(folder / name, "r+b") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # refused if it is in use
                    (folder / name).unlink()


def pack_texts(texts: Sequence[str]) -> tuple[Array, Array]:
    """Texts as UTF-8 bytes in one array, and where each ends; lone surrogates are kept."""
    parts = [text.encode("utf-8", "surrogatepass") for text in texts]
    ends = np.cumsum(np.fromiter(map(len, parts), dtype=np.int64, count=len(parts)))
    return np.frombuffer(b"".join(parts), dtype=np.uint8), ends


def unpack_texts(content: Array, ends: Array) -> list[str]:
    """The texts that :func:`pack_texts` packed; a ``ValueError`` where they cannot be."""
    fits = content.ndim == ends.ndim == 1 and content.dtype == np.uint8 and ends.dtype == np.int64
    # Bounds before differences, which could wrap around.
    inside = fits and ends.min(initial=0) >= 0 and ends.max(initial=0) == len(content)
    rises = inside and (np.diff(ends) >= 0).all()
    require(rises, "the ends of packed texts do not fit their bytes")
    cuts = [0, *ends.tolist()]
    joined = content.tobytes()
    return [joined[lo:hi].decode("utf-8", "surrogatepass") for lo, hi in pairwise(cuts)]
