"""The command ``hingeline``: one module per command, imported when the command is called.

They share ``app`` (group, errors, options), ``files`` (models and their files) and ``fits``.
"""

import importlib
import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec
from types import ModuleType
from typing import Any

#: scikit-learn imports these at once and a command hardly ever uses them. Together they take
#: longer to import than everything else that a command needs.
RARELY_USED = ("scipy.stats", "pandas")


class _Later(ModuleType):
    """Stands in for a module until somebody asks for what is in it.

    :class:`importlib.util.LazyLoader` will not do: Python 3.11 loads its modules when a second
    ``import`` statement names them.
    """

    def __getattr__(self, name: str) -> Any:
        own = self.__name__
        if sys.modules.get(own) is self:
            del sys.modules[own]
        return getattr(importlib.import_module(own), name)


def import_later(*names: str) -> None:
    """Import modules when something of theirs is first used; what is missing stays missing."""
    for name in names:
        package: Any = find_spec(parent) if (parent := name.rpartition(".")[0]) else None
        # To ask find_spec for a part of a package would import the package.
        spec = PathFinder.find_spec(name, package and package.submodule_search_locations)
        if name not in sys.modules and spec is not None:
            module = sys.modules[name] = _Later(name)
            module.__file__ = spec.origin  # what goes through all modules asks for it


import_later(*RARELY_USED)  # before anything imports scikit-learn
import_later("hingeline.cli.files", "hingeline.cli.fits")  # --help has no use for them

from hingeline.cli.app import main  # noqa: E402

__all__ = ["import_later", "main"]
