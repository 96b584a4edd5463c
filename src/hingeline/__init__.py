"""Structured SVMs: labels, sequences and your own structures, trained to a certified optimum.

Names are imported when first used: the command line starts without what it does not need.
"""

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path as _File
from typing import Any

__version__ = "0.1.0"

_STUB = _File(__file__).with_name("__init__.pyi").read_text(encoding="utf-8")
#: Public name -> module; the stub, which type checkers read, is the one list of them.
_HOME = {name: home for home, name in re.findall(r"^from (\S+) import (\w+)", _STUB, re.M)}

__all__ = sorted([*_HOME, "__version__"])


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = globals()[name] = getattr(import_module(_HOME[name]), name)
        return value
    if not name.startswith("_") and find_spec(f"{__name__}.{name}") is not None:
        return import_module(f"{__name__}.{name}")  # hingeline.features without an import of it
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
