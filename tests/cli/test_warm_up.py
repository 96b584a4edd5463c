"""Compiling ahead: what a first fit needs is on disk afterwards, and what is there stays."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
@pytest.mark.parametrize("kind", sorted(set(Kind) - {"all"}))
def test_the_work_of_every_kind_can_be_done(kind):
    compile_for(kind, "float64")
    assert compile_for(kind, "float64") == (f"{kind}, float64", 0)


@pytest.mark.parametrize("kind", ["all", "chain"])
def test_without_a_folder_there_is_nothing_to_warm_up(kind, monkeypatch):
    monkeypatch.setattr(_jit, "CACHE_FOLDER", None)
    assert "HINGELINE_CACHE_DIR" in refused("warm-up", kind)
