"""Compiling ahead: what a first fit needs is on disk afterwards, and what is there stays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from numba.core.registry import CPUDispatcher

from cli.commands import environment, refused
from hingeline import _jit
from hingeline.cli.warm_up import Kind, compile_for

FIT = """
import numpy as np
from hingeline import MulticlassSSVM
for dtype in (np.float64, np.float32):
    X = np.random.default_rng(0).normal(size=(30, 5)).astype(dtype)
    MulticlassSSVM(C=0.1, random_state=0).fit(X, np.arange(30) % 4).predict(X)
"""


@pytest.mark.slow
def test_a_first_fit_after_it_compiles_nothing(tmp_path):
    variables = {**environment(), "HINGELINE_CACHE_DIR": str(tmp_path)}

    def run(*arguments):
        call = [sys.executable, *arguments]
        done = subprocess.run(call, env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done

    command = ("-c", "from hingeline.cli import main; main()", "warm-up", "multiclass")
    first = run(*command)
    assert "about 10 s of processor time" in first.stderr
    assert "multiclass, float32: " in first.stderr
    assert not first.stdout.startswith("0 kernels")
    assert str(tmp_path) in first.stdout
    assert "compiling kernels" not in run("-c", FIT).stderr
    assert run(*command, "--quiet").stdout.startswith("0 kernels compiled")


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted({*get_args(Kind)} - {"all"}))
def test_the_work_of_every_kind_can_be_done(kind):
    compile_for(kind, "float64")
    assert compile_for(kind, "float64") == (f"{kind}, float64", 0)


def test_a_kind_that_is_none():
    assert "invalid value for 'kind': 'chian' is not one of" in refused("warm-up", "chian")


@pytest.mark.parametrize("kind", ["all", "chain"])
def test_without_a_folder_there_is_nothing_to_warm_up(kind, monkeypatch):
    monkeypatch.setattr(_jit, "CACHE_FOLDER", None)
    assert "HINGELINE_CACHE_DIR" in refused("warm-up", kind)


def test_no_number_of_processes():
    assert "--n-jobs 0 has no meaning" in refused("warm-up", "chain", "--n-jobs", 0)


def find_calls(work):
    """The files of the kernels that work calls, found with interpreted kernels."""
    calls = set()
    inside = False  # what a kernel calls is compiled with it

    def interpret(kernel, *arguments):
        nonlocal inside
        if inside:
            return kernel.py_func
        calls.add(kernel._cache.file(tuple(map(kernel.typeof_pyval, arguments))).name)
        inside = True
        result = kernel.py_func(*arguments)
        inside = False
        return lambda *arguments: result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CPUDispatcher, "_compile_for_args", interpret)
        work()
    return calls


CALLS = """
import json, sys, warnings
import numpy as np
sys.path[:0] = {path!r}
from cli.test_warm_up import find_calls
from hingeline import ChainSSVM, Graph, GraphSSVM, MulticlassSSVM, _jit
from hingeline.cli.warm_up import fit_tiny

warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
tags = [["B-a", "I-a", "O", "O", "B-b"], ["O", "B-b", "I-b", "B-a"]]
edges = np.array([[0, 1], [1, 2], [2, 3], [3, 0]])
FITS = [
    (ChainSSVM, [rng.normal(size=(len(y), 4)).astype(np.float32) for y in tags], tags, "float32"),
    (MulticlassSSVM, rng.normal(size=(9, 4)), np.arange(9) % 4, "float64"),
    (GraphSSVM, [Graph(rng.normal(size=(4, 2)), edges)] * 3, [np.arange(4) % 3] * 3, "float64"),
]
for kind, X, y, numbers in FITS:
    model = kind(max_iter=8, tol=1e-9, random_state=0)
    real = find_calls(lambda: model.fit(X, y).predict(X))
    tiny = find_calls(lambda: fit_tiny(kind, numbers))
    assert len(real) > 1
    assert real <= tiny, (kind, real - tiny)
    usual = find_calls(lambda: kind(random_state=0).fit(X, y))
    assert abs(len(usual) - _jit._USUAL) <= 2, usual
"""


@pytest.mark.slow
def test_a_tiny_fit_calls_what_a_real_one_does(tmp_path):
    tests = str(Path(__file__).parents[1])
    variables = {**environment(), "HINGELINE_CACHE_DIR": str(tmp_path)}
    code = CALLS.format(path=[tests])
    done = subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
