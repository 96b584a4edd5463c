"""Peak memory of the CoNLL-2000 fit, and what the first fit of a process costs.

One command: ``python benchmarks/memory.py``. Everything runs in fresh subprocesses. The data are
encoded in a process of their own, so that the one whose memory is measured never holds attribute
strings. The cold-start runs share one temporary kernel cache (``HINGELINE_CACHE_DIR``) that is
empty at first: the first process compiles everything, the second finds it compiled.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from datasets import BenchmarkError, conll2000_task
from harness import (
    NO_TIME,
    argument_parser,
    console,
    entry_point,
    peak_rss_mb,
    print_table,
    write_results,
)

SMALL_SENTENCES = 300
CACHE_VARIABLE = "HINGELINE_CACHE_DIR"
PARAMS = {"C": 0.1, "tol": 0.05}


def child_encode(options: argparse.Namespace) -> None:
    """Write the whole task and a small one as arrays."""
    from ours import encode_task

    for name, limit in (("whole", options.limit), ("small", SMALL_SENTENCES)):
        task = encode_task(conll2000_task(limit))
        sparse.save_npz(options.folder / f"{name}-train.npz", task.train)
        sparse.save_npz(options.folder / f"{name}-test.npz", task.test)
        np.savez(options.folder / f"{name}.npz", task.labels, task.lengths, task.test_lengths)


def _read_task(folder: Path, name: str) -> Any:
    from ours import EncodedTask

    train, test = (
        sparse.csr_matrix(sparse.load_npz(folder / f"{name}-{part}.npz"))
        for part in ("train", "test")
    )
    with np.load(folder / f"{name}.npz") as arrays:
        labels, lengths, test_lengths = (arrays[key] for key in arrays.files)
    return EncodedTask(train, labels, lengths, test, test_lengths, NO_TIME)


def child_peak(options: argparse.Namespace) -> dict[str, float]:
    """Fit CoNLL-2000 with only our arrays in memory and return the peak sizes."""
    from ours import certificate, fit_chain, warm_up_chain

    params = PARAMS | {"n_jobs": options.n_jobs}
    warm_up_chain(_read_task(options.folder, "small"), params)
    task = _read_task(options.folder, "whole")
    arrays = (task.train.data, task.train.indices, task.train.indptr, task.labels)
    before = peak_rss_mb()
    estimator, timing = fit_chain(task, params)
    return {
        "the training arrays, MiB": sum(array.nbytes for array in arrays) / 2**20,
        "the weights, MiB": estimator.weights_.nbytes / 2**20,
        "peak before the fit, MiB": before,
        "peak after the fit, MiB": peak_rss_mb(),
        "fit, s": timing.wall,
        "gap %": certificate(estimator)["gap %"],
    }


def child_start(options: argparse.Namespace) -> dict[str, float]:
    """Time the import and the first and second small fit of this process."""
    start = time.perf_counter()
    importlib.import_module("hingeline")
    imported = time.perf_counter() - start
    from ours import fit_chain

    task = _read_task(options.folder, "small")
    params = PARAMS | {"n_jobs": options.n_jobs}
    first, second = (fit_chain(task, params)[1].wall for _ in range(2))
    return {"import, s": imported, "first fit, s": first, "second fit, s": second}


CHILDREN = {"encode": child_encode, "peak": child_peak, "start": child_start}


def run_child(kind: str, options: argparse.Namespace, cache: str | None = None) -> Any:
    """Run one of the children in a fresh process and return what it measured."""
    command = [sys.executable, __file__, "--child", kind, "--folder", str(options.folder)]
    command += ["--n-jobs", str(options.n_jobs), *(["--quick"] * options.quick)]
    environment = os.environ | ({CACHE_VARIABLE: cache} if cache else {})
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise BenchmarkError(f"The process for {kind!r} failed with code {done.returncode}.")
    return json.loads(done.stdout.splitlines()[-1])


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run all children and return the memory figures and every cold-start run."""
    run_child("encode", options)
    rows: dict[str, Any] = {"memory": run_child("peak", options), "cold start": {}}
    for _ in range(options.repeat):
        with tempfile.TemporaryDirectory() as cache:
            for label in ("empty", "warm"):
                runs = rows["cold start"].setdefault(label, [])
                runs.append(run_child("start", options, cache))
    return rows


def print_rows(rows: dict[str, Any], repeat: int) -> None:
    """Print both tables."""
    memory = [[name, f"{value:.2f}"] for name, value in rows["memory"].items()]
    print_table("CoNLL-2000 fit: memory of the whole process", ("what", "value"), memory)
    table = [
        [label, *(f"{statistics.median(run[key] for run in runs):.3f}" for key in runs[0])]
        for label, runs in rows["cold start"].items()
    ]
    title = f"Cold start on {SMALL_SENTENCES} sentences, median of {repeat}"
    print_table(title, ("kernel cache", *rows["cold start"]["empty"][0]), table)
    console.print("The second fit of a process is the speed without any compilation.")


def main() -> None:
    """Measure memory and cold start, or be one of the children."""
    parser = argument_parser(__doc__)
    parser.add_argument("--child", choices=CHILDREN, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.limit = SMALL_SENTENCES if options.quick else None
    if options.child:
        print(json.dumps(CHILDREN[options.child](options)))
        return
    with tempfile.TemporaryDirectory() as folder:
        options.folder = Path(folder)
        rows = measure(options)
    print_rows(rows, options.repeat)
    write_results("memory", rows, quick=options.quick)


if __name__ == "__main__":
    entry_point(main)
