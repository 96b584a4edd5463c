"""Dependency parsing of UD English EWT with gold tags, and what decoders cost by length.

One command: ``python benchmarks/dependencies.py``. Default features and C, all training sentences,
to a certified gap of 5 %: attachment on dev and test as the CoNLL 2018 evaluation counts it (all
words, relations up to their first colon; ``no_punct`` leaves out words tagged PUNCT), processor
seconds, words a second, memory. Trees may cross in training (288 do); predictions also without
crossing. Then both decoders on random scores, for 10 to 320 words: microseconds a word, and the
exponent of a sentence's time. Features, C and sizes of tables were chosen on dev.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from harness import (
    argument_parser,
    console,
    cpu_seconds,
    entry_point,
    peak_rss_mb,
    result_path,
    timed,
    write_results,
)
from hingeline import DependencySSVM
from hingeline._jit import kernel
from hingeline.evaluation.metrics import attachment_scores
from hingeline.inference.dependencies import find_projective_tree, find_tree
from published import load_ud_english_ewt

NAME = "structures_dependencies"
LENGTHS = (10, 20, 40, 80, 160, 320)


@kernel
def decode_often(scores: Any, heads: Any, projective: bool, times: int) -> float:
    """Find the best tree so many times."""
    total = 0.0
    for _ in range(times):
        if projective:
            total += find_projective_tree(scores, heads)
        else:
            total += find_tree(scores, heads)
    return total


def score(model: DependencySSVM, part: Any) -> dict[str, Any]:
    """Attachment in per cent, and words a second, reading of the table included."""
    truth = part.trees()
    before = cpu_seconds()
    found = model.predict(part.table)
    seconds = cpu_seconds() - before
    words = [[tag != "PUNCT" for tag in tags] for tags in part.table.sentences("upos")]
    row: dict[str, Any] = {"words_per_cpu_second": part.table.n_tokens / seconds}
    for name, counted in {"all": None, "no_punct": words}.items():
        scores = attachment_scores(truth, found, counted)
        shares = (100.0 * share for share in scores[:3])
        row[name] = dict(zip(("UAS", "LAS", "LAS with subtypes"), shares, strict=True))
    return row


def parse(n: int, n_jobs: int) -> list[dict[str, Any]]:
    """Train on n sentences; a row per part and kind of tree."""
    data = load_ud_english_ewt()
    some = slice(0, n)
    DependencySSVM(tol=0.5, random_state=0).fit(data.train.table[:50], data.train.trees()[:50])
    before = peak_rss_mb()
    model = DependencySSVM(tol=0.05, random_state=0, n_jobs=n_jobs)
    table, trees = data.train.table[some], data.train.trees()[some]
    model, took = timed(model.fit, table, trees)
    fit = {
        "sentences": len(trees),
        "C": model.C_,
        "passes": model.n_iter_,
        "gap": model.duality_gap_ / model.primal_objective_,
        "cpu_seconds": took.cpu,
        "wall_seconds": took.wall,
        "n_jobs": n_jobs,
        "peak_rss_mb": peak_rss_mb(),
        "rss_before_mb": before,
        "weights_mb": model.weights_.nbytes / 2**20,
    }
    rows = [{"part": "fit", **fit}]
    for projective in (False, True):
        model.set_params(projective=projective, n_jobs=1)
        model.predict(data.dev.table[:20])
        for name, part in (("dev", data.dev), ("test", data.test)):
            rows.append({"part": name, "projective": projective, **score(model, part)})
    return rows


def measure_decoders(seconds: float) -> list[dict[str, Any]]:
    """Microseconds a word by length, and exponents of a sentence's time from 40 words on."""
    rng = np.random.default_rng(0)
    rows = []
    for name, projective in (("Chu-Liu and Edmonds", False), ("Eisner", True)):
        costs = {}
        decode_often(np.zeros((3, 3)), np.zeros(2, np.int64), projective, 1)  # compiles
        for length in LENGTHS:
            scores, heads = rng.normal(size=(length + 1, length + 1)), np.zeros(length, np.int64)
            times = 1
            while True:
                start = time.process_time()
                decode_often(scores, heads, projective, times)
                took = time.process_time() - start
                if took >= seconds:
                    break
                times *= 2
            costs[length] = took / times
        long = [length for length in LENGTHS if length >= 40]
        slope = np.polyfit(np.log(long), np.log([costs[length] for length in long]), 1)[0]
        by_length = {str(length): 1e6 * cost / length for length, cost in costs.items()}
        rows.append({"decoder": name, "exponent": float(slope), "us_per_word": by_length})
    return rows


def draw(rows: list[dict[str, Any]], quick: bool) -> None:
    """Time a word against length, both decoders."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for row in rows:
        costs = row["us_per_word"]
        label = f"{row['decoder']}: a sentence T^{row['exponent']:.2f}"
        axes.loglog([*map(int, costs)], [*costs.values()], "o-", label=label)
    axes.set(xlabel="words T", ylabel="microseconds a word")
    axes.legend(frameon=False)
    figure.savefig(result_path(NAME, quick, ".png"), dpi=110)


def run(options: argparse.Namespace) -> None:
    """Print and write all rows."""
    rows = parse(300 if options.quick else 10**9, max(options.n_jobs, 1))
    rows += (decoders := measure_decoders(0.02 if options.quick else 0.3))
    for row in rows:
        console.print(row)
    draw(decoders, options.quick)
    write_results(NAME, rows, quick=options.quick)


if __name__ == "__main__":
    entry_point(lambda: run(argument_parser(__doc__).parse_args()))
