"""``hingeline warm-up``: compile kernels before anybody waits for them."""

import contextlib
import io
import time
import warnings
from typing import Annotated, Any, Literal

import typer

import hingeline
from hingeline._words import count_of
from hingeline.cli import app, fits

Kind = Literal["chain", "multiclass", "graph", "segment", "dependency", "all"]
#: Kind -> processor seconds of a first fit and prediction with one kind of numbers, measured from
#: an empty cache; the last two on a quiet machine.
_SECONDS = {"chain": 12, "multiclass": 5, "graph": 15, "segment": 12, "dependency": 10}
_NUMBERS = ("float64", "float32")  # Arrays of numbers are float64, encoded features float32.
#: Of a tiny fit: passes enough for the steps that come late in a run.
_TINY = {"tol": 1e-300, "max_iter": 8, "random_state": 0}


def fit_tiny(estimator: Any, numbers: str) -> None:
    """Fit next to nothing and predict, which calls the kernels that a real fit does."""
    import numpy as np

    eye: Any = np.eye(3, dtype=numbers)
    X: Any = [eye] * 2
    y: Any = [np.array(["O", "B-x", "I-x"]), np.array(["O", "B-x", "O"])]
    if estimator.__name__ == "MulticlassSSVM":
        X, y = np.vstack(X), np.concatenate(y)
    elif estimator.__name__ == "DependencySSVM":  # words have no numbers
        X, y = [["a", "b"]] * 2, [[(2, "x"), (0, "y")]] * 2
    elif estimator.__name__ == "GraphSSVM":
        X = [hingeline.Graph(eye, np.array([[0, 1], [1, 2], [2, 0]]))] * 2
    with warnings.catch_warnings(action="ignore"):  # it stops short of its tolerance
        estimator(**_TINY).fit(X, y).predict(X)


def compile_for(kind: str, numbers: str) -> tuple[str, int]:
    """Fit a tiny model, and say how many kernels had to be compiled."""
    from hingeline import _jit

    compiled: list[Any] = []
    with (
        _jit.listen_to_compiling(compiled.append),
        contextlib.redirect_stderr(io.StringIO()),  # the parent says what is being compiled
    ):
        fit_tiny(getattr(hingeline, f"{kind.title()}SSVM"), numbers)
    return f"{kind}, {numbers}", len(compiled)


def warm_up(
    kind: Annotated[Kind, typer.Argument(help="The kind of model to compile for.")] = "all",
    n_jobs: Annotated[int, typer.Option(help="Processes; -1 starts one for each core.")] = -1,
    quiet: app.Quiet = False,
) -> None:
    """Compile the kernels of a first fit and prediction, and keep them on disk.

    Meant for container images and servers. Compiles for the default solver, float64 and float32;
    skips kernels that are already on disk.
    """
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from multiprocessing import get_context

    from hingeline import _jit
    from hingeline._checks import effective_n_jobs

    folder = _jit.CACHE_FOLDER
    if folder is None:
        what = "there is no folder for the kernels: set HINGELINE_CACHE_DIR to one that can be"
        raise ValueError(f"{what} written, and do not set HINGELINE_CACHE=0.")
    kinds = list(_SECONDS) if kind == "all" else [kind]
    # Words of dependencies have codes, no numbers.
    work = [(k, n) for k in kinds for n in _NUMBERS[: 1 if k == "dependency" else 2]]
    processes = min(effective_n_jobs(n_jobs), len(work))
    seconds = sum(_SECONDS[name] for name, _ in work)
    began, total = time.perf_counter(), 0
    with (
        fits.FitProgress(quiet) as progress,
        ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool,
    ):
        how = f" from an empty cache, in {count_of(processes, 'process', 'processes')}"
        progress.say(f"Compiling for {', '.join(kinds)}: about {seconds} s of processor time{how}.")
        task = progress.add_task("compiling", total=len(work), state="")
        for done in as_completed([pool.submit(compile_for, *one) for one in work]):
            name, compiled = done.result()
            total += compiled
            progress.update(task, advance=1)
            found = f"{count_of(compiled, 'kernel')} compiled" if compiled else "ready"
            progress.say(f"{name}: {found}")
    files = list(folder.glob("*.nbc"))
    size = sum(file.stat().st_size for file in files) / 1e6
    kept = f"{folder} holds {len(files)} ({size:.0f} MB)"
    typer.echo(f"{total} kernels compiled in {time.perf_counter() - began:.0f} s; {kept}.")
