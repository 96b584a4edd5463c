"""Compiling ahead: tiny fits that call the kernels of a real one, and a process that makes them.

A first fit compiles its kernels in the order in which it calls them. A second process compiles
others of them meanwhile, the last first: it fits a tiny model of the same kind with kernels that
are interpreted, and so finds out what will be called with which types. Both keep machine code in
the same folder, and whoever wants a kernel that the other is compiling waits for it. Nothing but
time depends on it: if it fails, the first process does everything by itself.
"""

import contextlib
import importlib
import os
import pickle
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

#: Estimator -> where it lives; of these there are tiny fits.
_HOMES = {
    "ChainSSVM": "chain",
    "MulticlassSSVM": "multiclass",
    "GraphSSVM": "graph",
    "MultilabelSSVM": "multilabel",
}
#: Parameters that change nothing in what is called; passes enough for the steps over all planes
#: that come late in a run.
_TINY = {"tol": 1e-300, "max_iter": 5, "max_time": None, "random_state": 0, "n_jobs": None}
_TINY |= {"verbose": 0, "warm_start": False}


def fit_tiny(name: str, numbers: str, **params: Any) -> None:
    """Fit a model to next to nothing and predict, which calls the kernels that a real fit does."""
    import numpy as np

    model: Any = getattr(importlib.import_module(f"hingeline.estimators.{_HOMES[name]}"), name)
    eye: Any = np.eye(3, dtype=numbers)
    X: Any = [eye] * 2
    y: Any = [np.array(["O", "B-x", "I-x"]), np.array(["O", "B-x", "O"])]
    if name in ("MulticlassSSVM", "MultilabelSSVM"):
        X, y = np.vstack(X), np.concatenate(y)
    if name == "MultilabelSSVM":
        y = (y[:, None] == np.unique(y)).astype(int)
    elif name == "GraphSSVM":
        from hingeline.features.graphs import Graph

        edges = [[0, 1], [1, 2], [2, 0]][: 2 if params.get("inference") == "max-product" else 3]
        X = [Graph(eye, np.array(edges))] * 2
    with warnings.catch_warnings(action="ignore"):  # it stops short of its tolerance
        model(**params, **_TINY).fit(X, y).predict(X)


def describe(model: Any, solver: str, problem: Any, kernel: str) -> Any:
    """What a second process must know of a fit, whose first kernel is given; None: nothing to do.

    Parameters
    ----------
    model : estimator
    solver : str
        The name of the one that was chosen.
    problem : problem of its structure
    kernel : str
        The file of the first kernel that had to be compiled.
    """
    name = type(model).__name__
    if type(model).__module__ != f"hingeline.estimators.{_HOMES.get(name)}":
        return None
    params = {
        key: value
        for key, value in model.get_params(deep=False).items()
        if key not in _TINY and isinstance(value, (bool, int, float, str, type(None)))
    }
    params |= {"solver": solver, "solver_options": model.solver_options}
    if "scheme" in params:
        params["scheme"] = model.scheme_ and "IOB2"
    if params.get("inference") == "auto":
        from hingeline.inference.map import INFERENCE

        methods = set(problem.oracle.method.tolist())
        params["inference"] = next(k for k, v in INFERENCE.items() if v == max(methods))
    return name, problem.values.dtype.str, params, kernel


@contextlib.contextmanager
def interpret_kernels() -> Iterator[dict[str, tuple[Any, Any]]]:
    """Run kernels as Python; what was called, by the file that keeps it: kernel and types."""
    from numba.core.registry import CPUDispatcher

    calls: dict[str, tuple[Any, Any]] = {}
    inside = False  # what a kernel calls is compiled with it

    def interpret(dispatcher: Any, *arguments: Any) -> Any:
        nonlocal inside
        if inside:
            return dispatcher.py_func
        types = tuple(map(dispatcher.typeof_pyval, arguments))
        calls.setdefault(dispatcher._cache.file(types).name, (dispatcher, types))
        inside = True
        result = dispatcher.py_func(*arguments)
        inside = False
        return lambda *arguments: result

    usual = CPUDispatcher._compile_for_args
    CPUDispatcher._compile_for_args = interpret
    try:
        yield calls
    finally:
        CPUDispatcher._compile_for_args = usual


def _sort_calls(calls: dict[str, tuple[Any, Any]]) -> list[str]:
    """The last first, which the other process needs last, and all small ones behind the others."""
    from hingeline._jit import Dependencies, classes_in

    sizes = {}
    for name, (kernel, types) in calls.items():
        walk = Dependencies(classes_in(types))
        walk.visit(kernel)
        sizes[name] = len(walk.kept)
    last_first = list(sizes)[::-1]
    return sorted(last_first, key=lambda name: 2 * sizes[name] < max(sizes.values()))


def assist() -> None:
    """Compile kernels of a fit in the parent process, and end with it."""
    os.environ["HINGELINE_COMPILE_PROCESSES"] = "1"
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    message = bytes.fromhex(sys.stdin.readline())

    def end_with_parent() -> None:
        sys.stdin.read()  # which ends when nobody holds the other end any more
        from hingeline._jit import WRITING

        with WRITING:
            os._exit(0)

    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        name, numbers, params, first = pickle.loads(message)
        with interpret_kernels() as calls:
            fit_tiny(name, numbers, **params)
        for file in _sort_calls(calls) if first in calls else []:
            if file != first:
                kernel, types = calls[file]
                kernel.compile(types)
    finally:
        os._exit(0)
