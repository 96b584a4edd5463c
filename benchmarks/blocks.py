"""Training in blocks: rounds, bytes, work per worker, memory, and what more workers would take.

One command: ``python benchmarks/blocks.py``; ``--only`` takes a pattern for the names of jobs
(``--list``), and keeps the rows of the others. Every job has a process of its own. Tasks:

OCR letters, CoNLL-2000, MNIST and yeast in 8 blocks, beside ``fit`` on all of it;
eight copies of CoNLL-2000 with every tenth word another, in 1, 2, 4 and 8 blocks;
the Brown corpus (48,242 sentences) in 8 blocks;
1,000,000 sentences, made on the workers from seeds: no process ever holds them all.

*Work* is the CPU time of the busiest block, from reading on; what the driver takes is apart. On a
machine of few cores the wall time of many workers cannot be measured: the model below predicts it
from work, rounds, bytes and the driver's seconds, and is compared with the wall times that were::

    seconds = work·⌈blocks / workers⌉ + driver + rounds·latency + bytes / bandwidth

``--every-C`` is another table (blocks_C.json): small problems of each kind, C from 0.01 to 1000, in
2, 8 and 32 blocks, even, of very different sizes and sorted by label: rounds and CPU seconds to a
gap of 1 %, beside ``fit`` on all of it. Blocks are called in turn, in this very process.

``cpu`` is all CPU time, of the driver, of every worker and of what they send; half of it is the
least that two cores can take, where other jobs disturb the wall time.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import re
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_digits

from brown import PARAMS, TEMPLATES, TRAIN_SENTENCES, tags_for
from harness import argument_parser, console, entry_point, kept_rows, print_table, write_results
from hingeline import ChainSSVM, Graph, GraphSSVM, MulticlassSSVM, MultilabelSSVM
from hingeline.data import load_notes
from hingeline.distributed import fit, fit_blocks
from hingeline.features import SparseSequences, TokenTemplates
from published import load_brown, load_conll2000, load_mnist, load_multilabel, load_ocr_letters

SEED = 0
COPIES = 8
LATENCY = 0.02  # seconds of a round trip to all workers, for the prediction
BANDWIDTH = 1e9 / 8  # bytes a second, to and from the driver together
MILLION = 1_000_000


class Part(NamedTuple):
    """Sentences that a worker makes from a seed: labels by a chain, features by label and noise."""

    seed: int
    sentences: int
    features: int = 20_000
    labels: int = 8
    length: int = 8
    active: int = 5  # features of a token

    def compute(self, **_: Any) -> tuple[SparseSequences, list[list[int]]]:
        """The part, as a delayed object would give it."""
        rng = np.random.default_rng([SEED, self.seed])
        common = np.random.default_rng(SEED)  # what all parts have in common
        moves = common.dirichlet(np.full(self.labels, 0.5), self.labels).cumsum(axis=1)
        liked = common.integers(0, self.features, (self.labels, 400))
        y = np.empty((self.sentences, self.length), dtype=np.int64)
        y[:, 0] = rng.integers(0, self.labels, self.sentences)
        for t in range(1, self.length):
            draw = rng.random(self.sentences)[:, None]
            y[:, t] = np.minimum((moves[y[:, t - 1]] < draw).sum(axis=1), self.labels - 1)
        size = (y.size, self.active)
        own = liked[y.ravel()[:, None], rng.integers(0, 400, size)]
        noise = (self.features * rng.random(size) ** 3).astype(np.int64)
        columns = np.sort(np.where(rng.random(size) < 0.5, own, noise), axis=1)
        matrix = sp.csr_matrix(
            (np.ones(columns.size), columns.ravel(), self.active * np.arange(y.size + 1)),
            (y.size, self.features),
        )
        matrix.sum_duplicates()
        return SparseSequences(matrix, self.length * np.arange(self.sentences + 1)), y.tolist()


def cut(X: Any, y: Any, blocks: int) -> list[Any]:
    """Parts of about equal size, in order."""
    ends = [len(y) * k // blocks for k in range(blocks + 1)]
    return [(X[a:b], y[a:b]) for a, b in pairwise(ends)]


class Job(NamedTuple):
    """One fit."""

    task: str
    system: str  # fit, or each: blocks
    blocks: int = 1
    workers: int = 1
    tol: float = 0.01
    max_iter: int = 1000

    @property
    def name(self) -> str:
        """As ``--only`` sees it."""
        where = "" if self.system == "fit" else f", {self.blocks} blocks, {self.workers} workers"
        return f"{self.task}, {self.system}{where}, {self.tol:.0%}"


Task = tuple[Any, Any, Any]


def spent() -> float:
    """CPU seconds of this process and of those that it started and that have ended."""
    return sum(os.times()[:4])


def run(job: Job, quick: bool) -> dict[str, Any]:
    """Fit, in this process or in blocks."""
    warnings.simplefilter("ignore")
    estimator, X, y = TASKS[job.task](400 if quick else None)
    estimator.set_params(tol=job.tol, max_iter=job.max_iter, random_state=SEED, n_jobs=1)
    parts = X if y is None else cut(X, y, job.blocks)
    began, wall, cpu = time.process_time(), time.perf_counter(), spent()
    row: dict[str, Any] = {**job._asdict()}
    if job.system == "fit":
        model = estimator.fit(X, y)
        row |= {"work": time.process_time() - began}
    else:
        model = fit_blocks(estimator, parts, blocks=job.blocks, workers=job.workers)
        last = model.history_[-1]
        row |= {"work": last.work, "rounds": last.rounds, "bytes": last.bytes}
        row |= {"driver": time.process_time() - began}
        row |= {"worker MiB": model.worker_memory_ / 2**20}
        row |= {"driver MiB": model.driver_memory_ / 2**20}
    return row | {
        "wall": time.perf_counter() - wall,
        "cpu": spent() - cpu,
        "passes": model.n_iter_,
        "primal": model.primal_objective_,
        "dual": model.dual_objective_,
        "gap": model.duality_gap_ / model.primal_objective_,
    }


class InTurn:
    """Blocks in this process, in turn: CPU time without that of processes and messages."""

    sent = received = 0

    def open(self, n_blocks: int, make: Callable[[], Any]) -> None:
        self.host = make()

    def call(self, method: str, common: Any, own: dict[int, Any]) -> dict[int, Any]:
        return dict(self.host.call(method, common, own))

    def n_alive(self) -> int:
        return 1

    def rebalance(self) -> list[int]:
        return []

    def __enter__(self) -> InTurn:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def small_chains(scale: float = 1.0) -> Task:
    """120 chains of 8 tokens with 6 numbers each, and 4 labels, which overlap."""
    rng = np.random.default_rng(SEED)
    moves, centres = rng.dirichlet(np.full(4, 0.5), 4), rng.normal(size=(4, 6))
    X, Y = [], []
    for _ in range(120):
        y = [int(rng.integers(4))]
        while len(y) < 8:
            y.append(int(rng.choice(4, p=moves[y[-1]])))
        X.append(scale * (centres[y] + rng.normal(size=(8, 6))))
        Y.append(y)
    return ChainSSVM(), X, Y


def small_notes() -> Task:
    notes = load_notes()
    return ChainSSVM(), notes.X_train[:160], notes.y_train[:160]


def small_classes() -> Task:
    X, y = load_digits(return_X_y=True)
    return MulticlassSSVM(), X[:400] / 16.0, y[:400]


def small_graphs() -> Task:
    """Rings of four nodes with two labels, pairs of which agree."""
    rng = np.random.default_rng(SEED)
    edges = np.array([[0, 1], [1, 2], [2, 3], [3, 0]])
    y = [np.repeat(rng.integers(0, 2, 2), 2) for _ in range(60)]
    X = [Graph(rng.normal(size=(4, 3)) + own[:, None], edges) for own in y]
    return GraphSSVM(inference="enumeration", solver="sdm"), X, y


SMALL_TASKS: dict[str, Callable[[], Task]] = {
    "60 graphs": small_graphs,
    "400 digits": small_classes,
    "160 sentences": small_notes,
    "120 chains": small_chains,
    "120 chains, features × 10": lambda: small_chains(10.0),
}
CUTS = [(2, "even"), (8, "even"), (8, "uneven"), (8, "by label"), (32, "even")]


def cut_so(X: Any, y: Any, blocks: int, how: str) -> list[Any]:
    """Parts: even ones, the largest 200 times the least, or by the first label."""
    order, n = np.arange(len(y)), len(y)
    if how == "by label":
        order = np.argsort([str(np.asarray(own).flat[0]) for own in y], kind="stable")
    shares = np.geomspace(1.0, 200.0 if how == "uneven" else 1.0, blocks)
    ends = [0, *np.round(n * np.cumsum(shares) / shares.sum()).astype(int)]

    def take(values: Any, some: Any) -> Any:
        return values[some] if isinstance(values, np.ndarray) else [values[i] for i in some]

    return [(take(X, order[a:b]), take(y, order[a:b])) for a, b in pairwise(ends)]


def try_every_C(quick: bool) -> None:
    """Fit the small problems in every way; print and keep what it took."""
    warnings.simplefilter("ignore")
    fit._open = lambda *_, **__: InTurn()  # type: ignore[assignment]
    rows: list[dict[str, Any]] = []
    table = []
    for task, make in SMALL_TASKS.items():
        estimator, X, y = make()
        estimator.set_params(C=100.0, n_jobs=1).fit(X, y)  # compiles
        fit_blocks(estimator, cut_so(X, y, 2, "even"))
        for C in (1.0, 100.0) if quick else (0.01, 1.0, 100.0, 1000.0):
            line = [task, f"{C:g}"]
            for blocks, how in [(1, "fit"), *CUTS]:
                estimator, X, y = make()
                estimator.set_params(C=C, random_state=SEED, n_jobs=1)
                began = time.process_time()
                if how == "fit":
                    model = estimator.fit(X, y)
                else:
                    model = fit_blocks(estimator, cut_so(X, y, blocks, how))
                seconds = time.process_time() - began
                gap = model.duality_gap_ / model.primal_objective_
                row = {"task": task, "C": C, "blocks": blocks, "cut": how, "gap": gap}
                row |= {"passes": model.n_iter_, "cpu": seconds}
                row |= {"rounds": None if how == "fit" else model.history_[-1].rounds}
                rows.append(row)
                text = f"{model.n_iter_}" if how == "fit" else f"{row['rounds']:.0f}"
                line.append(f"{text} / {seconds:.2f}" + (f" ({gap:.0%})" if gap > 0.01 else ""))
            table.append(line)
            console.print(*line)
        write_results("blocks_C", rows, quick=quick)
    columns = ("task", "C", "fit: passes / s", *(f"{k} {how}: rounds / s" for k, how in CUTS))
    print_table("To a gap of 1 %, in blocks", columns, table)


def predict_wall(row: dict[str, Any], workers: int, latency: float, bandwidth: float) -> float:
    """The model at the head of this file, for as many blocks as the row has."""
    turns = math.ceil(row["blocks"] / workers)
    traffic = row["rounds"] * latency + row["bytes"] / bandwidth
    return float(row["work"] * turns + row["driver"] + traffic)


def letters(n: int | None) -> Task:
    data = load_ocr_letters()
    words, labels = np.flatnonzero(data.folds == 0)[:n], data.labels()
    return ChainSSVM(C=0.1), data.sequences()[words], [labels[i] for i in words]


def chunks(n: int | None) -> Task:
    table = load_conll2000().train
    return ChainSSVM(C=0.1), [*table.select(["word", "pos"])][:n], table.sentences("chunk")[:n]


def copies(n: int | None) -> Task:
    """Eight copies, each with other words in a tenth of the places."""
    estimator, sentences, tags = chunks(n)
    words = np.array([token[0] for token in chain.from_iterable(sentences)], dtype=object)
    X: list[Any] = []
    for copy in range(COPIES):
        rng = np.random.default_rng([SEED, copy])
        for sentence in sentences:
            other = rng.random(len(sentence)) < 0.1
            drawn = rng.integers(0, len(words), len(sentence))
            X.append(
                [
                    (words[k], token[1]) if new else tuple(token)
                    for token, new, k in zip(sentence, other, drawn, strict=True)
                ]
            )
    return estimator, X, tags * COPIES


def digits(n: int | None) -> Task:
    data = load_mnist()
    return MulticlassSSVM(C=0.1), sp.csr_matrix(data.X_train[:n] / 255.0), data.y_train[:n]


def yeast(n: int | None) -> Task:
    data = load_multilabel("yeast")
    return MultilabelSSVM(C=0.1, solver="sdm"), data.X_train[:n], data.Y_train[:n]


def brown(n: int | None) -> Task:
    """Tags without the suffixes for titles and headlines."""
    table = load_brown().table
    order = np.random.default_rng(SEED).permutation(len(table))
    chosen = np.sort(order[: n or TRAIN_SENTENCES])
    words, tags = [*table.select(["word"])], tags_for("stripped", table.sentences("tag"))
    estimator = ChainSSVM(**PARAMS, features=TokenTemplates(TEMPLATES, min_count=2))
    return estimator, [words[i] for i in chosen], [tags[i] for i in chosen]


def million(n: int | None) -> Task:
    """What no process holds."""
    return ChainSSVM(C=0.1), [Part(k, (n or MILLION) // 16) for k in range(16)], None


TASKS: dict[str, Callable[[int | None], Task]] = {
    "OCR, fold 0": letters,
    "CoNLL-2000": chunks,
    "MNIST": digits,
    "yeast, all pairs": yeast,
    f"CoNLL-2000 × {COPIES}": copies,
    "Brown": brown,
    "1,000,000 sentences": million,
}
SMALL, COPIED = list(TASKS)[:4], list(TASKS)[4]
JOBS = [
    *(Job(task, *how) for task in SMALL for how in (("fit",), ("each", 8, 2))),
    *(Job(task, "fit", tol=tol) for task in (COPIED, "Brown") for tol in (0.01, 0.05)),
    *(Job(COPIED, "each", k, w) for k in (1, 2, 4, 8) for w in (1, 2) if w <= k),
    *(Job(task, "each", 8, 2, 0.05) for task in (COPIED, "Brown")),
    Job("Brown", "each", 8, 2),
    Job("1,000,000 sentences", "each", 16, 2, 0.05),
]


def show(rows: list[dict[str, Any]]) -> None:
    """Print what was measured, work beside that of one process, and the predictions."""

    def say(row: dict[str, Any], name: str, digits: int = 1, factor: float = 1.0) -> str:
        value = row.get(name, math.nan)
        return "–" if value is None or value != value else f"{factor * value:.{digits}f}"

    one = {(row["task"], row["tol"]): row for row in rows if row["system"] == "fit"}
    table = []
    for row in rows:
        peer = one.get((row["task"], row["tol"]))
        ratio = "–" if peer is None or peer is row else f"1/{peer['work'] / row['work']:.1f}"
        if peer is not None:  # each holds the optimum of the other
            assert row["dual"] <= peer["primal"] * (1 + 1e-9)
            assert peer["dual"] <= row["primal"] * (1 + 1e-9)
        table.append(
            [
                f"{row['task']}, {row['system']}, {row['tol']:.0%}",
                *(say(row, name, 0) for name in ("blocks", "workers", "passes", "rounds")),
                *(say(row, "bytes", 0, 1e-6), say(row, "work"), ratio, say(row, "driver")),
                *(say(row, "cpu"), say(row, "wall"), say(row, "gap", 2, 100.0)),
                *(say(row, "worker MiB", 0), say(row, "driver MiB", 0)),
            ]
        )
    columns = ("task, joined by, tol", "blocks", "workers", "passes", "rounds", "MB", "work s")
    columns += ("of fit's", "driver s", "CPU s", "wall s", "gap %", "worker MiB")
    print_table("Training in blocks", (*columns, "driver MiB"), table)
    trained = [row for row in rows if row["system"] == "each" and row["task"] not in SMALL]
    predictions = [
        [
            f"{row['task']}, {row['blocks']} blocks, {row['tol']:.0%}",
            *(f"{row['workers']}", f"{row['wall']:.0f}"),
            f"{predict_wall(row, row['workers'], 0.001, 1e9):.0f}",
            *(f"{predict_workers(row, count):.0f}" for count in (8, 64, 512)),
        ]
        for row in trained
    ]
    columns = ("task", "workers", "wall s", "model, here", "8 workers", "64 workers", "512 workers")
    print_table("Seconds by the model (20 ms a round, 1 Gbit/s)", columns, predictions)


def predict_workers(row: dict[str, Any], workers: int) -> float:
    """The same data in as many blocks as workers, if rounds and passes stay what they are."""
    work = row["work"] * row["blocks"] / workers
    traffic = row["rounds"] * LATENCY + row["bytes"] / BANDWIDTH
    return float(work + row["driver"] + traffic)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--only", default="", help="a pattern for the names of jobs")
    parser.add_argument("--every-C", action="store_true", help="small problems, and nothing else")
    parser.add_argument("--list", action="store_true", help="name the jobs, and end")
    options: argparse.Namespace = parser.parse_args()
    if options.every_C:
        try_every_C(options.quick)
        return
    jobs = [job for job in JOBS if re.search(options.only, job.name)]
    if options.list:
        print(*(job.name for job in jobs), sep="\n")
        return
    again = {job[:5] for job in jobs}
    rows = kept_rows("blocks", quick=options.quick) if options.only else []
    rows = [row for row in rows if tuple(row[f] for f in Job._fields[:5]) not in again]
    warnings.simplefilter("ignore")
    console.print("compiling, not measured")
    for task in {job.task: None for job in jobs}:
        estimator, X, y = TASKS[task](60)
        few = X[:2] if y is None else cut(X, y, 2)
        fit_blocks(estimator.set_params(tol=0.5), few, workers=1)
    for job in jobs:
        console.print(job.name)
        # A process of its own: the peak of its memory is that of this job.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=context) as fresh:
            rows.append(fresh.submit(run, job, options.quick).result())
    rows.sort(
        key=lambda row: [job[:5] for job in JOBS].index(tuple(row[f] for f in Job._fields[:5]))
    )
    show(rows)
    write_results("blocks", rows, quick=options.quick)


if __name__ == "__main__":
    entry_point(main)
