"""The second process of a first fit: it knows what will be called, and only time depends on it."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import hingeline
from hingeline import _jit

needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc")


def run(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script that believes in two idle cores, with kernels in ``folder``."""
    cores = "from hingeline import _jit\n_jit.effective_n_jobs = lambda n_jobs: 2\n"
    cores += "_jit.os.getloadavg = lambda: (0.0, 0.0, 0.0)\n"
    own = {
        "PYTHONPATH": str(Path(hingeline.__file__).parents[1]),
        "HINGELINE_CACHE_DIR": str(folder),
        "HINGELINE_COMPILE_PROCESSES": "2",
    }
    return subprocess.run(
        [sys.executable, "-c", cores + script],
        env={**os.environ, **own, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def read(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


#: What fits call with which types, and what the tiny fits that stand for them do; interpreted.
CALLS = """
import json, warnings
import numpy as np
from hingeline import ChainSSVM, Graph, GraphSSVM, MulticlassSSVM, MultilabelSSVM
from hingeline.estimators import ahead, base

warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
tags = [["B-a", "I-a", "O", "O", "B-b"], ["O", "B-b", "I-b", "B-a"]]
words = [["ab", "c", "d", "ab", "e"], ["x", "ab", "c", "f"]]
X = [rng.normal(size=(len(own), 4)).astype(np.float32) for own in tags]
rows, labels, sets = rng.normal(size=(9, 4)), np.arange(9) % 4, rng.integers(2, size=(9, 4))
edges = np.array([[0, 1], [1, 2], [2, 3], [3, 0]])
cycles = [Graph(rng.normal(size=(4, 2)), edges)] * 3
paths = [Graph(rng.normal(size=(4, 2)), edges[:3])] * 3
nodes = [np.arange(4) % 3] * 3
FITS = {
    "chain": (ChainSSVM(), X, tags),
    "words": (ChainSSVM(scheme="auto", C=0.1), words, tags),
    "bcfw": (ChainSSVM(solver="bcfw", loss="zero_one"), X, tags),
    "slack": (ChainSSVM(rescale="slack", boundary=False), X, tags),
    "classes": (MulticlassSSVM(solver_options={"cg_steps": 1}), rows, labels),
    "sum": (MulticlassSSVM(slack="sum", class_weight="balanced"), rows, labels),
    "sets": (MultilabelSSVM(edges="full"), rows, sets),
    "tree": (MultilabelSSVM(edges="tree"), rows, sets),
    "cycles": (GraphSSVM(), cycles, nodes),
    "relaxed": (GraphSSVM(inference="lp", solver="soft-bcfw"), cycles, nodes),
    "paths": (GraphSSVM(), paths, nodes),
}
solve = base.BaseSSVM._solve_with

def note(self, compiled, *rest, **given):
    global fit
    fit = ahead.describe(self, self._solver_class(compiled).name, compiled.problem, "")
    return solve(self, compiled, *rest, **given)

found = {}
for name, (model, *data) in FITS.items():
    base.BaseSSVM._solve_with = note
    model.set_params(max_iter=8, tol=1e-9, random_state=0)
    real = ahead.find_calls(lambda: model.fit(*data).predict(data[0]))
    base.BaseSSVM._solve_with = solve
    tiny = ahead.find_calls(lambda: ahead.fit_tiny(*fit[:2], **fit[2]))
    found[name] = [sorted(real), sorted(tiny)]
print(json.dumps(found))
"""


def test_a_tiny_fit_calls_what_a_real_one_does(tmp_path):
    found = read(run(CALLS, tmp_path))
    assert len(found) == 11
    for name, (real, tiny) in found.items():
        assert set(real) <= set(tiny), name
        assert 1 < len(real) <= len(tiny) <= len(real) + 1, name  # one for longer runs


#: A first fit; before it, something may be done to the second process as soon as it is there.
FIT = """
import json, os, signal
import numpy as np
from hingeline import MulticlassSSVM
start = _jit._start_assistant
pids = []

def start_and_then(fit):
    if start(fit):
        (process,) = _jit._ASSISTANTS
        pids.append(process.pid)
        {then}
    return bool(pids)

_jit._start_assistant = start_and_then
rng = np.random.default_rng(0)
X, y = rng.normal(size=(50, 6)), rng.integers(4, size=50)
model = MulticlassSSVM(C=0.1, random_state=0).fit(X, y)
model.predict(X)
print(json.dumps([pids, model.weights_.tobytes().hex()]))
"""


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def kernels(folder: Path) -> set[str]:
    return {file.name for file in (folder / "kernels").iterdir()}


@needs_proc
@pytest.mark.slow
def test_two_processes_compile_what_one_does(tmp_path):
    alone, both, broken = (tmp_path / name for name in ("alone", "both", "broken"))
    done = run(FIT.format(then="pass"), alone, HINGELINE_COMPILE_PROCESSES="1")
    assert "compiling kernels (once" in done.stderr
    pids, weights = read(done)
    assert pids == []
    done = run(FIT.format(then="pass"), both)
    assert "compiling kernels (in two processes, once" in done.stderr
    pids, same = read(done)
    assert len(pids) == 1
    assert not is_running(pids[0])
    assert same == weights
    assert kernels(alone) <= kernels(both)
    assert all(name == "locks" or name.endswith(".nbc") for name in kernels(both))
    # The other process is killed: this one does its work.
    pids, same = read(run(FIT.format(then="process.kill()"), broken))
    assert len(pids) == 1
    assert same == weights
    assert kernels(alone) <= kernels(broken)


@needs_proc
@pytest.mark.slow
def test_the_second_process_ends_with_the_first(tmp_path):
    then = (
        "print(json.dumps(pids), flush=True); time.sleep(3); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = run("import time" + FIT.format(then=then), tmp_path)
    (pid,) = json.loads(done.stdout)
    for _ in range(100):
        if not is_running(pid):
            return
        time.sleep(0.1)
    pytest.fail("it is still running")


def test_where_no_second_process_is_started(monkeypatch):
    started: list[Any] = []

    def refuse(*arguments: Any, **options: Any) -> None:
        started.append(arguments)
        raise OSError

    monkeypatch.setattr(_jit.subprocess, "Popen", refuse)
    monkeypatch.setattr(_jit, "effective_n_jobs", lambda n_jobs: 2)
    monkeypatch.setattr(_jit.os, "getloadavg", lambda: (1.4, 0.0, 0.0))
    monkeypatch.setenv("HINGELINE_COMPILE_PROCESSES", "2")
    assert not _jit._start_assistant("a fit")
    assert len(started) == 1  # tried, and it could not be started
    with monkeypatch.context() as patch:
        patch.setenv("HINGELINE_COMPILE_PROCESSES", "1")
        assert not _jit._start_assistant("a fit")
    for name, value in (
        (("effective_n_jobs",), lambda n_jobs: 1),
        (("os", "getloadavg"), lambda: (1.6, 0.0, 0.0)),
        (("multiprocessing", "parent_process"), multiprocessing.current_process),
        (("sys", "executable"), "/opt/application"),
    ):
        with monkeypatch.context() as patch:
            *path, last = name
            patch.setattr(getattr(_jit, path[0]) if path else _jit, last, value)
            assert not _jit._start_assistant("a fit")
    assert not _jit._start_assistant(None)  # a kind of fit that nobody knows
    assert len(started) == 1
