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
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest

import hingeline
from hingeline import _compiler, _jit
from hingeline._jit import (
    FASTMATH,
    announce_compiling,
    by_class,
    by_reference,
    finite_helper,
    helper,
    kernel,
    prefetch,
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
    return [file for file in folder.rglob("*") if file.suffix in {".nbc", ".part"}]


#: A cached kernel around one helper of the library, and a chain to call it with.
PROBE = """
import json
from pathlib import Path
import numpy as np
import hingeline
from hingeline import _compiler, _jit
from hingeline.core import primitives as base
from hingeline.structures import chain

@_jit.kernel
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
    "cache": None if _jit.CACHE_FOLDER is None else str(_jit.CACHE_FOLDER),
    "hits": sum(loss.stats.cache_hits.values()),
    "misses": sum(loss.stats.cache_misses.values()),
}))
"""


# The cache is used ------------------------------------------------------------------------------

FIT = """
import importlib, json
import numpy as np
from numba.extending import is_jitted
from hingeline.core.formulations import make_formulation
from hingeline.core.primitives import Workers
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
for name in ("hingeline.core.blocks", "hingeline.solvers.sdm"):
    module = importlib.import_module(name)
    for name, value in vars(module).items():
        if is_jitted(value) and value.__module__ == module.__name__:
            hits, misses = value.stats.cache_hits, value.stats.cache_misses
            stats[name] = [sum(hits.values()), sum(misses.values())]
print(json.dumps({"stats": stats, "w": solver.w.tolist()}))
"""


@pytest.mark.slow
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


def edit(source: Path, old: str, new: str) -> None:
    """Replace a text that stands once in the package."""
    found = [f for f in sorted(source.rglob("*.py")) if old in f.read_text(encoding="utf-8")]
    assert len(found) == 1, f"the line this test edits has changed: {old}"
    text = found[0].read_text(encoding="utf-8")
    assert text.count(old) == 1
    found[0].write_text(text.replace(old, new), encoding="utf-8")


CHAIN_LOSS = "total += problem.cost[problem.labels[problem.offsets[i] + t], y[t]]"


@pytest.mark.slow
def test_an_edited_helper_is_never_stale(tmp_path):
    source, cache = copied_package(tmp_path), tmp_path / "cache"

    def probe() -> Any:
        found = run(PROBE, tmp_path, source=source, HINGELINE_CACHE_DIR=str(cache))
        assert found["package"] == str(source / "hingeline")
        return found["value"], found["hits"], found["misses"]

    assert probe() == (2.0, 0, 1)
    edited = CHAIN_LOSS.replace("+= ", "+= 2.0 * ")
    edit(source, CHAIN_LOSS, edited)
    assert probe() == (4.0, 0, 1)
    edit(source, edited, CHAIN_LOSS)
    assert probe() == (2.0, 1, 0)  # the old code is still there, and right again


#: The keys of all kernels for two structures.
KEYS = """
import importlib, json, pkgutil
import numba, numpy as np
from numba.extending import is_jitted
import hingeline
from hingeline import _compiler, _jit
from hingeline.structures import chain, multiclass

problems = {
    "chain": chain.make_problem(
        np.arange(4), np.zeros(3, dtype=np.int32), np.ones(3), np.array([0, 3]),
        np.array([0, 1, 0]), 1, 1.0 - np.eye(2), True
    ),
    "multiclass": multiclass.make_problem(
        np.arange(3), np.array([0, 1], dtype=np.int32), np.ones(2), np.array([0, 1]), 2,
        1.0 - np.eye(2)
    ),
}
keys = {name: {} for name in problems}
for found in pkgutil.walk_packages(hingeline.__path__, "hingeline."):
    if found.name.endswith("__main__"):
        continue
    for name, value in vars(importlib.import_module(found.name)).items():
        if is_jitted(value):
            for kind, problem in problems.items():
                keys[kind][name] = _jit.machine_code_key(value, (numba.typeof(problem),))
print(json.dumps(keys))
"""


@pytest.mark.slow
def test_keys_follow_what_a_kernel_can_reach(tmp_path):
    source = copied_package(tmp_path)

    def keys(**variables: str) -> dict[str, dict[str, str]]:
        return run(KEYS, tmp_path, source=source, HINGELINE_CACHE="0", **variables)

    def changed(kind: str) -> set[str]:
        return {name for name, key in keys_now[kind].items() if key != start[kind][name]}

    start = keys()
    assert len(set(start["chain"].values())) == len(start["chain"]) > 50
    for file in source.rglob("*.py"):  # comments everywhere, and one line more above all code
        text = file.read_text(encoding="utf-8")
        file.write_text(f"# edited\n{text}\n# edited\n", encoding="utf-8")
    edit(source, 'that the truth and the planes have at t."""', 'Another docstring."""')
    assert keys(PYTHONHASHSEED="7") == start

    # A function that kernels find only by the type of the problem.
    edit(source, CHAIN_LOSS, CHAIN_LOSS.replace("+= ", "+= 2.0 * "))
    keys_now = keys()
    assert changed("multiclass") == set()
    assert "find_planes" in changed("chain")
    assert not {"move_mass", "move_between_cuts"} & changed("chain")  # they use no losses

    # A number inside a class that makes machine code for a function of that name.
    start = keys_now
    edit(source, "_LANES = 4", "_LANES = 8")
    keys_now = keys()
    for kind in ("chain", "multiclass"):
        assert "find_planes" in changed(kind)
        assert "move_between_cuts" not in changed(kind)


LIMIT = 3


@helper
def below_limit(x):
    return x < LIMIT


@kernel
def count_below(x):
    count = 0
    for value in x:
        if below_limit(value):
            count += 1
    return count


def test_keys_follow_constants_types_and_tools(monkeypatch):
    vector = numba.typeof(np.zeros(2))
    keys = [_jit.machine_code_key(count_below, (vector,))]
    assert _jit.machine_code_key(count_below, (vector,)) == keys[0]
    keys.append(_jit.machine_code_key(count_below, (numba.typeof(np.zeros(2, dtype=int)),)))
    with monkeypatch.context() as patch:
        patch.setitem(count_below.py_func.__globals__, "LIMIT", 4)
        keys.append(_jit.machine_code_key(count_below, (vector,)))
    with monkeypatch.context() as patch:
        patch.setitem(_jit._HELPERS, below_limit, "other flags")
        keys.append(_jit.machine_code_key(count_below, (vector,)))
    for tool in (numba, np):
        with monkeypatch.context() as patch:
            patch.setattr(tool, "__version__", "0.0.0")
            keys.append(_jit.machine_code_key(count_below, (vector,)))
    assert len(set(keys)) == 6


@pytest.mark.slow
def test_machine_code_that_nobody_uses_is_removed(tmp_path):
    folder = tmp_path / "kernels"
    folder.mkdir()
    old, used = folder / "old.nbc", folder / "used.nbc"
    for file, days in ((old, 31), (used, 29)):
        file.touch()
        os.utime(file, (time.time() - days * 86400,) * 2)
    assert run(PROBE, tmp_path, HINGELINE_CACHE_DIR=str(tmp_path))["misses"] == 1
    assert not old.exists()
    assert used.exists()
    assert len(machine_code(folder)) == 2
    code = next(file for file in machine_code(folder) if file != used)
    os.utime(code, (time.time() - 29 * 86400,) * 2)
    assert run(PROBE, tmp_path, HINGELINE_CACHE_DIR=str(tmp_path))["hits"] == 1
    assert time.time() - code.stat().st_mtime < 3600  # it is in use
    whole = code.read_bytes()
    flipped = whole[:-100] + bytes([whole[-100] ^ 255]) + whole[-99:]
    for broken in (whole[:1000], flipped):  # compiled again
        code.write_bytes(broken)
        assert run(PROBE, tmp_path, HINGELINE_CACHE_DIR=str(tmp_path))["misses"] == 1
    assert run(PROBE, tmp_path, HINGELINE_CACHE_DIR=str(tmp_path))["hits"] == 1


@pytest.mark.slow
def test_four_processes_on_one_cold_cache(tmp_path):
    cache = str(tmp_path / "cache")
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(run, PROBE, tmp_path, HINGELINE_CACHE_DIR=cache) for _ in range(4)]
        found = [one.result() for one in runs]
    assert [one["value"] for one in found] == [2.0] * 4
    assert sum(one["misses"] for one in found) == (1 if _jit.fcntl else 4)  # the others waited
    left = sorted(file.suffix for file in (tmp_path / "cache" / "kernels").iterdir())
    assert left == (["", ".nbc"] if _jit.fcntl else [".nbc"])  # one file of locks
    assert run(PROBE, tmp_path, HINGELINE_CACHE_DIR=cache)["hits"] == 1


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


@pytest.mark.slow
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


@pytest.mark.slow
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
    leaf = "kernels"
    if sys.platform.startswith("linux"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        assert _jit._cache_folder() == tmp_path / "xdg" / "hingeline" / leaf
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "numba"))
    assert _jit._cache_folder() == tmp_path / "numba" / leaf
    monkeypatch.setenv("HINGELINE_CACHE_DIR", str(tmp_path / "own"))
    assert _jit._cache_folder() == tmp_path / "own" / leaf
    assert list((tmp_path / "own" / leaf).iterdir()) == []  # the trial left nothing behind
    for off in ("0", "off", "No", "FALSE"):
        monkeypatch.setenv("HINGELINE_CACHE", off)
        assert _jit._cache_folder() is None


def test_compiling_is_announced_once_and_only_where_it_happens(capsys, monkeypatch):
    for made, folder, expected in (
        (uncached(lambda x: x + 1), Path(), "for this structure"),
        (uncached(lambda x: x + 2), None, "in every run"),
    ):
        monkeypatch.setattr(_jit, "CACHE_FOLDER", folder)
        with announce_compiling():
            assert capsys.readouterr().err == ""
            made(1)
            made(1.0)
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert expected in said
        with announce_compiling():
            made(1)
        made(np.float32(1))
        assert capsys.readouterr().err == ""
        with announce_compiling(), announce_compiling(again=False):
            made(np.int8(1))
        with announce_compiling(again=False):
            made(np.int16(1))
        assert capsys.readouterr().err == said


# Tuples of arrays -------------------------------------------------------------------------------


class Inner(NamedTuple):
    table: Any
    words: Any


@by_reference
class Outer(NamedTuple):
    vector: Any
    table: Any
    n: int
    inner: Inner
    factor: float


class Special(Outer):
    """The same fields, other code."""


@helper
def double(outer):
    return 2.0 * outer.factor


@helper
def triple(outer):
    return 3.0 * outer.factor


def factor_of(outer):
    return (triple if isinstance(outer, Special) else double)(outer)


by_class(factor_of, lambda kind: triple if kind is Special else double)


@kernel
def read_all(outer, out):
    copy = outer.vector[1:3].copy()  # which owns memory
    for k in range(outer.vector.shape[0]):
        outer.vector[k] += 1.0  # the array is the caller's
    total = copy[0] + copy[1] + outer.n
    for i in range(outer.table.shape[0]):
        for j in range(outer.table.shape[1]):
            total += outer.table[i, j] * outer.inner.table[j, i]
    for word in outer.inner.words:
        total += word
    out[0] = total * factor_of(outer)
    return outer.table.strides[0]


@pytest.mark.parametrize("kind", [Outer, Special])
def test_tuples_by_reference(kind):
    table = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    inner = Inner(np.asfortranarray(table.T), np.array([5, 6], dtype=np.int8))
    for view in (table, table[::2]):
        outer = kind(np.arange(4.0), view, 7, inner, 0.5)
        counts = [sys.getrefcount(a) for a in (outer.vector, outer.table, *inner)]
        out = np.empty(1)
        for turn in range(50):
            assert read_all(outer, out) == view.strides[0]
            products = float((view * inner.table.T[: len(view)]).sum())
            expected = 1 + 2 + 2 * turn + 7 + products + 11
            assert out[0] == pytest.approx(expected * (1.5 if kind is Special else 1.0))
        assert outer.vector.tolist() == [50.0, 51.0, 52.0, 53.0]
        assert counts == [sys.getrefcount(a) for a in (outer.vector, outer.table, *inner)]


def test_arrays_that_may_not_be_written_to_are_of_the_same_kind():
    inner = Inner(np.zeros((1, 1)), np.zeros(1, dtype=np.int8))
    free, frozen = np.zeros(3), np.zeros(3)
    frozen.flags.writeable = False
    kinds = [numba.typeof(Outer(v, np.zeros((1, 1)), 1, inner, 0.5)) for v in (free, frozen)]
    assert kinds[0] == kinds[1]


@uncached
def _array_expression(x):
    return (x / 2.0 + 1.0).sum()


def test_a_helper_is_compiled_once_whatever_the_flags_of_its_callers():
    _array_expression(np.zeros(2))  # for which numba changes the flags of its caller
    compiled = []

    @helper
    def below(x):
        return x + 1.0

    @finite_helper
    def middle(x):
        return below(x)

    @uncached
    def both(x):
        return below(x) + middle(x)

    class Count(numba.core.event.Listener):
        def on_start(self, event):
            compiled.append(event.data["dispatcher"].py_func.__name__)

        def on_end(self, event):
            pass

    with numba.core.event.install_listener("numba:compile", Count()):
        assert both(1.0) == 4.0
    assert sorted(compiled) == ["below", "both", "middle"]


def test_an_array_expression_leaves_the_flags_of_other_kernels_alone():
    """In an array a division by 0 gives an infinity; elsewhere it is an error."""
    _array_expression(np.zeros(2))

    @helper
    def inverse(x):
        return 1.0 / x

    @uncached
    def call(x):
        return inverse(x)

    with pytest.raises(ZeroDivisionError):
        call(0.0)


@helper
def _weigh_places(x):
    total = 0.0
    for k in range(x.shape[0]):
        total += x[k] * k
    return total


@helper
def _never_weigh(x):
    total = 0.0
    for _ in range(0):  # LLVM takes the call out of the text of this function
        total += _weigh_places(x)
    return total


@helper
def _weigh_more(x):
    return _weigh_places(x) + 1.0


@uncached
def _weigh_late(x):
    return _never_weigh(x) + _weigh_more(x)


def test_code_is_linked_after_all_its_callers():
    """After the first, which does not call it any more, LLVM would leave it out."""
    assert _weigh_late(np.ones(4)) == 7.0


def test_a_large_helper_is_one_piece_of_machine_code(monkeypatch):
    monkeypatch.setattr(_compiler, "_LARGE", 0)

    @helper
    def below(x):
        return x + 1.0

    @uncached
    def twice(x):
        return 2.0 * below(x)

    @uncached
    def less(x):
        return below(x) - 2.0

    @numba.njit
    def of_a_user(x):
        return below(x) / 2.0

    @uncached
    def all_three(x):
        return twice(x) + less(x) + of_a_user(x)

    assert all_three(1.0) == 5.0
    needed = [next(iter(k.overloads.values())).library.objects for k in (twice, less, all_three)]
    shared = needed[0].keys() & needed[1].keys()
    assert len(shared) == 1
    assert needed[0].keys() | needed[1].keys() < needed[2].keys()


def test_a_numba_that_nobody_knows_compiles_its_own_way(tmp_path):
    """As after a release that changes what the compiler builds on; it is cached like any other."""
    known = run(FIT, tmp_path, HINGELINE_CACHE_DIR=str(_jit.CACHE_FOLDER.parent))
    later = f"import numba\nnumba.version_info = numba.version_info._replace(short=(9, 0))\n{FIT}"
    code = later.replace("import importlib, json", "import importlib, json, sys")
    code += "assert 'hingeline._compiler' not in sys.modules\n"
    first, second = (run(code, tmp_path, HINGELINE_CACHE_DIR=str(tmp_path)) for _ in range(2))
    assert first["stats"]["find_planes"] == [0, 1]
    assert second["stats"]["find_planes"] == [1, 0]
    assert first["w"] == second["w"] == pytest.approx(known["w"], rel=1e-12)


@pytest.mark.slow
def test_a_second_process_finds_large_helpers(tmp_path):
    code = f"from hingeline import _compiler\n_compiler._LARGE = 0\n{FIT}"
    first, second = (run(code, tmp_path, HINGELINE_CACHE_DIR=str(tmp_path)) for _ in range(2))
    assert second["stats"]["find_planes"] == second["stats"]["move_mass"] == [1, 0]
    assert second["w"] == first["w"]


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
    assert made._cache.folder is None


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
