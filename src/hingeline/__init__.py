"""Structured SVMs: labels, sequences and your own structures, trained to a certified optimum.

Names are imported when first used: the command line starts without what it does not need.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from hingeline._lazy import read_stub

__version__ = "0.1.0"

_HOME, _find, __dir__ = read_stub(__name__, __file__)
__all__ = sorted([*_HOME, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _HOME and not name.startswith("_") and find_spec(f"{__name__}.{name}"):
        return import_module(f"{__name__}.{name}")  # hingeline.features without an import of it
    return _find(name)
