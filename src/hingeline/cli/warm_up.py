"""``hingeline warm-up``: compile kernels before anybody waits for them."""

from __future__ import annotations

import contextlib
import io
import os
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from enum import StrEnum
from multiprocessing import get_context
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from hingeline import _jit
from hingeline.cli import app


class Kind(StrEnum):
    """What to compile for."""

    chain = "chain"
    multiclass = "multiclass"
    graph = "graph"
    all = "all"


def _fit_chain(dtype: Any) -> None:
    from hingeline import ChainSSVM

    X = [np.eye(4, dtype=dtype)] * 6
    y = [np.arange(4) % 3, *[np.arange(4) % 2] * 5]
    ChainSSVM(max_iter=3, random_state=0).fit(X, y).predict(X)


def _fit_classes(dtype: Any) -> None:
    from hingeline import MulticlassSSVM

    X = np.eye(12, dtype=dtype)
    MulticlassSSVM(max_iter=3, random_state=0).fit(X, np.arange(12) % 3).predict(X)


def _fit_graph(dtype: Any) -> None:
    from hingeline import Graph, GraphSSVM

    edges = np.array([[0, 1], [1, 2], [2, 0]])  # a cycle: the kernels of trees are in it too
    X = [Graph(np.eye(3, dtype=dtype), edges)] * 6
    y = [np.arange(3), *[np.arange(3) % 2] * 5]
    GraphSSVM(max_iter=3, random_state=0).fit(X, y).predict(X)


#: Kind -> what uses its kernels, and a rough guess at the seconds of one processor that compiling
#: takes (one kind of numbers, an empty cache); not measured on an idle machine.
_WORK: dict[str, tuple[Callable[[Any], None], int]] = {
    "chain": (_fit_chain, 19),
    "multiclass": (_fit_classes, 8),
    "graph": (_fit_graph, 24),
}
#: Arrays of numbers are float64, encoded features float32.
_NUMBERS = ("float64", "float32")


def compile_for(kind: str, numbers: str) -> tuple[str, int]:
    """Fit a tiny model, and say how many kernels had to be compiled."""
    compiled: list[bool] = []
    with (
        _jit.listen_to_compiling(compiled.append),
        warnings.catch_warnings(action="ignore"),  # three passes are not enough to converge
        contextlib.redirect_stderr(io.StringIO()),  # the parent says what is being compiled
    ):
        _WORK[kind][0](np.dtype(numbers))
    return f"{kind}, {numbers}", len(compiled)


def warm_up(
    kind: Annotated[Kind, typer.Argument(help="The models that will be fitted.")] = Kind.all,
    n_jobs: app.NJobs = None,
    quiet: app.Quiet = False,
) -> None:
    """Compile the kernels of a first fit and prediction, and keep them on disk.

    For images and servers: with the default solver, for float64 and float32. What is on disk
    already is not compiled again.
    """
    folder = _jit.CACHE_FOLDER
    if folder is None:
        raise ValueError(
            "there is no folder to keep kernels in: set HINGELINE_CACHE_DIR to one that can be "
            "written, and do not set HINGELINE_CACHE=0."
        )
    kinds = list(_WORK) if kind is Kind.all else [kind.value]
    work = [(name, numbers) for name in kinds for numbers in _NUMBERS]
    processes = min(n_jobs if n_jobs and n_jobs > 0 else os.cpu_count() or 1, len(work))
    console = Console(stderr=True, quiet=quiet)
    seconds = sum(_WORK[name][1] for name, _ in work)
    console.print(
        f"Compiling for {', '.join(kinds)}: about {seconds} s of processor time from an empty "
        f"cache, in {processes} process{'es' if processes > 1 else ''}."
    )
    began, total = time.perf_counter(), 0
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with (
        Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress,
        ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool,
    ):
        task = progress.add_task("compiling", total=len(work))
        for done in as_completed([pool.submit(compile_for, *one) for one in work]):
            name, compiled = done.result()
            total += compiled
            progress.update(task, advance=1)
            progress.print(f"{name}: {compiled} kernels compiled" if compiled else f"{name}: ready")
    files = list(folder.glob("*.nbc"))
    size = sum(file.stat().st_size for file in files) / 1e6
    typer.echo(
        f"{total} kernels compiled in {time.perf_counter() - began:.0f} s; {folder} holds "
        f"{len(files)} ({size:.0f} MB)."
    )
