"""Does training slow down as sequences grow? Sentences joined to sequences.

One command: ``python benchmarks/lengths.py``. The same sentences of CoNLL-2000 (chunks) and of UD
English (parts of speech), 1, 10, 30 and 100 to a sequence, at the same C: tokens, features and (but
for transitions between sentences) the objective are the same, so that what is left is the price of
length. Processor seconds to a certified gap of 1 %, and chunk F1 or right tokens on the test
sentences joined the same way.
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from datasets import conll2000_task, token_accuracy
from harness import NO_TIME, argument_parser, console, entry_point, print_table, write_results
from hingeline.features import TokenTemplates
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


def main() -> None:
    """Fit each length, print the tables."""
    options = argument_parser(__doc__).parse_args()
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
