"""Public names of a package that are imported when first used, so that commands start soon."""

import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def read_stub(package: str, file: str) -> tuple[dict[str, str], Callable[[str], Any], Any]:
    """Public names and their modules, and ``__getattr__`` and ``__dir__`` of a package.

    The stub beside the package, which type checkers read, is the one list of the names.
    """
    stub = Path(file).with_suffix(".pyi").read_text(encoding="utf-8")
    homes = {name: home for home, name in re.findall(r"^from (\S+) import (\w+)", stub, re.M)}
    module = vars(sys.modules[package])

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = module[name] = getattr(import_module(homes[name]), name)
        return value

    return homes, find, lambda: sorted({*module, *homes})
