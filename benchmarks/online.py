"""A stream of batches against one fit on everything: CoNLL-2000, 1,000 sentences a batch.

One command: ``python benchmarks/online.py``. Templates are the default ones of
``TokenTemplates``; the stream's encoder learns them batch by batch, the batch fit's at once. Each
row is a process of its own; seconds are processor time of encoding and training, batch by batch.
Kernels are compiled before. Beside accuracy: whether a batch costs more the later it comes, what
single sentences cost, and what bounded memory costs in accuracy. Five other data sets, too:
``passes=1`` and one fit, two seeds of the order of visits (the data keep their order).
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np

from harness import (
    argument_parser,
    console,
    entry_point,
    kept_rows,
    peak_rss_mb,
    print_table,
    write_results,
)

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
for _other in ("OCR letters", "UD English", "MNIST", "USPS", "generated"):
    SYSTEMS[f"{_other}, 1 pass a batch"] = {"other": _other}
BATCH_FIT = "batch fit, tol 1 %"


def load_other(name: str) -> tuple[Any, ...]:
    """Training and test data of another set, examples a batch, and whether they are sequences."""
    import published
    from hingeline.features import TokenTemplates

    rng = np.random.default_rng(0)
    if name == "OCR letters":
        data = published.load_ocr_letters()
        words = [slice(lo, hi) for lo, hi in itertools.pairwise(data.offsets.tolist())]
        X = [data.pixels[word].astype(np.float64) for word in words]
        y = [list(data.letters[word]) for word in words]
        first = np.asarray(data.folds) == 0
        train = rng.permutation(np.flatnonzero(~first))
        sides = [([X[i] for i in part], [y[i] for i in part]) for part in (train, *first.nonzero())]
        return *sides[0], *sides[1], BATCH, True
    if name == "UD English":
        document = published.load_ud_english_ewt()
        train, test = (part.table for part in (document.train, document.test))
        encoder = TokenTemplates()
        X = encoder.fit_transform(train.select(["form"])[:6000])
        X_test = encoder.transform(test.select(["form"]))
        return X, train.sentences("upos")[:6000], X_test, test.sentences("upos"), BATCH, True
    if name == "generated":  # noisy chains of eight labels with few features
        means, moves = rng.normal(size=(8, 60)), rng.dirichlet(np.full(8, 0.3), 8)
        X, y = [], []
        for _ in range(3000):
            labels = [int(rng.integers(8))]
            for _ in range(int(rng.integers(3, 23))):
                labels.append(int(rng.choice(8, p=moves[labels[-1]])))
            X.append(means[labels] + 5.0 * rng.normal(size=(len(labels), 60)))
            y.append(labels)
        return X[:2000], y[:2000], X[2000:], y[2000:], 250, True
    data = published.load_mnist() if name == "MNIST" else published.load_usps()
    some = rng.permutation(len(data.y_train))[:10_000]
    scale = 255.0 if name == "MNIST" else 1.0
    X, X_test = data.X_train[some] / scale, data.X_test / scale
    return X, data.y_train[some], X_test, data.y_test, BATCH, False


def compare_other(name: str, n_jobs: int) -> dict[str, Any]:
    """Held-out accuracy of a batch fit and of streams with ``passes=1``."""
    from hingeline import ChainSSVM, MulticlassSSVM

    X, y, X_test, y_test, size, chain = load_other(name)
    kind: Any = ChainSSVM if chain else MulticlassSSVM
    began = time.process_time()
    batch = kind(C=C, tol=TOL, random_state=0, n_jobs=n_jobs).fit(X, y)
    seconds = [time.process_time() - began]
    scores = [100 * batch.score(X_test, y_test)]
    for seed in range(2):
        began = time.process_time()
        stream = kind(C=C, random_state=seed, n_jobs=n_jobs)
        for lo in range(0, len(y), size):
            part = slice(lo, lo + size)
            stream.partial_fit(X[part], y[part], classes=batch.classes_, passes=1)
        scores.append(100 * stream.score(X_test, y_test))
        seconds.append(time.process_time() - began)
    return {"accuracy": float(np.mean(scores[1:])), "batch": scores[0], "streams": scores[1:],
            "seconds": float(np.mean(seconds[1:])), "batch_seconds": seconds[0],
            "examples": len(y)}  # fmt: skip


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
        began = time.process_time()
        model.fit(X, y)
        seconds.append(time.process_time() - began)
    else:
        size = options.get("batch", BATCH)
        for lo in range(0, len(y), size):
            began = time.process_time()
            model.partial_fit(
                X[lo : lo + size],
                y[lo : lo + size],
                passes=options["passes"],
                memory=options.get("memory"),
            )
            seconds.append(time.process_time() - began)
        if options.get("finish"):
            began = time.process_time()
            model.partial_fit(X[:1], y[:1])
            seconds.append(time.process_time() - began)
    began = time.process_time()
    model.weights_.shape  # noqa: B018
    exported = time.process_time() - began
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
    parser.add_argument("--only", help="run the systems whose name matches, keep the other rows")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parsed = parser.parse_args()
    if parsed.child is not None:
        options = json.loads(parsed.child)
        other = options.get("other")
        found = compare_other(other, parsed.n_jobs) if other else None
        print(json.dumps(found or child(options, parsed.quick, parsed.n_jobs)))
        return
    before = kept_rows("online", quick=parsed.quick) if parsed.only else []
    rows = {row["system"]: row for row in before}
    for name, options in SYSTEMS.items():
        if re.search(parsed.only or "", name) and not (parsed.quick and "other" in options):
            if parsed.quick:
                options = {**options, **{k: 1500 for k in ("memory", "last") if k in options}}
            rows[name] = {"system": name, **_run(options, parsed)}
            console.print(f"{name}: {rows[name]['accuracy']:.2f} %")
            write_results("online", list(rows.values()), quick=parsed.quick)
    print_table(
        f"CoNLL-2000 and others as a stream, C={C}",
        ("system", "accuracy %", "to batch", "F1 %", "CPU s", "s a call, first and last",
         "peak MB"),
        [
            [
                name,
                f"{row['accuracy']:.2f}",
                f"{row['accuracy'] - row.get('batch', rows[BATCH_FIT]['accuracy']):+.2f}",
                f"{row['f1']:.2f}" if "f1" in row else "",
                f"{row['seconds']:.2f}",
                f"{row['first_third']:.3g}, {row['last_third']:.3g}" if "f1" in row else "",
                f"{row['peak_mb']:.0f}" if "f1" in row else "",
            ]
            for name, row in rows.items()
        ],
    )  # fmt: skip
    for name, row in rows.items():
        if "1 pass a batch" in name:
            apart = row.get("batch", rows[BATCH_FIT]["accuracy"]) - row["accuracy"]
            verdict = "reached" if apart <= WITHIN else "not reached"
            console.print(f"{name}: {apart:.2f} points below the fit (aim {WITHIN}): {verdict}")


if __name__ == "__main__":
    entry_point(main)
