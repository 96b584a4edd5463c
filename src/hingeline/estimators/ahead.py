"""Compiling ahead: tiny fits that call the kernels of a real one, and a process that makes them.

A first fit compiles its kernels in the order in which it calls them. A second process compiles
others of them meanwhile, the last first: it fits a tiny model of the same kind with kernels that
are interpreted, and so finds out what will be called with which types. Both keep machine code in
the same folder, and whoever wants a kernel that the other is compiling waits for it. Nothing but
time depends on it: if it fails, the first process does everything by itself.
"""

import os
import pickle
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

#: Parameters that change nothing in what is called; passes enough for the steps over all planes
#: that come late in a run.
_TINY = {"tol": 1e-300, "max_iter": 8, "max_time": None, "random_state": 0, "n_jobs": None}
_TINY |= {"verbose": 0, "warm_start": False}


def fit_tiny(estimator: Any, numbers: str, **params: Any) -> None:
    """Fit next to nothing and predict, which calls the kernels that a real fit does."""
    import numpy as np

    name = estimator.__name__
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
        estimator(**params, **_TINY).fit(X, y).predict(X)


def describe(model: Any, solver: str, problem: Any, kernel: str) -> Any:
    """What a second process must know of a fit that has to compile a kernel; None: it knows none.

    ``solver`` is the name of the one that was chosen, ``kernel`` the file of the first kernel.
    """
    known = ("ChainSSVM", "MulticlassSSVM", "GraphSSVM", "MultilabelSSVM")
    if type(model).__name__ not in known or not type(model).__module__.startswith("hingeline."):
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

        params["inference"] = list(INFERENCE)[problem.oracle.method.max()]
    return type(model), problem.values.dtype.str, params, kernel


def find_calls(work: Callable[[], Any]) -> dict[str, tuple[Any, Any]]:
    """What work calls, found with interpreted kernels: file -> kernel and types of arguments."""
    from numba.core.registry import CPUDispatcher

    calls: dict[str, tuple[Any, Any]] = {}
    inside = False  # what a kernel calls is compiled with it

    def interpret(kernel: Any, *arguments: Any) -> Any:
        nonlocal inside
        if inside:
            return kernel.py_func
        types = tuple(map(kernel.typeof_pyval, arguments))
        calls.setdefault(kernel._cache.file(types).name, (kernel, types))
        inside = True
        result = kernel.py_func(*arguments)
        inside = False
        return lambda *arguments: result

    usual, CPUDispatcher._compile_for_args = CPUDispatcher._compile_for_args, interpret
    try:
        work()
    finally:
        CPUDispatcher._compile_for_args = usual
    return calls


def assist() -> None:
    """Compile kernels of a fit in the parent process, and end with it."""
    os.environ["HINGELINE_COMPILE_PROCESSES"] = "1"
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    message = bytes.fromhex(sys.stdin.readline())

    def end_with_parent() -> None:
        sys.stdin.read()  # until nobody holds the other end any more
        from hingeline._jit import WRITING

        with WRITING:
            os._exit(0)

    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        estimator, numbers, params, first = pickle.loads(message)
        calls = find_calls(lambda: fit_tiny(estimator, numbers, **params))
        files = list(calls)
        later = files[files.index(first) + 1 :]  # an error, if it calls something else: the end
        for file in [*later[:1], *later[:0:-1]]:  # what is next may be large; then the last first
            kernel, types = calls[file]
            kernel.compile(types)
    finally:
        os._exit(0)
