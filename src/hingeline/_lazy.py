"""Public names of a package that are imported when first used, so that commands start soon."""

import re
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def read_stub(package: str, file: str) -> tuple[dict[str, str], Callable[[str], Any], Any]:
    """Public names and their modules, and ``__getattr__`` and ``__dir__`` of a package.

    The stub beside the package, which type checkers read, is the one list of the names. Modules
    of the package are found as well: hingeline.features without an import of it.
    """
    path = Path(file).with_suffix(".pyi")
    stub = path.read_text(encoding="utf-8") if path.exists() else ""
    lines = re.findall(r"^from (\S+) import (.+)", stub, re.M)
    homes = {name: home for home, names in lines for name in re.findall(r"\w+(?= as)", names)}
    module = vars(sys.modules[package])

    def find(name: str) -> Any:
        if name in homes:
            value = module[name] = getattr(import_module(homes[name]), name)
            return value
        if not name.startswith("_") and find_spec(f"{package}.{name}"):
            return import_module(f"{package}.{name}")
        what = f"module {package!r} has no attribute {name!r}"
        raise AttributeError(what, name=name, obj=sys.modules[package])  # Python says what is alike

    return homes, find, lambda: sorted({*module, *homes})
