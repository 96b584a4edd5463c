"""The rules of the house that no linter knows."""

from __future__ import annotations

import ast
from pathlib import Path

import hingeline

PACKAGE = Path(hingeline.__file__).parent


def test_nothing_imports_the_baselines():
    """They are a leaf: they may import everything, and nobody needs them."""
    wrong = []
    for file in sorted(PACKAGE.rglob("*.py")):
        if "baselines" in file.relative_to(PACKAGE).parts:
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                continue
            wrong += [f"{file.name}: {name}" for name in names if "baselines" in name.split(".")]
    assert wrong == []
