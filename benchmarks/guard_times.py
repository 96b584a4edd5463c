"""Two versions of the package against the clock, in alternation: ``guard.py time`` and ``compile``.

A version is a Python executable that has it installed, or a source folder to put on PYTHONPATH.
Every run is a process of its own. ``time`` warms up on a slice of the data first, so that it
measures no compilation; ``compile`` starts each run with an empty cache and measures little else.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.datasets import load_svmlight_file
from sklearn.preprocessing import MultiLabelBinarizer

from datasets import (
    conll2000_task,
    data_file,
    encode_attributes,
    mnist,
    ocr_task,
    with_constant_column,
)
from harness import kept_rows, print_table, write_results

LIMIT = 1.03
WARM_UP = 40

#: Counts compilations in every process that imports the package, workers among them.
HOOK = """
import os, sys, time

class _Hook:
    def find_spec(self, name, path=None, target=None):
        if name != "hingeline":
            return None
        sys.meta_path.remove(self)
        from numba.core import event

        class Count(event.Listener):
            depth, began = 0, 0.0
            def on_start(self, _):
                self.depth += 1
                if self.depth == 1:
                    self.began = time.perf_counter()
            def on_end(self, _):
                self.depth -= 1
                spent = 0.0 if self.depth else time.perf_counter() - self.began
                with open(os.path.join(os.environ["GUARD_COUNTS"], str(os.getpid())), "a") as file:
                    file.write(f"{int(self.depth == 0)} {spent}\\n")

        event.register("numba:compile", Count())
        return None

if os.environ.get("GUARD_COUNTS"):
    sys.meta_path.insert(0, _Hook())
"""

Timing = dict[str, float]
Job = Callable[[Path, int], Timing]


def cpu_seconds() -> float:
    """Return the processor seconds of this process and of its children that have ended."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, kinds))


def timed(work: Callable[[], Any]) -> tuple[Any, Timing]:
    """Return what `work` returns, and what it took."""
    cpu, wall = cpu_seconds(), time.perf_counter()
    value = work()
    return value, {"wall": time.perf_counter() - wall, "cpu": cpu_seconds() - cpu}


# --- data, prepared once for both versions ---------------------------------------------------


def save(folder: Path, name: str, matrix: sparse.csr_matrix, **arrays: Any) -> None:
    """Write a matrix and the arrays beside it."""
    sparse.save_npz(folder / f"{name}.npz", matrix, compressed=False)
    np.savez(folder / f"{name}.more.npz", **arrays)


def load(folder: Path, name: str) -> dict[str, Any]:
    """Read what `save` has written."""
    more = dict(np.load(folder / f"{name}.more.npz"))
    return {"X": sparse.load_npz(folder / f"{name}.npz"), **more}


def prepare_chain(folder: Path, name: str, task: Any) -> None:
    """Write both parts of a sequence task as matrices."""
    train = encode_attributes(task.train_attributes)
    labels = np.array(list(chain.from_iterable(task.train_labels)))
    save(folder, name, train.matrix, y=labels, lengths=train.lengths)
    test = encode_attributes(task.test_attributes, train.vocabulary)
    save(folder, f"{name}-test", test.matrix, lengths=test.lengths)


def prepare_yeast(folder: Path, limit: int | None) -> None:
    """Write yeast's training part: features, and one column of indicators per label."""
    path = data_file("multilabel/yeast/yeast_train.svm.gz")
    X, sets = load_svmlight_file(str(path), multilabel=True)
    indicator = MultiLabelBinarizer().fit_transform(sets)
    save(folder, "yeast", sparse.csr_matrix(X)[:limit], y=indicator[:limit].astype(np.int64))


def prepare_mnist(folder: Path, limit: int | None) -> None:
    """Write MNIST's training part, a constant column added."""
    data = with_constant_column(mnist())
    save(folder, "mnist", data.train[:limit], y=data.train_labels[:limit])


PREPARE: dict[str, Callable[[Path, int | None], None]] = {
    "conll": lambda folder, limit: prepare_chain(folder, "conll", conll2000_task(limit)),
    "ocr": lambda folder, limit: prepare_chain(folder, "ocr", ocr_task(range(1, 10), limit)),
    "mnist": prepare_mnist,
    "yeast": prepare_yeast,
}


# --- jobs of `time`: each in a process of its own, after a warm-up -----------------------------


def first(data: dict[str, Any], n: int) -> dict[str, Any]:
    """Return the first `n` sequences of a task."""
    tokens = int(data["lengths"][:n].sum())
    return {"X": data["X"][:tokens], "y": data["y"][:tokens], "lengths": data["lengths"][:n]}


def certificate(model: Any) -> Timing:
    """Return what a fit reached, to see that both versions did the same."""
    return {"primal": float(model.primal_objective_), "passes": float(model.n_iter_)}


def fit_chain(name: str, **params: Any) -> Job:
    """Return the job of fitting a chain."""

    def job(folder: Path, n_jobs: int) -> Timing:
        from hingeline import ChainSSVM

        data = load(folder, name)
        params.update(fit_intercept=False, random_state=0, n_jobs=n_jobs)
        small = first(data, WARM_UP)
        ChainSSVM(**params).fit(small["X"], small["y"], lengths=small["lengths"])
        model = ChainSSVM(**params)
        _, timing = timed(lambda: model.fit(data["X"], data["y"], lengths=data["lengths"]))
        return timing | certificate(model)

    return job


def fit_mnist(folder: Path, n_jobs: int) -> Timing:
    """Fit MNIST at C=0.1, to the gap of the comparison with LIBLINEAR."""
    from hingeline import MulticlassSSVM

    data = load(folder, "mnist")
    params: dict[str, Any] = {"C": 0.1, "tol": 0.0023, "fit_intercept": False, "random_state": 0}
    MulticlassSSVM(**params, n_jobs=n_jobs).fit(data["X"][:400], data["y"][:400])
    model = MulticlassSSVM(**params, n_jobs=n_jobs)
    _, timing = timed(lambda: model.fit(data["X"], data["y"]))
    return timing | certificate(model)


def fit_yeast(folder: Path, n_jobs: int) -> Timing:
    """Fit yeast with all pairs of labels."""
    from hingeline import MultilabelSSVM

    data = load(folder, "yeast")
    X = data["X"].toarray()
    params: dict[str, Any] = {
        "C": 0.1,
        "edges": "full",
        "tol": 0.01,
        "random_state": 0,
        "n_jobs": n_jobs,
    }
    MultilabelSSVM(**params, max_iter=1).fit(X[:100], data["y"][:100])
    model = MultilabelSSVM(**params)
    _, timing = timed(lambda: model.fit(X, data["y"]))
    return timing | certificate(model)


def decode_conll(folder: Path, n_jobs: int) -> Timing:
    """Label the test part of CoNLL-2000 ten times, after a short fit."""
    from hingeline import ChainSSVM

    data, test = first(load(folder, "conll"), 1000), load(folder, "conll-test")
    model = ChainSSVM(C=0.1, tol=0.3, fit_intercept=False, random_state=0, n_jobs=n_jobs)
    model.fit(data["X"], data["y"], lengths=data["lengths"])
    lengths = test["lengths"]
    model.predict(test["X"], lengths=lengths)
    _, timing = timed(lambda: [model.predict(test["X"], lengths=lengths) for _ in range(10)])
    return timing


def train_file(folder: Path, n_jobs: int) -> Timing:
    """Run ``hingeline train`` from the file of CoNLL-2000 to a model, in a process of its own."""
    command = [sys.executable, "-m", "hingeline", "train", os.environ["GUARD_TRAIN"]]
    command += ["--model", str(folder / f"{os.getpid()}.hinge"), "--n-jobs", str(n_jobs)]
    _, timing = timed(lambda: subprocess.run(command, check=True, capture_output=True))
    return timing


JOBS: dict[str, tuple[str | None, Job]] = {
    "conll 5 %": ("conll", fit_chain("conll", C=0.1, tol=0.05)),
    "conll 1 %": ("conll", fit_chain("conll", C=0.1, tol=0.01)),
    "ocr 2 %": ("ocr", fit_chain("ocr", C=0.1, tol=0.02, boundary=False)),
    "mnist": ("mnist", fit_mnist),
    "yeast": ("yeast", fit_yeast),
    "decode conll": ("conll", decode_conll),
    "train file": (None, train_file),
}


# --- jobs of `compile`: from an empty cache ----------------------------------------------------


def cold_chain(*_: Any) -> Timing:
    """Fit and predict a chain on sparse features."""
    from hingeline import ChainSSVM

    rng = np.random.default_rng(0)
    X = [sparse.random(5, 30, 0.2, format="csr", random_state=rng) for _ in range(20)]
    y = [rng.integers(4, size=5) for _ in X]
    return timed(lambda: ChainSSVM(random_state=0).fit(X, y).predict(X))[1]


def cold_multiclass(*_: Any) -> Timing:
    """Fit and predict classes."""
    from hingeline import MulticlassSSVM

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 6)), rng.integers(4, size=50)
    return timed(lambda: MulticlassSSVM(random_state=0).fit(X, y).predict(X))[1]


def cold_graph(*_: Any) -> Timing:
    """Fit and predict grids by the default, which is the relaxation."""
    from hingeline import Graph, GraphSSVM

    rng = np.random.default_rng(0)
    number = np.arange(12).reshape(3, 4)
    across = np.column_stack([number[:, :-1].ravel(), number[:, 1:].ravel()])
    down = np.column_stack([number[:-1].ravel(), number[1:].ravel()])
    X = [Graph(rng.normal(size=(12, 4)), np.vstack([across, down])) for _ in range(5)]
    y = [rng.integers(3, size=12) for _ in X]
    return timed(lambda: GraphSSVM(0.1, random_state=0, max_iter=20).fit(X, y).predict(X))[1]


def cold_labels(*_: Any) -> Timing:
    """Fit and predict sets of labels with all pairs."""
    from hingeline import MultilabelSSVM

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 5)), rng.integers(2, size=(30, 6))
    model = MultilabelSSVM(1.0, edges="full", random_state=0, max_iter=20)
    return timed(lambda: model.fit(X, y).predict(X))[1]


def cold_demo(folder: Path, _: int) -> Timing:
    """Run ``hingeline demo``."""
    command = [sys.executable, "-m", "hingeline", "demo", "--output", str(folder / "demo.png")]
    return timed(lambda: subprocess.run(command, check=True, capture_output=True))[1]


COLD: dict[str, tuple[str | None, Job]] = {
    "chain": (None, cold_chain),
    "multiclass": (None, cold_multiclass),
    "graph": (None, cold_graph),
    "labels": (None, cold_labels),
    "demo": (None, cold_demo),
}


# --- alternation -------------------------------------------------------------------------------


def version_environment(version: str) -> tuple[str, dict[str, str]]:
    """Return the Python executable of a version and the environment that finds it."""
    path = Path(version).absolute()
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    for source in (path / "src", path):
        if (source / "hingeline" / "__init__.py").is_file():
            return sys.executable, environment | {"PYTHONPATH": str(source)}
    if not os.access(path, os.X_OK) or path.is_dir():
        raise SystemExit(f"{version} is neither a Python executable nor a folder with hingeline.")
    environment.pop("PYTHONPATH", None)
    return str(path), environment


def run_job(table: str, job: str, version: str, folder: Path, n_jobs: int) -> Timing:
    """Run one job of a version in its own process; for `compile`, with an empty cache."""
    python, environment = version_environment(version)
    script = [python, str(Path(__file__).absolute()), table, job, str(folder), str(n_jobs)]
    if table == "time":
        done = subprocess.run(script, env=environment, capture_output=True, text=True, check=False)
        return read_timing(done, job, version)
    with tempfile.TemporaryDirectory() as scratch:
        cache, counts, hook = (Path(scratch, name) for name in ("cache", "counts", "hook"))
        for part in (cache, counts, hook):
            part.mkdir()
        (hook / "sitecustomize.py").write_text(HOOK)
        paths = [str(hook), *filter(None, [environment.get("PYTHONPATH")])]
        environment |= {"PYTHONPATH": os.pathsep.join(paths), "GUARD_COUNTS": str(counts)}
        environment |= {"HINGELINE_CACHE_DIR": str(cache), "XDG_CACHE_HOME": str(cache)}
        before = cpu_seconds()
        done = subprocess.run(script, env=environment, capture_output=True, text=True, check=False)
        timing = read_timing(done, job, version) | {"cpu of all": cpu_seconds() - before}
        lines = [line.split() for file in counts.iterdir() for line in file.open()]
    timing["compilations"] = float(len(lines))
    timing["entry points"] = float(sum(int(line[0]) for line in lines))
    timing["compile seconds"] = sum(float(line[1]) for line in lines)
    return timing


def read_timing(done: subprocess.CompletedProcess[str], job: str, version: str) -> Timing:
    """Return the last line that a job printed, or end with what went wrong."""
    if done.returncode:
        raise SystemExit(f"{job} failed with {version}:\n{done.stderr[-2000:]}")
    timing: Timing = json.loads(done.stdout.splitlines()[-1])
    return timing


def alternate(table: str, jobs: Iterable[str], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run jobs of both versions as old, new, new, old, … and return the rows of the result."""
    sides = {"old": options.old, "new": options.new}
    rows = []
    known = JOBS if table == "time" else COLD
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for needed in {known[job][0] for job in jobs} - {None}:
            PREPARE[str(needed)](folder, 500 if options.quick else None)
        for job in jobs:
            runs: dict[str, list[Timing]] = {"old": [], "new": []}
            if table == "time":  # compiles, and lets both read the data once
                for side in sides.values():
                    run_job(table, job, side, folder, options.n_jobs)
            for k in range(options.repeat):
                for side in ("old", "new") if k % 2 == 0 else ("new", "old"):
                    runs[side].append(run_job(table, job, sides[side], folder, options.n_jobs))
            rows.append({"job": job, **{side: collect(runs[side]) for side in runs}})
            rows[-1]["ratio"] = ratios(runs)
            print_row(rows[-1])
    return rows


def collect(runs: list[Timing]) -> dict[str, list[float]]:
    """Turn a list of timings into one list per quantity."""
    return {key: [run[key] for run in runs] for key in runs[0]}


def ratios(runs: dict[str, list[Timing]]) -> Timing:
    """Return new over old: of minima and of medians, processor and elapsed seconds."""
    return {
        f"{kind.__name__} {key}": kind([run[key] for run in runs["new"]])
        / kind([run[key] for run in runs["old"]])
        for kind in (min, statistics.median)
        for key in ("cpu", "wall")
    }


def print_row(row: dict[str, Any]) -> None:
    """Print a job as soon as it is done."""
    text = ", ".join(f"{name} {value:.3f}" for name, value in row["ratio"].items())
    print(f"{row['job']}: new/old {text}", flush=True)


def add_commands(commands: Any) -> None:
    """Add ``time`` and ``compile`` to a parser."""
    for name, known in (("time", JOBS), ("compile", COLD)):
        jobs = ", ".join(known).replace("%", "%%")
        command = commands.add_parser(name, help=f"two versions in alternation: {jobs}")
        for side in ("--old", "--new"):
            command.add_argument(side, required=True, help="Python executable or source folder")
        command.add_argument("--job", action="append", choices=known, help="default: all")
        command.add_argument("--repeat", type=int, default=5 if name == "time" else 2)
        command.add_argument("--n-jobs", type=int, default=1, help="threads of the package")
        command.add_argument("--save", default=f"guard_{name}", help="name of the result file")
        command.add_argument("--quick", action="store_true", help="small subsets, to test the code")


def run(options: argparse.Namespace) -> int:
    """Run ``time`` or ``compile``; 1 where the new version is slower than `LIMIT` allows."""
    known = JOBS if options.command == "time" else COLD
    os.environ["GUARD_TRAIN"] = ""
    if options.command == "time":
        os.environ["GUARD_TRAIN"] = str(data_file("conll2000/train.txt.gz"))
    rows = alternate(options.command, options.job or list(known), options)
    columns = ["job", "old CPU s", "new CPU s", "CPU ratio", "old s", "new s", "ratio"]
    extra = [key for key in ("compilations", "entry points") if key in rows[0]["old"]]
    table = []
    for row in rows:
        cells = [row["job"]]
        for key in ("cpu", "wall"):
            cells += [f"{min(row[side][key]):.2f}" for side in ("old", "new")]
            cells.append(f"{row['ratio'][f'min {key}']:.3f}")
        cells += [f"{row['old'][key][0]:.0f} -> {row['new'][key][0]:.0f}" for key in extra]
        table.append(cells)
    print_table("Two versions: the least of all rounds", [*columns, *extra], table)
    name, ran = options.save, {row["job"] for row in rows}
    others = [row for row in kept_rows(name, quick=options.quick) if row["job"] not in ran]
    write_results(name, [*others, *rows], quick=options.quick)
    slow = [row["job"] for row in rows if row["ratio"]["min cpu"] > LIMIT]
    if slow:
        print(f"slower by more than {100 * (LIMIT - 1):.0f} %: {', '.join(slow)}")
    return int(bool(slow))


if __name__ == "__main__":
    _, table_name, job_name, folder_name, threads = sys.argv
    warnings.simplefilter("ignore")
    chosen = JOBS if table_name == "time" else COLD
    print(json.dumps(chosen[job_name][1](Path(folder_name), int(threads))))
