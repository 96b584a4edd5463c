"""Does training slow down as sequences grow? Sentences joined to sequences.

One command: ``python benchmarks/lengths.py``. The same sentences of CoNLL-2000 (chunks) and of UD
English (parts of speech), 1, 10, 30 and 100 to a sequence, at the same C: tokens, features and (but
for transitions between sentences) the objective are the same, so that what is left is the price of
length. Processor seconds to a certified gap of 1 %, and chunk F1 or right tokens on the test
sentences joined the same way.

``--part weights``: should the slack of a long sequence count as much as that of a short one? The
default tagger beside the same with ``sample_weight``, the mean length over a sequence's own.
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from datasets import conll2000_task, token_accuracy
from few import Labels, default_C, draw, read_data
from few import Part as Data
from harness import (
    NO_TIME,
    argument_parser,
    console,
    cpu_seconds,
    entry_point,
    print_table,
    write_results,
)
from hingeline import ChainSSVM
from hingeline.evaluation.metrics import evaluate
from hingeline.features import SparseSequences, TokenTemplates
from ours import EncodedTask, encode_task, fit_chain, warm_up_chain
from published import load_ud_english_ewt

TOGETHER = (1, 10, 30, 100)
COSTS = (0.1, 1.0)


class Task(NamedTuple):
    """Encoded sentences, the labels of the test sentences, and what is scored."""

    encoded: EncodedTask
    truth: Any
    score: Callable[[Any, Any], float]


def chunks(n: int) -> Task:
    """Return n sentences of CoNLL-2000 and its test part."""
    task = conll2000_task(n)
    return Task(encode_task(task), task.test_labels, task.score)


def per_cent_right(truth: Any, found: Any) -> float:
    """Return the share of right tokens in per cent, as F1 is."""
    return 100.0 * token_accuracy(truth, found)


def tags(n: int) -> Task:
    """Return n sentences of the English Web Treebank and its test part."""
    data, encoder = load_ud_english_ewt(), TokenTemplates()
    train, test = data.train.table[:n], data.test.table
    X, X_test = (
        encoder.fit_transform(train.select(["form"])),
        encoder.transform(test.select(["form"])),
    )
    sizes = np.diff(X.offsets), np.diff(X_test.offsets)
    labels = train.column("upos")
    encoded = EncodedTask(X.matrix, labels, sizes[0], X_test.matrix, sizes[1], NO_TIME)
    return Task(encoded, test.sentences("upos"), per_cent_right)


def join(lengths: np.ndarray, together: int) -> np.ndarray:
    """Lengths of sequences made of so many neighbours each."""
    return np.add.reduceat(lengths, np.arange(0, len(lengths), together))


def run(task: Task, C: float, together: int, repeat: int) -> dict[str, Any]:
    """Fit and score with so many sentences to a sequence."""
    encoded = task.encoded
    joined = encoded._replace(lengths=join(encoded.lengths, together))
    fits = [fit_chain(joined, {"C": C, "tol": 0.01}) for _ in range(repeat)]
    model = fits[0][0]
    found = model.predict(encoded.test, lengths=join(encoded.test_lengths, together))
    sentences = np.split(np.concatenate(found), np.cumsum(encoded.test_lengths)[:-1])
    last = model.history_[-1]
    return {
        "C": C,
        "together": together,
        "sequences": len(joined.lengths),
        "tokens": int(joined.lengths.sum()),
        "cpu": statistics.median(timing.cpu for _, timing in fits),
        "passes": model.n_iter_,
        "planes": last.planes,
        "decoded_tokens": int(last.oracle_calls * joined.lengths.mean()),
        "gap": model.duality_gap_ / model.primal_objective_,
        "primal": model.primal_objective_,
        "score": task.score(task.truth, [list(part) for part in sentences]),
    }


# Weights of long sequences -----------------------------------------------------------------------

#: Times the default C; of data whose lengths differ; how many sentences to learn from.
FACTORS, DRAWS, MOST_TEST = (0.3, 1.0, 3.0), 3, 500
UNEVEN = ("CoNLL-2000", "UD English", "Seminars", "Spanish names", "Citations", "UMass citations")
JOINED, SIZES = UNEVEN[:2] + UNEVEN[3:4], (100, 300)


def deal(n: int, rng: Any) -> np.ndarray:
    """How many of n sentences each sequence gets: from 1 to 100, their logarithms uniform."""
    parts = np.floor(100.0 ** rng.random(n)).astype(np.int64)
    ends = np.cumsum(parts)
    last = int(np.searchsorted(ends, n))
    parts = parts[: last + 1]
    parts[-1] -= ends[last] - n
    return parts


def join_rows(X: SparseSequences, y: Labels, rng: Any) -> tuple[SparseSequences, Labels]:
    """Neighbours joined at random to sequences of very different lengths."""
    ends = np.cumsum([0, *deal(len(y), rng)])
    labels = [[label for own in y[a:b] for label in own] for a, b in pairwise(ends.tolist())]
    return SparseSequences(X.matrix, X.offsets[ends]), labels


def score_both(truth: Labels, found: Any) -> dict[str, float]:
    """Right tokens and, where labels are tags, F1 of spans; in per cent."""
    result = evaluate(truth, [list(map(str, labels)) for labels in found])
    scores = {"tokens": 100.0 * float(result.token_accuracy)}
    if any(label[1:2] == "-" for labels in truth for label in labels):
        scores["spans"] = 100.0 * float(result.span_f1 or 0.0)
    return scores


def weigh(X: SparseSequences, y: Labels, X_test: Any, truth: Labels, n_jobs: int) -> dict[str, Any]:
    """Scores and CPU seconds, with equal weights and with weights by length, for each C."""
    lengths = X.lengths.astype(np.float64)
    found: dict[str, Any] = {}
    for way, weights in (("equal", None), ("by length", lengths.mean() / lengths)):
        for factor in FACTORS:
            C: Any = "scale" if factor == 1.0 else factor * default_C(X)
            model = ChainSSVM(C=C, tol=0.01, max_time=60.0, random_state=0, n_jobs=n_jobs)
            began = cpu_seconds()
            model.fit(X, y, sample_weight=weights)
            seconds = cpu_seconds() - began
            found[f"{way}, C x {factor:g}"] = {
                "cpu": seconds,
                "gap": model.duality_gap_ / model.primal_objective_,
                **score_both(truth, model.predict(X_test)),
            }
    return found


def pair_up(draws: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over draws of both ways, for each C: F1 of spans if there are any, right tokens."""
    found: dict[str, Any] = {}
    for factor in FACTORS:

        def mean(key: str, C: str = f", C x {factor:g}") -> dict[str, float]:
            ways = {"default": "equal", "by length": "by length"}
            return {k: float(np.mean([one[w + C][key] for one in draws])) for k, w in ways.items()}

        first = next(iter(draws[0].values()))
        found[f"C x {factor:g}"] = {
            "scores": mean("spans" if "spans" in first else "tokens"),
            "tokens": {"scores": mean("tokens")},
            "cpu": mean("cpu"),
        }
    return found


def list_uneven(quick: bool) -> Iterator[tuple[str, Data, Data, int, bool]]:
    """Name, what to draw from, test data, how many to draw, and whether to join them."""
    for name, data, test in read_data():
        test = Data(test.X[:MOST_TEST], test.y[:MOST_TEST])
        for n in (20,) if quick else SIZES:
            if name in UNEVEN and n <= len(data.y):
                yield name, data, test, n, False
            if name in JOINED and n == max((20,) if quick else SIZES):
                yield f"{name}, joined", data, test, 3 * n, True


def run_weights(quick: bool, n_jobs: int) -> None:
    """Rows of means over draws, to the result file."""
    rows: list[dict[str, Any]] = []
    for name, data, test, n, joined in list_uneven(quick):
        draws = []
        for seed in range(1 if quick else DRAWS):
            X, y, X_test = draw(data, test, n, 0.0, seed)
            truth = test.y
            if joined:
                rng = np.random.default_rng([seed, 11])
                (X, y), (X_test, truth) = join_rows(X, y, rng), join_rows(X_test, truth, rng)
            if not rows and not seed:  # compile
                weigh(X[:20], y[:20], X_test[:20], truth[:20], n_jobs)
            draws.append(weigh(X, y, X_test, truth, n_jobs))
        spread = float(X.lengths.std() / X.lengths.mean())
        rows.append({"data": name, "n": n, "spread": spread, **pair_up(draws), "draws": draws})
        console.print({key: value for key, value in rows[-1].items() if key != "draws"})
        write_results("lengths_weights", rows, quick=quick)


def main() -> None:
    """Fit each length, print the tables."""
    parser = argument_parser(__doc__)
    parser.add_argument("--part", choices=("joined", "weights"), default="joined")
    options = parser.parse_args()
    if options.part == "weights":
        run_weights(options.quick, options.n_jobs)
        return
    rows = []
    n = 100 if options.quick else 500
    tasks = {"CoNLL-2000": chunks(n), "UD English": tags(n)}
    for C in COSTS:
        for name, task in tasks.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                warm_up_chain(task.encoded, {"tol": 0.01})
            part = [run(task, C, together, options.repeat) for together in TOGETHER]
            print_table(
                f"{name}, {len(task.encoded.lengths):,} sentences, C={C}, to a gap of 1 %",
                ("to a sequence", "sequences", "CPU s", "to single", "passes", "planes", "score %"),
                [
                    [
                        *(str(row["together"]), str(row["sequences"]), f"{row['cpu']:.2f}"),
                        f"{row['cpu'] / part[0]['cpu']:.2f}x",
                        *(str(row["passes"]), str(row["planes"]), f"{row['score']:.2f}"),
                    ]
                    for row in part
                ],
            )
            growth = np.log(part[-1]["cpu"] / part[0]["cpu"]) / np.log(TOGETHER[-1])
            console.print(f"seconds for the same tokens grow with length to the power {growth:.2f}")
            rows += [{"data": name, "growth": growth, **row} for row in part]
            write_results("lengths", rows, quick=options.quick)


if __name__ == "__main__":
    entry_point(main)
