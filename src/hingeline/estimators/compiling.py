"""Saying that kernels are being compiled, once, where they are not on disk yet."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from hingeline._numba import CACHE_FOLDER
from hingeline.structures.base import Compiled

_ANNOUNCED: set[Any] = set()


class announced:  # noqa: N801
    """Say once that kernels are being compiled, where they are not on disk yet."""

    def __init__(self, kind: str, compiled: Compiled) -> None:
        self.marker = None if CACHE_FOLDER is None else CACHE_FOLDER / f"{kind}.compiled"
        self.own = compiled.threads and compiled.bind.__name__ != "<lambda>"
        self.key = compiled.bind if self.own else kind

    def __enter__(self) -> None:
        known = self.key in _ANNOUNCED or (
            not self.own and self.marker is not None and self.marker.exists()
        )
        _ANNOUNCED.add(self.key)
        if not known:
            where = "for this structure" if self.own else "once; later runs find them on disk"
            print(f"hingeline: compiling kernels ({where})…", file=sys.stderr, flush=True)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is None and not self.own and self.marker is not None:
            with contextlib.suppress(OSError):
                self.marker.touch()
