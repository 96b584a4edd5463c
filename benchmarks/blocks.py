"""Training in blocks: rounds, bytes, work per worker, memory, and what more workers would take.

One command: ``python benchmarks/blocks.py`` (``--part`` runs a part of it and keeps the rows of the
others). Parts:

``optimum``   OCR letters, CoNLL-2000, MNIST and yeast in 8 blocks, beside ``fit`` on all of it
``conll``     eight copies of CoNLL-2000 with every tenth word another, in 1, 2, 4 and 8 blocks
``brown``     the Brown corpus (48,242 sentences) in 8 blocks, by every way to join blocks
``million``   1,000,000 sentences, made on the workers from seeds: no process ever holds them all

*Work* is the CPU time of the busiest block, from reading on; what the driver takes is apart. On a
machine of few cores the wall time of many workers cannot be measured: the model below predicts it
from work, rounds, bytes and the driver's seconds, and is compared with the wall times that were::

    seconds = work·⌈blocks / workers⌉ + driver + rounds·latency + bytes / bandwidth
"""

from __future__ import annotations

import argparse
import math
import resource
import time
import warnings
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from brown import PARAMS, TEMPLATES, TRAIN_SENTENCES, tags_for
from harness import argument_parser, console, entry_point, kept_rows, print_table, write_results
from hingeline import ChainSSVM, MulticlassSSVM, MultilabelSSVM
from hingeline.distributed import fit_blocks
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


def when(history: Any, gap: float, name: str) -> float:
    """What a column said when this gap was certified first; nan where it was not."""
    seen = (getattr(row, name) for row in history if row.relative_gap <= gap)
    return float(next(seen, math.nan))


def run_one(estimator: Any, X: Any, y: Any) -> dict[str, Any]:
    """Fit on all of it in one process, one thread."""
    began, wall = time.process_time(), time.perf_counter()
    model = estimator.fit(X, y)
    return {
        "system": "fit",
        "work": time.process_time() - began,
        "wall": time.perf_counter() - wall,
        "passes": model.n_iter_,
        "primal": model.primal_objective_,
        "dual": model.dual_objective_,
        "gap": model.duality_gap_ / model.primal_objective_,
        "seconds to 5 %": when(model.history_, 0.05, "time"),
    }


def run_blocks(
    estimator: Any, parts: list[Any], blocks: int, workers: int, **options: Any
) -> dict[str, Any]:
    """Train in blocks, in processes of this machine."""
    began, wall = time.process_time(), time.perf_counter()
    model = fit_blocks(estimator, parts, blocks=blocks, workers=workers, options=options)
    history = model.history_
    return {
        "system": options.get("combine", "each"),
        "blocks": blocks,
        "workers": workers,
        "work": history[-1].work,
        "driver": time.process_time() - began,
        "wall": time.perf_counter() - wall,
        "rounds": history[-1].rounds,
        "bytes": history[-1].bytes,
        "passes": model.n_iter_,
        "primal": model.primal_objective_,
        "dual": model.dual_objective_,
        "gap": model.duality_gap_ / model.primal_objective_,
        "seconds to 5 %": when(history, 0.05, "time"),
        "rounds to 5 %": when(history, 0.05, "rounds"),
        "work to 5 %": when(history, 0.05, "work"),
        "worker MiB": model.worker_memory_ / 2**20,
        "driver MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10,
    }


def predict_wall(row: dict[str, Any], workers: int, latency: float, bandwidth: float) -> float:
    """The model at the head of this file, for as many blocks as the row has."""
    turns = math.ceil(row["blocks"] / workers)
    traffic = row["rounds"] * latency + row["bytes"] / bandwidth
    return float(row["work"] * turns + row["driver"] + traffic)


def optimum(quick: bool) -> list[dict[str, Any]]:
    """The gap of blocks holds the optimum of one machine."""
    n = 200 if quick else None
    letters, text = load_ocr_letters(), load_conll2000().train
    words = np.flatnonzero(letters.folds == 0)[:n]
    labels = letters.labels()
    digits, yeast = load_mnist(), load_multilabel("yeast")
    chain_of = {"C": 0.1, "tol": 0.01, "random_state": SEED, "n_jobs": 1}
    tasks: dict[str, tuple[Any, Any, Any]] = {
        "OCR, fold 0": (
            ChainSSVM(**chain_of),
            letters.sequences()[words],
            [labels[i] for i in words],
        ),
        "CoNLL-2000": (
            ChainSSVM(**chain_of),
            [*text.select(["word", "pos"])][:n],
            text.sentences("chunk")[:n],
        ),
        "MNIST": (
            MulticlassSSVM(C=0.1, tol=0.01, random_state=SEED, n_jobs=1),
            sp.csr_matrix(digits.X_train[:n] / 255.0),
            digits.y_train[:n],
        ),
        "yeast, all pairs": (
            MultilabelSSVM(C=0.1, tol=0.01, solver="sdm", random_state=SEED, n_jobs=1),
            yeast.X_train[:n],
            yeast.Y_train[:n],
        ),
    }
    rows = []
    for name, (estimator, X, y) in tasks.items():
        rows.append({"part": "optimum", "task": name} | run_one(estimator, X, y))
        rows.append({"part": "optimum", "task": name} | run_blocks(estimator, cut(X, y, 8), 8, 2))
        one, ours = rows[-2:]
        assert ours["dual"] <= one["primal"] * (1 + 1e-9)
        assert one["dual"] <= ours["primal"] * (1 + 1e-9)
    return rows


def conll(quick: bool) -> list[dict[str, Any]]:
    """Eight copies with other words, in 1, 2, 4 and 8 blocks."""
    table = load_conll2000().train
    n = 100 if quick else len(table)
    sentences, tags = [*table.select(["word", "pos"])][:n], table.sentences("chunk")[:n]
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
    y = tags * COPIES
    estimator = ChainSSVM(C=0.1, tol=0.01, random_state=SEED, n_jobs=1)
    rows = [run_one(estimator, X, y)]
    for blocks, workers in ((1, 1), (2, 2), (4, 2), (8, 1), (8, 2)):
        rows.append(run_blocks(estimator, cut(X, y, blocks), blocks, workers))
    return [{"part": "conll", "task": f"CoNLL-2000 × {COPIES}"} | row for row in rows]


def brown(quick: bool) -> list[dict[str, Any]]:
    """Every way to join blocks, on tags without the suffixes for titles and headlines."""
    table = load_brown().table
    order = np.random.default_rng(SEED).permutation(len(table))
    chosen = np.sort(order[: 400 if quick else TRAIN_SENTENCES])
    words, tags = [*table.select(["word"])], tags_for("stripped", table.sentences("tag"))
    X, y = [words[i] for i in chosen], [tags[i] for i in chosen]
    features = TokenTemplates(TEMPLATES, min_count=2)
    given = {**PARAMS, "features": features, "random_state": SEED, "n_jobs": 1}
    rows = [run_one(ChainSSVM(**given), X, y)]
    parts = cut(X, y, 8)
    rows.append(run_blocks(ChainSSVM(**given), parts, 8, 2))
    most = 3 * rows[-1]["passes"] // 2  # the others are far from the gap then
    for combine in ("line", "add", "average"):
        limited = ChainSSVM(**given, max_iter=most)
        rows.append(run_blocks(limited, parts, 8, 2, combine=combine))
    return [{"part": "brown", "task": "Brown"} | row for row in rows]


def million(quick: bool) -> list[dict[str, Any]]:
    """What no process holds: 16 blocks on two workers, to a gap of 5 %."""
    n = 2_000 if quick else MILLION
    parts = [Part(k, n // 16) for k in range(16)]
    estimator = ChainSSVM(C=0.1, tol=0.05, random_state=SEED)
    row = run_blocks(estimator, parts, 16, 2)
    return [{"part": "million", "task": f"{n:,} sentences"} | row]


PARTS = {"optimum": optimum, "conll": conll, "brown": brown, "million": million}


def show(rows: list[dict[str, Any]]) -> None:
    """Print what was measured, work beside that of one process, and the predictions."""

    def say(row: dict[str, Any], name: str, digits: int = 1, factor: float = 1.0) -> str:
        value = row.get(name, math.nan)
        return "–" if value is None or value != value else f"{factor * value:.{digits}f}"

    one = {row["task"]: row for row in rows if row["system"] == "fit"}
    table = []
    for row in rows:
        peer = one.get(row["task"])
        ratio = "–" if peer is None or peer is row else f"1/{peer['work'] / row['work']:.1f}"
        table.append(
            [
                f"{row['task']}, {row['system']}",
                *(say(row, name, 0) for name in ("blocks", "workers", "passes", "rounds")),
                *(say(row, "bytes", 0, 1e-6), say(row, "work"), ratio, say(row, "driver")),
                *(say(row, "wall"), say(row, "gap", 2, 100.0), say(row, "rounds to 5 %", 0)),
                *(say(row, "worker MiB", 0), say(row, "driver MiB", 0)),
            ]
        )
    columns = ("task, joined by", "blocks", "workers", "passes", "rounds", "MB", "work s")
    columns += ("of fit's", "driver s", "wall s", "gap %", "rounds to 5 %", "worker MiB")
    print_table("Training in blocks", (*columns, "driver MiB"), table)
    trained = [row for row in rows if row["system"] == "each" and row["part"] != "optimum"]
    predictions = [
        [
            f"{row['task']}, {row['blocks']} blocks",
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
    parser.add_argument("--part", choices=[*PARTS, "all"], default="all")
    options: argparse.Namespace = parser.parse_args()
    chosen = list(PARTS) if options.part == "all" else [options.part]
    rows: list[dict[str, Any]] = []
    if options.part != "all":
        rows = [
            row for row in kept_rows("blocks", quick=options.quick) if row["part"] not in chosen
        ]
    warnings.simplefilter("ignore")
    console.print("compiling, not measured")
    fit_blocks(ChainSSVM(C=0.1, tol=0.5), [Part(k, 50) for k in range(2)], workers=1)
    for name in chosen:
        for row in PARTS[name](options.quick):
            rows.append(row)
        show(rows)
        write_results("blocks", rows, quick=options.quick)


if __name__ == "__main__":
    entry_point(main)
