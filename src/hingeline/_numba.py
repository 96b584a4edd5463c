"""The one way this package compiles code.

``kernel`` makes an entry point: compiled at its first call, cached on disk, releasing the GIL.
``helper`` makes a function that kernels call; it stays a plain Python function outside them.

Two things are done here once so that nobody has to remember them elsewhere:

* numba notices a change only in the file of the cached function itself, not in the helpers it
  calls. The cache folder is therefore named after a hash of *all* kernel sources (and of the
  versions of numba, NumPy and Python): an edit or an upgrade never meets stale machine code.
* full ``fastmath`` lets the compiler assume that there are no infinities, and the dynamic
  programs use ``-inf`` as a mask. Only the flags without that assumption are set.

Environment
-----------
``HINGELINE_CACHE=0`` turns the disk cache off; ``HINGELINE_CACHE_DIR`` (or numba's own
``NUMBA_CACHE_DIR``) says where it lives. Without a writable folder kernels are compiled anew in
each process, which is slower but works.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload, register_jitable

F = TypeVar("F", bound=Callable[..., Any])

FASTMATH = {"nsz", "arcp", "contract", "afn", "reassoc"}

_PACKAGE = Path(__file__).resolve().parent
#: Files and folders whose text decides what the kernels compute.
_KERNEL_SOURCES = (
    "_numba.py",
    "_vector.py",
    "_vector_max.py",
    "formulations.py",
    "working_set.py",
    "inference",
    "structures",
    "solvers",
    "constraints",
    "semisupervised",
)


def source_hash() -> str:
    """Hash of every kernel source and of the tools that compile them."""
    digest = hashlib.sha256()
    for part in (numba.__version__, np.__version__, platform.python_version()):
        digest.update(part.encode())
    for name in _KERNEL_SOURCES:
        path = _PACKAGE / name
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(file.relative_to(_PACKAGE).as_posix().encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _candidate_folders() -> list[Path]:
    for variable in ("HINGELINE_CACHE_DIR", "NUMBA_CACHE_DIR"):
        if os.environ.get(variable):
            return [Path(os.environ[variable])]
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA")
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folders = [_PACKAGE / "__pycache__"]
    if base:
        home = Path(base).expanduser()
        if home.is_absolute():  # expanduser leaves "~" where there is no home
            folders.insert(0, home / "hingeline")
    return folders


def _cache_folder() -> Path | None:
    """The folder of this version's machine code, or None where nothing can be written."""
    if os.environ.get("HINGELINE_CACHE", "").lower() in {"0", "off", "no", "false"}:
        return None
    for base in _candidate_folders():
        folder = base / f"kernels-{source_hash()}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError:
            continue
        return folder
    return None


CACHE_FOLDER = _cache_folder()


def kernel(function: F) -> F:
    """Compile ``function`` as an entry point: cached on disk, without the GIL."""
    if CACHE_FOLDER is None:
        return numba.njit(nogil=True, fastmath=FASTMATH)(function)
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(CACHE_FOLDER)
    try:
        return numba.njit(cache=True, nogil=True, fastmath=FASTMATH)(function)
    finally:
        numba.config.CACHE_DIR = before


def finite_helper(function: F) -> F:
    """A helper whose numbers are never NaN, which lets maxima run in whole vectors."""
    return register_jitable(fastmath=FASTMATH | {"nnan"})(function)


def uncached(function: F) -> F:
    """Compile without the disk cache: for kernels that contain a user's own code.

    A foreign type or function in a cached kernel would poison its index for everybody.
    """
    return numba.njit(nogil=True, fastmath=FASTMATH)(function)


def helper(function: F) -> F:
    """Mark a function that kernels may call; it remains plain Python for everyone else."""
    return register_jitable(fastmath=FASTMATH)(function)


def strict_helper(function: F) -> F:
    """A helper whose arithmetic is done as written, so that every caller gets the same bits.

    Not to say ``fastmath`` at all would mean that of the caller.
    """
    return register_jitable(fastmath=False)(function)


@intrinsic
def _prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        byte = ir.IntType(8).as_pointer()
        pointer = builder.bitcast(builder.gep(data, [arguments[1]]), byte)
        flag = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
        function = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        builder.call(function, [pointer, flag(0), flag(3), flag(1)])  # read, keep, data
        return context.get_dummy_value()

    return types.void(array, index), generate


def prefetch(array: Any, index: int) -> None:
    """Ask the processor to load ``array[index]`` soon; a hint that computes nothing."""


@overload(prefetch, strict=False)
def _compiled_prefetch(array: Any, index: Any) -> Any:
    return lambda array, index: _prefetch(array, index)


def cache_is_cold() -> bool:
    """Whether the next call of a kernel will have to compile."""
    return CACHE_FOLDER is None or next(CACHE_FOLDER.rglob("*.nbi"), None) is None
