"""Compiling: what is cached and where, when it is thrown away, and what the flags leave intact.

Most of it can only be seen from outside, so small scripts run in processes of their own.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from types import FunctionType
from typing import Any

import numba
import numpy as np
import pytest

import hingeline
from hingeline import _numba
from hingeline._numba import (
    FASTMATH,
    helper,
    kernel,
    prefetch,
    source_hash,
    strict_helper,
    uncached,
)

PACKAGE = Path(hingeline.__file__).parent


def run(
    script: str, folder: Path, *arguments: object, source: Path = PACKAGE.parent, **variables: str
) -> Any:
    """Run a script as a file in ``folder`` and return what it prints as JSON."""
    file = folder / "script.py"
    if not file.exists() or file.read_text() != script:
        file.write_text(script)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HINGELINE_", "NUMBA_"))}
    environment = {**kept, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1", **variables}
    done = subprocess.run(
        [sys.executable, str(file), *map(str, arguments)],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def copied_package(folder: Path) -> Path:
    """A copy of the sources; the folder to put on the path."""
    ignore = shutil.ignore_patterns("__pycache__", "*.nb?")
    shutil.copytree(PACKAGE, folder / "src" / "hingeline", ignore=ignore)
    return folder / "src"


def machine_code(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.suffix in {".nbi", ".nbc"}]


#: A cached kernel around one helper of the library, and a chain to call it with.
PROBE = """
import json
from pathlib import Path
import numpy as np
import hingeline
from hingeline import _numba
from hingeline.structures import base, chain

@_numba.kernel
def loss(problem, i, y):
    return base.plane_loss(problem, i, y)

problem = chain.make_problem(
    np.arange(4), np.zeros(3, dtype=np.int32), np.ones(3), np.array([0, 3]),
    np.array([0, 1, 0]), 1, 1.0 - np.eye(2), True
)
value = loss(problem, 0, np.array([1, 1, 1], dtype=np.int32))
print(json.dumps({
    "value": value,
    "package": str(Path(hingeline.__file__).parent),
    "cache": None if _numba.CACHE_FOLDER is None else str(_numba.CACHE_FOLDER),
    "hits": sum(loss.stats.cache_hits.values()),
    "misses": sum(loss.stats.cache_misses.values()),
}))
"""


# The cache is used ------------------------------------------------------------------------------

FIT = """
import importlib, json, pkgutil
import numpy as np
from numba.extending import is_jitted
import hingeline.solvers
from hingeline import _numba
from hingeline.formulations import make_formulation
from hingeline.solvers.parallel import Workers
from hingeline.solvers.sdm import SDM
from hingeline.structures import multiclass

problem = multiclass.compile_problem(multiclass.make_problem(
    np.arange(3), np.array([0, 1], dtype=np.int32), np.ones(2), np.array([0, 1]), 2,
    1.0 - np.eye(2)
))
with Workers(1, problem.scratch_size) as workers:
    solver = SDM(problem, make_formulation(1.0, "max", "margin", np.ones(2)), workers, 0)
    solver.sweep()
stats = {}
for found in pkgutil.iter_modules(hingeline.solvers.__path__, "hingeline.solvers."):
    module = importlib.import_module(found.name)
    for name, value in vars(module).items():
        if is_jitted(value) and value.__module__ == found.name:
            hits, misses = value.stats.cache_hits, value.stats.cache_misses
            stats[name] = [sum(hits.values()), sum(misses.values())]
print(json.dumps({"stats": stats, "w": solver.w.tolist()}))
"""


def test_a_second_process_compiles_nothing(tmp_path):
    source, cache = copied_package(tmp_path), tmp_path / "cache"
    first = run(FIT, tmp_path, source=source, HINGELINE_CACHE_DIR=str(cache))
    code = sorted(machine_code(cache))
    assert code
    for name in ("find_planes", "move_mass"):
        assert first["stats"][name] == [0, 1]
    second = run(FIT, tmp_path, source=source, HINGELINE_CACHE_DIR=str(cache))
    for name in ("find_planes", "move_mass"):
        assert second["stats"][name] == [1, 0]
    assert all(misses == 0 for _, misses in second["stats"].values())
    assert sorted(machine_code(cache)) == code
    assert second["w"] == first["w"]


# The cache is never stale -----------------------------------------------------------------------


def test_an_edited_helper_is_never_stale(tmp_path):
    source, cache = copied_package(tmp_path), tmp_path / "cache"

    def probe() -> Any:
        found = run(PROBE, tmp_path, source=source, HINGELINE_CACHE_DIR=str(cache))
        assert found["package"] == str(source / "hingeline")
        return found

    first = probe()
    assert (first["value"], first["hits"], first["misses"]) == (2.0, 0, 1)
    file = source / "hingeline" / "structures" / "chain.py"
    text = file.read_text(encoding="utf-8")
    line = "total += problem.cost[problem.labels[lo + t], y[t]]"
    assert text.count(line) == 1, "the line this test edits in chain.plane_loss has changed"
    file.write_text(text.replace(line, line.replace("+= ", "+= 2.0 * ")), encoding="utf-8")
    edited = probe()
    assert (edited["value"], edited["hits"], edited["misses"]) == (4.0, 0, 1)
    assert edited["cache"] != first["cache"]
    file.write_text(text, encoding="utf-8")
    again = probe()  # the old code is still there, and right again
    assert (again["value"], again["hits"], again["misses"]) == (2.0, 1, 0)
    assert again["cache"] == first["cache"]


def test_the_hash_follows_kernel_sources_only(tmp_path, monkeypatch):
    package = copied_package(tmp_path) / "hingeline"
    monkeypatch.setattr(_numba, "_PACKAGE", package)
    start = source_hash()
    for name in ("cli.py", "testing.py", "__init__.py", "data/more.py", "estimators/base.py"):
        with (package / name).open("a", encoding="utf-8") as file:
            file.write("\n# edited\n")
        assert source_hash() == start, name
    seen = {start}
    for name in (
        "_numba.py",
        "formulations.py",
        "working_set.py",
        "inference/viterbi.py",
        "structures/chain.py",
        "structures/base.py",
        "solvers/sdm.py",
        "solvers/new.py",
    ):
        with (package / name).open("a", encoding="utf-8") as file:
            file.write("\n# edited\n")
        seen.add(source_hash())
    assert len(seen) == 9
    (package / "solvers" / "new.py").rename(package / "solvers" / "renamed.py")
    assert source_hash() not in seen


def test_the_hash_follows_the_compiler(monkeypatch):
    start = source_hash()
    monkeypatch.setattr(numba, "__version__", "0.0.0")
    assert source_hash() != start


# Importing --------------------------------------------------------------------------------------

IMPORT = """
import importlib, json, pkgutil, sys, time
import numpy, scipy.sparse, numba, numba.extending, llvmlite.ir
import sklearn.base, sklearn.exceptions, sklearn.metrics, sklearn.utils.multiclass
import sklearn.utils.validation, sklearn.feature_extraction
try:
    import safetensors.numpy
except ImportError:
    pass
before = set(sys.modules)
start = time.process_time()
import hingeline
taken = time.process_time() - start
heavy = sorted({"matplotlib", "rich", "typer", "pandas"} & (set(sys.modules) - before))
if "all" in sys.argv:
    for found in pkgutil.walk_packages(hingeline.__path__, "hingeline."):
        if not found.name.endswith("__main__"):
            try:
                importlib.import_module(found.name)
            except ModuleNotFoundError as error:
                if error.name.startswith("hingeline"):
                    raise
print(json.dumps({"taken": taken, "heavy": heavy}))
"""


def test_importing_compiles_nothing(tmp_path):
    cache = tmp_path / "cache"
    found = run(IMPORT, tmp_path, "all", HINGELINE_CACHE_DIR=str(cache))
    assert machine_code(cache) == []
    assert found["heavy"] == []  # what only the command line and reports need


def test_importing_is_quick(tmp_path):
    """Beyond its dependencies; processor time, so that a busy machine does not matter."""
    cache = str(tmp_path / "cache")
    taken = [run(IMPORT, tmp_path, HINGELINE_CACHE_DIR=cache)["taken"] for _ in range(3)]
    assert statistics.median(taken) < 1.5


# Without a cache --------------------------------------------------------------------------------


def test_no_folder_to_write_to_means_no_cache(tmp_path):
    (tmp_path / "file").touch()
    blocked = str(tmp_path / "file" / "sub")
    found = run(PROBE, tmp_path, HINGELINE_CACHE_DIR=blocked)
    assert (found["value"], found["cache"], found["hits"]) == (2.0, None, 0)


def test_a_read_only_install_without_a_home_works(tmp_path):
    """Files where folders ought to be: that stops the superuser too."""
    source = copied_package(tmp_path)
    (source / "hingeline" / "__pycache__").touch()
    (tmp_path / "home").touch()
    home = str(tmp_path / "home")
    found = run(PROBE, tmp_path, source=source, HOME=home, XDG_CACHE_HOME=home, LOCALAPPDATA=home)
    assert found["package"] == str(source / "hingeline")
    assert (found["value"], found["cache"]) == (2.0, None)
    assert machine_code(tmp_path) == []


def test_the_cache_can_be_switched_off(tmp_path):
    cache = tmp_path / "cache"
    found = run(PROBE, tmp_path, HINGELINE_CACHE="0", HINGELINE_CACHE_DIR=str(cache))
    assert (found["value"], found["cache"]) == (2.0, None)
    assert not cache.exists()


# Where the cache lives --------------------------------------------------------------------------


def test_the_variables_say_where_the_cache_lives(tmp_path, monkeypatch):
    for name in ("HINGELINE_CACHE", "HINGELINE_CACHE_DIR", "NUMBA_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    leaf = f"kernels-{source_hash()}"
    if sys.platform.startswith("linux"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        assert _numba._cache_folder() == tmp_path / "xdg" / "hingeline" / leaf
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "numba"))
    assert _numba._cache_folder() == tmp_path / "numba" / leaf
    monkeypatch.setenv("HINGELINE_CACHE_DIR", str(tmp_path / "own"))
    assert _numba._cache_folder() == tmp_path / "own" / leaf
    assert list((tmp_path / "own" / leaf).iterdir()) == []  # the trial left nothing behind
    for off in ("0", "off", "No", "FALSE"):
        monkeypatch.setenv("HINGELINE_CACHE", off)
        assert _numba._cache_folder() is None


def test_numbas_own_setting_is_left_as_it_was():
    before = numba.config.CACHE_DIR
    made = kernel(lambda x: x)
    after = numba.config.CACHE_DIR
    assert after == before
    if _numba.CACHE_FOLDER is not None:
        assert Path(made._cache.cache_path).is_relative_to(_numba.CACHE_FOLDER)


# The decorators ---------------------------------------------------------------------------------


@kernel
def look(x, out):
    """Masks and maxima in a loop that the compiler turns into vectors."""
    top = -np.inf
    for k in range(x.shape[0]):
        out[0, k] = np.isnan(x[k])
        out[1, k] = x[k] == -np.inf
        out[2, k] = x[k] != x[k]
        out[3, k] = x[k] > -np.inf
        out[4, k] = np.isinf(x[k])
        out[5, k] = max(-np.inf, x[k]) == -np.inf
        if x[k] > top:
            top = x[k]
    return top


@helper
def masked(x):
    return x == -np.inf or np.isnan(x)


@kernel
def count_masked(x):
    count = 0
    for value in x:
        if masked(value):
            count += 1
    return count


@pytest.mark.parametrize("length", [1, 7, 64])
def test_the_flags_keep_infinities_and_nan(length):
    assert not FASTMATH & {"fast", "nnan", "ninf"}
    rng = np.random.default_rng(length)
    x = rng.choice([-np.inf, np.inf, np.nan, 0.0, -1.5], size=length)
    with np.errstate(invalid="ignore"):
        expected = [np.isnan(x), x == -np.inf, x != x, x > -np.inf, np.isinf(x), x == -np.inf]
    out = np.full((6, length), -1.0)
    top = look(x, out)
    np.testing.assert_array_equal(out[:5], expected[:5])
    known = ~np.isnan(x)
    np.testing.assert_array_equal(out[5, known], expected[5][known])
    assert top == max((v for v in x if v == v), default=-np.inf)
    assert count_masked(x) == (np.isnan(x) | (x == -np.inf)).sum()
    assert count_masked.py_func(x) == count_masked(x)


def test_an_empty_row_of_masks_has_the_least_maximum():
    assert look(np.full(8, -np.inf), np.empty((6, 8))) == -np.inf
    assert np.isneginf(look(np.empty(0), np.empty((6, 0))))


def test_helpers_stay_plain_python():
    assert isinstance(masked, FunctionType)
    assert masked(-np.inf)
    assert not masked(0.0)


def test_kernels_release_the_gil_and_foreign_code_is_not_cached():
    assert look.targetoptions["nogil"]
    made = uncached(lambda x: x)
    assert made.targetoptions["nogil"]
    assert type(made._cache).__name__ == "NullCache"


@kernel
def hinted(x):
    for k in range(x.shape[0]):
        prefetch(x, k)
    return x.sum()


def test_a_prefetch_changes_nothing():
    for dtype in (np.float64, np.float32, np.int32):
        x = np.arange(20, dtype=dtype)
        assert hinted(x) == x.sum() == hinted.py_func(x)


@strict_helper
def _sum_as_written(values):
    total = 0.0
    for k in range(values.shape[0]):
        total += values[k]
    return total


@uncached
def _call_of_strict_helper(values):
    return _sum_as_written(values)


def test_a_strict_helper_does_not_take_over_the_flags_of_its_caller():
    values = np.array([1e16, 1.0, -1e16, 1.0] * 8)
    assert _call_of_strict_helper(values) == _sum_as_written(values)
    code = _call_of_strict_helper.inspect_llvm(_call_of_strict_helper.signatures[0])
    added = [line for line in code.splitlines() if " fadd " in line]
    assert added
    assert not [line for line in added if "reassoc" in line]
