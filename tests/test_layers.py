"""Who may import whom: the order of the layers, read from the sources without running them."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from functools import cache
from pathlib import Path

import pytest

import hingeline

PACKAGE = Path(hingeline.__file__).parent

#: A folder imports only from folders above it.
LAYERS = (
    ("_compiler", "_jit", "_files", "schemes"),
    ("_simd",),
    ("core",),
    ("inference",),
    ("structures",),
    ("solvers",),
    ("constraints",),
    ("streaming",),
    ("estimators", "modelfile"),
    ("semisupervised",),
    ("evaluation",),
    ("distributed",),
    ("report", "cli", "baselines"),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
#: These know the data but no solver; only estimators and what is below them may know these.
DATA = ("features", "data")
ROOT = "hingeline"  # its __init__ imports everything


def modules_of(package: Path) -> dict[str, Path]:
    """Module name -> file, relative to the package; the root itself is ``hingeline``."""
    found = {}
    for file in sorted(package.rglob("*.py")):
        parts = list(file.relative_to(package).with_suffix("").parts)
        if parts[-1] == "__init__":
            parts.pop()
        found[".".join(parts) or ROOT] = file
    return found


def imports_of(name: str, file: Path, modules: dict[str, Path]) -> set[str]:
    """The package's own modules that a file imports anywhere, inside functions too."""
    is_package = file.name == "__init__.py"
    found = set()

    def add(path: str) -> None:
        """Note the module that ``hingeline.a.b.name`` lives in."""
        parts = path.split(".")[1:]
        while parts and ".".join(parts) not in modules:
            parts.pop()
        found.add(".".join(parts) or ROOT)

    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == ROOT:
                    add(alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                here = [ROOT] + ([] if name == ROOT else name.split("."))
                above = len(here) - node.level + (1 if is_package else 0)
                base = ".".join(here[:above] + ([base] if base else []))
            if base.split(".")[0] == ROOT:
                for alias in node.names:
                    add(f"{base}.{alias.name}")
    return found - {name}


def violations(package: Path) -> list[str]:
    """Imports against the order, one line each."""
    modules = modules_of(package)
    graph = {name: imports_of(name, file, modules) for name, file in modules.items()}

    @cache
    def reach(name: str) -> frozenset[str]:
        """Everything a module imports in the end, but for what the root's ``__init__`` does."""
        seen: set[str] = set()
        todo = {name}
        while todo:
            here = todo.pop()
            if here != ROOT:
                todo |= graph[here] - seen
                seen |= graph[here]
        return frozenset(seen)

    def top(name: str) -> str:
        return name.split(".")[0]

    wrong = []
    for name, parts in graph.items():
        if name == ROOT:
            continue
        for part in sorted(parts):
            # A module outside the order counts as all that it imports.
            tops = {top(part)} | {top(p) for p in reach(part)}
            if top(name) in DATA:
                bad = {t for t in tops if RANK.get(t, 0) >= RANK["structures"] or t == ROOT}
            elif top(name) in RANK:
                rank = RANK[top(name)]
                bad = {t for t in tops if RANK.get(t, 0) > rank}
                if rank < RANK["streaming"]:
                    bad |= tops & set(DATA)
                if rank < RANK["cli"]:
                    bad |= tops & {ROOT}
            else:
                bad = set()
            if bad:
                wrong.append(f"{name} imports {part} (reaches {', '.join(sorted(bad))})")
    return wrong


def test_every_folder_has_its_place_in_the_order():
    folders = {p.parent.name for p in PACKAGE.glob("*/__init__.py")}
    assert folders <= set(RANK) | set(DATA)


def test_layers_import_only_from_above():
    assert violations(PACKAGE) == []


def test_a_solver_knows_no_structure():
    """Rule 3; CONTRIBUTING.md names the exceptions, of which some need no import."""
    modules, rule = modules_of(PACKAGE), "A solver knows no structure; "
    text = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    exceptions = re.findall(
        r"`(\w+)/?`", text.partition(rule)[2].partition("are the exceptions")[0]
    )
    assert set(exceptions) == {"relaxed", "by_label", "label_tree", "crf"}
    for name, file in modules.items():
        folder, _, own = name.partition(".")
        if folder == "solvers" and own.split(".")[0] not in exceptions:
            known = {part.split(".")[0] for part in imports_of(name, file, modules)}
            assert "structures" not in known, name
        if folder == "structures":
            known = imports_of(name, file, modules)
            assert not known & {"core.formulations", "core.solver"}, name


def test_only_one_module_tells_numba_what_to_compile():
    """The cache knows what kernels depend on because every way to it goes through ``_jit``."""
    names = r"\b(n?jit|overload\w*|register_jitable|infer_global)\b"
    ways = re.compile(rf"^from numba[\w.]* import (?:[^\n(]*|\([^)]*){names}", re.M)
    found = {name for name, file in modules_of(PACKAGE).items() if ways.search(file.read_text())}
    assert found == {"_jit"}


def test_every_public_name_exists():
    names = getattr(hingeline, "__all__", [])
    if not names:
        pytest.skip("hingeline has no public names yet")
    assert len(set(names)) == len(names)
    for name in names:
        assert hasattr(hingeline, name), name
    scope: dict[str, object] = {}
    exec("from hingeline import *", scope)
    assert set(names) <= set(scope)


def test_every_module_can_be_imported_and_its_public_names_exist():
    for name in modules_of(PACKAGE):
        full = ROOT if name == ROOT else f"{ROOT}.{name}"
        if name.split(".")[-1] == "__main__":
            continue
        try:
            module = importlib.import_module(full)
        except ModuleNotFoundError as error:
            if str(error.name).split(".")[0] == ROOT:
                raise
            continue  # an optional dependency
        assert inspect.ismodule(module)
        for public in getattr(module, "__all__", []):
            assert hasattr(module, public), f"{full}.{public}"


# The checker itself -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "line", "wrong"),
    [
        ("solvers/a.py", "from hingeline.core import primitives", False),
        ("solvers/a.py", "from hingeline.solvers.b import x", False),
        ("solvers/a.py", "from .b import x", False),
        ("solvers/a.py", "from ..core.primitives import x", False),
        ("solvers/a.py", "from hingeline._jit import kernel", False),
        ("solvers/a.py", "import hingeline.estimators.base", True),
        ("solvers/a.py", "from ..estimators import base", True),
        ("solvers/a.py", "def f():\n    from hingeline.estimators.base import x", True),
        ("solvers/a.py", "from hingeline import Structure", True),
        ("solvers/a.py", "from hingeline import estimators", True),
        ("solvers/a.py", "from hingeline.free import x", True),  # which imports estimators
        ("solvers/a.py", "from hingeline.data import x", True),
        ("core/a.py", "from hingeline.structures.chain import x", True),
        ("structures/a.py", "from hingeline.inference import chain", False),
        ("inference/a.py", "from hingeline.structures.chain import x", True),
        ("core/blocks.py", "from hingeline.core.formulations import x", False),
        ("core/formulations.py", "from hingeline.solvers import b", True),
        ("estimators/a.py", "from hingeline.data import x\nfrom hingeline.free import y", False),
        ("estimators/a.py", "from hingeline import cli", True),
        ("data/a.py", "from hingeline.solvers import b", True),
        ("data/a.py", "from hingeline.free import x", True),
        ("data/a.py", "import numpy\nfrom hingeline.data import x", False),
        ("features/a.py", "from hingeline.estimators.base import x", True),
        ("cli.py", "from hingeline import ChainSSVM\nfrom hingeline.report import x", False),
        ("free.py", "from hingeline import cli", False),
    ],
)
def test_the_checker_sees_what_it_should(tmp_path, file, line, wrong):
    package = tmp_path / "hingeline"
    for folder in (
        "core",
        "inference",
        "structures",
        "solvers",
        "estimators",
        "data",
        "features",
        "report",
    ):
        (package / folder).mkdir(parents=True)
        (package / folder / "__init__.py").touch()
    for name in (
        "core/primitives",
        "structures/chain",
        "estimators/base",
        "solvers/b",
        "inference/chain",
    ):
        (package / f"{name}.py").touch()
    for name in ("__init__", "_jit", "cli"):
        (package / f"{name}.py").touch()
    (package / "__init__.py").write_text("from hingeline.estimators.base import x")
    (package / "free.py").write_text("from hingeline.estimators.base import x")
    (package / file).write_text(line)
    assert bool(violations(package)) == wrong
