"""Does training slow down as sequences grow? Sentences of CoNLL-2000, joined to sequences.

One command: ``python benchmarks/lengths.py``. The same sentences, 1, 10 and 30 to a sequence, at
the same C: tokens, features and (but for transitions between sentences) the objective are the same,
so that what is left is the price of length. Processor seconds to a certified gap of 1 %, and chunk
F1 on the test sentences joined the same way.
"""

from __future__ import annotations

import statistics
import warnings
from typing import Any

import numpy as np

from datasets import ChainData, conll2000_task
from harness import argument_parser, console, entry_point, print_table, write_results
from ours import EncodedTask, encode_task, fit_chain, warm_up_chain

TOGETHER = (1, 10, 30)
PARAMS = {"C": 0.1, "tol": 0.01}


def join(lengths: np.ndarray, together: int) -> np.ndarray:
    """Lengths of sequences made of so many neighbours each."""
    return np.add.reduceat(lengths, np.arange(0, len(lengths), together))


def run(task: ChainData, encoded: EncodedTask, together: int, repeat: int) -> dict[str, Any]:
    """Fit and score with so many sentences to a sequence."""
    joined = encoded._replace(lengths=join(encoded.lengths, together))
    fits = [fit_chain(joined, PARAMS) for _ in range(repeat)]
    model = fits[0][0]
    found = model.predict(encoded.test, lengths=join(encoded.test_lengths, together))
    sentences = np.split(np.concatenate(found), np.cumsum(encoded.test_lengths)[:-1])
    last = model.history_[-1]
    return {
        "together": together,
        "sequences": len(joined.lengths),
        "tokens": int(joined.lengths.sum()),
        "cpu": statistics.median(timing.cpu for _, timing in fits),
        "passes": model.n_iter_,
        "planes": last.planes,
        "decoded_tokens": int(last.oracle_calls * joined.lengths.mean()),
        "gap": model.duality_gap_ / model.primal_objective_,
        "primal": model.primal_objective_,
        "f1": task.score(task.test_labels, [list(part) for part in sentences]),
    }


def main() -> None:
    """Fit each length, print the table."""
    options = argument_parser(__doc__).parse_args()
    task = conll2000_task(300 if options.quick else 1000)
    encoded = encode_task(task)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warm_up_chain(encoded, PARAMS)
    rows = []
    for together in TOGETHER:
        rows.append(run(task, encoded, together, options.repeat))
        console.print(f"{together} to a sequence: {rows[-1]['cpu']:.2f} s")
    print_table(
        f"CoNLL-2000, {len(encoded.lengths):,} sentences, C={PARAMS['C']}, to a gap of 1 %",
        ("sentences to a sequence", "sequences", "CPU s", "to single", "passes", "planes", "F1 %"),
        [
            [
                str(row["together"]),
                str(row["sequences"]),
                f"{row['cpu']:.2f}",
                f"{row['cpu'] / rows[0]['cpu']:.2f}x",
                str(row["passes"]),
                str(row["planes"]),
                f"{row['f1']:.2f}",
            ]
            for row in rows
        ],
    )
    growth = np.log(rows[-1]["cpu"] / rows[0]["cpu"]) / np.log(TOGETHER[-1])
    console.print(f"seconds for the same tokens grow with length to the power {growth:.2f}")
    write_results("lengths", rows, quick=options.quick)


if __name__ == "__main__":
    entry_point(main)
