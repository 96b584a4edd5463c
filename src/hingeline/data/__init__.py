"""Readers and writers of file formats, and data for the demo; imported when first used."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

_STUB = Path(__file__).with_name("__init__.pyi").read_text(encoding="utf-8")
#: Public name -> module; the stub, which type checkers read, is the one list of them.
_HOME = {name: home for home, name in re.findall(r"^from (\S+) import (\w+)", _STUB, re.M)}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
