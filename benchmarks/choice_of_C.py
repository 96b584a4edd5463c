"""``C="auto"`` beside the default C: scores on test data, and what the search costs.

One command: ``python benchmarks/choice_of_C.py``. Tables and taggers of different size, density and
scale. The search may cost three fits at most, with the default C and the same tolerance.
The best C of a grid on the test data is printed, too: no search without them can be better.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.datasets import load_digits, make_classification

from datasets import letter, mnist, news20_tfidf
from defaults import encode_taggers, read_taggers, timed_fit
from harness import argument_parser, console, entry_point, write_results
from hingeline import ChainSSVM, MulticlassSSVM
from published import load_ocr_letters

COSTS = (0.001, 0.01, 0.1, 1.0, 10.0)


def read_problems(n: int) -> dict[str, tuple[Any, ...]]:
    """Name -> estimator and the two parts; at most n rows or sentences to learn from."""
    found: dict[str, tuple[Any, ...]] = {}
    for name, data in {"MNIST": mnist(), "news20": news20_tfidf(), "letter": letter()}.items():
        part = data.train[: 10 * n], data.train_labels[: 10 * n]
        found[name] = (MulticlassSSVM, *part, data.test, data.test_labels)
    X, y = load_digits(return_X_y=True)
    found["digits, 0 to 16"] = (MulticlassSSVM, X[:1000], y[:1000], X[1000:], y[1000:])
    X, y = make_classification(
        6000, 60, n_informative=12, n_classes=5, flip_y=0.1, class_sep=0.8, random_state=0
    )
    X *= 10.0 ** np.random.default_rng(0).uniform(-1, 1, X.shape[1])
    found["generated, uneven"] = (MulticlassSSVM, X[: 5 * n], y[: 5 * n], X[3000:], y[3000:])
    words = load_ocr_letters()
    X, y = words.sequences(), words.labels()
    own, others = (np.flatnonzero(words.folds == 0)[:n], np.flatnonzero(words.folds != 0)[::3])
    parts = ((X[i], [y[k] for k in i]) for i in (own, others))
    found["OCR"] = (ChainSSVM, *(part for pair in parts for part in pair))
    for name, parts in read_taggers(n).items():
        for kind in ("templates", "dicts"):
            X_train, X_test = encode_taggers(kind, [table for table, _ in parts])
            found[f"{name}, {kind}"] = (ChainSSVM, X_train, parts[0][1], X_test, parts[1][1])
    return found


def main() -> None:
    """Print a row per problem and how the search did on all of them."""
    options = argument_parser(__doc__).parse_args()
    rows: list[dict[str, Any]] = []
    for name, (kind, X, y, X_test, y_test) in read_problems(60 if options.quick else 400).items():
        row: dict[str, Any] = {"data": name, "n": len(y), "scores": {}, "cpu": {}}

        def run(C: Any, row: dict[str, Any] = row, kind: Any = kind, data: Any = (X, y)) -> Any:
            made = kind(random_state=0, max_time=60.0)
            model = made if C == "default" else made.set_params(C=C)
            row["cpu"][str(C)] = timed_fit(model, *data)
            return model

        run("auto")  # compiles
        for C in ("default", "auto", *COSTS):
            model = run(C)
            row["scores"][str(C)] = 100.0 * model.score(X_test, y_test)
            if C == "auto":
                row["C"] = chosen = model.C_
        row["ratio"] = row["cpu"]["auto"] / row["cpu"]["default"]
        scores = row["scores"]
        console.print(
            f"{name}: default {scores['default']:.2f}, auto {scores['auto']:.2f} (C={chosen:.3g}), "
            f"best of a grid {max(scores[str(C)] for C in COSTS):.2f}; {row['ratio']:.1f} fits"
        )
        rows.append(row)
        write_results("choice_of_C", rows, quick=options.quick)
    gains = [row["scores"]["auto"] - row["scores"]["default"] for row in rows]
    ratios = [row["ratio"] for row in rows]
    console.print(
        f"auto above the default: {min(gains):+.2f} to {max(gains):+.2f} points, mean "
        f"{np.mean(gains):+.2f}; cost {min(ratios):.1f} to {max(ratios):.1f} fits, wanted 3: "
        f"{sum(ratio <= 3 for ratio in ratios)} of {len(rows)}"
    )


if __name__ == "__main__":
    entry_point(main)
