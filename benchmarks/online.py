"""A stream of batches against one fit on everything: CoNLL-2000, 1,000 sentences a batch.

One command: ``python benchmarks/online.py``. Templates are the default ones of
``TokenTemplates``; the stream's encoder learns them batch by batch, the batch fit's at once. Each
row is a process of its own; the clock runs over encoding and training, batch by batch. Kernels
are compiled before. Beside accuracy: whether a batch costs more the later it comes, what single
sentences cost, and what bounded memory costs in accuracy.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from typing import Any

from harness import argument_parser, console, entry_point, peak_rss_mb, print_table, write_results

BATCH = 1000
WITHIN = 0.3
C = 0.1
TOL = 0.01

#: name -> options of the child process
SYSTEMS: dict[str, dict[str, Any]] = {
    "batch fit, tol 1 %": {"fit": True},
    "stream, 1 pass a batch": {"passes": 1},
    "stream, 3 passes a batch": {"passes": 3},
    "stream, 5 passes a batch": {"passes": 5},
    "stream, 5 passes, hashed to 2^20": {"passes": 5, "hash_bits": 20},
    "stream, converging each batch to 1 %": {"passes": None},
    "3 passes, then converging to 1 %": {"passes": 3, "finish": True},
    "memory of 4,000 sentences, 3 passes": {"passes": 3, "memory": 4000},
    "memory of 2,000 sentences, 3 passes": {"passes": 3, "memory": 2000},
    "batch fit of the last 4,000": {"fit": True, "last": 4000},
    "single sentences, 3 passes": {"passes": 3, "batch": 1, "limit": 2000},
}


def child(options: dict[str, Any], quick: bool, n_jobs: int) -> dict[str, Any]:
    """One system in this process."""
    from hingeline import ChainSSVM
    from hingeline.evaluation.metrics import evaluate
    from hingeline.features import TokenTemplates
    from published import load_conll2000

    data = load_conll2000()
    n = 2000 if quick else len(data.train)
    X, y = data.train.select([0, 1])[:n], data.train.sentences(2)[:n]
    if "last" in options:
        X, y = X[n - options["last"] :], y[n - options["last"] :]
    X, y = X[: options.get("limit", n)], y[: options.get("limit", n)]
    encoder = TokenTemplates(hash_bits=options.get("hash_bits"))
    settings = {"C": C, "tol": TOL, "random_state": 0, "n_jobs": n_jobs, "features": encoder}
    warm = ChainSSVM(**{**settings, "tol": 0.5})
    warm.fit(X[:50], y[:50]).predict(X[:50])
    warm.partial_fit(X[:50], y[:50], passes=1).partial_fit(X[50:99], y[50:99], passes=1, memory=99)
    model = ChainSSVM(**settings)
    seconds = []
    before = peak_rss_mb()
    if options.get("fit"):
        began = time.perf_counter()
        model.fit(X, y)
        seconds.append(time.perf_counter() - began)
    else:
        size = options.get("batch", BATCH)
        for lo in range(0, len(y), size):
            began = time.perf_counter()
            model.partial_fit(
                X[lo : lo + size],
                y[lo : lo + size],
                passes=options["passes"],
                memory=options.get("memory"),
            )
            seconds.append(time.perf_counter() - began)
        if options.get("finish"):
            began = time.perf_counter()
            model.partial_fit(X[:1], y[:1])
            seconds.append(time.perf_counter() - began)
    began = time.perf_counter()
    model.weights_.shape  # noqa: B018
    exported = time.perf_counter() - began
    peak = peak_rss_mb()
    test = data.test
    scores = evaluate(test.sentences(2), model.predict(test.select([0, 1])))
    third = max(1, len(seconds) // 3)
    return {
        "accuracy": 100 * scores.token_accuracy,
        "f1": 100 * (scores.span_f1 or 0.0),
        "seconds": sum(seconds),
        "calls": len(seconds),
        "first_third": statistics.median(seconds[:third]),
        "last_third": statistics.median(seconds[-third:]),
        "weights_seconds": exported,
        "peak_mb": peak,
        "peak_before_mb": before,
        "features": int(model.n_features_in_),
        "labels": len(model.classes_),
        "examples": model.n_examples_,
        "gap": None if model.duality_gap_ != model.duality_gap_ else model.duality_gap_,
    }


def _run(options: dict[str, Any], parsed: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, "benchmarks/online.py", "--child", json.dumps(options)]
    command += ["--n-jobs", str(parsed.n_jobs)] + ["--quick"] * parsed.quick
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Run every system in a process of its own, print the table."""
    parser = argument_parser(__doc__)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parsed = parser.parse_args()
    if parsed.child is not None:
        print(json.dumps(child(json.loads(parsed.child), parsed.quick, parsed.n_jobs)))
        return
    rows: dict[str, dict[str, Any]] = {}
    for name, options in SYSTEMS.items():
        if parsed.quick and ("memory" in options or "last" in options):
            options = {**options, **{k: 1500 for k in ("memory", "last") if k in options}}
        rows[name] = {"system": name, **_run(options, parsed)}
        console.print(f"{name}: {rows[name]['accuracy']:.2f} %")
    batch = rows["batch fit, tol 1 %"]
    print_table(
        f"CoNLL-2000 as a stream, C={C}",
        ("system", "accuracy %", "to batch", "F1 %", "s", "batch s/s", "s a call, first and last",
         "peak MB"),
        [
            [
                name,
                f"{row['accuracy']:.2f}",
                f"{row['accuracy'] - batch['accuracy']:+.2f}",
                f"{row['f1']:.2f}",
                f"{row['seconds']:.2f}",
                f"{batch['seconds'] / row['seconds']:.1f}x",
                f"{row['first_third']:.3g}, {row['last_third']:.3g}",
                f"{row['peak_mb']:.0f}",
            ]
            for name, row in rows.items()
        ],
    )  # fmt: skip
    for passes in (1, 3, 5):
        name = f"stream, {passes} pass{'es' * (passes > 1)} a batch"
        apart = batch["accuracy"] - rows[name]["accuracy"]
        verdict = "reached" if apart <= WITHIN else "not reached"
        console.print(f"{name}: {apart:.2f} points below the batch fit (aim {WITHIN}): {verdict}")
    write_results("online", list(rows.values()), quick=parsed.quick)


if __name__ == "__main__":
    entry_point(main)
