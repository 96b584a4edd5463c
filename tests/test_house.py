"""The rules of the house: how deep classes go, who knows what, and what a fit touches.

Who may import whom is in `test_layers.py`.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hingeline
from hingeline.core import registry
from test_layers import PACKAGE, ROOT, imports_of, modules_of

ESTIMATORS = [
    name
    for name, home in hingeline._HOME.items()
    if home.startswith("hingeline.estimators.") and hasattr(getattr(hingeline, name), "fit")
]


def bases_of(cls: type) -> list[type]:
    return [base for base in cls.__bases__ if base.__module__.split(".")[0] == "hingeline"]


def depth_of(cls: type) -> int:
    """Own classes on the longest way from a class up, itself counted."""
    return 1 + max(map(depth_of, bases_of(cls)), default=0)


# Rule 1: whole things --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators_are_two_own_classes_deep(name):
    assert depth_of(getattr(hingeline, name)) <= 2


@pytest.mark.parametrize("name", registry.list_names())
def test_solvers_are_three_own_classes_deep(name):
    assert max(map(depth_of, registry.declared(name))) <= 3


def test_no_base_class_of_estimators_has_a_single_subclass():
    classes = {getattr(hingeline, name) for name in ESTIMATORS}
    bases = {base for cls in classes for base in bases_of(cls)}
    for base in bases:
        assert sum(issubclass(cls, base) for cls in classes) > 1, base


def is_ours(cls):
    """Whether a class stands in a module of ours; examples and toys of tests are not."""
    module = cls.__module__
    found = getattr(sys.modules.get(module), cls.__name__, None)
    return module.startswith("hingeline.") and found is cls


def test_a_class_with_one_subclass_is_used_itself():
    """As a solver, as a public name, or because something makes one."""
    modules = modules_of(PACKAGE)
    texts = (file.read_text(encoding="utf-8") for file in modules.values())
    code = "".join(re.sub(r"^class .*", "", text, flags=re.MULTILINE) for text in texts)
    used = {solver for name in registry.list_names() for solver in registry.declared(name)}
    used |= {getattr(hingeline.baselines, name) for name in hingeline.baselines.__all__}
    for name in modules:
        if name not in (ROOT, "__main__"):
            importlib.import_module(f"hingeline.{name}")
    for name in modules:
        for cls in vars(sys.modules.get(f"hingeline.{name}", hingeline)).values():
            if inspect.isclass(cls) and cls.__module__ == f"hingeline.{name}":
                single = sum(map(is_ours, type.__subclasses__(cls))) == 1
                assert not single or cls in used or re.search(rf"\b{cls.__name__}\(", code), cls


def test_files_of_more_than_600_lines_are_listed():
    """With their lines, which CONTRIBUTING.md must not get wrong by much."""
    guide = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    listed = re.search(r"^Files over 600 lines: (.*)$", guide, re.MULTILINE)[1]
    told = {name: int(lines) for name, lines in re.findall(r"`(\S+)` \((\d+)\)", listed)}
    lines = {
        file.relative_to(PACKAGE).as_posix(): len(file.read_text(encoding="utf-8").splitlines())
        for file in PACKAGE.rglob("*.py")
    }
    assert told.keys() == {name for name, count in lines.items() if count > 600}
    for name, count in told.items():
        assert abs(lines[name] - count) <= 20, name


# Rule 2: declarations live with the declared ----------------------------------------------------


@pytest.mark.parametrize("name", registry.list_names())
def test_a_solver_says_what_it_solves_and_every_option_what_it_is(name):
    found = list(registry.declared(name))
    assert found
    for solver in found:
        assert solver.slacks
        for option in registry.fields(solver.Options):
            if option.metadata:  # the others are the estimator's to give
                assert option.metadata["doc"], (solver, option.name)


def test_every_class_that_has_slacks_is_found_by_its_name():
    known = {solver for name in registry.list_names() for solver in registry.declared(name)}
    for name in modules_of(PACKAGE):
        if name.startswith("solvers."):
            module = importlib.import_module(f"hingeline.{name}")
            for cls in vars(module).values():
                if inspect.isclass(cls) and cls.__module__ == module.__name__:
                    assert not hasattr(cls, "slacks") or cls in known, cls


def test_structures_lay_out_their_weights_and_nobody_asks_what_they_are():
    """Whoever wants a block reads the layout; no attribute stands for "is it a chain"."""
    for name, file in modules_of(PACKAGE).items():
        text = file.read_text(encoding="utf-8")
        assert 'hasattr(model, "boundary")' not in text, name
        assert 'hasattr(self, "boundary")' not in text, name


# Rule 5: streaming is something an estimator has ------------------------------------------------

FIT = """
import json, sys
import numpy as np
import hingeline
{warm}
X, y = [np.eye(3)[[0, 1, 2]], np.eye(3)[[2, 1]]], [["a", "b", "a"], ["a", "b"]]
model = hingeline.ChainSSVM(random_state=0).fit(X, y)
model.predict(X)
first = sorted(name for name in sys.modules if name.startswith("hingeline."))
model.partial_fit(X, y)
print(json.dumps([first, "hingeline.streaming.stream" in sys.modules, "_stream" in vars(model)]))
"""


def test_a_fit_loads_nothing_that_it_does_not_need():
    done = subprocess.run(
        [sys.executable, "-c", FIT.format(warm="")], capture_output=True, text=True, check=True
    )
    loaded, streams, has_one = json.loads(done.stdout.splitlines()[-1])
    for name in loaded:
        folder = name.split(".")[1]
        assert folder not in ("streaming", "modelfile", "evaluation", "semisupervised"), name
        assert name != "hingeline.estimators.paths", name
        assert not name.startswith(("hingeline.solvers.relaxed", "hingeline.structures.graph"))
    assert streams
    assert has_one


PREDICT = """
import json, sys
import numpy as np
import hingeline
hingeline.load(sys.argv[1]).predict([np.eye(3)])
print(json.dumps(sorted(name for name in sys.modules if name.startswith("hingeline."))))
"""


def test_a_prediction_from_a_file_loads_no_solver(tmp_path):
    X, y = [np.eye(3)[[0, 1, 2]], np.eye(3)[[2, 1]]], [["a", "b", "a"], ["a", "b"]]
    path = str(tmp_path / "a.hinge")
    hingeline.ChainSSVM(random_state=0).fit(X, y).save(path)
    done = subprocess.run(
        [sys.executable, "-c", PREDICT, path], capture_output=True, text=True, check=True
    )
    for name in json.loads(done.stdout.splitlines()[-1]):
        assert name.split(".")[1] not in ("solvers", "streaming"), name


# Rule 6: baselines are a leaf --------------------------------------------------------------------


def test_nothing_imports_baselines():
    modules = modules_of(PACKAGE)
    for name, file in modules.items():
        if name.split(".")[0] != "baselines" and "baselines" in file.read_text(encoding="utf-8"):
            parts = {part.split(".")[0] for part in imports_of(name, file, modules)}
            assert "baselines" not in parts, name


# Words ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_docstring_describes_every_parameter_once(name):
    cls = getattr(hingeline, name)
    section = cls.__doc__.partition("Parameters\n")[2].partition("Attributes\n")[0]
    described = [
        word
        for line in section.split("\n")
        if line and line[0] not in " -"
        for word in line.partition(" : ")[0].split(", ")
    ]
    assert sorted(described) == sorted(cls().get_params())
    assert cls.__doc__.count("duality_gap_ : float") == 1
