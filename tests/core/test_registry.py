"""What solvers declare of themselves, and how the registry finds and checks it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields, is_dataclass

import pytest

from hingeline import ChainSSVM, solvers
from hingeline.core import registry
from hingeline.core.formulations import RESCALINGS, SLACKS
from hingeline.core.solver import CertifiedSolver

CLASSES = [solver for name in registry.list_names() for solver in registry.declared(name)]


def own_depth(cls: type) -> int:
    bases = [base for base in cls.__bases__ if base.__module__.startswith("hingeline")]
    return 1 + max(map(own_depth, bases), default=0)


@pytest.mark.parametrize("solver", CLASSES, ids=lambda solver: solver.__name__)
def test_every_solver_declares_what_it_solves(solver):
    assert issubclass(solver, CertifiedSolver)
    assert solver.slacks
    assert set(solver.slacks) <= set(SLACKS)
    assert set(solver.rescalings) <= set(RESCALINGS)
    assert own_depth(solver) <= 3
    assert is_dataclass(solver.Options)
    solver.Options()  # every option has a default
    for known in fields(solver.Options):
        if known.metadata:
            assert len(known.metadata["doc"]) > 5
            value = known.default
            if value is not None:  # the default passes its own check
                registry._check_option(known.name, value, known)


def test_automatic_choice_is_the_first_solver_of_the_slack():
    names = {slack: registry.find("auto", slack).name for slack in SLACKS}
    assert names == {"max": "sdm", "squared": "sdm", "nu": "sdm", "sum": "sdcd"}
    for slack in SLACKS:
        assert registry.find("auto", slack, all_outputs=True).all_outputs
        assert not registry.find("auto", slack).all_outputs
    assert not registry.find("bcfw", "max", all_outputs=True).all_outputs  # there is no other


def test_messages_name_what_there_is():
    with pytest.raises(ValueError, match=r"'fsmo' does not solve slack='nu'.*'subgradient'"):
        registry.find("fsmo", "nu")
    with pytest.raises(ValueError, match=r"needs a finite C, because .*'auto', 'sdm', ") as refused:
        registry.check(registry.find("dlpw", "max"), "dlpw", "max", "margin", float("inf"))
    others = str(refused.value).partition("choose one of")[2]
    assert "'fsmo'" in others
    assert not any(f"'{name}'" in others for name in ("bcfw", "subgradient", "dlpw", "soft-bcfw"))
    with pytest.raises(ValueError, match="'nu' knows margin rescaling only"):
        registry.check(registry.find("sdm", "nu"), "sdm", "nu", "slack", 1.0)
    sdm = registry.find("sdm", "max")
    with pytest.raises(ValueError, match="'blok', which solver='sdm' does not know; it knows blo"):
        registry.check_options(sdm, {"blok": 3}, "sdm", "max")
    with pytest.raises(TypeError, match=r"\['block'\] must be an integer, got 1.5"):
        registry.check_options(sdm, {"block": 1.5}, "sdm", "max")
    registry.check_options(sdm, {"block": None, "cached_passes": 0, "skip": 0.0}, "sdm", "max")
    cut = registry.find("one-slack", "max")
    with pytest.raises(ValueError, match=r"\['step'\] must be at most 1, got 2"):
        registry.check_options(cut, {"step": 2}, "one-slack", "max")


@pytest.mark.parametrize("solver", ["sdcd", "one-slack"])
@pytest.mark.parametrize("violators", [None, "argmax", 3])
def test_lists_of_outputs_are_for_all_violators(solver, violators):
    model = ChainSSVM(slack="sum", solver=solver, solver_options={"max_outputs": 5})
    with pytest.raises(ValueError, match="'max_outputs', which has no effect"):
        model.set_params(violators=violators).check_parameters()
    model.set_params(violators="all").check_parameters()


def test_newton_steps_have_no_boxes():
    model = ChainSSVM(slack="sum", solver_options={"newton_weights": 5})
    with pytest.raises(ValueError, match="'newton_weights', which solver='auto' does not know"):
        model.check_parameters()


def test_a_chain_loads_no_solver_of_graphs():
    code = (
        "import sys; from hingeline.core import registry; registry.find('auto', 'max');"
        "print([name for name in sys.modules if 'relaxed' in name or 'graph' in name "
        "if name.startswith('hingeline')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_solver_is_one_file(tmp_path, monkeypatch):
    code = "from hingeline.solvers.sdm import SDM\nclass Toy(SDM):\n    name = 'toy-solver'\n"
    (tmp_path / "toy.py").write_text(code)
    monkeypatch.setattr(solvers, "__path__", [*solvers.__path__, str(tmp_path)])
    try:
        found = registry.find("toy-solver", "max")
        assert (found.__name__, found.slacks) == ("Toy", ("max", "squared"))
        with pytest.raises(ValueError, match=r"'toy' is not known.*'auto', 'sdm', .*'toy-solver'"):
            registry.find("toy", "max")
    finally:
        registry._homes.cache_clear()
        sys.modules.pop("hingeline.solvers.toy", None)


@pytest.mark.parametrize("name", ["newton", "by-label", "crf", "", None, 3])
def test_what_is_no_solver_is_refused(name):
    with pytest.raises(ValueError, match=f"solver={name!r} is not known; choose one of 'auto'"):
        registry.find(name, "max")
